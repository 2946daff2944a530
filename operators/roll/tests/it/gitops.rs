//! A second writer that keeps workloads as a repository has them: nobody fights.

use std::{pin::pin, time::Duration};

use futures::StreamExt;
use konverge_workload::WorkloadKind::Deployment;
use kube::{
    api::PostParams,
    core::DynamicObject,
    runtime::{WatchStreamExt, watcher},
};
use serde_json::{Value, json};
use tokio::{sync::watch, task::JoinHandle, time::sleep};

use crate::world::{ALL, NO_REST, Operator, World, until};

const STAMP: &str = "roll.konverge.dev/content";

/// Counts from outside how often a pod template has changed. A Deployment's generation also counts its annotations.
struct Changes {
    count: watch::Receiver<usize>,
    task: JoinHandle<()>,
}

impl Changes {
    fn of(world: &World) -> Self {
        let (sender, count) = watch::channel(0);
        let stream = watcher(world.api(Deployment), watcher::Config::default().fields("metadata.name=web"));
        let task = tokio::spawn(async move {
            let mut objects = pin!(stream.default_backoff().touched_objects());
            let mut last: Option<Value> = None;
            while let Some(object) = objects.next().await {
                let object: DynamicObject = object.unwrap();
                let now = Some(object.data["spec"]["template"].clone());
                if last.is_some() && now != last {
                    sender.send_modify(|count| *count += 1);
                }
                last = now;
            }
        });
        Self { count, task }
    }

    fn seen(&self) -> usize {
        *self.count.borrow()
    }

    /// Waits for so many, and until the operator has settled. There are no more then.
    async fn are(&self, expected: usize, world: &World, operator: &Operator) {
        until("it has changed so often", async || {
            let seen = self.seen();
            if seen >= expected { Ok(()) } else { Err(seen.to_string()) }
        })
        .await;
        world.settled(operator).await;
        assert_eq!(self.seen(), expected, "somebody goes on");
    }
}

impl Drop for Changes {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The worst of them: it knows no annotation of a pod template but its own, which are none, and looks all the time.
async fn heal(world: &World) {
    loop {
        if world.template(Deployment, "web").await != Value::Null {
            let bare = json!({ "spec": { "template": { "metadata": { "annotations": null } } } });
            world.merge(Deployment, "web", bare).await;
        }
        sleep(Duration::from_millis(100)).await;
    }
}

/// A Deployment that uses a Secret with this value, an operator that has noted that, and who counts from then on.
async fn in_sync(value: &str) -> (World, Operator, Changes) {
    let world = World::new().await;
    world.secret("db", value).await;
    world.workload(Deployment, "web", &["db"], json!({ ALL: "true" })).await;
    let operator = world.operator(&NO_REST).await;
    world.noted(Deployment, "web").await;
    let seen = Changes::of(&world);
    (world, operator, seen)
}

async fn noted(world: &World) -> Value {
    world.noted(Deployment, "web").await["content"].clone()
}

#[tokio::test]
async fn who_resets_the_template_all_the_time_is_not_fought() {
    let (world, operator, seen) = in_sync("0").await;
    let changes = async {
        for (times, value) in ["1", "2"].into_iter().enumerate() {
            world.ready("web").await;
            let before = noted(&world).await;
            world.secret("db", value).await;
            until("it is rolled", async || {
                let now = noted(&world).await;
                if now == before { Err(now.to_string()) } else { Ok(()) }
            })
            .await;
            // Ours, and theirs.
            seen.are(2 * (times + 1), &world, &operator).await;
            assert_eq!(world.stamp(Deployment, "web").await, None);
        }
    };
    tokio::select! {
        () = heal(&world) => {}
        () = changes => {}
    }
}

#[tokio::test]
async fn an_apply_of_the_manifest_leaves_the_stamp_and_a_replacement_takes_it_without_another_rollout() {
    let (world, operator, seen) = in_sync("0").await;
    let apply = async || world.workload(Deployment, "web", &["db"], json!({ ALL: "true" })).await;
    world.secret("db", "1").await;
    world.rolled("web", 1).await;
    let (stamp, record) = (world.stamp(Deployment, "web").await, noted(&world).await);
    assert!(stamp.is_some());
    for _ in 0..10 {
        apply().await;
        sleep(Duration::from_millis(200)).await;
    }
    seen.are(1, &world, &operator).await;
    assert_eq!(world.stamp(Deployment, "web").await, stamp);
    assert_eq!(noted(&world).await, record);

    // A repository that knows of neither annotation.
    replace(&world, Value::Null).await;
    assert_eq!(noted(&world).await, record, "noted anew");
    seen.are(2, &world, &operator).await;
    assert_eq!(world.stamp(Deployment, "web").await, None);
    world.secret("db", "2").await;
    seen.are(3, &world, &operator).await;
}

/// Puts the whole object there as a repository has it: without a record, and with these annotations of its pods, of which a stamp came along when
/// it was exported.
async fn replace(world: &World, of_pods: Value) {
    until("it is replaced", async || {
        let mut object = world.api(Deployment).get("web").await.unwrap();
        object.metadata.annotations = Some([(ALL.to_owned(), "true".to_owned())].into());
        object.data["spec"]["template"]["metadata"]["annotations"] = of_pods.clone();
        let replaced = world.api(Deployment).replace("web", &PostParams::default(), &object).await;
        replaced.map(drop).map_err(|error| error.to_string())
    })
    .await;
}

#[tokio::test]
async fn a_manifest_with_an_old_stamp_rolls_nothing_however_often_it_replaces_what_there_is() {
    let (world, operator, seen) = in_sync("1").await;
    world.secret("db", "2").await;
    seen.are(1, &world, &operator).await;
    let old = world.stamp(Deployment, "web").await.unwrap();
    world.secret("db", "3").await;
    seen.are(2, &world, &operator).await;
    let record = noted(&world).await;
    for _ in 0..3 {
        replace(&world, json!({ STAMP: old })).await;
        assert_eq!(noted(&world).await, record, "noted anew");
    }
    // Theirs, once.
    seen.are(3, &world, &operator).await;
    operator.stop().await;
    replace(&world, json!({ STAMP: old })).await;
    let operator = world.operator(&NO_REST).await;
    assert_eq!(noted(&world).await, record, "noted anew");
    seen.are(3, &world, &operator).await;
    world.secret("db", "4").await;
    seen.are(4, &world, &operator).await;
}

#[tokio::test]
async fn who_takes_the_record_again_and_again_is_told_once_and_contradicted_less_and_less() {
    let (world, operator, seen) = in_sync("1").await;
    let take = async || {
        loop {
            if world.record(Deployment, "web").await.is_some() {
                let nothing = json!({ "metadata": { "annotations": { "roll.konverge.dev/record": null } } });
                world.merge(Deployment, "web", nothing).await;
            }
            sleep(Duration::from_millis(50)).await;
        }
    };
    let told = async {
        let told = world.event("web", "RecordTakenAway").await;
        assert!(told.contains("roll.konverge.dev/record"), "{told}");
        world.secret("db", "2").await;
        // By what was known before.
        seen.are(1, &world, &operator).await;
    };
    tokio::select! {
        () = take() => {}
        () = told => {}
    }
}

#[tokio::test]
async fn content_that_comes_back_after_the_template_was_set_back_to_it_is_rolled() {
    let (world, operator, seen) = in_sync("1").await;
    world.secret("db", "2").await;
    seen.are(1, &world, &operator).await;
    let old = world.stamp(Deployment, "web").await.unwrap();
    world.secret("db", "3").await;
    seen.are(2, &world, &operator).await;
    // As `kubectl rollout undo` does. The pods that it makes read the Secret as it is.
    let undone = json!({ "spec": { "template": { "metadata": { "annotations": { STAMP: old } } } } });
    world.merge(Deployment, "web", undone).await;
    seen.are(3, &world, &operator).await;
    world.secret("db", "2").await;
    seen.are(4, &world, &operator).await;
}
