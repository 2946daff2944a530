//! Pods are not restarted while new ones could not start.

use konverge_workload::WorkloadKind::Deployment;
use serde_json::{Value, json};

use crate::world::{ALL, World, until};

const NO_REST: [&str; 2] = ["--min-interval", "0s"];

/// A container that needs the key `password` of the Secret `db`, and takes the key `hint` if it is there.
fn container() -> Value {
    let key = |key: &str, optional: bool| json!({ "name": key.to_uppercase(), "valueFrom": { "secretKeyRef": { "name": "db", "key": key, "optional": optional } } });
    json!({ "env": [key("password", false), key("hint", true)], "envFrom": [{ "configMapRef": { "name": "app" } }] })
}

#[tokio::test]
async fn without_a_required_key_nothing_rolls_and_its_return_rolls_once() {
    let world = World::new().await;
    world.secret_with("db", &json!({ "password": "1", "hint": "h" }), &json!({})).await;
    world.config_map("app", "1").await;
    world.workload_of(Deployment, "web", container(), json!({ ALL: "true" })).await;
    let operator = world.operator(&NO_REST).await;
    world.noted(Deployment, "web").await;
    world.ready("web").await;
    world.without_key("db", "password").await;
    let told = world.event("web", "ReferenceMissing").await;
    assert!(told.contains("Secret/db has no key password"), "{told}");
    // Other changes wait, too, because new pods could not start.
    world.config_map("app", "2").await;
    world.settled(&operator).await;
    assert_eq!(world.templates("web").await, 1);
    world.secret_with("db", &json!({ "password": "2", "hint": "h" }), &json!({})).await;
    world.rolled("web", 1).await;
    world.settled(&operator).await;
    assert_eq!(world.templates("web").await, 2, "once for both changes");
    // It goes and comes back as it was.
    world.without_key("db", "password").await;
    world.settled(&operator).await;
    world.secret_with("db", &json!({ "password": "2", "hint": "h" }), &json!({})).await;
    world.settled(&operator).await;
    assert_eq!(world.templates("web").await, 2);
    // An optional key rolls as it goes.
    world.without_key("db", "hint").await;
    world.rolled("web", 2).await;
}

#[tokio::test]
async fn a_required_key_that_comes_for_the_first_time_rolls_nothing_and_an_optional_one_does() {
    let world = World::new().await;
    world.secret_with("db", &json!({ "other": "1" }), &json!({})).await;
    world.config_map("app", "1").await;
    world.workload_of(Deployment, "web", container(), json!({ ALL: "true" })).await;
    let operator = world.operator(&NO_REST).await;
    world.noted(Deployment, "web").await;
    world.secret_with("db", &json!({ "other": "1", "password": "1" }), &json!({})).await;
    world.settled(&operator).await;
    assert_eq!(world.templates("web").await, 1, "no pod has started without it");
    world.ready("web").await;
    world.secret_with("db", &json!({ "other": "1", "password": "1", "hint": "h" }), &json!({})).await;
    world.rolled("web", 1).await;
    world.secret_with("db", &json!({ "other": "1", "password": "2", "hint": "h" }), &json!({})).await;
    world.rolled("web", 2).await;
}

#[tokio::test]
async fn without_a_whole_secret_no_other_change_rolls() {
    let world = World::new().await;
    world.secret_with("db", &json!({ "password": "1" }), &json!({})).await;
    world.config_map("app", "1").await;
    world.workload_of(Deployment, "web", container(), json!({ ALL: "true" })).await;
    let operator = world.operator(&NO_REST).await;
    world.noted(Deployment, "web").await;
    world.ready("web").await;
    world.delete_secret("db").await;
    world.settled(&operator).await;
    world.config_map("app", "2").await;
    let told = world.event("web", "ReferenceMissing").await;
    assert!(told.contains("there is no Secret/db"), "{told}");
    world.settled(&operator).await;
    assert_eq!(world.templates("web").await, 1);
    world.secret_with("db", &json!({ "password": "1" }), &json!({})).await;
    world.rolled("web", 1).await;
}

/// The workload follows the `ConfigMap` only. The Secret is none of its sources, and its pods need it all the same.
#[tokio::test]
async fn a_missing_reference_that_is_not_followed_holds_the_rollout() {
    let world = World::new().await;
    world.secret_with("db", &json!({ "password": "1" }), &json!({})).await;
    world.config_map("app", "1").await;
    world.workload_of(Deployment, "web", container(), json!({ ALL: "configmap/app" })).await;
    let operator = world.operator(&NO_REST).await;
    world.noted(Deployment, "web").await;
    world.ready("web").await;
    world.without_key("db", "password").await;
    world.config_map("app", "2").await;
    let told = world.event("web", "ReferenceMissing").await;
    assert!(told.contains("Secret/db has no key password"), "{told}");
    world.settled(&operator).await;
    assert_eq!(world.templates("web").await, 1, "new pods could not start without the key");
    world.delete_secret("db").await;
    world.config_map("app", "3").await;
    until("an event names the missing Secret", async || {
        let events = world.events("web").await;
        events.iter().any(|(_, note)| note.contains("there is no Secret/db")).then_some(()).ok_or("no such event")
    })
    .await;
    world.settled(&operator).await;
    assert_eq!(world.templates("web").await, 1, "nor without the Secret");
    world.secret_with("db", &json!({ "password": "2" }), &json!({})).await;
    world.rolled("web", 1).await;
    world.settled(&operator).await;
    assert_eq!(world.templates("web").await, 2, "once for all changes");
    // The Secret itself is still none of its sources.
    world.secret_with("db", &json!({ "password": "3" }), &json!({})).await;
    world.settled(&operator).await;
    assert_eq!(world.templates("web").await, 2);
}

/// Pods start without what they call optional.
#[tokio::test]
async fn an_optional_reference_that_is_not_followed_holds_nothing() {
    let world = World::new().await;
    let optional = json!({ "envFrom": [
        { "configMapRef": { "name": "app" } },
        { "secretRef": { "name": "absent", "optional": true } },
    ] });
    world.config_map("app", "1").await;
    world.workload_of(Deployment, "web", optional, json!({ ALL: "configmap/app" })).await;
    let _operator = world.operator(&NO_REST).await;
    world.noted(Deployment, "web").await;
    world.config_map("app", "2").await;
    world.rolled("web", 1).await;
}
