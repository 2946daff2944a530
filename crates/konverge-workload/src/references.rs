//! The references of a workload's pods.

use std::collections::{BTreeMap, BTreeSet};

/// The Secrets and `ConfigMaps` that the pods of a workload use, by name; all of them are in its namespace.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct References {
    /// Secrets that containers see, or that a CSI driver gets with a volume.
    pub secrets: BTreeMap<String, Usage>,
    /// `ConfigMaps` that containers see.
    pub config_maps: BTreeMap<String, Usage>,
    /// Secrets that nodes mount volumes of the older kinds with, or that the attributes of a CSI volume name. Containers never see them.
    pub storage_secrets: BTreeSet<String>,
    /// Secrets that nodes pull images with. Containers never see them.
    pub image_pull_secrets: BTreeSet<String>,
    /// The mounts of the Secrets Store CSI driver: names of [`SecretProviderClass`](crate::SecretProviderClass)es.
    pub secret_provider_classes: BTreeSet<String>,
}

/// The use of a Secret or a `ConfigMap` by pods, with all references together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Usage {
    /// Whether the pods can start without it. Each reference must be optional for that.
    pub need: Need,
    /// The keys that the pods use.
    pub keys: Keys,
    /// The keys without which the pods cannot start.
    pub required: BTreeSet<String>,
}

/// Whether pods can start without something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Need {
    /// Each use is marked as optional.
    Optional,
    /// The pods cannot start without it.
    Required,
}

/// Keys of a Secret or a `ConfigMap`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Keys {
    /// The listed keys.
    Some(BTreeSet<String>),
    /// All keys.
    All,
}

impl Keys {
    /// Returns a single key.
    pub fn one(key: impl Into<String>) -> Self {
        Self::Some(BTreeSet::from([key.into()]))
    }

    /// Returns the keys of both.
    #[must_use]
    pub fn and(self, others: Self) -> Self {
        match (self, others) {
            (Self::Some(mut keys), Self::Some(others)) => {
                keys.extend(others);
                Self::Some(keys)
            }
            _ => Self::All,
        }
    }

    /// Returns `true` if the key is selected.
    pub fn contains(&self, key: &str) -> bool {
        match self {
            Self::All => true,
            Self::Some(keys) => keys.contains(key),
        }
    }

    /// Returns `true` if the two selections have a key in common.
    pub fn overlaps(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Some(keys), Self::Some(others)) => !keys.is_disjoint(others),
            (Self::Some(keys), Self::All) | (Self::All, Self::Some(keys)) => !keys.is_empty(),
            (Self::All, Self::All) => true,
        }
    }
}

impl Usage {
    /// Adds another reference to the same object.
    pub(crate) fn add(&mut self, other: Self) {
        self.need = self.need.max(other.need);
        self.required.extend(other.required);
        let keys = std::mem::replace(&mut self.keys, Keys::All);
        self.keys = keys.and(other.keys);
    }
}
