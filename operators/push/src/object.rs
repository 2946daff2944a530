//! Which objects can ask for a push, and how one of them is named.

use std::{borrow::Cow, fmt};

use k8s_openapi::api::core::v1::ObjectReference;
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

    /// As in manifests.
    pub fn name(self) -> &'static str {
        match self {
            Self::Deployment => "Deployment",
            Self::StatefulSet => "StatefulSet",
            Self::DaemonSet => "DaemonSet",
            Self::CronJob => "CronJob",
            Self::Job => "Job",
            Self::Secret => "Secret",
        }
    }

    /// As in addresses and roles.
    pub fn plural(self) -> &'static str {
        match self {
            Self::Deployment => "deployments",
            Self::StatefulSet => "statefulsets",
            Self::DaemonSet => "daemonsets",
            Self::CronJob => "cronjobs",
            Self::Job => "jobs",
            Self::Secret => "secrets",
        }
    }

    /// The API group.
    pub fn group(self) -> &'static str {
        match self {
            Self::Deployment | Self::StatefulSet | Self::DaemonSet => "apps",
            Self::CronJob | Self::Job => "batch",
            Self::Secret => "",
        }
    }

    /// Group and version, as in manifests.
    pub fn api_version(self) -> Cow<'static, str> {
        match self.group() {
            "" => Cow::Borrowed("v1"),
            group => Cow::Owned(format!("{group}/v1")),
        }
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
            api_version: self.api_version().into_owned(),
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
            api_version: Some(self.kind.api_version().into_owned()),
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
