//! What the annotations of an object ask for. Pure.
//!
//! The original's annotations mean what they mean there. Ours, beside them, add what it has no word for. A word that is not
//! understood never does harm: where it says what becomes of data it is an error, elsewhere it is as if it were not there, with a note.

mod choices;
pub mod duration;

use std::{collections::BTreeMap, fmt, time::Duration};

use clap::ValueEnum;
use konverge_vault::{KvVersion, Mount, SecretPath};
use serde::{Deserialize, Serialize};

pub use self::choices::Choice;

/// Where in Vault. Whatever is not empty makes an object ours.
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
/// What becomes of what is in Vault when it is no longer asked for: `soft`, `destroy`, `metadata` or `keep`.
pub const DELETION_POLICY: &str = "vault-sync.io/deletion-policy";
/// What becomes of a path that holds something and is nobody's: `adopt` or `refuse`.
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
const SHORTEST_INTERVAL: Duration = Duration::from_secs(30);

/// What is shown of a value that is not understood.
const SHOWN: usize = 64;

/// What an object asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    /// The path as it is written, neither checked nor prefixed.
    pub path: String,
    /// Which Secrets, which keys.
    pub selection: Selection,
    /// How often to compare with Vault although nothing changed; not at all if there is none.
    pub every: Option<Duration>,
    /// Whether every run compares with Vault.
    pub always: bool,
    /// What becomes of data that is no longer asked for; the operator's default if there is none.
    pub deletion: Option<DeletionPolicy>,
    /// What becomes of a path that holds something and is nobody's; the operator's default if there is none.
    pub existing: Option<ExistingPolicy>,
    /// How a value that is no text is written; the operator's default if there is none.
    pub binary: Option<BinaryPolicy>,
    /// The engine, if Vault is not to be asked for it. That the path is beneath it is not checked.
    pub mount: Option<Mount>,
    /// Whether nothing is to be done.
    pub paused: bool,
    /// A text that stands for one wish to be worked on now.
    pub sync_now: Option<String>,
    /// Whether Secrets for pulling images count as used.
    pub image_pull_secrets: bool,
    /// What was put right and is worth telling.
    pub notes: Vec<String>,
}

/// Which Secrets and keys an object asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Selection {
    /// All that it uses, or holds if it is a Secret.
    All,
    /// These, of the same namespace, together in one place.
    Chosen(Vec<Choice>),
}

/// What becomes of data in Vault that is no longer asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DeletionPolicy {
    /// The newest version is deleted and can be undeleted; older ones stay readable. What the original does.
    Soft,
    /// The data of all versions is destroyed; that there was something stays to be seen.
    Destroy,
    /// Nothing is left.
    Metadata,
    /// It stays as it is.
    Keep,
}

/// What becomes of a path that holds something and carries nobody's mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ExistingPolicy {
    /// It is overwritten and ours from then on. What the original does.
    Adopt,
    /// It is left alone.
    Refuse,
}

/// How a value that is no text reaches Vault, which keeps only text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BinaryPolicy {
    /// Encoded in base64.
    Base64,
    /// Not at all, and neither does what comes with it.
    Refuse,
}

/// Annotations that cannot be followed. The text names the annotation, the cause and the next step.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Invalid {
    /// The JSON is none, or not of the form.
    #[error(
        "failed to parse secrets annotation {SECRETS}: {cause}; it is a list such as [{{\"name\":\"db\",\"keys\":[\"password\"],\"prefix\":\"db_\"}}]"
    )]
    Secrets {
        /// What is wrong with it.
        cause: String,
    },
    /// A word that says what becomes of data is not among those that there are.
    #[error("the annotation {annotation} is {value:?}; write {expected}, or leave it out")]
    Word {
        /// Which annotation.
        annotation: &'static str,
        /// The beginning of what it holds.
        value: String,
        /// What it may hold.
        expected: String,
    },
}

impl Invalid {
    /// The reason in events, metrics and the status.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Secrets { .. } => "InvalidSecretsAnnotation",
            Self::Word { .. } => "InvalidAnnotation",
        }
    }
}

/// Reads the annotations; nothing if they do not ask for a path.
pub fn asked(annotations: &BTreeMap<String, String>) -> Option<Result<Asked, Invalid>> {
    let value = |key: &str| annotations.get(key).map(String::as_str).filter(|value| !value.is_empty());
    value(PATH).map(|path| read(path, value))
}

fn read<'a>(path: &str, value: impl Fn(&str) -> Option<&'a str>) -> Result<Asked, Invalid> {
    let mut notes = Vec::new();
    let selection = match value(SECRETS) {
        None => Selection::All,
        Some(text) => {
            let (choices, doubts) = choices::parse(text).map_err(|cause| Invalid::Secrets { cause })?;
            notes.extend(doubts.into_iter().map(|doubt| format!("{SECRETS}: {doubt}")));
            Selection::Chosen(choices)
        }
    };
    let always = value(ROTATION_CHECK);
    if let Some(word) = always.filter(|word| !matches!(*word, "disabled" | "enabled")) {
        notes.push(format!("{ROTATION_CHECK} is {:?} and has no effect; only \"disabled\" has one", shown(word)));
    }
    Ok(Asked {
        path: path.to_owned(),
        selection,
        every: value(RECONCILE).and_then(|text| interval(text, &mut notes)),
        always: always == Some("disabled"),
        deletion: deletion(value(DELETION_POLICY), value(PRESERVE), &mut notes)?,
        existing: word(EXISTING, value(EXISTING))?,
        binary: word(BINARY, value(BINARY))?,
        mount: value(KV).map(mount).transpose()?,
        paused: is_true(PAUSE, value(PAUSE), &mut notes),
        sync_now: value(SYNC_NOW).map(str::to_owned),
        image_pull_secrets: is_true(IMAGE_PULL_SECRETS, value(IMAGE_PULL_SECRETS), &mut notes),
        notes,
    })
}

fn interval(text: &str, notes: &mut Vec<String>) -> Option<Duration> {
    if text == "off" {
        return None;
    }
    match duration::parse(text) {
        Ok(span) => {
            let asked = span.duration().unwrap_or_default();
            if asked < SHORTEST_INTERVAL {
                let shortest = SHORTEST_INTERVAL.as_secs();
                notes
                    .push(format!("{RECONCILE} is {:?} and counts as {shortest}s, the shortest interval", shown(text)));
            }
            Some(asked.max(SHORTEST_INTERVAL))
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

/// As it is written in annotations and flags.
macro_rules! as_written {
    ($($policy:ty),*) => {$(
        impl fmt::Display for $policy {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                let word = self.to_possible_value();
                formatter.write_str(word.as_ref().map_or_else(Default::default, |word| word.get_name()))
            }
        }
    )*};
}

as_written!(DeletionPolicy, ExistingPolicy, BinaryPolicy);

#[cfg(test)]
mod tests;
