//! Watches that fail or fall silent, and lists that fail (F04, F06).

use std::time::Duration;

use futures::{StreamExt, stream};
use konverge_testkit::eventually;

use super::stage::{BadDay, RECOVERED};

/// F04, F06: the caches of both kinds and of their children are rebuilt repeatedly.
#[tokio::test(flavor = "multi_thread")]
async fn whatever_befalls_a_watch_the_next_change_arrives() {
    let mut day = BadDay::begin("watches").await;
    let first = day.proxy.mark();
    for (round, (rule, most_lists)) in [
        ("- { when: { verbs: [watch], times: 5 }, then: { status: { code: 410 } } }", 9),
        ("- { when: { verbs: [watch], times: 5 }, then: { error_event: 410 } }", 9),
        ("- { when: { phase: body, verbs: [watch], times: 5 }, then: { error_event: 410 } }", 9),
        ("- { when: { phase: body, verbs: [watch], times: 5 }, then: truncate }", 4),
        ("- { when: { verbs: [watch], times: 5 }, then: { status: { code: 500 } } }", 4),
        ("- { when: { phase: body, verbs: [watch] }, then: duplicate }", 4),
        ("- { when: { phase: body, verbs: [watch], events: [BOOKMARK] }, then: suppress }", 4),
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
    day.settles().await;
    assert_eq!(day.writes(first).len(), 7 * 4, "none comes late: {:#?}", day.writes(first));
    day.end().await;
}

/// F04: lists fail, from the beginning or at a continuation that has expired, while all four caches begin anew; I1, I5. Each failure may
/// cost one list more.
#[tokio::test(flavor = "multi_thread")]
async fn lists_that_fail_begin_anew() {
    let mut day = BadDay::begin("lists").await;
    // More than a page of objects of each kind that nobody works on.
    stream::iter(0..110).for_each_concurrent(16, |number| day.create_paused(number)).await;
    for (round, (rule, times)) in [
        ("- { when: { verbs: [list], times: 6 }, then: { status: { code: 500 } } }", 6),
        ("- { when: { verbs: [list], times: 6 }, then: { status: { code: 410 } } }", 6),
        ("- { when: { verbs: [list], query: { continue: '*' }, times: 4 }, then: { status: { code: 410 } } }", 4),
    ]
    .into_iter()
    .enumerate()
    {
        day.befalls(&format!("{rule}\n- {{ when: {{ verbs: [watch], times: 4 }}, then: {{ error_event: 410 }} }}"));
        day.proxy.end_connections();
        let begun = day.proxy.mark();
        let value = format!("round {round}");
        day.change_both(&value).await;
        let is_over = || std::future::ready((day.proxy.fired() == [times, 4]).then_some(()));
        assert!(eventually(RECOVERED, is_over).await.is_ok(), "{rule}: {:?}", day.proxy.fired());
        day.converges(&value).await;
        day.watches_again().await;
        // Objects that are listed again are not written again.
        assert_eq!(day.writes(begun).len(), 4, "{rule}: {:#?}", day.writes(begun));
        let most = 4 + usize::try_from(times).unwrap() + 1;
        assert!(day.lists(begun) <= most, "{rule}: {} lists", day.lists(begun));
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
    // A dead watch is noticed within 30 seconds; the rest is for a busy machine.
    day.secret_has_within(Duration::from_secs(45), "1").await;
    assert_eq!(day.accounts().get("sas-app").await.unwrap().image_pull_secrets.unwrap()[0].name, "3");
    day.end().await;
}
