//! A Vault beside the stage, and objects that ask for rollouts for what it holds.

use std::path::{Path, PathBuf};

use konverge_roll::trigger::TriggerKind;
use konverge_testkit::ProcessSpec;
use konverge_testkit_stores::{VaultOptions, VaultServer};
use kube::{
    Api,
    api::{DynamicObject, Patch, PatchParams},
};
use serde_json::{Value, json};

use crate::{
    stage::{Result, operator},
    view::View,
};

/// The engine that secrets are in.
const ENGINE: &str = "secret";

/// The policy of the operator's token.
pub(crate) const POLICY: &str = "rollout";

/// The policy that is shipped.
const RULES: &str = include_str!("../../../../deploy/vault-policy-rollout.hcl");

/// With an engine, and a token in a file that may do what the shipped policy allows.
pub(crate) struct Vault {
    pub(crate) server: VaultServer,
    /// How often operators ask it.
    pub(crate) interval: &'static str,
    token_file: PathBuf,
}

impl Vault {
    pub(crate) async fn start(options: VaultOptions) -> Self {
        let server = VaultServer::start(options).await.unwrap();
        server.mount_kv(ENGINE, 2).await.unwrap();
        server.policy(POLICY, RULES).await.unwrap();
        let token_file = server.run_directory().path().join("VAULT_TOKEN");
        std::fs::write(&token_file, server.token(&[POLICY], json!({})).await.unwrap()).unwrap();
        Self { server, interval: "200ms", token_file }
    }

    /// Writes a version of a secret.
    pub(crate) async fn write(&self, path: &str, value: &str) {
        let body = json!({ "data": { "k": value } });
        self.server.request("POST", &format!("{ENGINE}/data/{path}"), &body).await.unwrap();
    }

    /// An operator of this Vault, and where it serves its health and metrics.
    pub(crate) fn operator(&self, kubeconfig: &Path, namespace: &str) -> (ProcessSpec, String) {
        let (spec, address) = operator(kubeconfig, namespace);
        let spec =
            spec.args(["--vault-url", &format!("{}/v1/", self.server.address()), "--vault-interval", self.interval]);
        (spec.arg("--vault-token-file").arg(&self.token_file), address)
    }
}

impl View {
    pub(crate) fn triggers(&self, kind: TriggerKind) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), &self.namespace, &kind.resource())
    }

    /// Applies an object that asks for rollouts of a Deployment for a secret, and has the Deployment's name.
    pub(crate) async fn asks(&self, kind: TriggerKind, deployment: &str, path: &str) -> Result<()> {
        let spec = match kind {
            TriggerKind::VaultSyncStatus => json!({
                "deployName": deployment, "deployNamespace": self.namespace, "secretEngine": ENGINE, "secretPath": path,
            }),
            TriggerKind::VaultRollout => json!({
                "vaultSecrets": [{ "mount": ENGINE, "path": path }],
                "targets": [{ "kind": "Deployment", "name": deployment }],
            }),
        };
        let metadata = json!({ "name": deployment });
        let object =
            json!({ "apiVersion": kind.api_version(), "kind": kind.name(), "metadata": metadata, "spec": spec });
        self.triggers(kind).patch(deployment, &PatchParams::apply("user").force(), &Patch::Apply(&object)).await?;
        Ok(())
    }

    /// The status of such an object.
    pub(crate) async fn status(&self, kind: TriggerKind, name: &str) -> Result<Value> {
        Ok(self.triggers(kind).get(name).await?.data["status"].take())
    }

    /// Returns the message of an object's condition with this reason, or `None` for another reason.
    pub(crate) async fn says(&self, kind: TriggerKind, name: &str, reason: &str) -> Result<Option<String>> {
        let status = self.status(kind, name).await?;
        let conditions = status["conditions"].as_array().into_iter().flatten();
        let mut ready = conditions.filter(|known| known["type"] == "Ready" && known["reason"] == reason);
        Ok(ready.next().map(|known| known["message"].as_str().unwrap_or_default().to_owned()))
    }
}
