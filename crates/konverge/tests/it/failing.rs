//! The effects of a failure: on the object, on its status, on others. The numbers are those of the baseline's shortcomings.

use k8s_openapi::api::events::v1::Event;
use konverge::prelude::*;
use konverge_testkit::eventually;
use kube::api::ListParams;

use crate::stage::{LIMIT, Place, Probe, Prober, operator};

fn is(status: &'static str, reason: &'static str) -> impl Fn(&konverge::apply::Conditions) -> bool {
    move |conditions| conditions.get("Ready").is_some_and(|ready| ready.status == status && ready.reason == reason)
}

#[tokio::test(flavor = "multi_thread")]
async fn row_15_18_failures_are_told_apart_and_come_back_at_their_own_pace() {
    let (place, prober) = (Place::new().await, Prober::default());
    let runs = prober.runs.clone();
    let _running = place.run(operator(Controller::new(prober)), &[]).await;
    for behave in ["transient", "permanent", "after", "ok", "progress"] {
        place.create_probe(behave, behave).await;
    }
    let transient = place.says("transient", is("False", "NoLuck")).await;
    assert!(transient.status.unwrap().conditions.is_true("Reconciling"));
    let permanent = place.says("permanent", is("False", "NeverWorks")).await;
    assert!(permanent.status.unwrap().conditions.is_true("Stalled"));
    place.says("ok", is("True", "Reconciled")).await;
    let progress = place.says("progress", is("False", "Waiting")).await;
    assert!(progress.status.unwrap().conditions.is_true("Reconciling"));

    // The pauses grow, and the attempts are counted.
    let attempts: Vec<u32> = runs.reach("transient", 4).await.iter().map(|run| run.attempt).collect();
    assert_eq!(attempts[..4], [1, 2, 3, 4]);
    let after = runs.reach("after", 3).await;
    let pause = after[2].at - after[1].at;
    assert!(pause >= Duration::from_millis(290) && pause < Duration::from_secs(5), "{pause:?}");
    // A permanent failure waits for a change, and a change of the spec makes the next attempt the first.
    assert_eq!(runs.of("permanent").len(), 1);
    place.merge::<Probe>("permanent", serde_json::json!({"spec": {"behave": "ok"}})).await;
    place.says("permanent", is("True", "Reconciled")).await;
    assert_eq!(runs.of("permanent")[1].attempt, 1);
    // Each failure is an event, and one that is repeated is still one.
    let events = place.api::<Event>();
    let of = async |reason: &str| {
        let events = events.list(&ListParams::default()).await.unwrap().items;
        events.into_iter().filter(|event| event.reason.as_deref() == Some(reason)).collect::<Vec<_>>()
    };
    let told = eventually(LIMIT, || async { of("NeverWorks").await.pop() });
    assert_eq!(told.await.unwrap().note.as_deref(), Some("this never works"));
    assert_eq!(of("NoLuck").await.len(), 1, "four attempts, one event");
}

#[tokio::test(flavor = "multi_thread")]
async fn row_14_16_a_panic_and_a_hang_are_failures_of_one_object() {
    let (place, prober) = (Place::new().await, Prober::default());
    let controller = Controller::new(prober).time_limit(Duration::from_millis(500)).workers(2);
    let running = place.run(operator(controller), &[]).await;
    for behave in ["panic", "hang", "ok"] {
        place.create_probe(behave, behave).await;
    }
    place.says("panic", is("False", "Panicked")).await;
    place.says("hang", is("False", "TimedOut")).await;
    place.says("ok", is("True", "Reconciled")).await;
    running
        .measures(
            r#"konverge_objects_by_condition{controller="probes",type="Ready",status="False",reason="Panicked"} 1"#,
        )
        .await;
    for series in ["controller_runtime_reconcile_panics_total", "controller_runtime_reconcile_timeouts_total"] {
        let text = format!("{series}{{controller=\"probes\"}}");
        running.measures(&text).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn row_01_stopping_lets_the_run_in_flight_end_and_report() {
    let (place, prober) = (Place::new().await, Prober::default());
    let runs = prober.runs.clone();
    let running = place.run(operator(Controller::new(prober)), &[]).await;
    place.create_probe("slow", "slow").await;
    runs.reach("slow", 1).await;
    running.end().await.unwrap();
    place.says("slow", is("True", "Slow")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_that_does_not_parse_is_reported_and_delays_nobody() {
    let (place, prober) = (Place::new().await, Prober::default());
    // A kind of the same name that wants more than the CRD does.
    let running = place.run(operator(Controller::<strict::Probe, _>::watching(strict::Strict)), &[]).await;
    let _loose = place.run(operator(Controller::new(prober)), &[]).await;
    place.create_probe("seven", "7").await;
    place.create_probe("word", "seven").await;
    running.measures(r#"konverge_cache_undecodable_objects{resource="probes"} 1"#).await;
    // One for each: the second run only says what is wrong.
    running.measures(r#"controller_runtime_reconcile_total{controller="probes",result="success"} 2"#).await;
    // Its readers are told, once for each reason, however often something else happens to it.
    let events = place.api::<Event>();
    let told = async |error: &str| {
        let found = eventually(LIMIT, || async {
            let events = events.list(&ListParams::default()).await.unwrap().items;
            let of_word = |event: &&Event| {
                event.reason.as_deref() == Some("NotUnderstood")
                    && event.regarding.as_ref().is_some_and(|object| object.name.as_deref() == Some("word"))
            };
            let of_word: Vec<_> = events.iter().filter(of_word).cloned().collect();
            let is_told = of_word.iter().any(|event| event.note.as_ref().is_some_and(|note| note.contains(error)));
            is_told.then_some(of_word)
        });
        found.await.unwrap()
    };
    let first = told("left alone until it is mended: invalid digit").await;
    assert_eq!(first[0].regarding.as_ref().unwrap().uid, place.api::<Probe>().get("word").await.unwrap().metadata.uid);
    for number in 0..5 {
        place.annotate("word", "test.konverge.dev/number", Some(&number.to_string())).await;
    }
    // Mended, it is worked on.
    place.merge::<Probe>("word", serde_json::json!({"spec": {"behave": "8"}})).await;
    running.measures(r#"controller_runtime_reconcile_total{controller="probes",result="success"} 3"#).await;
    let events = told("invalid digit").await;
    assert_eq!(events.len(), 1, "{events:#?}");
    assert!(events[0].series.is_none(), "{events:#?}");
}

/// The probe as somebody sees it who believes that `behave` is a number in words.
mod strict {
    use konverge::prelude::*;
    use serde::Deserializer;

    #[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
    #[kube(group = "test.konverge.dev", version = "v1", kind = "Probe", namespaced)]
    pub(crate) struct ProbeSpec {
        #[serde(deserialize_with = "number")]
        behave: u32,
    }

    fn number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }

    pub(crate) struct Strict;

    impl Reconcile<Probe> for Strict {
        type Error = Error;

        async fn apply(&self, _: Arc<Probe>, _: Context<Probe>) -> Result<Action, Error> {
            Ok(Action::Done)
        }
    }
}
