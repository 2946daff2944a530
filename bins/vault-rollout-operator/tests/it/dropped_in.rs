//! The program in the place of the original: in a pod with the original's variable and its `ConfigMap`, and nothing else, with an object as the
//! original has left it (A11, A17; R4).

use std::{fs, path::Path};

use konverge_roll::trigger::TriggerKind::VaultSyncStatus;
use konverge_testkit::{ProcessSpec, free_port};
use konverge_testkit_stores::VaultOptions;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use crate::{
    stage::{ACCOUNT, Stage, until},
    vault::{POLICY, Vault},
};

/// The root directory of a pod, with the `ConfigMap` of the original and the service account mounted. Nothing of
/// the test's own variables is there.
const POD: &str = r#"
set -e
mount -t tmpfs none /etc
mkdir /etc/config
mount --bind "$1" /etc/config
mount -t tmpfs none /run
mkdir -p /var/run/secrets/kubernetes.io/serviceaccount
mount --bind "$2" /var/run/secrets/kubernetes.io/serviceaccount
shift 2
exec env -i "$@"
"#;

/// The files that a pod gets of its service account.
fn service_account(folder: &Path, kubeconfig: &Path, namespace: &str, authority: &Path) -> String {
    let kubeconfig: Value = serde_json::from_slice(&fs::read(kubeconfig).unwrap()).unwrap();
    let token = kubeconfig["users"][0]["user"]["token"].as_str().unwrap();
    fs::create_dir(folder).unwrap();
    fs::write(folder.join("token"), token).unwrap();
    fs::write(folder.join("namespace"), namespace).unwrap();
    fs::copy(authority, folder.join("ca.crt")).unwrap();
    kubeconfig["clusters"][0]["cluster"]["server"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a11_a17_r4_the_originals_environment_is_enough() {
    // It works in all namespaces, as the original does, and would work in those of other tests.
    let stage = Stage::set().await;
    let view = stage.view("dropped").await;
    let vault = Vault::start(VaultOptions::default()).await;
    vault.write("app", "1").await;
    let metadata = vault.server.request("GET", "secret/metadata/app", &Value::Null).await.unwrap();
    view.secret("unchanged", "1").await.unwrap();
    view.workload("Deployment", "web", "unchanged", json!({})).await.unwrap();
    view.asks(VaultSyncStatus, "web", "app").await.unwrap();
    let left = json!({
        "metadata": {
            "finalizers": ["kopf.zalando.org/KopfFinalizerMarker"],
            "annotations": { "kopf.zalando.org/last-handled-configuration": "{}" },
        },
        "spec": { "timeStamp": metadata["data"]["updated_time"] },
    });
    let objects = view.triggers(VaultSyncStatus);
    objects.patch("web", &PatchParams::default(), &Patch::Merge(left)).await.unwrap();
    // While neither runs.
    vault.write("app", "2").await;

    let folder = stage.plane.run_directory().path().join("dropped");
    let (config, account) = (folder.join("config"), folder.join("account"));
    fs::create_dir_all(&config).unwrap();
    let token = |token: &str| fs::write(config.join("VAULT_TOKEN"), format!("{token}\n")).unwrap();
    token("of-another-time");
    let authority = stage.plane.run_directory().path().join("ca.crt");
    let server = service_account(&account, stage.kubeconfig(), &stage.home, &authority);
    let (host, port) = server.strip_prefix("https://").unwrap().rsplit_once(':').unwrap();
    let address = format!("127.0.0.1:{}", free_port().unwrap());
    let spec = ProcessSpec::new(ACCOUNT, "unshare")
        .args(["--user", "--map-root-user", "--mount", "sh", "-c", POD, "sh"])
        .args([&config, &account])
        .arg(format!("VAULT_URL={}/v1/", vault.server.address()))
        // These every pod has.
        .args([format!("KUBERNETES_SERVICE_HOST={host}"), format!("KUBERNETES_SERVICE_PORT={port}")])
        // A pod has an address of its own.
        .arg(format!("ROLLOUT_HEALTH_PROBE_BIND_ADDRESS={address}"))
        .arg(env!("CARGO_BIN_EXE_vault-rollout-operator"));
    let operator = stage.start_as(spec, address).await;

    let says = async |reason| {
        until(reason, async || Ok(view.says(VaultSyncStatus, "web", reason).await?.is_some())).await;
    };
    says("PermissionDenied").await;
    assert_eq!(view.seen("Deployment", "web").await.unwrap().changes, 0);
    // As the kubelet replaces it when somebody edits the ConfigMap.
    token(&vault.server.token(&[POLICY], json!({})).await.unwrap());
    view.rolled("web", 1).await;
    says("InSync").await;
    let object = objects.get("web").await.unwrap();
    assert_eq!(object.metadata.finalizers.unwrap_or_default(), [""; 0]);
    assert!(object.metadata.annotations.unwrap_or_default().keys().all(|name| !name.starts_with("kopf")));
    let word = &object.data["status"]["vault_sync"]["SyncStatus"];
    assert!(word == "Synced" || word == "Already in Sync", "{word}");
    operator.settled().await;
    view.rolled("web", 1).await;
}
