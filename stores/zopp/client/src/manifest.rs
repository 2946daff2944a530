//! Whether the server's answer is the whole of an environment and its current state: decided by its manifest, without IO.
//!
//! Writers of Konverge's keep a manifest in each environment that they protect ([`konverge_zopp_crypto::manifest`]). A reader remembers the
//! newest one that it saw, and refuses what differs from it:
//!
//! | The server | Is refused with |
//! |---|---|
//! | leaves a key out, gives an older ciphertext, adds a key | [`ManifestFault::Differs`] |
//! | states changes for which there is no manifest | [`ManifestFault::Outdated`] |
//! | gives an older state as a whole, or a former environment of that name | [`ManifestFault::WentBack`] |
//! | gives no manifest any more, or says that it does not know the call | [`ManifestFault::Missing`] |
//!
//! Clients that keep no manifest make it outdated with each write. Where they are meant to write, the manifest says so
//! ([`Protection::Off`]), and changes are accepted as they are in an environment without a manifest.

use std::collections::BTreeMap;

use konverge_core::names::few;
use konverge_zopp_crypto::{Dek, EnvironmentName, Manifest, ManifestError, Protection, manifest::Entries};
use konverge_zopp_proto::secrets::{EncryptedSecret, ReadEnvironmentResponse};

use crate::server_record::ManifestPin;

/// The answer of the server is not the current state of the environment, or cannot be shown to be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ManifestFault {
    /// The environment had a manifest when this client last read it.
    #[error(
        "the server gives no manifest of an environment that had one, so nothing shows that it is whole and current"
    )]
    Missing,
    /// The environment has no manifest, and one is required.
    #[error(
        "the environment has no manifest, which --require-manifest requires, so nothing proves that it is complete and current"
    )]
    Required,
    /// The manifest is no one's who holds the environment's key, or cannot be read.
    #[error("the manifest of the environment is not to be believed: {0}")]
    Invalid(ManifestError),
    /// The manifest is of another environment that has, or had, the same name.
    #[error("the manifest is of another environment of that name")]
    OtherEnvironment,
    /// An older state than the one that was seen before.
    #[error("the server gives an older state than it gave before ({given}, after {seen})")]
    WentBack {
        /// The newest state that was seen.
        seen: String,
        /// The state that the server gives.
        given: String,
    },
    /// Changes for which there is no manifest.
    #[error(
        "changes were made that no manifest shows: it is of version {manifest}, and the server states version {stated}. A client that keeps \
         no manifest wrote here, or the server makes them up"
    )]
    Outdated {
        /// The version of the manifest.
        manifest: i64,
        /// The version that the server states.
        stated: i64,
    },
    /// The keys are not those of the manifest, or not at the same values.
    #[error("the server does not give what the manifest shows: {0}")]
    Differs(Difference),
}

/// The keys in which an answer differs from its manifest.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Difference {
    /// In the manifest, and left out by the server.
    pub missing: Vec<String>,
    /// With another ciphertext than the manifest's.
    pub replaced: Vec<String>,
    /// Not in the manifest.
    pub added: Vec<String>,
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let parts = [("left out", &self.missing), ("another value", &self.replaced), ("added", &self.added)];
        let parts = parts.iter().filter(|(_, keys)| !keys.is_empty());
        let texts: Vec<String> =
            parts.map(|(what, keys)| format!("{what}: {}", few(keys.iter().map(|key| format!("{key:?}"))))).collect();
        f.write_str(&texts.join("; "))
    }
}

impl Difference {
    /// Compares what the manifest shows with what is there.
    pub fn between(shown: &Entries, there: &BTreeMap<&str, &[u8]>) -> Self {
        let missing = shown.keys().filter(|key| !there.contains_key(key.as_str())).cloned().collect();
        let (mut replaced, mut added) = (Vec::new(), Vec::new());
        for (key, nonce) in there {
            match shown.get(*key) {
                Some(shown) if shown.as_slice() == *nonce => {}
                Some(_) => replaced.push((*key).to_owned()),
                None => added.push((*key).to_owned()),
            }
        }
        Self { missing, replaced, added }
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.missing.is_empty() && self.replaced.is_empty() && self.added.is_empty()
    }
}

/// The result of a comparison of an answer with the manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Proof {
    /// The answer is the state that the manifest shows.
    Proven(Manifest),
    /// There is no manifest, or it says that other clients write here too.
    Unproven(Option<Manifest>),
}

impl Proof {
    /// The manifest, if there is one.
    pub fn manifest(&self) -> Option<&Manifest> {
        match self {
            Self::Proven(manifest) => Some(manifest),
            Self::Unproven(manifest) => manifest.as_ref(),
        }
    }

    /// The manifest that readers are to remember.
    pub(crate) fn pin(&self) -> Option<ManifestPin> {
        self.manifest().map(pin_of)
    }
}

/// The extent of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent<'a> {
    /// All keys.
    Whole,
    /// One key, which may not exist.
    Key(&'a str),
}

/// Checks an answer against its manifest and against the newest manifest that was seen.
///
/// # Errors
/// [`ManifestFault`] if the answer is not the current state, or cannot be shown to be in an environment that is protected.
pub fn check(
    seen: Option<&ManifestPin>,
    dek: &Dek,
    name: &EnvironmentName,
    answer: &ReadEnvironmentResponse,
    extent: Extent<'_>,
) -> Result<Proof, ManifestFault> {
    let Some(manifest) = authentic(seen, dek, name, answer)? else { return Ok(Proof::Unproven(None)) };
    if manifest.protection == Protection::Off {
        return Ok(Proof::Unproven(Some(manifest)));
    }
    if manifest.version < answer.version {
        return Err(ManifestFault::Outdated { manifest: manifest.version, stated: answer.version });
    }
    let difference = match extent {
        Extent::Whole => Difference::between(&manifest.entries, &nonces(&answer.secrets)),
        Extent::Key(key) => {
            let shown =
                manifest.entries.get_key_value(key).map(|(key, nonce)| (key.clone(), *nonce)).into_iter().collect();
            Difference::between(&shown, &nonces(&answer.secrets))
        }
    };
    if difference.is_empty() { Ok(Proof::Proven(manifest)) } else { Err(ManifestFault::Differs(difference)) }
}

/// The manifest of an answer, if there is one: made by a holder of the key, of this environment, and not older than the newest that was
/// seen. It may be outdated.
pub(crate) fn authentic(
    seen: Option<&ManifestPin>,
    dek: &Dek,
    name: &EnvironmentName,
    answer: &ReadEnvironmentResponse,
) -> Result<Option<Manifest>, ManifestFault> {
    let Some(sealed) = &answer.manifest else {
        return if seen.is_some() { Err(ManifestFault::Missing) } else { Ok(None) };
    };
    let manifest = Manifest::open(dek, name, &sealed.nonce, &sealed.ciphertext).map_err(ManifestFault::Invalid)?;
    if manifest.environment_id != answer.environment_id {
        return Err(ManifestFault::OtherEnvironment);
    }
    let given = pin_of(&manifest);
    if let Some(seen) = seen.filter(|seen| seen.is_newer_than(&given)) {
        let text = |pin: &ManifestPin| format!("manifest {} of environment {}", pin.serial, pin.environment_id);
        return Err(ManifestFault::WentBack { seen: text(seen), given: text(&given) });
    }
    if manifest.version > answer.version {
        let (seen, given) = (format!("version {}", manifest.version), format!("version {}", answer.version));
        return Err(ManifestFault::WentBack { seen, given });
    }
    Ok(Some(manifest))
}

/// Keys and nonces of an answer.
pub(crate) fn nonces(secrets: &[EncryptedSecret]) -> BTreeMap<&str, &[u8]> {
    secrets.iter().map(|secret| (secret.key.as_str(), secret.nonce.as_slice())).collect()
}

pub(crate) fn pin_of(manifest: &Manifest) -> ManifestPin {
    ManifestPin { environment_id: manifest.environment_id.clone(), serial: manifest.serial }
}

#[cfg(test)]
mod tests {
    use konverge_zopp_proto::secrets::SealedManifest;
    use proptest::prelude::*;

    use super::*;
    use crate::trust::Trust;

    struct Case {
        dek: Dek,
        manifest: Manifest,
        answer: ReadEnvironmentResponse,
    }

    fn name() -> EnvironmentName {
        EnvironmentName::new("acme", "backend", "production")
    }

    fn secret(key: &str, nonce: u8) -> EncryptedSecret {
        EncryptedSecret { key: key.into(), nonce: vec![nonce; 24], ciphertext: Vec::new() }
    }

    impl Case {
        /// Keys A and B at version 4, under the third manifest.
        fn new(protection: Protection) -> Self {
            let manifest = Manifest {
                environment_id: "e2".into(),
                serial: 3,
                version: 4,
                protection,
                entries: [("A".to_owned(), [1; 24]), ("B".to_owned(), [2; 24])].into(),
            };
            let answer = ReadEnvironmentResponse {
                environment_id: "e2".into(),
                version: 4,
                secrets: vec![secret("A", 1), secret("B", 2)],
                ..Default::default()
            };
            let mut case = Self { dek: Dek::generate().unwrap(), manifest, answer };
            case.seal();
            case
        }

        fn seal(&mut self) {
            let sealed = self.manifest.seal(&self.dek, &name()).unwrap();
            self.answer.manifest = Some(SealedManifest { nonce: sealed.nonce.to_vec(), ciphertext: sealed.ciphertext });
        }

        fn check(&self, seen: Option<(&str, u64)>) -> Result<Proof, ManifestFault> {
            let seen = seen.map(|(id, serial)| ManifestPin { environment_id: id.into(), serial });
            check(seen.as_ref(), &self.dek, &name(), &self.answer, Extent::Whole)
        }
    }

    #[test]
    fn the_state_that_the_manifest_shows_is_proven_also_after_older_ones_were_seen() {
        let case = Case::new(Protection::On);
        for seen in [None, Some(("e2", 2)), Some(("e2", 3)), Some(("e1", 9))] {
            assert_eq!(case.check(seen), Ok(Proof::Proven(case.manifest.clone())), "{seen:?}");
        }
    }

    #[test]
    fn every_difference_from_the_manifest_is_refused_and_named() {
        type Alteration = fn(&mut Vec<EncryptedSecret>);
        let cases: [(Alteration, &str); 4] = [
            (|secrets| drop(secrets.remove(0)), r#"left out: "A""#),
            (|secrets| secrets[0].nonce = vec![9; 24], r#"another value: "A""#),
            (|secrets| secrets.push(secret("C", 3)), r#"added: "C""#),
            (|secrets| secrets.clear(), r#"left out: "A", "B""#),
        ];
        for protection in [Protection::On, Protection::Off] {
            for (alter, text) in cases {
                let mut case = Case::new(protection);
                alter(&mut case.answer.secrets);
                match case.check(None) {
                    Err(fault @ ManifestFault::Differs(_)) if protection == Protection::On => {
                        assert!(fault.to_string().contains(text), "{fault}");
                    }
                    Ok(Proof::Unproven(Some(_))) if protection == Protection::Off => {}
                    other => panic!("{text}: {other:?}"),
                }
            }
        }
    }

    #[test]
    fn what_is_older_than_what_was_seen_is_refused() {
        for protection in [Protection::On, Protection::Off] {
            let case = Case::new(protection);
            for seen in [("e2", 4), ("e3", 1)] {
                assert!(matches!(case.check(Some(seen)), Err(ManifestFault::WentBack { .. })), "{seen:?}");
            }
            let mut case = Case::new(protection);
            case.answer.version = 3;
            assert!(matches!(case.check(None), Err(ManifestFault::WentBack { .. })));
        }
    }

    #[test]
    fn changes_without_a_manifest_are_refused_where_they_are_not_meant_to_be() {
        let mut case = Case::new(Protection::On);
        case.answer.version = 6;
        assert_eq!(case.check(None), Err(ManifestFault::Outdated { manifest: 4, stated: 6 }));
        let mut case = Case::new(Protection::Off);
        case.answer.version = 6;
        case.answer.secrets.clear();
        assert_eq!(case.check(Some(("e2", 3))), Ok(Proof::Unproven(Some(case.manifest))));
    }

    #[test]
    fn a_manifest_that_was_there_does_not_vanish() {
        let mut case = Case::new(Protection::On);
        case.answer.manifest = None;
        assert_eq!(case.check(None), Ok(Proof::Unproven(None)));
        for seen in [("e2", 3), ("e1", 1), ("e3", 1)] {
            assert_eq!(case.check(Some(seen)), Err(ManifestFault::Missing));
        }
    }

    #[test]
    fn a_manifest_of_another_key_or_environment_is_not_believed() {
        let mut case = Case::new(Protection::On);
        case.answer.environment_id = "e4".into();
        assert_eq!(case.check(None), Err(ManifestFault::OtherEnvironment));
        let mut case = Case::new(Protection::On);
        case.dek = Dek::generate().unwrap();
        assert!(matches!(case.check(None), Err(ManifestFault::Invalid(_))));
    }

    #[test]
    fn one_key_is_checked_by_itself() {
        let case = Case::new(Protection::On);
        let of = |key: &str, secrets: Vec<EncryptedSecret>| {
            let answer = ReadEnvironmentResponse { secrets, ..case.answer.clone() };
            check(None, &case.dek, &name(), &answer, Extent::Key(key))
        };
        assert!(of("A", vec![secret("A", 1)]).is_ok());
        assert!(of("C", vec![]).is_ok(), "it does not exist");
        for (key, secrets) in [("A", vec![]), ("A", vec![secret("A", 9)]), ("C", vec![secret("C", 1)])] {
            assert!(matches!(of(key, secrets), Err(ManifestFault::Differs(_))), "{key}");
        }
    }

    proptest! {
        /// A server may give any states in any order, and any of them again.
        #[test]
        fn what_is_accepted_never_goes_back(
            given in prop::collection::vec((1..4_u8, 1..8_u64, any::<bool>(), prop::bool::weighted(0.1)), 1..40),
        ) {
            let trust = Trust::default();
            for (environment, serial, is_protected, is_left_out) in given {
                let protection = if is_protected { Protection::On } else { Protection::Off };
                let mut case = Case::new(protection);
                case.manifest.environment_id = format!("e{environment}");
                case.manifest.serial = serial;
                case.answer.environment_id.clone_from(&case.manifest.environment_id);
                case.seal();
                if is_left_out {
                    case.answer.manifest = None;
                }
                let before = trust.manifest(&name());
                let pin = pin_of(&case.manifest);
                match check(before.as_ref(), &case.dek, &name(), &case.answer, Extent::Whole) {
                    Ok(proof) => {
                        prop_assert!(before.as_ref().is_none_or(|before| !before.is_newer_than(&pin)));
                        prop_assert_eq!(proof.pin().is_none(), is_left_out);
                        proof.pin().into_iter().for_each(|pin| trust.saw_manifest(&name(), pin));
                    }
                    Err(ManifestFault::Missing) => prop_assert!(is_left_out && before.is_some()),
                    Err(ManifestFault::WentBack { .. }) => {
                        prop_assert!(before.as_ref().is_some_and(|before| before.is_newer_than(&pin)));
                    }
                    Err(other) => prop_assert!(false, "{other}"),
                }
                // Also what is seen late, by another reader of the same file, takes nothing back.
                trust.saw_manifest(&name(), pin);
                let after = trust.manifest(&name()).expect("it was seen");
                prop_assert!(before.is_none_or(|before| !before.is_newer_than(&after)));
            }
        }
    }
}
