//! Somebody between the operator and Vault, who lets everything pass, or answers everything himself.

use konverge_testkit_stores::VaultServer;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional},
    net::{TcpListener, TcpStream},
    sync::watch,
};

/// Until the test ends.
pub(super) struct Between {
    /// Where it listens.
    pub(super) address: String,
    answer: watch::Sender<Option<String>>,
}

impl Between {
    /// Lets everything pass to a Vault without TLS.
    pub(super) async fn before(vault: &VaultServer) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let vault = vault.address().strip_prefix("http://").unwrap().to_owned();
        let (answer, answers) = watch::channel(None);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(serve(client, vault.clone(), answers.clone()));
            }
        });
        Self { address, answer }
    }

    /// Answers everything with this from now on, and ends the connections that there are.
    pub(super) fn answer(&self, status: &str, kind: &str, body: &str) {
        let length = body.len();
        let head = format!("HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\n");
        self.answer.send_replace(Some(format!("{head}connection: close\r\n\r\n{body}")));
    }

    /// Lets everything pass again.
    pub(super) fn pass(&self) {
        self.answer.send_replace(None);
    }
}

async fn serve(mut client: TcpStream, vault: String, mut answers: watch::Receiver<Option<String>>) {
    let answer = answers.borrow_and_update().clone();
    let Some(answer) = answer else {
        let mut server = TcpStream::connect(vault).await.unwrap();
        tokio::select! {
            _ = copy_bidirectional(&mut client, &mut server) => {}
            _ = answers.changed() => {}
        }
        return;
    };
    // The questions have no body.
    let (mut head, mut part) = (Vec::new(), [0; 4096]);
    while !head.ends_with(b"\r\n\r\n") {
        match client.read(&mut part).await {
            Ok(length) if length > 0 => head.extend_from_slice(&part[..length]),
            _ => return,
        }
    }
    let _ = client.write_all(answer.as_bytes()).await;
    let _ = client.shutdown().await;
}
