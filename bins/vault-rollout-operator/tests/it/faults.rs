//! Watches that end or fall silent, an API server that asks for time, and an answer that is lost (F02, F04, F06, F11): each change is one rollout.

use std::time::{Duration, Instant};

use konverge_testkit::{
    ApiRequest, Verb, events_about, eventually,
    fault_proxy::{FaultProxy, Plan},
};

use crate::{
    stage::{SOON, Stage, until},
    view::View,
    way::{OBJECTS, all_are_rolled, are_rolled, rotate, set},
};

fn befalls(proxy: &FaultProxy, rule: &str) {
    proxy.set(Plan::parse(&format!("rules: [{rule}]")).unwrap()).unwrap();
}

/// Waits until the fault has befallen the operator so often.
async fn fired(proxy: &FaultProxy, times: u64) {
    until(&format!("it befell it {times} times"), async || Ok(proxy.fired()[0] >= times)).await;
}

/// The two kinds that each of these watches is of.
const KINDS: [&str; 2] = ["secrets", "deployments"];

/// The fault of two watches, and the number of lists that it may cost: one for each watch whose version has expired.
const OF_WATCHES: [(&str, usize); 4] = [
    (
        "{ when: { verbs: [watch], resources: [secrets, deployments.apps], times: 2 }, then: { status: { code: 410 } } }",
        2,
    ),
    ("{ when: { verbs: [watch], resources: [secrets, deployments.apps], times: 2 }, then: { error_event: 410 } }", 2),
    (
        "{ when: { phase: body, verbs: [watch], resources: [secrets, deployments.apps], times: 2 }, then: { error_event: 410 } }",
        2,
    ),
    ("{ when: { phase: body, verbs: [watch], resources: [secrets, deployments.apps], times: 2 }, then: truncate }", 0),
];

#[tokio::test(flavor = "multi_thread")]
async fn f04_whatever_befalls_a_watch_each_change_is_one_rollout() {
    let stage = Stage::shared().await;
    let (view, proxy, mut operator) = set(stage, "watches", &[]).await;
    for (round, (rule, most)) in (1..).zip(OF_WATCHES) {
        let begun = proxy.mark();
        befalls(&proxy, rule);
        proxy.end_connections();
        rotate(&view, round).await;
        are_rolled(&view, round).await;
        fired(&proxy, 2).await;
        operator.settled().await;
        let asked = proxy.requests_since(begun);
        assert_eq!(asked.writes().len(), OBJECTS, "{rule}: {:#?}", asked.writes());
        // A list of one object compares the version of a watch with that of the collection; it is no list of what there is.
        let is_list = |asks: &&ApiRequest| {
            let begins = asks.parameter("continue").is_none() && asks.parameter("limit") != Some("1");
            asks.verb == Verb::List && KINDS.contains(&&*asks.resource) && begins
        };
        let lists = asked.entries().iter().map(|entry| &entry.request).filter(is_list).count();
        assert!(lists <= most, "{rule}: {lists} lists");
        proxy.clear();
    }
    assert_eq!(operator.process.status(), None, "it has not ended");
}

/// A watch that is silent is taken for dead after a minute and five seconds.
const NOTICED: Duration = Duration::from_mins(3);

#[tokio::test(flavor = "multi_thread")]
async fn f06_a_watch_that_has_died_without_a_word_is_noticed_and_each_change_is_one_rollout() {
    let stage = Stage::shared().await;
    let (view, proxy, mut operator) = set(stage, "frozen", &[]).await;
    befalls(&proxy, "{ when: { phase: body, verbs: [watch], resources: [secrets], times: 1 }, then: freeze }");
    rotate(&view, 1).await;
    fired(&proxy, 1).await;
    let rolled = eventually(NOTICED, || async { all_are_rolled(&view, 1).await.unwrap().then_some(()) }).await;
    assert!(rolled.is_ok(), "it is not noticed");
    rotate(&view, 2).await;
    are_rolled(&view, 2).await;
    assert_eq!(proxy.fired(), [1]);
    assert_eq!(operator.process.status(), None, "it has not ended");
}

#[tokio::test(flavor = "multi_thread")]
async fn f11_told_to_slow_down_it_does_and_each_change_is_one_rollout() {
    let stage = Stage::shared().await;
    let (view, proxy, mut operator) = set(stage, "throttled", &[]).await;
    for (round, rule) in (1..).zip([
        "{ when: { mutating: true }, then: { status: { code: 429, retry_after: 1 } } }",
        "{ when: {}, then: { status: { code: 429, retry_after: 1 } } }",
    ]) {
        let begun = proxy.mark();
        befalls(&proxy, rule);
        proxy.end_connections();
        rotate(&view, round).await;
        let since = Instant::now();
        fired(&proxy, 4 * OBJECTS as u64).await;
        let asked = u32::try_from(proxy.mark() - begun).unwrap();
        // Twelve watches, and for each object a read, a write and an event; each at most once a second, and the first at once.
        let most = f64::from(12 + 3 * u32::try_from(OBJECTS).unwrap()) * (1.0 + since.elapsed().as_secs_f64());
        assert!(f64::from(asked) <= most, "{rule}: {asked} requests in {:?}", since.elapsed());
        proxy.clear();
        are_rolled(&view, round).await;
        operator.settled().await;
        let writes = proxy.requests_since(begun).writes();
        assert_eq!(writes.len(), OBJECTS, "{rule}: {writes:#?}");
    }
    assert_eq!(operator.process.status(), None, "it has not ended");
}

#[tokio::test(flavor = "multi_thread")]
async fn f11_told_to_slow_down_with_its_lease_it_keeps_it_and_each_change_is_one_rollout() {
    let stage = Stage::set().await;
    let (view, proxy, mut operator) = set(&stage, "leased", &["--leader-elect"]).await;
    // No longer than it may do without.
    befalls(&proxy, "{ when: { resources: [leases.*], times: 3 }, then: { status: { code: 429, retry_after: 1 } } }");
    for round in 1..=2 {
        rotate(&view, round).await;
        are_rolled(&view, round).await;
    }
    fired(&proxy, 3).await;
    let renewed = proxy.mark();
    let is_renewed = async || {
        let asked = proxy.requests_since(renewed);
        Ok(asked.entries().iter().any(|entry| entry.request.resource == "leases" && entry.is_committed()))
    };
    until("the lease is renewed", is_renewed).await;
    rotate(&view, 3).await;
    are_rolled(&view, 3).await;
    assert_eq!(operator.process.status(), None, "it has not ended");
}

/// Reasons, texts and how often each was told, of the events about a Deployment.
async fn told(view: &View, name: &str) -> Vec<(String, String, i32)> {
    let events = events_about(&view.client, &view.namespace, name).await.unwrap().into_iter();
    events
        .map(|event| {
            let times = event.series.map_or(1, |series| series.count);
            (event.reason.unwrap_or_default(), event.note.unwrap_or_default(), times)
        })
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn f02_a_rollout_whose_answer_was_lost_is_told_once() {
    let stage = Stage::shared().await;
    let (view, proxy, operator) = set(stage, "unheard", &[]).await;
    befalls(&proxy, "{ when: { phase: after, verbs: [patch], resources: [deployments.apps], times: 3 }, then: drop }");
    rotate(&view, 1).await;
    are_rolled(&view, 1).await;
    fired(&proxy, 3).await;
    for number in 0..OBJECTS {
        let name = format!("web-{number}");
        let rolled = eventually(SOON, || async {
            let told: Vec<_> = told(&view, &name).await;
            told.iter().any(|(reason, ..)| reason == "RolledOut").then_some(())
        });
        assert!(rolled.await.is_ok(), "{:?}", told(&view, &name).await);
    }
    // All further events have arrived by the time that the next change was rolled.
    rotate(&view, 2).await;
    are_rolled(&view, 2).await;
    let counted =
        async |result: &str| operator.metric("konverge_roll_rollouts_total", &format!("result=\"{result}\"")).await;
    let all = f64::from(2 * u32::try_from(OBJECTS).unwrap());
    until("all are counted", async || Ok(counted("patched").await > all - 0.5)).await;
    operator.settled().await;
    assert!(counted("patched").await < all + 0.5, "each once: {}", counted("patched").await);
    assert!(counted("refused").await > 2.5, "no answer was lost: {}", counted("refused").await);
    for number in 0..OBJECTS {
        let name = format!("web-{number}");
        let because = format!("rolled: Secret/db-{number} changed (roll.konverge.dev/on-change)");
        let is_told_twice = async || {
            let told = told(&view, &name).await;
            let rolled: Vec<_> = told.iter().filter(|(reason, ..)| reason == "RolledOut").collect();
            assert!(rolled.iter().all(|(_, text, _)| *text == because), "{rolled:?}");
            Ok(rolled.iter().map(|(.., times)| times).sum::<i32>() == 2)
        };
        until("each rollout was told once", is_told_twice).await;
    }
}
