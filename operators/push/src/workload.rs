//! A workload as far as it matters here: its metadata, and the names of the Secrets that its pods use.
//!
//! Pod templates can be large and hold values in clear text. What is not decoded takes no memory and cannot leak, so this is all that is
//! decoded of them.

use std::{borrow::Cow, collections::BTreeMap};

use kube::{
    Resource,
    core::{NamespaceResourceScope, ObjectMeta},
};
use serde::Deserialize;

use crate::object::Kind;

/// The Secrets that the pods of a workload use.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct References {
    /// Names, and whether the pods can do without: only if no use of it needs it.
    pub secrets: BTreeMap<String, Need>,
    /// Names of credentials for image registries, which are pushed only when asked for.
    pub image_pull_secrets: Vec<String>,
}

/// Whether pods can start without a Secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Need {
    /// Each use is marked as optional.
    Optional,
    /// They cannot.
    Required,
}

/// A workload of any of the kinds that have a pod template.
#[derive(Debug, Clone, Deserialize)]
#[serde(from = "Wire")]
pub struct Workload {
    /// Its metadata.
    pub metadata: ObjectMeta,
    /// What its pods use.
    pub references: References,
}

impl Resource for Workload {
    type DynamicType = Kind;
    type Scope = NamespaceResourceScope;

    fn kind(kind: &Kind) -> Cow<'_, str> {
        Cow::Borrowed(kind.name())
    }

    fn group(kind: &Kind) -> Cow<'_, str> {
        Cow::Borrowed(kind.group())
    }

    fn version(kind: &Kind) -> Cow<'_, str> {
        Cow::Borrowed(kind.version())
    }

    fn plural(kind: &Kind) -> Cow<'_, str> {
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
}

/// Of a Deployment and its like, or of a `CronJob`.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Spec {
    template: Option<Template>,
    job_template: Option<JobTemplate>,
}

#[derive(Deserialize)]
struct JobTemplate {
    spec: JobSpec,
}

#[derive(Deserialize)]
struct JobSpec {
    template: Template,
}

#[derive(Deserialize)]
struct Template {
    #[serde(default)]
    spec: Pod,
}

/// Lists can be `null` in what a client sent, so each of them is optional.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Pod {
    containers: Option<Vec<Container>>,
    init_containers: Option<Vec<Container>>,
    ephemeral_containers: Option<Vec<Container>>,
    volumes: Option<Vec<Volume>>,
    image_pull_secrets: Option<Vec<Reference>>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Container {
    env: Option<Vec<Variable>>,
    env_from: Option<Vec<EnvironmentSource>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Variable {
    value_from: Option<ValueSource>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ValueSource {
    secret_key_ref: Option<Reference>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct EnvironmentSource {
    secret_ref: Option<Reference>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Volume {
    secret: Option<SecretVolume>,
    projected: Option<Projected>,
    csi: Option<Csi>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SecretVolume {
    secret_name: Option<String>,
    optional: Option<bool>,
}

#[derive(Deserialize)]
struct Projected {
    sources: Option<Vec<ProjectedSource>>,
}

#[derive(Deserialize)]
struct ProjectedSource {
    secret: Option<Reference>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Csi {
    node_publish_secret_ref: Option<Reference>,
}

#[derive(Deserialize)]
struct Reference {
    name: Option<String>,
    optional: Option<bool>,
}

impl From<Wire> for Workload {
    fn from(wire: Wire) -> Self {
        let template = wire.spec.template.or_else(|| wire.spec.job_template.map(|job| job.spec.template));
        let references = template.map(|template| template.spec.references()).unwrap_or_default();
        Self { metadata: wire.metadata, references }
    }
}

impl Pod {
    fn references(self) -> References {
        let mut found = References::default();
        let containers = [self.containers, self.init_containers, self.ephemeral_containers];
        for container in containers.into_iter().flatten().flatten() {
            let variables = container.env.into_iter().flatten().filter_map(|variable| variable.value_from);
            variables.filter_map(|source| source.secret_key_ref).for_each(|reference| found.add(reference));
            let sources = container.env_from.into_iter().flatten();
            sources.filter_map(|source| source.secret_ref).for_each(|reference| found.add(reference));
        }
        for volume in self.volumes.into_iter().flatten() {
            let whole = volume.secret.map(|secret| Reference { name: secret.secret_name, optional: secret.optional });
            let sources = volume.projected.and_then(|projected| projected.sources).into_iter().flatten();
            let parts = sources.filter_map(|source| source.secret);
            let of_driver = volume.csi.and_then(|csi| csi.node_publish_secret_ref);
            whole.into_iter().chain(parts).chain(of_driver).for_each(|reference| found.add(reference));
        }
        let pulls = self.image_pull_secrets.into_iter().flatten().filter_map(|reference| reference.name);
        found.image_pull_secrets = pulls.filter(|name| !name.is_empty()).collect();
        found
    }
}

impl References {
    fn add(&mut self, reference: Reference) {
        // A reference without a name uses nothing; the API server lets it pass where it is optional.
        let Some(name) = reference.name.filter(|name| !name.is_empty()) else { return };
        let need = if reference.optional == Some(true) { Need::Optional } else { Need::Required };
        self.secrets.entry(name).and_modify(|known| *known = need.max(*known)).or_insert(need);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn references(kind: &str, pod: &Value) -> References {
        let spec = match kind {
            "CronJob" => json!({ "schedule": "@daily", "jobTemplate": { "spec": { "template": { "spec": pod } } } }),
            _ => json!({ "replicas": 1, "template": { "metadata": { "labels": {} }, "spec": pod } }),
        };
        let object = json!({ "apiVersion": "x/v1", "kind": kind, "metadata": { "name": "a" }, "spec": spec });
        serde_json::from_value::<Workload>(object).unwrap().references
    }

    #[test]
    fn every_way_to_use_a_secret_is_found() {
        let pod = json!({
            "containers": [{
                "name": "main",
                "env": [
                    { "name": "PLAIN", "value": "in clear text" },
                    { "name": "A", "valueFrom": { "secretKeyRef": { "name": "by-key", "key": "a" } } },
                    { "name": "B", "valueFrom": { "configMapKeyRef": { "name": "no-secret", "key": "b" } } },
                ],
                "envFrom": [{ "secretRef": { "name": "all-keys" } }, { "configMapRef": { "name": "no-secret" } }],
            }],
            "initContainers": [{ "env": [{ "name": "A", "valueFrom": { "secretKeyRef": { "name": "init", "key": "a" } } }] }],
            "ephemeralContainers": [{ "envFrom": [{ "secretRef": { "name": "debug" } }] }],
            "volumes": [
                { "name": "a", "secret": { "secretName": "volume", "items": [{ "key": "a", "path": "a" }] } },
                { "name": "b", "projected": { "sources": [{ "secret": { "name": "projected" } }, { "configMap": {} }] } },
                { "name": "c", "csi": { "driver": "x", "nodePublishSecretRef": { "name": "driver" } } },
                { "name": "d", "emptyDir": {} },
            ],
            "imagePullSecrets": [{ "name": "registry" }],
        });
        for kind in ["Deployment", "CronJob"] {
            let found = references(kind, &pod);
            let names: Vec<_> = found.secrets.keys().map(String::as_str).collect();
            assert_eq!(names, ["all-keys", "by-key", "debug", "driver", "init", "projected", "volume"], "{kind}");
            assert!(found.secrets.values().all(|need| *need == Need::Required));
            assert_eq!(found.image_pull_secrets, ["registry"]);
        }
    }

    #[test]
    fn one_use_that_needs_it_is_enough() {
        let optional = json!({ "secretRef": { "name": "a", "optional": true } });
        let required = json!({ "secretRef": { "name": "a" } });
        for (sources, expected) in [
            (vec![optional.clone(), required.clone()], Need::Required),
            (vec![required, optional.clone()], Need::Required),
            (vec![optional.clone(), optional], Need::Optional),
        ] {
            let found = references("Deployment", &json!({ "containers": [{ "envFrom": sources }] }));
            assert_eq!(found.secrets["a"], expected);
        }
    }

    #[test]
    fn what_is_absent_or_null_uses_nothing() {
        for pod in [
            json!({}),
            json!({ "containers": null, "volumes": null }),
            json!({ "containers": [{ "env": null, "envFrom": [{ "secretRef": { "optional": true } }] }] }),
            json!({ "volumes": [{ "name": "a", "secret": { "secretName": "" } }] }),
        ] {
            assert_eq!(references("Deployment", &pod), References::default(), "{pod}");
        }
    }
}
