//! A workload of any kind.

use std::{borrow::Cow, collections::BTreeMap};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Resource, core::NamespaceResourceScope};
use serde::Deserialize;

use crate::{
    WorkloadKind,
    pod::Pod,
    references::References,
    rollout::{Rollout, Status, UpdateStrategy, Wanted},
};

/// A workload of any of the kinds that have a pod template.
#[derive(Debug, Clone, Deserialize)]
#[serde(from = "Wire")]
pub struct Workload {
    /// Its metadata.
    pub metadata: ObjectMeta,
    /// The references of its pods.
    pub references: References,
    /// The workload whose pod template it uses, if it has none of its own.
    pub template_of: Option<TemplateOf>,
    /// The annotations of its pods.
    pub template_annotations: BTreeMap<String, String>,
    /// The state of the pods.
    pub rollout: Rollout,
}

/// Another object with a pod template, in the same namespace: what an Argo Rollout names with `spec.workloadRef`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct TemplateOf {
    /// Its kind.
    pub kind: String,
    /// Its name.
    pub name: String,
}

impl Resource for Workload {
    type DynamicType = WorkloadKind;
    type Scope = NamespaceResourceScope;

    fn kind(kind: &WorkloadKind) -> Cow<'_, str> {
        Cow::Borrowed(kind.name())
    }

    fn group(kind: &WorkloadKind) -> Cow<'_, str> {
        Cow::Borrowed(kind.group())
    }

    fn version(kind: &WorkloadKind) -> Cow<'_, str> {
        Cow::Borrowed(kind.version())
    }

    fn plural(kind: &WorkloadKind) -> Cow<'_, str> {
        Cow::Borrowed(kind.plural())
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

#[derive(Deserialize)]
struct Wire {
    metadata: ObjectMeta,
    #[serde(default)]
    spec: Spec,
    #[serde(default)]
    status: Status,
}

/// The spec of a Deployment or a similar kind, or of a `CronJob`.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Spec {
    template: Option<Template>,
    job_template: Option<JobTemplate>,
    workload_ref: Option<TemplateOf>,
    replicas: Option<i64>,
    paused: Option<bool>,
    update_strategy: Option<UpdateStrategy>,
    progress_deadline_seconds: Option<u32>,
}

#[derive(Deserialize)]
struct JobTemplate {
    spec: JobSpec,
}

#[derive(Deserialize)]
struct JobSpec {
    template: Template,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Template {
    metadata: Option<TemplateMetadata>,
    spec: Pod,
}

#[derive(Deserialize)]
struct TemplateMetadata {
    annotations: Option<BTreeMap<String, String>>,
}

impl From<Wire> for Workload {
    fn from(wire: Wire) -> Self {
        let Wire { metadata, spec, status } = wire;
        let wanted = Wanted {
            replicas: spec.replicas,
            paused: spec.paused,
            update_strategy: spec.update_strategy,
            deadline: spec.progress_deadline_seconds,
        };
        let rollout = match &spec.job_template {
            Some(_) => Rollout::SETTLED,
            None => Rollout::of(metadata.generation, &wanted, &status),
        };
        let template = spec.template.or_else(|| spec.job_template.map(|job| job.spec.template)).unwrap_or_default();
        let annotations = template.metadata.and_then(|metadata| metadata.annotations);
        Self {
            metadata,
            references: template.spec.references(),
            template_of: spec.workload_ref,
            template_annotations: annotations.unwrap_or_default(),
            rollout,
        }
    }
}

#[cfg(test)]
mod tests;
