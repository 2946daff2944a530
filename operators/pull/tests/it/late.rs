//! A write that arrives late never brings an older value back.

use k8s_openapi::api::core::v1::Secret;
use konverge_testkit::{
    History,
    fault_proxy::{FaultProxy, Plan},
};
use kube::runtime::watcher;

use crate::world::{World, control_plane, holds, until};

/// The value of `A`.
fn value_of_a(secret: &Secret) -> Option<u64> {
    let value = &secret.data.as_ref()?.get("A")?.0;
    String::from_utf8(value.clone()).unwrap().parse().ok()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_that_was_held_up_does_not_undo_that_of_the_successor() {
    let world = World::new().await;
    let scene = world.server.create("production");
    scene.set("A", "1");
    world.bind("backend", &scene).await;
    let only = watcher::Config::default().fields("metadata.name=backend");
    let values = History::of(world.secrets(), only, value_of_a);
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
    let values = values.values();
    assert!(values.is_sorted(), "an older value came back: {values:?}");
}
