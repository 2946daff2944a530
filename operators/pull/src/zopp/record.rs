//! The record on a Secret: the state of zopp that the operator had accepted when it wrote the Secret.
//!
//! A restarted operator reads the records before its first request to zopp. So it refuses an older state, a former key or an environment without
//! its manifest. The operator authenticates each record with a key that it derives from its own private key, so neither zopp's server nor an
//! editor of a Secret can forge one. Old records stay genuine, so the newest of all records counts ([`memory`](super::memory)).

use konverge_core::digest::DigestKey;
use konverge_zopp_client::{
    DeriveError, EnvironmentName, Fingerprint, Identity, server_record::ManifestPin, trust::WorkspaceMemory,
};
use serde_json::{Value, json};

/// The purpose for which the key is derived.
const PURPOSE: &str = "konverge.dev pull record v1";

/// The accepted state of an environment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// The name of the environment.
    pub environment: EnvironmentName,
    /// The state of the environment.
    pub state: EnvironmentState,
    /// The key of its workspace.
    pub key: WorkspaceMemory,
    /// The number of times that a person accepted an older key of the workspace, by accepting an older state of one of its environments. Keys in
    /// records with a lower number do not count.
    pub key_epoch: u64,
}

/// A state of an environment that was accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnvironmentState {
    /// The number of times that a person accepted an older state. Records with a lower number do not count.
    pub epoch: u64,
    /// The last word of `--accept-older`.
    pub accepted: Option<String>,
    /// The environment's ID.
    pub id: String,
    /// The version of the environment.
    pub version: i64,
    /// The serial of the manifest, if there was one.
    pub serial: Option<u64>,
}

impl EnvironmentState {
    /// Returns the manifest, if there was one.
    pub fn manifest(&self) -> Option<ManifestPin> {
        self.serial.map(|serial| ManifestPin { environment_id: self.id.clone(), serial })
    }
}

/// The key that authenticates the operator's records. Wiped on drop, without `Debug`.
pub struct RecordKey(DigestKey);

impl RecordKey {
    /// Derives the key from the private key of the operator's principal.
    ///
    /// # Errors
    /// [`DeriveError::Expand`], which does not happen.
    pub fn of(identity: &Identity) -> Result<Self, DeriveError> {
        Ok(Self(DigestKey::new(*identity.signing_seed().derive(PURPOSE)?)))
    }

    /// Writes a record as text. Equal records have equal texts.
    pub fn seal(&self, record: &Record) -> String {
        let Record { environment: EnvironmentName { workspace, project, environment }, state, key, key_epoch } = record;
        let EnvironmentState { epoch, accepted, id, version, serial } = state;
        let mut text = json!({
            "workspace": workspace, "project": project, "environment": environment,
            "id": id, "version": version, "manifest": serial, "epoch": epoch, "accepted": accepted,
            "key": key.fingerprint.to_string(), "firstKey": key.root.to_string(), "generation": key.generation,
            "firstUse": key.is_first_use,
        });
        // Left out at first, so that the records of earlier versions stay as they are.
        if *key_epoch > 0 {
            text["keyEpoch"] = json!(key_epoch);
        }
        let text = text.to_string();
        format!("{} {text}", self.mac(&text))
    }

    /// Reads a record. Returns `None` if this operator did not write it.
    pub fn open(&self, sealed: &str) -> Option<Record> {
        let (mac, text) = sealed.split_once(' ')?;
        // Hashes are compared, so the duration reveals nothing about the correct code.
        if self.mac(mac) != self.mac(&self.mac(text)) {
            return None;
        }
        read(text)
    }

    fn mac(&self, text: &str) -> String {
        self.0.digest([("record", text.as_bytes())]).to_string()
    }
}

/// Reads a record without authentication, to show it to a person. Any editor of the Secret may have written it.
pub fn read_unverified(sealed: &str) -> Option<Record> {
    read(sealed.split_once(' ')?.1)
}

fn read(text: &str) -> Option<Record> {
    let record: Value = serde_json::from_str(text).ok()?;
    let name = |field: &str| record[field].as_str().map(str::to_owned);
    let fingerprint = |field: &str| record[field].as_str()?.parse::<Fingerprint>().ok();
    Some(Record {
        environment: EnvironmentName::new(name("workspace")?, name("project")?, name("environment")?),
        state: EnvironmentState {
            epoch: record["epoch"].as_u64()?,
            accepted: name("accepted"),
            id: name("id")?,
            version: record["version"].as_i64()?,
            serial: record["manifest"].as_u64(),
        },
        key: WorkspaceMemory {
            root: fingerprint("firstKey")?,
            fingerprint: fingerprint("key")?,
            generation: record["generation"].as_u64()?.try_into().ok()?,
            is_first_use: record["firstUse"].as_bool()?,
        },
        key_epoch: record["keyEpoch"].as_u64().unwrap_or_default(),
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn key(byte: u8) -> RecordKey {
        RecordKey(DigestKey::new([byte; 32]))
    }

    pub(crate) fn record(environment: &str, id: &str, version: i64, serial: Option<u64>) -> Record {
        let fingerprint = Fingerprint::from_slice(&[1; Fingerprint::LENGTH]).unwrap();
        Record {
            environment: EnvironmentName::new("acme", "backend", environment),
            state: EnvironmentState { epoch: 0, accepted: None, id: id.into(), version, serial },
            key: WorkspaceMemory { root: fingerprint, fingerprint, generation: 2, is_first_use: false },
            key_epoch: 0,
        }
    }

    #[test]
    fn a_record_reads_back_and_every_altered_or_foreign_one_is_none() {
        let accepted = Record { key_epoch: 3, ..record("production", "e1", 4, Some(7)) };
        for record in [record("production", "e1", 4, Some(7)), record("a \"b\"", "", -1, None), accepted] {
            let sealed = key(1).seal(&record);
            assert_eq!(key(1).open(&sealed), Some(record.clone()));
            assert_eq!(sealed, key(1).seal(&record));
            assert_eq!(key(2).open(&sealed), None, "of another principal");
            for (index, _) in sealed.char_indices() {
                let mut altered = sealed.clone().into_bytes();
                altered[index] ^= 1;
                assert_eq!(key(1).open(&String::from_utf8(altered).unwrap()), None, "{index} of {sealed}");
            }
        }
        for text in ["", " ", "{}", "00 {}"] {
            assert_eq!(key(1).open(text), None, "{text:?}");
        }
    }
}
