//! TLS of the servers that the kit runs in the test's own process.

use std::sync::Arc;

use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        self, ServerConfig,
        crypto::ring,
        pki_types::{
            CertificateDer, PrivateKeyDer,
            pem::{self, PemObject},
        },
    },
};

use crate::control_plane::credentials;

/// HTTP/2, as TLS calls it.
pub(crate) const HTTP_2: &[u8] = b"h2";

/// HTTP/1.1, as TLS calls it.
pub(crate) const HTTP_1_1: &[u8] = b"http/1.1";

/// A server of the kit has no usable certificate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// Its certificate could not be made.
    #[error("cannot make the server's certificate: {0}")]
    Certificate(#[from] rcgen::Error),
    /// Its certificate could not be read.
    #[error("cannot read the server's certificate: {0}")]
    Pem(#[from] pem::Error),
    /// Its certificate could not be used.
    #[error("cannot serve the server's certificate: {0}")]
    Serve(#[from] rustls::Error),
}

/// Makes what a server on this machine needs, and the certificate of its authority, in PEM. The authority has this name and signs nothing else, so it
/// also serves for a cluster whose authority is not ours.
pub(crate) fn server(authority: &str, protocols: &[&[u8]]) -> Result<(TlsAcceptor, String), TlsError> {
    let authority = credentials::authority(authority)?;
    let (certificate, key) = credentials::server(&authority)?;
    let certificate = CertificateDer::from_pem_slice(certificate.as_bytes())?;
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes())?;
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)?;
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    Ok((TlsAcceptor::from(Arc::new(config)), authority.pem()))
}
