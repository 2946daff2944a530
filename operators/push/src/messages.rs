//! What the owner of an object is told: the cause and the next step; never a value.

use konverge_core::error::{Classify, in_one_line};
use konverge_vault::{PathError, VaultError};

use crate::{annotations::Invalid, desired::Lack, object::ObjectRef, plan::Refusal, reasons};

/// Names beyond this many are counted, so that an event stays readable.
const NAMES_AT_MOST: usize = 5;

/// A message about an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// One of [`reasons`], or an error's.
    pub reason: &'static str,
    /// The sentence.
    pub text: String,
    /// How bad it is.
    pub weight: Weight,
}

/// How bad something is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Weight {
    /// As it should be.
    Good,
    /// Worth knowing; it keeps nothing from being in step.
    Notice,
    /// Something is not as it was asked for.
    Problem,
}

impl Message {
    fn new(weight: Weight, reason: &'static str, text: String) -> Self {
        Self { reason, text, weight }
    }

    fn problem(reason: &'static str, text: String) -> Self {
        Self::new(Weight::Problem, reason, text)
    }

    fn notice(reason: &'static str, text: String) -> Self {
        Self::new(Weight::Notice, reason, text)
    }

    /// All paths hold what they should.
    pub fn synced(paths: &[String]) -> Self {
        Self::new(Weight::Good, reasons::SYNCED, format!("in step: {}", names(paths)))
    }

    /// The annotations cannot be understood.
    pub fn invalid(invalid: &Invalid) -> Self {
        Self::problem(invalid.reason(), format!("{invalid}. Vault stays as it is"))
    }

    /// The path is none.
    pub fn invalid_path(error: &PathError) -> Self {
        Self::problem(reasons::INVALID_PATH, format!("{error}. Vault stays as it is"))
    }

    /// The rules do not allow it.
    pub fn not_allowed(namespace: &str, location: &str) -> Self {
        Self::problem(
            reasons::NOT_ALLOWED,
            format!(
                "namespace {namespace} may not write {location}. Vault stays as it is; choose a path that the platform allows, or ask \
                 its administrators for a rule, such as --allow-path '{namespace}={location}'"
            ),
        )
    }

    /// Another object of this cluster has the path.
    pub fn claimed(location: &str, holder: &ObjectRef) -> Self {
        Self::problem(
            reasons::OWNED_BY_ANOTHER,
            format!(
                "{location} is kept for {holder}. It stays as that wants it; choose another path for one of the two"
            ),
        )
    }

    /// A path is left alone.
    pub fn refused(location: &str, refusal: &Refusal) -> Self {
        match refusal {
            Refusal::Foreign(owner) => Self::problem(
                reasons::OWNED_BY_ANOTHER,
                format!(
                    "{location} is kept for {owner}, as its custom metadata say. It stays as it is; choose another path, or remove \
                     the keys vault-sync.io/owner, /uid and /instance there if nobody keeps it any more"
                ),
            ),
            Refusal::Existing => Self::problem(
                reasons::EXISTS_ALREADY,
                format!(
                    "{location} was there before and has no owner. It stays as it is; to take it over, set \
                     vault-sync.io/existing: adopt"
                ),
            ),
        }
    }

    /// A path cannot be made.
    pub fn lacking(location: &str, lack: &Lack) -> Self {
        match lack {
            Lack::Secret { name, optional: true } => Self::notice(
                reasons::SECRET_NOT_FOUND,
                format!(
                    "secret {name:?} is not there, which the pods can do without; {location} stays as it is until it comes"
                ),
            ),
            Lack::Secret { name, optional: false } => Self::problem(
                reasons::SECRET_NOT_FOUND,
                format!(
                    "secret {name:?} not found; {location} stays as it is. Create it; if a generator such as kustomize or a Helm \
                     chart makes it, that must have run before, and the name must be the generated one"
                ),
            ),
            Lack::Key { secret, key, available } => Self::problem(
                reasons::KEY_NOT_FOUND,
                format!(
                    "key {key} not found in secret {secret}, which has {}; {location} stays as it is. Add the key, or mend \
                     vault-sync.io/secrets",
                    names(available)
                ),
            ),
            Lack::Empty => Self::problem(
                reasons::SOURCE_EMPTY,
                format!(
                    "there is no value to write; {location} stays as it is. Give the secret data, or remove vault-sync.io/path to \
                     have it cleared"
                ),
            ),
            Lack::Binary { key } => Self::problem(
                reasons::BINARY_VALUE,
                format!(
                    "the value of {key:?} is no text, which is all that Vault keeps; {location} stays as it is. Set \
                     vault-sync.io/binary: base64 to have it encoded"
                ),
            ),
        }
    }

    /// Values were encoded.
    pub fn encoded(location: &str, keys: &[String]) -> Self {
        Self::notice(reasons::ENCODED, format!("no text, and therefore in base64 at {location}: {}", names(keys)))
    }

    /// Somebody's content was taken over.
    pub fn adopted(location: &str) -> Self {
        Self::notice(
            reasons::ADOPTED,
            format!(
                "{location} held something without an owner; it was replaced, and its earlier version is kept by KV version 2"
            ),
        )
    }

    /// Somebody changed what we wrote.
    pub fn drifted(location: &str) -> Self {
        Self::notice(
            reasons::DRIFT_CORRECTED,
            format!("{location} was changed or deleted by somebody else; it holds what the cluster says again"),
        )
    }

    /// The mark could not be set.
    pub fn unmarked(location: &str, error: &VaultError) -> Self {
        Self::notice(
            reasons::UNMARKED,
            format!(
                "{location} is written, and its owner could not be noted there: {error}. Without that nobody else can tell whose it \
                 is; allow patch, or read and update, on the metadata path"
            ),
        )
    }

    /// Something about the annotations was put right.
    pub fn adjusted(note: &str) -> Self {
        Self::notice(reasons::ADJUSTED, note.to_owned())
    }

    /// It is paused.
    pub fn paused() -> Self {
        Self::notice(
            reasons::PAUSED,
            "paused by vault-sync.io/pause; Vault stays as it is. Remove the annotation to go on".to_owned(),
        )
    }

    /// Vault or the API server did not do their part.
    pub fn failed(error: &(impl Classify + std::error::Error + 'static)) -> Self {
        Self::problem(error.reason(), format!("failed to write secret to vault: {}", in_one_line(error)))
    }

    /// Some paths are not asked for any more.
    pub fn dropped(locations: &[String]) -> Self {
        Self::notice(reasons::CLEARED, format!("not asked for any more and deleted in Vault: {}", names(locations)))
    }

    /// What was written is gone.
    pub fn cleared(locations: &[String]) -> Self {
        Self::new(Weight::Good, reasons::CLEARED, format!("deleted in Vault: {}", names(locations)))
    }

    /// The object goes and leaves something behind.
    pub fn released(locations: &[String], error: &dyn std::error::Error, orphans: &str) -> Self {
        Self::problem(
            reasons::RELEASED,
            format!(
                "let go after its deadline; still in Vault: {}. They are deleted when Vault serves again; until then they are in the \
                 ConfigMap {orphans}. The last error: {}",
                names(locations),
                in_one_line(error)
            ),
        )
    }

    /// Whether it says all is well.
    pub fn is_good(&self) -> bool {
        self.weight == Weight::Good
    }

    /// Whether something is not as it was asked for.
    pub fn is_problem(&self) -> bool {
        self.weight == Weight::Problem
    }
}

/// Names as a list that stays short.
pub(crate) fn names(names: &[String]) -> String {
    let shown: Vec<&str> = names.iter().take(NAMES_AT_MOST).map(String::as_str).collect();
    match names.len().saturating_sub(NAMES_AT_MOST) {
        0 if shown.is_empty() => "nothing".to_owned(),
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}
