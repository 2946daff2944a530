//! The client that asks.

use std::{sync::Arc, time::Duration};

use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, pem::PemObject},
};

/// No client could be made.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The authority is not a certificate.
    #[error("the certificate authority is not usable: {why}")]
    Authority {
        /// What is wrong with it.
        why: String,
    },
    /// TLS could not be set up.
    #[error("cannot set up TLS: {0}")]
    Tls(#[from] rustls::Error),
    /// The client could not be built.
    #[error("cannot make an HTTP client: {0}")]
    Build(#[from] reqwest::Error),
}

/// A client as [`Endpoint`](super::Endpoint) makes it for itself: rustls with ring, the system's certificate authorities and those in
/// `authorities` (PEM), a limit for making a connection, proxies from the environment, no redirects by itself, no cookies, no
/// decompression.
///
/// A system without any certificate authority is no error before the first TLS connection fails.
pub fn client(connect_timeout: Duration, authorities: &[u8]) -> Result<reqwest::Client, ClientError> {
    Ok(client_builder(connect_timeout, authorities)?.build()?)
}

pub(crate) fn client_builder(
    connect_timeout: Duration,
    authorities: &[u8],
) -> Result<reqwest::ClientBuilder, ClientError> {
    let mut roots = RootCertStore::empty();
    // What cannot be parsed among the system's own is not ours to mend.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    for authority in CertificateDer::pem_slice_iter(authorities) {
        let authority = authority.map_err(|error| ClientError::Authority { why: error.to_string() })?;
        roots.add(authority).map_err(|error| ClientError::Authority { why: error.to_string() })?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut tls = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let builder = reqwest::Client::builder().tls_backend_preconfigured(tls).connect_timeout(connect_timeout);
    let agent = concat!("konverge-external/", env!("CARGO_PKG_VERSION"));
    Ok(builder.redirect(reqwest::redirect::Policy::none()).user_agent(agent))
}
