//! The operator, crashed at every write of both its controllers, and told nothing of the success of every one (F01, F02; I1, I5, I6).

use std::path::Path;

use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use konverge_testkit::{
    ControlPlane, Options, ProcessSpec,
    crash::{CrashTest, Scenario, snapshot},
    free_port,
};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{ApiResource, DeleteParams, Patch, PatchParams, PostParams},
    core::object::HasStatus,
};
use multicontroller_operator::{secret_sync::SecretSync, service_account_sync::ServiceAccountSync, sync::SyncStatus};
use serde_json::{Value, json};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// The Secret with the key of the proofs and the record of the owned kinds.
const OWNER_KEY: &str = "multicontroller-operator-owner-key";

/// An object of each kind is made, changed, and one of them is deleted, while both controllers write.
struct Both;

impl Scenario for Both {
    fn name(&self) -> &'static str {
        "both"
    }

    fn steps(&self) -> usize {
        3
    }

    fn operator(&self, kubeconfig: &Path, namespace: &str) -> ProcessSpec {
        let address = format!("127.0.0.1:{}", free_port().unwrap());
        ProcessSpec::new("operator", env!("CARGO_BIN_EXE_multicontroller-operator"))
            .arg("--kubeconfig")
            .arg(kubeconfig)
            .args(["--namespace", namespace, "--lease-namespace", namespace, "--address", &address])
    }

    async fn change(&self, step: usize, client: &Client, namespace: &str) -> Result<()> {
        let secrets = Api::<SecretSync>::namespaced(client.clone(), namespace);
        let accounts = Api::<ServiceAccountSync>::namespaced(client.clone(), namespace);
        match step {
            0 => {
                let spec = json!({ "targetNamespace": namespace, "stringData": { "password": "one", "user": "app" } });
                secrets.create(&PostParams::default(), &object("SecretSync", &spec)?).await?;
                let spec = json!({ "targetNamespace": namespace, "imagePullSecrets": ["registry"] });
                accounts.create(&PostParams::default(), &object("ServiceAccountSync", &spec)?).await?;
            }
            1 => {
                let change = json!({ "spec": { "stringData": { "password": "two", "user": null } } });
                secrets.patch("app", &PatchParams::default(), &Patch::Merge(change)).await?;
                let change = json!({ "spec": { "imagePullSecrets": null } });
                accounts.patch("app", &PatchParams::default(), &Patch::Merge(change)).await?;
            }
            _ => {
                secrets.delete("app", &DeleteParams::default()).await?;
            }
        }
        Ok(())
    }

    async fn is_converged(&self, step: usize, client: &Client, namespace: &str) -> Result<bool> {
        let sync = Api::<SecretSync>::namespaced(client.clone(), namespace).get_opt("app").await?;
        let account_sync = Api::<ServiceAccountSync>::namespaced(client.clone(), namespace).get_opt("app").await?;
        let secret = Api::<Secret>::namespaced(client.clone(), namespace).get_opt("ss-app").await?;
        let account = Api::<ServiceAccount>::namespaced(client.clone(), namespace).get_opt("sas-app").await?;
        let (mut data, pulls) = (
            secret.clone().and_then(|secret| secret.data).unwrap_or_default().into_iter(),
            account.and_then(|account| account.image_pull_secrets).unwrap_or_default().len(),
        );
        let password = data.find(|(key, _)| key == "password").map(|(_, value)| value.0);
        // Each controller records its kinds by itself, and a lost reply delays the record beyond the objects.
        let keys = Api::<Secret>::namespaced(client.clone(), namespace).get_opt(OWNER_KEY).await?;
        let are_kinds_recorded = keys.is_some_and(|keys| keys.annotations().len() == 2);
        let accounts_right = is_ready(account_sync.as_ref()) && pulls == usize::from(step == 0);
        Ok(are_kinds_recorded
            && accounts_right
            && match step {
                0 => is_ready(sync.as_ref()) && password.as_deref() == Some(b"one"),
                1 => is_ready(sync.as_ref()) && password.as_deref() == Some(b"two"),
                _ => sync.is_none() && secret.is_none(),
            })
    }

    async fn end_state(&self, client: &Client, namespace: &str) -> Result<Value> {
        let kinds = [
            ApiResource::erase::<Secret>(&()),
            ApiResource::erase::<ServiceAccount>(&()),
            ApiResource::erase::<SecretSync>(&()),
            ApiResource::erase::<ServiceAccountSync>(&()),
        ];
        let mut state = snapshot(client, namespace, &kinds).await?;
        // The copy that is left says by a uid whose it is.
        for account in state["serviceaccounts"].as_array_mut().into_iter().flatten() {
            account["metadata"]["labels"]["konverge.dev/owner-uid"] = "<uid>".into();
        }
        // The key of the proofs is random.
        for secret in state["secrets"].as_array_mut().into_iter().flatten() {
            if secret["metadata"]["name"] == OWNER_KEY {
                secret["data"] = Value::Null;
            }
        }
        Ok(state)
    }
}

fn object<K: serde::de::DeserializeOwned>(kind: &str, spec: &Value) -> Result<K> {
    let object =
        json!({ "apiVersion": "example.io/v1alpha1", "kind": kind, "metadata": { "name": "app" }, "spec": spec });
    Ok(serde_json::from_value(object)?)
}

fn is_ready<K: Resource + HasStatus<Status = SyncStatus>>(object: Option<&K>) -> bool {
    object.is_some_and(|object| {
        let ready = object.status().and_then(|status| status.standard.conditions.get("Ready"));
        ready.is_some_and(|ready| ready.status == "True" && ready.observed_generation == object.meta().generation)
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn it_survives_a_crash_at_every_write() {
    let plane = ControlPlane::start(Options::ours()).await.unwrap();
    let namespace = plane.namespace("operator").await.unwrap();
    let files = multicontroller_operator::operator().generate(&namespace).unwrap();
    plane.install("multicontroller-operator", &namespace, &files.manifest()).await.unwrap();
    let mut test = CrashTest::new(&plane, &Both);
    // Each run has a namespace and a lease of its own.
    test.at_once = 4;
    test.run().await.unwrap().verdict().unwrap();
}
