//! A status says what is so: of children, and in a list of conditions that others write too.

use konverge::{apply::Conditions, prelude::*};
use konverge_testkit::eventually;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::{
    ordering::status,
    stage::{LIMIT, Place, Probe, Publisher, Runs, operator},
};

#[tokio::test(flavor = "multi_thread")]
async fn an_object_is_not_ready_while_a_child_is_not() {
    let place = Place::new().await;
    let publisher = Publisher { deployment: "web", tolerates_unready: false };
    let controller = Controller::new(publisher).owns::<k8s_openapi::api::apps::v1::Deployment>();
    let _running = place.run(operator(controller), &[]).await;
    place.create_probe("site", "ok").await;
    let is_waiting = |conditions: &Conditions| {
        conditions.get("Ready").is_some_and(|ready| ready.status == "False" && ready.reason == "WaitingForChildren")
    };
    let said = place.says("site", is_waiting).await.status.unwrap().conditions;
    let message = &said.get("Ready").unwrap().message;
    assert!(message.starts_with("Deployment ") && message.contains("/web is in progress"), "{message}");
    assert!(said.is_true("Reconciling"));
    status(&place, "web", 0).await;
    place
        .says("site", |all| is_waiting(all) && all.get("Ready").unwrap().message.contains("available replicas: 0 of 1"))
        .await;
    status(&place, "web", 1).await;
    place.says("site", |all| all.is_true("Ready") && all.get("Ready").unwrap().reason == "Published").await;
    // It does not stay so when the replica is lost.
    status(&place, "web", 0).await;
    place.says("site", is_waiting).await;
}

/// Waits in each run until it may end.
#[derive(Clone, Default)]
struct Holding {
    runs: Runs,
    end: Arc<Notify>,
}

impl Reconcile<Probe> for Holding {
    type Error = Error;

    async fn apply(&self, probe: Arc<Probe>, context: Context<Probe>) -> Result<Action, Error> {
        self.runs.note(&context);
        if probe.spec.behave == "hold" {
            self.end.notified().await;
        }
        context.ready(const { Reason::new("Seen") }, &probe.spec.behave);
        Ok(Action::Done)
    }
}

/// Applies the conditions of another controller.
async fn say(place: &Place, conditions: &[(&str, &str)]) -> Probe {
    let conditions: Vec<Value> = conditions
        .iter()
        .map(|(name, status)| {
            let time = "2026-01-01T00:00:00Z";
            json!({"type": name, "status": status, "reason": "Other", "message": "", "lastTransitionTime": time})
        })
        .collect();
    let body = json!({
        "apiVersion": "test.konverge.dev/v1", "kind": "Probe", "metadata": {"name": "shared"},
        "status": {"conditions": conditions},
    });
    let parameters = PatchParams::apply("another-controller");
    place.api::<Probe>().patch_status("shared", &parameters, &Patch::Apply(body)).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn conditions_of_another_controller_are_never_overwritten_and_go_with_it() {
    let (place, holding) = (Place::new().await, Holding::default());
    let (runs, end) = (holding.runs.clone(), Arc::clone(&holding.end));
    let _running = place.run(operator(Controller::new(holding)), &[]).await;
    place.create_probe("shared", "one").await;
    let says = |text: &'static str| move |all: &Conditions| all.get("Ready").is_some_and(|ready| ready.message == text);
    place.says("shared", says("one")).await;
    say(&place, &[("Foo", "False"), ("Bar", "True")]).await;

    // The run that begins now has read Foo=False, and ends after it has become true.
    place.merge::<Probe>("shared", json!({"spec": {"behave": "hold"}})).await;
    runs.reach("shared", 2).await;
    say(&place, &[("Foo", "True"), ("Bar", "True")]).await;
    end.notify_one();
    let after = place.says("shared", says("hold")).await.status.unwrap().conditions;
    assert!(after.is_true("Foo"), "the copy that the run had read was written back");

    // The next run has read what is there now, and still does not become an owner of it.
    place.merge::<Probe>("shared", json!({"spec": {"behave": "two"}})).await;
    place.says("shared", says("two")).await;
    let left = say(&place, &[("Bar", "True")]).await.status.unwrap().conditions;
    assert!(left.get("Foo").is_none(), "its only owner has removed it: {left:?}");
    assert!(left.is_true("Bar") && left.is_true("Ready"));
}

/// Two helpers that each apply what they think is all.
struct Twice;

fn named(name: &str) -> ConfigMap {
    let mut config_map = ConfigMap::default();
    config_map.metadata.name = Some(name.to_owned());
    config_map
}

impl Reconcile<Probe> for Twice {
    type Error = Error;

    async fn apply(&self, _: Arc<Probe>, context: Context<Probe>) -> Result<Action, Error> {
        context.children().with(named("first")).apply().await?;
        context.children().with(named("second")).apply().await?;
        Ok(Action::Done)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_set_of_children_in_one_run_is_an_error_and_deletes_nothing() {
    let place = Place::new().await;
    let _running = place.run(operator(Controller::new(Twice).owns::<ConfigMap>()), &[]).await;
    place.create_probe("pair", "ok").await;
    let first = eventually(LIMIT, || async { place.api::<ConfigMap>().get_opt("first").await.unwrap() });
    let first = first.await.unwrap();
    let refused = |all: &Conditions| all.get("Ready").is_some_and(|ready| ready.reason == "ChildrenAppliedTwice");
    let said = place.says("pair", refused).await.status.unwrap().conditions;
    assert!(said.is_true("Stalled"), "only a new release helps");
    assert_eq!(place.api::<ConfigMap>().get("first").await.unwrap().uid(), first.uid());
    assert!(place.api::<ConfigMap>().get_opt("second").await.unwrap().is_none());
}
