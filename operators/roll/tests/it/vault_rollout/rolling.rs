//! The workloads that are rolled for a secret, and the status about that.

use konverge_roll::trigger::TriggerKind::{self, VaultRollout};
use konverge_workload::WorkloadKind::{Deployment, StatefulSet};
use serde_json::{Value, json};

use crate::{vault_sync_status::world::VaultWorld, world::until};

/// Waits until the object says this of itself; gives its message.
async fn says(world: &VaultWorld, name: &str, reason: &str) -> String {
    world.condition(VaultRollout, name, "Ready", reason).await
}

async fn status(world: &VaultWorld, name: &str) -> Value {
    world.object_of(VaultRollout, name).await["status"].take()
}

/// How often each of these Deployments was rolled.
async fn rollouts(world: &VaultWorld, names: &[&str]) -> Vec<usize> {
    let mut rollouts = Vec::new();
    for name in names {
        rollouts.push(world.world.templates(name).await - 1);
    }
    rollouts
}

#[tokio::test]
async fn r14_r7_several_secrets_and_workloads_are_rolled_once_each() {
    let world = VaultWorld::new().await;
    for secret in ["app", "db"] {
        world.write(secret, "1").await;
    }
    for name in ["web", "api"] {
        world.world.workload(Deployment, name, &[], json!({})).await;
    }
    world.world.workload(StatefulSet, "worker", &[], json!({})).await;
    let spec = json!({
        "vaultSecrets": [{ "mount": "secret", "path": world.path("app") }, { "mount": "secret", "path": world.path("db") }],
        "targets": [
            { "kind": "Deployment", "name": "web" }, { "kind": "Deployment", "name": "api" },
            { "kind": "StatefulSet", "name": "worker" },
        ],
    });
    world.rollout("all", &spec).await;
    let operator = world.operator(&[]).await;
    says(&world, "all", "InSync").await;
    let counted = status(&world, "all").await;
    assert_eq!((&counted["inSyncWorkloads"], &counted["workloads"]), (&json!(3), &json!(3)));
    for name in ["web", "api"] {
        world.world.ready(name).await;
    }
    assert_eq!(rollouts(&world, &["web", "api"]).await, [0, 0], "first sight");
    assert_eq!(world.world.stamp(StatefulSet, "worker").await, None);

    world.write("db", "2").await;
    for name in ["web", "api"] {
        world.world.rolled(name, 1).await;
    }
    let stamped = until("the StatefulSet is rolled", async || {
        world.world.stamp(StatefulSet, "worker").await.ok_or_else(String::new)
    });
    let stamp = stamped.await;
    let told = world.condition(VaultRollout, "all", "RolledOut", "RolloutTriggered").await;
    let secret = format!("version 2 of Vault/secret:{}", world.path("db"));
    assert!(told.contains(&secret) && told.contains("(VaultRollout)"), "{told}");
    world.world.event("all", "RolloutTriggered").await;
    assert!(world.world.event("web", "RolledOut").await.contains("(VaultRollout)"));

    // Two requests for the same secret, also of two kinds, are one rollout.
    world.vss("vss", &world.sample()).await;
    world.says("vss", "InSync").await;
    operator.stop().await;
    world.write("app", "3").await;
    let operator = world.operator(&[]).await;
    for name in ["web", "api"] {
        world.world.rolled(name, 2).await;
    }
    world.settled(&operator).await;
    assert_eq!(rollouts(&world, &["web", "api"]).await, [2, 2]);
    assert_ne!(world.world.stamp(StatefulSet, "worker").await, Some(stamp));
}

#[tokio::test]
async fn r14_r6_labels_choose_and_who_gets_them_later_is_not_rolled_for_that() {
    let world = VaultWorld::new().await;
    world.write("app", "1").await;
    for name in ["web", "never", "other"] {
        let annotations = if name == "never" { json!({ "roll.konverge.dev/on-change": "false" }) } else { json!({}) };
        world.world.workload(Deployment, name, &[], annotations).await;
    }
    let label = async |name: &str, value: Value| {
        world.world.merge(Deployment, name, json!({ "metadata": { "labels": { "vault": value } } })).await;
    };
    let operator = world.operator(&[]).await;
    let spec = json!({
        "vaultSecrets": [{ "mount": "secret", "path": world.path("app") }],
        "targets": [{ "selector": { "matchLabels": { "vault": "shared" } } }],
    });
    world.rollout("labels", &spec).await;
    says(&world, "labels", "NoTargets").await;
    for name in ["web", "never"] {
        label(name, json!("shared")).await;
    }
    says(&world, "labels", "InSync").await;
    assert_eq!(status(&world, "labels").await["inSyncWorkloads"], 1);
    world.write("app", "2").await;
    world.world.rolled("web", 1).await;
    world.world.ready("web").await;

    label("other", json!("shared")).await;
    label("web", Value::Null).await;
    world.world.noted(Deployment, "other").await;
    until("one takes part", async || match status(&world, "labels").await {
        status if status["conditions"].to_string().contains("/other run with version 2") => Ok(()),
        status => Err(status.to_string()),
    })
    .await;
    world.write("app", "3").await;
    world.world.rolled("other", 1).await;
    world.settled(&operator).await;
    assert_eq!(rollouts(&world, &["web", "other", "never"]).await, [1, 1, 0]);
}

#[tokio::test]
async fn suspended_is_remembered_and_rolled_once_afterwards() {
    let world = VaultWorld::new().await;
    let operator = world.in_sync(VaultRollout, "one", &[]).await;
    let suspend = async |value: bool| {
        let spec = json!({
            "vaultSecrets": [{ "mount": "secret", "path": world.path("app") }],
            "targets": [{ "kind": "Deployment", "name": "web" }], "suspend": value,
        });
        world.rollout("one", &spec).await;
    };
    suspend(true).await;
    says(&world, "one", "Suspended").await;
    world.write("app", "2").await;
    operator.stop().await;
    let operator = world.operator(&[]).await;
    world.write("app", "3").await;
    world.settled(&operator).await;
    assert_eq!(rollouts(&world, &["web"]).await, [0]);
    suspend(false).await;
    world.world.rolled("web", 1).await;
    says(&world, "one", "InSync").await;
    world.settled(&operator).await;
    assert_eq!(rollouts(&world, &["web"]).await, [1]);
}

#[tokio::test]
async fn r1_no_error_of_vault_rolls_anything_and_what_was_missed_is_rolled_once() {
    let world = VaultWorld::new().await;
    let operator = world.in_sync(VaultRollout, "one", &[]).await;
    world.vault_does("DELETE", "data", "app", Value::Null).await;
    says(&world, "one", "SecretDeleted").await;
    world.vault_does("DELETE", "metadata", "app", Value::Null).await;
    says(&world, "one", "SecretNotFound").await;
    world.world.event("one", "SecretNotFound").await;
    world.settled(&operator).await;
    assert_eq!(rollouts(&world, &["web"]).await, [0]);
    world.write("app", "2").await;
    world.world.rolled("web", 1).await;
    says(&world, "one", "InSync").await;
}

#[tokio::test]
async fn r21_conditions_tell_what_when_why_and_until_when() {
    for kind in TriggerKind::ALL {
        let world = VaultWorld::new().await;
        world.write("app", "1").await;
        world.world.workload(Deployment, "web", &[], json!({ "roll.konverge.dev/min-interval": "1h" })).await;
        world.ask(kind, "one").await;
        let _operator = world.operator(&[]).await;
        world.condition(kind, "one", "Ready", "InSync").await;
        world.world.ready("web").await;
        world.write("app", "2").await;
        world.world.rolled("web", 1).await;
        let told = world.condition(kind, "one", "RolledOut", "RolloutTriggered").await;
        let source = format!("Vault/secret:{}", world.path("app"));
        let because = format!("for version 2 of {source}: {source} changed ({})", kind.name());
        assert!(told.contains(&because) && told.contains("was rolled at 20"), "{told}");
        world.world.ready("web").await;
        world.write("app", "3").await;
        let told = world.condition(kind, "one", "Held", "WaitingForInterval").await;
        let rolled = world.object_of(kind, "one").await["status"]["lastRolloutTime"].take();
        let rolled: jiff::Timestamp = rolled.as_str().unwrap().parse().unwrap();
        let earliest = rolled.as_second() + 3600;
        let stated = told.rsplit("not before ").next().unwrap().parse::<jiff::Timestamp>().unwrap();
        assert!((earliest..=earliest + 1).contains(&stated.as_second()), "{told}");
        let status = world.object_of(kind, "one").await;
        let ready = status["status"]["conditions"].as_array().unwrap().iter().find(|known| known["type"] == "Ready");
        assert_eq!(ready.unwrap()["observedGeneration"], status["metadata"]["generation"], "{status}");
        // Nothing is held back any more, and what was said of the last rollout is said of the new one.
        let annotations = json!({ "metadata": { "annotations": { "roll.konverge.dev/min-interval": "0s" } } });
        world.world.merge(Deployment, "web", annotations).await;
        world.world.rolled("web", 2).await;
        until("it tells of the new one", async || {
            let conditions = world.object_of(kind, "one").await["status"]["conditions"].to_string();
            if conditions.contains("version 3") && !conditions.contains("Held") { Ok(()) } else { Err(conditions) }
        })
        .await;
    }
}

#[tokio::test]
async fn a_secret_that_vault_denies_keeps_no_other_back() {
    let world = VaultWorld::new().await;
    for secret in ["app", "denied"] {
        world.write(secret, "1").await;
    }
    world.world.workload(Deployment, "web", &[], json!({})).await;
    let policy = format!("only-{}", world.path("app").replace('/', "-"));
    let rule = format!("path \"secret/metadata/{}\" {{ capabilities = [\"read\"] }}", world.path("app"));
    world.vault.policy(&policy, &rule).await.unwrap();
    world.log_in(&policy).await;
    let spec = json!({
        "vaultSecrets": [{ "mount": "secret", "path": world.path("denied") }, { "mount": "secret", "path": world.path("app") }],
        "targets": [{ "kind": "Deployment", "name": "web" }],
    });
    world.rollout("both", &spec).await;
    let _operator = world.operator(&[]).await;
    says(&world, "both", "PermissionDenied").await;
    world.world.noted(Deployment, "web").await;
    world.write("denied", "2").await;
    world.write("app", "2").await;
    world.world.rolled("web", 1).await;
    world.world.ready("web").await;
    says(&world, "both", "PermissionDenied").await;
}

/// One of the two paths of an object changes all the time. Changes of the other path are rolled, and so are those of a key beside an unused one.
#[tokio::test]
async fn a_path_or_a_key_that_changes_all_the_time_hides_no_other() {
    let world = VaultWorld::new().await;
    world.log_in("rollout-content").await;
    let shared = async |token: &str, beat: u32| {
        world
            .vault_does("POST", "data", "shared", json!({ "data": { "token": token, "beat": beat.to_string() } }))
            .await;
    };
    world.write("hot", "0").await;
    world.write("cold", "1").await;
    shared("1", 0).await;
    let secret = |name: &str| json!({ "mount": "secret", "path": world.path(name) });
    let mut key = secret("shared");
    key["mode"] = "Content".into();
    key["keys"] = json!(["token"]);
    for (name, secrets) in [("paths", json!([secret("hot"), secret("cold")])), ("keys", json!([key]))] {
        world.world.workload(Deployment, name, &[], json!({})).await;
        world
            .rollout(name, &json!({ "vaultSecrets": secrets, "targets": [{ "kind": "Deployment", "name": name }] }))
            .await;
    }
    let _operator = world.operator(&["--runaway-changes", "3", "--runaway-quiet", "1h"]).await;
    for name in ["paths", "keys"] {
        says(&world, name, "InSync").await;
        world.world.ready(name).await;
    }
    let mut beat = 0;
    let mut change = async |token: &str| {
        beat += 1;
        world.write("hot", &beat.to_string()).await;
        shared(token, beat).await;
        tokio::time::sleep(std::time::Duration::from_millis(500)).await;
    };
    until("the hot path has run away", async || {
        change("1").await;
        let events = world.world.events("paths").await;
        if events.iter().any(|(reason, _)| reason == "RunawaySource") { Ok(()) } else { Err(format!("{events:?}")) }
    })
    .await;
    for _ in 0..6 {
        change("1").await;
    }
    let before = rollouts(&world, &["paths", "keys"]).await;
    assert_eq!(before[1], 0, "nobody asked for the key that changes");
    world.write("cold", "2").await;
    until("each is rolled for what changed once", async || {
        change("2").await;
        let now = rollouts(&world, &["paths", "keys"]).await;
        if now == [before[0] + 1, 1] { Ok(()) } else { Err(format!("{before:?} {now:?}")) }
    })
    .await;
    for _ in 0..6 {
        change("2").await;
    }
    assert_eq!(rollouts(&world, &["paths", "keys"]).await, [before[0] + 1, 1], "and not again");
}
