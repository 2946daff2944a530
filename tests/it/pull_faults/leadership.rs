//! Two replicas, of which one leads. Both hear of every change of values, and one writes (F13, F16; I6, I12).

use std::time::{Duration, Instant};

use super::scene::{Replica, Scene};
use crate::shared_stage::on_stage;

const LEASE: &[&str] = &["--leader-election"];

/// From the end of a leader to work that the next has done: the lease of 15 seconds and two, and as long again for a machine that
/// builds meanwhile.
const TAKEOVER: Duration = Duration::from_secs(34);

/// One test, as all operators of a stage share a lease.
#[test]
fn leaders_lose_their_lease_or_their_lives() {
    on_stage(async |stage| {
        let mut scene = Scene::set_with(stage, "leaders", LEASE).await;
        for (round, ends) in [cannot_renew, is_cut_off, is_killed, is_stopped].into_iter().enumerate() {
            let next = scene.replica(&format!("leaders-{round}"), LEASE).await;
            takes_over(&mut scene, next, ends).await;
        }
        scene.end().await;
    });
}

/// F13: its lease is out of reach; our server and all Secrets are not.
fn cannot_renew(scene: &mut Scene) {
    scene.befalls("- { when: { resources: [leases.coordination.k8s.io] }, then: drop }");
}

/// F13: the API server is out of reach; our server is not.
fn is_cut_off(scene: &mut Scene) {
    scene.befalls("- { then: drop }");
}

/// F16.
fn is_killed(scene: &mut Scene) {
    scene.operator.process().kill();
}

/// F16.
fn is_stopped(scene: &mut Scene) {
    let process = scene.operator.process();
    let pid = process.pid().and_then(|pid| i32::try_from(pid).ok()).unwrap();
    let status = std::process::Command::new("kill").args(["-TERM", &pid.to_string()]).status().unwrap();
    assert!(status.success());
}

async fn takes_over(scene: &mut Scene, next: Replica, ends: fn(&mut Scene)) {
    let (old_mark, mark) = (scene.proxy.mark(), next.proxy.mark());
    ends(scene);
    let (ended, mut values) = (Instant::now(), 0);
    // There is always something to write, until the next leader has written.
    while next.proxy.asked_since(mark).writes().is_empty() {
        assert!(ended.elapsed() <= TAKEOVER, "nobody took over within {TAKEOVER:?}");
        values += 1;
        scene.set_value(&format!("{mark} {values}")).await;
    }
    let of_old = scene.proxy.mark();
    let old = std::mem::replace(&mut scene.proxy, next.proxy);
    let mut old_operator = std::mem::replace(&mut scene.operator, next.operator);
    scene.set_value("last").await;
    scene.holds("backend", &[("A", "last")]).await;
    assert_eq!(old.asked_since(of_old).writes(), [""; 0], "the old leader wrote beside the new one");
    // One for each value at most, and one whose answer the old leader did not see.
    let writes = [old.asked_since(old_mark).writes(), scene.writes(mark)].concat();
    assert!(writes.len() <= values + 2, "{} writes for {values} values", writes.len());
    assert_eq!(scene.proxy.asked_since(mark).lists(), 0, "a standby knows all Secrets");
    // Unless it was killed, it has ended by itself.
    if old_operator.process().pid().is_some() {
        old_operator.process().ended(TAKEOVER).await.unwrap();
    }
}
