//! Watches that fail or fall silent (F04, F06): what they would have told comes all the same.

use std::time::Duration;

use futures::{StreamExt, stream};
use konverge_testkit::eventually;
use serde_json::json;

use super::scene::{LIMIT, Scene};
use crate::shared_stage::on_stage;

/// F04: for how often a watch fails there may be one list, and one more as connections end.
#[test]
fn whatever_befalls_a_watch_the_next_secret_is_filled() {
    on_stage(async |stage| {
        let scene = Scene::set(stage, "watches").await;
        let first = scene.proxy.mark();
        for (round, (rule, most_lists)) in [
            ("- { when: { verbs: [watch], times: 2 }, then: { status: { code: 410 } } }", 3),
            ("- { when: { verbs: [watch], times: 2 }, then: { error_event: 410 } }", 3),
            ("- { when: { phase: body, verbs: [watch], times: 2 }, then: { error_event: 410 } }", 3),
            ("- { when: { phase: body, verbs: [watch], times: 2 }, then: truncate }", 1),
            ("- { when: { verbs: [watch], times: 2 }, then: { status: { code: 500 } } }", 1),
            ("- { when: { phase: body, verbs: [watch] }, then: duplicate }", 1),
            ("- { when: { phase: body, verbs: [watch], events: [BOOKMARK] }, then: suppress }", 1),
        ]
        .into_iter()
        .enumerate()
        {
            scene.befalls(rule);
            scene.proxy.end_connections();
            let begun = scene.proxy.mark();
            let name = format!("secret-{round}");
            scene.bind(&name).await;
            scene.holds(&name, &[("A", "0")]).await;
            // All others are in sync.
            assert_eq!(scene.writes(begun).len(), 1, "{rule}: {:#?}", scene.writes(begun));
            let lists = scene.proxy.requests_since(begun).lists();
            assert!(lists <= most_lists, "{rule}: {lists} lists");
            scene.proxy.clear();
        }
        scene.settles().await;
        assert_eq!(scene.writes(first).len(), 7, "none comes late: {:#?}", scene.writes(first));
        scene.end().await;
    });
}

/// F04: lists fail, from the beginning or at a continuation that has expired; I3, I6. Bound Secrets keep their content and get no extra writes, and
/// each failure may cost one more list.
#[test]
fn lists_that_fail_begin_anew() {
    on_stage(async |stage| {
        let scene = Scene::set(stage, "lists").await;
        // More than a page of Secrets that nobody bound.
        let unbound = stream::iter(0..110).for_each_concurrent(16, async |number| {
            let name = format!("unbound-{number}");
            let unbound = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": name } });
            scene.apply(&name, unbound).await;
        });
        unbound.await;
        for (round, (rule, times)) in [
            ("- { when: { verbs: [list], times: 3 }, then: { status: { code: 500 } } }", 3),
            ("- { when: { verbs: [list], times: 3 }, then: { status: { code: 410 } } }", 3),
            ("- { when: { verbs: [list], query: { continue: '*' }, times: 2 }, then: { status: { code: 410 } } }", 2),
        ]
        .into_iter()
        .enumerate()
        {
            scene.befalls(&format!(
                "{rule}\n- {{ when: {{ verbs: [watch], times: 1 }}, then: {{ error_event: 410 }} }}"
            ));
            scene.proxy.end_connections();
            let begun = scene.proxy.mark();
            let name = format!("secret-{round}");
            scene.bind(&name).await;
            let is_over = || std::future::ready((scene.proxy.fired() == [times, 1]).then_some(()));
            assert!(eventually(LIMIT, is_over).await.is_ok(), "{rule}: {:?}", scene.proxy.fired());
            scene.holds(&name, &[("A", "0")]).await;
            assert_eq!(scene.writes(begun).len(), 1, "{rule}: {:#?}", scene.writes(begun));
            let (lists, most) = (scene.proxy.requests_since(begun).lists(), usize::try_from(times).unwrap() + 2);
            assert!(lists <= most, "{rule}: {lists} lists");
        }
        scene.end().await;
    });
}

/// F06: values go on arriving while the watch is dead, and the watch is noticed to be so after a minute and five seconds.
#[test]
fn a_watch_that_has_died_without_a_word_is_noticed() {
    on_stage(async |stage| {
        let scene = Scene::set(stage, "frozen").await;
        scene.befalls("- { when: { phase: body, verbs: [watch], times: 1 }, then: freeze }");
        scene.bind("unheard").await;
        for value in ["1", "2"] {
            scene.set_value(value).await;
            scene.holds("backend", &[("A", value)]).await;
        }
        // A dead watch is noticed within 30 seconds; the rest is for a busy machine.
        scene.holds_within(Duration::from_secs(45), "unheard", &[("A", "2")]).await;
        assert_eq!(scene.proxy.fired(), [1]);
        scene.end().await;
    });
}
