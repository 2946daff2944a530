//! The API server is away for a while, or is back with an older copy of its storage.

use std::{sync::Arc, time::Duration};

use konverge_testkit::{ControlPlane, Options, fault_proxy::FaultProxy};
use tokio::time::{Instant, sleep, sleep_until};
use tonic::Status;

use crate::{
    scripted::Scene,
    world::{World, control_plane},
};

/// Six bindings, each with an environment of its own, that hold `A=1`.
async fn six(world: &World) -> Vec<(String, Arc<Scene>)> {
    let mut bound = Vec::new();
    for number in 0..6 {
        let (name, scene) = (format!("backend-{number}"), world.server.create(&format!("production-{number}")));
        scene.set("A", "1");
        world.bind(&name, &scene).await;
        bound.push((name, scene));
    }
    bound
}

async fn all_hold(world: &World, bound: &[(String, Arc<Scene>)], value: &str) {
    for (name, _) in bound {
        world.holds(name, &[("A", value)]).await;
    }
}

/// An outage of 12 seconds with 17 changes of each binding was followed by more than 30 seconds without a write.
#[tokio::test(flavor = "multi_thread")]
async fn after_an_outage_with_many_changes_six_bindings_converge_within_seconds() {
    const CHANGES: u32 = 17;
    const OUTAGE: Duration = Duration::from_secs(12);
    let (world, plane) = (World::new().await, control_plane().await);
    let bound = six(&world).await;
    let proxy = FaultProxy::start(plane.run_directory(), plane.kubeconfig()).await.unwrap();
    let operator = world.operator_by(proxy.kubeconfig(), &[]).await;
    all_hold(&world, &bound, "1").await;

    let begun = Instant::now();
    proxy.down_until_cleared();
    let last = CHANGES + 1;
    for change in 2..=last {
        for (_, scene) in &bound {
            scene.set("A", change.to_string());
        }
        sleep_until(begun + OUTAGE * (change - 1) / CHANGES).await;
    }
    all_hold(&world, &bound, "1").await;
    proxy.clear();
    let over = Instant::now();
    all_hold(&world, &bound, &last.to_string()).await;
    let took = over.elapsed();
    assert!(took < Duration::from_secs(6), "{took:?}");
    operator.stop().await;
}

/// Pauses that grow without a limit would exceed [`BACK_WITHIN`] after this time.
const AWAY: Duration = Duration::from_secs(21);
/// The time until everything is in sync once zopp answers: it is asked after five seconds at the latest. Then come the writes, on a machine
/// that other tests share.
const BACK_WITHIN: Duration = Duration::from_secs(10);

#[tokio::test(flavor = "multi_thread")]
async fn a20_after_an_outage_of_zopp_six_bindings_hold_what_changed_within_seconds() {
    let world = World::new().await;
    let bound = six(&world).await;
    let operator = world.operator(&[]).await;
    all_hold(&world, &bound, "1").await;
    for (_, scene) in &bound {
        scene.refuse(Some(Status::unavailable("shutting down")));
        scene.hang_up();
        scene.set("A", "2");
    }
    for (name, _) in &bound {
        world.told(name, "ServerUnreachable").await;
    }
    sleep(AWAY).await;
    all_hold(&world, &bound, "1").await;
    for (_, scene) in &bound {
        scene.refuse(None);
    }
    let back = Instant::now();
    all_hold(&world, &bound, "2").await;
    assert!(back.elapsed() <= BACK_WITHIN, "{:?}", back.elapsed());
    operator.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn six_bindings_are_brought_up_to_date_after_etcd_was_replaced_by_an_older_copy() {
    const SOON: Duration = Duration::from_secs(30);
    let mut plane = ControlPlane::start(Options::ours()).await.unwrap();
    let world = World::on(&plane).await;
    let bound = six(&world).await;
    let operator = world.operator_by(plane.kubeconfig(), &[]).await;
    all_hold(&world, &bound, "1").await;
    let snapshot = plane.snapshot().await.unwrap().unwrap();

    // Time goes on.
    for change in 2..=10 {
        for (_, scene) in &bound {
            scene.set("A", change.to_string());
        }
        all_hold(&world, &bound, &change.to_string()).await;
    }
    let (lost, new) = (world.server.create("lost"), world.server.create("new"));
    for (name, scene) in [("lost", &lost), ("new", &new)] {
        scene.set("A", name);
    }
    world.bind("lost", &lost).await;
    world.holds("lost", &[("A", "lost")]).await;
    let log = plane.audit_log().unwrap();
    log.catch_up(&world.kubernetes).await.unwrap();
    let log = log.from_now().unwrap();
    plane.restore(&snapshot).await.unwrap().unwrap();
    let over = Instant::now();

    // Nothing changes in zopp: the operator has to find out that the Secrets are old.
    all_hold(&world, &bound, "10").await;
    world.bind("new", &new).await;
    world.holds("new", &[("A", "new")]).await;
    assert!(over.elapsed() < SOON, "{:?}", over.elapsed());
    assert!(world.secrets().get_opt("lost").await.unwrap().is_none(), "the operator makes no Secrets");
    log.catch_up(&world.kubernetes).await.unwrap();
    let entries = log.entries().unwrap();
    let deletions: Vec<_> = entries.iter().filter(|entry| entry.verb.starts_with("delete")).collect();
    assert!(deletions.is_empty(), "{deletions:#?}");
    operator.stop().await;
}
