//! Work that takes longer than one run: a pending cleanup, and a run that reports progress.

use std::sync::atomic::{AtomicBool, Ordering};

use k8s_openapi::api::{apps::v1::Deployment, events::v1::Event};
use konverge::{apply::Conditions, prelude::*};
use konverge_testkit::eventually;
use kube::api::{DeleteParams, ListParams};
use tokio::sync::Notify;

use crate::stage::{LIMIT, Place, Probe, Publisher, Runs, operator};

/// Has something outside that goes slowly.
#[derive(Clone, Default)]
struct Slow {
    runs: Runs,
    is_gone: Arc<AtomicBool>,
}

impl Reconcile<Probe> for Slow {
    type Error = Error;

    async fn apply(&self, _: Arc<Probe>, context: Context<Probe>) -> Result<Action, Error> {
        let mut child = ConfigMap::default();
        child.metadata.name = Some("access".to_owned());
        context.children().with(child).apply().await?;
        Ok(Action::Done)
    }

    async fn finalize(&self, _: Arc<Probe>, context: Context<Probe>) -> Result<Cleanup, Error> {
        self.runs.note(&context);
        if self.is_gone.load(Ordering::SeqCst) {
            return Ok(Cleanup::Done);
        }
        let reason = const { Reason::new("BucketNotEmpty") };
        Ok(Cleanup::pending(Duration::from_millis(200), reason, "the bucket still has 3 objects"))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cleanup_that_is_not_done_yet_is_no_failure() {
    let (place, slow) = (Place::new().await, Slow::default());
    let (runs, is_gone) = (slow.runs.clone(), Arc::clone(&slow.is_gone));
    let controller = Controller::new(slow).owns::<ConfigMap>().finalizer("test.konverge.dev/bucket");
    let _running = place.run(operator(controller), &[]).await;
    place.create_probe("bucket", "ok").await;
    place.says("bucket", |all| all.is_true("Ready")).await;
    place.api::<Probe>().delete("bucket", &DeleteParams::default()).await.unwrap();
    let said = place
        .says("bucket", |all| all.get("Ready").is_some_and(|ready| ready.reason == "BucketNotEmpty"))
        .await
        .status
        .unwrap()
        .conditions;
    assert_eq!(said.get("Ready").unwrap().message, "the bucket still has 3 objects");
    assert!(said.is_true("Reconciling") && said.get("Stalled").is_none());
    // It is asked again in its own time, each time as if for the first time, and its children are still there.
    let asked = runs.reach("bucket", 3).await;
    assert!(asked.iter().all(|run| run.attempt == 1), "{asked:?}");
    assert!(asked[2].at - asked[1].at >= Duration::from_millis(190));
    assert!(place.api::<ConfigMap>().get_opt("access").await.unwrap().is_some());

    is_gone.store(true, Ordering::SeqCst);
    let gone =
        eventually(LIMIT, || async { place.api::<Probe>().get_opt("bucket").await.unwrap().is_none().then_some(()) });
    gone.await.unwrap();
    assert!(place.api::<ConfigMap>().get_opt("access").await.unwrap().is_none());
    let events = place.api::<Event>().list(&ListParams::default()).await.unwrap().items;
    assert!(events.iter().all(|event| event.type_.as_deref() != Some("Warning")), "{events:?}");
}

/// Tells how far it is before it is done.
#[derive(Clone, Default)]
struct Telling(Arc<Notify>);

impl Reconcile<Probe> for Telling {
    type Error = Error;

    async fn apply(&self, probe: Arc<Probe>, context: Context<Probe>) -> Result<Action, Error> {
        let reason = const { Reason::new("Restoring") };
        if probe.spec.behave == "removed" {
            context.remove_condition("BackedUp");
            return Ok(Action::Done);
        }
        if context.object().status.as_ref().is_some_and(|status| status.conditions.is_true("BackedUp")) {
            return Ok(Action::Done);
        }
        context.condition("BackedUp", false, reason.clone(), "half of it is there");
        context.progressing(reason.clone(), "takes a while");
        context.write_status().await?;
        self.0.notified().await;
        context.condition("BackedUp", true, reason.clone(), "all of it is there");
        context.ready(reason, "done");
        Ok(Action::Done)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_condition_is_set_in_one_call_and_written_before_the_run_ends() {
    let (place, telling) = (Place::new().await, Telling::default());
    let end = Arc::clone(&telling.0);
    let _running = place.run(operator(Controller::new(telling)), &[]).await;
    place.create_probe("backup", "ok").await;
    let early = place.says("backup", |all| all.get("BackedUp").is_some()).await.status.unwrap().conditions;
    assert!(!early.is_true("BackedUp") && early.is_true("Reconciling"));
    assert_eq!(early.get("Ready").unwrap().message, "takes a while");
    end.notify_one();
    place.says("backup", |all| all.is_true("BackedUp") && all.is_true("Ready")).await;
    // A run that says nothing of it keeps it, and one that removes it does.
    place.merge::<Probe>("backup", serde_json::json!({"spec": {"behave": "silent"}})).await;
    let is_of = |all: &Conditions, generation| {
        all.get("Ready").is_some_and(|ready| ready.observed_generation == Some(generation))
    };
    place.says("backup", |all| is_of(all, 2) && all.is_true("BackedUp")).await;
    place.merge::<Probe>("backup", serde_json::json!({"spec": {"behave": "removed"}})).await;
    place.says("backup", |all| is_of(all, 3) && all.get("BackedUp").is_none()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unready_children_can_be_tolerated() {
    let place = Place::new().await;
    let publisher = Publisher { deployment: "slow", tolerates_unready: true };
    let _running = place.run(operator(Controller::new(publisher).owns::<Deployment>()), &[]).await;
    place.create_probe("tolerant", "ok").await;
    place.says("tolerant", |all| all.is_true("Ready")).await;
    assert!(place.api::<Deployment>().get("slow").await.unwrap().status.is_none_or(|status| status.replicas.is_none()));
}
