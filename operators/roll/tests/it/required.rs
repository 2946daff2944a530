//! Pods are not restarted while new ones could not start.

use konverge_testkit::fault_proxy::Plan;
use konverge_workload::WorkloadKind::Deployment;
use serde_json::{Value, json};

use crate::world::{ALL, NO_REST, World, until};

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

/// The role of an operator may leave Secrets out on purpose. A rollout would wait for them for ever.
#[tokio::test]
async fn a_required_reference_that_is_forbidden_holds_nothing() {
    for follows in ["configmap/app", "true"] {
        let world = World::new().await;
        world.secret_with("db", &json!({ "password": "1" }), &json!({})).await;
        world.config_map("app", "1").await;
        world.workload_of(Deployment, "web", container(), json!({ ALL: follows })).await;
        let proxy = world.proxy().await;
        let refuse =
            "rules: [{ when: { verbs: [get], resources: [secrets], name: db }, then: { status: { code: 403 } } }]";
        proxy.set(Plan::parse(refuse).unwrap()).unwrap();
        let arguments = [["--namespace", world.namespace.as_str()], NO_REST].concat();
        let operator = world.operator_through(proxy.kubeconfig(), &arguments).await;
        world.noted(Deployment, "web").await;
        world.ready("web").await;
        world.without_key("db", "password").await;
        world.config_map("app", "2").await;
        world.rolled("web", 1).await;
        world.settled(&operator).await;
        let events = world.events("web").await;
        assert!(!events.iter().any(|(reason, _)| reason == "ReferenceMissing"), "{follows}: {events:?}");
        let is_told = events.iter().any(|(reason, _)| reason == "SourceForbidden");
        assert_eq!(is_told, follows == "true", "{follows}: {events:?}");
    }
}

/// The operator knows that the key is missing, and a refusal does not say that it is back.
#[tokio::test]
async fn a_refusal_does_not_end_the_wait_for_a_missing_key() {
    let world = World::new().await;
    world.secret_with("db", &json!({ "password": "1" }), &json!({})).await;
    world.config_map("app", "1").await;
    world.workload_of(Deployment, "web", container(), json!({ ALL: "true" })).await;
    let proxy = world.proxy().await;
    let arguments = [["--namespace", world.namespace.as_str()], NO_REST].concat();
    let operator = world.operator_through(proxy.kubeconfig(), &arguments).await;
    world.noted(Deployment, "web").await;
    world.ready("web").await;
    world.without_key("db", "password").await;
    world.event("web", "ReferenceMissing").await;
    let refuse = "rules: [{ when: { verbs: [get], resources: [secrets], name: db }, then: { status: { code: 403 } } }]";
    proxy.set(Plan::parse(refuse).unwrap()).unwrap();
    world.secret_with("db", &json!({ "password": "2" }), &json!({})).await;
    world.event("web", "SourceForbidden").await;
    world.config_map("app", "2").await;
    world.settled(&operator).await;
    assert_eq!(world.templates("web").await, 1);
    proxy.set(Plan::parse("rules: []").unwrap()).unwrap();
    world.rolled("web", 1).await;
    world.settled(&operator).await;
    assert_eq!(world.templates("web").await, 2, "once for both changes");
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
