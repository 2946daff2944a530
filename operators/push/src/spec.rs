//! The spec of an object, from annotations or from a `VaultPush`. Pure.

use std::{fmt, time::Duration};

use clap::ValueEnum;
use konverge_vault::{Deletion, Mount};
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
    /// How often to compare with Vault although nothing changed; not at all if there is none.
    pub every: Option<Duration>,
    /// Whether every run compares with Vault.
    pub always: bool,
    /// How content is deleted that the object no longer requests; the operator's default if there is none.
    pub deletion: Option<DeletionPolicy>,
    /// How existing content without an owner is treated; the operator's default if there is none.
    pub existing: Option<ExistingPolicy>,
    /// How a value that is no text is written; the operator's default if there is none.
    pub binary: Option<BinaryPolicy>,
    /// How a path is written.
    pub update: UpdatePolicy,
    /// The engine, if Vault is not to be asked for it. That the path is beneath it is not checked.
    pub mount: Option<Mount>,
    /// Whether nothing is to be done.
    pub paused: bool,
    /// A text that stands for one wish to be worked on now.
    pub sync_now: Option<String>,
    /// Corrections that the owner should know.
    pub notes: Vec<String>,
}

/// Which Secrets and keys an object asks for.
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
    /// Which of its keys; none takes nothing of it.
    pub keys: Vec<String>,
    /// The prefix of each key in Vault, without a separator.
    pub prefix: String,
}

/// What becomes of data in Vault that is no longer asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize, JsonSchema)]
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

/// What becomes of a path that holds something and carries nobody's mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ExistingPolicy {
    /// It is overwritten and ours from then on. What the original does.
    Adopt,
    /// It is left alone.
    Refuse,
}

/// How a path is written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum UpdatePolicy {
    /// All of the path is what is asked for. What annotations do.
    #[default]
    Replace,
    /// Only the keys that are asked for are written, and removed when they are not wanted any more; those of others stay.
    Merge,
    /// It is written where nothing is, and left alone from then on.
    IfNotExists,
}

/// How a value that is no text reaches Vault, which keeps only text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum BinaryPolicy {
    /// Encoded in base64.
    Base64,
    /// Not at all, and neither does what comes with it.
    Refuse,
}

/// An invalid spec. The text names where it is said, the cause and the next step.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Invalid {
    /// The JSON is none, or not of the form.
    #[error(
        "failed to parse secrets annotation {annotation}: {cause}; it is a list such as [{{\"name\":\"db\",\"keys\":[\"password\"],\"prefix\":\"db_\"}}]"
    )]
    Secrets {
        /// The annotation.
        annotation: &'static str,
        /// The cause.
        cause: String,
    },
    /// A word that says what becomes of data is not among those that there are.
    #[error("the annotation {annotation} is {value:?}; write {expected}, or leave it out")]
    Word {
        /// Which annotation.
        annotation: &'static str,
        /// The beginning of what it holds.
        value: String,
        /// The valid values.
        expected: String,
    },
    /// A template is none, or names what it cannot have.
    #[error("spec.templates[{key}] cannot be followed: {cause}")]
    Template {
        /// Which one.
        key: String,
        /// The cause.
        cause: String,
    },
    /// The object is not what its kind says; its definition in the cluster may be another one.
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
