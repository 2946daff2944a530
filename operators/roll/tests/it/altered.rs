//! The API server stores something else than the operator sent, or knows less of it.

use std::time::Duration;

use konverge_roll::trigger::TriggerKind::VaultRollout;
use konverge_testkit::{Replaced, ReplacingPolicy, eventually};
use konverge_workload::WorkloadKind::Deployment;
use serde_json::json;

use crate::{
    vault_sync_status::world::{VaultWorld, shared_vault},
    world::{ALL, DEFINITION, OWN_DEFINITION, World, bare_control_plane, until},
};

/// Changes something until an event of the object says that this field was changed. The API server heeds a policy after a moment.
async fn told_of(world: &World, name: &str, field: &str, change: impl AsyncFn(u32)) {
    let mut number = 1;
    until(&format!("{name} is told of {field}"), async || {
        number += 1;
        change(number).await;
        let is_told = async || {
            let events = world.events(name).await;
            events.iter().any(|(reason, note)| reason == "AlteredByAdmission" && note.contains(field)).then_some(())
        };
        eventually(Duration::from_secs(2), is_told).await
    })
    .await;
    let events = world.events(name).await;
    assert!(events.iter().all(|(_, note)| !note.contains("by policy")), "{events:?}");
}

#[tokio::test]
async fn a_status_that_a_policy_changes_is_told_and_written_again_once_the_policy_is_gone() {
    let world = VaultWorld::new().await;
    let _operator = world.in_sync(VaultRollout, "one", &[]).await;
    let replaced = Replaced {
        group: "konverge.dev",
        version: "*",
        resource: "vaultrollouts/status",
        path: "/status/inSyncWorkloads",
        condition: "has(object.status) && has(object.status.inSyncWorkloads)",
    };
    let (client, namespace) = (&world.world.client, &world.world.namespace);
    let policy = ReplacingPolicy::create_for(client, namespace, replaced, 7).await.unwrap();
    told_of(&world.world, "one", ".status.inSyncWorkloads", async |number| {
        world.write("app", &number.to_string()).await;
    })
    .await;
    policy.lift().await.unwrap();
    until("the status is the operator's", async || {
        let object = world.object_of(VaultRollout, "one").await;
        if object["status"]["inSyncWorkloads"] == 1 { Ok(()) } else { Err(object["status"].to_string()) }
    })
    .await;
}

#[tokio::test]
async fn a_record_on_a_workload_that_a_policy_changes_is_told() {
    let world = World::new().await;
    world.secret("db", "1").await;
    world.workload(Deployment, "web", &["db"], json!({ ALL: "true" })).await;
    let _operator = world.operator(&["--min-interval", "0s"]).await;
    world.noted(Deployment, "web").await;
    let replaced = Replaced {
        group: "apps",
        version: "v1",
        resource: "deployments",
        path: "/metadata/annotations/roll.konverge.dev~1record",
        condition: "has(object.metadata.annotations) && 'roll.konverge.dev/record' in object.metadata.annotations",
    };
    let policy = ReplacingPolicy::create_for(&world.client, &world.namespace, replaced, "by policy").await.unwrap();
    let change = async |number: u32| world.secret("db", &number.to_string()).await;
    told_of(&world, "web", "roll.konverge.dev/record", change).await;
    policy.lift().await.unwrap();
    until("the record is the operator's", async || world.record(Deployment, "web").await.ok_or("none".to_owned()))
        .await;
}

/// During an upgrade, the definition in the cluster may be older than the operator.
#[tokio::test]
async fn a_field_that_the_definition_does_not_declare_is_left_out_of_the_status() {
    let definition = OWN_DEFINITION.replace("\n              inSyncWorkloads:\n", "\n              renamed:\n");
    assert_ne!(definition, OWN_DEFINITION);
    let control_plane = bare_control_plane().await;
    control_plane.apply(DEFINITION).await.unwrap();
    control_plane.apply(&definition).await.unwrap();
    let world = VaultWorld::on(World::on(&control_plane).await, shared_vault().await).await;
    let operator = world.in_sync(VaultRollout, "one", &[]).await;
    world.write("app", "2").await;
    world.world.rolled("web", 1).await;
    world.world.ready("web").await;
    // Only a status that knows of the rollout may be the one that stays.
    world.condition(VaultRollout, "one", "RolledOut", "RolloutTriggered").await;
    world.condition(VaultRollout, "one", "Ready", "InSync").await;
    assert_eq!(world.object_of(VaultRollout, "one").await["status"]["inSyncWorkloads"], json!(null));
    let version = async || world.object_of(VaultRollout, "one").await["metadata"]["resourceVersion"].clone();
    // The last write of the status may still be under way.
    world.settled(&operator).await;
    let before = version().await;
    world.settled(&operator).await;
    assert_eq!(version().await, before, "the status is written again and again");
}
