//! The metadata that Vault keeps about a secret.

use std::collections::BTreeMap;

use http::Method;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::json;

use super::version::time;
use crate::{call::Call, client::Vault, error::VaultError, mount::Location};

/// The metadata of a secret, all versions included.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Metadata {
    /// When the entry was made, in Vault's own words.
    pub created: String,
    /// The newest version's number; 0 if none was written.
    pub current_version: u64,
    /// Whether each write has to say what it expects.
    pub cas_required: bool,
    /// The custom metadata of the secret.
    pub custom_metadata: BTreeMap<String, String>,
    /// Which versions are there.
    pub versions: BTreeMap<u64, VersionRecord>,
    /// OpenBao counts changes of the metadata, so that they can be checked and set as well.
    pub metadata_version: Option<u64>,
    /// Vault's time when it was read, if it told; rounded up to the next second, so that what was deleted just before is past.
    pub read_at: Option<Timestamp>,
}

/// The metadata of one version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VersionRecord {
    /// When it was written, in Vault's own words.
    pub created: String,
    /// When it was or will be deleted.
    pub deletion: Option<Timestamp>,
    /// Whether its content is gone for good.
    pub destroyed: bool,
}

#[derive(Deserialize)]
struct Answered {
    data: WireMetadata,
}

/// As Vault writes it.
#[derive(Deserialize)]
pub(crate) struct WireMetadata {
    #[serde(default)]
    created_time: String,
    /// Always there. Without it it is not Vault that has answered, and nothing follows from it.
    current_version: u64,
    #[serde(default)]
    cas_required: bool,
    #[serde(default)]
    custom_metadata: Option<BTreeMap<String, String>>,
    #[serde(default)]
    versions: Option<BTreeMap<u64, WireRecord>>,
    #[serde(default)]
    current_metadata_version: Option<u64>,
}

#[derive(Deserialize)]
struct WireRecord {
    #[serde(default)]
    created_time: String,
    #[serde(default)]
    deletion_time: String,
    #[serde(default)]
    destroyed: bool,
}

impl WireMetadata {
    pub(crate) fn metadata(self, read_at: Option<i64>) -> Metadata {
        let record = |wire: WireRecord| VersionRecord {
            created: wire.created_time,
            deletion: time(&wire.deletion_time),
            destroyed: wire.destroyed,
        };
        Metadata {
            created: self.created_time,
            current_version: self.current_version,
            cas_required: self.cas_required,
            custom_metadata: self.custom_metadata.unwrap_or_default(),
            versions: self
                .versions
                .unwrap_or_default()
                .into_iter()
                .map(|(number, wire)| (number, record(wire)))
                .collect(),
            metadata_version: self.current_metadata_version,
            read_at: read_at.and_then(|seconds| Timestamp::from_second(seconds + 1).ok()),
        }
    }
}

impl Vault {
    /// The metadata; nothing if there is no entry.
    pub async fn metadata(&self, location: &Location) -> Result<Option<Metadata>, VaultError> {
        let what = format!("read the metadata of {location}");
        let call = Call::new(Method::GET, location.route("metadata"), what, "read");
        let answer = self.kv_two(location, &call).await?;
        if answer.is_absent() {
            return Ok(None);
        }
        let date = answer.date;
        let answer = self.succeeded(&call, answer)?;
        Ok(Some(self.parse::<Answered>(&call, &answer)?.data.metadata(date)))
    }

    /// Changes the named keys of the custom metadata, and those only: sets them, or removes them where there is no value.
    ///
    /// In one step where the server and the policy (`patch`) let it. Else it is read, merged and written, and somebody's change in
    /// between is lost, except on OpenBao, which tells.
    pub async fn annotate(
        &self,
        location: &Location,
        changes: &BTreeMap<String, Option<String>>,
    ) -> Result<(), VaultError> {
        let what = format!("annotate {location}");
        let mut call = Call::new(Method::PATCH, location.route("metadata"), what.clone(), "patch")
            .json(&json!({ "custom_metadata": changes }));
        call.content_type = "application/merge-patch+json";
        let answer = self.kv_two(location, &call).await?;
        // No entry, no permission, or a server from before there was PATCH.
        if !answer.is_absent() && !answer.is_denied() && answer.status.as_u16() != 405 {
            return self.confirmed(&call, &answer);
        }
        let known = self.metadata(location).await?;
        let mut body =
            json!({ "custom_metadata": merged(known.as_ref().map(|known| &known.custom_metadata), changes) });
        if let Some(version) = known.and_then(|known| known.metadata_version) {
            body["metadata_cas"] = json!(version);
        }
        let call = Call::new(Method::POST, location.route("metadata"), what, "create and update").json(&body);
        let answer = self.kv_two(location, &call).await?;
        self.confirmed(&call, &answer)
    }
}

fn merged(
    known: Option<&BTreeMap<String, String>>,
    changes: &BTreeMap<String, Option<String>>,
) -> BTreeMap<String, String> {
    let mut merged = known.cloned().unwrap_or_default();
    for (key, change) in changes {
        match change {
            Some(value) => merged.insert(key.clone(), value.clone()),
            None => merged.remove(key),
        };
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merging_leaves_alone_what_is_not_named() {
        let map = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
            pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
        };
        let known = map(&[("a", "1"), ("b", "2"), ("c", "3")]);
        let changes =
            BTreeMap::from([("b".to_owned(), Some("9".to_owned())), ("c".to_owned(), None), ("d".to_owned(), None)]);
        assert_eq!(merged(Some(&known), &changes), map(&[("a", "1"), ("b", "9")]));
        assert_eq!(merged(None, &changes), map(&[("b", "9")]));
    }
}
