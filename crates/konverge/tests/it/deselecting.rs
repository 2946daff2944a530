//! Objects that no longer match the selector of their controller, and still have its finalizer.

use std::sync::{Arc, Mutex};

use konverge::prelude::*;
use konverge_testkit::eventually;
use kube::api::DeleteParams;
use serde_json::json;

use crate::stage::{LIMIT, Place, Probe, Running, operator};

const FINALIZER: &str = "test.konverge.dev/deselecting";

/// Has a child per probe, and records each cleanup.
#[derive(Clone, Default)]
struct Keeper {
    cleaned: Arc<Mutex<Vec<String>>>,
}

impl Reconcile<Probe> for Keeper {
    type Error = Error;

    async fn apply(&self, probe: Arc<Probe>, context: Context<Probe>) -> Result<Action, Error> {
        let mut child = ConfigMap::default();
        child.metadata.name = Some(format!("{}-child", probe.name_any()));
        context.children().with(child).apply().await?;
        Ok(Action::Done)
    }

    async fn cleanup(&self, probe: Arc<Probe>, _: Context<Probe>) -> Result<(), Error> {
        self.cleaned.lock().unwrap().push(probe.name_any());
        Ok(())
    }
}

impl Keeper {
    fn cleaned(&self, name: &str) -> usize {
        self.cleaned.lock().unwrap().iter().filter(|cleaned| *cleaned == name).count()
    }

    /// Runs a program whose author selects the objects of our team.
    async fn run(&self, place: &Place, arguments: &[&str]) -> Running {
        self.run_for(place, "team=ours", arguments).await
    }

    async fn run_for(&self, place: &Place, selector: &str, arguments: &[&str]) -> Running {
        let controller =
            Controller::new(self.clone()).label_selector(selector).owns::<ConfigMap>().finalizer(FINALIZER);
        place.run(operator(controller), arguments).await
    }
}

/// Creates a probe that matches the selector, and waits until a controller has taken it.
async fn taken(place: &Place, name: &str, labels: &[(&str, &str)]) {
    place.create_labelled(name, "ok", labels).await;
    let probe = place.says(name, |conditions| conditions.is_true("Ready")).await;
    assert_eq!(probe.finalizers(), [FINALIZER]);
}

async fn relabel(place: &Place, name: &str, labels: serde_json::Value) {
    place.merge::<Probe>(name, json!({"metadata": {"labels": labels}})).await;
}

async fn delete(place: &Place, name: &str) {
    place.api::<Probe>().delete(name, &DeleteParams::default()).await.unwrap();
}

async fn is_gone(place: &Place, name: &str) {
    let gone =
        eventually(LIMIT, || async { place.api::<Probe>().get_opt(name).await.unwrap().is_none().then_some(()) });
    gone.await.unwrap_or_else(|_| panic!("{name} is still there"));
}

/// Waits until an object that still exists has no finalizer, and its child is gone.
async fn is_released(place: &Place, name: &str) {
    let released = eventually(LIMIT, || async {
        let probe = place.api::<Probe>().get(name).await.unwrap();
        let child = place.api::<ConfigMap>().get_opt(&format!("{name}-child")).await.unwrap();
        (probe.finalizers().is_empty() && child.is_none()).then_some(())
    });
    released.await.unwrap_or_else(|_| panic!("{name} is still held"));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_that_leaves_the_selection_is_cleaned_up_and_released() {
    let (place, keeper) = (Place::new().await, Keeper::default());
    let running = keeper.run(&place, &[]).await;
    for name in ["live", "deleted", "offline", "offline-deleted"] {
        taken(&place, name, &[("team", "ours")]).await;
    }
    relabel(&place, "live", json!({"team": "theirs"})).await;
    is_released(&place, "live").await;
    assert_eq!(keeper.cleaned("live"), 1);
    // Back in the selection, it is an object like any other, and holds nothing up afterwards.
    relabel(&place, "live", json!({"team": "ours"})).await;
    let held = eventually(LIMIT, || async {
        let probe = place.api::<Probe>().get("live").await.unwrap();
        (probe.finalizers() == [FINALIZER]).then_some(())
    });
    held.await.unwrap();
    relabel(&place, "deleted", json!({"team": null})).await;
    delete(&place, "deleted").await;
    is_gone(&place, "deleted").await;
    assert!(keeper.cleaned("deleted") > 0);

    running.end().await.unwrap();
    for name in ["offline", "offline-deleted"] {
        relabel(&place, name, json!({"team": null})).await;
    }
    delete(&place, "offline-deleted").await;
    let keeper = Keeper::default();
    let _running = keeper.run(&place, &[]).await;
    is_gone(&place, "offline-deleted").await;
    is_released(&place, "offline").await;
    assert_eq!((keeper.cleaned("offline"), keeper.cleaned("live")), (1, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_that_moves_to_another_shard_is_left_to_that_shard() {
    let (place, one, two) = (Place::new().await, Keeper::default(), Keeper::default());
    let _one = one.run(&place, &["--selector=shard=one"]).await;
    let second = two.run(&place, &["--selector=shard=two"]).await;
    for name in ["moved", "gone"] {
        taken(&place, name, &[("team", "ours"), ("shard", "one")]).await;
    }
    relabel(&place, "moved", json!({"shard": "two"})).await;
    // Neither shard selects this one.
    relabel(&place, "gone", json!({"shard": "three"})).await;
    // An object that leaves the author's selection as well belongs to no shard.
    taken(&place, "last", &[("team", "ours"), ("shard", "one")]).await;
    relabel(&place, "last", json!({"team": null, "shard": null})).await;
    is_released(&place, "last").await;
    assert_eq!((one.cleaned("last"), two.cleaned("last")), (1, 0));
    for name in ["moved", "gone"] {
        assert_eq!(place.api::<Probe>().get(name).await.unwrap().finalizers(), [FINALIZER], "{name}");
        delete(&place, name).await;
    }
    is_gone(&place, "moved").await;
    assert_eq!((one.cleaned("moved"), two.cleaned("moved") > 0), (0, true));
    second.end().await.unwrap();

    let two = Keeper::default();
    let _second = two.run(&place, &["--selector=shard=two"]).await;
    taken(&place, "after", &[("team", "ours"), ("shard", "two")]).await;
    let held = place.api::<Probe>().get("gone").await.unwrap();
    assert_eq!(held.finalizers(), [FINALIZER], "the shard that cleans it up may be away");
    relabel(&place, "gone", json!({"shard": "two"})).await;
    is_gone(&place, "gone").await;
    assert_eq!((one.cleaned("gone"), two.cleaned("gone") > 0), (0, true));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_standby_queues_no_object_that_leaves_the_selection() {
    let (place, keeper, idle) = (Place::new().await, Keeper::default(), Keeper::default());
    let namespace = format!("--lease-namespace={}", place.namespace);
    let arguments = ["--leader-election", "--debug-queues", &namespace];
    let _leader = keeper.run(&place, &arguments).await;
    taken(&place, "one", &[("team", "ours")]).await;
    let standby = idle.run(&place, &arguments).await;
    standby.measures(r#"konverge_cache_objects{resource="probes"} 1"#).await;
    relabel(&place, "one", json!({"team": "theirs"})).await;
    is_released(&place, "one").await;
    standby.measures(r#"konverge_cache_objects{resource="probes"} 0"#).await;
    let (_, queues) = standby.get("/debug/queues").await;
    assert!(!queues.contains("/one"), "{queues}");
    assert_eq!((keeper.cleaned("one"), idle.cleaned("one")), (1, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_with_a_wrong_selector_does_not_clean_up_everything() {
    let (place, keeper) = (Place::new().await, Keeper::default());
    let names: Vec<_> = (0..12).map(|number| format!("probe-{number}")).collect();
    let running = keeper.run(&place, &[]).await;
    for name in &names {
        taken(&place, name, &[("team", "ours")]).await;
    }
    running.end().await.unwrap();
    delete(&place, "probe-0").await;
    let keeper = Keeper::default();
    let _running = keeper.run_for(&place, "team=outs", &[]).await;
    // An object that a user has deleted is released in any case.
    is_gone(&place, "probe-0").await;
    for name in &names[1..] {
        assert_eq!(place.api::<Probe>().get(name).await.unwrap().finalizers(), [FINALIZER], "{name}");
        assert_eq!(keeper.cleaned(name), 0, "{name}");
    }
}
