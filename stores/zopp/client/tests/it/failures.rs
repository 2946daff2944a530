//! Servers that are away, silent, refusing, or something else: the kind of error, and that it comes in time.

use std::time::{Duration, Instant};

use futures::StreamExt;
use konverge_core::error::{Classify, ErrorClass};
use konverge_zopp_client::{CallError, Client, ClientConfig, Connection, EnvironmentReader, FetchError};
use konverge_zopp_proto::ListSecretsRequest;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional},
    net::{TcpListener, TcpStream},
    time::timeout,
};
use tonic::Status;

use crate::server::{Server, name};

fn reader(server: &Server, config: &ClientConfig) -> EnvironmentReader {
    EnvironmentReader::new(Client::new(Connection::new(config).unwrap(), server.identity()), name())
}

async fn failure(reader: &EnvironmentReader) -> FetchError {
    reader.fetch().await.err().expect("the fetch fails")
}

#[tokio::test]
async fn refusals_are_sorted_by_what_helps() {
    let server = Server::start().await;
    let reader = server.reader();
    let retry = ErrorClass::After(Duration::from_secs(30));
    for (status, reason, class) in [
        (Status::unauthenticated("x"), "Unauthenticated", retry),
        (Status::permission_denied("x"), "PermissionDenied", retry),
        (Status::not_found("x"), "EnvironmentNotFound", retry),
        (Status::unavailable("x"), "ServerUnreachable", ErrorClass::Transient),
        (Status::internal("x"), "ServerRefused", ErrorClass::Transient),
    ] {
        let code = format!("({:?})", status.code());
        server.state().refusal = Some(status);
        let error = failure(&reader).await;
        assert_eq!((error.reason(), error.class()), (reason, class));
        let text = error.to_string();
        assert!(text.starts_with("cannot read acme/backend/production: ") && text.contains(&code), "{text}");
    }
}

#[tokio::test]
async fn equal_calls_within_a_second_are_told_from_replays() {
    let server = Server::start().await;
    server.state().refuse_repeats = true;
    let client = server.client();
    for _ in 0..5 {
        client.list_secrets(ListSecretsRequest::default()).await.unwrap();
    }
}

#[tokio::test]
async fn a_refused_connection_is_told_at_once_and_heals() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let server = Server::start().await;
    server.state().set("A", b"1");
    let reader = reader(&server, &ClientConfig::new(format!("http://{address}")));
    let error = failure(&reader).await;
    assert_eq!(error.reason(), "ServerUnreachable");
    assert!(error.to_string().contains("Connection refused"), "{error}");

    let target = server.port();
    let listener = TcpListener::bind(address).await.unwrap();
    tokio::spawn(forward(listener, target));
    assert_eq!(reader.fetch().await.unwrap().version, 1, "the same reader works once the server is there");
}

async fn forward(listener: TcpListener, port: u16) {
    while let Ok((mut client, _)) = listener.accept().await {
        tokio::spawn(async move {
            let mut server = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
            let _ = copy_bidirectional(&mut client, &mut server).await;
        });
    }
}

#[tokio::test]
async fn a_silent_server_fails_within_the_deadline() {
    let server = Server::start().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let config = ClientConfig {
        call_timeout: Duration::from_millis(300),
        ..ClientConfig::new(format!("http://{}", listener.local_addr().unwrap()))
    };
    let started = Instant::now();
    let error = failure(&reader(&server, &config)).await;
    assert!(matches!(error, FetchError::Unreachable { source: CallError::Deadline { .. }, .. }), "{error}");
    assert!(started.elapsed() < Duration::from_secs(5));
}

/// Passes bytes on until it is told to keep the connection open but say nothing more.
async fn freezing_proxy(listener: TcpListener, port: u16, freeze: tokio::sync::watch::Receiver<bool>) {
    while let Ok((mut client, _)) = listener.accept().await {
        let mut freeze = freeze.clone();
        tokio::spawn(async move {
            let mut server = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
            tokio::select! {
                _ = copy_bidirectional(&mut client, &mut server) => {}
                () = async { drop(freeze.wait_for(|frozen| *frozen).await) } => std::future::pending::<()>().await,
            }
        });
    }
}

#[tokio::test]
async fn a_watch_notices_a_peer_that_went_silent() {
    let server = Server::start().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let config = ClientConfig {
        keepalive_interval: Duration::from_millis(200),
        keepalive_timeout: Duration::from_millis(200),
        ..ClientConfig::new(format!("http://{}", listener.local_addr().unwrap()))
    };
    let (freeze, frozen) = tokio::sync::watch::channel(false);
    tokio::spawn(freezing_proxy(listener, server.port(), frozen));
    let mut stream = Box::pin(reader(&server, &config).watch(None).await.unwrap());
    freeze.send(true).unwrap();
    let ended = timeout(Duration::from_secs(10), stream.next()).await.expect("noticed in time");
    assert_eq!(ended.unwrap().unwrap_err().reason(), "ServerUnreachable");
}

/// A listener that answers whatever comes with the same bytes.
async fn answering(bytes: &'static [u8]) -> ClientConfig {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let config = ClientConfig {
        call_timeout: Duration::from_secs(2),
        ..ClientConfig::new(format!("http://{}", listener.local_addr().unwrap()))
    };
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = stream.read(&mut [0; 1024]).await;
            let _ = stream.write_all(bytes).await;
        }
    });
    config
}

#[tokio::test]
async fn a_server_that_answers_garbage_is_an_error_in_time() {
    let server = Server::start().await;
    for bytes in [b"HTTP/1.1 400 Bad Request\r\n\r\n".as_slice(), b"SSH-2.0-OpenSSH_9.9\r\n", &[0; 64], &[0xff; 64]] {
        let error = failure(&reader(&server, &answering(bytes).await)).await;
        assert_eq!((error.reason(), error.class()), ("InvalidAnswer", ErrorClass::Transient), "{bytes:?}: {error}");
        assert!(error.to_string().contains("gave an answer that is not zopp's"), "{error}");
    }
}
