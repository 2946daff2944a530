//! A caller of webhooks that trusts one authority.

use std::{net::SocketAddr, sync::Arc};

use bytes::Bytes;
use http::{Method, Request, StatusCode, header::CONTENT_TYPE};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::{ClientConfig, RootCertStore, crypto::ring};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject};
use serde_json::Value;
use tokio::net::TcpStream;
use tokio_rustls::{TlsConnector, client::TlsStream};

/// Which HTTP the caller asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Version {
    One,
    Two,
}

/// An open connection.
pub(crate) enum Connection {
    One(http1::SendRequest<Full<Bytes>>),
    Two(http2::SendRequest<Full<Bytes>>),
}

pub(crate) async fn tls(
    address: SocketAddr,
    authority: &str,
    version: Version,
) -> std::io::Result<TlsStream<TcpStream>> {
    tls_as(address, authority, version, None).await
}

/// As somebody with a certificate and its key.
pub(crate) async fn tls_as(
    address: SocketAddr,
    authority: &str,
    version: Version,
    caller: Option<(&str, &str)>,
) -> std::io::Result<TlsStream<TcpStream>> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(authority.as_bytes()) {
        roots.add(certificate.unwrap()).unwrap();
    }
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder = builder.with_safe_default_protocol_versions().unwrap().with_root_certificates(roots);
    let mut config = match caller {
        None => builder.with_no_client_auth(),
        Some((certificate, key)) => {
            let certificate = CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap();
            let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
            builder.with_client_auth_cert(vec![certificate], key).unwrap()
        }
    };
    config.alpn_protocols = vec![if version == Version::Two { b"h2".to_vec() } else { b"http/1.1".to_vec() }];
    let stream = TcpStream::connect(address).await?;
    let name = ServerName::from(address.ip());
    let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await?;
    assert_eq!(stream.get_ref().1.alpn_protocol() == Some(b"h2"), version == Version::Two);
    Ok(stream)
}

impl Connection {
    pub(crate) async fn open(address: SocketAddr, authority: &str, version: Version) -> std::io::Result<Self> {
        let stream = TokioIo::new(tls(address, authority, version).await?);
        Ok(match version {
            Version::One => {
                let (sender, connection) = http1::handshake(stream).await.unwrap();
                tokio::spawn(connection);
                Self::One(sender)
            }
            Version::Two => {
                let (sender, connection) = http2::handshake(TokioExecutor::new(), stream).await.unwrap();
                tokio::spawn(connection);
                Self::Two(sender)
            }
        })
    }

    pub(crate) async fn plain(address: SocketAddr) -> Self {
        let stream = TokioIo::new(TcpStream::connect(address).await.unwrap());
        let (sender, connection) = http1::handshake(stream).await.unwrap();
        tokio::spawn(connection);
        Self::One(sender)
    }

    pub(crate) async fn send(&mut self, request: Request<Full<Bytes>>) -> Result<(StatusCode, Bytes), hyper::Error> {
        let response = match self {
            Self::One(sender) => {
                sender.ready().await?;
                sender.send_request(request).await?
            }
            Self::Two(sender) => {
                sender.ready().await?;
                sender.send_request(request).await?
            }
        };
        let status = response.status();
        Ok((status, response.into_body().collect().await?.to_bytes()))
    }

    /// Posts JSON and reads JSON, or text as a JSON string.
    pub(crate) async fn post(&mut self, path: &str, body: impl Into<Bytes>) -> (StatusCode, Value) {
        let (status, body) = self.send(request(Method::POST, path, "application/json", body)).await.unwrap();
        let text = String::from_utf8(body.to_vec()).unwrap();
        (status, serde_json::from_str(&text).unwrap_or_else(|_| Value::from(text)))
    }
}

pub(crate) fn request(method: Method, path: &str, content_type: &str, body: impl Into<Bytes>) -> Request<Full<Bytes>> {
    let url = format!("https://127.0.0.1{path}");
    let builder = Request::builder().method(method).uri(url).header("host", "127.0.0.1");
    builder.header(CONTENT_TYPE, content_type).body(Full::new(body.into())).unwrap()
}
