//! A write that arrives late never brings an older value back.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::Secret;
use konverge_testkit::fault_proxy::{FaultProxy, Plan};
use kube::runtime::{WatchStreamExt, watcher};
use tokio_util::task::AbortOnDropHandle;

use crate::world::{World, control_plane, holds, until};

/// Collects each value of `A` that the Secret `backend` ever shows.
fn values_of_a(world: &World) -> (Arc<Mutex<Vec<u64>>>, AbortOnDropHandle<()>) {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let (secrets, collected) = (world.secrets(), Arc::clone(&seen));
    let watching = async move {
        let mut changes =
            watcher(secrets, watcher::Config::default().fields("metadata.name=backend")).applied_objects().boxed();
        while let Some(Secret { data, .. }) = changes.try_next().await.unwrap() {
            let data: BTreeMap<_, _> = data.unwrap_or_default();
            let value = data.get("A").map(|value| String::from_utf8(value.0.clone()).unwrap().parse().unwrap());
            let mut collected = collected.lock().unwrap();
            if value.is_some() && collected.last() != value.as_ref() {
                collected.extend(value);
            }
        }
    };
    (seen, AbortOnDropHandle::new(tokio::spawn(watching)))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_that_was_held_up_does_not_undo_that_of_the_successor() {
    let world = World::new().await;
    let scene = world.server.create("production");
    scene.set("A", "1");
    world.bind("backend", &scene).await;
    let (values, _watching) = values_of_a(&world);
    let plane = control_plane().await;
    let proxy = FaultProxy::start(plane.run_directory(), plane.kubeconfig()).await.unwrap();
    let late = world.operator_by(proxy.kubeconfig(), &[]).await;
    world.holds("backend", &[("A", "1")]).await;

    // As if the operator had been stopped between its decision and the arrival of its write.
    proxy
        .set(
            Plan::parse("rules: [{ when: { verbs: [patch], resources: [secrets], times: 1 }, then: { delay: 4s } }]")
                .unwrap(),
        )
        .unwrap();
    scene.set("A", "190");
    holds("the write is held up", || proxy.fired() == [1]).await;
    scene.set("A", "191");
    let successor = world.operator(&[]).await;
    world.holds("backend", &[("A", "191")]).await;
    until("the late write is refused", async || {
        let refused = proxy.journal().iter().any(|entry| entry.code == Some(409));
        if refused { Ok(()) } else { Err(format!("{:?}", proxy.journal())) }
    })
    .await;
    scene.set("A", "192");
    world.holds("backend", &[("A", "192")]).await;
    late.stop().await;
    successor.stop().await;
    let values = values.lock().unwrap().clone();
    assert!(values.is_sorted(), "an older value came back: {values:?}");
}
