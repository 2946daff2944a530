//! A rollout succeeds when its pods are available.

use std::time::{Duration, Instant};

use konverge_workload::WorkloadKind::{self, DaemonSet, Deployment, StatefulSet};
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use crate::world::{ALL, NO_REST, Operator, World, until};

/// A Deployment whose controller gives up soon.
async fn impatient(world: &World, name: &str, annotations: Value) {
    world.workload(Deployment, name, &["db"], annotations).await;
    world.merge(Deployment, name, json!({ "spec": { "progressDeadlineSeconds": 4 } })).await;
}

async fn failed_at(world: &World, kind: WorkloadKind, name: &str) -> Option<String> {
    let record = world.record(kind, name).await?;
    record["failed"].as_str().map(str::to_owned)
}

async fn fails(world: &World, kind: WorkloadKind, name: &str) {
    until(&format!("{name} has failed"), async || match failed_at(world, kind, name).await {
        Some(_) => Ok(()),
        None => Err("its record does not say so".to_owned()),
    })
    .await;
}

async fn recovers(world: &World, kind: WorkloadKind, name: &str) {
    until(&format!("{name} recovers"), async || match failed_at(world, kind, name).await {
        None => Ok(()),
        Some(since) => Err(since),
    })
    .await;
}

async fn failures(operator: &Operator) -> (f64, f64) {
    let count = operator.metric("konverge_roll_rollouts_total", "result=\"failed\"").await;
    (count, operator.metric("konverge_roll_failed_workloads", "").await)
}

#[tokio::test]
async fn a_rollout_whose_pods_fail_is_told_and_holds_back_those_that_wait_for_the_same_content() {
    let world = World::new().await;
    world.secret("db", "1").await;
    impatient(&world, "web", json!({ ALL: "true" })).await;
    let later = json!({ ALL: "true", "roll.konverge.dev/pause": "true" });
    world.workload(Deployment, "later", &["db"], later.clone()).await;
    world.workload(Deployment, "let-go", &["db"], later).await;
    let operator = world.operator(&NO_REST).await;
    for name in ["web", "later", "let-go"] {
        world.noted(Deployment, name).await;
        world.ready(name).await;
    }
    world.hold_pods();
    world.secret("db", "2").await;
    world.rolled("web", 1).await;
    assert_eq!(failed_at(&world, Deployment, "web").await, None, "it is under way");
    fails(&world, Deployment, "web").await;
    let told = world.event("web", "RolloutFailed").await;
    assert!(told.contains("Secret/db changed") && told.contains("do not become available"), "{told}");
    let resume = json!({ "metadata": { "annotations": { "roll.konverge.dev/pause": null } } });
    world.merge(Deployment, "later", resume.clone()).await;
    let told = world.event("later", "HeldByFailure").await;
    assert!(told.contains(&format!("Deployment {}/web", world.namespace)), "{told}");
    world.settled(&operator).await;
    assert_eq!(world.templates("later").await, 1, "it runs with content that works");
    assert_eq!(failures(&operator).await, (1.0, 1.0));
    // The failure survives a restart, and is counted once.
    operator.stop().await;
    let operator = world.operator(&NO_REST).await;
    world.settled(&operator).await;
    assert_eq!((world.templates("later").await, failures(&operator).await), (1, (0.0, 1.0)));
    // Good content comes, and everything is rolled once.
    world.let_pods_go();
    world.secret("db", "3").await;
    world.rolled("later", 1).await;
    world.rolled("web", 2).await;
    recovers(&world, Deployment, "web").await;
    world.settled(&operator).await;
    assert_eq!(failures(&operator).await, (0.0, 0.0));
    assert_eq!(world.templates("let-go").await, 1, "it is paused");
}

#[tokio::test]
async fn a_rollout_counts_as_succeeded_when_its_pods_have_been_available() {
    let (world, operator) = World::with_web().await;
    let count = async || {
        let count =
            async |result: &str| operator.metric("konverge_roll_rollouts_total", &format!("result=\"{result}\"")).await;
        (count("patched").await, count("succeeded").await, count("failed").await)
    };
    world.hold_pods();
    world.secret("db", "2").await;
    world.rolled("web", 1).await;
    world.settled(&operator).await;
    assert_eq!(count().await, (1.0, 0.0, 0.0), "it is under way");
    world.let_pods_go();
    world.ready("web").await;
    let ready = Instant::now();
    until("its success is counted", async || match count().await {
        (_, succeeded, _) if succeeded > 0.5 => Ok(()),
        counts => Err(format!("{counts:?}")),
    })
    .await;
    assert!(ready.elapsed() >= Duration::from_secs(13), "too soon: {:?}", ready.elapsed());
    world.settled(&operator).await;
    assert_eq!(count().await, (1.0, 1.0, 0.0), "once");
}

#[tokio::test]
async fn the_hold_ends_when_the_pods_recover_or_somebody_says_so() {
    let world = World::new().await;
    world.secret("db", "1").await;
    impatient(&world, "web", json!({ ALL: "true" })).await;
    let paused = json!({ ALL: "true", "roll.konverge.dev/pause": "true" });
    for name in ["first", "second"] {
        world.workload(Deployment, name, &["db"], paused.clone()).await;
    }
    let _operator = world.operator(&NO_REST).await;
    for name in ["web", "first", "second"] {
        world.noted(Deployment, name).await;
        world.ready(name).await;
    }
    world.hold_pods();
    world.secret("db", "2").await;
    fails(&world, Deployment, "web").await;
    let resume = json!({ "metadata": { "annotations": { "roll.konverge.dev/pause": null } } });
    world.merge(Deployment, "first", resume.clone()).await;
    world.event("first", "HeldByFailure").await;
    let ignore = |word: Value| json!({ "metadata": { "annotations": { "roll.konverge.dev/ignore-failure": word } } });
    world.merge(Deployment, "web", ignore("true".into())).await;
    world.rolled("first", 1).await;
    world.merge(Deployment, "web", ignore(Value::Null)).await;
    world.merge(Deployment, "second", resume).await;
    world.event("second", "HeldByFailure").await;
    world.let_pods_go();
    world.rolled("second", 1).await;
    recovers(&world, Deployment, "web").await;
    world.event("web", "RolloutRecovered").await;
}

/// The timeout of kinds whose controllers have no deadline, far shorter than the default.
#[tokio::test]
async fn stateful_sets_and_daemon_sets_fail_after_the_timeout() {
    let world = World::new().await;
    world.secret("db", "1").await;
    for (kind, name) in [(StatefulSet, "stateful"), (DaemonSet, "daemon")] {
        world.workload(kind, name, &["db"], json!({ ALL: "true" })).await;
    }
    let operator = world.operator(&[NO_REST.as_slice(), &["--rollout-timeout", "4s"]].concat()).await;
    for (kind, name) in [(StatefulSet, "stateful"), (DaemonSet, "daemon")] {
        world.noted(kind, name).await;
    }
    world.settled(&operator).await;
    world.hold_pods();
    world.secret("db", "2").await;
    // There is no node here, so the status of the DaemonSet is written by hand.
    until("the daemons do not become available", async || {
        if world.stamp(DaemonSet, "daemon").await.is_none() {
            return Err("it is not rolled yet".to_owned());
        }
        let generation = world.api(DaemonSet).get("daemon").await.unwrap().metadata.generation;
        let status = json!({ "status": {
            "observedGeneration": generation, "desiredNumberScheduled": 1, "currentNumberScheduled": 1,
            "updatedNumberScheduled": 1, "numberAvailable": 0, "numberMisscheduled": 0, "numberReady": 0,
        } });
        let patch = Patch::Merge(status);
        let patched = world.api(DaemonSet).patch_status("daemon", &PatchParams::default(), &patch).await;
        patched.map_err(|error| error.to_string())?;
        failed_at(&world, DaemonSet, "daemon").await.map(drop).ok_or_else(|| "it has not failed".to_owned())
    })
    .await;
    fails(&world, StatefulSet, "stateful").await;
    for name in ["stateful", "daemon"] {
        world.event(name, "RolloutFailed").await;
    }
}
