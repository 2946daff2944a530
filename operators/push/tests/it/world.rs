//! An operator in this process between a real API server and a real Vault, and people who use both.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use k8s_openapi::api::{authorization::v1::SubjectAccessReview, rbac::v1::ClusterRole};
use konverge_core::SecretValue;
use konverge_push::{object::Kind, plugin::record_of, run::assemble};
use konverge_runtime::Metrics;
pub(crate) use konverge_testkit::until;
use konverge_testkit::{
    ARGO_ROLLOUTS, AuditEntry, ControlPlane, Options, events_about, fault_proxy::FaultProxy, http_get, settled,
};
use konverge_testkit_stores::{VaultOptions, VaultServer};
use konverge_vault::{
    Content, Credential, Expected, Field, Found, Limits, Location, Login, SecretPath, Vault, VaultConfig,
};
use kube::{
    Api, Client,
    api::{DeleteParams, Patch, PatchParams, PostParams},
    core::DynamicObject,
};
use serde_json::{Value, json};
use tokio::{sync::OnceCell, task::JoinHandle};
use tokio_util::sync::{CancellationToken, DropGuard};

/// Far longer than anything here takes.
pub(crate) const SOON: Duration = Duration::from_mins(1);

/// The operator's service account: that of the original.
const ACCOUNT: &str = "vault-sync-operator-controller-manager";

/// An operator that has done nothing for so long has settled.
pub(crate) const QUIET: Duration = Duration::from_secs(1);

/// One for all tests of this binary; it ends with the process. It is ours even when a cluster is named: a test reads its audit log.
pub(crate) async fn control_plane() -> &'static ControlPlane {
    static CONTROL_PLANE: OnceCell<ControlPlane> = OnceCell::const_new();
    CONTROL_PLANE
        .get_or_init(|| async {
            let control_plane = ControlPlane::start(Options::ours()).await.unwrap();
            control_plane.apply(DEFINITION).await.unwrap();
            control_plane.apply(ARGO_ROLLOUTS).await.unwrap();
            control_plane
        })
        .await
}

/// The definition that we ship.
pub(crate) const DEFINITION: &str = include_str!("../../../../deploy/crds/vaultpushes.yaml");

/// One for all tests that do it no harm; each has paths of its own.
async fn shared_vault() -> &'static VaultServer {
    static VAULT: OnceCell<VaultServer> = OnceCell::const_new();
    VAULT
        .get_or_init(|| async {
            let vault = VaultServer::start(VaultOptions::default()).await.unwrap();
            for (path, version) in [("secret", 2), ("kv", 2), ("clusters", 2), ("old", 1)] {
                vault.mount_kv(path, version).await.unwrap();
            }
            vault
        })
        .await
}

/// A namespace, paths in Vault, and a person with both.
pub(crate) struct World {
    control_plane: &'static ControlPlane,
    pub(crate) namespace: String,
    /// The operator's own namespace.
    pub(crate) home: String,
    pub(crate) client: Client,
    /// An administrator of Vault.
    pub(crate) vault: Vault,
    config: VaultConfig,
}

/// An operator that runs until it is dropped or stopped.
pub(crate) struct Operator {
    pub(crate) address: SocketAddr,
    metrics: Metrics,
    shutdown: DropGuard,
    running: JoinHandle<()>,
}

impl Operator {
    /// Its answer on the health port.
    pub(crate) async fn get(&self, path: &str) -> (u16, String) {
        http_get(&self.address.to_string(), path).await.unwrap()
    }

    /// The sum of a metric over all its series that contain `label`.
    pub(crate) fn metric(&self, name: &str, label: &str) -> f64 {
        let text = self.metrics.encode().unwrap();
        let lines = text.lines().filter(|line| line.split(['{', ' ']).next() == Some(name) && line.contains(label));
        lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
    }

    /// Waits until it has nothing left to do. After that, a test can say what it did not do.
    pub(crate) async fn settled(&self) {
        until("the operator is ready", async || match self.get("/readyz").await {
            (200, _) => Ok(()),
            (_, why) => Err(why),
        })
        .await;
        settled(QUIET, async || self.metrics.encode().unwrap()).await;
    }

    /// Stops it and waits for its end.
    pub(crate) async fn stop(self) {
        drop(self.shutdown);
        self.running.await.unwrap();
    }
}

pub(crate) fn vault_config(server: &VaultServer, token: &str) -> VaultConfig {
    let token = Credential::value(SecretValue::from(token.to_owned()));
    let limits = Limits::default().with(|limits| limits.deadline = Duration::from_secs(5));
    VaultConfig::new(server.address(), Login::Token(token)).unwrap().limits(limits)
}

impl World {
    pub(crate) async fn new() -> Self {
        Self::with(shared_vault().await).await
    }

    /// A world with a Vault of its own, which may be done harm.
    pub(crate) async fn with(server: &VaultServer) -> Self {
        Self::on(control_plane().await, server).await
    }

    /// The same on a control plane that is not that of the others.
    pub(crate) async fn on(control_plane: &'static ControlPlane, server: &VaultServer) -> Self {
        let namespace = control_plane.namespace("push").await.unwrap();
        let config = vault_config(server, server.root_token());
        let client = control_plane.admin_client().await.unwrap();
        let home = control_plane.namespace("operator").await.unwrap();
        Self { control_plane, namespace, home, client, vault: Vault::new(&config), config }
    }

    /// The kubeconfig of the operator's account, which may do what the role that we ship lets it, and no more.
    async fn kubeconfig(&self) -> PathBuf {
        let manifest = include_str!("../../../../deploy/rbac/vault-sync-operator.yaml")
            .replace("vault-sync-operator-system", &self.home)
            .replace("vault-sync-operator-manager-role", &format!("{}-manager-role", self.home))
            .replace("vault-sync-operator-auth-role", &format!("{}-auth-role", self.home))
            .replace("vault-sync-operator-metrics-reader", &format!("{}-metrics-reader", self.home));
        let installed = self.control_plane.install(ACCOUNT, &self.home, &manifest).await.unwrap();
        installed.kubeconfig().to_owned()
    }

    /// Takes the right to read Secrets from the operator's account, and waits until it has lost it.
    pub(crate) async fn may_not_get_secrets(&self) {
        let roles = Api::<ClusterRole>::all(self.client.clone());
        let name = format!("{}-manager-role", self.home);
        let mut role = roles.get(&name).await.unwrap();
        for rule in role.rules.iter_mut().flatten() {
            if rule.resources.as_ref().is_some_and(|resources| resources.iter().any(|resource| resource == "secrets")) {
                rule.verbs.retain(|verb| verb != "get");
            }
        }
        roles.replace(&name, &PostParams::default(), &role).await.unwrap();
        let asked = json!({ "metadata": {}, "spec": {
            "user": format!("system:serviceaccount:{}:{ACCOUNT}", self.home),
            "resourceAttributes": { "namespace": self.namespace, "verb": "get", "resource": "secrets" },
        } });
        let asked: SubjectAccessReview = serde_json::from_value(asked).unwrap();
        let reviews = Api::<SubjectAccessReview>::all(self.client.clone());
        until("the account may not read secrets", async || {
            let answer = reviews.create(&PostParams::default(), &asked).await.unwrap();
            if answer.status.is_some_and(|status| status.allowed) { Err("it may".to_owned()) } else { Ok(()) }
        })
        .await;
    }

    /// Starts an operator for this world's namespace.
    pub(crate) async fn operator(&self, arguments: &[&str]) -> Operator {
        self.operator_with(Vault::new(&self.config), arguments).await
    }

    pub(crate) async fn operator_with(&self, vault: Vault, arguments: &[&str]) -> Operator {
        self.operator_through(&self.kubeconfig().await, vault, arguments).await
    }

    /// A way to the API server on which things go wrong.
    pub(crate) async fn proxy(&self) -> FaultProxy {
        FaultProxy::start(self.control_plane.run_directory(), &self.kubeconfig().await).await.unwrap()
    }

    /// An operator that goes this way.
    pub(crate) async fn operator_by(&self, kubeconfig: &Path, arguments: &[&str]) -> Operator {
        self.operator_through(kubeconfig, Vault::new(&self.config), arguments).await
    }

    async fn operator_through(&self, kubeconfig: &Path, vault: Vault, arguments: &[&str]) -> Operator {
        let common =
            ["vault-sync-operator", "--health-probe-bind-address", "127.0.0.1:0", "--metrics-bind-address", "0"];
        // Most tests check which content is deleted, not when.
        let rest = [
            "--deletion-grace",
            "0s",
            "--allow-deletes",
            "--namespace",
            &self.namespace,
            "--kubeconfig",
            kubeconfig.to_str().unwrap(),
        ];
        let given = [&common, rest.as_slice(), arguments].concat();
        let config = konverge_push::config::arguments(given.iter().map(Into::into));
        let manager = assemble(config, vault).await.unwrap();
        let (address, metrics, shutdown) = (manager.address(), manager.metrics().clone(), manager.shutdown());
        let running = tokio::spawn(async { manager.run().await.unwrap() });
        Operator { address, metrics, shutdown: CancellationToken::drop_guard(shutdown), running }
    }

    /// A path of this test alone.
    pub(crate) fn path(&self, rest: &str) -> String {
        format!("secret/data/{}/{rest}", self.namespace)
    }

    pub(crate) fn api(&self, kind: Kind) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), &self.namespace, &kind.resource())
    }

    /// Applies what a person would.
    pub(crate) async fn apply(&self, kind: Kind, name: &str, mut object: Value) {
        object["apiVersion"] = kind.resource().api_version.into();
        object["kind"] = kind.name().into();
        object["metadata"]["name"] = name.into();
        self.api(kind).patch(name, &PatchParams::apply("user").force(), &Patch::Apply(&object)).await.unwrap();
    }

    /// A Secret with these values and annotations.
    pub(crate) async fn secret(&self, name: &str, data: &[(&str, &str)], annotations: Value) {
        let data: BTreeMap<_, _> = data.iter().copied().collect();
        self.apply(Kind::Secret, name, json!({ "metadata": { "annotations": annotations }, "stringData": data })).await;
    }

    /// Changes values of a Secret, as `kubectl patch` does.
    pub(crate) async fn rotate(&self, name: &str, data: &[(&str, &str)]) {
        let data: BTreeMap<_, _> = data.iter().copied().collect();
        let patch = Patch::Merge(json!({ "stringData": data }));
        self.api(Kind::Secret).patch(name, &PatchParams::default(), &patch).await.unwrap();
    }

    /// A `VaultPush` with this spec.
    /// The path may be that of Vault's API, as an annotation has it.
    pub(crate) async fn vault_push(&self, name: &str, mut spec: Value) {
        let path = spec["path"].as_str().unwrap().to_owned();
        if let Some((mount, path)) = path.split_once("/data/") {
            spec["mount"] = mount.into();
            spec["path"] = path.into();
        }
        self.apply(Kind::VaultPush, name, json!({ "spec": spec })).await;
    }

    /// A workload whose pods use these Secrets by `envFrom`.
    pub(crate) async fn workload(&self, kind: Kind, name: &str, secrets: &[&str], annotations: Value) {
        let sources: Vec<_> = secrets.iter().map(|name| json!({ "secretRef": { "name": name } })).collect();
        self.workload_of(kind, name, json!({ "envFrom": sources }), annotations).await;
    }

    /// A workload with a container like this.
    pub(crate) async fn workload_of(&self, kind: Kind, name: &str, mut container: Value, annotations: Value) {
        container["name"] = "main".into();
        container["image"] = "example.com/app".into();
        let labels = json!({ "app": name });
        let pod = json!({ "metadata": { "labels": labels }, "spec": { "containers": [container] } });
        let spec = match kind {
            Kind::Job => {
                let mut pod = pod;
                pod["spec"]["restartPolicy"] = "Never".into();
                json!({ "suspend": true, "template": pod })
            }
            Kind::CronJob => {
                let mut pod = pod;
                pod["spec"]["restartPolicy"] = "Never".into();
                json!({ "schedule": "@yearly", "suspend": true, "jobTemplate": { "spec": { "template": pod } } })
            }
            Kind::StatefulSet => {
                json!({ "serviceName": name, "selector": { "matchLabels": labels }, "template": pod })
            }
            _ => json!({ "selector": { "matchLabels": labels }, "template": pod }),
        };
        self.apply(kind, name, json!({ "metadata": { "annotations": annotations }, "spec": spec })).await;
    }

    /// Sets annotations, or removes those that are `null`.
    pub(crate) async fn annotate(&self, kind: Kind, name: &str, annotations: Value) {
        self.merge(kind, name, json!({ "metadata": { "annotations": annotations } })).await;
    }

    /// Changes a part of an object.
    pub(crate) async fn merge(&self, kind: Kind, name: &str, change: Value) {
        let patch = Patch::Merge(change);
        self.api(kind).patch(name, &PatchParams::default(), &patch).await.unwrap();
    }

    pub(crate) async fn delete(&self, kind: Kind, name: &str) {
        self.api(kind).delete(name, &DeleteParams::default()).await.unwrap();
    }

    /// Waits until there is no such object.
    pub(crate) async fn gone(&self, kind: Kind, name: &str) {
        until(&format!("{} {name} is gone", kind.name()), async || {
            match self.api(kind).get_metadata_opt(name).await.unwrap() {
                None => Ok(()),
                Some(object) => Err(format!("{:?}", object.metadata.finalizers)),
            }
        })
        .await;
    }

    pub(crate) async fn locate(&self, path: &str) -> Location {
        self.vault.locate(&SecretPath::parse(path).unwrap()).await.unwrap()
    }

    /// The content of a path, or `None` if there is none or it is deleted.
    pub(crate) async fn read(&self, path: &str) -> Option<BTreeMap<String, String>> {
        let text = |field: &Field| String::from_utf8_lossy(field.bytes()).into_owned();
        match self.vault.read(&self.locate(path).await).await.unwrap() {
            Found::Live(secret) => {
                Some(secret.content.iter().map(|(key, field)| (key.to_owned(), text(field))).collect())
            }
            Found::Absent | Found::Deleted(_) => None,
        }
    }

    /// Somebody writes in Vault.
    pub(crate) async fn write(&self, path: &str, fields: &[(&str, &str)]) {
        let content: Content =
            fields.iter().map(|(key, value)| ((*key).to_owned(), SecretValue::from((*value).to_owned()))).collect();
        self.vault.write(&self.locate(path).await, &content, Expected::Any).await.unwrap();
    }

    /// Waits until the path holds exactly this.
    pub(crate) async fn holds(&self, path: &str, expected: &[(&str, &str)]) {
        let expected: BTreeMap<String, String> =
            expected.iter().map(|&(key, value)| (key.to_owned(), value.to_owned())).collect();
        until(&format!("{path} holds {expected:?}"), async || {
            let held = self.read(path).await;
            if held.as_ref() == Some(&expected) { Ok(()) } else { Err(format!("{held:?}")) }
        })
        .await;
    }

    /// Waits until nothing can be read there.
    pub(crate) async fn is_deleted(&self, path: &str) {
        until(&format!("{path} is deleted"), async || match self.read(path).await {
            None => Ok(()),
            Some(held) => Err(format!("{:?}", held.keys())),
        })
        .await;
    }

    /// How many versions were written at a path.
    pub(crate) async fn versions(&self, path: &str) -> u64 {
        let location = self.locate(path).await;
        self.vault.metadata(&location).await.unwrap().map_or(0, |metadata| metadata.current_version)
    }

    /// The custom metadata of a path.
    pub(crate) async fn marks(&self, path: &str) -> BTreeMap<String, String> {
        let location = self.locate(path).await;
        self.vault.metadata(&location).await.unwrap().map(|metadata| metadata.custom_metadata).unwrap_or_default()
    }

    /// The record on an object.
    pub(crate) async fn record(&self, kind: Kind, name: &str) -> Option<Value> {
        if kind == Kind::VaultPush {
            let object = self.api(kind).get_opt(name).await.unwrap()?;
            // A status of an earlier spec says nothing of this one.
            let record = record_of(&object).filter(|record| record.generation == object.metadata.generation)?;
            return Some(serde_json::to_value(record).unwrap());
        }
        let object = self.api(kind).get_metadata_opt(name).await.unwrap()?;
        serde_json::from_str(object.metadata.annotations?.get("vault-sync.io/status")?).ok()
    }

    /// Waits until the object says so of itself; gives the message that goes with it.
    pub(crate) async fn says(&self, kind: Kind, name: &str, state: &str) -> String {
        until(&format!("{} {name} is {state}", kind.name()), async || {
            let record = self.record(kind, name).await.ok_or("no record")?;
            if record["state"] == state {
                Ok(record["message"].as_str().unwrap_or_default().to_owned())
            } else {
                Err(record.to_string())
            }
        })
        .await
    }

    /// Waits for an event with this reason; gives its text.
    pub(crate) async fn event(&self, name: &str, reason: &str) -> String {
        until(&format!("{name} has an event {reason}"), async || {
            let events = self.events(name).await;
            let seen: Vec<_> = events.iter().filter_map(|event| event.reason.clone()).collect();
            let found = events.into_iter().find(|event| event.reason.as_deref() == Some(reason));
            found.and_then(|event| event.note).ok_or_else(|| format!("{seen:?}"))
        })
        .await
    }

    /// Waits until the event with this reason was renewed; gives how often it was seen.
    pub(crate) async fn renewed(&self, name: &str, reason: &str) -> i32 {
        until(&format!("the event {reason} of {name} is renewed"), async || {
            let events = self.events(name).await;
            let found = events.iter().find(|event| event.reason.as_deref() == Some(reason));
            let series = found.and_then(|event| event.series.as_ref());
            series.map(|series| series.count).ok_or_else(|| format!("{found:?}"))
        })
        .await
    }

    /// The notes of the events about an object.
    pub(crate) async fn notes(&self, name: &str) -> Vec<String> {
        self.events(name).await.into_iter().filter_map(|event| event.note).collect()
    }

    async fn events(&self, name: &str) -> Vec<k8s_openapi::api::events::v1::Event> {
        events_about(&self.client, &self.namespace, name).await.unwrap()
    }

    /// The writes of the operator on objects from now on until `during` is over, events apart.
    pub(crate) async fn writes_during(&self, during: impl Future<Output = ()>) -> Vec<AuditEntry> {
        let is_write = |entry: &AuditEntry| entry.is_mutating() && entry.object_ref.resource != "events";
        self.asked_during(during).await.into_iter().filter(is_write).collect()
    }

    /// All that the operator asks of the API server from now on until `during` is over.
    pub(crate) async fn asked_during(&self, during: impl Future<Output = ()>) -> Vec<AuditEntry> {
        let log = self.control_plane.audit_log().unwrap();
        // Earlier requests may not be in the log yet.
        log.catch_up(&self.client).await.unwrap();
        let log = log.from_now().unwrap();
        during.await;
        log.catch_up(&self.client).await.unwrap();
        let account = format!("system:serviceaccount:{}:{ACCOUNT}", self.home);
        log.entries_of(&account).unwrap()
    }
}
