//! The manifest of an environment: which keys it holds at which version, and by which nonce each ciphertext is told.
//!
//! An envelope proves that a value was once set under its key. It does not prove that the value is the current one, or that no key was
//! left out. The manifest does: writers seal it under the environment's key with each change, and readers compare. A nonce is random and
//! used once, and no other ciphertext opens under the same key, name and nonce. Therefore it identifies a ciphertext.
//!
//! # What it does not do
//! An old manifest is as authentic as the newest one. Manifests are therefore counted, and readers remember the highest count that they saw.

use std::collections::BTreeMap;

use crate::{
    envelope::{NONCE_LENGTH, OpenError, SealError, Sealed, open, seal},
    hierarchy::EnvironmentName,
    keys::Dek,
};

/// The first byte of the encoding.
const FORMAT: u8 = 1;

/// Keys and the nonces of their ciphertexts.
pub type Entries = BTreeMap<String, [u8; NONCE_LENGTH]>;

/// The reaction of readers to changes without a manifest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protection {
    /// They refuse them.
    On,
    /// They accept them: clients that keep no manifest write here too.
    Off,
}

/// The content of an environment at one version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Manifest {
    /// The environment's ID: another environment under the same name has another one.
    pub environment_id: String,
    /// Counts the manifests of the environment, from 1.
    pub serial: u64,
    /// The version that the entries make up.
    pub version: i64,
    /// The reaction of readers to changes without a manifest.
    pub protection: Protection,
    /// All keys, each with the nonce of its ciphertext.
    pub entries: Entries,
}

/// A sealed manifest cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ManifestError {
    /// It is not by a holder of the environment's key.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// It is authentic, and of a format that this program does not know.
    #[error("its format is unknown; a newer version of zopp wrote it")]
    Format,
}

impl Manifest {
    /// Seals the manifest under the environment's key.
    ///
    /// # Errors
    /// As for any envelope: no random bytes, or too long.
    pub fn seal(&self, dek: &Dek, name: &EnvironmentName) -> Result<Sealed, SealError> {
        seal(dek.expose(), &self.encode(), &bind(name))
    }

    /// Opens what [`Manifest::seal`] made, from the fields of the server's answer.
    ///
    /// # Errors
    /// If it was made with another key or for another name, was altered, or has an unknown format.
    pub fn open(dek: &Dek, name: &EnvironmentName, nonce: &[u8], ciphertext: &[u8]) -> Result<Self, ManifestError> {
        let plain = open(dek.expose(), nonce, ciphertext, &bind(name))?;
        decode(&plain).ok_or(ManifestError::Format)
    }

    /// The format byte, the protection, the count, the version, the ID, then each entry in the order of its key. Texts follow their lengths.
    fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![FORMAT, u8::from(self.protection == Protection::On)];
        bytes.extend_from_slice(&self.serial.to_le_bytes());
        bytes.extend_from_slice(&self.version.to_le_bytes());
        push_text(&mut bytes, &self.environment_id);
        for (key, nonce) in &self.entries {
            push_text(&mut bytes, key);
            bytes.extend_from_slice(nonce);
        }
        bytes
    }
}

/// Never the context of a value or of a key: those begin with other words.
fn bind(name: &EnvironmentName) -> String {
    format!("konverge-manifest:{}:{}:{}", name.workspace, name.project, name.environment)
}

fn push_text(bytes: &mut Vec<u8>, text: &str) {
    bytes.extend_from_slice(&(text.len() as u64).to_le_bytes());
    bytes.extend_from_slice(text.as_bytes());
}

/// `None` if it is not what [`Manifest::encode`] gives: one content has one encoding.
fn decode(bytes: &[u8]) -> Option<Manifest> {
    let mut rest = bytes;
    if take::<1>(&mut rest)? != [FORMAT] {
        return None;
    }
    let protection = match take::<1>(&mut rest)? {
        [0] => Protection::Off,
        [1] => Protection::On,
        _ => return None,
    };
    let serial = u64::from_le_bytes(take(&mut rest)?);
    let version = i64::from_le_bytes(take(&mut rest)?);
    let environment_id = take_text(&mut rest)?;
    let mut entries = Entries::new();
    while !rest.is_empty() {
        let key = take_text(&mut rest)?;
        if entries.last_key_value().is_some_and(|(last, _)| *last >= key) {
            return None;
        }
        let nonce = take(&mut rest)?;
        entries.insert(key, nonce);
    }
    Some(Manifest { environment_id, serial, version, protection, entries })
}

fn take<const LENGTH: usize>(rest: &mut &[u8]) -> Option<[u8; LENGTH]> {
    let (head, tail) = rest.split_first_chunk()?;
    *rest = tail;
    Some(*head)
}

fn take_text(rest: &mut &[u8]) -> Option<String> {
    let length = usize::try_from(u64::from_le_bytes(take(rest)?)).ok()?;
    let (text, tail) = rest.split_at_checked(length)?;
    *rest = tail;
    String::from_utf8(text.to_vec()).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn manifest() -> impl Strategy<Value = Manifest> {
        let entries = prop::collection::btree_map(".{0,12}", any::<[u8; NONCE_LENGTH]>(), 0..8);
        let numbers = (any::<u64>(), any::<i64>());
        (".{0,36}", numbers, any::<bool>(), entries).prop_map(|(environment_id, (serial, version), on, entries)| {
            Manifest {
                environment_id,
                serial,
                version,
                protection: if on { Protection::On } else { Protection::Off },
                entries,
            }
        })
    }

    fn name() -> EnvironmentName {
        EnvironmentName::new("acme", "backend", "production")
    }

    proptest! {
        #[test]
        fn opens_what_was_sealed_under_the_same_key_and_name_only(manifest in manifest()) {
            let (dek, other) = (Dek::generate().unwrap(), Dek::generate().unwrap());
            let sealed = manifest.seal(&dek, &name()).unwrap();
            let opened = Manifest::open(&dek, &name(), &sealed.nonce, &sealed.ciphertext).unwrap();
            prop_assert_eq!(&opened, &manifest);
            let not_authentic = Err(ManifestError::Open(OpenError::NotAuthentic));
            prop_assert_eq!(Manifest::open(&other, &name(), &sealed.nonce, &sealed.ciphertext), not_authentic.clone());
            let elsewhere = EnvironmentName::new("acme", "backend", "staging");
            prop_assert_eq!(Manifest::open(&dek, &elsewhere, &sealed.nonce, &sealed.ciphertext), not_authentic);
        }

        #[test]
        fn any_bytes_are_refused_or_the_encoding_of_what_they_decode_to(bytes: Vec<u8>) {
            if let Some(manifest) = decode(&bytes) {
                prop_assert_eq!(manifest.encode(), bytes);
            }
        }

        #[test]
        fn an_altered_encoding_is_refused_or_another_manifest(manifest in manifest(), at: prop::sample::Index, bit in 0..8_u32) {
            let mut bytes = manifest.encode();
            let at = at.index(bytes.len());
            bytes[at] ^= 1 << bit;
            prop_assert_ne!(decode(&bytes), Some(manifest));
        }

        #[test]
        fn every_truncation_of_an_entry_is_refused(keep in 0..31_usize) {
            let entries = [("A".to_owned(), [7; NONCE_LENGTH])].into();
            let environment_id = "id".to_owned();
            let manifest = Manifest { environment_id, serial: 1, version: 1, protection: Protection::On, entries };
            let bytes = manifest.encode();
            let head = bytes.len() - 33;
            // Without any byte of the entry, it is the manifest of an empty environment.
            prop_assert_eq!(decode(&bytes[..head + keep]).is_some(), keep == 0);
        }
    }

    #[test]
    fn a_value_is_never_taken_for_a_manifest() {
        let dek = Dek::generate().unwrap();
        let manifest = Manifest {
            environment_id: String::new(),
            serial: 1,
            version: 0,
            protection: Protection::Off,
            entries: Entries::new(),
        };
        let value = konverge_core::SecretValue::new(manifest.encode());
        let sealed = dek.encrypt(&name(), "A", &value).unwrap();
        assert!(Manifest::open(&dek, &name(), &sealed.nonce, &sealed.ciphertext).is_err());
    }
}
