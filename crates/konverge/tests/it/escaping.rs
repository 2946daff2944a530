//! Objects that the API server deletes although they have the finalizer.
//!
//! A deletion reads the object, asks the webhooks, and then deletes it without looking for finalizers again. A finalizer that is added in between
//! holds nothing.

use std::{
    collections::BTreeSet,
    convert::Infallible,
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
    },
};

use konverge::{
    PAUSED,
    admission::{Operation, Review, Validator, Verdict, Webhook, Webhooks},
    prelude::*,
};
use konverge_testkit::{eventually, free_port};
use kube::api::{DeleteParams, PostParams};
use tokio::sync::Semaphore;

use crate::stage::{LIMIT, Place, Probe, ProbeSpec, Running};

const FINALIZER: &str = "test.konverge.dev/escaping";

/// Keeps the API server waiting in the middle of each deletion.
#[derive(Clone)]
struct Doorkeeper {
    asked: Arc<Semaphore>,
    open: Arc<Semaphore>,
}

impl Default for Doorkeeper {
    fn default() -> Self {
        Self { asked: Arc::new(Semaphore::new(0)), open: Arc::new(Semaphore::new(0)) }
    }
}

impl Validator<Probe> for Doorkeeper {
    type Error = Infallible;

    async fn validate(&self, _: &Review<Probe>) -> Result<Verdict, Self::Error> {
        self.asked.add_permits(1);
        drop(self.open.acquire().await);
        Ok(Verdict::allow())
    }
}

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

/// Runs a program whose deletions wait for the doorkeeper.
async fn run(place: &Place, program: &'static str, selector: Option<&str>, maker: &Maker) -> (Running, Doorkeeper) {
    let (doorkeeper, port) = (Doorkeeper::default(), free_port().unwrap());
    let webhook = Webhook::of::<Probe>()
        .operations([Operation::Delete])
        .timeout_seconds(30)
        .namespace_labels([("kubernetes.io/metadata.name", place.namespace.as_str())]);
    let controller = Controller::new(maker.clone()).finalizer(FINALIZER);
    let controller = match selector {
        Some(selector) => controller.label_selector(selector),
        None => controller,
    };
    let program = konverge::Operator::new(program, "0")
        .controller(controller)
        .webhooks(Webhooks::new().validate(webhook, doorkeeper.clone()));
    let (url, address) = (format!("https://127.0.0.1:{port}"), format!("--webhook-address=127.0.0.1:{port}"));
    let home = format!("--lease-namespace={}", place.namespace);
    (place.run(program, &[&address, "--webhook-url", &url, &home]).await, doorkeeper)
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
    let (running, doorkeeper) = run(&place, program, selector, &maker).await;
    let probes = place.api::<Probe>();
    // In the beginning the API server may not know the webhook yet, and deletes at once.
    let (name, deletion) = eventually(LIMIT, async || {
        let name = create_paused(&place, "early").await.name_any();
        let (probes, sent) = (probes.clone(), name.clone());
        let deletion = tokio::spawn(async move { probes.delete(&sent, &DeleteParams::default()).await });
        let asked = tokio::time::timeout(Duration::from_secs(1), doorkeeper.asked.acquire()).await;
        match asked {
            Ok(permit) => {
                permit.unwrap().forget();
                Some((name, deletion))
            }
            Err(_) => deletion.await.unwrap().map(|_| None).unwrap(),
        }
    })
    .await
    .unwrap();
    // The API server has found no finalizer. Now the object gets one, and something is made for it.
    place.annotate(&name, PAUSED, None).await;
    let held = eventually(LIMIT, async || {
        let probe = probes.get(&name).await.unwrap();
        (probe.finalizers() == [FINALIZER] && !maker.things().is_empty()).then_some(probe)
    });
    let held = held.await.unwrap();
    assert_eq!(maker.things(), [held.uid().unwrap()]);
    doorkeeper.open.add_permits(Semaphore::MAX_PERMITS / 2);
    deletion.await.unwrap().unwrap();
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
