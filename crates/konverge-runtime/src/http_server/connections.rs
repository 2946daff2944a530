//! The connections of a server: accepted, secured, answered, each within bounds.

use std::{convert::Infallible, io, net::SocketAddr, sync::Arc, time::Duration};

use axum::{Router, extract::ConnectInfo};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    task::JoinSet,
};
use tokio_rustls::TlsAcceptor;
use tower::ServiceExt;

/// At once; further ones wait to be accepted. A kubelet and two Prometheus servers need five.
const CONNECTIONS: usize = 256;

/// For the TLS handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// For the head of a request, and between two on one connection: longer than people let Prometheus wait between two scrapes.
const IDLE: Duration = Duration::from_secs(90);

/// Bytes of a request's head. A bearer token has some kilobytes at most.
const HEAD: usize = 64 << 10;

/// Answers until dropped, which cuts off what is under way.
pub(super) async fn serve(listener: TcpListener, tls: Option<TlsAcceptor>, router: Router) {
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    let mut connections = JoinSet::new();
    loop {
        let next = async {
            // Never closed, so the place always comes.
            let place = Arc::clone(&places).acquire_owned().await;
            (place, accept(&listener).await)
        };
        tokio::select! {
            (place, (stream, peer)) = next => {
                let connection = connection(stream, peer, tls.clone(), router.clone());
                connections.spawn(async move {
                    connection.await;
                    drop(place);
                });
            }
            Some(ended) = connections.join_next() => if let Err(error) = ended {
                tracing::error!(%error, "an answer of the server for health and metrics panicked");
            },
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

async fn connection(stream: TcpStream, peer: SocketAddr, tls: Option<TlsAcceptor>, router: Router) {
    // Answers are small and somebody waits for them.
    let _ = stream.set_nodelay(true);
    let Some(tls) = tls else { return http1(stream, peer, router).await };
    match tokio::time::timeout(HANDSHAKE, tls.accept(stream)).await {
        Ok(Ok(stream)) => http1(stream, peer, router).await,
        // A probe that only connects is no news.
        Ok(Err(error)) if error.kind() == io::ErrorKind::UnexpectedEof => {}
        Ok(Err(error)) => tracing::debug!(%error, %peer, "a caller did not get a secure connection to the metrics"),
        Err(_elapsed) => tracing::debug!(%peer, "a handshake took too long"),
    }
}

async fn http1<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(stream: S, peer: SocketAddr, router: Router) {
    let service = service_fn(move |mut request: http::Request<Incoming>| {
        request.extensions_mut().insert(ConnectInfo(peer));
        let answer = router.clone().oneshot(request);
        async move { Ok::<_, Infallible>(answer.await.unwrap_or_else(|never| match never {})) }
    });
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(IDLE).max_buf_size(HEAD);
    // Callers that hang up are no news.
    if let Err(error) = builder.serve_connection(TokioIo::new(stream), service).await {
        tracing::debug!(%error, "a connection for health and metrics broke");
    }
}
