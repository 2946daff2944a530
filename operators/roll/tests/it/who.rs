//! Whom a change concerns.

use konverge_workload::WorkloadKind::Deployment;
use serde_json::json;
use tokio::time::sleep;

use crate::world::{ALL, QUIET, World};

const NO_REST: [&str; 2] = ["--min-interval", "0s"];

#[tokio::test]
async fn only_who_asks_and_only_for_the_keys_that_are_used() {
    let world = World::new().await;
    world.secret_with("db", &json!({ "used": "1", "other": "1" }), &json!({})).await;
    world.config_map("app", "1").await;
    let container = json!({
        "env": [{ "name": "A", "valueFrom": { "secretKeyRef": { "name": "db", "key": "used" } } }],
        "envFrom": [{ "configMapRef": { "name": "app" } }],
    });
    world.workload_of(Deployment, "all", container.clone(), json!({ ALL: "true" })).await;
    world.workload_of(Deployment, "map", container.clone(), json!({ ALL: "configmap/app" })).await;
    world.workload_of(Deployment, "silent", container, json!({})).await;
    let _operator = world.operator(&NO_REST).await;
    for name in ["all", "map"] {
        world.noted(Deployment, name).await;
    }
    world.secret_with("db", &json!({ "used": "1", "other": "2" }), &json!({})).await;
    sleep(QUIET / 2).await;
    assert_eq!(world.templates("all").await, 1, "a key that it does not use");
    world.secret_with("db", &json!({ "used": "2", "other": "2" }), &json!({})).await;
    world.rolled("all", 1).await;
    world.ready("all").await;
    world.config_map("app", "2").await;
    world.rolled("all", 2).await;
    world.rolled("map", 1).await;
    sleep(QUIET / 2).await;
    assert_eq!(world.templates("silent").await, 1);
    assert_eq!(world.record(Deployment, "silent").await, None, "nothing is written on who takes no part");
}

#[tokio::test]
async fn a_secret_asks_for_its_users_and_for_labels() {
    let world = World::new().await;
    world.workload(Deployment, "user", &["db"], json!({})).await;
    world.workload(Deployment, "chosen", &[], json!({})).await;
    world.workload(Deployment, "opted-out", &["db"], json!({ ALL: "false" })).await;
    let annotations = json!({
        "roll.konverge.dev/roll-users": "true", "roll.konverge.dev/roll-selector": "app=chosen",
    });
    world.secret_with("db", &json!({ "k": "1" }), &annotations).await;
    let _operator = world.operator(&NO_REST).await;
    for name in ["user", "chosen"] {
        world.noted(Deployment, name).await;
    }
    world.secret_with("db", &json!({ "k": "2" }), &annotations).await;
    world.rolled("user", 1).await;
    world.rolled("chosen", 1).await;
    sleep(QUIET / 2).await;
    assert_eq!(world.templates("opted-out").await, 1);
}

#[tokio::test]
async fn zopps_mark_is_set_with_zopps_word() {
    let world = World::new().await;
    world.secret("db", "1").await;
    world.workload(Deployment, "web", &["db"], json!({ "zopp.dev/reload": "true" })).await;
    let _operator = world.operator(&NO_REST).await;
    world.noted(Deployment, "web").await;
    world.secret("db", "2").await;
    world.rolled("web", 1).await;
    let annotations = world.template(Deployment, "web").await;
    let time = annotations["zopp.dev/restartedAt"].as_str().unwrap();
    assert!(time.parse::<jiff::Timestamp>().is_ok(), "{time}");
}

#[tokio::test]
async fn the_annotations_of_others_count_behind_a_flag() {
    let world = World::new().await;
    world.secret("db", "1").await;
    world.workload(Deployment, "reloader", &["db"], json!({ "reloader.stakater.com/auto": "true" })).await;
    world.workload(Deployment, "wave", &["db"], json!({ "wave.pusher.com/update-on-config-change": "true" })).await;
    let arguments = ["--min-interval", "0s", "--reloader-annotations", "--wave-annotations"];
    let _operator = world.operator(&arguments).await;
    for name in ["reloader", "wave"] {
        world.noted(Deployment, name).await;
    }
    world.secret("db", "2").await;
    world.rolled("reloader", 1).await;
    world.rolled("wave", 1).await;
}

#[tokio::test]
async fn bad_annotations_are_told_and_roll_nothing() {
    let world = World::new().await;
    world.secret_with("db", &json!({ "k": "1" }), &json!({ "roll.konverge.dev/roll-users": "perhaps" })).await;
    world.workload(Deployment, "web", &["db"], json!({ ALL: "secret/../../other" })).await;
    let _operator = world.operator(&NO_REST).await;
    let told = world.event("web", "InvalidAnnotation").await;
    assert!(told.contains(ALL) && told.contains("no name of an object"), "{told}");
    let told = world.event("db", "InvalidAnnotation").await;
    assert!(told.contains("roll-users") && told.contains("\"perhaps\""), "{told}");
    world.secret("db", "2").await;
    sleep(QUIET / 2).await;
    assert_eq!(world.templates("web").await, 1);
    world.merge(Deployment, "web", json!({ "metadata": { "annotations": { ALL: "true" } } })).await;
    world.noted(Deployment, "web").await;
    world.secret("db", "3").await;
    world.rolled("web", 1).await;
}
