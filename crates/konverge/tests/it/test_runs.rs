//! Controllers against a model of an API server: runs of one object, and a whole program.

use k8s_openapi::api::apps::v1::Deployment;
use konverge::{
    Options,
    core::error::ErrorClass,
    prelude::*,
    testing::{ApiModel, TestRun, Verb},
};
use konverge_testkit::eventually;
use kube::{Api, api::PostParams};
use serde_json::json;

use crate::stage::{LIMIT, Probe, ProbeSpec, Prober};

fn probe(behave: &str) -> Probe {
    Probe::new("first", ProbeSpec { behave: behave.to_owned() })
}

fn config_map(name: &str, text: &str) -> ConfigMap {
    let mut config_map = ConfigMap::default();
    config_map.metadata.name = Some(name.to_owned());
    config_map.data = Some([("text".to_owned(), text.to_owned())].into());
    config_map
}

/// A child that says what the object says, unless the object wants none.
fn keeper() -> Controller<Probe, impl Reconcile<Probe>> {
    let reconcile = async |probe: Arc<Probe>, context: Context<Probe>| {
        let wanted = Some(config_map("child", &probe.spec.behave)).filter(|_| probe.spec.behave != "none");
        wanted.into_iter().fold(context.children(), konverge::Children::with).apply().await?;
        context.event(EventType::Normal, "Kept", "Keep", "as it should be");
        Ok::<_, Error>(Action::After(Duration::from_mins(1)))
    };
    Controller::new(reconcile_fn(reconcile)).owns::<ConfigMap>()
}

#[tokio::test]
async fn a_run_shows_what_it_wrote_said_and_returned() {
    let run = TestRun::new(probe("hello")).apply(keeper()).await.unwrap();
    assert_eq!(run.action(), Ok(Action::After(Duration::from_mins(1))));
    let child = run.get::<ConfigMap>("child").unwrap();
    assert_eq!(child.data.unwrap()["text"], "hello");
    assert_eq!(child.metadata.owner_references.unwrap()[0].name, "first");
    let status = run.writes().last().unwrap();
    assert_eq!((status.verb, status.subresource.as_deref(), status.code), (Verb::Apply, Some("status"), 200));
    assert!(run.conditions().is_true("Ready"));
    assert_eq!(run.status().unwrap().observed_generation, Some(1));
    let events: Vec<_> = run.events().iter().map(|event| event.reason.as_deref().unwrap()).collect();
    assert_eq!(events, ["Kept"]);

    let run = run.then().apply(keeper()).await.unwrap();
    assert_eq!(run.writes(), [""; 0], "what is in sync costs no request");

    let run = run.then().change::<ConfigMap>("child", |child| child.data = None).apply(keeper()).await.unwrap();
    assert_eq!(run.get::<ConfigMap>("child").unwrap().data.unwrap()["text"], "hello");

    let run = run.then().remove::<ConfigMap>("child").apply(keeper()).await.unwrap();
    assert!(run.get::<ConfigMap>("child").is_some(), "{:?}", run.writes());

    let run = run.then().change::<Probe>("first", |probe| probe.spec.behave = "none".to_owned()).apply(keeper()).await;
    let run = run.unwrap();
    assert_eq!(run.writes()[0], "delete ConfigMap default/child");
    assert_eq!(run.status().unwrap().observed_generation, Some(2));
}

#[tokio::test]
async fn a_workload_that_is_in_sync_costs_no_request() {
    let controller = || {
        let reconcile = async |_: Arc<Probe>, context: Context<Probe>| {
            let container =
                json!({"name": "app", "image": "app:1", "args": ["--verbose"], "env": [{"name": "A", "value": "1"}]});
            let template = json!({"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [container]}});
            let spec = json!({"replicas": 2, "selector": {"matchLabels": {"app": "a"}}, "template": template});
            let deployment: Deployment = serde_json::from_value(json!({"metadata": {"name": "app"}, "spec": spec}))?;
            context.children().with(deployment).apply().await?;
            Ok::<_, Error>(Action::Done)
        };
        Controller::new(reconcile_fn(reconcile)).owns::<Deployment>()
    };
    let run = TestRun::new(probe("x")).apply(controller()).await.unwrap();
    assert!(run.error().is_none() && run.get::<Deployment>("app").is_some(), "{:?}", run.error());
    let run = run.then().apply(controller()).await.unwrap();
    assert_eq!(run.writes(), [""; 0]);
}

#[tokio::test]
async fn a_run_that_fails_says_why() {
    let run = TestRun::new(probe("permanent")).apply(Controller::new(Prober::default())).await.unwrap();
    let error = run.error().unwrap();
    assert_eq!((error.reason, error.class), ("NeverWorks", ErrorClass::Permanent));
    assert!(run.conditions().is_true("Stalled"));
    assert_eq!(run.events()[0].reason.as_deref(), Some("NeverWorks"));

    let run =
        TestRun::new(probe("x")).refusing(|write| (write.kind == "ConfigMap").then_some(500)).apply(keeper()).await;
    let run = run.unwrap();
    assert_eq!(run.error().unwrap().class, ErrorClass::Transient);
    assert!(run.conditions().is_true("Reconciling"));
    assert!(run.get::<ConfigMap>("child").is_none());
}

#[tokio::test]
async fn a_deleted_object_goes_after_its_children() {
    let controller = || keeper().finalizer("test.konverge.dev/cleanup");
    let run = TestRun::new(probe("x")).apply(controller()).await.unwrap();
    assert_eq!(
        run.object().unwrap().finalizers(),
        ["test.konverge.dev/cleanup"],
        "{:?} {:?}",
        run.writes(),
        run.error()
    );
    let run = run.then().deleted().apply(controller()).await.unwrap();
    assert!(run.get::<ConfigMap>("child").is_none() && run.error().is_none(), "{:?}", run.writes());
    let run = if run.object().is_some() { run.then().apply(controller()).await.unwrap() } else { run };
    assert!(run.object().is_none(), "{:?}", run.writes());
}

#[tokio::test]
async fn what_a_controller_watches_is_there_and_children_of_an_earlier_run_are_its_own() {
    let reconcile = async |_: Arc<Probe>, context: Context<Probe>| {
        let key = ObjectKey::namespaced("default", "shared");
        let shared = context.watched::<Secret>()?.get(&key).is_some();
        let children = context.owned::<ConfigMap>()?.len();
        context.ready(const { Reason::new("Seen") }, format!("{shared} {children}"));
        Ok::<_, Error>(Action::Done)
    };
    let controller = Controller::new(reconcile_fn(reconcile))
        .owns::<ConfigMap>()
        .watches::<Secret, _>(Selection::default(), |_, probes| probes.keys());
    let mut secret = Secret::default();
    secret.metadata.name = Some("shared".to_owned());
    let run =
        TestRun::new(probe("x")).seeing(secret).seeing(config_map("foreign", "")).with_child(config_map("own", ""));
    let run = run.apply(controller).await.unwrap();
    assert_eq!(run.conditions().get("Ready").unwrap().message, "true 1");
}

/// With two watches of one kind, `watched` knew only the objects of the last.
#[tokio::test]
async fn two_watches_of_one_kind_are_both_seen() {
    let reconcile = async |_: Arc<Probe>, context: Context<Probe>| {
        let secrets = context.watched::<Secret>()?;
        let names = ["one", "two", "three"].map(|name| secrets.get(&ObjectKey::namespaced("default", name)).is_some());
        context.ready(const { Reason::new("Seen") }, format!("{names:?} {}", secrets.list().len()));
        Ok::<_, Error>(Action::Done)
    };
    let labelled = |label: &str| Selection { label_selector: Some(label.to_owned()), ..Selection::default() };
    let controller = Controller::new(reconcile_fn(reconcile))
        .watches::<Secret, _>(labelled("one"), |_, probes| probes.keys())
        .watches::<Secret, _>(labelled("two"), |_, probes| probes.keys());
    let secret = |name: &str, labels: &[&str]| {
        let mut secret = Secret::default();
        secret.metadata.name = Some(name.to_owned());
        secret.metadata.labels = Some(labels.iter().map(|label| ((*label).to_owned(), String::new())).collect());
        secret
    };
    let run = TestRun::new(probe("x")).seeing(secret("one", &["one"])).seeing(secret("two", &["two"]));
    let run = run.seeing(secret("three", &["one", "two"])).apply(controller).await.unwrap();
    assert_eq!(run.conditions().get("Ready").unwrap().message, "[true, true, true] 3");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_whole_program_runs_against_the_model() {
    let api = ApiModel::default();
    let options = Options { address: "127.0.0.1:0".parse().unwrap(), ..Options::default() };
    let operator = crate::stage::operator(keeper());
    let manager = operator.assemble_with(api.client(), options).await.unwrap();
    let stop = manager.shutdown();
    let ended = tokio::spawn(manager.run());
    let probes = Api::<Probe>::default_namespaced(api.client());
    probes.create(&PostParams::default(), &probe("hello")).await.unwrap();
    let ready = eventually(LIMIT, || async {
        let status = probes.get("first").await.unwrap().status?;
        status.conditions.is_true("Ready").then_some(())
    });
    ready.await.unwrap();
    // A change that others make is seen on the watch.
    let children = Api::<ConfigMap>::default_namespaced(api.client());
    children.delete("child", &kube::api::DeleteParams::default()).await.unwrap();
    eventually(LIMIT, || async { children.get_opt("child").await.unwrap() }).await.unwrap();
    stop.cancel();
    ended.await.unwrap().unwrap();
}
