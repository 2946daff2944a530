//! One question for one location.

use jiff::Timestamp;
use konverge_core::digest::DigestKey;

use super::key::{Seen, StateKey};
use crate::{
    client::Vault,
    content::{Content, Field},
    error::VaultError,
    kv::{Found, Secret},
    mount::{KvVersion, Location},
};

/// How a location is asked for, from the least that has to be allowed to the most.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum PollMethod {
    #[default]
    Metadata,
    Subkeys,
    Data,
}

impl PollMethod {
    fn next(self) -> Option<Self> {
        match self {
            Self::Metadata => Some(Self::Subkeys),
            Self::Subkeys => Some(Self::Data),
            Self::Data => None,
        }
    }
}

/// The state, and the kind of request that was allowed. Counts the questions.
pub(super) async fn poll(
    vault: &Vault,
    location: &Location,
    method: PollMethod,
    key: &DigestKey,
    mut count: impl FnMut(),
) -> (PollMethod, Result<Seen, VaultError>) {
    let start = if location.mount().version() == KvVersion::One { PollMethod::Data } else { method };
    let mut method = start;
    loop {
        count();
        let outcome = match method {
            PollMethod::Metadata => vault.metadata(location).await.map(|metadata| match metadata {
                Some(metadata) => {
                    let now = metadata.read_at.unwrap_or_else(Timestamp::now);
                    Seen::State(StateKey::of_metadata(&metadata, now))
                }
                None => Seen::Absent,
            }),
            PollMethod::Subkeys => vault.subkeys(location).await.map(|version| match version {
                Some((version, live)) => Seen::State(StateKey::of_version(&version, live)),
                None => Seen::Absent,
            }),
            PollMethod::Data => vault.read(location).await.map(|found| seen(&found, key)),
        };
        match (&outcome, method.next()) {
            (Err(VaultError::Denied { .. } | VaultError::Rejected { .. }), Some(next)) => method = next,
            // When all of them are denied, the first is the one to allow.
            (Err(VaultError::Denied { .. }), None) => return (start, outcome),
            _ => return (method, outcome),
        }
    }
}

fn seen(found: &Found, key: &DigestKey) -> Seen {
    match found {
        Found::Absent => Seen::Absent,
        Found::Deleted(version) => Seen::State(StateKey::of_version(version, false)),
        Found::Live(Secret { version: Some(version), .. }) => Seen::State(StateKey::of_version(version, true)),
        Found::Live(Secret { content, version: None }) => Seen::Content(digest(content, key)),
    }
}

/// Text and JSON that look alike are not the same.
fn digest(content: &Content, key: &DigestKey) -> konverge_core::digest::ContentDigest {
    let name = |name: &str, field: &Field| match field {
        Field::Text(_) => format!("text {name}"),
        Field::Json(_) => format!("json {name}"),
    };
    let named: Vec<_> = content.iter().map(|(key, field)| (name(key, field), field.bytes())).collect();
    key.digest(named.iter().map(|(name, bytes)| (name.as_str(), *bytes)))
}
