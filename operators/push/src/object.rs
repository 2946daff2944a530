//! Which objects can ask for a push, and how one of them is named.

use std::fmt;

use k8s_openapi::api::core::v1::ObjectReference;
use konverge_apply::events;
use konverge_workload::WorkloadKind;
use kube::core::{ApiResource, GroupVersionKind};

use crate::{annotations, spec::pascal_case};

/// A kind of object that can opt in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// `apps/v1`.
    Deployment,
    /// `apps/v1`.
    StatefulSet,
    /// `apps/v1`.
    DaemonSet,
    /// `batch/v1`.
    CronJob,
    /// `batch/v1`.
    Job,
    /// `v1`.
    Secret,
    /// `konverge.dev/v1alpha1`, which a cluster may not know.
    VaultPush,
}

impl Kind {
    /// All of them. The original knows Deployments and Secrets.
    pub const ALL: [Self; 7] =
        [Self::Deployment, Self::StatefulSet, Self::DaemonSet, Self::CronJob, Self::Job, Self::Secret, Self::VaultPush];

    /// The one that manifests call so.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Which kind of workload it is, if it is one.
    pub fn workload(self) -> Option<WorkloadKind> {
        match self {
            Self::Deployment => Some(WorkloadKind::Deployment),
            Self::StatefulSet => Some(WorkloadKind::StatefulSet),
            Self::DaemonSet => Some(WorkloadKind::DaemonSet),
            Self::CronJob => Some(WorkloadKind::CronJob),
            Self::Job => Some(WorkloadKind::Job),
            Self::Secret | Self::VaultPush => None,
        }
    }

    /// As in manifests.
    pub fn name(self) -> &'static str {
        match self {
            Self::VaultPush => "VaultPush",
            _ => self.workload().map_or("Secret", WorkloadKind::name),
        }
    }

    /// As in addresses and roles.
    pub fn plural(self) -> &'static str {
        match self {
            Self::VaultPush => "vaultpushes",
            _ => self.workload().map_or("secrets", WorkloadKind::plural),
        }
    }

    /// The API group.
    pub fn group(self) -> &'static str {
        match self {
            Self::VaultPush => "konverge.dev",
            _ => self.workload().map_or("", WorkloadKind::group),
        }
    }

    /// The version of the API.
    pub fn version(self) -> &'static str {
        if self == Self::VaultPush { "v1alpha1" } else { "v1" }
    }

    /// Group and version, as in manifests.
    pub fn api_version(self) -> &'static str {
        match self {
            Self::VaultPush => "konverge.dev/v1alpha1",
            _ => self.workload().map_or("v1", WorkloadKind::api_version),
        }
    }

    /// Whether the original knows it, whose role allows to work with it.
    pub fn is_original(self) -> bool {
        matches!(self, Self::Deployment | Self::Secret)
    }

    /// Where an object of this kind says what annotations say on the others.
    pub fn setting(self, annotation: &'static str) -> &'static str {
        if self != Self::VaultPush {
            return annotation;
        }
        match annotation {
            annotations::SECRETS => "spec.keys and spec.templates",
            annotations::EXISTING => "spec.existing",
            annotations::BINARY => "spec.binary",
            annotations::KV => "spec.mount or spec.engineVersion",
            annotations::PAUSE => "spec.suspend or vault-sync.io/pause",
            annotations::RECONCILE => "spec.interval",
            other => other,
        }
    }

    /// Returns a policy as objects of this kind spell it.
    pub fn policy(self, policy: impl fmt::Display) -> String {
        if self == Self::VaultPush { pascal_case(policy) } else { policy.to_string() }
    }

    /// The resource for a dynamic client.
    pub fn resource(self) -> ApiResource {
        ApiResource::from_gvk_with_plural(&self.gvk(), self.plural())
    }

    /// Group, version and name.
    pub fn gvk(self) -> GroupVersionKind {
        GroupVersionKind::gvk(self.group(), self.version(), self.name())
    }
}

/// Which object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectRef {
    /// Its kind.
    pub kind: Kind,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl ObjectRef {
    /// As events refer to it.
    pub fn reference(&self, uid: &str) -> ObjectReference {
        events::reference(&self.kind.gvk(), &self.namespace, &self.name, uid)
    }
}

/// `Deployment shop/web`.
impl fmt::Display for ObjectRef {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} {}/{}", self.kind.name(), self.namespace, self.name)
    }
}

/// Which Secret.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SecretRef {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}
