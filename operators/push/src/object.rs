//! Which objects can ask for a push, and how one of them is named.

use std::fmt;

use k8s_openapi::api::core::v1::ObjectReference;
use konverge_apply::events;
use konverge_workload::WorkloadKind;
use kube::core::{ApiResource, GroupVersionKind, ObjectMeta};

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
    /// A `Rollout` of `argoproj.io/v1alpha1`, if Argo Rollouts is installed.
    Rollout,
    /// `v1`.
    Secret,
    /// `konverge.dev/v1alpha1`, which a cluster may not know.
    VaultPush,
}

/// The names of a kind in the API.
struct ApiNames {
    group: &'static str,
    version: &'static str,
    name: &'static str,
    plural: &'static str,
}

impl Kind {
    /// All of them. The original knows Deployments and Secrets.
    pub const ALL: [Self; 8] = [
        Self::Deployment,
        Self::StatefulSet,
        Self::DaemonSet,
        Self::CronJob,
        Self::Job,
        Self::Rollout,
        Self::Secret,
        Self::VaultPush,
    ];

    /// The one that manifests call so.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Which kind of workload it is, if it is one.
    pub fn workload(self) -> Option<WorkloadKind> {
        self.workload_or_names().ok()
    }

    /// Returns the kind of workload. The error is the names of a kind that is none.
    fn workload_or_names(self) -> Result<WorkloadKind, ApiNames> {
        match self {
            Self::Deployment => Ok(WorkloadKind::Deployment),
            Self::StatefulSet => Ok(WorkloadKind::StatefulSet),
            Self::DaemonSet => Ok(WorkloadKind::DaemonSet),
            Self::CronJob => Ok(WorkloadKind::CronJob),
            Self::Job => Ok(WorkloadKind::Job),
            Self::Rollout => Ok(WorkloadKind::Rollout),
            Self::Secret => Err(ApiNames { group: "", version: "v1", name: "Secret", plural: "secrets" }),
            Self::VaultPush => {
                let [group, version, name, plural] = ["konverge.dev", "v1alpha1", "VaultPush", "vaultpushes"];
                Err(ApiNames { group, version, name, plural })
            }
        }
    }

    fn names(self) -> ApiNames {
        match self.workload_or_names() {
            Ok(kind) => {
                ApiNames { group: kind.group(), version: kind.version(), name: kind.name(), plural: kind.plural() }
            }
            Err(names) => names,
        }
    }

    /// As in manifests.
    pub fn name(self) -> &'static str {
        self.names().name
    }

    /// As in addresses and roles.
    pub fn plural(self) -> &'static str {
        self.names().plural
    }

    /// The API group.
    pub fn group(self) -> &'static str {
        self.names().group
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
    fn gvk(self) -> GroupVersionKind {
        let ApiNames { group, version, name, .. } = self.names();
        GroupVersionKind::gvk(group, version, name)
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
    /// The object with this metadata. `None` if it has no name or no namespace yet.
    pub fn of(kind: Kind, metadata: &ObjectMeta) -> Option<Self> {
        Some(Self { kind, namespace: metadata.namespace.clone()?, name: metadata.name.clone()? })
    }

    /// A Secret beside the object.
    pub fn secret(&self, name: &str) -> SecretRef {
        SecretRef { namespace: self.namespace.clone(), name: name.to_owned() }
    }

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

/// Whether our finalizer holds an object, so that it stays until its paths are cleared.
pub(crate) fn has_finalizer(metadata: &ObjectMeta) -> bool {
    metadata.finalizers.iter().flatten().any(|known| known == annotations::FINALIZER)
}
