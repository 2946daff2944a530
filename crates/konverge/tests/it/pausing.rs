//! The annotations by which people hold an object or hurry it up.

use konverge::{PAUSED, RECONCILE_AT, prelude::*};
use konverge_testkit::eventually;
use kube::api::DeleteParams;

use crate::stage::{LIMIT, Place, Probe, Prober, operator};

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_object_is_left_alone_until_it_is_released() {
    let (place, prober) = (Place::new().await, Prober::default());
    let runs = prober.runs.clone();
    let controller = Controller::new(prober).finalizer("test.konverge.dev/cleanup");
    let running = place.run(operator(controller), &[]).await;
    place.create_probe("held", "ok").await;
    runs.reach("held", 1).await;
    place.annotate("held", PAUSED, Some("true")).await;
    running.measures(r#"konverge_paused_objects{controller="probes"} 1"#).await;
    let before = runs.of("held").len();
    place.merge::<Probe>("held", serde_json::json!({"spec": {"behave": "fine"}})).await;
    // Another object shows that the change above has been looked at.
    place.create_probe("other", "ok").await;
    runs.reach("other", 1).await;
    assert_eq!(runs.of("held").len(), before);
    place.annotate("held", PAUSED, None).await;
    runs.reach("held", before + 1).await;
    // Deleting does not wait for the pause to end.
    place.annotate("held", PAUSED, Some("true")).await;
    place.api::<Probe>().delete("held", &DeleteParams::default()).await.unwrap();
    let gone =
        eventually(LIMIT, || async { place.api::<Probe>().get_opt("held").await.unwrap().is_none().then_some(()) });
    gone.await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_annotation_makes_a_failing_object_be_tried_at_once_as_if_for_the_first_time() {
    let (place, prober) = (Place::new().await, Prober::default());
    let runs = prober.runs.clone();
    let _running = place.run(operator(Controller::new(prober)), &[]).await;
    place.create_probe("stuck", "permanent").await;
    runs.reach("stuck", 1).await;
    place.annotate("stuck", RECONCILE_AT, Some("2026-11-21T08:00:00Z")).await;
    let second = runs.reach("stuck", 2).await.pop().unwrap();
    assert_eq!(second.attempt, 1);
    assert!(second.reasons.contains(&"reconcile-now"), "{second:?}");
}
