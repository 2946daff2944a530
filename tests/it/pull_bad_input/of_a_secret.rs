//! Faults of one Secret, or of its environment.

use std::time::Duration;

use konverge_testkit::eventually;
use kube::api::DeleteParams;
use serde_json::json;

use super::{SOON, Scene, is, on_stage};

#[test]
fn missing_or_empty_annotations() {
    on_stage("annotations", async |scene: Scene| {
        let environment = scene.in_sync().await;
        let annotations = json!({ "zopp.dev/sync": "true", "zopp.dev/workspace": "acme", "zopp.dev/project": "" });
        let manifest = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "bad", "annotations": annotations }
        });
        scene.apply("bad", manifest).await;
        scene.told("InvalidAnnotation", &["zopp.dev/project", "zopp.dev/environment", "data stays"]).await;
        scene.counted("InvalidAnnotation").await;
        scene.stage.user.set(&environment, "A", b"2").await.unwrap();
        scene.good_follows("1").await;
        scene.holds("bad", &[("A", "1")]).await;
    });
}

#[test]
fn an_environment_that_does_not_exist() {
    on_stage("absent", async |scene: Scene| {
        scene.in_sync().await;
        scene.bind("bad", "acme/backend/nowhere").await;
        scene.told("EnvironmentNotFound", &["acme/backend/nowhere", "annotations"]).await;
        scene.counted("EnvironmentNotFound").await;
        scene.good_follows("1").await;
        scene.holds("bad", &[("A", "1")]).await;
        // It is noticed when it comes into being.
        let environment = scene.stage.environment("nowhere").await.unwrap();
        scene.stage.user.set(&environment, "N", b"1").await.unwrap();
        scene.watcher.holds("bad", Duration::from_secs(90), &[("N", "1")]).await.unwrap();
    });
}

#[test]
fn an_environment_that_is_not_permitted() {
    on_stage("denied", async |scene: Scene| {
        scene.in_sync().await;
        let path = "acme/backend/vault";
        scene.stage.user.create_environment(path).await.unwrap();
        scene.stage.user.set(path, "V", b"1").await.unwrap();
        scene.bind("bad", path).await;
        let next_step =
            format!("zopp permission env-set -w acme -p backend -e vault --principal {}", scene.stage.principal());
        scene.told("PermissionDenied", &[path, &next_step]).await;
        scene.counted("PermissionDenied").await;
        scene.good_follows("1").await;
        scene.holds("bad", &[("A", "1")]).await;
        scene.stage.user.grant(path, scene.stage.principal(), "read").await.unwrap();
        scene.watcher.holds("bad", Duration::from_secs(90), &[("V", "1")]).await.unwrap();
    });
}

#[test]
fn a_key_name_that_kubernetes_does_not_allow() {
    on_stage("names", async |scene: Scene| {
        let environment = scene.in_sync().await;
        scene.stage.user.set(&environment, "not/allowed", b"x").await.unwrap();
        scene.stage.user.set(&environment, "B", b"2").await.unwrap();
        scene.holds("bad", &[("A", "1"), ("B", "2")]).await;
        scene.told("InvalidKeyName", &["\"not/allowed\"", "Kubernetes"]).await;
        scene.counted("InvalidKeyName").await;
        scene.good_follows("1").await;
    });
}

#[test]
fn more_than_a_secret_may_hold() {
    on_stage("large", async |scene: Scene| {
        let environment = scene.in_sync().await;
        scene.stage.user.set(&environment, "LARGE", &vec![b'x'; (1 << 20) + 1]).await.unwrap();
        scene.told("TooLarge", &["1048576", "data stays"]).await;
        scene.counted("TooLarge").await;
        scene.good_follows("1").await;
        scene.holds("bad", &[("A", "1")]).await;
        scene.stage.user.delete(&environment, "LARGE").await.unwrap();
        scene.operator.metric_becomes("konverge_pull_bindings", "reason=\"Synced\"", is(2)).await.unwrap();
    });
}

#[test]
fn an_immutable_secret() {
    on_stage("immutable", async |scene: Scene| {
        let environment = scene.in_sync().await;
        scene.merge("bad", json!({ "immutable": true })).await;
        scene.stage.user.set(&environment, "A", b"2").await.unwrap();
        scene.told("Immutable", &["immutable", "create it again"]).await;
        scene.counted("Immutable").await;
        scene.good_follows("1").await;
        scene.holds("bad", &[("A", "1")]).await;
    });
}

#[test]
fn a_secret_deleted_and_made_again() {
    on_stage("again", async |scene: Scene| {
        let environment = scene.in_sync().await;
        for round in 0..3 {
            scene.secrets().delete("bad", &DeleteParams::default()).await.unwrap();
            scene.bind("bad", &environment).await;
            scene.holds("bad", &[("A", "1")]).await;
            scene.told("Synced", &[&environment]).await;
            scene.operator.metric_becomes("konverge_pull_bindings", "reason=\"Synced\"", is(2)).await.unwrap();
            scene.good_follows(&round.to_string()).await;
        }
    });
}

#[test]
fn the_annotation_removed_and_put_back() {
    on_stage("removed", async |scene: Scene| {
        let environment = scene.in_sync().await;
        let told = async || scene.events("bad", "Synced").await.iter().map(|(_, count)| count).sum::<i32>();
        eventually(SOON, async || (told().await == 1).then_some(())).await.unwrap();
        scene.operator.metric_becomes("konverge_pull_streams", "", is(2)).await.unwrap();
        let bare = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "bad" } });
        scene.apply("bad", bare).await;
        scene.operator.metric_becomes("konverge_pull_streams", "", is(1)).await.unwrap();
        scene.counted("Synced").await;
        scene.stage.user.set(&environment, "A", b"2").await.unwrap();
        scene.good_follows("1").await;
        scene.holds("bad", &[("A", "1")]).await;
        scene.bind("bad", &environment).await;
        scene.holds("bad", &[("A", "2")]).await;
        eventually(SOON, async || (told().await == 2).then_some(())).await.unwrap();
        scene.operator.metric_becomes("konverge_pull_bindings", "reason=\"Synced\"", is(2)).await.unwrap();
    });
}
