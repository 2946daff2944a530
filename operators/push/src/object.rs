//! Which objects can ask for a push, and how one of them is named.

use std::fmt;

use k8s_openapi::api::core::v1::ObjectReference;
use konverge_workload::WorkloadKind;
use kube::core::ApiResource;

/// A kind of object that takes part.
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
}

impl Kind {
    /// All of them. The original knows Deployments and Secrets.
    pub const ALL: [Self; 6] =
        [Self::Deployment, Self::StatefulSet, Self::DaemonSet, Self::CronJob, Self::Job, Self::Secret];

    /// Which kind of workload it is; nothing for a Secret.
    pub fn workload(self) -> Option<WorkloadKind> {
        match self {
            Self::Deployment => Some(WorkloadKind::Deployment),
            Self::StatefulSet => Some(WorkloadKind::StatefulSet),
            Self::DaemonSet => Some(WorkloadKind::DaemonSet),
            Self::CronJob => Some(WorkloadKind::CronJob),
            Self::Job => Some(WorkloadKind::Job),
            Self::Secret => None,
        }
    }

    /// As in manifests.
    pub fn name(self) -> &'static str {
        self.workload().map_or("Secret", WorkloadKind::name)
    }

    /// As in addresses and roles.
    pub fn plural(self) -> &'static str {
        self.workload().map_or("secrets", WorkloadKind::plural)
    }

    /// The API group.
    pub fn group(self) -> &'static str {
        self.workload().map_or("", WorkloadKind::group)
    }

    /// Group and version, as in manifests.
    pub fn api_version(self) -> &'static str {
        self.workload().map_or("v1", WorkloadKind::api_version)
    }

    /// Whether the original knows it, whose role allows to work with it.
    pub fn is_original(self) -> bool {
        matches!(self, Self::Deployment | Self::Secret)
    }

    /// What a dynamic client needs to know.
    pub fn resource(self) -> ApiResource {
        ApiResource {
            group: self.group().to_owned(),
            version: "v1".to_owned(),
            api_version: self.api_version().to_owned(),
            kind: self.name().to_owned(),
            plural: self.plural().to_owned(),
        }
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
