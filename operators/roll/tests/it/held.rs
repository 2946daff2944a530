//! A rollout that is put off is done in the end, once.

use std::{collections::BTreeSet, time::Duration};

use konverge_testkit::{BROKEN_IMAGE, fault_proxy::Plan};
use konverge_workload::WorkloadKind::Deployment;
use serde_json::json;
use tokio::time::sleep;

use crate::world::{ALL, NO_REST, Operator, World, until};

/// Longer than a source is left alone after a read.
const BETWEEN_READS: Duration = Duration::from_secs(1);

#[tokio::test]
async fn within_the_interval_changes_are_gathered_into_one_rollout_also_over_a_restart() {
    let world = World::new().await;
    world.secret("db", "1").await;
    world.workload(Deployment, "web", &["db"], json!({ ALL: "true", "roll.konverge.dev/min-interval": "15s" })).await;
    let operator = world.operator(&[]).await;
    world.noted(Deployment, "web").await;
    world.secret("db", "2").await;
    world.rolled("web", 1).await;
    world.secret("db", "3").await;
    let told = world.event("web", "WaitingForInterval").await;
    assert!(told.starts_with("Secret/db changed"), "{told}");
    operator.stop().await;
    let operator = world.operator(&[]).await;
    for value in ["4", "5", "6"] {
        world.secret("db", value).await;
    }
    world.rolled("web", 2).await;
    world.settled(&operator).await;
    assert_eq!(world.templates("web").await, 3);
}

#[tokio::test]
async fn paused_is_remembered_and_without_pods_nothing_needs_to_be() {
    let world = World::new().await;
    world.secret("db", "1").await;
    for name in ["paused", "asked", "empty"] {
        world.workload(Deployment, name, &["db"], json!({ ALL: "true" })).await;
    }
    let operator = world.operator(&NO_REST).await;
    for name in ["paused", "asked", "empty"] {
        world.noted(Deployment, name).await;
        world.ready(name).await;
    }
    let pause = |word: serde_json::Value| json!({ "metadata": { "annotations": { "roll.konverge.dev/pause": word } } });
    world.merge(Deployment, "paused", json!({ "spec": { "paused": true } })).await;
    world.merge(Deployment, "asked", pause("true".into())).await;
    world.merge(Deployment, "empty", json!({ "spec": { "replicas": 0 } })).await;
    let before = world.noted(Deployment, "empty").await;
    pods(&world, "empty", 0).await;
    // The operator has seen that, too.
    world.settled(&operator).await;
    world.secret("db", "2").await;
    for name in ["paused", "asked"] {
        world.event(name, "RolloutPaused").await;
    }
    // The content that its pods will run with is recorded instead.
    until("it is noted", async || {
        let now = world.noted(Deployment, "empty").await;
        if now == before { Err(now.to_string()) } else { Ok(()) }
    })
    .await;
    world.settled(&operator).await;
    for name in ["paused", "asked", "empty"] {
        assert_eq!(world.templates(name).await, 1, "{name}");
    }
    world.merge(Deployment, "paused", json!({ "spec": { "paused": false } })).await;
    world.merge(Deployment, "asked", pause(serde_json::Value::Null)).await;
    world.merge(Deployment, "empty", json!({ "spec": { "replicas": 1 } })).await;
    for name in ["paused", "asked"] {
        world.rolled(name, 1).await;
    }
    world.settled(&operator).await;
    for (name, times) in [("paused", 1), ("asked", 1), ("empty", 0)] {
        assert_eq!(world.templates(name).await, 1 + times, "{name}");
    }
}

/// Waits until a Deployment has this many pods.
async fn pods(world: &World, name: &str, expected: i64) {
    until(&format!("{name} has {expected} pods"), async || {
        let object = world.api(Deployment).get(name).await.unwrap();
        let status = &object.data["status"];
        let is_seen = status["observedGeneration"].as_i64() == object.metadata.generation;
        let found = status["replicas"].as_i64().unwrap_or_default();
        if is_seen && found == expected { Ok(()) } else { Err(status.to_string()) }
    })
    .await;
}

#[tokio::test]
async fn what_changed_while_there_were_no_pods_rolls_nothing_when_they_come_back() {
    let world = World::new().await;
    world.secret("db", "0").await;
    world.workload(Deployment, "web", &["db"], json!({ ALL: "true" })).await;
    let scale = async |replicas: i64| {
        world.merge(Deployment, "web", json!({ "spec": { "replicas": replicas } })).await;
        pods(&world, "web", replicas).await;
    };
    let mut operator = world.operator(&NO_REST).await;
    let mut noted = world.noted(Deployment, "web").await;
    for (value, is_down) in [("1", false), ("2", true), ("3", false)] {
        scale(0).await;
        if is_down {
            operator.stop().await;
            world.secret("db", value).await;
            operator = world.operator(&NO_REST).await;
        } else {
            // The operator has seen that there are no pods.
            world.settled(&operator).await;
            world.secret("db", value).await;
        }
        noted = until("it is noted", async || {
            let now = world.noted(Deployment, "web").await;
            if now == noted { Err(now.to_string()) } else { Ok(now) }
        })
        .await;
        scale(1).await;
        world.ready("web").await;
        world.settled(&operator).await;
        assert_eq!(world.templates("web").await, 1, "{value}");
    }
    world.secret("db", "4").await;
    world.rolled("web", 1).await;
}

#[tokio::test]
async fn how_long_the_oldest_one_waits_is_measured() {
    let world = World::new().await;
    world.secret("db", "1").await;
    world.workload(Deployment, "web", &["db"], json!({ ALL: "true", "roll.konverge.dev/pause": "true" })).await;
    let operator = world.operator(&NO_REST).await;
    world.noted(Deployment, "web").await;
    let becomes = async |name: &str, right: &dyn Fn(f64) -> bool| {
        until(name, async || {
            let now = operator.metric(name, "").await;
            if right(now) { Ok(now) } else { Err(now.to_string()) }
        })
        .await
    };
    becomes("konverge_roll_pending", &|now| now < 0.5).await;
    world.secret("db", "2").await;
    becomes("konverge_roll_pending", &|now| now > 0.5).await;
    let first = becomes("konverge_roll_oldest_pending_seconds", &|now| now >= 1.0).await;
    becomes("konverge_roll_oldest_pending_seconds", &|now| now > first).await;
    // It opts out for a while.
    let asks = async |word: serde_json::Value| {
        world.merge(Deployment, "web", json!({ "metadata": { "annotations": { ALL: word } } })).await;
    };
    asks(serde_json::Value::Null).await;
    becomes("konverge_roll_pending", &|now| now < 0.5).await;
    assert!(operator.metric("konverge_roll_oldest_pending_seconds", "").await < 0.5, "nobody waits");
    asks("true".into()).await;
    becomes("konverge_roll_pending", &|now| now > 0.5).await;
    world.merge(Deployment, "web", json!({ "metadata": { "annotations": { "roll.konverge.dev/pause": null } } })).await;
    world.rolled("web", 1).await;
    becomes("konverge_roll_pending", &|now| now < 0.5).await;
    assert!(operator.metric("konverge_roll_oldest_pending_seconds", "").await < 0.5, "nobody waits");
    assert!(operator.metric("konverge_roll_suppressed_total", "RolloutPaused").await >= 1.0, "it was held back");
}

#[tokio::test]
async fn waves_go_in_order_and_halt() {
    let world = World::new().await;
    world.secret("db", "1").await;
    world.workload(Deployment, "second", &["db"], json!({ ALL: "true", "roll.konverge.dev/wave": "2" })).await;
    world.workload(Deployment, "first", &["db"], json!({ ALL: "true", "roll.konverge.dev/wave": "1" })).await;
    let operator = world.operator(&NO_REST).await;
    for name in ["first", "second"] {
        world.noted(Deployment, name).await;
        world.ready(name).await;
    }
    // Its pods are not available before this time, so that the next wave would be seen to be early.
    world.merge(Deployment, "first", json!({ "spec": { "minReadySeconds": 5 } })).await;
    world.ready("first").await;
    world.secret("db", "2").await;
    world.rolled("second", 1).await;
    let first = world.api(Deployment).get("first").await.unwrap();
    let status = &first.data["status"];
    assert_eq!(status["observedGeneration"].as_i64(), first.metadata.generation, "{status}");
    assert_eq!([&status["updatedReplicas"], &status["availableReplicas"], &status["replicas"]], [1, 1, 1], "{status}");
    world.rolled("first", 1).await;
    world.ready("second").await;
    // The first one's new pods do not come up, and its controller gives up soon.
    let change = json!({ "spec": {
        "minReadySeconds": 0,
        "progressDeadlineSeconds": 5,
        "template": { "spec": { "containers": [{ "name": "main", "image": BROKEN_IMAGE }] } },
    } });
    let patch = kube::api::Patch::Strategic(change);
    world.api(Deployment).patch("first", &kube::api::PatchParams::default(), &patch).await.unwrap();
    world.secret("db", "3").await;
    let told = world.event("second", "WaveHalted").await;
    assert!(told.contains("first") && told.contains("does not become ready"), "{told}");
    world.settled(&operator).await;
    assert_eq!(world.templates("second").await, 2);
}

/// While new pods of two of them cannot become ready, nobody else is rolled.
#[tokio::test]
async fn at_most_so_many_at_once() {
    let world = World::new().await;
    world.secret("db", "1").await;
    let names = ["a", "b", "c", "d"];
    for name in names {
        world.workload(Deployment, name, &["db"], json!({ ALL: "true" })).await;
    }
    let operator = world.operator(&["--min-interval", "0s", "--max-concurrent-rollouts", "2"]).await;
    for name in names {
        world.noted(Deployment, name).await;
        world.ready(name).await;
    }
    world.hold_pods();
    world.secret("db", "2").await;
    let rolled = async || {
        let mut rolled = BTreeSet::new();
        for name in names {
            if world.templates(name).await == 2 {
                rolled.insert(name);
            }
        }
        rolled
    };
    let first = until("two are rolled, and the others wait", async || {
        let rolled = rolled().await;
        for name in names.into_iter().filter(|name| !rolled.contains(name)) {
            let events = world.events(name).await;
            if !events.iter().any(|(reason, _)| reason == "WaitingForOthers") {
                return Err(format!("{rolled:?}; {name}: {events:?}"));
            }
        }
        if rolled.len() == 2 { Ok(rolled) } else { Err(format!("{rolled:?}")) }
    })
    .await;
    world.settled(&operator).await;
    assert_eq!(rolled().await, first, "no more than two at once");
    world.let_pods_go();
    for name in names {
        world.rolled(name, 1).await;
    }
}

/// Without flags, a Secret that many workloads use restarts some of them, and the others when those are ready.
#[tokio::test]
async fn by_default_not_everybody_is_rolled_at_once() {
    // The share of one namespace.
    const BY_DEFAULT: usize = 20;
    let world = World::new().await;
    world.secret("db", "1").await;
    let names: Vec<_> = (0..BY_DEFAULT + 3).map(|number| format!("web-{number}")).collect();
    for name in &names {
        world.workload(Deployment, name, &["db"], json!({ ALL: "true" })).await;
    }
    let operator = world.operator_by_default().await;
    for name in &names {
        world.noted(Deployment, name).await;
        world.ready(name).await;
    }
    world.hold_pods();
    world.secret("db", "2").await;
    let counts = async || {
        let (mut rolled, mut waiting) = (0, 0);
        for name in &names {
            rolled += usize::from(world.templates(name).await == 2);
            waiting += usize::from(world.events(name).await.iter().any(|(reason, _)| reason == "WaitingForNamespace"));
        }
        (rolled, waiting)
    };
    until("as many are rolled as the budget allows, and the others wait", async || {
        let counts = counts().await;
        if counts == (BY_DEFAULT, 3) { Ok(()) } else { Err(format!("{counts:?}")) }
    })
    .await;
    world.settled(&operator).await;
    assert_eq!(counts().await, (BY_DEFAULT, 3));
    world.let_pods_go();
    for name in &names {
        world.rolled(name, 1).await;
    }
}

/// Pods that cannot start with one value may start with the next one. That one is rolled at once, also if there is one place for all.
#[tokio::test]
async fn new_content_supersedes_a_rollout_of_its_own_that_hangs() {
    let world = World::new().await;
    let names: Vec<_> = (0..10).map(|number| format!("db-{number}")).collect();
    let sources: Vec<_> = names.iter().map(String::as_str).collect();
    for name in &names {
        world.secret(name, "good").await;
    }
    world.workload(Deployment, "web", &sources, json!({ ALL: "true" })).await;
    let operator =
        world.operator(&["--min-interval", "0s", "--max-concurrent-rollouts", "1", "--debounce", "1s"]).await;
    world.noted(Deployment, "web").await;
    world.ready("web").await;
    world.hold_pods();
    world.secret("db-0", "bad").await;
    world.rolled("web", 1).await;
    // The rollout is seen to be under way, and hangs.
    until("the new pods are not available", async || {
        let status = world.api(Deployment).get("web").await.unwrap().data["status"].clone();
        if status["unavailableReplicas"].as_i64() == Some(1) { Ok(()) } else { Err(status.to_string()) }
    })
    .await;
    world.settled(&operator).await;
    assert_eq!(world.templates("web").await, 2, "nothing has changed since");
    for name in &names {
        world.secret(name, "fixed").await;
    }
    until("the fix is rolled", async || {
        let templates = world.templates("web").await;
        if templates > 2 { Ok(()) } else { Err(format!("{templates} templates, {:?}", world.events("web").await)) }
    })
    .await;
    world.let_pods_go();
    world.ready("web").await;
}

/// A Deployment that uses `db` and `api`, and an operator that waits so long for more changes.
async fn debounced(span: &str) -> (World, Operator) {
    let world = World::new().await;
    for name in ["db", "api"] {
        world.secret(name, "0").await;
    }
    world.workload(Deployment, "web", &["db", "api"], json!({ ALL: "true" })).await;
    let arguments = ["--min-interval", "0s", "--runaway-changes", "0", "--debounce", span];
    let operator = world.operator(&arguments).await;
    world.noted(Deployment, "web").await;
    (world, operator)
}

#[tokio::test]
async fn changes_within_the_window_are_one_rollout() {
    let (world, operator) = debounced("10s").await;
    for value in ["1", "2"] {
        for name in ["db", "api"] {
            world.secret(name, value).await;
        }
    }
    let told = world.event("web", "WaitingForInterval").await;
    assert!(told.contains("more changes may come until"), "{told}");
    world.rolled("web", 1).await;
    let told = world.event("web", "RolledOut").await;
    assert!(told.contains("Secret/api changed") && told.contains("Secret/db changed"), "{told}");
    world.settled(&operator).await;
    assert_eq!(world.templates("web").await, 2, "all four were one");
}

#[tokio::test]
async fn changes_that_do_not_end_are_not_waited_out() {
    // No pause between two of them is as long.
    let (world, _operator) = debounced("2s").await;
    let mut value = 0;
    until("it is rolled", async || {
        value += 1;
        world.secret("db", &value.to_string()).await;
        let templates = world.templates("web").await;
        if templates > 1 { Ok(()) } else { Err(format!("not after {value} changes")) }
    })
    .await;
}

#[tokio::test]
async fn a_runaway_source_is_left_alone_until_it_is_quiet() {
    let world = World::new().await;
    world.secret("db", "0").await;
    world.workload(Deployment, "web", &["db"], json!({ ALL: "true", "roll.konverge.dev/min-interval": "1h" })).await;
    world.workload(Deployment, "other", &["db"], json!({ ALL: "true" })).await;
    let arguments = ["--min-interval", "0s", "--runaway-changes", "4", "--runaway-quiet", "20s"];
    let _operator = world.operator(&arguments).await;
    for name in ["web", "other"] {
        world.noted(Deployment, name).await;
    }
    let mut value = 0;
    until("it ran away", async || {
        value += 1;
        world.secret("db", &value.to_string()).await;
        let events = world.events("db").await;
        if events.iter().any(|(reason, _)| reason == "RunawaySource") { Ok(()) } else { Err(format!("{events:?}")) }
    })
    .await;
    // A rollout that was decided upon before may still be written; its run comes before the one that says this.
    world.event("other", "WaitingForQuiet").await;
    // The ReplicaSet of that rollout is there once the controller has seen it.
    until("its controller has seen the last rollout", async || {
        let object = world.api(Deployment).get("other").await.unwrap();
        let seen = object.data["status"]["observedGeneration"].as_i64();
        if seen == object.metadata.generation { Ok(()) } else { Err(format!("{seen:?}")) }
    })
    .await;
    let before = world.templates("other").await;
    for _ in 0..10 {
        value += 1;
        world.secret("db", &value.to_string()).await;
        sleep(BETWEEN_READS / 2).await;
    }
    assert_eq!(world.templates("other").await, before, "not followed");
    world.rolled("other", before).await;
    assert_eq!(world.templates("web").await, 2, "once an hour");
}

#[tokio::test]
async fn one_source_that_runs_away_or_is_forbidden_keeps_no_other_back() {
    let world = World::new().await;
    for name in ["wild", "forbidden", "good"] {
        world.secret(name, "0").await;
    }
    world.workload(Deployment, "web", &["wild", "forbidden", "good"], json!({ ALL: "true" })).await;
    let proxy = world.proxy().await;
    let refuse =
        "rules: [{ when: { verbs: [get], resources: [secrets], name: forbidden }, then: { status: { code: 403 } } }]";
    proxy.set(Plan::parse(refuse).unwrap()).unwrap();
    // It stays open for longer than the test takes.
    let arguments = ["--min-interval", "0s", "--runaway-changes", "3", "--runaway-quiet", "1h"];
    let arguments = [&["--namespace", world.namespace.as_str()], arguments.as_slice()].concat();
    let operator = world.operator_through(proxy.kubeconfig(), &arguments).await;
    world.event("web", "SourceForbidden").await;
    world.noted(Deployment, "web").await;

    // Each of these is seen, since what it was before is not read for so long.
    let mut value = 0;
    until("it ran away", async || {
        value += 1;
        world.secret("wild", &value.to_string()).await;
        sleep(BETWEEN_READS).await;
        let events = world.events("wild").await;
        if events.iter().any(|(reason, _)| reason == "RunawaySource") { Ok(()) } else { Err(format!("{events:?}")) }
    })
    .await;
    world.secret("wild", "last").await;
    let told = world.event("web", "WaitingForQuiet").await;
    assert!(told.contains("Secret/wild") && told.contains("before the source is quiet"), "{told}");
    // A rollout that was decided upon before may still be under way.
    world.settled(&operator).await;
    let before = world.templates("web").await;
    world.secret("good", "1").await;
    world.rolled("web", before).await;
    world.secret("good", "2").await;
    world.rolled("web", before + 1).await;
    world.settled(&operator).await;
    assert_eq!(world.templates("web").await, before + 2, "once for each change of the good one");
}

#[tokio::test]
async fn one_whose_patch_is_refused_takes_no_place_from_others() {
    let world = World::new().await;
    for name in ["barred", "free"] {
        world.secret(name, "1").await;
        world.workload(Deployment, name, &[name], json!({ ALL: "true" })).await;
    }
    let proxy = world.proxy().await;
    let arguments = [
        "--namespace",
        world.namespace.as_str(),
        "--min-interval",
        "0s",
        "--max-concurrent-rollouts",
        "1",
        "--max-rollouts-per-minute",
        "1",
    ];
    let operator = world.operator_through(proxy.kubeconfig(), &arguments).await;
    for name in ["barred", "free"] {
        world.noted(Deployment, name).await;
        world.ready(name).await;
    }
    let refuse = "rules: [{ when: { verbs: [patch], resources: [deployments.apps], name: barred }, then: { status: { code: 403 } } }]";
    proxy.set(Plan::parse(refuse).unwrap()).unwrap();
    world.secret("barred", "2").await;
    world.event("barred", "WorkloadNotWritable").await;
    world.secret("free", "2").await;
    world.rolled("free", 1).await;
    world.settled(&operator).await;
    assert_eq!(world.templates("barred").await, 1);
}
