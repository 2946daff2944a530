//! Watches that fail, and lists that do (F04).

use futures::{StreamExt, stream};
use kube::{ResourceExt, api::PostParams};

use super::stage::{Stage, sync};

/// For how often a watch fails there may be one list, and one more for each of the two kinds, whose connections end.
#[tokio::test(flavor = "multi_thread")]
async fn whatever_befalls_a_watch_the_next_change_arrives() {
    let stage = Stage::set("watches").await;
    for (round, (rule, most_lists)) in [
        ("- { when: { verbs: [watch], times: 3 }, then: { status: { code: 410 } } }", 5),
        ("- { when: { verbs: [watch], times: 3 }, then: { error_event: 410 } }", 5),
        ("- { when: { phase: body, verbs: [watch], times: 3 }, then: { error_event: 410 } }", 5),
        ("- { when: { phase: body, verbs: [watch], times: 3 }, then: truncate }", 2),
        ("- { when: { verbs: [watch], times: 3 }, then: { status: { code: 500 } } }", 2),
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
        let begun = stage.now();
        stage.change("app", &value).await;
        stage.converges("app", &value).await;
        // The copy and the status.
        assert_eq!(stage.writes(begun).len(), 2, "{rule}: {:#?}", stage.writes(begun));
        assert!(stage.lists(begun) <= most_lists, "{rule}: {} lists", stage.lists(begun));
        stage.proxy.clear();
    }
    stage.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_whose_continuation_has_expired_begins_anew() {
    // More than a page of objects that nobody works on.
    let stage = Stage::set_with("continue", async |syncs| {
        let create = |number| async move {
            let mut sync = sync(&format!("paused-{number}"), "nowhere", "x");
            sync.annotations_mut().insert("konverge.dev/paused".to_owned(), "true".to_owned());
            syncs.create(&PostParams::default(), &sync).await.unwrap();
        };
        stream::iter(0..510).for_each_concurrent(16, create).await;
    })
    .await;
    stage.befalls(
        "- { when: { verbs: [list], query: { continue: '*' }, times: 2 }, then: { status: { code: 410 } } }\n\
         - { when: { verbs: [watch], resources: [configmapsyncs.example.io], times: 1 }, then: { error_event: 410 } }",
    );
    stage.proxy.end_connections();
    let begun = stage.now();
    stage.create("app", "1").await;
    stage.converges("app", "1").await;
    assert_eq!(stage.proxy.fired(), [2, 1]);
    assert!(stage.lists(begun) <= 4, "{} lists", stage.lists(begun));
    // The finalizer, the copy, the label and the status; what was listed again is not written again.
    assert_eq!(stage.writes(begun).len(), 4, "{:#?}", stage.writes(begun));
    stage.end().await;
}
