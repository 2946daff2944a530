//! Two replicas, of which one leads both controllers (F11, F13, F16; I5, I6, I10, I12).

use std::time::{Duration, Instant};

use konverge_testkit::eventually;

use super::stage::{BadDay, RECOVERED};
use crate::stage::LIMIT;

/// Seconds of a lease, of the holder's patience, and between renewals.
const LEASE: [&str; 4] = ["--leader-election", "--lease-duration=4", "--renew-deadline=3", "--retry-period=1"];

/// From the end of a leader to work that the next has done: the lease and two seconds, and as long again for a machine that builds
/// meanwhile.
const TAKEOVER: Duration = Duration::from_secs(12);

/// How a leader ends, and whether the next one runs already.
const ENDS: [(Ending, Standby); 10] = {
    use {Ending::*, Standby::*};
    [
        (Killed, Warm),
        (Throttled, Warm),
        (Stopped, Warm),
        (Killed, Cold),
        (CutOff, Warm),
        (Stopped, Cold),
        (Throttled, Cold),
        (Killed, Warm),
        (CutOff, Cold),
        (Stopped, Warm),
    ]
};

#[derive(Debug, Clone, Copy, PartialEq)]
enum Ending {
    Killed,
    Stopped,
    /// Its lease answers 429.
    Throttled,
    /// Its lease does not answer.
    CutOff,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Standby {
    Warm,
    Cold,
}

/// F16, F13, F11: whenever the leader ends, both controllers go over to the next one together, which does everything once. A warm standby
/// lists nothing, and a process without the lease writes nothing beside the next leader.
#[tokio::test(flavor = "multi_thread")]
async fn leaders_end_one_after_the_other() {
    let mut day = BadDay::begin_with("leaders", &LEASE).await;
    for (round, (ending, standby)) in ENDS.into_iter().enumerate() {
        let name = format!("leaders-{round}");
        let warm = match standby {
            Standby::Warm => Some(day.another(&name, &LEASE).await),
            Standby::Cold => None,
        };
        let (old_mark, mark) = (day.proxy.mark(), warm.as_ref().map_or(0, |warm| warm.proxy.mark()));
        // It ends somewhere in the middle of this.
        day.change_both(&format!("before {round}")).await;
        let ended = Instant::now();
        ends(&mut day, ending).await;
        let next = match warm {
            Some(warm) => warm,
            None => day.another(&name, &LEASE).await,
        };
        // There is always something to write, until the next leader has written.
        let mut contents = 2;
        while next.proxy.requests_since(mark).writes().is_empty() {
            assert!(ended.elapsed() <= TAKEOVER, "round {round}: nobody took over:\n{}", next.process.logged());
            contents += 1;
            day.change_both(&format!("round {round}, {contents}")).await;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let of_old = day.proxy.mark();
        let old = std::mem::replace(&mut day.proxy, next.proxy);
        let mut old_process = std::mem::replace(&mut day.operator, next.process);
        day.address = next.address;
        let value = format!("after {round}");
        day.change_both(&value).await;
        day.converges(&value).await;
        // Two for each of the contents of each kind, and one of each kind whose answer the old leader did not live to see.
        let writes = old.requests_since(old_mark).writes().len() + day.writes(mark).len();
        assert!(writes <= 4 * contents + 2, "round {round}: {writes} writes for {contents} contents");
        let most_lists = if standby == Standby::Warm { 0 } else { 4 };
        assert!(day.lists(mark) <= most_lists, "round {round}: {} lists", day.lists(mark));
        if matches!(ending, Ending::Throttled | Ending::CutOff) {
            let (status, log) = (old_process.ended(LIMIT).await.unwrap(), old_process.logged());
            assert!(!status.success() && log.contains("lost the lease"), "{ending:?}: {status}\n{log}");
            // No more than a try for each period.
            let asked = old.requests_since(old_mark);
            let renewals = asked.entries().iter().filter(|entry| entry.request.resource == "leases").count();
            assert!(renewals <= 8, "{ending:?}: {renewals} renewals");
        }
        // It has ended by now.
        assert_eq!(old.requests_since(of_old).writes(), [""; 0], "round {round}: it wrote beside the next one");
    }
    day.end().await;
}

async fn ends(day: &mut BadDay, ending: Ending) {
    let lease = "resources: [leases.coordination.k8s.io]";
    match ending {
        Ending::Killed => day.operator.kill(),
        Ending::Stopped => drop(day.operator.terminate(LIMIT).await.unwrap()),
        Ending::Throttled => {
            day.befalls(&format!("- {{ when: {{ {lease} }}, then: {{ status: {{ code: 429, retry_after: 1 }} }} }}"));
        }
        Ending::CutOff => day.befalls(&format!("- {{ when: {{ {lease} }}, then: drop }}")),
    }
}

/// F11: less than the holder's patience changes nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_lease_that_is_throttled_for_a_moment_is_kept() {
    let mut day = BadDay::begin_with("kept-lease", &LEASE).await;
    let next = day.another("kept-lease-next", &LEASE).await;
    let begun = next.proxy.mark();
    day.befalls(
        "- { when: { resources: [leases.coordination.k8s.io], times: 1 }, then: { status: { code: 429, retry_after: 1 } } }",
    );
    let is_renewed = || {
        let asked = day.proxy.requests_since(0);
        let mut entries = asked.entries().iter().rev().take_while(|entry| entry.faults.is_empty());
        let renewed = entries.any(|entry| entry.request.resource == "leases" && entry.client_code == Some(200));
        std::future::ready((renewed && day.proxy.fired() == [1]).then_some(()))
    };
    eventually(RECOVERED, is_renewed).await.unwrap();
    day.change_both("1").await;
    day.converges("1").await;
    day.settles().await;
    assert_eq!(next.proxy.requests_since(begun).writes(), [""; 0]);
    day.end().await;
}
