//! An operator in this process with a real API server and real controllers, and people who use them.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    time::Duration,
};

use k8s_openapi::api::{apps::v1::ReplicaSet, core::v1::Secret};
use konverge_roll::run::assemble;
pub(crate) use konverge_testkit::until;
use konverge_testkit::{
    AuditEntry, ControlPlane, Options, events_about, fault_proxy::FaultProxy, http_get, make_pods_ready, metric,
    settled,
};
use konverge_workload::WorkloadKind;
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams},
    core::DynamicObject,
};
use serde_json::{Value, json};
use tokio::{
    sync::{OnceCell, watch},
    task::JoinHandle,
};
use tokio_util::sync::{CancellationToken, DropGuard};

/// Far longer than anything here takes, on a machine that does other things, too.
pub(crate) const SOON: Duration = Duration::from_secs(90);

/// An operator that has done nothing for so long has settled. Its queues keep a source or a trigger for half a second after the last run.
pub(crate) const QUIET: Duration = Duration::from_secs(1);

pub(crate) const ACCOUNT: &str = "vault-rollout-operator";
pub(crate) const HOME: &str = "vault-rollout-operator-system";
pub(crate) const ROLE: &str = include_str!("../../../../deploy/rbac/vault-rollout-operator.yaml");

/// The definitions that we ship.
pub(crate) const DEFINITION: &str = include_str!("../../../../deploy/crds/vaultsyncstatus.yaml");
pub(crate) const OWN_DEFINITION: &str = include_str!("../../../../deploy/crds/vaultrollouts.yaml");

/// The annotation for all sources that the pods use.
pub(crate) const ALL: &str = "roll.konverge.dev/on-change";

/// The flags of an operator that rolls a workload again at once.
pub(crate) const NO_REST: [&str; 2] = ["--min-interval", "0s"];

/// The annotation with the record.
const RECORD: &str = "roll.konverge.dev/record";

/// One for all tests of this binary; it ends with the process. It is ours even when a cluster is named: a test reads its audit log.
pub(crate) async fn control_plane() -> &'static ControlPlane {
    static CONTROL_PLANE: OnceCell<ControlPlane> = OnceCell::const_new();
    CONTROL_PLANE.get_or_init(new_control_plane).await
}

/// One for a test whose operator works in all namespaces.
pub(crate) async fn new_control_plane() -> ControlPlane {
    let control_plane = bare_control_plane().await;
    control_plane.apply(DEFINITION).await.unwrap();
    control_plane.apply(OWN_DEFINITION).await.unwrap();
    control_plane
}

/// A control plane that does not know our kinds.
pub(crate) async fn bare_control_plane() -> ControlPlane {
    ControlPlane::start(Options::ours().with(|options| options.controller_manager = true)).await.unwrap()
}

/// A namespace, and a person in it.
pub(crate) struct World {
    pub(crate) namespace: String,
    pub(crate) client: Client,
    kubeconfig: PathBuf,
    account: String,
    /// Whether pods may become ready.
    pods_go: watch::Sender<bool>,
    _kubelet: DropGuard,
}

/// An operator that runs until it is dropped or stopped.
pub(crate) struct Operator {
    shutdown: DropGuard,
    /// Where it serves its health and metrics.
    pub(crate) address: String,
    running: JoinHandle<()>,
}

impl Operator {
    /// The sum of a metric over all its label sets that contain `label`.
    pub(crate) async fn metric(&self, name: &str, label: &str) -> f64 {
        metric(&http_get(&self.address, "/metrics").await.unwrap().1, name, label)
    }

    /// Stops it and waits for its end.
    pub(crate) async fn stop(self) {
        drop(self.shutdown);
        self.running.await.unwrap();
    }
}

/// Neither the debounce nor the budget of an operator without flags.
const UNLIMITED: [&str; 4] =
    ["--debounce=0s", "--max-concurrent-rollouts=0", "--max-rollouts-per-minute=0", "--concurrent-per-namespace=0"];

impl World {
    pub(crate) async fn new() -> Self {
        Self::on(control_plane().await).await
    }

    pub(crate) async fn on(control_plane: &ControlPlane) -> Self {
        let namespace = control_plane.namespace("roll").await.unwrap();
        let home = control_plane.namespace("operator").await.unwrap();
        // Objects of the whole cluster are named after it, so that tests do not take each other's away.
        let manifest = ROLE
            .replace(HOME, &home)
            .replace(
                &format!("ClusterRole\nmetadata:\n  name: {ACCOUNT}"),
                &format!("ClusterRole\nmetadata:\n  name: {home}"),
            )
            .replace(&format!("kind: ClusterRole\n  name: {ACCOUNT}"), &format!("kind: ClusterRole\n  name: {home}"))
            .replace(
                &format!("ClusterRoleBinding\nmetadata:\n  name: {ACCOUNT}"),
                &format!("ClusterRoleBinding\nmetadata:\n  name: {home}"),
            );
        let installed = control_plane.install(ACCOUNT, &home, &manifest).await.unwrap();
        let client = control_plane.admin_client().await.unwrap();
        let stop = CancellationToken::new();
        let (pods_go, may_go) = watch::channel(true);
        let kubelet = Box::pin(make_pods_ready(Api::namespaced(client.clone(), &namespace), may_go));
        tokio::spawn({
            let stop = stop.clone();
            async move { stop.run_until_cancelled(kubelet).await }
        });
        let account = format!("system:serviceaccount:{home}:{ACCOUNT}");
        let kubeconfig = installed.kubeconfig().to_owned();
        Self { namespace, client, kubeconfig, account, pods_go, _kubelet: stop.drop_guard() }
    }

    /// A world with a Deployment `web` that uses the Secret `db` and is ready, and an operator that knows both.
    pub(crate) async fn with_web() -> (Self, Operator) {
        let world = Self::new().await;
        world.secret("db", "1").await;
        world.workload(WorkloadKind::Deployment, "web", &["db"], json!({ ALL: "true" })).await;
        let operator = world.operator(&NO_REST).await;
        world.noted(WorkloadKind::Deployment, "web").await;
        world.ready("web").await;
        (world, operator)
    }

    /// From now on no pod becomes ready.
    pub(crate) fn hold_pods(&self) {
        self.pods_go.send_replace(false);
    }

    /// They do again.
    pub(crate) fn let_pods_go(&self) {
        self.pods_go.send_replace(true);
    }

    /// Starts an operator for this world's namespace, which may do what the role that we ship lets it, and no more.
    pub(crate) async fn operator(&self, arguments: &[&str]) -> Operator {
        self.operator_everywhere(&[&["--namespace", &self.namespace], arguments].concat()).await
    }

    /// The same for all namespaces, on a control plane of its own.
    pub(crate) async fn operator_everywhere(&self, arguments: &[&str]) -> Operator {
        self.operator_through(&self.kubeconfig, arguments).await
    }

    /// A way to the API server on which things go wrong.
    pub(crate) async fn proxy(&self) -> FaultProxy {
        FaultProxy::start(control_plane().await.run_directory(), &self.kubeconfig).await.unwrap()
    }

    /// An operator that goes this way.
    pub(crate) async fn operator_through(&self, kubeconfig: &Path, arguments: &[&str]) -> Operator {
        Self::start(kubeconfig, &[&UNLIMITED, arguments].concat()).await
    }

    /// An operator with the debounce and the budget that it has without flags.
    pub(crate) async fn operator_by_default(&self) -> Operator {
        Self::start(&self.kubeconfig, &["--namespace", &self.namespace]).await
    }

    /// An operator of all namespaces without flags for its limits, on a control plane of its own.
    pub(crate) async fn operator_everywhere_by_default(&self) -> Operator {
        Self::start(&self.kubeconfig, &[]).await
    }

    async fn start(kubeconfig: &Path, arguments: &[&str]) -> Operator {
        let common = ["vault-rollout-operator", "--bind-address", "127.0.0.1:0"];
        let kubeconfig = ["--kubeconfig", kubeconfig.to_str().unwrap()];
        let given = [&common, kubeconfig.as_slice(), arguments].concat();
        let config = konverge_roll::config::arguments(given.iter().map(Into::into));
        let manager = assemble(config).await.unwrap();
        let (shutdown, address) = (manager.shutdown(), manager.address().to_string());
        let running = tokio::spawn(async { manager.run().await.unwrap() });
        Operator { shutdown: shutdown.drop_guard(), address, running }
    }

    /// The token of the operator's service account.
    pub(crate) fn token(&self) -> String {
        let kubeconfig: Value = serde_json::from_slice(&std::fs::read(&self.kubeconfig).unwrap()).unwrap();
        kubeconfig["users"][0]["user"]["token"].as_str().unwrap().to_owned()
    }

    pub(crate) fn api(&self, kind: WorkloadKind) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), &self.namespace, &kind.resource())
    }

    fn secrets(&self) -> Api<Secret> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// A Secret with this value of the key `k`.
    pub(crate) async fn secret(&self, name: &str, value: &str) {
        self.secret_with(name, &json!({ "k": value }), &json!({})).await;
    }

    pub(crate) async fn secret_with(&self, name: &str, data: &Value, annotations: &Value) {
        let object = json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": { "name": name, "annotations": annotations }, "stringData": data,
        });
        self.secrets().patch(name, &PatchParams::apply("user").force(), &Patch::Apply(&object)).await.unwrap();
    }

    /// Removes a key from a Secret.
    pub(crate) async fn without_key(&self, name: &str, key: &str) {
        let patch = Patch::Merge(json!({ "data": { key: null } }));
        self.secrets().patch(name, &PatchParams::default(), &patch).await.unwrap();
    }

    pub(crate) async fn delete_secret(&self, name: &str) {
        self.secrets().delete(name, &DeleteParams::default()).await.unwrap();
    }

    pub(crate) async fn config_map(&self, name: &str, value: &str) {
        let object = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name }, "data": { "k": value },
        });
        let api: Api<k8s_openapi::api::core::v1::ConfigMap> = Api::namespaced(self.client.clone(), &self.namespace);
        api.patch(name, &PatchParams::apply("user").force(), &Patch::Apply(&object)).await.unwrap();
    }

    /// A workload whose pods use these Secrets as a whole.
    pub(crate) async fn workload(&self, kind: WorkloadKind, name: &str, secrets: &[&str], annotations: Value) {
        let sources: Vec<_> = secrets.iter().map(|name| json!({ "secretRef": { "name": name } })).collect();
        self.workload_of(kind, name, json!({ "envFrom": sources }), annotations).await;
    }

    /// A workload with a container like this.
    pub(crate) async fn workload_of(&self, kind: WorkloadKind, name: &str, container: Value, annotations: Value) {
        self.workload_with(kind, name, (container, json!([])), annotations).await;
    }

    /// A workload with a container like this, and these volumes.
    pub(crate) async fn workload_with(
        &self,
        kind: WorkloadKind,
        name: &str,
        (mut container, volumes): (Value, Value),
        annotations: Value,
    ) {
        container["name"] = "main".into();
        container["image"] = "example.com/app".into();
        let labels = json!({ "app": name });
        let spec = json!({ "containers": [container], "volumes": volumes });
        let mut pod = json!({ "metadata": { "labels": labels }, "spec": spec });
        let selector = json!({ "matchLabels": labels });
        let spec = match kind {
            WorkloadKind::CronJob => {
                pod["spec"]["restartPolicy"] = "Never".into();
                json!({ "schedule": "@yearly", "suspend": true, "jobTemplate": { "spec": { "template": pod } } })
            }
            WorkloadKind::StatefulSet => json!({ "serviceName": name, "selector": selector, "template": pod }),
            _ => json!({ "selector": selector, "template": pod }),
        };
        let object = json!({
            "apiVersion": kind.api_version(), "kind": kind.name(),
            "metadata": { "name": name, "annotations": annotations, "labels": labels }, "spec": spec,
        });
        self.api(kind).patch(name, &PatchParams::apply("user").force(), &Patch::Apply(&object)).await.unwrap();
        if kind == WorkloadKind::Deployment {
            // A rollout that came before it would leave no second one.
            until(&format!("{name} has a first ReplicaSet"), async || {
                if self.templates(name).await > 0 { Ok(()) } else { Err("there is none") }
            })
            .await;
        }
    }

    /// Changes a part of a workload.
    pub(crate) async fn merge(&self, kind: WorkloadKind, name: &str, change: Value) {
        let patch = Patch::Merge(change);
        self.api(kind).patch(name, &PatchParams::default(), &patch).await.unwrap();
    }

    /// Waits until the operator has noted with what the pods run, which is from when a change is one.
    pub(crate) async fn noted(&self, kind: WorkloadKind, name: &str) -> Value {
        until(&format!("{name} has a record"), async || self.record(kind, name).await.ok_or_else(String::new)).await
    }

    /// Returns the record of a workload.
    pub(crate) async fn record(&self, kind: WorkloadKind, name: &str) -> Option<Value> {
        let object = self.api(kind).get_metadata(name).await.unwrap();
        serde_json::from_str(object.metadata.annotations?.get(RECORD)?).ok()
    }

    /// The annotations of the pods of a workload.
    pub(crate) async fn template(&self, kind: WorkloadKind, name: &str) -> Value {
        let object = self.api(kind).get(name).await.unwrap();
        let template = match kind {
            WorkloadKind::CronJob => "/spec/jobTemplate/spec/template/metadata/annotations",
            _ => "/spec/template/metadata/annotations",
        };
        object.data.pointer(template).cloned().unwrap_or_default()
    }

    /// The stamp on the pod template.
    pub(crate) async fn stamp(&self, kind: WorkloadKind, name: &str) -> Option<String> {
        self.template(kind, name).await["roll.konverge.dev/content"].as_str().map(str::to_owned)
    }

    /// How many changes of its pod template a Deployment has gone through: one is how it was made.
    pub(crate) async fn templates(&self, name: &str) -> usize {
        let api: Api<ReplicaSet> = Api::namespaced(self.client.clone(), &self.namespace);
        api.list_metadata(&ListParams::default().labels(&format!("app={name}"))).await.unwrap().items.len()
    }

    /// Waits until a Deployment has been rolled so often.
    pub(crate) async fn rolled(&self, name: &str, times: usize) {
        until(&format!("{name} is rolled {times} times"), async || {
            let templates = self.templates(name).await;
            if templates == times + 1 { Ok(()) } else { Err(format!("{templates} templates")) }
        })
        .await;
    }

    /// Waits until the rollout of a Deployment is done.
    pub(crate) async fn ready(&self, name: &str) {
        until(&format!("{name} is ready"), async || {
            let object = self.api(WorkloadKind::Deployment).get(name).await.unwrap();
            let count = |field: &str| object.data["status"][field].as_i64().unwrap_or_default();
            let is_seen = count("observedGeneration") == object.metadata.generation.unwrap_or_default();
            let is_ready = count("replicas") == 1 && count("updatedReplicas") == 1 && count("availableReplicas") == 1;
            if is_seen && is_ready { Ok(()) } else { Err(object.data["status"].to_string()) }
        })
        .await;
    }

    /// Waits for an event with this reason; gives its text.
    pub(crate) async fn event(&self, name: &str, reason: &str) -> String {
        until(&format!("{name} has an event {reason}"), async || {
            let events = self.events(name).await;
            let found = events.iter().find(|(known, _)| known == reason).map(|(_, note)| note.clone());
            found.ok_or_else(|| format!("{events:?}"))
        })
        .await
    }

    /// Reasons and texts of the events about an object.
    pub(crate) async fn events(&self, name: &str) -> BTreeSet<(String, String)> {
        let events = events_about(&self.client, &self.namespace, name).await.unwrap().into_iter();
        let ours = events.filter(|event| event.reporting_controller.as_deref() == Some(ACCOUNT));
        ours.map(|event| (event.reason.unwrap_or_default(), event.note.unwrap_or_default())).collect()
    }

    /// Waits until the operator has nothing left to do, and the controllers have seen what it did. After that, a test can say what was not rolled.
    pub(crate) async fn settled(&self, operator: &Operator) {
        self.settled_for(QUIET, operator).await;
    }

    /// The same for an operator that acts by a timer, too, at least once in this time.
    pub(crate) async fn settled_for(&self, quiet: Duration, operator: &Operator) {
        let get = async |path: &str| http_get(&operator.address, path).await.unwrap();
        until("the operator is ready", async || match get("/readyz").await {
            (200, _) => Ok(()),
            (_, why) => Err(why),
        })
        .await;
        settled(quiet, async || get("/metrics").await.1).await;
        until("the controllers have seen all Deployments", async || {
            let all = self.api(WorkloadKind::Deployment).list(&ListParams::default()).await.unwrap();
            let is_unseen = |object: &&DynamicObject| {
                object.data["status"]["observedGeneration"].as_i64() != object.metadata.generation
            };
            all.iter().find(is_unseen).map_or(Ok(()), |object| Err(object.name_any()))
        })
        .await;
    }

    /// Returns the requests of the operator while `during` is done, except events and watches.
    pub(crate) async fn requests_during(&self, during: impl Future<Output = ()>) -> Vec<AuditEntry> {
        let log = control_plane().await.audit_log().unwrap();
        // Earlier requests may not be in the log yet.
        log.catch_up(&self.client).await.unwrap();
        let log = log.from_now().unwrap();
        during.await;
        log.catch_up(&self.client).await.unwrap();
        let asked = log.entries_of(&self.account).unwrap().into_iter();
        // Argo Rollouts and the driver of classes are not installed here, and looked for from time to time.
        let apart = ["events", "rollouts", "secretproviderclasses"];
        asked.filter(|entry| !apart.contains(&&*entry.object_ref.resource) && entry.verb != "watch").collect()
    }
}
