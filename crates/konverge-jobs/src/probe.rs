//! Whether programs are ready, asked from an image that holds neither a shell nor curl.

use std::{io, process::ExitCode, time::Duration};

use clap::Args;
use futures::future::join_all;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::{sleep, timeout},
};

/// The pause between two tries.
const PAUSE: Duration = Duration::from_millis(500);

/// Asks programs whether they are ready, until all are or time is up.
#[derive(Debug, Clone, Args)]
pub struct Probe {
    /// Pages such as `http://konverge-roll.konverge-system.svc:8080/readyz`
    #[arg(required = true, value_name = "URL", value_parser = page)]
    pub pages: Vec<Page>,
    /// How long to try
    #[arg(long, default_value_t = 10, value_name = "SECONDS")]
    pub timeout: u64,
}

/// A page over plain HTTP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    authority: String,
    path: String,
}

impl Probe {
    /// Ends with 0 if every page answers 200 in time, else with 1. Prints a line for each page that does not.
    pub async fn run(self) -> ExitCode {
        let outcomes =
            join_all(self.pages.iter().map(|page| page.is_ready_within(Duration::from_secs(self.timeout)))).await;
        let mut code = ExitCode::SUCCESS;
        for (page, outcome) in self.pages.iter().zip(outcomes) {
            match outcome {
                Ok(()) => println!("http://{}{} is ready", page.authority, page.path),
                Err(cause) => {
                    eprintln!("http://{}{} is not ready: {cause}", page.authority, page.path);
                    code = ExitCode::FAILURE;
                }
            }
        }
        code
    }
}

impl Page {
    async fn is_ready_within(&self, limit: Duration) -> Result<(), String> {
        let mut last = "no answer".to_owned();
        let ready = async {
            loop {
                match self.status().await {
                    Ok(200) => return,
                    Ok(status) => last = format!("the answer is {status}"),
                    Err(error) => last = error.to_string(),
                }
                sleep(PAUSE).await;
            }
        };
        match timeout(limit, ready).await {
            Ok(()) => Ok(()),
            Err(_) => Err(format!("{last} (for {limit:?})")),
        }
    }

    async fn status(&self) -> io::Result<u16> {
        let mut stream = TcpStream::connect(&self.authority).await?;
        let Self { authority, path } = self;
        let request = format!("GET {path} HTTP/1.1\r\nHost: {authority}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        // The first line is enough: "HTTP/1.1 200".
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).await?;
        let status = str::from_utf8(&answer).ok().and_then(|line| line.rsplit(' ').next()?.parse().ok());
        status.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "the answer is not HTTP"))
    }
}

fn page(text: &str) -> Result<Page, String> {
    let rest = text.strip_prefix("http://").ok_or("write a page with its scheme, such as http://HOST:8080/readyz")?;
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let (host, port) = authority.rsplit_once(':').unwrap_or((authority, "80"));
    if host.is_empty() || port.parse::<u16>().is_err() {
        return Err("write a host and a port, such as http://HOST:8080/readyz".to_owned());
    }
    Ok(Page { authority: format!("{host}:{port}"), path: format!("/{path}") })
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    #[test]
    fn a_page_has_a_scheme_a_host_and_a_port() {
        let read = |text| page(text).map(|page| (page.authority, page.path)).ok();
        let expected = |authority: &str, path: &str| Some((authority.to_owned(), path.to_owned()));
        assert_eq!(read("http://roll:8080/readyz"), expected("roll:8080", "/readyz"));
        assert_eq!(read("http://roll"), expected("roll:80", "/"));
        assert_eq!(read("http://[::1]:1/a/b"), expected("[::1]:1", "/a/b"));
        for bad in ["roll:8080/readyz", "https://roll/readyz", "http:///readyz", "http://roll:port/"] {
            assert_eq!(read(bad), None, "{bad}");
        }
    }

    #[tokio::test]
    async fn a_program_is_ready_once_it_answers_200() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let page = page(&format!("http://{}/readyz", listener.local_addr().unwrap())).unwrap();
        let answers = async {
            for status in ["503 Service Unavailable", "200 OK"] {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut asked = [0; 256];
                let read = stream.read(&mut asked).await.unwrap();
                assert!(asked[..read].starts_with(b"GET /readyz HTTP/1.1\r\n"));
                stream.write_all(format!("HTTP/1.1 {status}\r\n\r\n").as_bytes()).await.unwrap();
            }
        };
        let (outcome, ()) = tokio::join!(page.is_ready_within(Duration::from_secs(20)), answers);
        assert_eq!(outcome, Ok(()));
        drop(listener);
        let outcome = page.is_ready_within(Duration::from_millis(700)).await;
        assert!(outcome.unwrap_err().contains("refused"));
    }
}
