//! A pair that is made in memory and that no authority vouches for.

use std::time::Duration;

use jiff::Timestamp;
use rcgen::{CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, KeyPair, KeyUsagePurpose};
use rcgen::{SerialNumber, date_time_ymd};
use tokio_util::sync::CancellationToken;
use zeroize::Zeroizing;

use super::{
    pair::{Pair, PairError},
    reading::Reading,
    slot::Slot,
};

/// Some callers refuse what holds for longer than 13 months.
const LIFETIME: Duration = Duration::from_secs(365 * 24 * 3600);

/// Clocks differ: it holds since before it was made.
const BACKDATING: Duration = Duration::from_secs(3600);

/// A third of a year is left when the next one is due.
const LOOK_EVERY: Duration = Duration::from_secs(3600);

/// A certificate could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SelfSignedError {
    /// A name cannot be in a certificate, or the system has no randomness.
    #[error("cannot make a certificate")]
    Make(#[from] rcgen::Error),
    /// The generated pair cannot be served.
    #[error("cannot serve the certificate that was made")]
    Pair(#[from] PairError),
}

/// Makes pairs for some names.
#[derive(Debug)]
pub(super) struct SelfSigned {
    names: Vec<String>,
    lifetime: Duration,
    look_every: Duration,
}

impl SelfSigned {
    pub(super) fn new(names: Vec<String>) -> Self {
        Self { names, lifetime: LIFETIME, look_every: LOOK_EVERY }
    }

    /// A certificate that is valid from now on.
    pub(super) fn make(&self, now: Timestamp) -> Result<Pair, SelfSignedError> {
        let mut parameters = CertificateParams::new(self.names.clone())?;
        parameters.distinguished_name = DistinguishedName::new();
        parameters.distinguished_name.push(DnType::CommonName, "konverge");
        // Positive and of at most 20 bytes, as the standard wants it.
        parameters.serial_number = Some(SerialNumber::from_slice(&(rand::random::<u128>() >> 1).to_be_bytes()));
        parameters.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let now = date_time_ymd(1970, 1, 1) + Duration::from_secs(u64::try_from(now.as_second()).unwrap_or_default());
        (parameters.not_before, parameters.not_after) = (now - BACKDATING, now + self.lifetime);
        let key = KeyPair::generate()?;
        let certificate = parameters.self_signed(&key)?.pem();
        let key = Zeroizing::new(key.serialize_pem());
        Ok(Pair::from_pem(certificate.as_bytes(), key.as_bytes())?)
    }

    /// Makes another when the one that is served is due, until told to stop.
    pub(super) async fn keep(self, slot: Slot, told: impl Fn(Reading), stop: CancellationToken) {
        while stop.run_until_cancelled(tokio::time::sleep(self.look_every)).await.is_some() {
            let now = Timestamp::now();
            if !slot.is_due(now) {
                continue;
            }
            match self.make(now) {
                Ok(pair) => {
                    told(Reading::New(pair.validity.ends));
                    tracing::info!(ends = %pair.validity.ends, "serving a new certificate of our own");
                    slot.put(pair);
                }
                Err(error) => {
                    told(Reading::Broken);
                    slot.trouble(Some(konverge_core::error::in_one_line(&error)));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_made_holds_at_once_and_for_a_year() {
        let now = Timestamp::now();
        let names = ["localhost", "127.0.0.1", "::1"].map(str::to_owned).to_vec();
        let pair = SelfSigned::new(names).make(now).unwrap();
        assert_eq!(pair.validity.holds(now), Ok(()));
        assert_eq!(pair.validity.ends.as_second() - now.as_second(), 365 * 24 * 3600);
        assert!(SelfSigned::new(vec!["not a näme".to_owned()]).make(now).is_err());
    }

    #[tokio::test]
    async fn another_follows_before_it_ends() {
        let (lifetime, look_every) = (Duration::from_secs(3600), Duration::from_millis(5));
        let maker = SelfSigned { names: vec!["localhost".to_owned()], lifetime, look_every };
        // Of its two hours one was over before it was made, and another half is over now: three quarters.
        let old = maker.make(Timestamp::now() - Duration::from_secs(1800)).unwrap();
        let ends = old.validity.ends;
        let (slot, stop) = (Slot::of(old), CancellationToken::new());
        let (heard, mut hear) = tokio::sync::mpsc::unbounded_channel();
        let keeping =
            tokio::spawn(maker.keep(slot.clone(), move |reading| heard.send(reading).expect("heard"), stop.clone()));
        let Some(Reading::New(told)) = hear.recv().await else { panic!("nothing new") };
        assert!(told > ends, "{told} is no later than {ends}");
        stop.cancel();
        keeping.await.unwrap();
        assert_eq!((slot.ends(), hear.recv().await), (Some(told), None), "a fresh one is left alone");
    }
}
