//! A busy key does not hide other keys, and a busy namespace does not starve others.

use std::time::Duration;

use konverge_workload::WorkloadKind::Deployment;
use serde_json::json;
use tokio::time::sleep;

use crate::world::{ALL, World, new_control_plane, until};

/// A change of a used key is rolled while another key, used or not, changes all the time.
#[tokio::test]
async fn a_key_that_changes_all_the_time_hides_no_other_key() {
    let world = World::new().await;
    let change = async |mode: &str, beat: u32| {
        world.secret_with("shared", &json!({ "mode": mode, "beat": beat.to_string() }), &json!({})).await;
    };
    change("a", 0).await;
    let key = |key: &str| json!({ "name": key.to_uppercase(), "valueFrom": { "secretKeyRef": { "name": "shared", "key": key } } });
    world.workload_of(Deployment, "unused", json!({ "env": [key("mode")] }), json!({ ALL: "true" })).await;
    // It is rolled for the busy key once, and not again before its interval has passed, which ends after the breaker has opened.
    let rarely = json!({ ALL: "true", "roll.konverge.dev/min-interval": "6s" });
    world.workload_of(Deployment, "used", json!({ "env": [key("mode"), key("beat")] }), rarely).await;
    let operator = world.operator(&["--min-interval", "0s", "--runaway-changes", "4"]).await;
    for name in ["unused", "used"] {
        world.noted(Deployment, name).await;
        world.ready(name).await;
    }
    let mut beat = 0;
    for _ in 0..14 {
        beat += 1;
        change("a", beat).await;
        sleep(Duration::from_millis(700)).await;
    }
    assert_eq!(world.templates("unused").await, 1, "it does not use that key");
    assert!(operator.metric("konverge_roll_runaway_sources", "").await > 0.5);
    let rolled = world.templates("used").await;
    assert!(rolled <= 3, "the busy key is not followed: {rolled}");
    change("b", beat).await;
    let mut counts = (0, 0);
    for _ in 0..20 {
        beat += 1;
        change("b", beat).await;
        sleep(Duration::from_millis(700)).await;
        counts = (world.templates("unused").await, world.templates("used").await);
        if counts == (2, rolled + 1) {
            break;
        }
    }
    assert_eq!(counts, (2, rolled + 1), "each is rolled once for the key that it uses");
}

/// The rollouts of one namespace hang, and more wait.
#[tokio::test]
async fn rollouts_that_hang_in_one_namespace_hold_up_no_other() {
    let control_plane = new_control_plane().await;
    let (busy, other) = (World::on(&control_plane).await, World::on(&control_plane).await);
    let flags = ["--min-interval=0s", "--max-concurrent-rollouts=4", "--concurrent-per-namespace=2"];
    let operator = busy.operator_everywhere(&flags).await;
    for world in [&busy, &other] {
        world.secret("db", "1").await;
        for name in ["a", "b", "c"] {
            world.workload(Deployment, name, &["db"], json!({ ALL: "true" })).await;
        }
        for name in ["a", "b", "c"] {
            world.noted(Deployment, name).await;
            world.ready(name).await;
        }
    }
    busy.hold_pods();
    busy.secret("db", "2").await;
    let mut told = String::new();
    for _ in 0..100 {
        for name in ["a", "b", "c"] {
            let events = busy.events(name).await;
            told =
                events.into_iter().find(|(reason, _)| reason == "WaitingForNamespace").map_or(told, |(_, text)| text);
        }
        if !told.is_empty() {
            break;
        }
        sleep(Duration::from_millis(100)).await;
    }
    assert!(told.contains(&busy.namespace) && told.contains("its share"), "{told}");
    other.secret("db", "2").await;
    for name in ["a", "b", "c"] {
        other.rolled(name, 1).await;
    }
    let mut hanging = 0;
    for name in ["a", "b", "c"] {
        hanging += busy.templates(name).await - 1;
    }
    assert_eq!(hanging, 2, "it has its share and no more");
    drop(operator);
}

/// Without any limit set, 25 rollouts of one namespace hang.
#[tokio::test]
async fn by_default_rollouts_that_hang_in_one_namespace_keep_no_other_waiting() {
    let control_plane = new_control_plane().await;
    let (busy, other) = (World::on(&control_plane).await, World::on(&control_plane).await);
    let operator = busy.operator_everywhere_by_default().await;
    let crowd: Vec<_> = (0..25).map(|number| format!("w{number}")).collect();
    for (world, names) in [(&busy, &crowd[..]), (&other, &crowd[..1])] {
        world.secret("db", "1").await;
        for name in names {
            world.workload(Deployment, name, &["db"], json!({ ALL: "true" })).await;
        }
        for name in names {
            world.noted(Deployment, name).await;
            world.ready(name).await;
        }
    }
    busy.hold_pods();
    busy.secret("db", "2").await;
    until("five wait for the share of their namespace", async || {
        let mut waiting = Vec::new();
        for name in &crowd {
            let events = busy.events(name).await;
            waiting
                .extend(events.into_iter().find(|(reason, _)| reason == "WaitingForNamespace").map(|(_, text)| text));
        }
        let share = format!("the namespace {} has 20 rollouts under way, which is its share", busy.namespace);
        if waiting.len() == 5 && waiting.iter().all(|text| text.contains(&share)) {
            Ok(())
        } else {
            Err(format!("{waiting:?}"))
        }
    })
    .await;
    other.secret("db", "2").await;
    other.rolled("w0", 1).await;
    let events = other.events("w0").await;
    // It only gathers changes, as always.
    let waits = |reason: &str| reason.starts_with("Waiting") && reason != "WaitingForInterval";
    assert!(!events.iter().any(|(reason, _)| waits(reason)), "it had to wait: {events:?}");
    let mut hanging = 0;
    for name in &crowd {
        hanging += busy.templates(name).await - 1;
    }
    assert_eq!(hanging, 20, "a stuck rollout still counts against its own namespace");
    drop(operator);
}
