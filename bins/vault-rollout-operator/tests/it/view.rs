//! A namespace as a person sees it: Secrets, workloads that use them, and how often those were rolled.

use std::collections::BTreeSet;

use k8s_openapi::api::{
    apps::v1::{Deployment, ReplicaSet},
    batch::v1::CronJob,
    core::v1::Secret,
};
use konverge_testkit::events_about;
use kube::{
    Api, Client, ResourceExt,
    api::{ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};

use crate::{
    outside,
    stage::{ACCOUNT, Result, until},
};

/// The annotation that requests all references of the pods.
pub(crate) const ALL: &str = "roll.konverge.dev/on-change";

/// Where it is recorded with what the pods run.
const RECORD: &str = "roll.konverge.dev/record";

pub(crate) struct View {
    pub(crate) namespace: String,
    pub(crate) client: Client,
}

/// A workload, for the purpose of counting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Seen {
    /// How often its pod template was changed since it was made. Nobody but the operator changes it here.
    pub(crate) changes: usize,
    /// When it was last rolled, as it is recorded.
    pub(crate) rolled: Option<String>,
    /// The recorded digests.
    pub(crate) content: Option<Value>,
    /// The stamp on its pods.
    pub(crate) stamp: Option<String>,
}

impl Seen {
    async fn of(object: &DynamicObject) -> Result<Self> {
        let changes = outside::changes(object).await;
        let template = outside::template(object);
        let stamp = template.pointer("/metadata/annotations/roll.konverge.dev~1content");
        let record = object.annotations().get(RECORD);
        let record: Value = record.map(|text| serde_json::from_str(text)).transpose()?.unwrap_or_default();
        Ok(Self {
            changes,
            rolled: record["rolled"].as_str().map(str::to_owned),
            content: record.get("content").cloned(),
            stamp: stamp.and_then(Value::as_str).map(str::to_owned),
        })
    }
}

/// Whether the newest pods of this Deployment are ready and there are no others.
fn is_complete(deployment: &DynamicObject) -> bool {
    let count = |field: &str| deployment.data["status"][field].as_i64().unwrap_or_default();
    count("observedGeneration") == deployment.metadata.generation.unwrap_or_default()
        && ["replicas", "updatedReplicas", "availableReplicas"].into_iter().all(|field| count(field) == 1)
}

impl View {
    pub(crate) fn new(client: Client, namespace: &str) -> Self {
        Self { namespace: namespace.to_owned(), client }
    }

    pub(crate) fn secrets(&self) -> Api<Secret> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    pub(crate) fn api(&self, kind: &str) -> Api<DynamicObject> {
        let resource = match kind {
            "Deployment" => ApiResource::erase::<Deployment>(&()),
            "CronJob" => ApiResource::erase::<CronJob>(&()),
            other => panic!("no kind {other}"),
        };
        Api::namespaced_with(self.client.clone(), &self.namespace, &resource)
    }

    /// Applies a Secret with this value of the key `k`.
    pub(crate) async fn secret(&self, name: &str, value: &str) -> Result<()> {
        let object =
            json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": name }, "stringData": { "k": value } });
        self.secrets().patch(name, &PatchParams::apply("user").force(), &Patch::Apply(&object)).await?;
        Ok(())
    }

    pub(crate) async fn delete_secret(&self, name: &str) -> Result<()> {
        self.secrets().delete(name, &DeleteParams::default()).await?;
        Ok(())
    }

    /// Applies a Deployment that uses a Secret and is rolled for it.
    pub(crate) async fn deployment(&self, name: &str, secret: &str) -> Result<()> {
        self.workload("Deployment", name, secret, json!({ ALL: "true" })).await
    }

    /// Applies a workload that uses a Secret.
    pub(crate) async fn workload(&self, kind: &str, name: &str, secret: &str, annotations: Value) -> Result<()> {
        let labels = json!({ "app": name });
        let container =
            json!({ "name": "main", "image": "example.com/app", "envFrom": [{ "secretRef": { "name": secret } }] });
        let mut pod = json!({ "metadata": { "labels": labels }, "spec": { "containers": [container] } });
        let (version, spec) = match kind {
            "CronJob" => {
                pod["spec"]["restartPolicy"] = "Never".into();
                let template = json!({ "spec": { "template": pod } });
                ("batch/v1", json!({ "schedule": "@yearly", "suspend": true, "jobTemplate": template }))
            }
            // All that it ever had, so that they can be counted.
            _ => (
                "apps/v1",
                json!({ "revisionHistoryLimit": 1000, "selector": { "matchLabels": labels }, "template": pod }),
            ),
        };
        let metadata = json!({ "name": name, "annotations": annotations });
        let object = json!({ "apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec });
        self.api(kind).patch(name, &PatchParams::apply("user").force(), &Patch::Apply(&object)).await?;
        Ok(())
    }

    /// Deletes a Deployment, and waits until it is gone with all that it had.
    pub(crate) async fn delete(&self, name: &str) -> Result<()> {
        self.api("Deployment").delete(name, &DeleteParams::foreground()).await?;
        until(&format!("{name} is gone"), async || Ok(self.api("Deployment").get_metadata_opt(name).await?.is_none()))
            .await;
        Ok(())
    }

    pub(crate) async fn seen(&self, kind: &str, name: &str) -> Result<Seen> {
        Seen::of(&self.api(kind).get(name).await?).await
    }

    /// How many pod templates a Deployment has had: one is how it was made.
    pub(crate) async fn templates(&self, name: &str) -> Result<usize> {
        let api: Api<ReplicaSet> = Api::namespaced(self.client.clone(), &self.namespace);
        Ok(api.list_metadata(&ListParams::default().labels(&format!("app={name}"))).await?.items.len())
    }

    /// Whether a Deployment was rolled so often, by the changes of its pod template and by the `ReplicaSets` there are, and is ready.
    pub(crate) async fn is_rolled(&self, name: &str, times: usize) -> Result<bool> {
        let object = self.api("Deployment").get(name).await?;
        let seen = Seen::of(&object).await?;
        let is_so = seen.changes == times && seen.content.is_some() && is_complete(&object);
        // Tests wait for this, so what costs the API server most comes last.
        Ok(is_so && self.templates(name).await? == times + 1)
    }

    /// Whether the newest pods of a Deployment are ready and there are no others.
    pub(crate) async fn is_ready(&self, name: &str) -> Result<bool> {
        Ok(is_complete(&self.api("Deployment").get(name).await?))
    }

    /// Waits until a Deployment was rolled so often.
    pub(crate) async fn rolled(&self, name: &str, times: usize) {
        until(&format!("{name} is rolled {times} times and ready"), async || self.is_rolled(name, times).await).await;
    }

    /// Reasons and texts of the operator's events about an object.
    pub(crate) async fn events(&self, name: &str) -> Result<BTreeSet<(String, String)>> {
        let events = events_about(&self.client, &self.namespace, name).await?.into_iter();
        let ours = events.filter(|event| event.reporting_controller.as_deref() == Some(ACCOUNT));
        Ok(ours.map(|event| (event.reason.unwrap_or_default(), event.note.unwrap_or_default())).collect())
    }
}
