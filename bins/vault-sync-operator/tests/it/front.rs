//! Stands between the operator and Vault: each request is shown to a test, which says what becomes of it.

use std::{io, sync::Arc};

use futures::future::BoxFuture;
use konverge_testkit_stores::VaultServer;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

/// A request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FrontRequest {
    pub(crate) method: String,
    /// Behind `/v1/`, with its query.
    pub(crate) path: String,
}

impl FrontRequest {
    /// Returns `true` if the request is about a secret, not about health, tokens, mounts, or the search for marks.
    pub(crate) fn is_about_a_secret(&self) -> bool {
        let is_search = self.method == "GET" && self.path.contains("/metadata/");
        ["secret/", "old/"].iter().any(|mount| self.path.starts_with(mount)) && !is_search
    }

    /// Whether it changes a secret.
    pub(crate) fn is_write(&self) -> bool {
        self.is_about_a_secret() && self.method != "GET"
    }
}

/// The outcome of a request.
pub(crate) enum FrontAction {
    /// It reaches Vault, and the answer comes back.
    Passes,
    /// It does not reach Vault, and the connection ends.
    Vanishes,
    /// It reaches Vault; then this is done, and the connection ends without the answer.
    AnswerVanishes(Box<dyn FnOnce() + Send>),
    /// It does not reach Vault; this is the answer, with these headers.
    Answered(u16, &'static str),
}

/// Decides what becomes of a request. It may wait before.
pub(crate) type Decide = Box<dyn Fn(FrontRequest) -> BoxFuture<'static, FrontAction> + Send + Sync>;

/// Serves in front of a Vault as long as the test runs. Gives the address.
pub(crate) async fn serve(server: &VaultServer, decide: Decide) -> io::Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = format!("http://{}", listener.local_addr()?);
    let (server, decide) = (server.address().trim_start_matches("http://").to_owned(), Arc::new(decide));
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let (server, decide) = (server.clone(), Arc::clone(&decide));
            tokio::spawn(async move { pass_on(client, &server, &decide).await });
        }
    });
    Ok(address)
}

/// One request and its answer; then the connection ends.
async fn pass_on(mut client: TcpStream, server: &str, decide: &Decide) -> io::Result<()> {
    let (asked, request) = read_request(&mut client).await?;
    let action = decide(asked).await;
    match action {
        FrontAction::Vanishes => Ok(()),
        FrontAction::Answered(status, headers) => {
            // The body that Vault sends. A response without it counts as another server's.
            let body = if status == 403 { r#"{"errors":["permission denied"]}"# } else { "" };
            let length = body.len();
            let head = format!("HTTP/1.1 {status} x\r\n{headers}content-length: {length}\r\nconnection: close\r\n\r\n");
            let answer = format!("{head}{body}");
            client.write_all(answer.as_bytes()).await
        }
        FrontAction::Passes => {
            let answer = answer(server, &request).await?;
            client.write_all(&answer).await
        }
        FrontAction::AnswerVanishes(then) => {
            answer(server, &request).await?;
            then();
            Ok(())
        }
    }
}

async fn answer(server: &str, request: &[u8]) -> io::Result<Vec<u8>> {
    let mut server = TcpStream::connect(server).await?;
    server.write_all(request).await?;
    let mut answer = Vec::new();
    server.read_to_end(&mut answer).await?;
    Ok(answer)
}

/// Reads a request, and asks for the connection to be closed after its answer.
async fn read_request(client: &mut TcpStream) -> io::Result<(FrontRequest, Vec<u8>)> {
    let mut read = Vec::new();
    loop {
        if let Some(end) = read.windows(4).position(|part| part == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&read[..end]).into_owned();
            let length = head.lines().find_map(|line| {
                let (name, value) = line.split_once(':')?;
                name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
            });
            let mut body = read.split_off(end + 4);
            let missing = length.unwrap_or_default().saturating_sub(body.len());
            let mut rest = vec![0; missing];
            client.read_exact(&mut rest).await?;
            body.extend(rest);
            let mut words = head.split(' ');
            let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
            let asked = FrontRequest { method: method.to_owned(), path: path.trim_start_matches("/v1/").to_owned() };
            return Ok((asked, [head.as_bytes(), b"\r\nConnection: close\r\n\r\n", &body].concat()));
        }
        if client.read_buf(&mut read).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}
