//! An API server that refuses, stumbles or is away (F03, F11, F12).

use std::time::{Duration, Instant};

use futures::{StreamExt, stream};
use konverge_testkit::{eventually, http_get, metric};
use kube::api::DeleteParams;
use serde_json::json;

use super::stage::{LIMIT, Stage};

/// F03.
#[tokio::test(flavor = "multi_thread")]
async fn the_api_server_is_away_for_a_while() {
    let stage = Stage::set("down").await;
    let begun = stage.proxy.mark();
    stage.proxy.down(Duration::from_secs(5));
    // Others reach it, so there is something to catch up with: a change, an object, a copy that drifts.
    stage.change("app", "1").await;
    stage.create("late", "2").await;
    stage.merge_copy("cms-app", json!({ "data": { "value": "drift" } })).await;
    stage.converges("app", "1").await;
    stage.converges("late", "2").await;
    // Two for the one, four for the other.
    assert!(stage.writes(begun).len() <= 7, "{:#?}", stage.writes(begun));
    stage.end().await;
}

/// How long the long outage lasts, and after how much more everything is as it should be.
const OUTAGE: Duration = Duration::from_mins(1);
const CAUGHT_UP: Duration = Duration::from_secs(30);

/// F03, for a minute in which fifty values change; I3, I6, I10, I11. While it lasts the program says so and asks seldom; then it does what
/// there is to do, once.
#[tokio::test(flavor = "multi_thread")]
async fn the_api_server_is_away_for_a_minute() {
    let stage = Stage::set("down-long").await;
    let names: Vec<String> = (0..50).map(|number| format!("app-{number}")).collect();
    stream::iter(&names).for_each_concurrent(8, async |name| drop(stage.create(name, "0").await)).await;
    for name in &names {
        stage.converges(name, "0").await;
    }
    let (begun, since) = (stage.proxy.mark(), Instant::now());
    let asked = |text: &str| metric(text, "rest_client_requests_total", "");
    let asked_before = asked(&http_get(&stage.address, "/metrics").await.unwrap().1);
    stage.proxy.down(OUTAGE);
    for name in &names {
        stage.change(name, "1").await;
    }
    let complains = eventually(OUTAGE.saturating_sub(since.elapsed()), || async {
        let (code, why) = http_get(&stage.address, "/readyz").await.unwrap();
        (code == 503 && why.contains("failing for")).then_some(())
    });
    complains.await.unwrap();
    let is_over = || std::future::ready((since.elapsed() >= OUTAGE).then_some(()));
    // Nothing that it asks is answered meanwhile, so there is nothing else to wait for.
    eventually(OUTAGE, is_over).await.unwrap();
    let asked_after = asked(&http_get(&stage.address, "/metrics").await.unwrap().1);
    // Two watches and one object that waits, each asking again after at most four seconds, so that the end of an outage is noticed within five:
    // with jitter some 27 requests each.
    assert!(asked_after - asked_before <= 100.0, "{} requests in vain", asked_after - asked_before);
    let back = since + OUTAGE + CAUGHT_UP;
    for name in &names {
        stage.converges_within(back.saturating_duration_since(Instant::now()), name, "1").await;
    }
    let ready = eventually(CAUGHT_UP, || async {
        let (code, _) = http_get(&stage.address, "/readyz").await.unwrap();
        (code == 200).then_some(())
    });
    ready.await.unwrap();
    // Two for each of them.
    assert_eq!(stage.writes(begun).len(), 100, "{:#?}", stage.writes(begun));
    stage.end().await;
}

/// Waits until `count` requests were refused, and returns their number a second.
async fn refused_a_second(stage: &Stage, count: u64) -> f64 {
    let (begun, before) = (Instant::now(), stage.proxy.mark());
    let refused = || std::future::ready(stage.proxy.fired().iter().all(|fired| *fired >= count).then_some(()));
    assert!(eventually(LIMIT, refused).await.is_ok(), "{:?}", stage.proxy.fired());
    f64::from(u32::try_from(stage.proxy.mark() - before).unwrap()) / begun.elapsed().as_secs_f64()
}

/// F11; I10: no hot loop.
#[tokio::test(flavor = "multi_thread")]
async fn it_slows_down_when_told_to() {
    let stage = Stage::set("throttled").await;
    for (value, rule) in [
        ("everything", "- { when: {}, then: { status: { code: 429, retry_after: 1 } } }"),
        ("writes", "- { when: { mutating: true }, then: { status: { code: 429, retry_after: 1 } } }"),
    ] {
        let begun = stage.proxy.mark();
        stage.befalls(rule);
        stage.proxy.end_connections();
        stage.change("app", value).await;
        // Two watches, and one write with its event, each at most once a second.
        let rate = refused_a_second(&stage, 5).await;
        assert!(rate <= 5.0, "{value}: {rate} requests a second");
        stage.proxy.clear();
        stage.converges("app", value).await;
        assert!(stage.writes(begun).len() <= 2, "{value}: {:#?}", stage.writes(begun));
    }
    stage.end().await;
}

/// F12, F02; I5.
#[tokio::test(flavor = "multi_thread")]
async fn every_tenth_request_fails() {
    let stage = Stage::set("stumbling").await;
    stage.befalls(
        "- { then: { jitter: 50ms } }\n\
         - { when: { probability: 0.025 }, then: { status: { code: 500 } } }\n\
         - { when: { probability: 0.025 }, then: { status: { code: 503 } } }\n\
         - { when: { probability: 0.025 }, then: drop }\n\
         - { when: { phase: after, probability: 0.025 }, then: drop }",
    );
    let begun = stage.proxy.mark();
    for round in 0..20 {
        let value = format!("round {round}");
        stage.change("app", &value).await;
        if round % 5 == 4 {
            stage.proxy.end_connections();
            stage.converges("app", &value).await;
        }
    }
    assert!(stage.proxy.fired()[1..].iter().sum::<u64>() > 0, "{:?}", stage.proxy.fired());
    stage.proxy.clear();
    stage.change("app", "in the end").await;
    stage.converges("app", "in the end").await;
    // Two for each of the changes at most, and some of them again as their replies were lost.
    assert!(stage.writes(begun).len() <= 50, "{:#?}", stage.writes(begun).len());
    stage.end().await;
}

/// I3, I11: said while it lasts, and taken back.
#[tokio::test(flavor = "multi_thread")]
async fn permissions_that_come_back_need_no_restart() {
    let stage = Stage::set("forbidden").await;
    stage.befalls("- { when: { mutating: true, resources: [configmaps], times: 3 }, then: { status: { code: 403 } } }");
    let begun = stage.proxy.mark();
    stage.change("app", "1").await;
    stage.says("app", "Stalled", "Forbidden").await;
    stage.converges("app", "1").await;
    assert_eq!(stage.proxy.fired(), [3]);
    // The copy, and the status when it fails and when it works.
    assert!(stage.writes(begun).len() <= 5, "{:#?}", stage.writes(begun));
    stage.end().await;
}

/// I15: a deletion that cannot go on says why, and ends as soon as it can.
#[tokio::test(flavor = "multi_thread")]
async fn a_deletion_waits_for_its_copy_and_says_so() {
    let stage = Stage::set("deletion").await;
    stage.befalls("- { when: { verbs: [delete], resources: [configmaps] }, then: { status: { code: 403 } } }");
    stage.syncs().delete("app", &DeleteParams::default()).await.unwrap();
    stage.says("app", "Stalled", "Forbidden").await;
    assert!(stage.copies().get_opt("cms-app").await.unwrap().is_some());
    stage.proxy.clear();
    let gone = || async { stage.syncs().get_opt("app").await.unwrap().is_none().then_some(()) };
    assert!(eventually(LIMIT, gone).await.is_ok(), "{}", stage.operator.logged());
    assert!(stage.copies().get_opt("cms-app").await.unwrap().is_none());
    stage.end().await;
}

/// I10, I16: what fails for ever is tried at a falling rate, and delays nobody else.
#[tokio::test(flavor = "multi_thread")]
async fn an_object_whose_copy_is_refused_for_ever_delays_no_other() {
    let stage = Stage::set("poisoned").await;
    stage.befalls("- { when: { mutating: true, name: cms-poison }, then: { status: { code: 500 } } }");
    stage.create("poison", "1").await;
    let begun = Instant::now();
    for round in 1..=20 {
        stage.change("app", &round.to_string()).await;
        stage.converges("app", &round.to_string()).await;
    }
    // Pauses begin at half a second and grow.
    let tries = stage.proxy.fired()[0];
    let most = 2.0 + begun.elapsed().as_secs_f64();
    assert!(f64::from(u32::try_from(tries).unwrap()) <= most, "{tries} tries in {:?}", begun.elapsed());
    stage.proxy.clear();
    // An operator that cannot wait for the end of a pause logs it.
    stage.merge_sync("poison", json!({ "metadata": { "annotations": { "konverge.dev/reconcile-at": "now" } } })).await;
    stage.converges("poison", "1").await;
    stage.end().await;
}
