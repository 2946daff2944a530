//! The connections of a server: accepted, secured, answered, each within bounds.

mod open;

use std::{convert::Infallible, io, net::SocketAddr, sync::Arc, time::Duration};

use axum::{Router, extract::ConnectInfo};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
};
use tokio_rustls::TlsAcceptor;
use tower::ServiceExt;

use open::{Activity, Open};

/// At once. One more ends the one that has been idle for the longest time. A kubelet and two Prometheus servers need five.
const CONNECTIONS: usize = 256;

/// For the TLS handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// For the head of a request, and between two on one connection: longer than people let Prometheus wait between two scrapes.
const IDLE: Duration = Duration::from_secs(90);

/// Bytes of a request's head. A bearer token has some kilobytes at most.
const HEAD: usize = 64 << 10;

/// Answers until dropped, which cuts off what is under way.
pub(super) async fn serve(listener: TcpListener, tls: Option<TlsAcceptor>, router: Router) {
    let mut open = Open::new(CONNECTIONS);
    loop {
        tokio::select! {
            (stream, peer) = accept(&listener) => {
                open.place().await;
                open.begin(|activity| connection(stream, peer, activity, tls.clone(), router.clone()));
            }
            () = open.ended() => {}
        }
    }
}

/// The next connection. An error of `accept` concerns one client, or passes when others end, as with too many open files.
async fn accept(listener: &TcpListener) -> (TcpStream, SocketAddr) {
    loop {
        match listener.accept().await {
            Ok(accepted) => return accepted,
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection for health and metrics");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

async fn connection(
    stream: TcpStream,
    peer: SocketAddr,
    activity: Arc<Activity>,
    tls: Option<TlsAcceptor>,
    router: Router,
) {
    // Answers are small and somebody waits for them.
    let _ = stream.set_nodelay(true);
    let Some(tls) = tls else { return http1(stream, peer, activity, router).await };
    match tokio::time::timeout(HANDSHAKE, tls.accept(stream)).await {
        Ok(Ok(stream)) => http1(stream, peer, activity, router).await,
        // A probe that only connects is no news.
        Ok(Err(error)) if error.kind() == io::ErrorKind::UnexpectedEof => {}
        Ok(Err(error)) => tracing::debug!(%error, %peer, "a caller did not get a secure connection to the metrics"),
        Err(_elapsed) => tracing::debug!(%peer, "a handshake took too long"),
    }
}

async fn http1<S>(stream: S, peer: SocketAddr, activity: Arc<Activity>, router: Router)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let service = service_fn(move |mut request: http::Request<Incoming>| {
        request.extensions_mut().insert(ConnectInfo(peer));
        let (answering, answer) = (activity.answering(), router.clone().oneshot(request));
        async move {
            let answer = answer.await.unwrap_or_else(|never| match never {});
            drop(answering);
            Ok::<_, Infallible>(answer)
        }
    });
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(IDLE).max_buf_size(HEAD);
    // Callers that hang up are no news.
    if let Err(error) = builder.serve_connection(TokioIo::new(stream), service).await {
        tracing::debug!(%error, "a connection for health and metrics broke");
    }
}

#[cfg(test)]
mod tests {
    use axum::routing::get;
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        sync::Semaphore,
    };

    use super::*;

    async fn ask(address: SocketAddr, path: &str) -> TcpStream {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        stream
    }

    async fn answer(mut stream: TcpStream) -> String {
        let mut text = String::new();
        stream.read_to_string(&mut text).await.unwrap();
        text
    }

    /// Strangers who opened connections and sent nothing kept the kubelet waiting for 90 seconds, and it restarts a program that does not answer.
    #[tokio::test]
    async fn a_stranger_that_keeps_connections_open_keeps_nobody_waiting() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (asked, may_answer) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
        let slow = {
            let (asked, may_answer) = (Arc::clone(&asked), Arc::clone(&may_answer));
            move || async move {
                asked.add_permits(1);
                drop(may_answer.acquire().await);
                "at last"
            }
        };
        let router = Router::new().route("/healthz", get(async || "ok")).route("/slow", get(slow));
        let server = tokio::spawn(serve(listener, None, router));
        // It is older than all others, and is being answered.
        let slow = ask(address, "/slow").await;
        asked.acquire().await.unwrap().forget();
        let mut strangers = Vec::new();
        for _ in 0..CONNECTIONS + 20 {
            strangers.push(TcpStream::connect(address).await.unwrap());
        }
        for _ in 0..3 {
            let probe = async { answer(ask(address, "/healthz").await).await };
            let text = tokio::time::timeout(Duration::from_secs(10), probe).await.expect("it is answered at once");
            assert!(text.ends_with("ok"), "{text}");
        }
        let first = strangers.remove(0);
        assert_eq!(answer(first).await, "", "the oldest was ended");
        may_answer.add_permits(1);
        let text = answer(slow).await;
        assert!(text.ends_with("at last"), "{text}");
        server.abort();
    }
}
