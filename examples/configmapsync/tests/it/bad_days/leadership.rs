//! Two replicas, of which one leads: partitions and failovers (F11, F13, F16; I5, I6, I10, I12).

use std::time::{Duration, Instant};

use konverge_testkit::{ProxiedOperator, eventually};

use super::stage::{LIMIT, Stage, plan};

/// Seconds of a lease, of the holder's patience, and between renewals. The test makes a lease of its own for each stage.
const LEASE: [&str; 4] = ["--leader-election", "--lease-duration=4", "--renew-deadline=3", "--retry-period=1"];

/// From the end of a leader to work that the next has done: the lease and two seconds, and as long again for a machine that builds
/// meanwhile.
const TAKEOVER: Duration = Duration::from_secs(12);

/// How a leader ends, and whether the next one runs already.
const ENDS: [(Ending, Standby); 10] = {
    use {Ending::*, Standby::*};
    [
        (Killed, Warm),
        (Stopped, Warm),
        (Killed, Cold),
        (Killed, Warm),
        (Stopped, Cold),
        (Killed, Warm),
        (Stopped, Warm),
        (Killed, Cold),
        (Killed, Warm),
        (Stopped, Warm),
    ]
};

#[derive(Debug, Clone, Copy, PartialEq)]
enum Ending {
    Killed,
    Stopped,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Standby {
    Warm,
    Cold,
}

fn arguments(name: &str) -> Vec<String> {
    LEASE.iter().map(|&argument| argument.to_owned()).chain([format!("--lease-name={name}")]).collect()
}

/// F16: whenever the leader ends, the next one goes on, does everything once, and a warm one lists nothing.
#[tokio::test(flavor = "multi_thread")]
async fn leaders_end_one_after_the_other() {
    let arguments = arguments("failover");
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let mut stage = Stage::set_with("failover", &arguments).await;
    for (round, (ending, standby)) in ENDS.into_iter().enumerate() {
        let name = format!("failover-{round}");
        let warm = match standby {
            Standby::Warm => Some(stage.replica(&name, &arguments).await),
            Standby::Cold => None,
        };
        let (old_mark, mark) = (stage.proxy.mark(), warm.as_ref().map_or(0, |warm| warm.proxy.mark()));
        // It ends somewhere in the middle of this.
        stage.change("app", &format!("before {round}")).await;
        let ended = Instant::now();
        match ending {
            Ending::Killed => stage.operator.kill(),
            Ending::Stopped => drop(stage.operator.terminate(LIMIT).await.unwrap()),
        }
        let value = format!("after {round}");
        stage.change("app", &value).await;
        let next = match warm {
            Some(warm) => warm,
            None => stage.replica(&name, &arguments).await,
        };
        let old = std::mem::replace(&mut stage.proxy, next.proxy);
        stage.operator = next.process;
        stage.converges("app", &value).await;
        assert!(ended.elapsed() <= TAKEOVER, "round {round}: {:?}", ended.elapsed());
        // Two for each of the contents, and one whose answer the old leader did not live to see.
        let writes = [old.requests_since(old_mark).writes(), stage.writes(mark)].concat();
        assert!(writes.len() <= 5, "round {round}: {writes:#?}");
        let most_lists = if standby == Standby::Warm { 0 } else { 2 };
        assert!(stage.lists(mark) <= most_lists, "round {round}: {} lists", stage.lists(mark));
    }
    stage.end().await;
}

/// F13: a leader that cannot reach its lease, and could still write, stops before the next one begins.
#[tokio::test(flavor = "multi_thread")]
async fn a_leader_without_its_lease_stops_before_the_next_begins() {
    for (name, rules) in [
        ("lost-lease", "- { when: { resources: [leases.coordination.k8s.io] }, then: drop }"),
        ("stuck-lease", "- { when: { resources: [leases.coordination.k8s.io] }, then: freeze }"),
        (
            "throttled-lease",
            "- { when: { resources: [leases.coordination.k8s.io] }, then: { status: { code: 429, retry_after: 1 } } }",
        ),
        ("partition", "- { then: drop }"),
    ] {
        loses_its_lease(name, rules).await;
    }
}

async fn loses_its_lease(name: &str, rules: &str) {
    let arguments = arguments(name);
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let mut stage = Stage::set_with(name, &arguments).await;
    let ProxiedOperator { proxy, process, .. } = stage.replica(&format!("{name}-next"), &arguments).await;
    let begun = (stage.proxy.mark(), proxy.mark());
    stage.befalls(rules);
    // There is always something to write, until the next leader has written.
    let (mut contents, taken_over) = (0, Instant::now());
    while proxy.requests_since(begun.1).writes().is_empty() {
        contents += 1;
        stage.change("app", &contents.to_string()).await;
        assert!(taken_over.elapsed() <= TAKEOVER, "{name}: nobody took over:\n{}", process.logged());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let of_old = stage.proxy.mark();
    let old = std::mem::replace(&mut stage.operator, process);
    let old_proxy = std::mem::replace(&mut stage.proxy, proxy);
    stage.change("app", "last").await;
    stage.converges("app", "last").await;
    // It has ended, and says why; a supervisor starts it again.
    let mut old = old;
    let status = old.ended(LIMIT).await.unwrap();
    assert!(!status.success() && old.logged().contains("lost the lease"), "{name}: {status}\n{}", old.logged());
    assert_eq!(old_proxy.requests_since(of_old).writes(), [""; 0], "{name}: the old leader wrote beside the new one");
    // No more than a try for each period, and no content twice.
    let asked = old_proxy.requests_since(begun.0);
    let renewals = asked.entries().iter().filter(|entry| entry.request.resource == "leases").count();
    assert!(renewals <= 8, "{name}: {renewals} renewals");
    let writes = asked.writes().len() + stage.writes(begun.1).len();
    assert!(writes <= 2 * (contents + 1) + 1, "{name}: {writes} writes for {contents} contents");
    stage.end().await;
}

/// F11: less than the holder's patience changes nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_lease_that_is_throttled_for_a_moment_is_kept() {
    let arguments = arguments("kept-lease");
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let stage = Stage::set_with("kept-lease", &arguments).await;
    let next = stage.replica("kept-lease-next", &arguments).await;
    let begun = next.proxy.mark();
    let lease = "resources: [leases.coordination.k8s.io]";
    stage
        .proxy
        .set(plan(&format!("- {{ when: {{ {lease}, times: 1 }}, then: {{ status: {{ code: 429 }} }} }}")))
        .unwrap();
    let is_renewed = || {
        let asked = stage.proxy.requests_since(0);
        let mut entries = asked.entries().iter().rev().take_while(|entry| entry.faults.is_empty());
        let renewed = entries.any(|entry| entry.request.resource == "leases" && entry.client_code == Some(200));
        std::future::ready((renewed && stage.proxy.fired() == [1]).then_some(()))
    };
    eventually(LIMIT, is_renewed).await.unwrap();
    stage.change("app", "1").await;
    stage.converges("app", "1").await;
    stage.settles().await;
    assert_eq!(next.proxy.requests_since(begun).writes(), [""; 0]);
    stage.end().await;
}
