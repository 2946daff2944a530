//! One version of a secret.

use std::{collections::BTreeMap, time::Duration};

use jiff::Timestamp;
use serde::Deserialize;

/// The metadata of one version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VersionState {
    /// Its number, from 1.
    pub number: u64,
    /// When it was written, in Vault's own words.
    pub created: String,
    /// When it was or will be deleted.
    pub deletion: Option<Timestamp>,
    /// Whether its content is gone for good.
    pub destroyed: bool,
    /// How long ago it was written when it was read, by Vault's own clock, which tells whole seconds; nothing if it did not tell.
    pub age: Option<Duration>,
    /// The custom metadata of the secret; it is the same for all versions.
    pub custom_metadata: BTreeMap<String, String>,
}

/// As Vault writes it.
#[derive(Deserialize)]
pub(super) struct Wire {
    version: u64,
    #[serde(default)]
    created_time: String,
    #[serde(default)]
    deletion_time: String,
    #[serde(default)]
    destroyed: bool,
    #[serde(default)]
    custom_metadata: Option<BTreeMap<String, String>>,
}

impl From<Wire> for VersionState {
    fn from(wire: Wire) -> Self {
        Self {
            number: wire.version,
            created: wire.created_time,
            deletion: time(&wire.deletion_time),
            destroyed: wire.destroyed,
            age: None,
            custom_metadata: wire.custom_metadata.unwrap_or_default(),
        }
    }
}

impl VersionState {
    /// Returns whether it certainly is older than the other one; see [`is_before`].
    pub fn is_before(&self, other: &Self) -> bool {
        is_before((self.number, &self.created), (other.number, &other.created))
    }

    /// As it was read at this time of Vault's, in seconds since 1970.
    pub(super) fn read_at(mut self, date: Option<i64>) -> Self {
        let read = date.and_then(|seconds| Timestamp::from_second(seconds).ok());
        let created = self.created.parse::<Timestamp>().ok();
        // A version that was written in the current second is not in the future.
        self.age = read.zip(created).map(|(read, created)| read.duration_since(created).try_into().unwrap_or_default());
        self
    }
}

/// Returns whether one version, by its number and the time at which it was written, certainly is older than the other one: it has a smaller number and an
/// earlier time. A secret that was created again after its metadata were deleted has only a smaller number, and a server whose clock is behind writes only
/// an earlier time.
pub fn is_before(version: (u64, &str), other: (u64, &str)) -> bool {
    let time = |created: &str| created.parse::<Timestamp>().ok();
    version.0 < other.0 && time(version.1).zip(time(other.1)).is_some_and(|(one, another)| one < another)
}

/// An empty text is no time. Of one that is none, it is only sure that there is one, so it is long past.
pub(super) fn time(text: &str) -> Option<Timestamp> {
    (!text.is_empty()).then(|| text.parse().unwrap_or(Timestamp::UNIX_EPOCH))
}
