//! A reference that the pods need is missing while Vault refuses to answer.

use std::sync::Arc;

use konverge_roll::trigger::TriggerKind::VaultRollout;
use konverge_workload::WorkloadKind::Deployment;
use serde_json::json;

use crate::vault_sync_status::world::{VaultWorld, new_vault};

/// The pods need a key of a Secret, which the workload does not follow.
#[tokio::test]
async fn a_403_of_vault_does_not_end_the_wait_for_a_required_key() {
    let world = VaultWorld::with(Arc::new(new_vault().await)).await;
    let permit = async |path: &str| {
        let rule = format!("path \"{path}\" {{ capabilities = [\"read\", \"list\"] }}");
        world.vault.policy("rollout", &rule).await.unwrap();
    };
    let secret = async |data| world.world.secret_with("db", &data, &json!({})).await;
    world.write("app", "1").await;
    secret(json!({ "password": "1", "user": "u" })).await;
    let key = json!({ "name": "P", "valueFrom": { "secretKeyRef": { "name": "db", "key": "password" } } });
    world.world.workload_of(Deployment, "web", json!({ "env": [key] }), json!({})).await;
    world.ask(VaultRollout, "one").await;
    let operator = world.operator(&[]).await;
    world.condition(VaultRollout, "one", "Ready", "InSync").await;
    world.world.ready("web").await;

    world.world.without_key("db", "password").await;
    world.write("app", "2").await;
    let told = world.world.event("web", "ReferenceMissing").await;
    assert!(told.contains("Secret/db has no key password"), "{told}");
    permit("nowhere/*").await;
    world.condition(VaultRollout, "one", "Ready", "PermissionDenied").await;
    world.settled(&operator).await;
    assert_eq!(world.world.templates("web").await, 1, "new pods could not start without the key");
    // The operator has seen the change before Vault refused to answer.
    secret(json!({ "password": "1", "user": "u" })).await;
    world.world.rolled("web", 1).await;
    world.world.ready("web").await;

    // A change that the operator cannot see meets a missing key when Vault answers again.
    world.write("app", "3").await;
    world.world.without_key("db", "password").await;
    world.settled(&operator).await;
    assert_eq!(world.world.templates("web").await, 2);
    permit("+/metadata/*").await;
    world.condition(VaultRollout, "one", "Held", "ReferenceMissing").await;
    world.settled(&operator).await;
    assert_eq!(world.world.templates("web").await, 2, "new pods could not start without the key");
    secret(json!({ "password": "1", "user": "u" })).await;
    world.world.rolled("web", 2).await;
    world.condition(VaultRollout, "one", "Ready", "InSync").await;
    world.settled(&operator).await;
    assert_eq!(world.world.templates("web").await, 3, "once for each change");
}
