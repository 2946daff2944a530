//! The API server stores another record than the operator sent, or knows less of it.

use std::time::Duration;

use konverge_push::object::Kind;
use konverge_testkit::{ControlPlane, Options, Replaced, ReplacingPolicy, eventually};
use konverge_testkit_stores::{VaultOptions, VaultServer};
use serde_json::json;
use tokio::time::sleep;

use crate::world::{DEFINITION, World, until};

/// Changes the Secret `source` until an event of the object says that this field was changed. The API server heeds a policy after a moment.
async fn told_of(world: &World, name: &str, field: &str) {
    let mut number = 0;
    until(&format!("{name} is told of {field}"), async || {
        number += 1;
        world.rotate("source", &[("k", &number.to_string())]).await;
        let is_told = async || world.notes(name).await.iter().any(|note| note.contains(field)).then_some(());
        eventually(Duration::from_secs(1), is_told).await
    })
    .await;
    let told = world.event(name, "AlteredByAdmission").await;
    assert!(told.contains(field) && told.contains("admission") && !told.contains("by policy"), "{told}");
}

#[tokio::test]
async fn a_record_that_a_policy_changes_is_told_and_written_again_once_the_policy_is_gone() {
    let world = World::new().await;
    let _operator = world.operator(&[]).await;
    world.secret("source", &[("k", "0")], json!({})).await;
    let (whole, path) = (world.path("status"), world.path("annotation"));
    world.vault_push("push", json!({ "secrets": { "names": ["source"] }, "path": whole })).await;
    world.workload(Kind::Deployment, "web", &["source"], json!({ "vault-sync.io/path": path })).await;
    world.says(Kind::VaultPush, "push", "Synced").await;
    world.says(Kind::Deployment, "web", "Synced").await;

    let status = Replaced {
        group: "konverge.dev",
        version: "*",
        resource: "vaultpushes/status",
        path: "/status/writtenPaths",
        condition: "has(object.status) && has(object.status.writtenPaths)",
    };
    let policy = ReplacingPolicy::create_for(&world.client, &world.namespace, status, 7).await.unwrap();
    told_of(&world, "push", ".status.writtenPaths").await;
    // Each change reaches Vault all the same. With each change, the operator tries to write the status, and its pauses start again from the shortest.
    for number in 0..8 {
        let value = format!("more {number}");
        world.rotate("source", &[("k", &value)]).await;
        world.holds(&whole, &[("k", &value)]).await;
    }
    let written = world.writes_during(sleep(Duration::from_secs(6))).await;
    assert!(written.len() <= 12, "the attempts get fewer: {written:#?}");
    policy.lift().await.unwrap();
    let is_restored = async || {
        let object = world.api(Kind::VaultPush).get("push").await.unwrap();
        (object.data["status"]["writtenPaths"] == 1).then_some(())
    };
    eventually(Duration::from_secs(45), is_restored).await.expect("the status is the operator's");

    let annotation = Replaced {
        group: "apps",
        version: "v1",
        resource: "deployments",
        path: "/metadata/annotations/vault-sync.io~1status",
        condition: "has(object.metadata.annotations) && 'vault-sync.io/status' in object.metadata.annotations",
    };
    let policy = ReplacingPolicy::create_for(&world.client, &world.namespace, annotation, "by policy").await.unwrap();
    told_of(&world, "web", "vault-sync.io/status").await;
    world.rotate("source", &[("k", "last")]).await;
    world.holds(&format!("{path}/source"), &[("k", "last")]).await;
    policy.lift().await.unwrap();
    world.says(Kind::Deployment, "web", "Synced").await;
}

/// During an upgrade, the definition in the cluster may be older than the operator.
#[tokio::test]
async fn a_field_that_the_definition_does_not_declare_is_left_out_of_the_status() {
    let definition = DEFINITION.replace("\n              writtenPaths:\n", "\n              renamed:\n");
    assert_ne!(definition, DEFINITION);
    let control_plane: &'static ControlPlane = Box::leak(Box::new(ControlPlane::start(Options::ours()).await.unwrap()));
    control_plane.apply(&definition).await.unwrap();
    let server = VaultServer::start(VaultOptions::default()).await.unwrap();
    server.mount_kv("secret", 2).await.unwrap();
    let world = World::on(control_plane, &server).await;
    let operator = world.operator(&[]).await;
    world.secret("source", &[("k", "1")], json!({})).await;
    let path = world.path("declared");
    world.vault_push("push", json!({ "secrets": { "names": ["source"] }, "path": path })).await;
    world.holds(&path, &[("k", "1")]).await;
    world.says(Kind::VaultPush, "push", "Synced").await;
    world.rotate("source", &[("k", "2")]).await;
    world.holds(&path, &[("k", "2")]).await;
    world.says(Kind::VaultPush, "push", "Synced").await;
    // The status follows the write.
    operator.settled().await;
    let object = world.api(Kind::VaultPush).get("push").await.unwrap();
    assert_eq!(object.data["status"]["writtenPaths"], json!(null));
    let written = world.writes_during(operator.settled()).await;
    assert!(written.is_empty(), "{written:#?}");
}
