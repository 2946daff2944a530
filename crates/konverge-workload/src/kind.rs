//! The kinds of workloads.

use kube::core::{ApiResource, GroupVersionKind};

/// A kind of object that has a pod template.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WorkloadKind {
    /// `apps/v1`.
    Deployment,
    /// `apps/v1`.
    StatefulSet,
    /// `apps/v1`.
    DaemonSet,
    /// `batch/v1`.
    CronJob,
    /// `batch/v1`. Its template never changes.
    Job,
    /// `argoproj.io/v1alpha1`, where Argo Rollouts is installed.
    Rollout,
}

impl WorkloadKind {
    /// All kinds.
    pub const ALL: [Self; 6] =
        [Self::Deployment, Self::StatefulSet, Self::DaemonSet, Self::CronJob, Self::Job, Self::Rollout];

    /// Returns the kind as in manifests.
    pub fn name(self) -> &'static str {
        match self {
            Self::Deployment => "Deployment",
            Self::StatefulSet => "StatefulSet",
            Self::DaemonSet => "DaemonSet",
            Self::CronJob => "CronJob",
            Self::Job => "Job",
            Self::Rollout => "Rollout",
        }
    }

    /// Returns the plural, as in URLs and roles.
    pub fn plural(self) -> &'static str {
        match self {
            Self::Deployment => "deployments",
            Self::StatefulSet => "statefulsets",
            Self::DaemonSet => "daemonsets",
            Self::CronJob => "cronjobs",
            Self::Job => "jobs",
            Self::Rollout => "rollouts",
        }
    }

    /// Returns the short names that kubectl accepts.
    pub fn short_names(self) -> &'static [&'static str] {
        match self {
            Self::Deployment => &["deploy"],
            Self::StatefulSet => &["sts"],
            Self::DaemonSet => &["ds"],
            Self::CronJob => &["cj"],
            Self::Job => &[],
            Self::Rollout => &["ro"],
        }
    }

    /// The API group.
    pub fn group(self) -> &'static str {
        match self {
            Self::Deployment | Self::StatefulSet | Self::DaemonSet => "apps",
            Self::CronJob | Self::Job => "batch",
            Self::Rollout => "argoproj.io",
        }
    }

    /// The API version, without the group.
    pub fn version(self) -> &'static str {
        match self {
            Self::Rollout => "v1alpha1",
            _ => "v1",
        }
    }

    /// Group and version, as in manifests.
    pub fn api_version(self) -> &'static str {
        match self {
            Self::Deployment | Self::StatefulSet | Self::DaemonSet => "apps/v1",
            Self::CronJob | Self::Job => "batch/v1",
            Self::Rollout => "argoproj.io/v1alpha1",
        }
    }

    /// The API resource for a dynamic client.
    pub fn resource(self) -> ApiResource {
        ApiResource::from_gvk_with_plural(&self.gvk(), self.plural())
    }

    /// Group, version and name.
    pub fn gvk(self) -> GroupVersionKind {
        GroupVersionKind::gvk(self.group(), self.version(), self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn group_and_version_are_those_of_the_manifest() {
        for kind in WorkloadKind::ALL {
            assert_eq!(kind.api_version(), kind.resource().api_version);
        }
    }
}
