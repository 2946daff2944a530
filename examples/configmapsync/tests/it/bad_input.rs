//! A world that is not as the operator needs it: clear words, others unaffected, and recovery without a restart.

use std::time::Duration;

use configmapsync_operator::ConfigMapSync;
use k8s_openapi::{
    api::core::v1::ConfigMap,
    apiextensions_apiserver::pkg::apis::apiextensions::v1::{CustomResourceDefinition, JSONSchemaProps},
};
use konverge_testkit::{ControlPlane, InstalledOperator, Options, Process, eventually, http_get};
use kube::{
    Api, Client, CustomResourceExt,
    api::{ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

/// From the end of the fault: a pause of half a minute at most, and what an API server takes to serve a kind.
const LIMIT: Duration = Duration::from_mins(1);

const CRD: &str = "configmapsyncs.example.io";

/// The message about a missing kind.
const NOT_SERVED: &[&str] = &["does not serve configmapsyncs.example.io/v1alpha1", "is its definition installed"];

/// A control plane of its own for each test, as each does something to all of it.
struct World {
    plane: ControlPlane,
    operator: InstalledOperator,
    client: Client,
    home: String,
}

impl World {
    async fn new() -> Self {
        let plane = ControlPlane::start(Options::ours()).await.unwrap();
        let namespace = plane.namespace("operator").await.unwrap();
        let files = configmapsync_operator::operator().generate(&namespace).unwrap();
        let operator = plane.install("configmapsync-operator", &namespace, &files.manifest()).await.unwrap();
        let (client, home) = (plane.admin_client().await.unwrap(), plane.namespace("home").await.unwrap());
        Self { plane, operator, client, home }
    }

    fn start(&self) -> (Process, String) {
        self.operator.begin("operator", env!("CARGO_BIN_EXE_configmapsync-operator"), &[]).unwrap()
    }

    fn crds(&self) -> Api<CustomResourceDefinition> {
        Api::all(self.client.clone())
    }

    async fn define(&self, crd: &CustomResourceDefinition) {
        let parameters = PatchParams::apply("test").force();
        self.crds().patch(CRD, &parameters, &Patch::Apply(crd)).await.unwrap();
    }

    /// Takes the kind away, with its objects.
    async fn undefine(&self) {
        self.crds().delete(CRD, &DeleteParams::default()).await.unwrap();
        let gone = || async { self.crds().get_opt(CRD).await.unwrap().is_none().then_some(()) };
        eventually(LIMIT, gone).await.unwrap();
    }

    /// Without a type, so that it may be anything.
    fn syncs(&self) -> Api<DynamicObject> {
        let kind = ApiResource::erase::<ConfigMapSync>(&());
        Api::namespaced_with(self.client.clone(), &self.home, &kind)
    }

    /// Makes an object, as soon as its kind is served.
    async fn create(&self, name: &str, data: Value) {
        let mut sync = DynamicObject::new(name, &ApiResource::erase::<ConfigMapSync>(&()));
        sync.data = json!({ "spec": { "targetNamespace": self.home, "data": data } });
        let syncs = self.syncs();
        eventually(LIMIT, || async { syncs.create(&PostParams::default(), &sync).await.ok() }).await.unwrap();
    }

    async fn change(&self, name: &str, data: Value) {
        let change = json!({ "spec": { "data": data } });
        self.syncs().patch(name, &PatchParams::default(), &Patch::Merge(change)).await.unwrap();
    }

    async fn value(&self, name: &str) -> Option<String> {
        let copies = Api::<ConfigMap>::namespaced(self.client.clone(), &self.home);
        copies.get_opt(&format!("cms-{name}")).await.ok()??.data?.remove("value")
    }

    async fn copies(&self, name: &str, value: &str, operator: &mut Process) {
        let copied = || async { (self.value(name).await? == value).then_some(()) };
        assert!(eventually(LIMIT, copied).await.is_ok(), "{name} is not {value}:\n{}", operator.logged());
        assert!(operator.status().is_none(), "the operator has ended:\n{}", operator.logged());
    }
}

/// Waits until it is not ready, and alive, for these reasons.
async fn is_not_ready(address: &str, reasons: &[&str]) {
    let told = eventually(LIMIT, || async {
        let (code, text) = http_get(address, "/readyz?verbose").await.ok()?;
        (code == 503 && reasons.iter().all(|reason| text.contains(reason))).then_some(())
    });
    assert!(told.await.is_ok(), "{reasons:?} is not in {:?}", http_get(address, "/readyz?verbose").await);
    assert_eq!(http_get(address, "/healthz").await.unwrap().0, 200);
}

async fn is_ready(address: &str) {
    let ready = || async { http_get(address, "/readyz").await.ok().filter(|(code, _)| *code == 200) };
    eventually(LIMIT, ready).await.unwrap();
}

/// F03: it waits, says why, and begins when it can.
#[tokio::test(flavor = "multi_thread")]
async fn an_api_server_that_is_down_at_the_start() {
    let mut world = World::new().await;
    world.create("app", json!({ "value": "1" })).await;
    world.plane.kill_api_server().unwrap();
    let (mut operator, address) = world.start();
    is_not_ready(&address, &["failing for"]).await;
    world.plane.start_api_server().await.unwrap().unwrap();
    world.copies("app", "1", &mut operator).await;
    is_ready(&address).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kind_that_is_missing_or_in_another_version() {
    let world = World::new().await;
    world.undefine().await;
    let (mut operator, address) = world.start();
    is_not_ready(&address, NOT_SERVED).await;

    let mut other = ConfigMapSync::crd();
    other.spec.versions[0].name = "v9".to_owned();
    world.define(&other).await;
    // Only that its own version is not there counts.
    is_not_ready(&address, NOT_SERVED).await;

    world.undefine().await;
    world.define(&ConfigMapSync::crd()).await;
    world.create("app", json!({ "value": "1" })).await;
    world.copies("app", "1", &mut operator).await;
    is_ready(&address).await;

    // Taken away with its objects, whose finalizers are served before, and back again.
    world.undefine().await;
    assert_eq!(world.value("app").await, None);
    world.define(&ConfigMapSync::crd()).await;
    world.create("app", json!({ "value": "2" })).await;
    world.copies("app", "2", &mut operator).await;
    is_ready(&address).await;
}

/// I3, I16: an object that the operator does not understand is reported and keeps its copy, and delays nobody.
#[tokio::test(flavor = "multi_thread")]
async fn an_object_that_does_not_parse() {
    let world = World::new().await;
    // A newer definition than the operator's, which allows more.
    let mut lax = ConfigMapSync::crd();
    let schema = lax.spec.versions[0].schema.as_mut().and_then(|schema| schema.open_api_v3_schema.as_mut()).unwrap();
    let anything = JSONSchemaProps {
        type_: Some("object".to_owned()),
        x_kubernetes_preserve_unknown_fields: Some(true),
        ..JSONSchemaProps::default()
    };
    schema.properties.as_mut().unwrap().insert("spec".to_owned(), anything);
    world.define(&lax).await;
    world.create("bad", json!({ "value": "1" })).await;
    let (mut operator, address) = world.start();
    world.copies("bad", "1", &mut operator).await;
    let is_taken = || async {
        let mut probe = world.syncs().get("bad").await.unwrap();
        probe.data["spec"]["data"] = json!(7);
        world.syncs().replace("bad", &PostParams::default(), &probe).await.ok()
    };
    eventually(LIMIT, is_taken).await.unwrap();
    let counted = eventually(LIMIT, || async {
        let (_, metrics) = http_get(&address, "/metrics").await.ok()?;
        let counts = r#"konverge_cache_undecodable_objects{resource="configmapsyncs"} 1"#;
        metrics.lines().any(|line| line == counts).then_some(())
    });
    assert!(counted.await.is_ok(), "{}", http_get(&address, "/metrics").await.unwrap().1);
    assert!(operator.logged().contains(&format!("{}/bad", world.home)), "{}", operator.logged());

    // Others come and go meanwhile, and so do other watches of the kind.
    world.create("good", json!({ "value": "1" })).await;
    world.copies("good", "1", &mut operator).await;
    world.change("good", json!({ "value": "2" })).await;
    world.copies("good", "2", &mut operator).await;
    assert_eq!(world.value("bad").await.as_deref(), Some("1"), "not understood is not gone");

    // Mended, and also when the operator first saw it broken.
    world.change("bad", json!({ "value": "3" })).await;
    world.copies("bad", "3", &mut operator).await;
}
