//! A certificate chain with its key, checked before anybody is served with it.

use std::sync::Arc;

use jiff::Timestamp;
use rustls::{crypto::ring, sign::CertifiedKey};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};

/// Clocks differ: what ends within this time has ended for some API server.
const CLOCKS_DIFFER: i64 = 60;

/// Why a certificate and a key cannot be served.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PairError {
    /// Not PEM.
    #[error("the certificate is not PEM")]
    CertificatePem(#[source] rustls_pki_types::pem::Error),
    /// PEM of something else, or nothing at all.
    #[error("there is no certificate in the PEM")]
    NoCertificate,
    /// The chain's first certificate is damaged.
    #[error("the certificate cannot be read: {0}")]
    Certificate(String),
    /// Not PEM, or without a private key.
    #[error("there is no private key in the PEM")]
    NoKey(#[source] rustls_pki_types::pem::Error),
    /// The key is of an unknown kind, or belongs to another certificate.
    #[error("the key does not belong to the certificate or is of an unknown kind")]
    Mismatch(#[source] rustls::Error),
}

/// When a certificate holds. It gets no further field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Validity {
    /// From then on.
    pub begins: Timestamp,
    /// Until then.
    pub ends: Timestamp,
}

/// A certificate chain with its key.
#[derive(Debug, Clone)]
pub struct Pair {
    pub(super) key: Arc<CertifiedKey>,
    /// When its leaf holds.
    pub validity: Validity,
}

impl Pair {
    /// Reads a chain, leaf first, and the leaf's key.
    pub fn from_pem(certificates: &[u8], key: &[u8]) -> Result<Self, PairError> {
        let chain: Vec<_> = CertificateDer::pem_slice_iter(certificates)
            .collect::<Result<_, _>>()
            .map_err(PairError::CertificatePem)?;
        let validity = Validity::of(chain.first().ok_or(PairError::NoCertificate)?)?;
        let key = PrivateKeyDer::from_pem_slice(key).map_err(PairError::NoKey)?;
        let key = CertifiedKey::from_der(chain, key, &ring::default_provider()).map_err(PairError::Mismatch)?;
        Ok(Self { key: Arc::new(key), validity })
    }
}

impl Validity {
    /// Of a certificate.
    pub fn of(certificate: &[u8]) -> Result<Self, PairError> {
        let damaged = |error: &dyn std::fmt::Display| PairError::Certificate(error.to_string());
        let (_, parsed) = x509_parser::parse_x509_certificate(certificate).map_err(|error| damaged(&error))?;
        let time = |time: x509_parser::time::ASN1Time| {
            Timestamp::from_second(time.timestamp()).map_err(|error| damaged(&error))
        };
        Ok(Self { begins: time(parsed.validity().not_before)?, ends: time(parsed.validity().not_after)? })
    }

    /// Whether a peer will accept it now; else why not.
    pub fn holds(&self, now: Timestamp) -> Result<(), String> {
        if now < self.begins {
            Err(format!("the certificate begins at {} only; is the clock right?", self.begins))
        } else if now.as_second().saturating_add(CLOCKS_DIFFER) >= self.ends.as_second() {
            Err(format!("the certificate ends at {}; renew it", self.ends))
        } else {
            Ok(())
        }
    }

    /// Whether two thirds of its time are over.
    pub fn is_due(&self, now: Timestamp) -> bool {
        let whole = self.ends.as_second() - self.begins.as_second();
        now.as_second() - self.begins.as_second() >= whole - whole / 3
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn times_decide_whether_it_holds_and_is_due() {
        let validity = Validity { begins: at(1000), ends: at(4000) };
        let table = [
            (999, false, false),
            (1000, true, false),
            (2999, true, false),
            (3000, true, true),
            (3939, true, true),
            (3940, false, true),
            (5000, false, true),
        ];
        for (second, holds, due) in table {
            assert_eq!((validity.holds(at(second)).is_ok(), validity.is_due(at(second))), (holds, due), "{second}");
        }
    }

    #[test]
    fn what_cannot_be_served_says_why() {
        let one = rcgen::generate_simple_self_signed(["a".to_owned()]).unwrap();
        let other = rcgen::KeyPair::generate().unwrap().serialize_pem();
        let (certificate, key) = (one.cert.pem(), one.signing_key.serialize_pem());
        assert!(Pair::from_pem(certificate.as_bytes(), key.as_bytes()).is_ok());
        let cut = &certificate[..certificate.len() / 2];
        let table = [
            ("", key.as_str(), "no certificate"),
            ("no PEM", &key, "no certificate"),
            (cut, &key, "not PEM"),
            (&certificate, "", "no private key"),
            (&certificate, &key[..40], "no private key"),
            (&certificate, &other, "does not belong"),
            ("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", &key, "cannot be read"),
        ];
        for (certificate, key, why) in table {
            let error = Pair::from_pem(certificate.as_bytes(), key.as_bytes()).unwrap_err();
            assert!(error.to_string().contains(why), "{error} instead of {why}");
        }
    }
}
