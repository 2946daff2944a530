//! The key that distinguishes two states of a secret. Pure.

use jiff::Timestamp;
use konverge_core::digest::ContentDigest;
use serde::{Deserialize, Serialize};

use crate::kv::{Metadata, VersionState};

/// The state that was seen at a location.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Seen {
    /// Nothing.
    Absent,
    /// A state of a secret in an engine of version 2.
    State(StateKey),
    /// The content of a secret in an engine of version 1.
    Content(ContentDigest),
}

/// A state of a secret with versions.
///
/// The number of the version alone does not tell: it begins again at 1 when the metadata were deleted, and it stays when a version is
/// deleted, restored or destroyed. The time of the last update does not either: OpenBao moves it for each edit of custom metadata. This key changes
/// with each of the former and with none of the latter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateKey {
    /// When the entry was made; not known where metadata may not be read.
    pub entry_created: Option<String>,
    /// The newest version; 0 if there is only metadata.
    pub version: u64,
    /// When that was written.
    pub version_created: String,
    /// Whether it is deleted, be it because its time has come.
    pub deleted: bool,
    /// Whether its content is gone for good.
    pub destroyed: bool,
}

impl StateKey {
    /// The state that metadata tell. `now` decides whether a deletion that is due has come.
    pub fn of_metadata(metadata: &Metadata, now: Timestamp) -> Self {
        let version = metadata.versions.get(&metadata.current_version);
        Self {
            entry_created: Some(metadata.created.clone()),
            version: metadata.current_version,
            version_created: version.map(|version| version.created.clone()).unwrap_or_default(),
            deleted: version.is_some_and(|version| is_past(version.deletion, now)),
            destroyed: version.is_some_and(|version| version.destroyed),
        }
    }

    /// The state that a read of the data or of the key names tells, which also says whether the version is there to be read.
    pub fn of_version(version: &VersionState, live: bool) -> Self {
        Self {
            entry_created: None,
            version: version.number,
            version_created: version.created.clone(),
            // Of one that is not there Vault says when that came about, unless it was destroyed; no clock is needed.
            deleted: !live && version.deletion.is_some(),
            destroyed: version.destroyed,
        }
    }

    /// Whether both are one state. A field that one side does not know is ignored, so another kind of request is no change.
    pub fn agrees(&self, other: &Self) -> bool {
        self.same_entry(other)
            && (self.version, &self.version_created, self.deleted, self.destroyed)
                == (other.version, &other.version_created, other.deleted, other.destroyed)
    }

    /// Whether it is certainly from before the other one: an entry's number only grows.
    pub fn is_before(&self, other: &Self) -> bool {
        self.entry_created.is_some() && self.entry_created == other.entry_created && self.version < other.version
    }

    fn same_entry(&self, other: &Self) -> bool {
        match (&self.entry_created, &other.entry_created) {
            (Some(one), Some(another)) => one == another,
            _ => true,
        }
    }
}

impl Seen {
    /// Whether it is certainly from before the other one; see [`StateKey::is_before`].
    pub fn is_before(&self, other: &Self) -> bool {
        matches!((self, other), (Self::State(one), Self::State(another)) if one.is_before(another))
    }

    /// Whether both are one state; see [`StateKey::agrees`].
    pub fn agrees(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::State(one), Self::State(another)) => one.agrees(another),
            _ => self == other,
        }
    }
}

fn is_past(deletion: Option<Timestamp>, now: Timestamp) -> bool {
    deletion.is_some_and(|deletion| deletion <= now)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::kv::VersionRecord;

    fn key(entry: Option<&str>, version: u64, created: &str) -> StateKey {
        let (entry_created, version_created) = (entry.map(str::to_owned), created.to_owned());
        StateKey { entry_created, version, version_created, deleted: false, destroyed: false }
    }

    #[test]
    fn what_is_a_change() {
        let known = key(Some("e"), 1, "a");
        for (other, agrees) in [
            (known.clone(), true),
            (key(None, 1, "a"), true),
            (key(Some("e"), 2, "b"), false),
            (key(Some("f"), 1, "a"), false),
            (key(None, 1, "b"), false),
            (StateKey { deleted: true, ..known.clone() }, false),
            (StateKey { destroyed: true, ..known.clone() }, false),
        ] {
            assert_eq!(known.agrees(&other), agrees, "{other:?}");
            assert_eq!(other.agrees(&known), agrees, "{other:?}");
        }
    }

    #[test]
    fn only_the_same_entry_can_be_older() {
        let known = key(Some("e"), 3, "c");
        assert!(key(Some("e"), 2, "b").is_before(&known));
        assert!(!key(Some("f"), 1, "a").is_before(&known), "deleted with its metadata and made again");
        assert!(!key(None, 1, "a").is_before(&known));
        assert!(!known.is_before(&known));
    }

    #[test]
    fn a_deletion_counts_when_its_time_has_come() {
        let metadata = |deletion: Option<i64>| Metadata {
            created: "e".to_owned(),
            current_version: 1,
            cas_required: false,
            custom_metadata: BTreeMap::new(),
            versions: BTreeMap::from([(
                1,
                VersionRecord {
                    created: "a".to_owned(),
                    deletion: deletion.map(|second| Timestamp::from_second(second).unwrap()),
                    destroyed: false,
                },
            )]),
            metadata_version: None,
            read_at: None,
        };
        let now = Timestamp::from_second(100).unwrap();
        for (deletion, deleted) in [(None, false), (Some(99), true), (Some(100), true), (Some(101), false)] {
            assert_eq!(StateKey::of_metadata(&metadata(deletion), now).deleted, deleted, "{deletion:?}");
        }
    }

    #[test]
    fn it_can_be_kept_elsewhere() {
        let key = key(Some("e"), 1, "a");
        let text = serde_json::to_string(&key).unwrap();
        assert_eq!(serde_json::from_str::<StateKey>(&text).unwrap(), key);
    }
}
