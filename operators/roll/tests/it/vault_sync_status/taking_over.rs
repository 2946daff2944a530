//! From the original: its objects, what it has left on them, and what others do with them.

use konverge_roll::trigger::TriggerKind::VaultSyncStatus;
use konverge_workload::WorkloadKind::Deployment;
use serde_json::json;

use super::world::VaultWorld;
use crate::world::until;

const FINALIZER: &str = "kopf.zalando.org/KopfFinalizerMarker";

#[tokio::test]
async fn a11_r9_what_kopf_has_left_goes_and_nothing_holds_a_deletion_up() {
    let world = VaultWorld::new().await;
    world.world.workload(Deployment, "web", &[], json!({})).await;
    let leftovers = json!({ "metadata": {
        "finalizers": [FINALIZER, "example.com/other"],
        "annotations": { "kopf.zalando.org/last-handled-configuration": "{}", "example.com/own": "stays" },
    } });
    for name in ["one", "two"] {
        world.vss(name, &world.sample()).await;
        world.merge(name, leftovers.clone()).await;
    }
    // It waits for its finalizers already.
    world.delete("two").await;
    // Nothing is in Vault, and that is no reason to keep an object.
    let operator = world.operator(&[]).await;
    for name in ["one", "two"] {
        until(&format!("{name} is free"), async || {
            let metadata = world.object(name).await["metadata"].take();
            let is_free = metadata["finalizers"] == json!(["example.com/other"])
                && metadata["annotations"] == json!({ "example.com/own": "stays" });
            if is_free { Ok(()) } else { Err(metadata.to_string()) }
        })
        .await;
    }
    world.says("one", "SecretNotFound").await;
    operator.stop().await;
    world.merge("one", json!({ "metadata": { "finalizers": null } })).await;
    world.delete("one").await;
    assert!(world.api().get_metadata_opt("one").await.unwrap().is_none(), "deleted with the operator stopped");
}

#[tokio::test]
async fn a11_while_the_original_runs_it_is_not_fought() {
    let world = VaultWorld::new().await;
    world.vss("vss", &world.sample()).await;
    let operator = world.operator(&[]).await;
    world.says("vss", "WorkloadMissing").await;
    for _ in 0..2 {
        world.merge("vss", json!({ "metadata": { "finalizers": [FINALIZER] } })).await;
        world.settled(&operator).await;
    }
    world.world.event("vss", "OriginalStillRuns").await;
    let metadata = world.object("vss").await["metadata"].take();
    assert_eq!(metadata["finalizers"], json!([FINALIZER]), "left to the original");
    world.delete("vss").await;
    until("it goes all the same", async || match world.api().get_metadata_opt("vss").await.unwrap() {
        None => Ok(()),
        Some(object) => Err(format!("{:?}", object.metadata.finalizers)),
    })
    .await;
}

#[tokio::test]
async fn a17_r6_the_time_of_the_original_is_the_baseline_once_and_the_dummy_is_none() {
    let world = VaultWorld::new().await;
    world.write("app", "1").await;
    for (name, time) in
        [("dummy", "0000-00-00T00:00:00.000000000Z"), ("old", "2020-01-01T00:00:00.5Z"), ("odd", "soon")]
    {
        world.world.workload(Deployment, name, &[], json!({})).await;
        let mut spec = world.sample();
        spec["deployName"] = name.into();
        spec["timeStamp"] = time.into();
        world.vss(name, &spec).await;
    }
    let operator = world.operator(&[]).await;
    world.world.rolled("old", 1).await;
    world.says("old", "InSync").await;
    world.says("dummy", "InSync").await;
    let told = world.says("odd", "InvalidTimestamp").await;
    assert!(told.contains("soon"), "{told}");
    world.world.event("odd", "InvalidTimestamp").await;
    operator.stop().await;

    // As with the original, where nothing was noted yet: those that are known are not restarted by it.
    world.world.workload(Deployment, "new", &[], json!({})).await;
    let mut spec = world.sample();
    spec["deployName"] = "new".into();
    world.vss("new", &spec).await;
    let operator = world.operator(&["--restart-on-first-seen"]).await;
    world.world.rolled("new", 1).await;
    world.settled(&operator).await;
    for (name, templates) in [("dummy", 1), ("old", 2), ("odd", 1), ("new", 2)] {
        assert_eq!(world.world.templates(name).await, templates, "{name}");
    }
}

#[tokio::test]
async fn a5_r5_who_sets_the_time_back_restarts_nothing_and_it_is_not_written() {
    let world = VaultWorld::new().await;
    let operator = world.in_sync(VaultSyncStatus, "vss", &[]).await;
    world.write("app", "2").await;
    world.world.rolled("web", 1).await;
    world.says("vss", "InSync").await;
    assert_eq!(world.object("vss").await["spec"], world.sample());
    for time in ["2020-01-01T00:00:00Z", "0000-00-00T00:00:00.000000000Z", "2021-01-01T00:00:00Z"] {
        world.merge("vss", json!({ "spec": { "timeStamp": time } })).await;
        world.settled(&operator).await;
    }
    assert_eq!(world.world.templates("web").await, 2);
}

#[tokio::test]
async fn the_time_is_written_for_those_who_want_it() {
    let world = VaultWorld::new().await;
    let operator = world.in_sync(VaultSyncStatus, "vss", &["--write-spec-timestamp"]).await;
    let written = |object: &serde_json::Value| {
        (object["spec"]["timeStamp"].clone(), object["status"]["baseline"][0]["created"].clone())
    };
    until("it is written", async || {
        let (time, created) = written(&world.object("vss").await);
        if time == created { Ok(()) } else { Err(format!("{time} {created}")) }
    })
    .await;
    world.write("app", "2").await;
    world.world.rolled("web", 1).await;
    until("it is written again", async || {
        let object = world.object("vss").await;
        let (time, created) = written(&object);
        if time == created && object["status"]["baseline"][0]["version"] == 2 {
            Ok(())
        } else {
            Err(object.to_string())
        }
    })
    .await;
    world.settled(&operator).await;
    assert_eq!(world.world.templates("web").await, 2);
}
