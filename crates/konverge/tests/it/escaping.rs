//! Objects that the API server deletes although they have the finalizer.
//!
//! A deletion reads the object, asks the webhooks, and then deletes it without looking for finalizers again. A finalizer that is added in between
//! holds nothing.

use std::{
    collections::BTreeSet,
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
    },
};

use konverge::{PAUSED, prelude::*};
use konverge_testkit::{HeldDeletions, eventually};
use kube::api::{ApiResource, PostParams};

use crate::stage::{LIMIT, Place, Probe, ProbeSpec, Running};

const FINALIZER: &str = "test.konverge.dev/escaping";

/// Has one thing outside for each uid, which can be removed once it is empty.
#[derive(Clone, Default)]
struct Maker {
    outside: Arc<Mutex<BTreeSet<String>>>,
    is_empty: Arc<AtomicBool>,
}

impl Maker {
    fn things(&self) -> Vec<String> {
        self.outside.lock().unwrap().iter().cloned().collect()
    }
}

impl Reconcile<Probe> for Maker {
    type Error = Error;

    async fn apply(&self, probe: Arc<Probe>, _: Context<Probe>) -> Result<Action, Error> {
        self.outside.lock().unwrap().insert(probe.uid().unwrap());
        Ok(Action::Done)
    }

    async fn finalize(&self, probe: Arc<Probe>, context: Context<Probe>) -> Result<Cleanup, Error> {
        assert!(probe.meta().deletion_timestamp.is_some(), "an author may rely on it");
        // A write to an object that is gone is dropped.
        context.annotate("test.konverge.dev/emptied", "begun").await?;
        if !self.is_empty.load(Ordering::SeqCst) {
            let reason = const { Reason::new("Emptying") };
            return Ok(Cleanup::pending(Duration::from_millis(50), reason, "it is emptied"));
        }
        self.outside.lock().unwrap().remove(&probe.uid().unwrap());
        Ok(Cleanup::Done)
    }
}

async fn run(place: &Place, program: &'static str, selector: Option<&str>, maker: &Maker) -> Running {
    let controller = Controller::new(maker.clone()).finalizer(FINALIZER);
    let controller = match selector {
        Some(selector) => controller.label_selector(selector),
        None => controller,
    };
    place.run(konverge::Operator::new(program, "0").controller(controller), &[]).await
}

/// Creates an object that no run touches yet.
async fn create_paused(place: &Place, name: &str) -> Probe {
    let mut probe = Probe::new(name, ProbeSpec::default());
    probe.labels_mut().insert("team".to_owned(), "ours".to_owned());
    probe.annotations_mut().insert(PAUSED.to_owned(), "true".to_owned());
    place.api::<Probe>().create(&PostParams::default(), &probe).await.unwrap()
}

async fn is_cleaned_up_after_it_escaped(program: &'static str, selector: Option<&str>) {
    let (place, maker) = (Place::new().await, Maker::default());
    let running = run(&place, program, selector, &maker).await;
    let probes = place.api::<Probe>();
    let kind = ApiResource::erase::<Probe>(&());
    let deletions = HeldDeletions::begin(&place.client, &place.namespace, &kind).await.unwrap();
    let name = create_paused(&place, "early").await.name_any();
    let deletion = deletions.delete(&name).await.unwrap();
    // The API server has found no finalizer. Now the object gets one, and something is made for it.
    place.annotate(&name, PAUSED, None).await;
    let held = eventually(LIMIT, async || {
        let probe = probes.get(&name).await.unwrap();
        (probe.finalizers() == [FINALIZER] && !maker.things().is_empty()).then_some(probe)
    });
    let held = held.await.unwrap();
    assert_eq!(maker.things(), [held.uid().unwrap()]);
    deletion.finish().await.unwrap();
    assert!(
        probes.get_opt(&name).await.unwrap().is_none(),
        "the API server looks for finalizers again: drop this test"
    );
    // Another object of the name waits for the cleanup, and says so. Then it has a thing of its own, which stays.
    let next = place.create_labelled(&name, "ok", &[("team", "ours")]).await;
    place.says(&name, |all| all.get("Ready").is_some_and(|ready| ready.reason == "Emptying")).await;
    assert_eq!(maker.things(), [held.uid().unwrap()]);
    maker.is_empty.store(true, Ordering::SeqCst);
    let expected = [next.uid().unwrap()];
    let cleaned = eventually(LIMIT, || std::future::ready((maker.things() == expected).then_some(())));
    assert!(cleaned.await.is_ok(), "{:?} is there, not only {expected:?}", maker.things());
    place.says(&name, |conditions| conditions.is_true("Ready")).await;
    assert_eq!(maker.things(), expected);
    running.end().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_made_for_an_object_that_the_api_server_deletes_past_its_finalizer_is_cleaned_up() {
    is_cleaned_up_after_it_escaped("konverge-escaping", None).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_of_an_object_of_a_selection() {
    is_cleaned_up_after_it_escaped("konverge-escaping-selected", Some("team=ours")).await;
}
