//! A Vault beside the API server, with a token that may do what the original's may.

use std::{path::PathBuf, sync::Arc, time::Duration};

use konverge_roll::trigger::TriggerKind;
use konverge_testkit::RunDirectory;
use konverge_testkit_stores::{VaultOptions, VaultServer};
use konverge_workload::WorkloadKind::Deployment;
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams},
    core::DynamicObject,
};
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use crate::world::{Operator, World, until};

/// The policy that the original's documentation asks for.
const POLICY: &str = r#"path "+/metadata/*" { capabilities = ["read", "list"] }"#;

/// The same, and what content needs.
const CONTENT_POLICY: &str = r#"
path "+/metadata/*" { capabilities = ["read", "list"] }
path "secret/data/*" { capabilities = ["read"] }
path "old/*" { capabilities = ["read"] }
"#;

/// An operator that asks Vault each second, give or take a tenth, has asked within this time.
const QUIET: Duration = Duration::from_millis(1500);

/// One for all tests that do it no harm; each has paths of its own.
pub(crate) async fn shared_vault() -> Arc<VaultServer> {
    static VAULT: OnceCell<Arc<VaultServer>> = OnceCell::const_new();
    let start = || async { Arc::new(new_vault().await) };
    Arc::clone(VAULT.get_or_init(start).await)
}

pub(crate) async fn new_vault() -> VaultServer {
    let vault = VaultServer::start(VaultOptions::default()).await.unwrap();
    for (path, version) in [("secret", 2), ("old", 1)] {
        vault.mount_kv(path, version).await.unwrap();
    }
    vault.policy("rollout", POLICY).await.unwrap();
    vault.policy("rollout-content", CONTENT_POLICY).await.unwrap();
    vault
}

/// A namespace, paths in Vault, and a person with both.
pub(crate) struct VaultWorld {
    pub(crate) world: World,
    pub(crate) vault: Arc<VaultServer>,
    folder: RunDirectory,
}

impl VaultWorld {
    pub(crate) async fn new() -> Self {
        Self::with(shared_vault().await).await
    }

    /// With a Vault of its own, which may be done harm.
    pub(crate) async fn with(vault: Arc<VaultServer>) -> Self {
        Self::on(World::new().await, vault).await
    }

    pub(crate) async fn on(world: World, vault: Arc<VaultServer>) -> Self {
        let folder = RunDirectory::new().unwrap();
        let this = Self { world, vault, folder };
        this.log_in("rollout").await;
        this
    }

    /// Gives the operator a new token with this policy.
    pub(crate) async fn log_in(&self, policy: &str) {
        let token = self.vault.token(&[policy], json!({})).await.unwrap();
        std::fs::write(self.token_file(), token).unwrap();
    }

    pub(crate) fn token_file(&self) -> PathBuf {
        self.folder.path().join("VAULT_TOKEN")
    }

    /// An operator that asks Vault each second.
    pub(crate) async fn operator(&self, arguments: &[&str]) -> Operator {
        self.operator_at(self.vault.address(), arguments).await
    }

    pub(crate) async fn operator_at(&self, address: &str, arguments: &[&str]) -> Operator {
        let reach = self.reach(address);
        let reach: Vec<_> = reach.iter().map(String::as_str).collect();
        self.world.operator(&[&reach, arguments].concat()).await
    }

    /// Waits until the operator has nothing left to do, after another look at Vault.
    pub(crate) async fn settled(&self, operator: &Operator) {
        self.world.settled_for(QUIET, operator).await;
    }

    /// How Vault is reached, and asked each second.
    pub(crate) fn reach(&self, address: &str) -> [String; 5] {
        let url = format!("--vault-url={address}/v1/");
        let token = format!("--vault-token-file={}", self.token_file().display());
        [url, token, "--vault-interval=1s".into(), "--min-interval=0s".into(), "--vault-timeout=5s".into()]
    }

    /// The path of a secret of this test alone, beneath its engine.
    pub(crate) fn path(&self, name: &str) -> String {
        format!("{}/{name}", self.world.namespace)
    }

    /// Writes a version.
    pub(crate) async fn write(&self, name: &str, value: &str) {
        let path = format!("secret/data/{}", self.path(name));
        self.vault.request("POST", &path, &json!({ "data": { "k": value, "other": "same" } })).await.unwrap();
    }

    /// Any other request about a secret.
    pub(crate) async fn vault_does(&self, method: &str, route: &str, name: &str, body: Value) {
        self.vault.request(method, &format!("secret/{route}/{}", self.path(name)), &body).await.unwrap();
    }

    /// The sample of the original, for the Deployment `web` and the secret `app`.
    pub(crate) fn sample(&self) -> Value {
        json!({
            "deployName": "web", "deployNamespace": self.world.namespace, "secretEngine": "secret",
            "secretPath": self.path("app"), "timeStamp": "0000-00-00T00:00:00.000000000Z",
        })
    }

    pub(crate) fn api(&self) -> Api<DynamicObject> {
        self.api_of(TriggerKind::VaultSyncStatus)
    }

    pub(crate) fn api_of(&self, kind: TriggerKind) -> Api<DynamicObject> {
        Api::namespaced_with(self.world.client.clone(), &self.world.namespace, &kind.resource())
    }

    /// Applies a `VaultRollout` with this spec.
    pub(crate) async fn try_rollout(&self, name: &str, spec: &Value) -> kube::Result<DynamicObject> {
        let object = json!({
            "apiVersion": "konverge.dev/v1alpha1", "kind": "VaultRollout", "metadata": { "name": name }, "spec": spec,
        });
        let api = self.api_of(TriggerKind::VaultRollout);
        api.patch(name, &PatchParams::apply("user").force(), &Patch::Apply(&object)).await
    }

    pub(crate) async fn rollout(&self, name: &str, spec: &Value) {
        self.try_rollout(name, spec).await.unwrap();
    }

    /// Applies an object of this kind that asks for the Deployment `web` and the secret `app`.
    pub(crate) async fn ask(&self, kind: TriggerKind, name: &str) {
        self.ask_with(kind, name, json!({})).await;
    }

    /// The same with these fields beside.
    pub(crate) async fn ask_with(&self, kind: TriggerKind, name: &str, more: Value) {
        let secrets = || json!([{ "mount": "secret", "path": self.path("app") }]);
        let targets = || json!([{ "kind": "Deployment", "name": "web" }]);
        let mut spec = match kind {
            TriggerKind::VaultSyncStatus => self.sample(),
            TriggerKind::VaultRollout => json!({ "vaultSecrets": secrets(), "targets": targets() }),
        };
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        match kind {
            TriggerKind::VaultSyncStatus => self.vss(name, &spec).await,
            TriggerKind::VaultRollout => self.rollout(name, &spec).await,
        }
    }

    /// Has the pods of the Deployment `web` run with the first version of the secret `app`, and an object of this kind say so.
    pub(crate) async fn in_sync(&self, kind: TriggerKind, name: &str, arguments: &[&str]) -> Operator {
        self.write("app", "1").await;
        self.world.workload(Deployment, "web", &[], json!({})).await;
        self.ask(kind, name).await;
        let operator = self.operator(arguments).await;
        self.condition(kind, name, "Ready", "InSync").await;
        operator
    }

    /// Applies an object with this spec.
    pub(crate) async fn vss(&self, name: &str, spec: &Value) {
        let object = json!({
            "apiVersion": "stable.example.com/v1", "kind": "VaultSyncStatus", "metadata": { "name": name }, "spec": spec,
        });
        self.api().patch(name, &PatchParams::apply("user").force(), &Patch::Apply(&object)).await.unwrap();
    }

    pub(crate) async fn merge(&self, name: &str, change: Value) {
        self.api().patch(name, &PatchParams::default(), &Patch::Merge(change)).await.unwrap();
    }

    pub(crate) async fn delete(&self, name: &str) {
        self.api().delete(name, &DeleteParams::default()).await.unwrap();
    }

    pub(crate) async fn object(&self, name: &str) -> Value {
        self.object_of(TriggerKind::VaultSyncStatus, name).await
    }

    pub(crate) async fn object_of(&self, kind: TriggerKind, name: &str) -> Value {
        serde_json::to_value(self.api_of(kind).get(name).await.unwrap()).unwrap()
    }

    /// Waits until the object has this condition with this reason; gives its message.
    pub(crate) async fn condition(&self, kind: TriggerKind, name: &str, condition: &str, reason: &str) -> String {
        until(&format!("{name} has {condition} {reason}"), async || {
            let object = self.object_of(kind, name).await;
            let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
            let found = conditions.iter().find(|known| known["type"] == condition && known["reason"] == reason);
            match found {
                Some(found) => Ok(found["message"].as_str().unwrap_or_default().to_owned()),
                None => Err(object["status"].to_string()),
            }
        })
        .await
    }

    /// Waits until the object says this of itself; gives its message.
    pub(crate) async fn says(&self, name: &str, reason: &str) -> String {
        self.condition(TriggerKind::VaultSyncStatus, name, "Ready", reason).await
    }

    /// Waits until the object has this word of the original.
    pub(crate) async fn is(&self, name: &str, word: &str) {
        until(&format!("{name} is {word}"), async || {
            let status = self.object(name).await["status"].take();
            if status["vault_sync"]["SyncStatus"] == word { Ok(()) } else { Err(status.to_string()) }
        })
        .await;
    }

    /// The version that the pods run with, as the object has it.
    pub(crate) async fn version(&self, name: &str) -> Value {
        self.object(name).await["status"]["baseline"][0]["version"].take()
    }
}
