//! An API server that refuses, stumbles or is away (F03, F11, F12).

use std::time::{Duration, Instant};

use konverge_testkit::eventually;
use serde_json::json;

use super::stage::{BadDay, RECOVERED};
use crate::stage::change;

/// F03; I1, I3.
#[tokio::test(flavor = "multi_thread")]
async fn the_api_server_is_away_for_a_while() {
    let mut day = BadDay::begin("away").await;
    let begun = day.proxy.mark();
    day.proxy.down(Duration::from_secs(5));
    // Others reach it.
    day.change_both("1").await;
    change(&day.secrets(), "ss-app", json!({ "data": { "value": "ZHJpZnQ=" } })).await;
    day.converges("1").await;
    assert!(day.writes(begun).len() <= 5, "{:#?}", day.writes(begun));
    day.end().await;
}

/// F11, I10: no faster than they are told, each of them.
#[tokio::test(flavor = "multi_thread")]
async fn they_slow_down_when_told_to() {
    let mut day = BadDay::begin("throttled").await;
    for (value, rule) in [
        ("everything", "- { when: {}, then: { status: { code: 429, retry_after: 1 } } }"),
        ("writes", "- { when: { mutating: true }, then: { status: { code: 429, retry_after: 1 } } }"),
    ] {
        let begun = day.proxy.mark();
        day.befalls(rule);
        day.proxy.end_connections();
        day.change_both(value).await;
        let (since, before) = (Instant::now(), day.proxy.mark());
        let refused = || std::future::ready((day.proxy.fired()[0] >= 12).then_some(()));
        assert!(eventually(RECOVERED, refused).await.is_ok(), "{:?}", day.proxy.fired());
        let asked = f64::from(u32::try_from(day.proxy.mark() - before).unwrap());
        // Four watches, and of each controller a write with its event, each at most once a second; the first ones come at once.
        let most = 8.0 + 8.0 * since.elapsed().as_secs_f64();
        assert!(asked <= most, "{value}: {asked} requests in {:?}", since.elapsed());
        day.proxy.clear();
        day.converges(value).await;
        assert_eq!(day.writes(begun).len(), 4, "{value}: {:#?}", day.writes(begun));
    }
    day.end().await;
}

/// F11, F12: replies that are late, wrong or lost, of both controllers; I1, I5.
#[tokio::test(flavor = "multi_thread")]
async fn every_tenth_request_fails() {
    let mut day = BadDay::begin("stumbling").await;
    day.befalls(
        "- { then: { jitter: 50ms } }\n\
         - { when: { probability: 0.025 }, then: { status: { code: 429, retry_after: 1 } } }\n\
         - { when: { probability: 0.025 }, then: { status: { code: 503 } } }\n\
         - { when: { probability: 0.025 }, then: drop }\n\
         - { when: { phase: after, probability: 0.025 }, then: drop }",
    );
    let begun = day.proxy.mark();
    for round in 0..12 {
        let value = format!("round {round}");
        day.change_both(&value).await;
        if round % 4 == 3 {
            day.proxy.end_connections();
            day.converges(&value).await;
        }
    }
    assert!(day.proxy.fired()[1..].iter().sum::<u64>() > 0, "{:?}", day.proxy.fired());
    day.proxy.clear();
    day.change_both("in the end").await;
    day.converges("in the end").await;
    // Two for each of 26 contents at most, and some of them again as their replies were lost.
    assert!(day.writes(begun).len() <= 62, "{}", day.writes(begun).len());
    day.end().await;
}

/// The same for longer, with more that is wrong: how long it lasts.
const BAD_MINUTE: Duration = Duration::from_mins(1);

/// A change that meets a failure comes with the next attempt, and that may meet one too.
const SLOWEST: Duration = Duration::from_secs(20);

/// F12: a tenth of all requests fails and all are late, for a minute. The requested child exists soon, each time; I1, I5.
#[tokio::test(flavor = "multi_thread")]
async fn every_tenth_request_fails_for_a_minute() {
    let mut day = BadDay::begin("bad-minute").await;
    day.befalls(
        "- { then: { jitter: 200ms } }\n\
         - { when: { probability: 0.025 }, then: { status: { code: 500 } } }\n\
         - { when: { probability: 0.025 }, then: { status: { code: 503 } } }\n\
         - { when: { probability: 0.025 }, then: { status: { code: 504 } } }\n\
         - { when: { probability: 0.025 }, then: drop }",
    );
    let (begun, since) = (day.proxy.mark(), Instant::now());
    let mut took = Vec::new();
    while since.elapsed() < BAD_MINUTE {
        let (value, changed) = (format!("round {}", took.len()), Instant::now());
        day.change_both(&value).await;
        day.converges(&value).await;
        took.push(changed.elapsed());
    }
    assert!(day.proxy.fired()[1..].iter().all(|fired| *fired > 0), "{:?}", day.proxy.fired());
    took.sort();
    let (middle, last) = (took[took.len() / 2], took[took.len() - 1]);
    // Of one kind after the other a copy and a status, each late by 200 ms at most; most changes meet no failure.
    assert!(middle <= Duration::from_secs(2) && last <= SLOWEST, "{middle:?} {last:?}");
    day.proxy.clear();
    // Nothing that failed was done, so no copy is written twice. A status may say in between what failed.
    let (writes, rounds) = (day.writes(begun), took.len());
    let copies = writes.iter().filter(|write| write.contains("/ss-app") || write.contains("/sas-app")).count();
    assert_eq!(copies, 2 * rounds, "{rounds} rounds");
    assert!(writes.len() <= 5 * rounds, "{} writes in {rounds} rounds", writes.len());
    day.end().await;
}

/// I16: what one controller may not do any more is no matter of the other, and nothing is taken away for it (I3).
#[tokio::test(flavor = "multi_thread")]
async fn one_controller_that_is_forbidden_everything_delays_no_other() {
    let mut day = BadDay::begin("forbidden").await;
    day.befalls(
        "- { when: { resources: [secrets, 'secretsyncs.example.io', 'secretsyncs.example.io/status'] }, \
         then: { status: { code: 403 } } }",
    );
    day.proxy.end_connections();
    for round in 1..=3 {
        day.change_both(&round.to_string()).await;
        day.account_has(&round.to_string()).await;
    }
    let values = day.secrets().get("ss-app").await.unwrap().data.unwrap();
    assert_eq!(values["value"].0, b"0");
    day.proxy.clear();
    day.converges("3").await;
    day.end().await;
}
