//! Authorities, a certificate and their keys, as they are in the Secret. The buffers in which they pass through the client are not
//! wiped.

mod make;

use std::{collections::BTreeMap, fmt, net::IpAddr};

use jiff::Timestamp;
use k8s_openapi::ByteString;
use konverge_runtime::tls::{Pair, PairError, Validity};
use rcgen::{Issuer, KeyPair};
use rustls_pki_types::{CertificateDer, pem::PemObject};
use x509_parser::extensions::GeneralName;
use zeroize::Zeroizing;

use self::make::{new_authority, new_certificate};
use super::plan::{Facts, Lifetimes, Step};

const AUTHORITIES: &str = "ca.crt";
const AUTHORITY_KEY: &str = "ca.key";
const CERTIFICATE: &str = "tls.crt";
const CERTIFICATE_KEY: &str = "tls.key";

/// Why there are no certificates. Never contains a key.
#[derive(Debug, thiserror::Error)]
pub(super) enum MaterialError {
    #[error("the Secret has no {0}, or it is not text")]
    Missing(&'static str),
    #[error("a certificate of the Secret cannot be used")]
    Pair(#[from] PairError),
    #[error("a certificate cannot be made")]
    Make(#[from] rcgen::Error),
}

/// The material that all replicas share.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Material {
    /// PEM of each, the newest first.
    authorities: Vec<String>,
    /// Of the newest.
    authority_key: Zeroizing<String>,
    certificate: String,
    certificate_key: Zeroizing<String>,
}

impl fmt::Debug for Material {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Material").field("authorities", &self.authorities.len()).finish_non_exhaustive()
    }
}

impl Material {
    /// A new authority and a certificate of it.
    pub(super) fn make(names: &[String], lifetimes: &Lifetimes, now: Timestamp) -> Result<Self, MaterialError> {
        let (authority, authority_key) = new_authority(lifetimes, now)?;
        let (certificate, certificate_key) = new_certificate(&authority, &authority_key, names, lifetimes, now)?;
        Ok(Self { authorities: vec![authority], authority_key, certificate, certificate_key })
    }

    /// The same after a step.
    pub(super) fn after(
        &self,
        step: Step,
        names: &[String],
        lifetimes: &Lifetimes,
        now: Timestamp,
    ) -> Result<Self, MaterialError> {
        let mut after = self.clone();
        match step {
            Step::Nothing => {}
            Step::NewAuthority => {
                let (authority, key) = new_authority(lifetimes, now)?;
                after.authorities.insert(0, authority);
                after.authority_key = key;
            }
            Step::NewCertificate => {
                let newest = self.authorities.first().ok_or(MaterialError::Missing(AUTHORITIES))?;
                let names = self.names_with(names)?;
                (after.certificate, after.certificate_key) =
                    new_certificate(newest, &self.authority_key, &names, lifetimes, now)?;
            }
            Step::ForgetOldAuthorities => after.authorities.truncate(1),
        }
        Ok(after)
    }

    /// The names for a new certificate. If the certificate lacks one of them, another version of the program wants other names,
    /// as in a rollout. Its names stay for this once: else the two versions would replace each other's certificate for as long
    /// as both run.
    fn names_with(&self, wanted: &[String]) -> Result<Vec<String>, MaterialError> {
        let mut names = wanted.to_vec();
        let found = names_of(&der(&self.certificate)?)?;
        if wanted.iter().any(|name| !found.contains(name)) {
            names.extend(found.into_iter().filter(|name| !wanted.contains(name)));
        }
        Ok(names)
    }

    /// Reads what [`data`](Self::data) wrote.
    pub(super) fn from_data(data: &BTreeMap<String, ByteString>) -> Result<Self, MaterialError> {
        let text = |key: &'static str| {
            let bytes = &data.get(key).ok_or(MaterialError::Missing(key))?.0;
            let text = std::str::from_utf8(bytes).map_err(|_| MaterialError::Missing(key))?;
            Ok::<_, MaterialError>(Zeroizing::new(text.to_owned()))
        };
        let material = Self {
            authorities: split(&text(AUTHORITIES)?),
            authority_key: text(AUTHORITY_KEY)?,
            certificate: text(CERTIFICATE)?.to_string(),
            certificate_key: text(CERTIFICATE_KEY)?,
        };
        // Unusable material is found here, and not when it is needed.
        material.pair()?;
        material.facts(&[], false)?;
        let newest = material.authorities.first().ok_or(MaterialError::Missing(AUTHORITIES))?;
        Issuer::from_ca_cert_pem(newest, KeyPair::from_pem(&material.authority_key)?)?;
        Ok(material)
    }

    /// For a Secret.
    pub(super) fn data(&self) -> BTreeMap<String, ByteString> {
        let bytes = |text: &str| ByteString(text.as_bytes().to_vec());
        BTreeMap::from([
            (AUTHORITIES.to_owned(), bytes(&self.bundle())),
            (AUTHORITY_KEY.to_owned(), bytes(&self.authority_key)),
            (CERTIFICATE.to_owned(), bytes(&self.certificate)),
            (CERTIFICATE_KEY.to_owned(), bytes(&self.certificate_key)),
        ])
    }

    /// All authorities, for those who call the server.
    pub(super) fn bundle(&self) -> String {
        self.authorities.concat()
    }

    /// For the server.
    pub(super) fn pair(&self) -> Result<Pair, PairError> {
        Pair::from_pem(self.certificate.as_bytes(), self.certificate_key.as_bytes())
    }

    /// For the decision about the next step.
    pub(super) fn facts(&self, names: &[String], known: bool) -> Result<Facts, MaterialError> {
        let authorities = self.authorities.iter().map(|pem| der(pem)).collect::<Result<Vec<_>, _>>()?;
        let validities = authorities.iter().map(|authority| Validity::of(authority)).collect::<Result<_, _>>()?;
        let certificate = der(&self.certificate)?;
        let found = names_of(&certificate)?;
        let (_, parsed) = x509_parser::parse_x509_certificate(&certificate)
            .map_err(|error| PairError::Certificate(error.to_string()))?;
        let signed_by = |authority: &CertificateDer<'_>| {
            // Each authority has a subject of its own, so the name tells them apart.
            x509_parser::parse_x509_certificate(authority)
                .is_ok_and(|(_, authority)| authority.subject() == parsed.issuer())
        };
        Ok(Facts {
            authorities: validities,
            certificate: Validity::of(&certificate)?,
            signer: authorities.iter().position(signed_by),
            names_fit: names.iter().all(|name| found.contains(name)),
            known,
        })
    }
}

/// The names and addresses that a certificate is for.
fn names_of(certificate: &[u8]) -> Result<Vec<String>, PairError> {
    let damaged = |error: &dyn fmt::Display| PairError::Certificate(error.to_string());
    let (_, parsed) = x509_parser::parse_x509_certificate(certificate).map_err(|error| damaged(&error))?;
    let Some(found) = parsed.subject_alternative_name().map_err(|error| damaged(&error))? else {
        return Ok(Vec::new());
    };
    let text = |name: &GeneralName<'_>| match name {
        GeneralName::DNSName(name) => Some((*name).to_owned()),
        GeneralName::IPAddress(bytes) => {
            let v4 = <[u8; 4]>::try_from(*bytes).map(IpAddr::from);
            let v6 = <[u8; 16]>::try_from(*bytes).map(IpAddr::from);
            v4.or(v6).ok().map(|address| address.to_string())
        }
        _ => None,
    };
    Ok(found.value.general_names.iter().filter_map(text).collect())
}

fn der(pem: &str) -> Result<CertificateDer<'static>, PairError> {
    CertificateDer::from_pem_slice(pem.as_bytes()).map_err(PairError::CertificatePem)
}

/// The certificates of a bundle, each with the line break at its end.
fn split(bundle: &str) -> Vec<String> {
    const END: &str = "-----END CERTIFICATE-----";
    bundle.split_inclusive(END).filter(|part| part.contains(END)).map(|part| format!("{}\n", part.trim())).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::certificates::plan::{self, seconds};

    fn names() -> Vec<String> {
        ["hooks.shop.svc", "hooks.shop.svc.cluster.local", "127.0.0.1", "::1"].map(str::to_owned).to_vec()
    }

    #[test]
    fn what_was_made_is_read_back_and_needs_nothing() {
        let (lifetimes, now) = (Lifetimes::default(), Timestamp::now());
        let made = Material::make(&names(), &lifetimes, now).unwrap();
        let read = Material::from_data(&made.data()).unwrap();
        assert!(read == made);
        let facts = read.facts(&names(), false).unwrap();
        assert_eq!((facts.signer, facts.names_fit), (Some(0), true));
        assert_eq!(plan::next(&facts, &lifetimes, now), Step::Nothing);
        assert!(made.facts(&names()[1..], true).unwrap().names_fit, "one name more does no harm");
        let ends = now.as_second() + seconds(lifetimes.certificate);
        assert_eq!(made.pair().unwrap().validity.ends.as_second(), ends);
    }

    #[test]
    fn two_versions_with_other_names_agree() {
        let (lifetimes, now) = (Lifetimes::default(), Timestamp::now());
        let (old, new) = (vec!["a.svc".to_owned(), "b.svc".to_owned()], vec!["b.svc".to_owned(), "c.svc".to_owned()]);
        let made = Material::make(&old, &lifetimes, now).unwrap();
        assert_eq!(plan::next(&made.facts(&new, true).unwrap(), &lifetimes, now), Step::NewCertificate);
        let both = made.after(Step::NewCertificate, &new, &lifetimes, now).unwrap();
        for names in [&old, &new] {
            assert_eq!(plan::next(&both.facts(names, true).unwrap(), &lifetimes, now), Step::Nothing);
        }
        let later = both.after(Step::NewCertificate, &new, &lifetimes, now).unwrap();
        assert!(!later.facts(&old, true).unwrap().names_fit, "what nobody wants any more goes with the next renewal");
    }

    #[test]
    fn a_certificate_ends_with_its_authority_at_the_latest() {
        let lifetimes = Lifetimes { authority: Duration::from_secs(3600), ..Lifetimes::default() };
        let facts = Material::make(&names(), &lifetimes, Timestamp::now()).unwrap().facts(&names(), true).unwrap();
        assert_eq!(facts.certificate.ends, facts.authorities[0].ends);
    }

    #[test]
    fn an_authority_follows_another() {
        let (lifetimes, now) = (Lifetimes::default(), Timestamp::now());
        let step = |material: &Material, step| material.after(step, &names(), &lifetimes, now).unwrap();
        let first = Material::make(&names(), &lifetimes, now).unwrap();
        let announced = step(&first, Step::NewAuthority);
        assert_eq!(announced.facts(&names(), true).unwrap().signer, Some(1));
        assert!(announced.bundle().contains(&first.bundle()), "the old one is still known");
        let changed = step(&Material::from_data(&announced.data()).unwrap(), Step::NewCertificate);
        assert_eq!(changed.facts(&names(), true).unwrap().signer, Some(0));
        let forgotten = step(&changed, Step::ForgetOldAuthorities);
        assert_eq!(forgotten.facts(&names(), true).unwrap().authorities.len(), 1);
        assert_eq!(forgotten.certificate, changed.certificate);
    }

    #[test]
    fn what_cannot_be_used_is_named_without_a_key() {
        let lifetimes = Lifetimes { authority: Duration::from_secs(60), ..Lifetimes::default() };
        let made = Material::make(&names(), &lifetimes, Timestamp::now()).unwrap();
        let other = Material::make(&names(), &lifetimes, Timestamp::now()).unwrap();
        for key in [AUTHORITIES, AUTHORITY_KEY, CERTIFICATE, CERTIFICATE_KEY] {
            let mut data = made.data();
            data.insert(key.to_owned(), ByteString(b"SECRETVALUE".to_vec()));
            let error = Material::from_data(&data).unwrap_err();
            assert!(!format!("{error:?}").contains("SECRETVALUE"), "{error:?}");
            data.remove(key);
            Material::from_data(&data).unwrap_err();
        }
        let mut data = made.data();
        data.insert(CERTIFICATE_KEY.to_owned(), other.data()[CERTIFICATE_KEY].clone());
        Material::from_data(&data).unwrap_err();
        assert!(!format!("{made:?}").contains("PRIVATE"));
    }
}
