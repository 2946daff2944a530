//! The statements about an object, for its owner: the cause and the next step, never a value.

use jiff::Timestamp;
use konverge_apply::{Severity, Statement};
use konverge_core::{deletion_guard::Stopped, error::in_one_line, names::few};
use konverge_vault::{KvVersion, Mount, PathError, VaultError};

use crate::{
    annotations,
    content::{LARGEST, Lack},
    merge::Refusal,
    object::{Kind, ObjectRef},
    reasons,
    spec::{BinaryPolicy, ExistingPolicy, Invalid},
};

/// The longest text of problems in a record, in bytes, so that it fits beside the paths.
const LONGEST: usize = 1024;

/// The object is not as its spec requests. The text has the form of `format!`.
macro_rules! problem {
    ($reason:expr, $($text:tt)+) => {
        Statement::new(Severity::Problem, $reason, format!($($text)+))
    };
}

/// The object is in sync, and a person should look at it.
macro_rules! warning {
    ($reason:expr, $($text:tt)+) => {
        Statement::new(Severity::Warning, $reason, format!($($text)+))
    };
}

/// The object is in sync, and this is worth knowing.
macro_rules! notice {
    ($reason:expr, $($text:tt)+) => {
        Statement::new(Severity::Notice, $reason, format!($($text)+))
    };
}

/// All paths hold what they should.
pub fn synced(paths: &[String]) -> Statement {
    Statement::new(Severity::Good, reasons::SYNCED, format!("in sync: {}", few(paths)))
}

/// The annotations cannot be understood.
pub fn invalid(invalid: &Invalid) -> Statement {
    problem!(invalid.reason(), "{invalid}. Vault stays as it is")
}

/// The path is none.
pub fn invalid_path(error: &PathError) -> Statement {
    problem!(reasons::INVALID_PATH, "{error}. Vault stays as it is")
}

/// The rules do not allow it.
pub fn not_allowed(namespace: &str, location: &str) -> Statement {
    problem!(
        reasons::NOT_ALLOWED,
        "namespace {namespace} may not write {location}. Vault stays as it is; choose a path that the platform allows, or ask \
         its administrators for a rule, such as --allow-path '{namespace}={location}'"
    )
}

/// Another object of this cluster has the path.
pub fn claimed(location: &str, holder: &ObjectRef) -> Statement {
    problem!(
        reasons::OWNED_BY_ANOTHER,
        "{location} is kept for {holder}. It stays as that object requests; choose another path for one of the two"
    )
}

/// A path is left alone.
pub fn refused(kind: Kind, location: &str, refusal: &Refusal) -> Statement {
    match refusal {
        Refusal::Foreign(owner) => problem!(
            reasons::OWNED_BY_ANOTHER,
            "{location} is kept for {owner}, as its custom metadata say. It stays as it is; choose another path, or remove \
             the keys vault-sync.io/owner, /uid and /instance there if nobody keeps it any more"
        ),
        Refusal::Existing => problem!(
            reasons::EXISTS_ALREADY,
            "{location} was there before and has no owner. It stays as it is; to take it over, set {}: {}",
            kind.setting(annotations::EXISTING),
            kind.policy(ExistingPolicy::Adopt)
        ),
        Refusal::ForeignKey { key, owner } => claimed_key(location, key, owner),
        Refusal::ExistingKey(key) => problem!(
            reasons::EXISTS_ALREADY,
            "{location} has a key {key} that nobody has marked. All of it stays as it is; to take the key over, set {}: {}",
            kind.setting(annotations::EXISTING),
            kind.policy(ExistingPolicy::Adopt)
        ),
    }
}

/// Another owner has the key.
pub fn claimed_key(location: &str, key: &str, owner: &str) -> Statement {
    problem!(
        reasons::OWNED_BY_ANOTHER,
        "the key {key} of {location} is kept for {owner}. This object's key is not written there; rename the key, or \
         remove it from the other object"
    )
}

/// Merging is not possible there.
pub fn needs_version_two(location: &str) -> Statement {
    problem!(
        reasons::NEEDS_VERSION_TWO,
        "{location} is in an engine of version 1, which has no check-and-set, so keys of others could be lost. It stays as \
         it is; use an engine of version 2, or updatePolicy: Replace"
    )
}

/// The content stays, as the object requests.
pub fn left_alone(location: &str, is_ours: bool) -> Statement {
    let what = if is_ours { "holds what was written first" } else { "was there before" };
    notice!(reasons::LEFT_ALONE, "{location} {what} and stays as it is: updatePolicy is IfNotExists")
}

/// A path cannot be made.
pub fn lacking(kind: Kind, location: &str, lack: &Lack) -> Statement {
    match lack {
        Lack::Secret { name, optional: true } => notice!(
            reasons::SECRET_NOT_FOUND,
            "secret {name:?} does not exist, and is optional for the pods; {location} stays as it is until it exists"
        ),
        Lack::Secret { name, optional: false } => problem!(
            reasons::SECRET_NOT_FOUND,
            "secret {name:?} not found; {location} stays as it is. Create it; if a generator such as kustomize or a Helm \
             chart makes it, that must have run before, and the name must be the generated one"
        ),
        Lack::Key { secret, key, available } => problem!(
            reasons::KEY_NOT_FOUND,
            "key {key} not found in secret {secret}, which has {}; {location} stays as it is. Add the key, or correct {}",
            few(available),
            kind.setting(annotations::SECRETS)
        ),
        Lack::Empty => problem!(
            reasons::SOURCE_EMPTY,
            "there is no value to write; {location} stays as it is. Give the secret data, or {} to have it cleared",
            if kind == Kind::VaultPush { "delete the VaultPush" } else { "remove vault-sync.io/path" }
        ),
        Lack::Binary { key } => problem!(
            reasons::BINARY_VALUE,
            "the value of {key:?} is not valid UTF-8, and Vault keeps text only; {location} stays as it is. Set {}: {} to \
              store it in base64",
            kind.setting(annotations::BINARY),
            kind.policy(BinaryPolicy::Base64)
        ),
        Lack::Large { size } => problem!(
            reasons::CONTENT_TOO_LARGE,
            "{location} would hold {size} bytes or more, and {LARGEST} can be written to one path; it stays as it is. Choose \
             fewer keys, or have each Secret written to a path of its own"
        ),
        Lack::LargeSecrets { size, limit } => problem!(
            reasons::CONTENT_TOO_LARGE,
            "the Secrets that {location} is made of hold {size} bytes or more, and {limit} can be read for one path; it stays as \
             it is. Take its keys of fewer or smaller Secrets"
        ),
    }
}

/// Values were encoded.
pub fn encoded(location: &str, keys: &[String]) -> Statement {
    notice!(reasons::ENCODED, "not valid UTF-8, so stored in base64 at {location}: {}", few(keys))
}

/// The path has new content without a mark, which its writer may be about to mark.
pub fn awaited(location: &str) -> Statement {
    problem!(
        reasons::JUST_WRITTEN,
        "{location} was written moments ago by a client that has not marked it yet. The operator looks again in a few \
         seconds"
    )
}

/// Content without an owner was adopted, in an engine of this version.
pub fn adopted(location: &str, version: KvVersion) -> Statement {
    let before = match version {
        KvVersion::One => "what it held is gone, because KV version 1 keeps no earlier version",
        KvVersion::Two => "what it held is kept by KV version 2 as its earlier version",
    };
    warning!(reasons::ADOPTED, "{location} held something without an owner; it was replaced, and {before}")
}

/// Keys without an owner were adopted.
pub fn adopted_keys(location: &str, keys: &[String]) -> Statement {
    warning!(
        reasons::ADOPTED,
        "{location} had keys without an owner that were replaced: {}; its earlier version has them",
        few(keys)
    )
}

/// Another actor changed written content, and the operator restored it.
pub fn drifted(location: &str) -> Statement {
    notice!(
        reasons::DRIFT_CORRECTED,
        "{location} was changed or deleted by another client; the operator has restored it"
    )
}

/// The mark could not be set.
pub fn unmarked(location: &str, error: &VaultError) -> Statement {
    notice!(
        reasons::UNMARKED,
        "{location} is written without a mark of its owner: {error}. Other operators cannot tell whose it \
         is; allow patch, or read and update, on the metadata path"
    )
}

/// Another actor keeps removing the record.
pub fn record_taken(kind: Kind) -> Statement {
    let what = if kind == Kind::VaultPush { "the status" } else { annotations::STATUS };
    warning!(
        reasons::RECORD_TAKEN,
        "another client keeps removing {what} or setting it back, so the operator restores it with growing pauses. Changes still reach \
         Vault, but content may stay there if the operator is stopped or the object deleted meanwhile; find the client: \
         metadata.managedFields names it"
    )
}

/// Something about the annotations was put right.
pub fn adjusted(note: &str) -> Statement {
    notice!(reasons::ADJUSTED, "{note}")
}

/// The engine is not the one that the object names.
pub fn other_engine(kind: Kind, mount: &Mount) -> Statement {
    let setting = kind.setting(annotations::KV);
    let version = if mount.version() == KvVersion::One { 1 } else { 2 };
    let path = mount.path();
    adjusted(&format!("{setting} has no effect: Vault says that the engine is {path}, of version {version}"))
}

/// It is paused.
pub fn paused(kind: Kind) -> Statement {
    let setting = kind.setting(annotations::PAUSE);
    notice!(reasons::PAUSED, "paused by {setting}; Vault stays as it is. Remove that to go on")
}

/// Paths that the object no longer requests were cleared.
pub fn dropped(locations: &[String]) -> Statement {
    notice!(reasons::CLEARED, "no longer requested, and deleted in Vault: {}", few(locations))
}

/// The object no longer requests anything. Its content stays for the grace period.
pub fn deletion_pending(locations: &[String], due: Timestamp) -> Statement {
    problem!(
        reasons::DELETION_PENDING,
        "the object no longer requests a push, and the operator deletes its content in Vault at {due}: {}. If the request returns before, the \
         content stays; to have it deleted now, set {}: 0s",
        few(locations),
        annotations::DELETION_GRACE
    )
}

/// The object no longer requests these paths. They stay for the grace period.
pub fn drop_pending(locations: &[String], due: Timestamp) -> Statement {
    warning!(
        reasons::DELETION_PENDING,
        "no longer requested, and deleted in Vault from {due} on unless the request returns: {}. To delete it now, set {}: 0s",
        few(locations),
        annotations::DELETION_GRACE
    )
}

/// The object is deleted. Its content stays for a short grace period.
pub fn deletion_awaits_heir(locations: &[String], due: Timestamp) -> Statement {
    notice!(
        reasons::DELETION_PENDING,
        "the object is deleted, and the operator deletes its content in Vault at {due} unless another object requests it: {}",
        few(locations)
    )
}

/// More deletions are requested than are allowed without approval.
pub fn stopped(stopped: &Stopped) -> String {
    format!(
        "{stopped}, so they wait for an approval. If they are meant, run kubectl konverge approve, or start the operator with --allow-deletes; if \
         not, restore the requests"
    )
}

/// Paths that the object no longer requests wait for an approval.
pub fn drop_stopped(stopped: &Stopped) -> Statement {
    warning!(reasons::DELETIONS_STOPPED, "{}", self::stopped(stopped))
}

/// Content at a dropped path may be ours and is not known to be.
pub fn unknown(locations: &[String]) -> Statement {
    notice!(
        reasons::NOT_CLEARED,
        "no longer requested, and still in Vault: {}. It carries no mark and is not what is recorded, so somebody else may have \
         written it; delete it there if nobody needs it",
        few(locations)
    )
}

/// The written content was deleted.
pub fn cleared(locations: &[String]) -> Statement {
    Statement::new(Severity::Good, reasons::CLEARED, format!("deleted in Vault: {}", few(locations)))
}

/// The search found content whose object is deleted or requests nothing.
pub(crate) const FOUND: &str = "found in Vault, written for an object that no longer requests it; it is cleared after the grace period unless an object \
     requests it again";

/// Returns the warning that Vault or the API server refuses a part of the search.
pub(crate) fn cannot_search(refused: &str) -> String {
    format!(
        "content in Vault that no object requests stays unnoticed: {refused}. The operator needs read and list on the metadata, and its ConfigMap of \
         orphans; docs/reference/vault-policies.md has the policy"
    )
}

/// The object is gone and its content is still in Vault. `how` says how it went; `orphans` names the `ConfigMap` that lists the paths, if it could be written.
pub fn released(how: &str, locations: &[String], error: &dyn std::error::Error, orphans: Option<&str>) -> Statement {
    let then = match orphans {
        Some(orphans) => format!(
            "The operator clears them as soon as it can; until then the ConfigMap {orphans} lists them. The last error: {}",
            in_one_line(error)
        ),
        None => {
            format!("That could not be recorded, so only you can clear them. The last error: {}", in_one_line(error))
        }
    };
    let left = few(locations);
    problem!(reasons::RELEASED, "{how}; still in Vault: {left}. {then}")
}

/// Returns the state of the object as a reason, and the text of all problems.
pub(crate) fn summary(statements: &[Statement]) -> (&'static str, Option<String>) {
    let problems: Vec<&Statement> = statements.iter().filter(|statement| statement.is_problem()).collect();
    let Some(first) = problems.first() else {
        let paused = statements.iter().find(|statement| statement.reason == reasons::PAUSED);
        return paused.map_or((reasons::SYNCED, None), |statement| (statement.reason, Some(statement.text.clone())));
    };
    let texts: Vec<&str> = problems.iter().map(|statement| &*statement.text).collect();
    let mut text = texts.join("; ");
    if text.len() > LONGEST {
        text.truncate(text.floor_char_boundary(LONGEST));
        text.push('…');
    }
    (first.reason, Some(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adopting_is_loud_and_promises_an_earlier_version_only_where_there_is_one() {
        for (version, said) in [(KvVersion::One, "is gone"), (KvVersion::Two, "is kept")] {
            let statement = adopted("old/db", version);
            assert!(
                statement.is_warning() && !statement.is_problem() && statement.text.contains(said),
                "{statement:?}"
            );
        }
        assert!(adopted_keys("secret/data/db", &["k".to_owned()]).is_warning());
    }
}
