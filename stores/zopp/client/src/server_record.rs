//! The record of one server in the configuration file: its pins, and the certificate to show to it.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
};

use konverge_zopp_crypto::{Fingerprint, Profile};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};
use serde_json::{Map, Value};

use crate::revocation::Revocation;

/// The pins of one server, as the configuration file stores them.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ServerRecord {
    /// The generation, once known.
    #[serde(default, with = "generation", skip_serializing_if = "Option::is_none")]
    pub generation: Option<Profile>,
    /// The client certificate of this device, if the server requires one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_certificate: Option<ClientCertificate>,
    /// Workspace name to the fingerprint of its key.
    #[serde(default, with = "fingerprints", skip_serializing_if = "BTreeMap::is_empty")]
    pub workspaces: BTreeMap<String, Fingerprint>,
    /// Principal ID to the fingerprint of its public keys.
    #[serde(default, with = "fingerprints", skip_serializing_if = "BTreeMap::is_empty")]
    pub principals: BTreeMap<String, Fingerprint>,
    /// Workspace name to the fingerprints of the principals that may replace its pinned key.
    #[serde(default, with = "fingerprint_sets", skip_serializing_if = "BTreeMap::is_empty")]
    pub administrators: BTreeMap<String, BTreeSet<Fingerprint>>,
    /// The newest manifest that was seen of each environment, by `workspace/project/environment`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub environments: BTreeMap<String, ManifestPin>,
    /// The principals that this device gave a key to, by ID, as they were then.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub accepted: BTreeMap<String, AcceptedPrincipal>,
    /// Principal ID to what this device took from the principal.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub revoked: BTreeMap<String, Revocation>,
    /// Fields of later versions.
    #[serde(flatten)]
    other: Map<String, Value>,
}

impl ServerRecord {
    /// Returns how many pins there are.
    pub fn len(&self) -> usize {
        self.workspaces.len()
            + self.principals.len()
            + self.environments.len()
            + self.accepted.len()
            + self.revoked.len()
    }

    /// Whether there are no pins.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A principal that this device gave a workspace's key to. Once it is removed, a server that lies could call it another user's, or name its
/// key under another ID.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AcceptedPrincipal {
    /// The e-mail address of its user; `None` for a service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub email: Option<String>,
    /// The X25519 public key in hexadecimal.
    pub exchange_key: String,
}

/// The PEM files of a client's certificate. They are read again when they have changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientCertificate {
    /// The certificate, followed by those between it and the authority.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}

/// The newest manifest that was seen of an environment. An older one is a rollback.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManifestPin {
    /// The environment's ID. Servers make IDs that sort by time.
    pub environment_id: String,
    /// Which manifest of that environment.
    pub serial: u64,
}

impl ManifestPin {
    /// Whether it is of a later state than the other one.
    pub fn is_newer_than(&self, other: &Self) -> bool {
        (&self.environment_id, self.serial) > (&other.environment_id, other.serial)
    }
}

/// `"v1"` and `"v2"`.
mod generation {
    use super::{Deserialize, Deserializer, Error, Profile, Serializer};

    #[allow(clippy::ref_option, clippy::trivially_copy_pass_by_ref, reason = "the signature is that of serde")]
    pub(super) fn serialize<S: Serializer>(generation: &Option<Profile>, serializer: S) -> Result<S::Ok, S::Error> {
        match generation {
            None => serializer.serialize_none(),
            Some(Profile::V1) => serializer.serialize_str("v1"),
            Some(Profile::V2) => serializer.serialize_str("v2"),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Profile>, D::Error> {
        match Option::<String>::deserialize(deserializer)?.as_deref() {
            None => Ok(None),
            Some("v1") => Ok(Some(Profile::V1)),
            Some("v2") => Ok(Some(Profile::V2)),
            Some(_) => Err(D::Error::custom("unknown generation")),
        }
    }
}

/// Names to fingerprints in their text form.
mod fingerprints {
    use super::{BTreeMap, Deserialize, Deserializer, Error, Fingerprint, Serializer};

    pub(super) fn serialize<S: Serializer>(
        pins: &BTreeMap<String, Fingerprint>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_map(pins.iter().map(|(name, fingerprint)| (name, fingerprint.to_string())))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<BTreeMap<String, Fingerprint>, D::Error> {
        let texts = BTreeMap::<String, String>::deserialize(deserializer)?;
        let parse = |(name, text): (String, String)| Ok((name, text.parse().map_err(D::Error::custom)?));
        texts.into_iter().map(parse).collect()
    }
}

/// Names to sets of fingerprints in their text form.
mod fingerprint_sets {
    use super::{BTreeMap, BTreeSet, Deserialize, Deserializer, Error, Fingerprint, Serializer};

    pub(super) fn serialize<S: Serializer>(
        sets: &BTreeMap<String, BTreeSet<Fingerprint>>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let texts = |set: &BTreeSet<Fingerprint>| set.iter().map(Fingerprint::to_string).collect::<Vec<_>>();
        serializer.collect_map(sets.iter().map(|(name, set)| (name, texts(set))))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<BTreeMap<String, BTreeSet<Fingerprint>>, D::Error> {
        let sets = BTreeMap::<String, Vec<String>>::deserialize(deserializer)?;
        let parse = |(name, texts): (String, Vec<String>)| {
            let set = texts.iter().map(|text| text.parse().map_err(D::Error::custom));
            Ok((name, set.collect::<Result<_, _>>()?))
        };
        sets.into_iter().map(parse).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_reads_back_with_what_later_programs_wrote() {
        let text = format!(
            r#"{{"generation":"v1","workspaces":{{"acme":"{}"}},"later":[1]}}"#,
            Fingerprint::of_principal(&[1], &[])
        );
        let record: ServerRecord = serde_json::from_str(&text).unwrap();
        assert_eq!((record.generation, record.len()), (Some(Profile::V1), 1));
        assert_eq!(serde_json::to_string(&record).unwrap(), text);
        for bad in [r#"{"generation":"v3"}"#, r#"{"workspaces":{"acme":"1"}}"#, r#"{"workspaces":[]}"#] {
            assert!(serde_json::from_str::<ServerRecord>(bad).is_err(), "{bad}");
        }
    }
}
