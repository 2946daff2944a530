//! `waitFor`: a Secret that somebody syncs from Vault has to follow first. Both kinds, by the same code.

use konverge_roll::trigger::TriggerKind::{self, VaultRollout, VaultSyncStatus};
use konverge_workload::WorkloadKind::Deployment;
use serde_json::{Value, json};

use crate::{
    vault_sync_status::world::VaultWorld,
    world::{Operator, until},
};

/// The pods of `web` run with the first version of `app` and the first content of the Secret `db`, which is waited for.
async fn settled(kind: TriggerKind, wait_for: Value) -> (VaultWorld, Operator) {
    let world = VaultWorld::new().await;
    world.write("app", "1").await;
    world.world.secret("db", "one").await;
    world.world.workload(Deployment, "web", &["db"], json!({})).await;
    world.ask_with(kind, "one", json!({ "waitFor": wait_for })).await;
    let operator = world.operator(&[]).await;
    recorded(&world, "Awaited/db").await;
    world.condition(kind, "one", "Ready", "InSync").await;
    world.world.ready("web").await;
    (world, operator)
}

/// Waits until the record has an entry of this name beside that of Vault.
async fn recorded(world: &VaultWorld, name: &str) {
    until(&format!("{name} is recorded"), async || {
        let record = world.world.record(Deployment, "web").await.unwrap_or_default();
        let content = &record["content"];
        let is_all = !content[name].is_null() && content.to_string().contains("Vault/");
        if is_all { Ok(()) } else { Err(record.to_string()) }
    })
    .await;
}

#[tokio::test]
async fn r17_it_waits_for_the_secret_also_over_a_restart_and_rolls_when_it_has_followed() {
    for kind in TriggerKind::ALL {
        let (world, operator) = settled(kind, json!({ "secret": "db", "timeout": "1h" })).await;
        world.write("app", "2").await;
        let told = world.condition(kind, "one", "Held", "WaitingForSecret").await;
        assert!(told.contains("waits for Secret/db to follow") && told.contains("not before 20"), "{told}");
        world.world.event("web", "WaitingForSecret").await;
        // Nothing of its content.
        world.world.secret_with("db", &json!({ "k": "one" }), &json!({ "example.com/a": "b" })).await;
        operator.stop().await;
        let operator = world.operator(&[]).await;
        world.settled(&operator).await;
        assert_eq!(world.world.templates("web").await, 1, "it waits");

        world.world.secret("db", "two").await;
        world.world.rolled("web", 1).await;
        world.condition(kind, "one", "Ready", "InSync").await;
        // By itself it is no reason.
        world.world.secret("db", "three").await;
        world.settled(&operator).await;
        assert_eq!(world.world.templates("web").await, 2);
    }
}

#[tokio::test]
async fn r17_a_secret_that_was_quicker_is_not_waited_for() {
    let (world, operator) = settled(VaultRollout, json!({ "secret": "db", "timeout": "1h" })).await;
    operator.stop().await;
    world.world.secret("db", "two").await;
    world.write("app", "2").await;
    let operator = world.operator(&[]).await;
    world.world.rolled("web", 1).await;
    world.settled(&operator).await;
    assert_eq!(world.world.templates("web").await, 2);
}

#[tokio::test]
async fn r17_after_the_deadline_it_is_rolled_and_once_more_when_the_secret_follows() {
    let (world, operator) = settled(VaultSyncStatus, json!({ "secret": "db", "timeout": "2s" })).await;
    world.write("app", "2").await;
    world.world.rolled("web", 1).await;
    let told = world.world.event("web", "RolledOut").await;
    assert!(told.contains("Secret/db had not followed in time"), "{told}");
    let told = world.condition(VaultSyncStatus, "one", "RolledOut", "RolloutTriggered").await;
    assert!(told.contains("Secret/db had not followed in time"), "{told}");
    recorded(&world, "Late/db").await;
    // Also by another operator: it is recorded.
    operator.stop().await;
    let operator = world.operator(&[]).await;
    world.settled(&operator).await;
    assert_eq!(world.world.templates("web").await, 2);
    world.world.secret("db", "two").await;
    world.world.rolled("web", 2).await;
    recorded(&world, "Awaited/db").await;
    world.settled(&operator).await;
    assert_eq!(world.world.templates("web").await, 3);
}

#[tokio::test]
async fn r17_with_hold_nothing_is_rolled_before_the_secret_follows() {
    let (world, operator) =
        settled(VaultRollout, json!({ "secret": "db", "timeout": "1s", "onTimeout": "Hold", "keys": ["k"] })).await;
    world.write("app", "2").await;
    let told = world.condition(VaultRollout, "one", "Ready", "SecretNotFollowed").await;
    assert!(told.contains("Secret/db has not followed by 20"), "{told}");
    world.world.event("web", "SecretNotFollowed").await;
    world.world.event("one", "SecretNotFollowed").await;
    // A key that is not meant.
    world.world.secret_with("db", &json!({ "k": "one", "other": "x" }), &json!({})).await;
    world.settled(&operator).await;
    assert_eq!(world.world.templates("web").await, 1);
    world.world.secret("db", "two").await;
    world.world.rolled("web", 1).await;
    world.condition(VaultRollout, "one", "Ready", "InSync").await;
}
