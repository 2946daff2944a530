//! The identity that the server has to prove.

use std::sync::Arc;

use rustls::{
    CertificateError, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::CryptoProvider,
    pki_types::{CertificateDer, ServerName, UnixTime},
};

/// Checks the server's certificate for another name than that of its address, or not at all. That it has the certificate's key is
/// checked in any case.
#[derive(Debug)]
pub(super) struct Verifier {
    usual: Arc<WebPkiServerVerifier>,
    name: Option<ServerName<'static>>,
    anybody: bool,
}

impl Verifier {
    /// `name` replaces that of the address; `anybody` accepts every certificate.
    pub(super) fn new(
        roots: RootCertStore,
        provider: Arc<CryptoProvider>,
        name: Option<&str>,
        anybody: bool,
    ) -> Result<Self, String> {
        let name = name.map(|name| ServerName::try_from(name.to_owned())).transpose();
        let name = name.map_err(|_| "the server's name is neither a DNS name nor an IP address".to_owned())?;
        let usual = WebPkiServerVerifier::builder_with_provider(roots.into(), provider).build();
        Ok(Self { usual: usual.map_err(|error| error.to_string())?, name, anybody })
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let name = self.name.as_ref().unwrap_or(name);
        match self.usual.verify_server_cert(certificate, intermediates, name, ocsp, now) {
            // A certificate that cannot be parsed has no key to check either.
            Err(error) if self.anybody && error != Error::InvalidCertificate(CertificateError::BadEncoding) => {
                Ok(ServerCertVerified::assertion())
            }
            outcome => outcome,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.usual.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.usual.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.usual.supported_verify_schemes()
    }
}
