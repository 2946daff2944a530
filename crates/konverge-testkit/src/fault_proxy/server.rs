//! The side of the proxy that clients see: TLS, and HTTP/1.1 or HTTP/2 as they like.

use std::{pin::pin, sync::Arc, time::Duration};

use hyper::{
    server::conn::{http1, http2},
    service::service_fn,
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use super::{Proxy, exchange};
use crate::tls::HTTP_2;

/// After a connection could not be accepted.
const PAUSE: Duration = Duration::from_millis(10);

/// Serves until `end`.
pub(super) async fn run(proxy: Arc<Proxy>, listener: TcpListener, tls: TlsAcceptor, end: CancellationToken) {
    loop {
        let accepted = tokio::select! {
            () = end.cancelled() => break,
            accepted = listener.accept() => accepted,
        };
        let Ok((stream, _)) = accepted else {
            // Out of files, or a client that is gone already. The next one may fare better, in a moment.
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        if proxy.control.is_down() {
            continue;
        }
        let (proxy, tls, end) = (Arc::clone(&proxy), tls.clone(), end.clone());
        let cut = proxy.control.connection();
        tokio::spawn(async move {
            tokio::select! {
                () = end.cancelled() => {}
                () = cut.cancelled() => {}
                () = until_frozen(proxy, stream, tls) => {}
            }
        });
    }
}

/// Serves a connection. Once it is frozen, nobody reads from it or writes to it, and it stays open until that is over.
async fn until_frozen(proxy: Arc<Proxy>, stream: TcpStream, tls: TlsAcceptor) {
    let freeze = proxy.control.freeze();
    let mut connection = pin!(connection(proxy, stream, tls));
    tokio::select! {
        () = &mut connection => {}
        () = freeze.begun.cancelled() => freeze.over.cancelled().await,
    }
}

async fn connection(proxy: Arc<Proxy>, stream: TcpStream, tls: TlsAcceptor) {
    // Events are small, and tests measure how soon they come.
    let _ = stream.set_nodelay(true);
    let Ok(stream) = tls.accept(stream).await else { return };
    let is_http_2 = stream.get_ref().1.alpn_protocol() == Some(HTTP_2);
    let service = service_fn(move |request| exchange::serve(Arc::clone(&proxy), request));
    let stream = TokioIo::new(stream);
    // How a connection ends is the client's affair, and the plan's.
    if is_http_2 {
        let _ = http2::Builder::new(TokioExecutor::new()).serve_connection(stream, service).await;
    } else {
        let _ = http1::Builder::new().serve_connection(stream, service).await;
    }
}
