//! An operator whose API server is busy, away or refuses: seen through a proxy in front of the real one.

use std::fmt::Debug;

use k8s_openapi::{NamespaceResourceScope, api::events::v1::Event};
use konverge::{Operator, prelude::*};
use konverge_testkit::{
    DenyingPolicy, History, eventually,
    fault_proxy::{FaultProxy, Plan},
};
use kube::{
    Api,
    api::{ListParams, Patch, PatchParams},
    runtime::watcher,
};
use serde::de::DeserializeOwned;
use serde_json::json;
use tokio::time::Instant;

use crate::stage::{LIMIT, Place, Probe, Running, control_plane, run_as};

/// Has the child `NAME-text` with the text of the probe.
pub(crate) struct Texts;

impl Reconcile<Probe> for Texts {
    type Error = Error;

    async fn apply(&self, probe: Arc<Probe>, context: Context<Probe>) -> Result<Action, Error> {
        let mut child = ConfigMap::default();
        child.metadata.name = Some(format!("{}-text", probe.name_any()));
        child.data = Some([("text".to_owned(), probe.spec.behave.clone())].into());
        context.children().with(child).apply().await?;
        Ok(Action::Done)
    }
}

async fn has_text(children: &Api<ConfigMap>, probe: &str, text: &str) -> bool {
    let child = children.get_opt(&format!("{probe}-text")).await.unwrap();
    child.is_some_and(|child| child.data.unwrap_or_default().get("text").is_some_and(|found| found == text))
}

/// Waits until the child of a probe has this text.
pub(crate) async fn text_is(children: &Api<ConfigMap>, probe: &str, text: &str, limit: Duration) {
    let found = eventually(limit, || async { has_text(children, probe, text).await.then_some(()) }).await;
    if found.is_err() {
        let child = children.get_opt(&format!("{probe}-text")).await.unwrap();
        panic!("the child of {probe} has not the text {text} within {limit:?}: {child:#?}");
    }
}

/// A proxy in front of the API server, and an operator with few workers behind it.
struct Rig {
    place: Place,
    proxy: FaultProxy,
    children: Api<ConfigMap>,
    _running: Running,
}

impl Rig {
    async fn new(workers: usize) -> Self {
        let (place, cluster) = (Place::new().await, control_plane().await);
        let proxy = FaultProxy::start(cluster.run_directory(), cluster.kubeconfig()).await.unwrap();
        let controller = Controller::new(Texts).owns::<ConfigMap>().workers(workers);
        let operator = Operator::new("konverge-faults", "0").controller(controller);
        let running = run_as(proxy.kubeconfig(), operator, &["--namespace", &place.namespace]).await;
        Self { children: place.api(), place, proxy, _running: running }
    }

    fn plan(&self, rules: &str) {
        self.proxy.set(Plan::parse(&format!("rules: [{rules}]")).unwrap()).unwrap();
    }

    async fn text_is(&self, probe: &str, text: &str) {
        text_is(&self.children, probe, text, LIMIT).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_retry_after_holds_no_worker_and_is_kept() {
    const RETRY_AFTER: Duration = Duration::from_secs(6);
    let rig = Rig::new(1).await;
    rig.plan(
        "{ when: { verbs: [patch, create], resources: [configmaps], name: busy-text, times: 1 }, \
           then: { status: { code: 429, retry_after: 6 } } }",
    );
    rig.place.create_probe("busy", "one").await;
    eventually(LIMIT, || std::future::ready((rig.proxy.fired() == [1]).then_some(()))).await.unwrap();
    let refused = Instant::now();
    // There is one worker.
    rig.place.create_probe("other", "one").await;
    rig.text_is("other", "one").await;
    assert!(refused.elapsed() < RETRY_AFTER, "the worker was held for {:?}", refused.elapsed());
    assert!(!has_text(&rig.children, "busy", "one").await, "it came back before it was told to");

    rig.text_is("busy", "one").await;
    let took = refused.elapsed();
    // At most a tenth later, and the time that a run takes.
    let latest = RETRY_AFTER + RETRY_AFTER / 10 + Duration::from_secs(3);
    // The answer was under way when it was noticed here.
    let earliest = RETRY_AFTER.saturating_sub(Duration::from_millis(50));
    assert!(took >= earliest && took < latest, "{took:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_short_outage_with_many_changes_everything_converges_within_five_seconds() {
    const OBJECTS: u32 = 6;
    const CHANGES: u32 = 17;
    const OUTAGE: Duration = Duration::from_secs(12);
    let rig = Rig::new(4).await;
    let names: Vec<String> = (0..OBJECTS).map(|number| format!("probe-{number}")).collect();
    for name in &names {
        rig.place.create_probe(name, "before").await;
        rig.text_is(name, "before").await;
    }
    // First the watches last, so each change is an event, and each event an attempt that fails. Then nothing is answered at all.
    let begun = Instant::now();
    rig.plan("{ when: { verbs: [get, list, create, update, patch, delete] }, then: drop }");
    for change in 1..=CHANGES {
        if change == CHANGES {
            rig.proxy.down_until_cleared();
        }
        for name in &names {
            rig.place.merge::<Probe>(name, json!({"spec": {"behave": change.to_string()}})).await;
        }
    }
    tokio::time::sleep_until(begun + OUTAGE).await;
    let last = CHANGES.to_string();
    for name in &names {
        assert!(has_text(&rig.children, name, "before").await, "there is an outage");
    }

    rig.proxy.clear();
    let over = Instant::now();
    for name in &names {
        rig.text_is(name, &last).await;
    }
    let took = over.elapsed();
    assert!(took < Duration::from_secs(5) + Duration::from_millis(OBJECTS.into()), "{took:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_write_is_repeated_and_heals_once_the_policy_has_gone() {
    let rig = Rig::new(4).await;
    let policy =
        DenyingPolicy::create(&rig.place.client, &rig.place.namespace, &[("configmaps", "denied-text")]).await.unwrap();
    let apply = PatchParams::apply("konverge-test").dry_run();
    let child = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "denied-text" } });
    let would = async || rig.children.patch("denied-text", &apply, &Patch::Apply(&child)).await.is_ok();
    eventually(LIMIT, async || (!would().await).then_some(())).await.unwrap();

    rig.place.create_probe("denied", "one").await;
    rig.place.create_probe("other", "one").await;
    rig.text_is("other", "one").await;
    let says = rig.place.says("denied", |conditions| conditions.is_true("Stalled")).await;
    let ready = says.status.unwrap().conditions.get("Ready").cloned().unwrap();
    assert!(ready.message.contains("not this one"), "{ready:?}");
    // Each attempt that is refused is told: the event becomes a series.
    let events: Api<Event> = rig.place.api();
    let told = eventually(LIMIT, || async {
        let events = events.list(&ListParams::default()).await.unwrap().items;
        events.into_iter().find(|event| {
            event.reason.as_deref() == Some("Rejected") && event.series.as_ref().is_some_and(|series| series.count >= 3)
        })
    });
    told.await.expect("a series of the refusals");
    assert!(!has_text(&rig.children, "denied", "one").await);

    policy.lift().await.unwrap();
    eventually(LIMIT, async || would().await.then_some(())).await.unwrap();
    let allowed = Instant::now();
    rig.text_is("denied", "one").await;
    rig.place.says("denied", |conditions| conditions.is_true("Ready")).await;
    // The pauses have doubled from one second on for as long as the policy was there; they end at two minutes.
    assert!(allowed.elapsed() < Duration::from_secs(30), "{:?}", allowed.elapsed());
}

/// Says the text of the probe in its status.
struct Repeats;

impl Reconcile<Probe> for Repeats {
    type Error = Error;

    async fn apply(&self, probe: Arc<Probe>, context: Context<Probe>) -> Result<Action, Error> {
        context.ready(const { Reason::new("Repeated") }, &probe.spec.behave);
        Ok(Action::Done)
    }
}

/// Labels the probe with its text.
struct Labels;

impl Reconcile<Probe> for Labels {
    type Error = Error;

    async fn apply(&self, probe: Arc<Probe>, context: Context<Probe>) -> Result<Action, Error> {
        context.label("text", &probe.spec.behave).await?;
        Ok(Action::Done)
    }
}

/// A write arrives as late as that of an operator that was stopped between its decision and the request. Its successor wrote meanwhile, so the
/// API server refuses it, and nobody ever reads the older value.
///
/// `text` reads the text of the probe `late` from where the operator writes it: by requests `written`, to the object `name`.
async fn held_up<K, R>(
    controller: fn() -> Controller<Probe, R>,
    written: &str,
    name: &str,
    text: fn(&K) -> Option<String>,
) where
    R: Reconcile<Probe>,
    K: kube::Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + Debug
        + DeserializeOwned
        + Send
        + 'static,
{
    let (place, cluster) = (Place::new().await, control_plane().await);
    let proxy = FaultProxy::start(cluster.run_directory(), cluster.kubeconfig()).await.unwrap();
    let arguments = ["--namespace", &place.namespace];
    let program = || Operator::new("konverge-late", "0").controller(controller());
    place.create_probe("late", "one").await;
    let only = watcher::Config::default().fields(&format!("metadata.name={name}"));
    let texts = History::of(place.api::<K>(), only, text);
    let says = async |text: &str| {
        let is_last = || std::future::ready(texts.values().last().is_some_and(|last| last == text).then_some(()));
        eventually(LIMIT, is_last).await.unwrap_or_else(|_| panic!("not {text}: {:?}", texts.values()));
    };
    let late = run_as(proxy.kubeconfig(), program(), &arguments).await;
    says("one").await;

    let rule = format!(
        "{{ when: {{ verbs: [patch], resources: [{written}], name: {name}, times: 1 }}, then: {{ delay: 4s }} }}"
    );
    proxy.set(Plan::parse(&format!("rules: [{rule}]")).unwrap()).unwrap();
    let before = proxy.journal().len();
    place.merge::<Probe>("late", json!({"spec": {"behave": "two"}})).await;
    eventually(LIMIT, || std::future::ready((proxy.fired() == [1]).then_some(()))).await.unwrap();
    place.merge::<Probe>("late", json!({"spec": {"behave": "three"}})).await;
    let successor = run_as(cluster.kubeconfig(), program(), &arguments).await;
    says("three").await;
    let request = format!("patch {written} {}/{name}", place.namespace);
    let answered = || {
        let journal = proxy.journal();
        let late = journal[before..].iter().find(|entry| entry.request.to_string() == request);
        std::future::ready(late.and_then(|write| write.code))
    };
    assert_eq!(eventually(LIMIT, answered).await.unwrap(), 409);
    place.merge::<Probe>("late", json!({"spec": {"behave": "four"}})).await;
    says("four").await;
    late.end().await.unwrap();
    successor.end().await.unwrap();
    assert!(!texts.values().contains(&"two".to_owned()), "an older value came back: {:?}", texts.values());
}

/// Without a precondition the older status stayed in the end: a change of nothing but the status wakes no controller.
#[tokio::test(flavor = "multi_thread")]
async fn a_status_that_was_held_up_does_not_undo_that_of_the_successor() {
    let message = |probe: &Probe| Some(probe.status.as_ref()?.standard().conditions.get("Ready")?.message.clone());
    held_up(|| Controller::new(Repeats), "probes.test.konverge.dev/status", "late", message).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_child_that_was_held_up_does_not_undo_that_of_the_successor() {
    let text = |child: &ConfigMap| child.data.as_ref()?.get("text").cloned();
    held_up(|| Controller::new(Texts).owns::<ConfigMap>(), "configmaps", "late-text", text).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_label_that_was_held_up_does_not_undo_that_of_the_successor() {
    let text = |probe: &Probe| probe.labels().get("text").cloned();
    held_up(|| Controller::new(Labels), "probes.test.konverge.dev", "late", text).await;
}
