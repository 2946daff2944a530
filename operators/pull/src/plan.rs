//! Decides about a Secret, without IO, clock or client.

use std::collections::{BTreeMap, BTreeSet};

use konverge_core::{
    SecretValue,
    digest::{ContentDigest, DigestKey},
};

use crate::source::{Revision, Snapshot, Succession};

/// A Secret's data may be this many bytes in all: `MaxSecretSize` of the Kubernetes API.
pub const SECRET_SIZE_LIMIT: usize = 1 << 20;

/// A key of a Secret's data is at most this long: the API's rule for config map keys.
const KEY_LENGTH_LIMIT: usize = 253;

/// The content of the Secret when this process last verified it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verified {
    /// The revision it came from.
    pub revision: Revision,
    /// Digest of our keys and their values.
    pub digest: ContentDigest,
}

/// The content of the Secret now.
pub enum Observed<'a> {
    /// Nobody wrote to it since it was verified, so it holds what it held then.
    Unchanged(&'a Verified),
    /// It was read.
    Read(&'a Contents, Option<&'a Verified>),
}

/// A Secret's data and whose it is.
pub struct Contents {
    /// All keys with their values.
    pub data: BTreeMap<String, SecretValue>,
    /// The keys that our field manager owns.
    pub owned: BTreeSet<String>,
    /// Whether the API server refuses any change of the data.
    pub immutable: bool,
}

/// An action.
pub enum Action<'a> {
    /// The Secret is right.
    Nothing,
    /// Make exactly these keys ours, with these values.
    Apply(BTreeMap<&'a str, &'a SecretValue>),
    /// Leave the Secret as it is; the problem says why.
    Keep,
    /// Read the environment once more before its emptiness is believed.
    ConfirmEmpty,
    /// The Secret has to be read before this can be decided.
    ReadFirst,
}

/// Something that its owner should know, whatever was done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Problem {
    /// Keys that no Secret may have; they were left out.
    InvalidKeys(Vec<String>),
    /// Keys that could not be decrypted; they keep what the Secret has.
    Undecryptable(Vec<String>),
    /// All the data together is larger than a Secret may be.
    TooLarge {
        /// Bytes of all values.
        size: usize,
    },
    /// The Secret is marked immutable and holds something else.
    Immutable,
    /// The environment has never held a key, so nothing is removed for its sake.
    NeverFilled,
    /// The server states another environment under this name than was applied before, and nothing proves that it is a newer one.
    Replaced {
        /// The ID of the environment that was applied.
        applied: String,
        /// The ID that the server states now.
        stated: String,
    },
    /// The server states an older version than was applied before.
    WentBack {
        /// The version that was applied.
        applied: i64,
        /// The version that the server states now.
        stated: i64,
    },
}

/// The decision: an action, what is verified by it, and the problems to report.
pub struct Plan<'a> {
    /// The action.
    pub action: Action<'a>,
    /// True of the Secret once the action is done; `None` where nothing was established.
    pub verified: Option<Verified>,
    /// The problems to report.
    pub problems: Vec<Problem>,
}

/// The remembered facts that a decision uses.
#[derive(Debug, Clone, Copy, Default)]
pub struct Remembered<'a> {
    /// The newest revision that any Secret has held, if one has.
    pub accepted: Option<&'a Revision>,
    /// Whether the Secret has the record that belongs to the snapshot.
    pub is_recorded: bool,
    /// Whether an empty environment was seen empty by two separate reads.
    pub is_confirmed: bool,
}

/// Decides what to write to a Secret.
pub fn plan<'a>(
    upstream: &'a Snapshot,
    observed: &Observed<'a>,
    key: &DigestKey,
    remembered: Remembered<'_>,
) -> Plan<'a> {
    let Remembered { accepted, is_recorded, is_confirmed } = remembered;
    let before = match observed {
        Observed::Unchanged(verified) => Some(*verified),
        Observed::Read(_, verified) => *verified,
    };
    if let Some(problem) = rollback(upstream, before, accepted) {
        return keep(vec![problem]);
    }
    if upstream.revision.number == 0 && upstream.values.is_empty() && upstream.failed.is_empty() {
        return keep(vec![Problem::NeverFilled]);
    }
    let (mut desired, mut problems) = sort_out(upstream);
    if !upstream.failed.is_empty() {
        let Observed::Read(contents, _) = observed else {
            return Plan { action: Action::ReadFirst, verified: None, problems: Vec::new() };
        };
        carry_forward(&mut desired, contents, upstream);
    }
    if desired.is_empty() && !is_confirmed && holds_ours(observed, key) {
        return Plan { action: Action::ConfirmEmpty, verified: None, problems };
    }
    let size = desired.values().map(|value| value.len()).sum();
    if size > SECRET_SIZE_LIMIT {
        problems.push(Problem::TooLarge { size });
        return keep(problems);
    }
    let digest = key.digest(desired.iter().map(|(name, value)| (*name, value.expose())));
    let verified = Verified { revision: upstream.revision.clone(), digest };
    let right = match observed {
        Observed::Unchanged(before) => before.digest == digest,
        Observed::Read(contents, _) => contents.hold_exactly(&desired),
    };
    if right && is_recorded {
        return Plan { action: Action::Nothing, verified: Some(verified), problems };
    }
    if !right && matches!(observed, Observed::Read(Contents { immutable: true, .. }, _)) {
        problems.push(Problem::Immutable);
        return keep(problems);
    }
    Plan { action: Action::Apply(desired), verified: Some(verified), problems }
}

/// Returns the problem with a snapshot that does not follow the revisions that were applied.
pub fn rollback(upstream: &Snapshot, before: Option<&Verified>, accepted: Option<&Revision>) -> Option<Problem> {
    let revisions = before.map(|before| &before.revision).into_iter().chain(accepted);
    let last = revisions.max()?;
    let stated = &upstream.revision;
    if last.identity == stated.identity {
        let (applied, stated) = (last.number, stated.number);
        return (applied > stated).then_some(Problem::WentBack { applied, stated });
    }
    let follows = match upstream.succession {
        Succession::Unproven => false,
        Succession::Proven(_) => stated.identity > last.identity,
        Succession::Any => true,
    };
    (!follows).then(|| Problem::Replaced { applied: last.identity.clone(), stated: stated.identity.clone() })
}

fn keep<'a>(problems: Vec<Problem>) -> Plan<'a> {
    Plan { action: Action::Keep, verified: None, problems }
}

/// Whether the Secret has keys of ours that an environment without any would take away.
fn holds_ours(observed: &Observed<'_>, key: &DigestKey) -> bool {
    match observed {
        Observed::Unchanged(before) => before.digest != key.digest([]),
        Observed::Read(contents, _) => !contents.owned.is_empty(),
    }
}

/// The keys that a Secret may have, and a word about those that it may not.
fn sort_out(upstream: &Snapshot) -> (BTreeMap<&str, &SecretValue>, Vec<Problem>) {
    let (valid, invalid): (Vec<_>, Vec<_>) = upstream.values.iter().partition(|(name, _)| is_valid_key(name));
    let mut problems = Vec::new();
    if !invalid.is_empty() {
        problems.push(Problem::InvalidKeys(invalid.into_iter().map(|(name, _)| name.clone()).collect()));
    }
    if !upstream.failed.is_empty() {
        problems.push(Problem::Undecryptable(upstream.failed.clone()));
    }
    (valid.into_iter().map(|(name, value)| (name.as_str(), value)).collect(), problems)
}

/// A key that cannot be decrypted keeps the value that the Secret has, if the operator wrote it.
fn carry_forward<'a>(desired: &mut BTreeMap<&'a str, &'a SecretValue>, contents: &'a Contents, upstream: &'a Snapshot) {
    for name in &upstream.failed {
        if contents.owned.contains(name)
            && let Some(value) = contents.data.get(name)
        {
            desired.insert(name, value);
        }
    }
}

impl Contents {
    /// Whether our keys hold what this process last saw in them, or none is there. Other content is from another writer, which may know
    /// a newer state of the environment.
    pub fn is_as_verified(&self, verified: Option<&Verified>, key: &DigestKey) -> bool {
        let ours = self.owned.iter().filter_map(|name| Some((name.as_str(), self.data.get(name)?.expose())));
        self.owned.is_empty() || verified.is_some_and(|verified| verified.digest == key.digest(ours))
    }

    /// Whether our keys are exactly these, and hold these values.
    fn hold_exactly(&self, desired: &BTreeMap<&str, &SecretValue>) -> bool {
        self.owned.iter().map(String::as_str).eq(desired.keys().copied())
            && desired.iter().all(|(name, value)| self.data.get(*name) == Some(*value))
    }
}

/// Whether Kubernetes allows the key in a Secret's data: `[-._a-zA-Z0-9]{1,253}`, not `.`, and not beginning with `..`.
pub fn is_valid_key(key: &str) -> bool {
    (1..=KEY_LENGTH_LIMIT).contains(&key.len())
        && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte))
        && key != "."
        && !key.starts_with("..")
}

#[cfg(test)]
mod tests;
