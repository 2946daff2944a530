//! The workloads that a change concerns.

use konverge_testkit::eventually;
use konverge_workload::{SecretProviderClass, WorkloadKind::Deployment};
use kube::{
    Api,
    api::{ApiResource, DynamicObject, ListParams, Patch, PatchParams},
};
use serde_json::json;

use crate::world::{ALL, NO_REST, SOON, World, control_plane, until};

const CLASSES: &str = include_str!("../definitions/secretproviderclasses.yaml");

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
    let operator = world.operator(&NO_REST).await;
    for name in ["all", "map"] {
        world.noted(Deployment, name).await;
    }
    world.secret_with("db", &json!({ "used": "1", "other": "2" }), &json!({})).await;
    world.settled(&operator).await;
    assert_eq!(world.templates("all").await, 1, "a key that it does not use");
    world.secret_with("db", &json!({ "used": "2", "other": "2" }), &json!({})).await;
    world.rolled("all", 1).await;
    world.ready("all").await;
    world.config_map("app", "2").await;
    world.rolled("all", 2).await;
    world.rolled("map", 1).await;
    world.settled(&operator).await;
    assert_eq!(world.templates("silent").await, 1);
    assert_eq!(
        world.record(Deployment, "silent").await,
        None,
        "nothing is written on a workload that has not opted in"
    );
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
    let operator = world.operator(&NO_REST).await;
    for name in ["user", "chosen"] {
        world.noted(Deployment, name).await;
    }
    world.secret_with("db", &json!({ "k": "2" }), &annotations).await;
    world.rolled("user", 1).await;
    world.rolled("chosen", 1).await;
    world.settled(&operator).await;
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
    let operator = world.operator(&NO_REST).await;
    let told = world.event("web", "InvalidAnnotation").await;
    assert!(told.contains(ALL) && told.contains("no name of an object"), "{told}");
    let told = world.event("db", "InvalidAnnotation").await;
    assert!(told.contains("roll-users") && told.contains("\"perhaps\""), "{told}");
    world.secret("db", "2").await;
    world.settled(&operator).await;
    assert_eq!(world.templates("web").await, 1);
    world.merge(Deployment, "web", json!({ "metadata": { "annotations": { ALL: "true" } } })).await;
    world.noted(Deployment, "web").await;
    world.secret("db", "3").await;
    world.rolled("web", 1).await;
}

/// It may have asked to be let alone.
#[tokio::test]
async fn a_source_whose_annotation_is_bad_rolls_nobody_and_keeps_no_other_back() {
    let world = World::new().await;
    let of_db = async |value: &str, annotations| world.secret_with("db", &json!({ "k": value }), &annotations).await;
    let bad = json!({ "roll.konverge.dev/ignore": "True" });
    of_db("1", bad.clone()).await;
    world.secret("api", "1").await;
    world.workload(Deployment, "web", &["db", "api"], json!({ ALL: "true" })).await;
    let operator = world.operator(&NO_REST).await;
    world.event("db", "InvalidAnnotation").await;
    world.noted(Deployment, "web").await;
    of_db("2", bad).await;
    world.settled(&operator).await;
    assert_eq!(world.templates("web").await, 1);
    world.secret("api", "2").await;
    world.rolled("web", 1).await;
    of_db("3", json!({})).await;
    until("it is noted", async || {
        let noted = world.noted(Deployment, "web").await["content"].clone();
        if noted["Secret/db"].is_string() { Ok(()) } else { Err(noted.to_string()) }
    })
    .await;
    of_db("4", json!({})).await;
    world.rolled("web", 2).await;
}

/// The driver itself is not here: its part, which is to make the Secret when a pod starts and to change it, is done by the test.
#[tokio::test]
async fn a_secret_that_the_secrets_store_driver_makes_counts_for_who_mounts_its_class() {
    let world = World::new().await;
    control_plane().await.apply(CLASSES).await.unwrap();
    let resource = ApiResource::erase::<SecretProviderClass>(&());
    let classes: Api<DynamicObject> = Api::namespaced_with(world.client.clone(), &world.namespace, &resource);
    eventually(SOON, async || classes.list(&ListParams::default()).await.ok()).await.unwrap();
    let class = json!({
        "apiVersion": resource.api_version, "kind": resource.kind, "metadata": { "name": "vault" },
        "spec": { "provider": "vault", "secretObjects": [{ "secretName": "synced", "type": "Opaque" }] },
    });
    classes.patch("vault", &PatchParams::apply("user"), &Patch::Apply(&class)).await.unwrap();
    let attributes = json!({ "secretProviderClass": "vault" });
    let volumes = json!([
        { "name": "a", "csi": { "driver": "secrets-store.csi.k8s.io", "readOnly": true, "volumeAttributes": attributes } },
    ]);
    world.workload_with(Deployment, "web", (json!({}), volumes), json!({ ALL: "true" })).await;
    let operator = world.operator(&NO_REST).await;
    world.noted(Deployment, "web").await;
    world.secret("synced", "1").await;
    world.settled(&operator).await;
    assert_eq!(world.templates("web").await, 1, "it is made when the first pod starts");
    world.secret("synced", "2").await;
    world.rolled("web", 1).await;
    world.ready("web").await;

    // Nothing is forgotten because a workload is seen before its class.
    operator.stop().await;
    world.secret("synced", "3").await;
    let _operator = world.operator(&NO_REST).await;
    world.rolled("web", 2).await;
}
