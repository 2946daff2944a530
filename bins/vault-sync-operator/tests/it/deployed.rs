//! The program as its Deployment starts it: with those arguments, for all namespaces, logged in to Vault by its service account, under the
//! role and the policy that are shipped.

use std::{fs, path::PathBuf, time::Duration};

use konverge_testkit::{Process, ProcessSpec, free_port, http_get};
use kube::config::Kubeconfig;
use serde_json::{Value, json};

use crate::stage::{ACCOUNT, SOON, Stage, View, until};

const DEPLOYMENT: &str = include_str!("../../../../deploy/vault-sync-operator.yaml");

const POLICY: &str = include_str!("../../../../deploy/vault-policy.hcl");

/// The name of the role and of the policy in Vault, as the manifest says.
const ROLE: &str = "vault-sync-operator";

/// The method `kubernetes` as the manifest's head sets it up: Vault asks the API server with the token that it is given.
async fn enable_login(stage: &Stage, kubeconfig: &Value) {
    let server = &stage.server;
    server.policy(ROLE, POLICY).await.unwrap();
    server.request("POST", "sys/auth/kubernetes", &json!({ "type": "kubernetes" })).await.unwrap();
    let settings = json!({
        "kubernetes_host": kubeconfig["clusters"][0]["cluster"]["server"],
        "kubernetes_ca_cert": fs::read_to_string(stage.plane.run_directory().path().join("ca.crt")).unwrap(),
        // This Vault is in no pod.
        "disable_local_ca_jwt": true,
    });
    server.request("POST", "auth/kubernetes/config", &settings).await.unwrap();
    let role = json!({
        "bound_service_account_names": [ACCOUNT],
        "bound_service_account_namespaces": [stage.home],
        "token_policies": [ROLE],
        "token_ttl": "1h",
    });
    server.request("POST", &format!("auth/kubernetes/role/{ROLE}"), &role).await.unwrap();
}

/// The arguments of the manifest's container, and its health address. Another Vault and other ports are all that differs.
fn container(stage: &Stage) -> (Vec<String>, String) {
    let deployment = DEPLOYMENT.split("\n---\n").next().unwrap();
    let deployment: Value = serde_saphyr::from_str(deployment).unwrap();
    let container = &deployment["spec"]["template"]["spec"]["containers"][0];
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let health = format!("127.0.0.1:{}", free_port().unwrap());
    let metrics = format!("127.0.0.1:{}", free_port().unwrap());
    let replaced = [
        ("--vault-addr=https://vault.example.com:8200", format!("--vault-addr={}", stage.server.address())),
        ("--metrics-bind-address=:8080", format!("--metrics-bind-address={metrics}")),
        ("--health-probe-bind-address=:8081", format!("--health-probe-bind-address={health}")),
    ];
    let mut arguments: Vec<String> = container["args"].as_array().unwrap().iter().map(text).collect();
    for (shipped, ours) in replaced {
        let argument = arguments.iter_mut().find(|argument| *argument == shipped);
        *argument.unwrap_or_else(|| panic!("{shipped} is not in the manifest")) = ours;
    }
    (arguments, health)
}

async fn holds(view: &View, value: &str) {
    let (whole, used) = (view.path("whole"), view.path("app/db"));
    for (kind, name, path) in [("Secret", "db", &whole), ("Deployment", "app", &used)] {
        until(&format!("{kind} of {} is in sync with {value}", view.namespace), async || {
            Ok(view.holds(path, "password", value).await? && view.is_synced(kind, name, &[path]).await?)
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn as_its_deployment_starts_it_it_follows_all_namespaces_with_the_login_of_its_service_account() {
    let stage = Stage::set().await;
    let kubeconfig = serde_json::to_value(Kubeconfig::read_from(stage.kubeconfig()).unwrap()).unwrap();
    enable_login(&stage, &kubeconfig).await;
    // The files that the kubelet mounts into the pod.
    let token: PathBuf = stage.plane.run_directory().path().join("token-of-the-pod");
    fs::write(&token, kubeconfig["users"][0]["user"]["token"].as_str().unwrap()).unwrap();
    let (arguments, health) = container(&stage);
    assert!(!arguments.iter().any(|argument| argument.contains("namespace=") || argument.contains("token")));
    let spec = ProcessSpec::new("vault-sync-operator", env!("CARGO_BIN_EXE_vault-sync-operator")).args(&arguments);
    let spec = spec.env("VAULT_SYNC_KUBECONFIG", stage.kubeconfig()).env("VAULT_SYNC_VAULT_JWT_FILE", &token);
    let mut operator = Process::start(stage.plane.run_directory(), spec).unwrap();
    let is_ready = || async { http_get(&health, "/readyz").await.is_ok_and(|(code, _)| code == 200) };
    operator.ready("become ready", SOON, is_ready).await.unwrap();
    let mut views = Vec::new();
    for name in ["one", "two"] {
        let namespace = stage.plane.namespace(name).await.unwrap();
        views.push(stage.view(&namespace).await);
    }
    for value in ["first", "second"] {
        for view in &views {
            view.secret("db", &[("password", value)], Some(&view.path("whole"))).await.unwrap();
            view.deployment("app", "db", &view.path("app")).await.unwrap();
        }
        for view in &views {
            holds(view, value).await;
        }
    }
    for view in &views {
        for path in ["whole", "app/db"] {
            assert_eq!(view.versions(&view.path(path)).await.unwrap(), (2, true), "{path}");
        }
        for (kind, name, path) in [("Deployment", "app", "app/db"), ("Secret", "db", "whole")] {
            view.delete(kind, name).await.unwrap();
            until(&format!("{kind} is gone"), async || view.is_gone(kind, name).await).await;
            // After the grace period of deleted objects.
            until(&format!("{path} is cleared"), async || Ok(view.read(&view.path(path)).await?.is_none())).await;
        }
    }
    let said = operator.logged();
    assert!(!said.contains("OwnedByAnother") && !said.contains("OwnerNotMarked"), "{said}");
    operator.terminate(Duration::from_secs(20)).await.unwrap();
}
