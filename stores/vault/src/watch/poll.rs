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
    /// Returns the next kind of request. The first follows the last, because a policy may have changed.
    fn next(self) -> Self {
        match self {
            Self::Metadata => Self::Subkeys,
            Self::Subkeys => Self::Data,
            Self::Data => Self::Metadata,
        }
    }
}

/// Returns the state, and the kind of request that was allowed. If none was, the next poll starts with the least kind, because the
/// response may not be Vault's. Counts the requests.
pub(super) async fn poll(
    vault: &Vault,
    location: &Location,
    method: PollMethod,
    key: &DigestKey,
    mut count: impl FnMut(),
) -> (PollMethod, Result<Seen, VaultError>) {
    let is_versioned = location.mount().version() == KvVersion::Two;
    let start = if is_versioned { method } else { PollMethod::Data };
    let (mut method, mut refused) = (start, None);
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
        let error = match outcome {
            Err(error @ (VaultError::Denied { .. } | VaultError::Rejected { .. })) => error,
            outcome => return (method, outcome),
        };
        // If all kinds are denied, the error names the least one, which should be allowed.
        let told = refused.filter(|_| method != PollMethod::default()).unwrap_or(error);
        method = method.next();
        if method == start || !is_versioned {
            return (PollMethod::default(), Err(told));
        }
        refused = Some(told);
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
