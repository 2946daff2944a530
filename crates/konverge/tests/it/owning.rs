//! Which objects count as children, and when an object is held.

use std::sync::atomic::{AtomicUsize, Ordering};

use k8s_openapi::api::{core::v1::Secret, events::v1::Event};
use konverge::{Operator, prelude::*};
use konverge_testkit::{
    Verb, eventually,
    fault_proxy::{FaultProxy, JournalEntry, Plan},
};
use kube::{
    Api,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::json;

use crate::stage::{LIMIT, Place, Probe, ProbeSpec, Runs, control_plane, run_as};

const UID: &str = "konverge.dev/owner-uid";
const PROOF: &str = "konverge.dev/owner-proof";

/// Has the child `NAME-child` unless the probe says `none`.
struct Keeper;

impl Reconcile<Probe> for Keeper {
    type Error = Error;

    async fn apply(&self, probe: Arc<Probe>, context: Context<Probe>) -> Result<Action, Error> {
        let mut children = context.children();
        if probe.spec.behave != "none" {
            let mut child = ConfigMap::default();
            child.metadata.name = Some(format!("{}-child", probe.name_any()));
            child.data = Some([("text".to_owned(), probe.spec.behave.clone())].into());
            children = children.with(child);
        }
        children.apply().await?;
        context.progressing(const { Reason::new("Counted") }, context.owned::<ConfigMap>()?.len().to_string());
        Ok(Action::Done)
    }
}

fn keeping(program: &'static str) -> Operator {
    let controller = Controller::new(Keeper).owns::<ConfigMap>().finalizer("test.konverge.dev/keep");
    Operator::new(program, "0").controller(controller)
}

/// Waits until the child is as expected.
async fn child(place: &Place, name: &str, is_expected: impl Fn(&ConfigMap) -> bool) -> ConfigMap {
    let api: Api<ConfigMap> = place.api();
    let found = eventually(LIMIT, || async { api.get_opt(name).await.unwrap().filter(|child| is_expected(child)) });
    found.await.unwrap()
}

async fn is_gone<K>(api: &Api<K>, name: &str)
where
    K: Clone + serde::de::DeserializeOwned + std::fmt::Debug,
{
    let gone = eventually(LIMIT, || async { api.get_opt(name).await.unwrap().is_none().then_some(()) });
    gone.await.unwrap_or_else(|_| panic!("{name} is still there"));
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_with_a_forged_label_neither_stall_nor_block_their_victim() {
    const PROGRAM: &str = "konverge-forged";
    let place = Place::new().await;
    let children: Api<ConfigMap> = place.api();
    let _running = place.run(keeping(PROGRAM), &[]).await;
    let victim = place.create_probe("victim", "some text").await;
    let real = child(&place, "victim-child", |_| true).await;
    assert!(real.annotations().contains_key(PROOF));
    for number in 0..25 {
        let forged = json!({"metadata": {
            "name": format!("forged-{number}"),
            "labels": {UID: victim.uid(), "app.kubernetes.io/managed-by": PROGRAM},
            // The proof of another object is worth nothing.
            "annotations": {PROOF: real.annotations()[PROOF]},
            "finalizers": if number < 2 { vec!["attacker.example.com/hold"] } else { Vec::new() },
        }});
        let mut forged: ConfigMap = serde_json::from_value(forged).unwrap();
        if number % 2 == 0 {
            children.create(&PostParams::default(), &forged).await.unwrap();
        } else {
            // Also the name of the operator's field manager is free to use.
            forged.metadata.annotations = None;
            let name = forged.name_any();
            children.patch(&name, &PatchParams::apply(PROGRAM), &Patch::Apply(&forged)).await.unwrap();
        }
    }
    // More than the budget would have to go if they counted.
    place.merge::<Probe>("victim", json!({"spec": {"behave": "none"}})).await;
    is_gone(&children, "victim-child").await;
    let says =
        place.says("victim", |conditions| conditions.get("Ready").is_some_and(|ready| ready.message == "0")).await;
    assert_eq!(says.name_any(), "victim");
    let events: Api<Event> = place.api();
    let told = eventually(LIMIT, || async {
        let events = events.list(&ListParams::default()).await.unwrap().items;
        events.into_iter().find(|event| event.reason.as_deref() == Some("UnprovenChild"))
    });
    let note = told.await.unwrap().note.unwrap();
    assert!(note.contains("forged-0") && note.contains("left alone"), "{note}");

    place.api::<Probe>().delete("victim", &DeleteParams::default()).await.unwrap();
    is_gone(&place.api::<Probe>(), "victim").await;
    let left = children.list(&ListParams::default().labels(UID)).await.unwrap().items;
    assert_eq!(left.len(), 25, "what others made stays");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_that_claims_to_be_a_wanted_child_is_not_taken_over() {
    const PROGRAM: &str = "konverge-squatted";
    let place = Place::new().await;
    let _running = place.run(keeping(PROGRAM), &[]).await;
    let victim = place.create_probe("victim", "none").await;
    place.says("victim", |conditions| conditions.get("Ready").is_some()).await;
    let forged = json!({"metadata": {
        "name": "victim-child", "labels": {UID: victim.uid(), "app.kubernetes.io/managed-by": PROGRAM},
    }});
    let forged: ConfigMap = serde_json::from_value(forged).unwrap();
    let made = place.api().create(&PostParams::default(), &forged).await.unwrap();
    place.merge::<Probe>("victim", json!({"spec": {"behave": "some text"}})).await;
    let is_refused = |conditions: &konverge::apply::Conditions| {
        conditions
            .get("Ready")
            .is_some_and(|ready| ready.reason == "NotOurs" && ready.message.contains("nothing proves"))
    };
    place.says("victim", is_refused).await;
    assert_eq!(place.api::<ConfigMap>().get("victim-child").await.unwrap(), made);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_that_another_client_makes_after_the_look_is_left_untouched() {
    let (place, cluster) = (Place::new().await, control_plane().await);
    let proxy = FaultProxy::start(cluster.run_directory(), cluster.kubeconfig()).await.unwrap();
    let _running = run_as(proxy.kubeconfig(), keeping("konverge-raced"), &["--namespace", &place.namespace]).await;
    place.create_probe("victim", "none").await;
    place.says("victim", |conditions| conditions.get("Ready").is_some()).await;
    // The answer to the look is from before another client has made the object: the operator finds no object of that name.
    // The two own different fields, so a write without a precondition would be merged into the object.
    let made = place.create_config_map("victim-child", &[("theirs", "kept")]).await;
    let look = format!(
        "rules: [{{ when: {{ verbs: [get], resources: [configmaps], namespace: {}, name: victim-child, times: 1 }}, then: {{ status: {{ code: \
         404, reason: NotFound }} }} }}]",
        place.namespace
    );
    proxy.set(Plan::parse(&look).unwrap()).unwrap();
    place.merge::<Probe>("victim", json!({"spec": {"behave": "some text"}})).await;
    let is_refused = |conditions: &konverge::apply::Conditions| {
        let ready = conditions.get("Ready");
        ready.is_some_and(|ready| {
            ready.reason == "NotOurs" && ready.message.contains("victim-child exists and was not made by this operator")
        })
    };
    place.says("victim", is_refused).await;
    assert_eq!(proxy.fired(), [1]);
    // The write that followed the look was sent, and the API server refused it.
    let writes = |code| {
        let journal = proxy.journal();
        let is_it = |entry: &&JournalEntry| {
            entry.request.name == "victim-child" && entry.request.verb == Verb::Patch && entry.code == Some(code)
        };
        journal.iter().filter(is_it).count()
    };
    assert_eq!((writes(409), writes(200), writes(201)), (1, 0, 0));
    assert_eq!(place.api::<ConfigMap>().get("victim-child").await.unwrap(), made);
    // It is not deleted with the owner either.
    place.api::<Probe>().delete("victim", &DeleteParams::default()).await.unwrap();
    is_gone(&place.api::<Probe>(), "victim").await;
    assert_eq!(place.api::<ConfigMap>().get("victim-child").await.unwrap(), made);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_key_and_a_lost_proof_delete_nothing_and_wanted_children_are_proven_again() {
    const PROGRAM: &str = "konverge-rekeyed";
    let place = Place::new().await;
    let home = ["--lease-namespace", place.namespace.as_str()];
    let running = place.run(keeping(PROGRAM), &home).await;
    place.create_probe("owner", "some text").await;
    let first = child(&place, "owner-child", |_| true).await;
    // As a release without proofs leaves it.
    place.merge::<ConfigMap>("owner-child", json!({"metadata": {"annotations": {PROOF: null}}})).await;
    let proof = |child: &ConfigMap| child.annotations().get(PROOF).cloned();
    let again = child(&place, "owner-child", |child| proof(child).is_some()).await;
    assert_eq!((again.uid(), proof(&again)), (first.uid(), proof(&first)));
    running.end().await.unwrap();

    let secrets: Api<Secret> = place.api();
    secrets.delete(&format!("{PROGRAM}-owner-key"), &DeleteParams::default()).await.unwrap();
    let _running = place.run(keeping(PROGRAM), &home).await;
    let rekeyed =
        child(&place, "owner-child", |child| proof(child).is_some_and(|now| Some(now) != proof(&first))).await;
    assert_eq!(rekeyed.uid(), first.uid());
    place.merge::<Probe>("owner", json!({"spec": {"behave": "none"}})).await;
    is_gone(&place.api::<ConfigMap>(), "owner-child").await;
}

/// Makes something outside when the probe says so.
#[derive(Clone, Default)]
struct Outsider {
    cleaned: Arc<AtomicUsize>,
}

impl Reconcile<Probe> for Outsider {
    type Error = Error;

    async fn apply(&self, probe: Arc<Probe>, context: Context<Probe>) -> Result<Action, Error> {
        if probe.spec.behave == "outside" {
            context.ensure_finalizer().await?;
            // Once more costs nothing.
            context.ensure_finalizer().await?;
        }
        Ok(Action::Done)
    }

    async fn cleanup(&self, _: Arc<Probe>, _: Context<Probe>) -> Result<(), Error> {
        self.cleaned.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

const NEW: &str = "test.konverge.dev/new";
const OLD: &str = "test.konverge.dev/old";

#[tokio::test(flavor = "multi_thread")]
async fn a_finalizer_on_demand_comes_with_the_first_thing_outside() {
    let place = Place::new().await;
    let outsider = Outsider::default();
    let cleaned = Arc::clone(&outsider.cleaned);
    let controller = Controller::new(outsider).finalizer_on_demand(NEW);
    let _running = place.run(Operator::new("konverge-demand", "0").controller(controller), &[]).await;
    let probes: Api<Probe> = place.api();
    place.create_probe("probe", "ok").await;
    let seen = place.says("probe", |conditions| conditions.is_true("Ready")).await;
    assert!(seen.finalizers().is_empty());
    place.merge::<Probe>("probe", json!({"spec": {"behave": "outside"}})).await;
    let held = eventually(LIMIT, || async { (probes.get("probe").await.unwrap().finalizers() == [NEW]).then_some(()) });
    held.await.unwrap();
    probes.delete("probe", &DeleteParams::default()).await.unwrap();
    is_gone(&probes, "probe").await;
    assert_eq!(cleaned.load(Ordering::Relaxed), 1);

    place.create_probe("simple", "ok").await;
    place.says("simple", |conditions| conditions.is_true("Ready")).await;
    probes.delete("simple", &DeleteParams::default()).await.unwrap();
    is_gone(&probes, "simple").await;
    assert_eq!(cleaned.load(Ordering::Relaxed), 1, "nothing was outside");
}

#[tokio::test(flavor = "multi_thread")]
async fn finalizers_of_an_earlier_release_are_replaced_and_let_go() {
    let place = Place::new().await;
    let probes: Api<Probe> = place.api();
    for name in ["living", "dying"] {
        place.create_probe(name, "ok").await;
        place.merge::<Probe>(name, json!({"metadata": {"finalizers": [OLD, "other.example.com/hold"]}})).await;
    }
    probes.delete("dying", &DeleteParams::default()).await.unwrap();
    let outsider = Outsider::default();
    let cleaned = Arc::clone(&outsider.cleaned);
    let controller = Controller::new(outsider).finalizer_on_demand(NEW).former_finalizer(OLD);
    let _running = place.run(Operator::new("konverge-former", "0").controller(controller), &[]).await;
    let finalizers = |name: &'static str, expected: &'static [&'static str]| {
        let probes = probes.clone();
        async move {
            let found = eventually(LIMIT, || async {
                let mut found = probes.get(name).await.unwrap().metadata.finalizers.unwrap_or_default();
                found.sort();
                (found == expected).then_some(())
            });
            found.await.unwrap_or_else(|_| panic!("{name}"));
        }
    };
    finalizers("living", &["other.example.com/hold", NEW]).await;
    finalizers("dying", &["other.example.com/hold"]).await;
    assert_eq!(cleaned.load(Ordering::Relaxed), 1);
}

/// An object that is a parent has one child of its own kind, and a child has none.
#[derive(Clone, Default)]
struct Parents(Runs);

impl Reconcile<Probe> for Parents {
    type Error = Error;

    async fn apply(&self, probe: Arc<Probe>, context: Context<Probe>) -> Result<Action, Error> {
        self.0.note(&context);
        if probe.spec.behave == "parent" {
            let child = Probe::new(&format!("{}-child", probe.name_any()), ProbeSpec { behave: "child".to_owned() });
            context.children().with(child).apply().await?;
        }
        Ok(Action::Done)
    }
}

/// The creation of the child was taken for news to nobody, so the child was not worked on before the next resync.
#[tokio::test(flavor = "multi_thread")]
async fn an_object_can_have_children_of_its_own_kind() {
    let (place, cluster) = (Place::new().await, control_plane().await);
    let proxy = FaultProxy::start(cluster.run_directory(), cluster.kubeconfig()).await.unwrap();
    let (parents, probes) = (Parents::default(), place.api::<Probe>());
    let runs = parents.0.clone();
    let program = Operator::new("konverge-parents", "0").controller(Controller::new(parents).owns::<Probe>());
    let running = run_as(proxy.kubeconfig(), program, &["--namespace", &place.namespace]).await;
    place.create_probe("root", "parent").await;
    place.says("root", |all| all.is_true("Ready")).await;
    place.says("root-child", |all| all.is_true("Ready")).await;
    // The runs that a write may trigger happen before the runs of an object that is created after it.
    place.create_probe("last", "ok").await;
    place.says("last", |all| all.is_true("Ready")).await;
    let all = probes.list(&ListParams::default()).await.unwrap().items;
    let names: Vec<_> = all.iter().map(ResourceExt::name_any).collect();
    assert_eq!(names, ["last", "root", "root-child"]);
    let child = format!("patch probes.test.konverge.dev {}/root-child", place.namespace);
    let writes = proxy.journal().iter().filter(|entry| entry.request.to_string() == child).count();
    assert_eq!(writes, 1, "{:?}", proxy.journal());
    let counts = runs.counts();
    assert_eq!(counts["root-child"], 1, "{counts:?}");
    // Once for itself, for the creation of the child, and for its status.
    assert!(counts["root"] <= 3, "{counts:?}");
    // A missing object is created again.
    probes.delete("root-child", &DeleteParams::default()).await.unwrap();
    let again = async || probes.get_opt("root-child").await.unwrap().filter(|again| again.uid() != all[2].uid());
    eventually(LIMIT, again).await.unwrap();
    running.end().await.unwrap();
}
