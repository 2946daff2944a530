//! How workloads and what they use are named.

use std::fmt;

use k8s_openapi::api::core::v1::ObjectReference;
use konverge_workload::WorkloadKind;

/// Which workload. Those of a namespace stand together in order.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkloadRef {
    /// Its namespace.
    pub namespace: String,
    /// Its kind.
    pub kind: WorkloadKind,
    /// Its name.
    pub name: String,
}

/// What workloads take their content from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SourceKind {
    /// A Secret.
    Secret,
    /// A `ConfigMap`.
    ConfigMap,
}

/// A Secret or a `ConfigMap` in the namespace of whoever uses it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SourceName {
    /// Which of the two.
    pub kind: SourceKind,
    /// Its name.
    pub name: String,
}

/// A Secret or a `ConfigMap` of the cluster.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SourceRef {
    /// Its namespace.
    pub namespace: String,
    /// What it is called there.
    pub name: SourceName,
}

impl SourceKind {
    /// As in manifests.
    pub fn name(self) -> &'static str {
        match self {
            Self::Secret => "Secret",
            Self::ConfigMap => "ConfigMap",
        }
    }

    /// As in addresses and roles.
    pub fn plural(self) -> &'static str {
        match self {
            Self::Secret => "secrets",
            Self::ConfigMap => "configmaps",
        }
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

    /// This one of a namespace.
    pub fn of(&self, namespace: &str) -> SourceRef {
        SourceRef { namespace: namespace.to_owned(), name: self.clone() }
    }
}

impl WorkloadRef {
    /// As events refer to it.
    pub fn reference(&self, uid: &str) -> ObjectReference {
        ObjectReference {
            api_version: Some(self.kind.api_version().to_owned()),
            kind: Some(self.kind.name().to_owned()),
            name: Some(self.name.clone()),
            namespace: Some(self.namespace.clone()),
            uid: Some(uid.to_owned()),
            ..ObjectReference::default()
        }
    }
}

impl SourceRef {
    /// As events refer to it.
    pub fn reference(&self, uid: &str) -> ObjectReference {
        ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some(self.name.kind.name().to_owned()),
            name: Some(self.name.name.clone()),
            namespace: Some(self.namespace.clone()),
            uid: Some(uid.to_owned()),
            ..ObjectReference::default()
        }
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

/// `Secret shop/db`.
impl fmt::Display for SourceRef {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} {}/{}", self.name.kind.name(), self.namespace, self.name.name)
    }
}
