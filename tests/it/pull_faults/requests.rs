//! An API server that refuses, stumbles or is away (F03, F11, F12), while values change.

use std::time::{Duration, Instant};

use konverge_testkit::eventually;

use super::scene::{LIMIT, Scene};
use crate::shared_stage::on_stage;

/// F03: what changed meanwhile arrives, in one write.
#[test]
fn the_api_server_is_away_for_a_while() {
    on_stage(async |stage| {
        let scene = Scene::set(stage, "away").await;
        let begun = scene.proxy.mark();
        scene.proxy.down(Duration::from_secs(5));
        for value in ["1", "2", "3"] {
            scene.set_value(value).await;
        }
        scene.bind("late").await;
        scene.holds("backend", &[("A", "3")]).await;
        scene.holds("late", &[("A", "3")]).await;
        // Three values may have been set in more than five seconds.
        assert!(scene.writes(begun).len() <= 5, "{:#?}", scene.writes(begun));
        scene.end().await;
    });
}

/// F11, I10: no faster than it is told.
#[test]
fn it_slows_down_when_told_to() {
    on_stage(async |stage| {
        let scene = Scene::set(stage, "throttled").await;
        for (value, rule) in [
            ("writes", "- { when: { mutating: true }, then: { status: { code: 429, retry_after: 1 } } }"),
            ("everything", "- { when: {}, then: { status: { code: 429, retry_after: 1 } } }"),
        ] {
            let begun = scene.proxy.mark();
            scene.befalls(rule);
            scene.proxy.end_connections();
            scene.set_value(value).await;
            let since = Instant::now();
            let refused = || std::future::ready((scene.proxy.fired()[0] >= 5).then_some(()));
            eventually(LIMIT, refused).await.unwrap();
            let asked = u32::try_from(scene.proxy.mark() - begun).unwrap();
            // A watch, a write or the read before it, and an event, each at most once a second; the first ones come at once.
            let most = 6.0 + 4.0 * since.elapsed().as_secs_f64();
            assert!(f64::from(asked) <= most, "{value}: {asked} requests in {:?}", since.elapsed());
            scene.proxy.clear();
            scene.holds("backend", &[("A", value)]).await;
            assert!(scene.writes(begun).len() <= 2, "{value}: {:#?}", scene.writes(begun));
        }
        scene.end().await;
    });
}

/// F12, F02: some requests fail, and some are done and not confirmed.
#[test]
fn every_fifth_request_fails() {
    on_stage(async |stage| {
        let scene = Scene::set(stage, "stumbling").await;
        scene.befalls(
            "- { then: { jitter: 50ms } }\n\
             - { when: { probability: 0.03 }, then: { status: { code: 500 } } }\n\
             - { when: { probability: 0.03 }, then: { status: { code: 503 } } }\n\
             - { when: { probability: 0.03 }, then: { status: { code: 409 } } }\n\
             - { when: { probability: 0.03 }, then: drop }\n\
             - { when: { phase: after, probability: 0.1 }, then: drop }",
        );
        let begun = scene.proxy.mark();
        for round in 0..12 {
            let value = format!("round {round}");
            scene.set_value(&value).await;
            if round % 4 == 3 {
                scene.proxy.end_connections();
                scene.bind(&format!("secret-{round}")).await;
                scene.holds("backend", &[("A", &value)]).await;
                scene.holds(&format!("secret-{round}"), &[("A", &value)]).await;
            }
        }
        assert!(scene.proxy.fired()[1..].iter().sum::<u64>() > 0, "{:?}", scene.proxy.fired());
        scene.proxy.clear();
        scene.set_value("in the end").await;
        for name in ["backend", "secret-3", "secret-7", "secret-11"] {
            scene.holds(name, &[("A", "in the end")]).await;
        }
        // One for each content of each Secret, and some again as their replies were lost.
        assert!(scene.writes(begun).len() <= 45, "{}", scene.writes(begun).len());
        scene.end().await;
    });
}

/// I3: what may not be read or written for a while keeps what it has, and what follows needs no restart.
#[test]
fn permissions_that_come_back_need_no_restart() {
    on_stage(async |stage| {
        let scene = Scene::set(stage, "forbidden").await;
        scene.befalls("- { when: { resources: [secrets], times: 3 }, then: { status: { code: 403 } } }");
        scene.proxy.end_connections();
        scene.set_value("1").await;
        scene.holds("backend", &[("A", "1")]).await;
        let fired = || std::future::ready((scene.proxy.fired() == [3]).then_some(()));
        eventually(LIMIT, fired).await.unwrap();
        scene.set_value("2").await;
        scene.holds("backend", &[("A", "2")]).await;
        scene.end().await;
    });
}
