//! A Vault beside the API server, with a token that may do what the original's may.

use std::{path::PathBuf, sync::Arc};

use konverge_testkit::{RunDirectory, VaultOptions, VaultServer};
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams},
    core::{ApiResource, DynamicObject},
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

/// One for all tests that do it no harm; each has paths of its own.
pub(super) async fn shared_vault() -> Arc<VaultServer> {
    static VAULT: OnceCell<Arc<VaultServer>> = OnceCell::const_new();
    let start = || async { Arc::new(new_vault().await) };
    Arc::clone(VAULT.get_or_init(start).await)
}

pub(super) async fn new_vault() -> VaultServer {
    let vault = VaultServer::start(VaultOptions::default()).await.unwrap();
    for (path, version) in [("secret", 2), ("old", 1)] {
        vault.mount_kv(path, version).await.unwrap();
    }
    vault.policy("rollout", POLICY).await.unwrap();
    vault.policy("rollout-content", CONTENT_POLICY).await.unwrap();
    vault
}

/// A namespace, paths in Vault, and a person with both.
pub(super) struct VaultWorld {
    pub(super) world: World,
    pub(super) vault: Arc<VaultServer>,
    folder: RunDirectory,
}

impl VaultWorld {
    pub(super) async fn new() -> Self {
        Self::with(shared_vault().await).await
    }

    /// With a Vault of its own, which may be done harm.
    pub(super) async fn with(vault: Arc<VaultServer>) -> Self {
        Self::on(World::new().await, vault).await
    }

    pub(super) async fn on(world: World, vault: Arc<VaultServer>) -> Self {
        let folder = RunDirectory::new().unwrap();
        let this = Self { world, vault, folder };
        this.log_in("rollout").await;
        this
    }

    /// Gives the operator a new token with this policy.
    pub(super) async fn log_in(&self, policy: &str) {
        let token = self.vault.token(&[policy], json!({})).await.unwrap();
        std::fs::write(self.token_file(), token).unwrap();
    }

    pub(super) fn token_file(&self) -> PathBuf {
        self.folder.path().join("VAULT_TOKEN")
    }

    /// An operator that asks Vault each second.
    pub(super) async fn operator(&self, arguments: &[&str]) -> Operator {
        self.operator_at(self.vault.address(), arguments).await
    }

    pub(super) async fn operator_at(&self, address: &str, arguments: &[&str]) -> Operator {
        let reach = self.reach(address);
        let reach: Vec<_> = reach.iter().map(String::as_str).collect();
        self.world.operator(&[&reach, arguments].concat()).await
    }

    /// How Vault is reached, and asked each second.
    pub(super) fn reach(&self, address: &str) -> [String; 5] {
        let url = format!("--vault-url={address}/v1/");
        let token = format!("--vault-token-file={}", self.token_file().display());
        [url, token, "--vault-interval=1s".into(), "--min-interval=0s".into(), "--vault-timeout=5s".into()]
    }

    /// The path of a secret of this test alone, beneath its engine.
    pub(super) fn path(&self, name: &str) -> String {
        format!("{}/{name}", self.world.namespace)
    }

    /// Writes a version.
    pub(super) async fn write(&self, name: &str, value: &str) {
        let path = format!("secret/data/{}", self.path(name));
        self.vault.request("POST", &path, &json!({ "data": { "k": value, "other": "same" } })).await.unwrap();
    }

    /// Any other request about a secret.
    pub(super) async fn vault_does(&self, method: &str, route: &str, name: &str, body: Value) {
        self.vault.request(method, &format!("secret/{route}/{}", self.path(name)), &body).await.unwrap();
    }

    /// What the original's sample says, for the Deployment `web` and the secret `app`.
    pub(super) fn sample(&self) -> Value {
        json!({
            "deployName": "web", "deployNamespace": self.world.namespace, "secretEngine": "secret",
            "secretPath": self.path("app"), "timeStamp": "0000-00-00T00:00:00.000000000Z",
        })
    }

    pub(super) fn api(&self) -> Api<DynamicObject> {
        let resource = ApiResource {
            group: "stable.example.com".to_owned(),
            version: "v1".to_owned(),
            api_version: "stable.example.com/v1".to_owned(),
            kind: "VaultSyncStatus".to_owned(),
            plural: "vaultsyncstatus".to_owned(),
        };
        Api::namespaced_with(self.world.client.clone(), &self.world.namespace, &resource)
    }

    /// Applies an object with this spec.
    pub(super) async fn vss(&self, name: &str, spec: &Value) {
        let object = json!({
            "apiVersion": "stable.example.com/v1", "kind": "VaultSyncStatus", "metadata": { "name": name }, "spec": spec,
        });
        self.api().patch(name, &PatchParams::apply("user").force(), &Patch::Apply(&object)).await.unwrap();
    }

    pub(super) async fn merge(&self, name: &str, change: Value) {
        self.api().patch(name, &PatchParams::default(), &Patch::Merge(change)).await.unwrap();
    }

    pub(super) async fn delete(&self, name: &str) {
        self.api().delete(name, &DeleteParams::default()).await.unwrap();
    }

    pub(super) async fn object(&self, name: &str) -> Value {
        serde_json::to_value(self.api().get(name).await.unwrap()).unwrap()
    }

    /// Waits until the object says this of itself; gives its message.
    pub(super) async fn says(&self, name: &str, reason: &str) -> String {
        until(&format!("{name} says {reason}"), async || {
            let object = self.object(name).await;
            let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
            let ready = conditions.iter().find(|condition| condition["type"] == "Ready");
            match ready.filter(|ready| ready["reason"] == reason) {
                Some(ready) => Ok(ready["message"].as_str().unwrap_or_default().to_owned()),
                None => Err(object["status"].to_string()),
            }
        })
        .await
    }

    /// Waits until the object has this word of the original.
    pub(super) async fn is(&self, name: &str, word: &str) {
        until(&format!("{name} is {word}"), async || {
            let status = self.object(name).await["status"].take();
            if status["vault_sync"]["SyncStatus"] == word { Ok(()) } else { Err(status.to_string()) }
        })
        .await;
    }

    /// The version that the pods run with, as the object has it.
    pub(super) async fn version(&self, name: &str) -> Value {
        self.object(name).await["status"]["baseline"][0]["version"].take()
    }
}
