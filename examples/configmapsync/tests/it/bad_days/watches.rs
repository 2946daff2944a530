//! Watches that fail or fall silent, and lists that fail (F04, F06).

use std::time::Duration;

use futures::{StreamExt, stream};
use konverge_testkit::{Verb, eventually, fault_proxy::JournalEntry};
use kube::{ResourceExt, api::PostParams};
use serde_json::json;

use super::stage::{LIMIT, Stage, sync};

/// F04, F06: for how often a watch fails there may be one list, and one more for each of the two kinds, whose connections end.
#[tokio::test(flavor = "multi_thread")]
async fn whatever_befalls_a_watch_the_next_change_arrives() {
    let stage = Stage::set("watches").await;
    for (round, (rule, most_lists)) in [
        ("- { when: { verbs: [watch], times: 3 }, then: { status: { code: 410 } } }", 5),
        ("- { when: { verbs: [watch], times: 3 }, then: { error_event: 410 } }", 5),
        ("- { when: { phase: body, verbs: [watch], times: 3 }, then: { error_event: 410 } }", 5),
        ("- { when: { phase: body, verbs: [watch], times: 3 }, then: truncate }", 2),
        ("- { when: { verbs: [watch], times: 3 }, then: { status: { code: 500 } } }", 2),
        (
            "- { when: { verbs: [list], times: 3 }, then: { status: { code: 500 } } }\n\
             - { when: { verbs: [watch], times: 2 }, then: { error_event: 410 } }",
            6,
        ),
        ("- { when: { phase: body, verbs: [watch] }, then: duplicate }", 2),
        ("- { when: { phase: body, verbs: [watch], events: [BOOKMARK] }, then: suppress }", 2),
    ]
    .into_iter()
    .enumerate()
    {
        let value = format!("round {round}");
        stage.befalls(rule);
        // So that watches are opened again under the plan.
        stage.proxy.end_connections();
        let begun = stage.proxy.mark();
        stage.change("app", &value).await;
        stage.converges("app", &value).await;
        // The copy and the status.
        assert_eq!(stage.writes(begun).len(), 2, "{rule}: {:#?}", stage.writes(begun));
        assert!(stage.lists(begun) <= most_lists, "{rule}: {} lists", stage.lists(begun));
        stage.proxy.clear();
    }
    stage.end().await;
}

/// F04: 410 on a continue token.
#[tokio::test(flavor = "multi_thread")]
async fn a_list_whose_continuation_has_expired_begins_anew() {
    // More than a page of objects that nobody works on.
    let stage = Stage::set_after("continue", &[], async |syncs| {
        let create = |number| async move {
            let mut sync = sync(&format!("paused-{number}"), "nowhere", "x");
            sync.annotations_mut().insert("konverge.dev/paused".to_owned(), "true".to_owned());
            syncs.create(&PostParams::default(), &sync).await.unwrap();
        };
        stream::iter(0..110).for_each_concurrent(16, create).await;
    })
    .await;
    stage.befalls(
        "- { when: { verbs: [list], query: { continue: '*' }, times: 2 }, then: { status: { code: 410 } } }\n\
         - { when: { verbs: [watch], resources: [configmapsyncs.example.io], times: 1 }, then: { error_event: 410 } }",
    );
    stage.proxy.end_connections();
    let begun = stage.proxy.mark();
    stage.create("app", "1").await;
    // It is on the first page, so it is worked on before the list is complete.
    stage.converges("app", "1").await;
    // 111 objects in pages of 100 are two pages, so the one that continues another is the last.
    let is_last_page = |entry: &JournalEntry| {
        let asks = &entry.request;
        let is_second = asks.parameter("limit") == Some("100") && asks.parameter("continue").is_some();
        asks.verb == Verb::List
            && asks.full_resource() == "configmapsyncs.example.io"
            && is_second
            && entry.client_code == Some(200)
    };
    let is_complete = || {
        let asked = stage.proxy.requests_since(begun);
        std::future::ready(asked.entries().iter().any(is_last_page).then_some(()))
    };
    eventually(LIMIT, is_complete).await.unwrap();
    assert_eq!(stage.proxy.fired(), [2, 1]);
    stage.change("app", "2").await;
    stage.converges("app", "2").await;
    assert!(stage.lists(begun) <= 4, "{} lists", stage.lists(begun));
    // The finalizer, the copy, the label and the status, and two for the change; what was listed again is not written again.
    assert_eq!(stage.writes(begun).len(), 6, "{:#?}", stage.writes(begun));
    stage.end().await;
}

/// A dead watch is noticed within 30 seconds; the rest is for a busy machine.
const SILENCE: Duration = Duration::from_secs(45);

/// F06: both watches die, and what each of them would have told arrives.
#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_has_died_without_a_word_is_noticed() {
    let stage = Stage::set("frozen").await;
    stage.create("other", "0").await;
    stage.converges("other", "0").await;
    stage.befalls(
        "- { when: { phase: body, verbs: [watch], resources: [configmapsyncs.example.io], times: 1 }, then: freeze }\n\
         - { when: { phase: body, verbs: [watch], resources: [configmaps], times: 1 }, then: freeze }",
    );
    let begun = stage.proxy.mark();
    stage.change("app", "1").await;
    stage.merge_copy("cms-other", json!({ "data": { "value": "drift" } })).await;
    stage.converges_within(SILENCE, "app", "1").await;
    stage.converges_within(SILENCE, "other", "0").await;
    assert_eq!(stage.proxy.fired(), [1, 1]);
    // Two for the change and one for the drift. Watches go on where they ended.
    assert!(stage.writes(begun).len() <= 4, "{:#?}", stage.writes(begun));
    assert!(stage.lists(begun) <= 2, "{} lists", stage.lists(begun));
    stage.end().await;
}
