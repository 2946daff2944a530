//! A control plane with the operator installed, and a list.

use std::{collections::BTreeMap, time::Duration};

use konverge::{
    k8s_openapi::api::apps::v1::Deployment,
    kube::{
        Api, Client, ResourceExt,
        api::{DeleteParams, Patch, PatchParams, PostParams},
    },
    serde_json::{Value, from_value, json},
};
use konverge_testkit::{AuditEntry, ControlPlane, InstalledOperator, Options, Process, events_about, eventually};
use labelcopy_operator::ENTRY;

use crate::list::{FakeList, owned};

const PROGRAM: &str = "labelcopy-operator";
/// How long a test waits for what takes milliseconds on a machine at rest.
pub(crate) const LIMIT: Duration = Duration::from_mins(1);

pub(crate) struct Stage {
    plane: ControlPlane,
    operator: InstalledOperator,
    pub(crate) list: FakeList,
    client: Client,
    namespace: String,
}

impl Stage {
    /// The operator is installed, but does not run.
    pub(crate) async fn set() -> Self {
        let plane = ControlPlane::start(Options::ours()).await.unwrap();
        let client = plane.admin_client().await.unwrap();
        let home = plane.namespace("operator").await.unwrap();
        let files = labelcopy_operator::operator().generate(&home).unwrap();
        let operator = plane.install(PROGRAM, &home, &files.manifest()).await.unwrap();
        let namespace = plane.namespace("user").await.unwrap();
        Self { plane, operator, list: FakeList::start().await, client, namespace }
    }

    /// Starts the operator. It reads the list once a second.
    pub(crate) async fn start(&self) -> Process {
        let arguments = ["--leader-election", "--list-url", &self.list.url(), "--read-every", "1"];
        self.operator.start(PROGRAM, env!("CARGO_BIN_EXE_labelcopy-operator"), &arguments).await.unwrap()
    }

    /// All requests of the operator to the API server.
    pub(crate) async fn requests(&self) -> Vec<AuditEntry> {
        let log = self.plane.audit_log().unwrap();
        log.catch_up(&self.client).await.unwrap();
        self.operator.requests(&log).unwrap()
    }

    pub(crate) fn deployments(&self) -> Api<Deployment> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Creates a Deployment of one team that requests the entry of this name, or none.
    pub(crate) async fn create(&self, name: &str, entry: Option<&str>) {
        let annotations: BTreeMap<_, _> = entry.map(|entry| (ENTRY, entry)).into_iter().collect();
        let deployment = json!({
            "metadata": {"name": name, "labels": {"team": "shop"}, "annotations": annotations},
            "spec": {
                "replicas": 0,
                "selector": {"matchLabels": {"app": name}},
                "template": {
                    "metadata": {"labels": {"app": name}},
                    "spec": {"containers": [{"name": "main", "image": "registry.example.com/main:1"}]},
                },
            },
        });
        self.deployments().create(&PostParams::default(), &from_value(deployment).unwrap()).await.unwrap();
    }

    /// Merges into the metadata of a Deployment.
    pub(crate) async fn change(&self, name: &str, metadata: Value) {
        let patch = Patch::Merge(json!({ "metadata": metadata }));
        self.deployments().patch(name, &PatchParams::default(), &patch).await.unwrap();
    }

    /// Sets the annotation of a Deployment, or removes it.
    pub(crate) async fn request(&self, name: &str, entry: Option<&str>) {
        self.change(name, json!({ "annotations": { ENTRY: entry } })).await;
    }

    pub(crate) async fn delete(&self, name: &str) {
        self.deployments().delete(name, &DeleteParams::default()).await.unwrap();
    }

    /// Waits until the list has exactly these entries, each with the label `team`.
    pub(crate) async fn lists(&self, entries: &[(&str, &str)]) {
        let expected: BTreeMap<_, _> =
            entries.iter().map(|(name, team)| ((*name).to_owned(), owned(&[("team", team)]))).collect();
        self.until(&format!("the list has {expected:?}"), async || self.list.entries() == expected).await;
    }

    /// Waits until the Deployment is gone.
    pub(crate) async fn gone(&self, name: &str) {
        let what = format!("{name} is gone");
        self.until(&what, async || self.deployments().get_opt(name).await.unwrap().is_none()).await;
    }

    /// Waits until nothing of the operator keeps the Deployment from being deleted.
    pub(crate) async fn released(&self, name: &str) {
        self.until(&format!("{name} is released"), async || !self.is_held(name).await).await;
    }

    /// Whether the Deployment has a finalizer.
    pub(crate) async fn is_held(&self, name: &str) -> bool {
        !self.deployments().get(name).await.unwrap().finalizers().is_empty()
    }

    /// Waits for an event of this reason about the Deployment.
    pub(crate) async fn told(&self, name: &str, reason: &str) {
        self.until(&format!("{name} is told {reason}"), async || {
            let events = events_about(&self.client, &self.namespace, name).await.unwrap();
            events.iter().any(|event| event.reason.as_deref() == Some(reason))
        })
        .await;
    }

    async fn until(&self, what: &str, holds: impl AsyncFn() -> bool) {
        let found = eventually(LIMIT, || async { holds().await.then_some(()) }).await;
        assert!(found.is_ok(), "not in time: {what}; the list has {:?}", self.list.entries());
    }
}
