//! References to workloads and to their sources.

use std::fmt;

use k8s_openapi::api::core::v1::ObjectReference;
use konverge_apply::events;
use konverge_workload::WorkloadKind;
use kube::core::GroupVersionKind;

/// A reference to a workload. The order groups the workloads of a namespace.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkloadRef {
    /// Its namespace.
    pub namespace: String,
    /// Its kind.
    pub kind: WorkloadKind,
    /// Its name.
    pub name: String,
}

/// The kind of a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SourceKind {
    /// A Secret.
    Secret,
    /// A `ConfigMap`.
    ConfigMap,
    /// Which version a secret has in an engine of KV version 2 of Vault.
    Vault,
    /// The content of such a secret.
    VaultContent,
    /// The content of a secret in an engine of version 1.
    VaultV1,
}

/// A Secret or a `ConfigMap` in the namespace of its user, or a secret in Vault.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SourceName {
    /// Its kind.
    pub kind: SourceKind,
    /// Its name; of one in Vault the engine and the path in it, with a colon between.
    pub name: String,
}

/// A Secret or a `ConfigMap` of the cluster, or a secret in Vault.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SourceRef {
    /// Its namespace; none in Vault.
    pub namespace: String,
    /// Its name there.
    pub name: SourceName,
}

impl SourceKind {
    /// As in manifests.
    pub fn name(self) -> &'static str {
        match self {
            Self::Secret => "Secret",
            Self::ConfigMap => "ConfigMap",
            Self::Vault => "Vault",
            Self::VaultContent => "VaultContent",
            Self::VaultV1 => "VaultV1",
        }
    }

    /// Whether it is in Vault, which may be away for any time, and where no namespace is.
    pub fn is_in_vault(self) -> bool {
        matches!(self, Self::Vault | Self::VaultContent | Self::VaultV1)
    }
}

impl SourceName {
    /// A Secret.
    pub fn secret(name: impl Into<String>) -> Self {
        Self { kind: SourceKind::Secret, name: name.into() }
    }

    /// A `ConfigMap`.
    pub fn config_map(name: impl Into<String>) -> Self {
        Self { kind: SourceKind::ConfigMap, name: name.into() }
    }

    /// Returns the source of this name as a workload of a namespace uses it.
    pub fn of(&self, namespace: &str) -> SourceRef {
        let namespace = if self.kind.is_in_vault() { "" } else { namespace };
        SourceRef { namespace: namespace.to_owned(), name: self.clone() }
    }

    /// Returns the source of the same secret in Vault in the other mode, which compares contents instead of versions or the reverse. Returns `None` if
    /// there is only one mode.
    pub fn in_other_mode(&self) -> Option<Self> {
        let kind = match self.kind {
            SourceKind::Vault => SourceKind::VaultContent,
            SourceKind::VaultContent => SourceKind::Vault,
            SourceKind::VaultV1 | SourceKind::Secret | SourceKind::ConfigMap => return None,
        };
        Some(Self { kind, name: self.name.clone() })
    }

    /// Returns `true` if an entry of a record is about a secret in Vault.
    pub fn is_in_vault(text: &str) -> bool {
        let kinds = [SourceKind::Vault, SourceKind::VaultContent, SourceKind::VaultV1];
        text.split_once('/').is_some_and(|(kind, _)| kinds.iter().any(|known| known.name() == kind))
    }
}

impl WorkloadRef {
    /// As events refer to it.
    pub fn reference(&self, uid: &str) -> ObjectReference {
        events::reference(&self.kind.gvk(), &self.namespace, &self.name, uid)
    }
}

impl SourceRef {
    /// As events refer to it.
    pub fn reference(&self, uid: &str) -> ObjectReference {
        let kind = GroupVersionKind::gvk("", "v1", self.name.kind.name());
        events::reference(&kind, &self.namespace, &self.name.name, uid)
    }
}

/// `Deployment shop/web`.
impl fmt::Display for WorkloadRef {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} {}/{}", self.kind.name(), self.namespace, self.name)
    }
}

/// `Secret/db`, as in records.
impl fmt::Display for SourceName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}/{}", self.kind.name(), self.name)
    }
}

/// `Secret shop/db`, or `Vault/secret:app`.
impl fmt::Display for SourceRef {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.name.kind.is_in_vault() {
            return self.name.fmt(out);
        }
        write!(out, "{} {}/{}", self.name.kind.name(), self.namespace, self.name.name)
    }
}
