//! Controllers against a model of an API server: runs of one object, and a whole program.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicUsize, Ordering},
};

use k8s_openapi::api::apps::v1::Deployment;
use konverge::{
    Children, Options, Watch,
    core::error::ErrorClass,
    prelude::*,
    testing::{ApiModel, TestRun, Verb},
};
use konverge_testkit::eventually;
use kube::{
    Api,
    api::{Patch, PatchParams, PostParams},
};
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
        Ok::<_, Error>(Action::After(Duration::from_secs(60)))
    };
    Controller::new(reconcile_fn(reconcile)).owns::<ConfigMap>()
}

#[tokio::test]
async fn a_run_shows_what_it_wrote_said_and_returned() {
    let run = TestRun::new(probe("hello")).apply(keeper()).await.unwrap();
    assert_eq!(run.action(), Ok(Action::After(Duration::from_secs(60))));
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
    assert_eq!(run.error().unwrap().class, ErrorClass::Unavailable(konverge::core::api_server::ENDPOINT));
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
    let labelled =
        |label: &str| Selection::default().with(|selection| selection.label_selector = Some(label.to_owned()));
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
    let options = Options::default().with(|options| options.server.address = "127.0.0.1:0".parse().unwrap());
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

/// Notes why each object runs, while a whole program runs against the model.
async fn started(api: &ApiModel, controller: impl konverge::Part + 'static) -> tokio_util::sync::DropGuard {
    let options = Options::default().with(|options| options.server.address = "127.0.0.1:0".parse().unwrap());
    let manager = crate::stage::operator(controller).assemble_with(api.client(), options).await.unwrap();
    let (stop, checks) = (manager.shutdown(), manager.checks().clone());
    tokio::spawn(manager.run());
    let ready = eventually(LIMIT, || std::future::ready(checks.ready().passed.then_some(())));
    assert!(ready.await.is_ok(), "{}", checks.ready().text);
    stop.drop_guard()
}

#[tokio::test(flavor = "multi_thread")]
async fn predicates_of_watched_and_owned_kinds_see_the_object_before_and_after() {
    let (api, watching) = (ApiModel::default(), Prober::default());
    let runs = watching.runs.clone();
    let grows = Predicate::new(|old: &ConfigMap, new: &ConfigMap| {
        old.data.as_ref().map(BTreeMap::len) < new.data.as_ref().map(BTreeMap::len)
    });
    let controller = Controller::new(watching)
        .watches(Watch::<ConfigMap>::new().label_selector("watched").predicate(grows), |_, probes| probes.keys())
        .owns_with(Watch::<Secret>::new().predicate(Predicate::annotations()));
    let _running = started(&api, controller).await;
    let probes = Api::<Probe>::default_namespaced(api.client());
    let first = probes.create(&PostParams::default(), &probe("ok")).await.unwrap();
    runs.reach("first", 1).await;

    let maps = Api::<ConfigMap>::default_namespaced(api.client());
    let mut map = config_map("map", "1");
    map.labels_mut().insert("watched".to_owned(), String::new());
    maps.create(&PostParams::default(), &map).await.unwrap();
    assert!(runs.reach("first", 2).await[1].reasons.contains(&"watched"));
    let merge = async |name: &str, patch: serde_json::Value| {
        maps.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    };
    // A change of a value is no growth; the next one is, and shows that the first has been passed over.
    merge("map", json!({"data": {"text": "2"}})).await;
    merge("map", json!({"data": {"more": "1"}})).await;
    runs.reach("first", 3).await;

    let secrets = Api::<Secret>::default_namespaced(api.client());
    let labels = json!({"konverge.dev/owner-uid": first.uid(), "app.kubernetes.io/managed-by": "konverge-test"});
    let secret = serde_json::from_value(json!({"metadata": {"name": "child", "labels": labels}})).unwrap();
    secrets.create(&PostParams::default(), &secret).await.unwrap();
    assert!(runs.reach("first", 4).await[3].reasons.contains(&"child"));
    for patch in [json!({"stringData": {"a": "b"}}), json!({"metadata": {"annotations": {"a": "b"}}})] {
        secrets.patch("child", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }
    runs.reach("first", 5).await;
    // Only the second of each pair woke it, whatever comes now.
    probes.create(&PostParams::default(), &Probe::new("last", ProbeSpec::default())).await.unwrap();
    runs.reach("last", 1).await;
    assert_eq!(runs.of("first").len(), 5);
}

#[tokio::test]
async fn kinds_that_are_known_only_at_run_time_are_owned_and_watched() {
    use kube::core::ApiResource;
    let maps = || ApiResource::erase::<ConfigMap>(&());
    let secrets = || ApiResource::erase::<Secret>(&());
    let controller = || {
        let reconcile = async |probe: Arc<Probe>, context: Context<Probe>| {
            let (maps, secrets) = (ApiResource::erase::<ConfigMap>(&()), ApiResource::erase::<Secret>(&()));
            let watched = context.watched_kind::<DynamicObject>(&secrets)?.list().len();
            let owned = context.owned_kind::<DynamicObject>(&maps)?.len();
            let child = DynamicObject::new("child", &maps).within(&probe.namespace().unwrap_or_default());
            let child = child.data(json!({"data": {"text": probe.spec.behave}}));
            context.children().with_dynamic(maps, child).apply().await?;
            context.ready(const { Reason::new("Seen") }, format!("{watched} {owned}"));
            Ok::<_, Error>(Action::Done)
        };
        Controller::new(reconcile_fn(reconcile))
            .owns_with(Watch::<DynamicObject>::of(maps()))
            .watches(Watch::<DynamicObject>::of(secrets()), |_, probes| probes.keys())
    };
    let mut secret = Secret::default();
    secret.metadata.name = Some("one".to_owned());
    let run = TestRun::new(probe("hello")).seeing(secret).apply(controller()).await.unwrap();
    assert_eq!(run.conditions().get("Ready").unwrap().message, "1 0", "{:?}", run.error());
    assert_eq!(run.get::<ConfigMap>("child").unwrap().data.unwrap()["text"], "hello");
    let run = run.then().apply(controller()).await.unwrap();
    assert_eq!(run.conditions().get("Ready").unwrap().message, "1 1");
    let sent: Vec<_> = run.writes().iter().filter(|write| write.kind == "ConfigMap").collect();
    assert!(sent.is_empty(), "{sent:?}");
    // The role has both kinds.
    let grant = crate::stage::operator(controller()).generate("here").unwrap();
    let role = grant.get("role.yaml").unwrap();
    assert!(role.contains("configmaps") && role.contains("secrets"), "{role}");
}

#[tokio::test]
async fn children_of_an_optional_kind_that_is_missing_are_skipped() {
    let controller = || {
        let reconcile = async |_: Arc<Probe>, context: Context<Probe>| {
            let mut deployment = Deployment::default();
            deployment.metadata.name = Some("child".to_owned());
            context.children().with(deployment).with(config_map("child", "here")).tolerate_unready().apply().await?;
            Ok::<_, Error>(Action::Done)
        };
        Controller::new(reconcile_fn(reconcile)).owns::<ConfigMap>().owns_with(Watch::<Deployment>::new().optional())
    };
    let run = TestRun::new(probe("ok")).without_kind::<Deployment>().apply(controller()).await.unwrap();
    assert_eq!(run.error(), None);
    assert_eq!(run.writes(), ["apply ConfigMap default/child", "apply Probe default/first status"]);
    assert!(run.conditions().is_true("Ready"));
    let run = TestRun::new(probe("ok")).apply(controller()).await.unwrap();
    assert_eq!(run.writes()[0], "apply Deployment default/child");
}

/// The status named every child that was not ready as soon as one child waited for another.
#[tokio::test]
async fn a_tolerated_child_is_named_only_if_another_child_waits_for_it() {
    let message = async |with: fn(Children<Probe>) -> Children<Probe>| {
        let reconcile = move |_: Arc<Probe>, context: Context<Probe>| async move {
            with(context.children()).apply().await?;
            Ok::<_, Error>(Action::Done)
        };
        let controller = Controller::new(reconcile_fn(reconcile)).owns::<ConfigMap>();
        let run = TestRun::new(probe("ok")).apply(controller).await.unwrap();
        assert_eq!(run.error(), None);
        run.conditions().get("Ready").unwrap().message.clone()
    };
    let named = message(|children| {
        children
            .with_options(config_map("backups", ""), |child| child.ready_when(|_| false).tolerate_unready())
            .with_options(config_map("database", ""), |child| child.ready_when(|_| false))
            .with_options(config_map("app", ""), |child| child.after::<ConfigMap>("database"))
    });
    let named = named.await;
    assert!(named.contains("database") && !named.contains("backups"), "{named}");

    // By an edge.
    let named = message(|children| {
        children
            .with_options(config_map("backups", ""), |child| child.ready_when(|_| false).tolerate_unready())
            .with_options(config_map("database", ""), |child| child.ready_when(|_| false).tolerate_unready())
            .with_options(config_map("app", ""), |child| child.after::<ConfigMap>("backups"))
    });
    let named = named.await;
    assert!(named.contains("backups") && !named.contains("database"), "{named}");

    // By a stage, in a set that tolerates all: `later` waits for the first stage alone.
    let named = message(|children| {
        children
            .with_options(config_map("first", ""), |child| child.ready_when(|_| false))
            .when_ready()
            .with(config_map("later", ""))
            .tolerate_unready()
    });
    assert!(named.await.contains("first"));
    let named = message(|children| {
        children
            .with(config_map("first", ""))
            .when_ready()
            .with_options(config_map("last", ""), |child| child.ready_when(|_| false).tolerate_unready())
    });
    assert!(!named.await.contains("last"));
}

#[tokio::test]
async fn children_whose_metadata_alone_is_watched_are_kept_and_pruned() {
    let controller = || {
        let reconcile = async |probe: Arc<Probe>, context: Context<Probe>| {
            let known = context.owned::<PartialObjectMeta<ConfigMap>>()?.len();
            let wanted = Some(config_map("child", &probe.spec.behave)).filter(|_| probe.spec.behave != "none");
            wanted.into_iter().fold(context.children(), konverge::Children::with).apply().await?;
            context.ready(const { Reason::new("Seen") }, known.to_string());
            Ok::<_, Error>(Action::Done)
        };
        Controller::new(reconcile_fn(reconcile)).owns_with(Watch::<PartialObjectMeta<ConfigMap>>::new())
    };
    let run = TestRun::new(probe("one")).apply(controller()).await.unwrap();
    assert_eq!(run.error(), None);
    let run = run.then().change::<ConfigMap>("child", |child| child.data = None).apply(controller()).await.unwrap();
    assert_eq!(run.get::<ConfigMap>("child").unwrap().data.unwrap()["text"], "one");
    assert_eq!(run.conditions().get("Ready").unwrap().message, "1");
    let run =
        run.then().change::<Probe>("first", |probe| probe.spec.behave = "none".to_owned()).apply(controller()).await;
    assert!(run.unwrap().get::<ConfigMap>("child").is_none());
}

#[tokio::test]
async fn a_controller_looks_at_the_namespaces_that_it_names() {
    let controller = |namespaces: &[&str]| keeper().namespaces(namespaces.iter().copied());
    let run = TestRun::new(probe("x")).apply(controller(&["elsewhere", "default"])).await.unwrap();
    assert!(run.get::<ConfigMap>("child").is_some());
    let run = TestRun::new(probe("x")).apply(controller(&["elsewhere"])).await.unwrap();
    assert!(run.writes().is_empty(), "{:?}", run.writes());
}

/// Flags of an author.
#[derive(Debug, Clone, clap::Args)]
struct OwnFlags {
    /// The text for each object
    #[arg(long, env = "TEST_RUNS_SAYING", default_value = "nothing")]
    saying: String,
}

fn saying() -> Controller<Probe, impl Reconcile<Probe>> {
    let reconcile = async |_: Arc<Probe>, context: Context<Probe>| {
        context.ready(const { Reason::new("Said") }, &context.flags::<OwnFlags>()?.saying);
        Ok::<_, Error>(Action::Done)
    };
    Controller::new(reconcile_fn(reconcile))
}

#[tokio::test]
async fn an_authors_flags_reach_the_reconciler() {
    let flags = OwnFlags { saying: "hello".to_owned() };
    let run = TestRun::new(probe("x")).flags(flags).apply(saying()).await.unwrap();
    assert_eq!(run.conditions().get("Ready").unwrap().message, "hello");
    let run = TestRun::new(probe("x")).apply(saying()).await.unwrap();
    assert_eq!(run.error().unwrap().reason, "Undeclared", "of a program that does not declare them");
}

#[tokio::test(flavor = "multi_thread")]
async fn declared_flags_have_their_defaults_and_are_in_the_reference() {
    let operator = || crate::stage::operator(saying()).flags::<OwnFlags>();
    let reference = operator().generate("here").unwrap().get("reference.md").unwrap().to_owned();
    assert!(reference.contains("--saying") && reference.contains("TEST_RUNS_SAYING"), "{reference}");
    for (given, expected) in [(None, "nothing"), (Some(OwnFlags { saying: "hello".to_owned() }), "hello")] {
        let api = ApiModel::default();
        let options = Options::default().with(|options| options.server.address = "127.0.0.1:0".parse().unwrap());
        let operator = given.into_iter().fold(operator(), konverge::Operator::flag_values);
        let manager = operator.assemble_with(api.client(), options).await.unwrap();
        let stop = manager.shutdown().drop_guard();
        let ended = tokio::spawn(manager.run());
        let probes = Api::<Probe>::default_namespaced(api.client());
        probes.create(&PostParams::default(), &probe("x")).await.unwrap();
        let said = eventually(LIMIT, || async {
            Some(probes.get("first").await.unwrap().status?.conditions.get("Ready")?.message.clone())
        });
        assert_eq!(said.await.unwrap(), expected);
        drop(stop);
        ended.await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn each_controller_writes_as_its_own_field_manager() {
    let part = |manager: &'static str, key: &'static str| {
        let reconcile = async move |probe: Arc<Probe>, context: Context<Probe>| {
            let mut shared = config_map("shared", "");
            shared.metadata.namespace = probe.namespace();
            shared.data = Some([(key.to_owned(), probe.spec.behave.clone())].into());
            let key = ObjectKey::namespaced("default", "shared");
            let known = context.watched::<ConfigMap>()?.get(&key);
            let _ = context.applier().apply(&shared, known.as_deref()).await?;
            Ok::<_, Error>(Action::Done)
        };
        let watch = Watch::<ConfigMap>::new().caching(|maps| maps.field_manager(manager));
        Controller::new(reconcile_fn(reconcile)).field_manager(manager).watches(watch, |_, probes| probes.keys())
    };
    let run = TestRun::new(probe("x")).apply(part("one", "a")).await.unwrap();
    let run = run.then().apply(part("two", "b")).await.unwrap();
    let data = run.get::<ConfigMap>("shared").unwrap().data.unwrap();
    assert_eq!(data.keys().collect::<Vec<_>>(), ["a", "b"], "{:?}", run.writes());
    let run = run.then().apply(part("one", "a")).await.unwrap();
    let sent: Vec<_> = run.writes().iter().filter(|write| write.kind == "ConfigMap").collect();
    assert!(sent.is_empty(), "{sent:?}");
}

#[tokio::test]
async fn children_of_a_field_manager_of_its_own_are_in_sync_and_pruned() {
    let controller = || keeper().field_manager("keeper");
    let run = TestRun::new(probe("x")).apply(controller()).await.unwrap();
    assert_eq!(run.get::<ConfigMap>("child").unwrap().labels()["app.kubernetes.io/managed-by"], "keeper");
    let run = run.then().apply(controller()).await.unwrap();
    assert!(run.writes().is_empty(), "{:?}", run.writes());
    let run =
        run.then().change::<Probe>("first", |probe| probe.spec.behave = "none".to_owned()).apply(controller()).await;
    assert!(run.unwrap().get::<ConfigMap>("child").is_none());
}

#[tokio::test]
async fn without_the_lease_nothing_is_written_to_a_store_or_to_the_api_server() {
    for (leads, writes) in [(true, 1), (false, 0)] {
        let store = Arc::new(AtomicUsize::new(0));
        let written = Arc::clone(&store);
        let reconcile = move |_: Arc<Probe>, context: Context<Probe>| {
            let checked = context.check_lease();
            if checked.is_ok() {
                written.fetch_add(1, Ordering::SeqCst);
            }
            async move { checked.map(|()| Action::Done) }
        };
        let run = TestRun::new(probe("x"));
        let run = if leads { run } else { run.without_lease() };
        let run = run.apply(Controller::new(reconcile_fn(reconcile))).await.unwrap();
        assert_eq!(store.load(Ordering::SeqCst), writes, "{:?}", run.error());
        assert_eq!(run.error().map(|error| error.reason), (!leads).then_some("NotLeading"));
        assert_eq!(run.writes().len(), writes, "the status of an object is the leader's too: {:?}", run.writes());
    }
    // A write that bypasses the context needs the lease as well.
    let run = TestRun::new(probe("x")).without_lease().apply(keeper()).await.unwrap();
    assert!(run.error().is_some() && run.writes().is_empty(), "{:?}", run.writes());
}

#[tokio::test]
async fn children_of_a_field_manager_that_is_no_label_value_are_in_sync() {
    let controller = || keeper().field_manager("konverge/keeper");
    let run = TestRun::new(probe("x")).apply(controller()).await.unwrap();
    assert_eq!(run.get::<ConfigMap>("child").unwrap().labels()["app.kubernetes.io/managed-by"], "konverge-keeper");
    let run = run.then().apply(controller()).await.unwrap();
    assert_eq!(run.writes(), [""; 0], "the cache has the child");
}

#[tokio::test]
async fn a_change_of_an_object_that_does_not_exist_is_an_error_of_the_test() {
    let failure = async |run: TestRun<Probe>| run.apply(keeper()).await.unwrap_err().to_string();
    let error = failure(TestRun::new(probe("x")).change::<ConfigMap>("chlid", |child| child.data = None)).await;
    assert!(error.contains("ConfigMap default/chlid, which does not exist"), "{error}");
    let error = failure(TestRun::new(probe("x")).remove::<ConfigMap>("chlid").seeing(config_map("chlid", ""))).await;
    assert!(error.contains("ConfigMap default/chlid, which does not exist"), "{error}");
    let gone = TestRun::new(probe("x")).deleted().apply(keeper()).await.unwrap();
    assert!(gone.object().is_none(), "an object without finalizers goes at once");
    let error = failure(gone.then().deleted()).await;
    assert!(error.contains("Probe default/first, which does not exist"), "{error}");
}

konverge::reasons! {
    /// Why a probe is as it is.
    enum Why {
        /// The probe requests nothing
        NothingAsked,
        /// The probe was read
        WasRead,
    }
}

#[tokio::test]
async fn reasons_are_an_enum_of_the_author() {
    let reconcile = async |probe: Arc<Probe>, context: Context<Probe>| {
        if probe.spec.behave.is_empty() {
            return Err(Error::permanent(Why::NothingAsked, "spec.behave is empty"));
        }
        context.event(EventType::Normal, Why::WasRead, "Read", "it was read");
        context.ready(Why::WasRead, "it was read");
        Ok(Action::Done)
    };
    let controller = || Controller::new(reconcile_fn(reconcile)).reasons::<Why>();
    let run = TestRun::new(probe("x")).apply(controller()).await.unwrap();
    assert_eq!(run.conditions().get("Ready").unwrap().reason, "WasRead");
    assert_eq!(run.events()[0].reason.as_deref(), Some("WasRead"));
    let run = TestRun::new(probe("")).apply(controller()).await.unwrap();
    assert_eq!(run.error().unwrap().reason, "NothingAsked");
    let reference =
        crate::stage::operator(controller()).generate("here").unwrap().get("reference.md").unwrap().to_owned();
    assert!(reference.contains("NothingAsked") && reference.contains("The probe requests nothing"), "{reference}");
}

#[tokio::test]
async fn every_constructor_of_an_error_takes_a_variant_as_its_reason() {
    for (expected, condition) in [(ErrorClass::Refused, "Stalled"), (ErrorClass::Unavailable("cloud"), "Reconciling")] {
        let reconcile = move |_: Arc<Probe>, _: Context<Probe>| async move {
            Err::<Action, _>(match expected {
                ErrorClass::Refused => Error::refused(Why::NothingAsked, "the cloud refuses"),
                _ => Error::unavailable("cloud", Why::NothingAsked, "the cloud does not answer"),
            })
        };
        let controller = Controller::new(reconcile_fn(reconcile)).reasons::<Why>();
        let run = TestRun::new(probe("x")).apply(controller).await.unwrap();
        let error = run.error().unwrap();
        assert_eq!((error.class, error.reason), (expected, "NothingAsked"));
        assert!(run.conditions().is_true(condition), "{:?}", run.conditions());
    }
}

#[tokio::test]
async fn an_author_chooses_the_pause_after_an_error() {
    let controller = || {
        Controller::new(Prober::default()).retry(|error, probe, attempt| {
            let is_ours = error.to_string().contains("never works") && probe.spec.behave == "permanent";
            is_ours.then(|| Duration::from_secs(u64::from(attempt) * 10))
        })
    };
    let run = TestRun::new(probe("permanent")).attempt(3).apply(controller()).await.unwrap();
    assert_eq!(run.error().unwrap().class, ErrorClass::After(Duration::from_secs(30)));
    assert!(run.conditions().is_true("Reconciling"), "it is tried again");
    let run = TestRun::new(probe("transient")).apply(controller()).await.unwrap();
    assert_eq!(run.error().unwrap().class, ErrorClass::Transient);
}

/// A label and a finalizer give the object a version that the run has not seen. The status is written in one request all the same.
#[tokio::test]
async fn an_object_that_the_run_has_labelled_gets_its_status_in_one_request() {
    const FINALIZER: &str = "test.konverge.dev/outside";
    let reconcile = async |_: Arc<Probe>, context: Context<Probe>| {
        context.label("test.konverge.dev/seen", "yes").await?;
        context.ensure_finalizer().await?;
        Ok::<_, Error>(Action::Done)
    };
    let controller = Controller::new(reconcile_fn(reconcile)).finalizer_on_demand(FINALIZER);
    let run = TestRun::new(probe("x")).apply(controller).await.unwrap();
    assert_eq!(run.error(), None);
    assert_eq!(
        run.writes(),
        ["patch Probe default/first", "patch Probe default/first", "apply Probe default/first status"]
    );
    assert!(run.conditions().is_true("Ready"));
}

/// A change stands on the one before it in the run, not on the object as the run began.
#[tokio::test]
async fn a_run_can_change_one_label_and_one_annotation_more_than_once() {
    const PHASE: &str = "test.konverge.dev/phase";
    async fn pass(_: Arc<Probe>, context: Context<Probe>) -> Result<Action, Error> {
        for phase in ["begun", "over", "before"] {
            context.label(PHASE, phase).await?;
            context.annotate(PHASE, phase).await?;
        }
        Ok(Action::Done)
    }
    for last in [None, Some("before")] {
        let mut object = probe("x");
        let last: BTreeMap<_, _> = last.map(|last| (PHASE.to_owned(), last.to_owned())).into_iter().collect();
        (object.metadata.labels, object.metadata.annotations) = (Some(last.clone()), Some(last));
        let run = TestRun::new(object).apply(Controller::new(reconcile_fn(pass))).await.unwrap();
        assert_eq!(run.error(), None);
        let writes: Vec<_> = run.writes().iter().map(ToString::to_string).collect();
        assert_eq!(writes.len(), 7, "each change is one request, and the status is another: {writes:?}");
        let after = run.object().unwrap();
        assert_eq!((&*after.labels()[PHASE], &*after.annotations()[PHASE]), ("before", "before"));
    }
}
