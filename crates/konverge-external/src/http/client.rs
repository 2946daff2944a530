//! The client that asks.

use std::{sync::Arc, time::Duration};

use konverge_endpoint as endpoint;
use rustls::ClientConfig;

/// No client could be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The authority is not a certificate.
    #[error("the certificate authority is not usable: {why}")]
    Authority {
        /// The reason.
        why: String,
    },
    /// TLS could not be set up.
    #[error("cannot set up TLS: {0}")]
    Tls(#[from] rustls::Error),
    /// The client could not be built.
    #[error("cannot make an HTTP client: {0}")]
    Build(#[from] reqwest::Error),
}

/// Returns a client like the one that [`Endpoint`](super::Endpoint) makes for itself. It uses rustls with ring,
/// the system's certificate authorities and those in `authorities` (PEM), a limit for making a connection, and
/// proxies from the environment. It follows no redirects by itself, keeps no cookies and decompresses nothing.
///
/// A system without any certificate authority is no error before the first TLS connection fails.
pub fn client(connect_timeout: Duration, authorities: &[u8]) -> Result<reqwest::Client, ClientError> {
    Ok(client_builder(connect_timeout, authorities)?.build()?)
}

pub(crate) fn client_builder(
    connect_timeout: Duration,
    authorities: &[u8],
) -> Result<reqwest::ClientBuilder, ClientError> {
    let mut roots = endpoint::system_roots();
    endpoint::add_certificates(&mut roots, authorities).map_err(|why| ClientError::Authority { why })?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let agent = concat!("konverge-external/", env!("CARGO_PKG_VERSION"));
    Ok(endpoint::client_builder(tls, connect_timeout, agent))
}
