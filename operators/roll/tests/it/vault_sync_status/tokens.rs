//! Tokens that end, and others that come.

use std::sync::Arc;

use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use konverge_roll::trigger::TriggerKind::VaultSyncStatus;
use konverge_workload::WorkloadKind::Deployment;
use kube::{Api, api::PostParams};
use serde_json::{Value, json};

use super::world::{VaultWorld, new_vault};
use crate::world::{control_plane, until};

/// As who edits what is mounted at `/etc/config/VAULT_TOKEN`.
#[tokio::test]
async fn r4_a_token_that_is_replaced_counts_at_once() {
    let world = VaultWorld::new().await;
    let operator = world.in_sync(VaultSyncStatus, "vss", &[]).await;

    let token = std::fs::read_to_string(world.token_file()).unwrap();
    world.vault.request("POST", "auth/token/revoke", &json!({ "token": token })).await.unwrap();
    world.says("vss", "PermissionDenied").await;
    world.write("app", "2").await;
    world.settled(&operator).await;
    assert_eq!((world.world.templates("web").await, world.version("vss").await), (1, json!(1)));
    world.log_in("rollout").await;
    world.world.rolled("web", 1).await;
    world.says("vss", "InSync").await;
    world.settled(&operator).await;
    assert_eq!(world.world.templates("web").await, 2);
}

/// So often the token ends while it is looked on.
const LIVES: usize = 4;

#[tokio::test]
async fn a10_r4_tokens_that_end_after_seconds_miss_no_look_and_no_change() {
    let world = VaultWorld::with(Arc::new(new_vault().await)).await;
    let log = world.vault.run_directory().path().join("audit.log");
    let device = json!({ "type": "file", "options": { "file_path": log } });
    world.vault.request("PUT", "sys/audit/file", &device).await.unwrap();
    trust_service_accounts(&world).await;
    world.write("app", "0").await;
    world.world.workload(Deployment, "web", &[], json!({})).await;
    world.vss("vss", &world.sample()).await;
    let jwt = world.token_file().with_file_name("jwt");
    std::fs::write(&jwt, world.world.token()).unwrap();
    let url = format!("--vault-url={}/v1/", world.vault.address());
    let jwt = format!("--vault-jwt-file={}", jwt.display());
    let how = ["--vault-auth-method=kubernetes", "--vault-interval=1s", "--min-interval=0s"];
    let _operator = world.world.operator(&[&[&*url, &*jwt], how.as_slice()].concat()).await;
    world.says("vss", "InSync").await;

    // Each change is rolled by another token than the one before.
    for life in 1..=LIVES {
        let before = logins(&log);
        until("the token has ended", async || match logins(&log) {
            more if more > before => Ok(()),
            same => Err(format!("{same} logins")),
        })
        .await;
        world.write("app", &life.to_string()).await;
        world.world.rolled("web", life).await;
        world.world.ready("web").await;
    }
    let events = world.world.events("vss").await;
    let is_good = |(reason, _): &(String, String)| ["RolloutTriggered", "InSync"].contains(&&**reason);
    assert!(events.iter().all(is_good), "no look has failed: {events:?}");
}

/// Lets the operator's service account log in, for tokens that live for five seconds whatever happens.
async fn trust_service_accounts(world: &VaultWorld) {
    let plane = control_plane().await;
    let namespace = &world.world.namespace;
    let reviewer = plane.service_account_kubeconfig(namespace, "reviewer").await.unwrap();
    let reviewer: Value = serde_json::from_slice(&std::fs::read(reviewer).unwrap()).unwrap();
    let binding = json!({
        "metadata": { "name": format!("reviewer-{namespace}") },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:auth-delegator" },
        "subjects": [{ "kind": "ServiceAccount", "name": "reviewer", "namespace": namespace }],
    });
    let bindings = Api::<ClusterRoleBinding>::all(world.world.client.clone());
    bindings.create(&PostParams::default(), &serde_json::from_value(binding).unwrap()).await.unwrap();
    let settings = json!({
        "kubernetes_host": reviewer["clusters"][0]["cluster"]["server"],
        "kubernetes_ca_cert": std::fs::read_to_string(plane.run_directory().path().join("ca.crt")).unwrap(),
        "token_reviewer_jwt": reviewer["users"][0]["user"]["token"],
    });
    let role = json!({
        "bound_service_account_names": ["*"], "bound_service_account_namespaces": ["*"], "token_policies": ["rollout"],
        "token_ttl": "5s", "token_max_ttl": "5s",
    });
    for (path, body) in [
        ("sys/auth/kubernetes", json!({ "type": "kubernetes" })),
        ("auth/kubernetes/config", settings),
        ("auth/kubernetes/role/vault-rollout-operator", role),
    ] {
        world.vault.request("POST", path, &body).await.unwrap();
    }
}

/// The answers of Vault, by its own log.
fn answers(log: &std::path::Path) -> Vec<Value> {
    let text = std::fs::read_to_string(log).unwrap();
    let lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    lines.filter(|line| line["type"] == "response").collect()
}

fn logins(log: &std::path::Path) -> usize {
    answers(log).iter().filter(|answer| answer["request"]["path"] == "auth/kubernetes/login").count()
}
