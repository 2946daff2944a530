//! The annotations, each with its text for the reference page, and their way into the spec of an object. Pure.
//!
//! The annotations of the original keep their meaning. Ours add settings that the original does not have. An unknown value never does harm: in a
//! policy for data it is an error, elsewhere it is ignored with a note.

mod choices;
pub mod duration;

use std::{collections::BTreeMap, time::Duration};

use clap::ValueEnum;
use konverge_vault::{KvVersion, Mount, SecretPath};

use crate::spec::{DeletionPolicy, Engine, Invalid, PushSpec, Selection, UpdatePolicy};

const OBJECT: &str = "workload, Secret";

const STOPS: &str = "`InvalidAnnotation`; Vault stays as it is";
const NO_EFFECT: &str = "no effect; `AnnotationAdjusted`";

konverge_jobs::annotations! {
    /// The path in Vault's API, such as `secret/data/my-app`. Without it the object has not opted in.
    PATH = "vault-sync.io/path" on OBJECT, otherwise: "`InvalidPath`, `PathNotAllowed`; Vault stays as it is";
    /// The chosen keys, such as `[{"name":"db","keys":["password"],"prefix":"db_"}]`, parsed as Go parses it. Default: all.
    SECRETS = "vault-sync.io/secrets" on OBJECT, otherwise: "`InvalidSecretsAnnotation`; Vault stays as it is";
    /// Of the original: exactly `true` is the same as `deletion-policy: keep`.
    PRESERVE = "vault-sync.io/preserve-on-delete" on OBJECT, otherwise: NO_EFFECT;
    /// The interval of drift checks as Go writes it, such as `5m` or `1h30m`, or `off`. Default: `off`. At least `30s`.
    RECONCILE = "vault-sync.io/reconcile" on OBJECT,
        otherwise: "counts as `off`, and below `30s` as `30s`; `AnnotationAdjusted`";
    /// `disabled`: each run compares with Vault. Default: `enabled`.
    ROTATION_CHECK = "vault-sync.io/rotation-check" on OBJECT, otherwise: NO_EFFECT;
    /// Of the original. This operator neither reads nor writes it.
    SECRET_VERSIONS = "vault-sync.io/secret-versions" on OBJECT;
    /// The finalizer. The operator sets it before the first write to Vault, and only on objects that it writes for.
    FINALIZER = "vault-sync.io/finalizer" on "workload, Secret, `VaultPush`";
    /// The treatment of content that the object no longer requests: `soft`, `destroy`, `metadata` or `keep`. Default: `--default-deletion-policy`.
    DELETION_POLICY = "vault-sync.io/deletion-policy" on OBJECT, otherwise: STOPS;
    /// The grace period for content in Vault that the object no longer requests, such as `1h`; `0s` deletes it now. Default: `--deletion-grace`.
    DELETION_GRACE = "vault-sync.io/deletion-grace" on "workload, Secret, `VaultPush`", otherwise: NO_EFFECT;
    /// The treatment of content without an owner: `adopt` or `refuse`. Default: `--existing`.
    EXISTING = "vault-sync.io/existing" on OBJECT, otherwise: STOPS;
    /// How values that are not valid UTF-8 are written: `base64` or `refuse`. Default: `--binary`.
    BINARY = "vault-sync.io/binary" on OBJECT, otherwise: STOPS;
    /// The engine as `MOUNT:1` or `MOUNT:2`, such as `secret:2`, for a token that may not ask Vault.
    KV = "vault-sync.io/kv" on OBJECT,
        otherwise: "`InvalidAnnotation`; Vault stays as it is. A value that contradicts Vault has no effect";
    /// `true`: Vault stays as it is. The content of a deleted object is cleared all the same.
    PAUSE = "vault-sync.io/pause" on OBJECT, otherwise: NO_EFFECT;
    /// Each new value starts a comparison with Vault.
    SYNC_NOW = "vault-sync.io/sync-now" on OBJECT;
    /// `true`: Secrets for pulling images count among those that the pods use. Default: `false`.
    IMAGE_PULL_SECRETS = "vault-sync.io/image-pull-secrets" on OBJECT, otherwise: NO_EFFECT;
    /// Written by the operator: the reason why it has stopped deletions.
    DELETIONS_STOPPED = "vault-sync.io/deletions-stopped" on "the ConfigMap of orphans";
    /// Any value approves the waiting deletions. `kubectl konverge approve` sets it, and the operator removes it.
    APPROVE_DELETIONS = "vault-sync.io/approve-deletions" on "the ConfigMap of orphans";
    /// Written by the operator: why it cannot search all of Vault for content that no object requests.
    SEARCH_REFUSED = "vault-sync.io/search-refused" on "the ConfigMap of orphans";
    /// Written by the operator: the state, and each path with its version.
    STATUS = "vault-sync.io/status" on OBJECT, otherwise: "is replaced";
}

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

/// Returns the object's own grace period for content that it no longer requests. It needs no path, so that one update can remove the path and
/// delete the content at once.
pub(crate) fn deletion_grace(annotations: &BTreeMap<String, String>) -> Option<Duration> {
    grace(annotations.get(DELETION_GRACE).map(String::as_str).filter(|value| !value.is_empty()), &mut Vec::new())
}

fn grace(value: Option<&str>, notes: &mut Vec<String>) -> Option<Duration> {
    let text = value?;
    let grace = duration::parse(text).ok().and_then(|span| Duration::try_from(span).ok());
    if grace.is_none() {
        notes.push(format!("{DELETION_GRACE} is {:?} and has no effect; write a time such as 10m, or 0s", shown(text)));
    }
    grace
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
        grace: grace(value(DELETION_GRACE), &mut notes),
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
            let spec = Duration::try_from(span).unwrap_or_default();
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
