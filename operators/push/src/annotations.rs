//! Parsing the annotations of an object into its spec. Pure.
//!
//! The annotations of the original keep their meaning. Ours add settings that the original does not have. An unknown value never does harm: in a
//! policy for data it is an error, elsewhere it is ignored with a note.

mod choices;
pub mod duration;

use std::{collections::BTreeMap, time::Duration};

use clap::ValueEnum;
use konverge_vault::{KvVersion, Mount, SecretPath};

use crate::spec::{DeletionPolicy, Engine, Invalid, PushSpec, Selection, UpdatePolicy};

/// The path in Vault. An object with a non-empty path has opted in.
pub const PATH: &str = "vault-sync.io/path";
/// Which keys of which Secrets, in JSON; without it all that the object uses or holds.
pub const SECRETS: &str = "vault-sync.io/secrets";
/// `true` leaves in Vault what is there when the object goes.
pub const PRESERVE: &str = "vault-sync.io/preserve-on-delete";
/// How often Vault is compared although nothing changed.
pub const RECONCILE: &str = "vault-sync.io/reconcile";
/// `disabled` compares with Vault each time.
pub const ROTATION_CHECK: &str = "vault-sync.io/rotation-check";
/// Written by the original: which versions of Secrets it has seen. Never written by us.
pub const SECRET_VERSIONS: &str = "vault-sync.io/secret-versions";
/// The original's finalizer, and ours.
pub const FINALIZER: &str = "vault-sync.io/finalizer";
/// How the operator deletes content in Vault that the object no longer requests: `soft`, `destroy`, `metadata` or `keep`.
pub const DELETION_POLICY: &str = "vault-sync.io/deletion-policy";
/// How the operator treats existing content without an owner: `adopt` or `refuse`.
pub const EXISTING: &str = "vault-sync.io/existing";
/// How a value that is no text reaches Vault: `base64` or `refuse`.
pub const BINARY: &str = "vault-sync.io/binary";
/// The engine, if it is not to be asked of Vault: `<mount>:1` or `<mount>:2`.
pub const KV: &str = "vault-sync.io/kv";
/// `true` leaves everything as it is for the time being.
pub const PAUSE: &str = "vault-sync.io/pause";
/// Any text that was not there before has the object worked on now.
pub const SYNC_NOW: &str = "vault-sync.io/sync-now";
/// `true` counts the Secrets for pulling images among those that a workload uses.
pub const IMAGE_PULL_SECRETS: &str = "vault-sync.io/image-pull-secrets";
/// Written by us: how it stands.
pub const STATUS: &str = "vault-sync.io/status";

/// The shortest interval: that of the original.
pub(crate) const SHORTEST_INTERVAL: Duration = Duration::from_secs(30);

/// The characters of an invalid value that messages show.
const SHOWN: usize = 64;

/// Parses the annotations. `None` if they name no path.
pub fn parse_spec(annotations: &BTreeMap<String, String>) -> Option<Result<PushSpec, Invalid>> {
    let value = |key: &str| annotations.get(key).map(String::as_str).filter(|value| !value.is_empty());
    value(PATH).map(|path| read(path, value))
}

/// Returns the deletion policy of an object, if it names one. It needs neither a path nor any other valid annotation, so an update may add
/// `preserve-on-delete` and remove the path at once.
pub(crate) fn deletion_policy(annotations: &BTreeMap<String, String>) -> Option<DeletionPolicy> {
    let value = |key: &str| annotations.get(key).map(String::as_str).filter(|value| !value.is_empty());
    match value(PRESERVE) {
        Some("true") => Some(DeletionPolicy::Keep),
        _ => word(DELETION_POLICY, value(DELETION_POLICY)).ok().flatten(),
    }
}

fn read<'a>(path: &str, value: impl Fn(&str) -> Option<&'a str>) -> Result<PushSpec, Invalid> {
    let mut notes = Vec::new();
    let chosen = value(SECRETS).map(choices::parse).transpose();
    let chosen = chosen.map_err(|cause| Invalid::Secrets { annotation: SECRETS, cause })?.map(|(choices, doubts)| {
        notes.extend(doubts.into_iter().map(|doubt| format!("{SECRETS}: {doubt}")));
        choices
    });
    let always = value(ROTATION_CHECK);
    if let Some(word) = always.filter(|word| !matches!(*word, "disabled" | "enabled")) {
        notes.push(format!("{ROTATION_CHECK} is {:?} and has no effect; only \"disabled\" has one", shown(word)));
    }
    Ok(PushSpec {
        path: path.to_owned(),
        every: value(RECONCILE).and_then(|text| interval(text, &mut notes)),
        always: always == Some("disabled"),
        deletion: deletion(value(DELETION_POLICY), value(PRESERVE), &mut notes)?,
        existing: word(EXISTING, value(EXISTING))?,
        binary: word(BINARY, value(BINARY))?,
        engine: value(KV).map(mount).transpose()?.map_or(Engine::Unstated, Engine::Complete),
        paused: is_true(PAUSE, value(PAUSE), &mut notes),
        sync_now: value(SYNC_NOW).map(str::to_owned),
        update: UpdatePolicy::Replace,
        selection: {
            let image_pull_secrets = is_true(IMAGE_PULL_SECRETS, value(IMAGE_PULL_SECRETS), &mut notes);
            chosen.map_or(Selection::All { image_pull_secrets }, Selection::Chosen)
        },
        notes,
    })
}

fn interval(text: &str, notes: &mut Vec<String>) -> Option<Duration> {
    if text == "off" {
        return None;
    }
    match duration::parse(text) {
        Ok(span) => {
            let spec = span.duration().unwrap_or_default();
            if spec < SHORTEST_INTERVAL {
                let shortest = SHORTEST_INTERVAL.as_secs();
                notes
                    .push(format!("{RECONCILE} is {:?} and counts as {shortest}s, the shortest interval", shown(text)));
            }
            Some(spec.max(SHORTEST_INTERVAL))
        }
        Err(error) => {
            notes.push(format!("{RECONCILE} is {:?} and counts as off: {error}", shown(text)));
            None
        }
    }
}

fn deletion(
    policy: Option<&str>,
    preserve: Option<&str>,
    notes: &mut Vec<String>,
) -> Result<Option<DeletionPolicy>, Invalid> {
    let policy = word(DELETION_POLICY, policy)?;
    match preserve {
        Some("true") => {
            if policy.is_some_and(|policy| policy != DeletionPolicy::Keep) {
                notes.push(format!("{DELETION_POLICY} has no effect while {PRESERVE} is \"true\""));
            }
            Ok(Some(DeletionPolicy::Keep))
        }
        Some(other) if other != "false" => {
            notes.push(format!("{PRESERVE} is {:?} and preserves nothing; only \"true\" does", shown(other)));
            Ok(policy)
        }
        _ => Ok(policy),
    }
}

/// One of the words of a policy.
fn word<T: ValueEnum>(annotation: &'static str, value: Option<&str>) -> Result<Option<T>, Invalid> {
    let Some(value) = value else { return Ok(None) };
    T::from_str(value, false).map(Some).map_err(|_| {
        let words = T::value_variants().iter().filter_map(ValueEnum::to_possible_value);
        let words: Vec<_> = words.map(|word| word.get_name().to_owned()).collect();
        Invalid::Word { annotation, value: shown(value), expected: format!("one of {}", words.join(", ")) }
    })
}

fn mount(value: &str) -> Result<Mount, Invalid> {
    let parsed = value.rsplit_once(':').and_then(|(mount, version)| {
        let version = match version {
            "1" => KvVersion::One,
            "2" => KvVersion::Two,
            _ => return None,
        };
        // A mount is what something can be beneath.
        SecretPath::parse(&format!("{mount}/x")).ok().map(|_| Mount::new(mount, version))
    });
    parsed.ok_or_else(|| Invalid::Word {
        annotation: KV,
        value: shown(value),
        expected: "the mount without slashes around and the version of KV, such as secret:2".to_owned(),
    })
}

fn is_true(annotation: &str, value: Option<&str>, notes: &mut Vec<String>) -> bool {
    if let Some(other) = value.filter(|value| !matches!(*value, "true" | "false")) {
        notes.push(format!("{annotation} is {:?} and has no effect; only \"true\" has one", shown(other)));
    }
    value == Some("true")
}

fn shown(value: &str) -> String {
    value.chars().take(SHOWN).collect()
}

#[cfg(test)]
mod tests;
