//! Two replicas, of which one leads. Both hear of every change of values, and one writes (F11, F13, F16; I6, I12).

use std::time::{Duration, Instant};

use konverge_testkit::{Verb, eventually, fault_proxy::JournalEntry};

use super::scene::{LIMIT, Scene};
use crate::shared_stage::on_stage;

const LEASE: &[&str] = &["--leader-election"];

/// From the end of a leader to work that the next has done: the lease of 15 seconds and two, and as long again for a machine that
/// builds meanwhile.
const TAKEOVER: Duration = Duration::from_secs(34);

/// How a leader ends, and whether the next one runs already. After an orderly end, the next one takes over quickly.
const ENDS: [(Ends, Standby); 10] = [
    (cannot_renew, Standby::Warm),
    (is_stopped, Standby::Cold),
    (is_cut_off, Standby::Warm),
    (is_stopped, Standby::Warm),
    (is_killed, Standby::Warm),
    (is_stopped, Standby::Cold),
    (is_throttled, Standby::Warm),
    (is_stopped, Standby::Warm),
    (is_killed, Standby::Cold),
    (is_stopped, Standby::Cold),
];

/// Ends a leader.
type Ends = fn(&mut Scene);

#[derive(Debug, Clone, Copy, PartialEq)]
enum Standby {
    Warm,
    Cold,
}

/// One test, as all operators of a stage share a lease.
#[test]
fn leaders_lose_their_lease_or_their_lives() {
    on_stage(async |stage| {
        let mut scene = Scene::set_with(stage, "leaders", LEASE).await;
        throttled_for_a_moment(&scene).await;
        for (round, (ends, standby)) in ENDS.into_iter().enumerate() {
            takes_over(&mut scene, round, ends, standby).await;
        }
        scene.end().await;
    });
}

/// F11: less than the holder's patience changes nothing.
async fn throttled_for_a_moment(scene: &Scene) {
    scene.befalls(
        "- { when: { resources: [leases.coordination.k8s.io], times: 2 }, then: { status: { code: 429, retry_after: 1 } } }",
    );
    let is_renewed = || {
        let asked = scene.proxy.requests_since(0);
        let mut entries = asked.entries().iter().rev().take_while(|entry| entry.faults.is_empty());
        let renewed = entries.any(|entry| entry.request.resource == "leases" && entry.client_code == Some(200));
        std::future::ready((renewed && scene.proxy.fired() == [2]).then_some(()))
    };
    eventually(LIMIT, is_renewed).await.unwrap();
    scene.set_value("kept").await;
    scene.holds("backend", &[("A", "kept")]).await;
}

/// F13: its lease is out of reach; our server and all Secrets are not.
fn cannot_renew(scene: &mut Scene) {
    scene.befalls("- { when: { resources: [leases.coordination.k8s.io] }, then: drop }");
}

/// F13: the API server is out of reach; our server is not.
fn is_cut_off(scene: &mut Scene) {
    scene.befalls("- { then: drop }");
}

/// F11: longer than its patience.
fn is_throttled(scene: &mut Scene) {
    scene.befalls(
        "- { when: { resources: [leases.coordination.k8s.io] }, then: { status: { code: 429, retry_after: 1 } } }",
    );
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

async fn takes_over(scene: &mut Scene, round: usize, ends: Ends, standby: Standby) {
    let name = format!("leaders-{round}");
    let warm = match standby {
        Standby::Warm => Some(scene.replica(&name, LEASE).await),
        Standby::Cold => None,
    };
    let (old_mark, mark) = (scene.proxy.mark(), warm.as_ref().map_or(0, |warm| warm.proxy.mark()));
    // It ends somewhere in the middle of this.
    scene.set_value(&format!("before {round}")).await;
    ends(scene);
    let (ended, mut values) = (Instant::now(), 1);
    let next = match warm {
        Some(warm) => warm,
        None => scene.replica(&name, LEASE).await,
    };
    // There is always something to write, until the next leader has written.
    while next.proxy.requests_since(mark).writes().is_empty() {
        assert!(ended.elapsed() <= TAKEOVER, "nobody took over within {TAKEOVER:?}");
        values += 1;
        scene.set_value(&format!("{round} {values}")).await;
    }
    let of_old = scene.proxy.mark();
    let old = std::mem::replace(&mut scene.proxy, next.proxy);
    let mut old_operator = std::mem::replace(&mut scene.operator, next.operator);
    scene.set_value("last").await;
    scene.holds("backend", &[("A", "last")]).await;
    // One for each value at most, and one whose answer the old leader did not see.
    let writes = [old.requests_since(old_mark).writes(), scene.writes(mark)].concat();
    assert!(writes.len() <= values + 2, "{} writes for {values} values", writes.len());
    let most_lists = usize::from(standby == Standby::Cold);
    let asked = scene.proxy.requests_since(mark);
    // Each program also asks for the custom resources, whose kinds this cluster lacks.
    let is_list = |entry: &&JournalEntry| entry.request.resource == "secrets" && entry.request.verb == Verb::List;
    let lists = asked.entries().iter().filter(is_list).count();
    assert!(lists <= most_lists, "a standby knows all Secrets");
    // Unless it was killed, it has ended by itself.
    if old_operator.process().pid().is_some() {
        old_operator.process().ended(TAKEOVER).await.unwrap();
    }
    assert_eq!(old.requests_since(of_old).writes(), [""; 0], "the old leader wrote beside the new one");
}
