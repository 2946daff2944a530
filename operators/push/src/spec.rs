//! The spec of an object, from annotations or from a `VaultPush`. Pure.

use std::{fmt, time::Duration};

use clap::ValueEnum;
use konverge_vault::{Deletion, KvVersion, Mount, PathError, SecretPath};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::reasons;

/// The spec of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PushSpec {
    /// The path as it is written, neither checked nor prefixed.
    pub path: String,
    /// Which Secrets, which keys.
    pub selection: Selection,
    /// How often to compare with Vault although nothing changed. `None` means never.
    pub every: Option<Duration>,
    /// Whether every run compares with Vault.
    pub always: bool,
    /// How content is deleted that the object no longer requests. `None` means the default of the operator.
    pub deletion: Option<DeletionPolicy>,
    /// The grace period for content that the object no longer requests. `None` means the default of the operator.
    pub grace: Option<Duration>,
    /// How existing content without an owner is treated. `None` means the default of the operator.
    pub existing: Option<ExistingPolicy>,
    /// How a value that is not UTF-8 is written. `None` means the default of the operator.
    pub binary: Option<BinaryPolicy>,
    /// How a path is written.
    pub update: UpdatePolicy,
    /// The engine, as the object states it.
    pub engine: Engine,
    /// Whether the operator leaves Vault as it is.
    pub paused: bool,
    /// The token of one request to compare now.
    pub sync_now: Option<String>,
    /// Corrections that the owner should know.
    pub notes: Vec<String>,
}

/// The engine of a path, as an object states it. It counts where the operator may not ask Vault.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Engine {
    /// The object does not state it.
    #[default]
    Unstated,
    /// An annotation states the mount with the prefix of the cluster, and the version.
    Complete(Mount),
    /// A `VaultPush` states the mount without the prefix of the cluster, and perhaps the version.
    Beneath {
        /// Where it is mounted, beneath the prefix.
        mount: String,
        /// Its version.
        version: Option<KvVersion>,
    },
}

impl Engine {
    /// Returns the engine that counts where Vault does not tell.
    pub fn claimed(&self, prefix: &str) -> Option<Mount> {
        match self {
            Self::Unstated => None,
            Self::Complete(mount) => Some(mount.clone()),
            Self::Beneath { mount, version } => {
                Some(Mount::new(format!("{prefix}{mount}"), version.unwrap_or(KvVersion::Two)))
            }
        }
    }

    /// Returns the path with `data/` after the mount, if the object has separate fields for mount and path, and this is the mount, of version 2. The
    /// secret may then have any name, even one that begins like a route of the engine.
    pub fn in_data(&self, mount: &Mount, path: SecretPath) -> Result<SecretPath, PathError> {
        let name = path.as_str().strip_prefix(mount.path()).and_then(|rest| rest.strip_prefix('/'));
        match (self, name) {
            (Self::Beneath { .. }, Some(name)) if mount.version() == KvVersion::Two => {
                SecretPath::parse(&format!("{}/data/{name}", mount.path()))
            }
            _ => Ok(path),
        }
    }

    /// Whether the object states another engine than this one.
    pub fn contradicts(&self, prefix: &str, actual: &Mount) -> bool {
        match (self, self.claimed(prefix)) {
            (Self::Beneath { version: None, .. }, Some(claimed)) => claimed.path() != actual.path(),
            (_, claimed) => claimed.is_some_and(|claimed| claimed != *actual),
        }
    }
}

/// The Secrets and keys that an object requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Selection {
    /// All that it uses, or holds if it is a Secret.
    All {
        /// Whether Secrets for pulling images count as used.
        image_pull_secrets: bool,
    },
    /// These, of the same namespace, together in one place.
    Chosen(Vec<Choice>),
}

/// Some keys of one Secret of the object's namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    /// The Secret's name.
    pub name: String,
    /// The keys of the Secret. Without keys, nothing of it is written.
    pub keys: Vec<String>,
    /// The prefix of each key in Vault, without a separator.
    pub prefix: String,
}

/// The treatment of content in Vault that no object requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum DeletionPolicy {
    /// The newest version is deleted and can be undeleted; older ones stay readable. The original does the same.
    Soft,
    /// The data of all versions is destroyed; that there was something stays to be seen.
    Destroy,
    /// Nothing is left.
    Metadata,
    /// It stays as it is.
    Keep,
}

impl DeletionPolicy {
    /// The way in which Vault deletes. `None` if the content stays.
    pub(crate) fn in_vault(self) -> Option<Deletion> {
        match self {
            Self::Soft => Some(Deletion::Soft),
            Self::Destroy => Some(Deletion::Destroy),
            Self::Metadata => Some(Deletion::Metadata),
            Self::Keep => None,
        }
    }
}

/// How existing content without the mark of an owner is treated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ExistingPolicy {
    /// It is overwritten and ours from then on. The original does the same.
    Adopt,
    /// It is left alone.
    Refuse,
}

/// How a path is written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum UpdatePolicy {
    /// The path holds the requested keys and no others. Annotations always do this.
    #[default]
    Replace,
    /// Only the requested keys are written, and removed once nothing requests them. Keys of others stay.
    Merge,
    /// An empty path is written once. Content is never changed.
    IfNotExists,
}

/// How a value that is not UTF-8 reaches Vault, which stores only text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum BinaryPolicy {
    /// Encoded in base64.
    Base64,
    /// Not at all, and neither does what comes with it.
    Refuse,
}

/// Returns a policy as custom resources spell it.
pub(crate) fn pascal_case(policy: impl fmt::Display) -> String {
    let word = policy.to_string();
    let mut letters = word.chars();
    let first = letters.next().map(|first| first.to_ascii_uppercase());
    first.into_iter().chain(letters).collect()
}

/// An invalid spec. The text names where it is said, the cause and the next step.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Invalid {
    /// The annotation is not JSON, or not of the expected form.
    #[error(
        "failed to parse secrets annotation {annotation}: {cause}; it is a list such as [{{\"name\":\"db\",\"keys\":[\"password\"],\"prefix\":\"db_\"}}]"
    )]
    Secrets {
        /// The annotation.
        annotation: &'static str,
        /// The cause.
        cause: String,
    },
    /// A policy has an unknown value.
    #[error("the annotation {annotation} is {value:?}; write {expected}, or leave it out")]
    Word {
        /// Which annotation.
        annotation: &'static str,
        /// The beginning of what it holds.
        value: String,
        /// The valid values.
        expected: String,
    },
    /// A template is malformed, or names a key that it cannot have.
    #[error("spec.templates[{key}] cannot be followed: {cause}")]
    Template {
        /// Which one.
        key: String,
        /// The cause.
        cause: String,
    },
    /// The object does not match its kind. The definition in the cluster may be another version.
    #[error("spec cannot be followed: {cause}; is the installed definition that of this operator?")]
    Spec {
        /// The cause.
        cause: String,
    },
}

impl Invalid {
    /// The reason in events, metrics and the status.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Secrets { .. } => "InvalidSecretsAnnotation",
            Self::Word { .. } => "InvalidAnnotation",
            Self::Template { .. } => reasons::INVALID_TEMPLATE,
            Self::Spec { .. } => reasons::INVALID_SPEC,
        }
    }
}

/// Shows a policy as annotations and flags spell it.
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
mod tests {
    use super::*;

    #[test]
    fn an_engine_is_stated_with_the_prefix_of_the_cluster_or_without_it() {
        let two = |path: &str| Mount::new(path, KvVersion::Two);
        let one = |path: &str| Mount::new(path, KvVersion::One);
        let beneath = |version| Engine::Beneath { mount: "kv".to_owned(), version };
        for (engine, actual, claimed, contradicts) in [
            (Engine::Unstated, two("clusters/a/kv"), None, false),
            (Engine::Complete(two("kv")), two("kv"), Some(two("kv")), false),
            (Engine::Complete(two("kv")), two("clusters/a/kv"), Some(two("kv")), true),
            (beneath(None), one("clusters/a/kv"), Some(two("clusters/a/kv")), false),
            (beneath(None), two("clusters/a/kv/inner"), Some(two("clusters/a/kv")), true),
            (beneath(Some(KvVersion::One)), one("clusters/a/kv"), Some(one("clusters/a/kv")), false),
            (beneath(Some(KvVersion::One)), two("clusters/a/kv"), Some(one("clusters/a/kv")), true),
        ] {
            assert_eq!(engine.claimed("clusters/a/"), claimed, "{engine:?}");
            assert_eq!(engine.contradicts("clusters/a/", &actual), contradicts, "{engine:?} {actual:?}");
        }
    }
}
