//! One connection: the handshake, then HTTP/2 or HTTP/1.1 until either side has enough.

use std::{
    convert::Infallible,
    io,
    pin::{Pin, pin},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::{
    body::Incoming,
    server::conn::{http1, http2},
    service::{Service, service_fn},
};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use super::request::Answerer;

/// How often a silent HTTP/2 connection is asked whether it is still there.
const PING_EVERY: Duration = Duration::from_secs(30);

/// The part of a body that a client may send before the server reads it: most reviews are shorter.
const WINDOW: u32 = 1 << 20;

/// Serves a connection until its end, or until it has answered what it began when it is to stop.
pub(super) async fn serve(
    stream: TcpStream,
    tls: Option<TlsAcceptor>,
    answerer: Arc<Answerer>,
    stop: CancellationToken,
) {
    // Answers are small and somebody waits for them.
    let _ = stream.set_nodelay(true);
    let Some(tls) = tls else { return http1(stream, answerer, stop).await };
    match tokio::time::timeout(answerer.limits.handshake, tls.accept(stream)).await {
        Ok(Ok(stream)) => {
            if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
                http2(stream, answerer, stop).await;
            } else {
                http1(stream, answerer, stop).await;
            }
        }
        // A probe that only connects is no news.
        Ok(Err(error)) if error.kind() == io::ErrorKind::UnexpectedEof => {}
        Ok(Err(error)) => {
            answerer.metrics.handshake_failed();
            tracing::warn!(%error, "a caller of the webhooks did not get a secure connection; does it know the certificate authority?");
        }
        Err(_elapsed) => {
            answerer.metrics.handshake_failed();
            tracing::debug!("a handshake took too long");
        }
    }
}

async fn http1<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    stream: S,
    answerer: Arc<Answerer>,
    stop: CancellationToken,
) {
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(answerer.limits.idle);
    let connection = pin!(builder.serve_connection(TokioIo::new(stream), service(answerer)));
    until_stopped(connection, http1::Connection::graceful_shutdown, stop).await;
}

async fn http2<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    stream: S,
    answerer: Arc<Answerer>,
    stop: CancellationToken,
) {
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .keep_alive_interval(PING_EVERY)
        .initial_stream_window_size(WINDOW)
        .initial_connection_window_size(4 * WINDOW)
        .max_concurrent_streams(u32::try_from(answerer.limits.calls.saturating_mul(2)).unwrap_or(u32::MAX));
    let connection = pin!(builder.serve_connection(TokioIo::new(stream), service(answerer)));
    until_stopped(connection, http2::Connection::graceful_shutdown, stop).await;
}

/// The requests of a connection.
fn service(
    answerer: Arc<Answerer>,
) -> impl Service<Request<Incoming>, Response = Response<Full<Bytes>>, Error = Infallible, Future: Send + 'static> {
    service_fn(move |request| {
        let answerer = Arc::clone(&answerer);
        async move { Ok(answerer.answer(request).await) }
    })
}

/// Serves a connection of either protocol until its end; when it is to stop, `shut_down` has it take no further request.
async fn until_stopped<C: Future<Output = hyper::Result<()>>>(
    mut connection: Pin<&mut C>,
    shut_down: impl FnOnce(Pin<&mut C>),
    stop: CancellationToken,
) {
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = stop.cancelled() => {
            shut_down(connection.as_mut());
            connection.await
        }
    };
    // Callers that hang up are no news.
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection to the webhooks broke");
    }
}
