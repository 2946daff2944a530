//! A failed rollout for a secret in Vault holds back the workloads that wait for the same path or key, in its own namespace.

use konverge_workload::WorkloadKind::Deployment;
use serde_json::{Value, json};

use crate::{
    vault_sync_status::world::{VaultWorld, shared_vault},
    world::{World, new_control_plane, until},
};

const PAUSE: &str = "roll.konverge.dev/pause";

/// Creates a Deployment and a `VaultRollout` of the same name.
async fn follow(world: &VaultWorld, name: &str, secret: Value, annotations: Value) {
    world.world.workload(Deployment, name, &[], annotations).await;
    let targets = json!([{ "kind": "Deployment", "name": name }]);
    world.rollout(name, &json!({ "vaultSecrets": [secret], "targets": targets })).await;
}

async fn resume(world: &World, name: &str) {
    world.merge(Deployment, name, json!({ "metadata": { "annotations": { PAUSE: null } } })).await;
}

#[tokio::test]
async fn a_failed_rollout_for_vault_holds_back_its_own_namespace() {
    let plane = new_control_plane().await;
    let world = VaultWorld::on(World::on(&plane).await, shared_vault().await).await;
    let apart = VaultWorld::on(World::on(&plane).await, shared_vault().await).await;
    world.log_in("rollout-content").await;
    let share = async |token: &str, other: &str| {
        world.vault_does("POST", "data", "shared", json!({ "data": { "token": token, "other": other } })).await;
    };
    world.write("app", "1").await;
    share("1", "1").await;
    let path = || json!({ "mount": "secret", "path": world.path("app") });
    let content = || json!({ "mount": "secret", "path": world.path("app"), "mode": "Content" });
    let key = |key: &str| json!({ "mount": "secret", "path": world.path("shared"), "mode": "Content", "keys": [key] });
    let paused = || json!({ PAUSE: "true" });
    for (name, secret) in [("path", path()), ("key", key("token"))] {
        follow(&world, name, secret, json!({})).await;
        world.world.merge(Deployment, name, json!({ "spec": { "progressDeadlineSeconds": 4 } })).await;
    }
    follow(&world, "beside", key("other"), json!({})).await;
    let held =
        [("later-path", path(), "path"), ("later-content", content(), "path"), ("later-key", key("token"), "key")];
    for (name, secret, _) in &held {
        follow(&world, name, secret.clone(), paused()).await;
    }
    for (name, secret) in [("path", path()), ("key", key("token"))] {
        follow(&apart, name, secret, paused()).await;
    }
    let reach = world.reach(world.vault.address());
    let reach: Vec<_> = reach.iter().map(String::as_str).collect();
    let operator = world.world.operator_everywhere(&reach).await;
    for name in ["path", "key", "beside", "later-path", "later-content", "later-key"] {
        world.world.noted(Deployment, name).await;
        world.world.ready(name).await;
    }
    for name in ["path", "key"] {
        apart.world.noted(Deployment, name).await;
        apart.world.ready(name).await;
    }

    world.world.hold_pods();
    world.write("app", "2").await;
    share("2", "1").await;
    for name in ["path", "key"] {
        world.world.rolled(name, 1).await;
        until(&format!("{name} has failed"), async || {
            let record = world.world.record(Deployment, name).await.unwrap_or_default();
            if record["failed"].is_string() { Ok(()) } else { Err(record.to_string()) }
        })
        .await;
    }
    for (name, _, failed) in &held {
        resume(&world.world, name).await;
        let told = world.world.event(name, "HeldByFailure").await;
        assert!(told.contains(&format!("Deployment {}/{failed} ", world.world.namespace)), "{name}: {told}");
    }
    // The failure of another tenant is none of this one's, and that for one key says nothing about another key.
    for name in ["path", "key"] {
        resume(&apart.world, name).await;
        apart.world.rolled(name, 1).await;
    }
    share("2", "2").await;
    world.world.rolled("beside", 1).await;
    world.settled(&operator).await;
    for (name, ..) in &held {
        assert_eq!(world.world.templates(name).await, 1, "{name} runs with content that works");
    }

    world.world.let_pods_go();
    world.write("app", "3").await;
    share("3", "2").await;
    for (name, ..) in &held {
        world.world.rolled(name, 1).await;
    }
    for name in ["path", "key"] {
        world.world.rolled(name, 2).await;
    }
}
