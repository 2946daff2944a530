//! The migration from Stakater Reloader and from wave. Pure: `konverge migrate` lists the objects and prints the result.

mod program;
mod reloader;
mod wave;

use k8s_openapi::api::{
    batch::v1::Job,
    core::v1::{ConfigMap, Secret},
};
use konverge_kubectl::{Kind, Migration, Shown};
use konverge_workload::WorkloadKind;
use kube::core::{ApiResource, GroupVersionKind};

use crate::config::KINDS;

pub use reloader::Reloader;
pub use wave::Wave;

/// The tools that roll replaces.
pub const ALL: [&dyn Migration; 2] = [&Reloader, &Wave];

/// The kinds of workloads that either tool can restart. Whole, because annotations of pods count, too.
fn workloads() -> Vec<Kind> {
    let of_openshift = GroupVersionKind::gvk("apps.openshift.io", "v1", "DeploymentConfig");
    let others = [ApiResource::erase::<Job>(&()), ApiResource::from_gvk(&of_openshift)];
    let all = KINDS.into_iter().map(WorkloadKind::resource).chain(others);
    all.map(|resource| Kind::namespaced(resource, Shown::Whole)).collect()
}

/// The kinds of sources, without their content.
fn sources() -> [Kind; 2] {
    [ApiResource::erase::<Secret>(&()), ApiResource::erase::<ConfigMap>(&())]
        .map(|resource| Kind::namespaced(resource, Shown::Metadata))
}

/// The features of a kind of workload that are lost.
fn lost_of_kind(kind: &str) -> Option<&'static str> {
    match kind {
        "Job" => Some(
            "Reloader deletes the Job and creates it again. roll does not, because a Job that ran twice may do harm: it runs to its end with the content \
             that it started with. Create it again by hand, or use a CronJob",
        ),
        "CronJob" => Some(
            "Reloader starts a Job at once. roll changes the template, and the next scheduled run reads the new content. To run it now: \
             kubectl create job --from=cronjob/NAME NEW-NAME",
        ),
        "DeploymentConfig" => {
            Some("roll does not know DeploymentConfigs, which OpenShift has deprecated. Convert it to a Deployment")
        }
        _ => None,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests fail by panicking")]
mod tests;
