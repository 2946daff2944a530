//! Watches that fail or fall silent (F04, F06): what they would have told comes all the same.

use std::time::Duration;

use super::scene::Scene;
use crate::shared_stage::on_stage;

/// F04: for how often a watch fails there may be one list, and one more as connections end.
#[test]
fn whatever_befalls_a_watch_the_next_secret_is_filled() {
    on_stage(async |stage| {
        let scene = Scene::set(stage, "watches").await;
        for (round, (rule, most_lists)) in [
            ("- { when: { verbs: [watch], times: 2 }, then: { status: { code: 410 } } }", 3),
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
            // All others are in step.
            assert_eq!(scene.writes(begun).len(), 1, "{rule}: {:#?}", scene.writes(begun));
            let lists = scene.proxy.asked_since(begun).lists();
            assert!(lists <= most_lists, "{rule}: {lists} lists");
            scene.proxy.clear();
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
        scene.holds_within(Duration::from_secs(100), "unheard", &[("A", "2")]).await;
        assert_eq!(scene.proxy.fired(), [1]);
        scene.end().await;
    });
}
