//! The side of the proxy that clients see: TLS, and HTTP/1.1 or HTTP/2 as they like.

use std::{pin::pin, sync::Arc, time::Duration};

use hyper::{
    server::conn::{http1, http2},
    service::service_fn,
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        self, ServerConfig,
        crypto::ring,
        pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    },
};
use tokio_util::sync::CancellationToken;

use super::{Proxy, ProxyError, exchange};

/// After a connection could not be accepted.
const PAUSE: Duration = Duration::from_millis(10);

const HTTP_2: &[u8] = b"h2";
const HTTP_1_1: &[u8] = b"http/1.1";

/// A server's certificate and key, from PEM.
pub(super) fn tls(certificate: &str, key: &str) -> Result<TlsAcceptor, ProxyError> {
    let certificate = CertificateDer::from_pem_slice(certificate.as_bytes()).map_err(ProxyError::Pem)?;
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).map_err(ProxyError::Pem)?;
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)?;
    config.alpn_protocols = vec![HTTP_2.to_owned(), HTTP_1_1.to_owned()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

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

impl From<rustls::Error> for ProxyError {
    fn from(error: rustls::Error) -> Self {
        Self::Tls(error)
    }
}
