//! Helpers for tests of zopp's parts: a certificate authority for one run, a server that lies, requests that never
//! end, a PostgreSQL for one process, and a list of all calls.
//!
//! ```
//! # fn main() -> Result<(), konverge_zopp_testing::CertificateError> {
//! let authority = konverge_zopp_testing::Authority::new()?;
//! let issued = authority.issue("localhost")?;
//! assert!(authority.pem().contains("BEGIN CERTIFICATE") && issued.key.contains("PRIVATE KEY"));
//! # Ok(())
//! # }
//! ```

mod calls;
mod lying;
mod postgres;
mod unfinished;

pub use calls::{CallTypes, Canonical, calls};
pub use lying::{LyingServer, SeenCall};
pub use postgres::{OwnPostgres, postgres_database};
pub use rcgen::Error as CertificateError;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
pub use unfinished::UnfinishedRequest;

/// An authority with a key of its own.
pub struct Authority(CertifiedIssuer<'static, KeyPair>);

/// A certificate of an [`Authority`], good for either side of a connection.
pub struct Issued {
    /// The certificate, PEM.
    pub certificate: String,
    /// Its key, PEM.
    pub key: String,
}

impl Authority {
    /// Makes one.
    pub fn new() -> Result<Self, CertificateError> {
        let mut parameters = CertificateParams::default();
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Ok(Self(CertifiedIssuer::self_signed(parameters, KeyPair::generate()?)?))
    }

    /// Its certificate, PEM: what to trust.
    pub fn pem(&self) -> String {
        self.0.pem()
    }

    /// A certificate for `host`, a DNS name or an IP address.
    pub fn issue(&self, host: &str) -> Result<Issued, CertificateError> {
        let key = KeyPair::generate()?;
        let certificate = CertificateParams::new([host.to_owned()])?.signed_by(&key, &self.0)?;
        Ok(Issued { certificate: certificate.pem(), key: key.serialize_pem() })
    }
}
