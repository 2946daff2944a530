//! Changes that roll, and changes that do not.

use std::time::Duration;

use jiff::Timestamp;
use konverge_roll::trigger::TriggerKind::{self, VaultSyncStatus};
use konverge_workload::WorkloadKind::{self, Deployment};
use kube::api::DeleteParams;
use serde_json::{Value, json};

use super::world::VaultWorld;
use crate::world::{ALL, SOON, until};

/// A world in which the pods of `web` run with the first version of `app`.
async fn settled(arguments: &[&str]) -> (VaultWorld, crate::world::Operator) {
    let world = VaultWorld::new().await;
    let operator = world.in_sync(VaultSyncStatus, "vss", arguments).await;
    world.world.ready("web").await;
    (world, operator)
}

#[tokio::test]
async fn a1_a2_first_sight_rolls_nothing_and_a_new_version_once() {
    let (world, operator) = settled(&["--vault-interval=3s"]).await;
    world.is("vss", "Already in Sync").await;
    assert_eq!(world.world.templates("web").await, 1, "r6: first sight");

    world.write("app", "2").await;
    world.world.rolled("web", 1).await;
    world.is("vss", "Synced").await;
    world.is("vss", "Already in Sync").await;
    assert_eq!(world.version("vss").await, 2);
    let told = world.world.event("vss", "RolloutTriggered").await;
    assert!(told.contains("web is rolled"), "{told}");
    let told = world.world.event("web", "RolledOut").await;
    assert!(told.contains("VaultSyncStatus"), "{told}");
    // It has asked Vault again.
    world.world.settled_for(Duration::from_secs(4), &operator).await;
    assert_eq!(world.world.templates("web").await, 2);
}

/// The row R4 of what the Vault Secrets Operator is tested for.
#[tokio::test]
async fn ten_looks_at_what_does_not_change_roll_nothing_and_write_nothing() {
    let (world, operator) = settled(&[]).await;
    world.is("vss", "Already in Sync").await;
    // The last write of the status may still be under way.
    world.settled(&operator).await;
    let versions = async || {
        let web = world.world.api(Deployment).get_metadata("web").await.unwrap();
        let object = world.api().get_metadata("vss").await.unwrap();
        // That of a Deployment counts its annotations, too, and not what controllers say of its pods.
        (web.metadata.generation, object.metadata.resource_version)
    };
    let (before, asked) = (versions().await, operator.metric("konverge_roll_vault_questions_total", "").await);
    until("it has been asked for ten times", async || {
        let now = operator.metric("konverge_roll_vault_questions_total", "").await;
        if now >= asked + 10.0 { Ok(()) } else { Err(format!("{asked} questions have become {now}")) }
    })
    .await;
    assert_eq!(versions().await, before, "somebody has written");
    assert_eq!(world.world.templates("web").await, 1);
}

/// On the pods, where the original wrote a local time in words of its own. A workload that is rolled for sources in the cluster does not have it.
#[tokio::test]
async fn r19_the_time_is_left_as_kubectl_writes_it() {
    for kind in TriggerKind::ALL {
        let world = VaultWorld::new().await;
        world.write("app", "1").await;
        world.world.secret("db", "1").await;
        world.world.workload(Deployment, "web", &[], json!({})).await;
        world.world.workload(Deployment, "other", &["db"], json!({ ALL: "true" })).await;
        world.ask(kind, "one").await;
        let _operator = world.operator(&[]).await;
        world.condition(kind, "one", "Ready", "InSync").await;
        world.world.noted(Deployment, "other").await;
        let restarted = async |name: &str| {
            world.world.template(Deployment, name).await["kubectl.kubernetes.io/restartedAt"].clone()
        };
        assert_eq!(restarted("web").await, Value::Null, "first sight");

        let before = Timestamp::now().as_second();
        world.write("app", "2").await;
        world.world.secret("db", "2").await;
        for name in ["web", "other"] {
            world.world.rolled(name, 1).await;
        }
        let time = restarted("web").await;
        let time = time.as_str().unwrap();
        let read: Timestamp = time.parse().unwrap();
        // To the second and in UTC, which is how a time is printed that has no part of a second.
        assert_eq!(time, read.to_string());
        assert_eq!(read.subsec_nanosecond(), 0, "{time}");
        assert!((before..=Timestamp::now().as_second()).contains(&read.as_second()), "{time}");
        assert_eq!(restarted("other").await, Value::Null);
    }
}

#[tokio::test]
async fn a15_r7_a_restart_rolls_nothing_and_a_change_meanwhile_once() {
    let (world, operator) = settled(&[]).await;
    operator.stop().await;
    let operator = world.operator(&[]).await;
    world.settled(&operator).await;
    operator.stop().await;
    assert_eq!(world.world.templates("web").await, 1);

    world.write("app", "2").await;
    world.write("app", "3").await;
    let operator = world.operator(&[]).await;
    world.world.rolled("web", 1).await;
    world.says("vss", "InSync").await;
    world.settled(&operator).await;
    assert_eq!(world.world.templates("web").await, 2);
}

#[tokio::test]
async fn a7_two_replicas_roll_once() {
    let (world, operator) = settled(&[]).await;
    let _other = world.operator(&[]).await;
    for times in 1..=3 {
        world.world.ready("web").await;
        world.write("app", &times.to_string()).await;
        world.world.rolled("web", times).await;
    }
    world.settled(&operator).await;
    assert_eq!(world.world.templates("web").await, 4);
}

#[tokio::test]
async fn a12_r11_deletions_roll_nothing_and_a_secret_made_again_does() {
    let (world, operator) = settled(&[]).await;
    let nothing = Value::Null;
    world.vault_does("DELETE", "data", "app", nothing.clone()).await;
    world.says("vss", "SecretDeleted").await;
    world.is("vss", "Error").await;
    world.world.event("vss", "SecretDeleted").await;
    world.vault_does("POST", "undelete", "app", json!({ "versions": [1] })).await;
    world.says("vss", "InSync").await;
    // Metadata alone are no version.
    world.vault_does("POST", "metadata", "app", json!({ "custom_metadata": { "a": "b" } })).await;
    world.settled(&operator).await;
    assert_eq!(world.world.templates("web").await, 1);

    world.vault_does("DELETE", "metadata", "app", nothing).await;
    world.says("vss", "SecretNotFound").await;
    assert_eq!(world.world.templates("web").await, 1);
    world.write("app", "1").await;
    world.world.rolled("web", 1).await;
}

#[tokio::test]
async fn f25_a_secret_that_is_written_again_and_again_is_told_on_who_asks_for_it_and_not_followed() {
    let (world, operator) = settled(&["--min-interval", "0s", "--runaway-changes", "3", "--runaway-quiet", "1h"]).await;
    for value in 2..12 {
        world.write("app", &value.to_string()).await;
    }
    let told = world.world.event("vss", "RunawaySource").await;
    assert!(told.contains(&world.path("app")) && told.contains("until it is quiet"), "{told}");
    // A rollout that was decided upon before may still be under way.
    world.settled(&operator).await;
    let templates = world.world.templates("web").await;
    assert!(templates <= 4, "{templates}");
    world.write("app", "once more").await;
    world.settled(&operator).await;
    assert_eq!(world.world.templates("web").await, templates);
}

#[tokio::test]
async fn a14_r12_the_same_content_again_rolls_by_version_and_not_by_content() {
    let (world, operator) = settled(&[]).await;
    operator.stop().await;
    world.log_in("rollout-content").await;
    for name in ["content", "key", "v1"] {
        world.world.workload(Deployment, name, &[], json!({})).await;
    }
    let vss = async |name: &str, more: Value| {
        let mut spec = world.sample();
        spec["deployName"] = name.into();
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        world.vss(&format!("{name}-vss"), &spec).await;
    };
    vss("content", json!({ "mode": "Content" })).await;
    vss("key", json!({ "mode": "Content", "keys": ["other"] })).await;
    vss("v1", json!({ "secretEngine": "old", "engineVersion": 1 })).await;
    let old = format!("old/{}", world.path("app"));
    world.vault.request("POST", &old, &json!({ "k": "1" })).await.unwrap();
    let operator = world.operator(&[]).await;
    for name in ["content", "key", "v1"] {
        world.says(&format!("{name}-vss"), "InSync").await;
        world.world.ready(name).await;
    }

    world.write("app", "1").await;
    world.vault.request("POST", &old, &json!({ "k": "1" })).await.unwrap();
    world.world.rolled("web", 1).await;
    world.settled(&operator).await;
    for name in ["content", "key", "v1"] {
        assert_eq!(world.world.templates(name).await, 1, "{name}");
    }
    world.write("app", "2").await;
    world.vault.request("POST", &old, &json!({ "k": "2" })).await.unwrap();
    for name in ["content", "v1"] {
        world.world.rolled(name, 1).await;
    }
    world.world.rolled("web", 2).await;
    world.settled(&operator).await;
    assert_eq!(world.world.templates("key").await, 1, "a key that is not meant");
    let record = world.world.record(Deployment, "content").await.unwrap().to_string();
    assert!(record.contains("VaultContent/secret:"), "{record}");
}

#[tokio::test]
async fn a16_paused_is_remembered_and_told() {
    let (world, _operator) = settled(&[]).await;
    world.world.merge(Deployment, "web", json!({ "spec": { "paused": true } })).await;
    world.write("app", "2").await;
    world.world.event("web", "RolloutPaused").await;
    let told = world.says("vss", "RolloutPending").await;
    assert!(told.contains("paused"), "{told}");
    assert_eq!((world.world.templates("web").await, world.version("vss").await), (1, json!(1)));
    world.world.merge(Deployment, "web", json!({ "spec": { "paused": false } })).await;
    world.world.rolled("web", 1).await;
    world.says("vss", "InSync").await;
}

#[tokio::test]
async fn a20_r14_other_kinds() {
    let world = VaultWorld::new().await;
    world.write("app", "1").await;
    let kinds = [WorkloadKind::StatefulSet, WorkloadKind::DaemonSet, WorkloadKind::CronJob];
    for kind in kinds {
        world.world.workload(kind, "web", &[], json!({})).await;
        let mut spec = world.sample();
        spec["deployKind"] = kind.name().into();
        world.vss(kind.plural(), &spec).await;
    }
    let _operator = world.operator(&[]).await;
    for kind in kinds {
        world.says(kind.plural(), "InSync").await;
    }
    world.write("app", "2").await;
    for kind in kinds {
        until(&format!("{kind:?} is rolled"), async || world.world.stamp(kind, "web").await.ok_or_else(String::new))
            .await;
    }
}

#[tokio::test]
async fn f07_a_workload_that_is_made_anew_unseen_is_followed_on() {
    let world = VaultWorld::new().await;
    world.write("app", "1").await;
    world.world.workload(Deployment, "web", &[], json!({})).await;
    world.vss("vss", &world.sample()).await;
    let proxy = world.world.proxy().await;
    let reach = world.reach(world.vault.address());
    let arguments: Vec<_> = reach.iter().map(String::as_str).collect();
    let arguments = [&["--namespace", world.world.namespace.as_str()], arguments.as_slice()].concat();
    let _operator = world.world.operator_through(proxy.kubeconfig(), &arguments).await;
    world.world.noted(Deployment, "web").await;

    proxy.hide_changes(&["deployments.apps"]).unwrap();
    world.world.api(Deployment).delete("web", &DeleteParams::default()).await.unwrap();
    world.world.workload(Deployment, "web", &[], json!({})).await;
    proxy.show_outcome(SOON).await.unwrap();
    // Nothing changes in Vault, and it is known all the same what the new one runs with.
    world.world.noted(Deployment, "web").await;
    world.says("vss", "InSync").await;
    world.world.ready("web").await;
    world.write("app", "2").await;
    world.world.rolled("web", 1).await;
}
