//! Bad days of the API server and of the way to it, with two controllers that share a client, caches and a lease. What one controller
//! does is shown by the example with one; here it is that both get over it, and that the values of Secrets are not at risk.

mod stage;

use std::time::Duration;

use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use konverge_testkit::eventually;
use kube::{
    ResourceExt,
    api::{DeleteParams, PostParams},
};
use serde_json::json;

use self::stage::BadDay;
use crate::stage::{LIMIT, change, gone, says};

const SECRET_SYNCS: &str = "secretsyncs.example.io";

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

/// F04: the caches of both kinds and of their children begin anew, again and again.
#[tokio::test(flavor = "multi_thread")]
async fn whatever_befalls_a_watch_the_next_change_arrives() {
    let mut day = BadDay::begin("watches").await;
    for (round, (rule, most_lists)) in [
        ("- { when: { verbs: [watch], times: 5 }, then: { status: { code: 410 } } }", 9),
        ("- { when: { phase: body, verbs: [watch], times: 5 }, then: { error_event: 410 } }", 9),
        ("- { when: { phase: body, verbs: [watch], times: 5 }, then: truncate }", 4),
    ]
    .into_iter()
    .enumerate()
    {
        day.befalls(rule);
        day.proxy.end_connections();
        let begun = day.proxy.mark();
        let value = format!("round {round}");
        day.change_both(&value).await;
        day.converges(&value).await;
        assert_eq!(day.writes(begun).len(), 4, "{rule}: {:#?}", day.writes(begun));
        assert!(day.lists(begun) <= most_lists, "{rule}: {} lists", day.lists(begun));
        day.proxy.clear();
    }
    day.end().await;
}

/// F07: a Secret that somebody made anew with something else in it is theirs, whatever the operator believes; I2.
#[tokio::test(flavor = "multi_thread")]
async fn a_secret_that_somebody_else_made_anew_unseen_is_theirs() {
    let mut day = BadDay::begin("theirs").await;
    day.proxy.hide_changes(&["secrets"]).unwrap();
    day.secrets().delete("ss-app", &DeleteParams::default()).await.unwrap();
    let theirs = stage::secret("ss-app", "theirs");
    let theirs = day.secrets().create(&PostParams::default(), &theirs).await.unwrap();
    let begun = day.proxy.mark();
    day.change_both("1").await;
    let tried = || async {
        let asked = day.proxy.asked_since(begun);
        asked.entries().iter().any(|entry| entry.asks.name == "ss-app" && entry.told.is_some()).then_some(())
    };
    eventually(LIMIT, tried).await.unwrap();
    assert_eq!(day.secrets().get("ss-app").await.unwrap(), theirs);
    day.proxy.show_outcome(LIMIT).await.unwrap();
    says(&day.secret_syncs(), "app", "Stalled", Some("NotOurs")).await;
    // The other controller goes on.
    says(&day.account_syncs(), "app", "Ready", Some("ServiceAccountSynced")).await;
    day.secret_syncs().delete("app", &DeleteParams::default()).await.unwrap();
    gone(&day.secret_syncs(), "app").await;
    assert_eq!(day.secrets().get("ss-app").await.unwrap(), theirs);
    day.end().await;
}

/// F07: what was between is never written; I5, I6.
#[tokio::test(flavor = "multi_thread")]
async fn a_value_that_was_changed_and_changed_back_unseen_is_not_written() {
    let mut day = BadDay::begin("reverted").await;
    let before = day.secrets().get("ss-app").await.unwrap();
    day.proxy.hide_changes(&[SECRET_SYNCS]).unwrap();
    day.change_secret("other").await;
    day.change_secret("0").await;
    day.proxy.show_outcome(LIMIT).await.unwrap();
    says(&day.secret_syncs(), "app", "Ready", Some("SecretSynced")).await;
    assert_eq!(day.secrets().get("ss-app").await.unwrap().resource_version(), before.resource_version());
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

/// F13, F16: both controllers go over to the next leader together; I12.
#[tokio::test(flavor = "multi_thread")]
async fn both_controllers_follow_the_lease() {
    let lease = ["--leader-election", "--lease-duration=4", "--renew-deadline=3", "--retry-period=1"];
    let mut day = BadDay::begin_with("leader", &lease).await;
    for round in 0..3 {
        let next = day.another(&format!("leader-{round}"), &lease).await;
        let mark = next.proxy.mark();
        if round % 2 == 0 {
            day.befalls("- { when: { resources: [leases.coordination.k8s.io] }, then: drop }");
            let status = day.operator.ended(LIMIT).await.unwrap();
            assert!(!status.success(), "{status}");
        } else {
            day.operator.kill();
        }
        let old_mark = day.proxy.mark();
        let value = format!("round {round}");
        day.change_both(&value).await;
        let old = std::mem::replace(&mut day.proxy, next.proxy);
        day.operator = next.process;
        day.converges(&value).await;
        assert_eq!(old.asked_since(old_mark).writes(), [""; 0]);
        assert_eq!(day.writes(mark).len(), 4, "{:#?}", day.writes(mark));
        assert_eq!(day.lists(mark), 0, "the caches of a standby are full");
    }
    day.end().await;
}

/// F06: the cache of one kind is deaf, and all others hear.
#[tokio::test(flavor = "multi_thread")]
async fn a_deaf_watch_delays_no_other() {
    let mut day = BadDay::begin("deaf").await;
    let rule =
        "- { when: { phase: body, verbs: [watch], resources: [secretsyncs.example.io], times: 1 }, then: freeze }";
    day.befalls(rule);
    day.change_secret("1").await;
    for round in 1..=3 {
        day.change_account(&round.to_string()).await;
        day.account_has(&round.to_string()).await;
    }
    // A minute and five seconds, and a pause.
    day.secret_has_within(Duration::from_secs(90), "1").await;
    let accounts = day.api::<ServiceAccount>();
    assert_eq!(accounts.get("sas-app").await.unwrap().image_pull_secrets.unwrap()[0].name, "3");
    assert!(day.api::<Secret>().get("ss-app").await.is_ok());
    day.end().await;
}
