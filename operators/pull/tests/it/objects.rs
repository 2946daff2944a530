//! Custom resources that have Secrets made.

use k8s_openapi::{
    api::core::v1::Secret,
    apiextensions_apiserver::pkg::apis::apiextensions::v1::{
        CustomResourceDefinition, CustomResourceDefinitionCondition,
    },
};
use konverge_pull::objects::{definitions, secret_pull::SecretPull, zopp_secret_sync::ZoppSecretSync};
use konverge_testkit::until;
use kube::{
    Api, Resource, ResourceExt,
    api::{DeleteParams, Patch, PatchParams},
    core::{NamespaceResourceScope, object::HasStatus},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use tokio::sync::OnceCell;
use tonic::Status;

use crate::{
    scripted::Scene,
    world::{QUIET, World},
};

/// Installs the definitions, once for all tests.
pub(crate) async fn install(world: &World) {
    static INSTALLED: OnceCell<()> = OnceCell::const_new();
    INSTALLED.get_or_init(|| install_on(world)).await;
}

/// Installs the definitions on a control plane.
pub(crate) async fn install_on(world: &World) {
    for (_, mut definition) in definitions() {
        konverge::generate::remove_unknown_formats(&mut definition);
        let api = Api::<CustomResourceDefinition>::all(world.kubernetes.clone());
        let name = definition.name_any();
        api.patch(&name, &PatchParams::apply("user").force(), &Patch::Apply(&definition)).await.unwrap();
        until("the kind is served", async || {
            let definition = api.get(&name).await.unwrap();
            let conditions = definition.status.and_then(|status| status.conditions).unwrap_or_default();
            let is_served = |condition: &CustomResourceDefinitionCondition| {
                condition.type_ == "Established" && condition.status == "True"
            };
            if conditions.iter().any(is_served) { Ok(()) } else { Err(format!("{conditions:?}")) }
        })
        .await;
    }
}

async fn world() -> World {
    let world = World::new().await;
    install(&world).await;
    world
}

fn api<K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>>(world: &World) -> Api<K> {
    Api::namespaced(world.kubernetes.clone(), &world.namespace)
}

/// Applies an object as a user does.
pub(crate) async fn apply<K>(world: &World, name: &str, spec: Value) -> Result<K, kube::Error>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Clone + std::fmt::Debug + DeserializeOwned,
{
    let object = json!({
        "apiVersion": K::api_version(&()), "kind": K::kind(&()), "metadata": { "name": name }, "spec": spec,
    });
    api::<K>(world).patch(name, &PatchParams::apply("user").force(), &Patch::Apply(&object)).await
}

pub(crate) async fn pull(world: &World, name: &str, spec: Value) -> SecretPull {
    apply(world, name, spec).await.unwrap()
}

/// Waits until the condition Ready has this reason, and returns its message.
pub(crate) async fn told<K>(world: &World, name: &str, reason: &str) -> String
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
        + Clone
        + std::fmt::Debug
        + DeserializeOwned
        + Serialize
        + HasStatus,
{
    until(&format!("{name} is told {reason}"), async || {
        let object = serde_json::to_value(api::<K>(world).get(name).await.unwrap()).unwrap();
        let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let ready = conditions.iter().find(|condition| condition["type"] == "Ready");
        let is_current = object["status"]["observedGeneration"] == object["metadata"]["generation"];
        match ready.filter(|ready| ready["reason"] == reason && is_current) {
            Some(ready) => Ok(ready["message"].as_str().unwrap().to_owned()),
            None => Err(format!("{conditions:?}")),
        }
    })
    .await
}

pub(crate) async fn is_told(world: &World, name: &str, reason: &str) -> String {
    told::<SecretPull>(world, name, reason).await
}

pub(crate) async fn secret(world: &World, name: &str) -> Option<Secret> {
    world.secrets().get_opt(name).await.unwrap()
}

pub(crate) fn from(scene: &Scene) -> String {
    format!("zopp://{}", scene.name())
}

/// A world with one environment that holds `A=1`, and an operator.
pub(crate) async fn ready() -> (World, std::sync::Arc<Scene>, crate::world::Operator) {
    let world = world().await;
    let scene = world.server.create("production");
    scene.set("A", "1");
    let operator = world.operator(&[]).await;
    (world, scene, operator)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_is_made_follows_its_source_and_is_made_again() {
    let (world, scene, _operator) = ready().await;
    let spec = json!({
        "target": { "type": "example.com/typed", "labels": { "team": "a" }, "annotations": { "note": "x" } },
        "sources": [{ "from": from(&scene) }],
    });
    let object = pull(&world, "web", spec.clone()).await;
    world.holds("web", &[("A", "1")]).await;
    assert!(is_told(&world, "web", "Synced").await.contains(&from(&scene)));
    let made = secret(&world, "web").await.unwrap();
    assert_eq!(made.type_.as_deref(), Some("example.com/typed"));
    assert_eq!((&made.labels()["team"], &made.annotations()["note"]), (&"a".to_owned(), &"x".to_owned()));
    assert_eq!(made.owner_references()[0].uid, object.uid().unwrap());

    scene.set("B", "2");
    world.holds("web", &[("A", "1"), ("B", "2")]).await;
    world.delete("web").await;
    until("it is made again", async || secret(&world, "web").await.map(drop).ok_or("gone".to_owned())).await;
    world.holds("web", &[("A", "1"), ("B", "2")]).await;

    let mut without = spec;
    without["target"] = json!({ "type": "example.com/typed" });
    pull(&world, "web", without).await;
    until("the labels are gone", async || {
        let found = secret(&world, "web").await.unwrap();
        if found.labels().is_empty() { Ok(()) } else { Err(format!("{:?}", found.labels())) }
    })
    .await;
    let status = api::<SecretPull>(&world).get("web").await.unwrap().status.unwrap();
    assert_eq!((status.keys, status.target.as_deref()), (Some(2), Some("web")));
    assert_eq!(status.sources[0].from, from(&scene));
}

#[tokio::test(flavor = "multi_thread")]
async fn at_rest_nothing_is_sent() {
    let (world, scene, _operator) = ready().await;
    pull(&world, "web", json!({ "sources": [{ "from": from(&scene) }] })).await;
    is_told(&world, "web", "Synced").await;
    tokio::time::sleep(QUIET).await;
    let (made, object) = (secret(&world, "web").await, api::<SecretPull>(&world).get("web").await.unwrap());
    tokio::time::sleep(QUIET).await;
    assert_eq!(secret(&world, "web").await, made);
    assert_eq!(api::<SecretPull>(&world).get("web").await.unwrap().resource_version(), object.resource_version());
}

#[tokio::test(flavor = "multi_thread")]
async fn several_sources_are_merged_and_one_that_fails_keeps_its_keys() {
    let (world, first, operator) = ready().await;
    let second = world.server.create("shared");
    second.set("A", "hidden");
    second.set("b", "2");
    let spec = json!({ "sources": [
        { "from": from(&first) },
        { "from": from(&second), "keys": ["A", "b*"], "rename": { "prefix": "x_", "upper": true } },
    ] });
    pull(&world, "web", spec.clone()).await;
    world.holds("web", &[("A", "1"), ("X_A", "hidden"), ("X_B", "2")]).await;
    second.refuse(Some(Status::permission_denied("no")));
    drop(operator);
    // A restarted operator knows from the record alone what the second source gave.
    let _operator = world.restarted(&[]).await;
    first.set("A", "3");
    world.holds("web", &[("A", "3"), ("X_A", "hidden"), ("X_B", "2")]).await;
    is_told(&world, "web", "PermissionDenied").await;

    let mut strict = spec;
    strict["whenSourceFails"] = "Stop".into();
    pull(&world, "web", strict).await;
    is_told(&world, "web", "PermissionDenied").await;
    first.set("A", "4");
    tokio::time::sleep(QUIET).await;
    world.holds("web", &[("A", "3"), ("X_A", "hidden"), ("X_B", "2")]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_is_not_made_before_all_sources_that_it_needs_have_answered() {
    let (world, scene, _operator) = ready().await;
    let absent = format!("{}x", from(&scene));
    let sources =
        |optional: bool| json!({ "sources": [{ "from": from(&scene) }, { "from": absent, "optional": optional }] });
    pull(&world, "web", sources(false)).await;
    is_told(&world, "web", "EnvironmentNotFound").await;
    assert_eq!(secret(&world, "web").await, None);
    pull(&world, "web", sources(true)).await;
    world.holds("web", &[("A", "1")]).await;
    is_told(&world, "web", "Synced").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_foreign_secret_is_taken_over_only_on_request() {
    let (world, scene, _operator) = ready().await;
    world.apply("web", json!({ "stringData": { "THEIRS": "x", "A": "old" } })).await;
    let spec = |adopt: bool| json!({ "target": { "adopt": adopt }, "sources": [{ "from": from(&scene) }] });
    pull(&world, "web", spec(false)).await;
    let text = is_told(&world, "web", "TargetNotOwned").await;
    assert!(text.contains("spec.target.adopt"), "{text}");
    world.holds("web", &[("THEIRS", "x"), ("A", "old")]).await;
    pull(&world, "web", spec(true)).await;
    world.holds("web", &[("THEIRS", "x"), ("A", "1")]).await;
    is_told(&world, "web", "Synced").await;

    let environment = scene.name();
    world.bind("annotated", &scene).await;
    pull(&world, "annotated", spec(true)).await;
    let text = is_told(&world, "annotated", "TargetNotOwned").await;
    assert!(text.contains("annotations on Secret"), "{text} {environment}");
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_objects_with_one_target_the_older_has_it_until_it_goes() {
    let (world, scene, _operator) = ready().await;
    let other = world.server.create("other");
    other.set("B", "2");
    let spec = |scene: &Scene| json!({ "target": { "name": "shared", "deletionPolicy": "Retain", "adopt": true }, "sources": [{ "from": from(scene) }] });
    pull(&world, "b-old", spec(&scene)).await;
    world.holds("shared", &[("A", "1")]).await;
    // The age has a resolution of a second.
    tokio::time::sleep(QUIET).await;
    pull(&world, "a-new", spec(&other)).await;
    let text = is_told(&world, "a-new", "TargetTaken").await;
    assert!(text.contains("SecretPull/b-old"), "{text}");
    world.holds("shared", &[("A", "1")]).await;
    api::<SecretPull>(&world).delete("b-old", &DeleteParams::default()).await.unwrap();
    world.holds("shared", &[("B", "2")]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_of_a_former_name_is_deleted_or_stays_as_the_policy_says() {
    let (world, scene, _operator) = ready().await;
    let spec = |name: &str, policy: &str| json!({ "target": { "name": name, "deletionPolicy": policy }, "sources": [{ "from": from(&scene) }] });
    for name in ["one", "two"] {
        pull(&world, "web", spec(name, "Delete")).await;
        world.holds(name, &[("A", "1")]).await;
    }
    until("the former Secret is gone", async || match secret(&world, "one").await {
        None => Ok(()),
        Some(_) => Err("there".to_owned()),
    })
    .await;
    pull(&world, "web", spec("three", "Retain")).await;
    world.holds("three", &[("A", "1")]).await;
    assert!(secret(&world, "two").await.is_some());
    assert!(secret(&world, "three").await.unwrap().owner_references().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_suspended_object_changes_nothing_and_a_type_that_lacks_keys_is_not_made() {
    let (world, scene, _operator) = ready().await;
    let sources = json!([{ "from": from(&scene) }]);
    pull(&world, "web", json!({ "sources": sources })).await;
    world.holds("web", &[("A", "1")]).await;
    pull(&world, "web", json!({ "sources": sources, "suspend": true })).await;
    is_told(&world, "web", "Suspended").await;
    scene.set("A", "2");
    tokio::time::sleep(QUIET).await;
    world.holds("web", &[("A", "1")]).await;
    pull(&world, "web", json!({ "sources": sources, "suspend": false })).await;
    world.holds("web", &[("A", "2")]).await;

    pull(&world, "tls", json!({ "target": { "type": "kubernetes.io/tls" }, "sources": sources })).await;
    let text = is_told(&world, "tls", "KeyNotFound").await;
    assert!(text.contains("tls.crt, tls.key"), "{text}");
    assert_eq!(secret(&world, "tls").await, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_is_refused_with_a_sentence() {
    let world = world().await;
    let source = json!([{ "from": "zopp://a/b/c" }]);
    let with_rename = |rename: Value| json!({ "sources": [{ "from": "zopp://a/b/c", "rename": rename }] });
    for (spec, part) in [
        (json!({ "sources": [] }), "sources"),
        (json!({ "sources": [{ "from": "secret/db" }] }), "from"),
        (json!({ "sources": source, "target": { "name": "A_B" } }), "name"),
        (json!({ "sources": source, "target": { "type": "helm.sh/release.v1" } }), "belong to Kubernetes or Helm"),
        (json!({ "sources": source, "refreshInterval": "1s" }), "the shortest interval is 10s"),
        (with_rename(json!({ "table": { "a": "b" }, "prefix": "x" })), "either a table or strip, prefix and upper"),
    ] {
        let error = apply::<SecretPull>(&world, "web", spec.clone()).await.unwrap_err().to_string();
        assert!(error.contains(part), "{spec}: {error}");
    }
    let annotated = json!({ "sources": source, "target": { "annotations": { "zopp.dev/sync": "true" } } });
    pull(&world, "annotated", annotated).await;
    let twice = json!({ "sources": [{ "from": "zopp://a/b/c" }, { "from": "zopp://a/b/c" }] });
    pull(&world, "web", twice).await;
    let _operator = world.operator(&[]).await;
    assert!(is_told(&world, "web", "InvalidSpec").await.contains("named twice"));
    assert!(is_told(&world, "annotated", "InvalidSpec").await.contains("zopp.dev/sync is for Secrets"));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_rules_hold_for_objects_too() {
    let world = world().await;
    let scene = world.server.create("production");
    scene.set("A", "1");
    let _operator = world.operator(&["--allow", "elsewhere=*/*/*"]).await;
    pull(&world, "web", json!({ "sources": [{ "from": from(&scene) }] })).await;
    assert!(is_told(&world, "web", "NotAllowed").await.contains("--allow"));
    assert_eq!(secret(&world, "web").await, None);
}

fn sync_of(scene: &Scene, target: &Value) -> Value {
    let name = scene.name();
    json!({
        "source": { "workspace": name.workspace, "project": name.project, "environment": name.environment },
        "target": target,
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_zopp_secret_sync_is_followed_and_the_secret_of_the_original_is_taken_over() {
    let (world, scene, _operator) = ready().await;
    // What the original has made.
    let made = json!({
        "metadata": { "annotations": { "zopp.dev/managed": "true" }, "labels": { "app.kubernetes.io/managed-by": "zopp-operator" } },
        "type": "Opaque",
    });
    world.apply("db", made).await;
    world.merge("db", "zopp-operator", json!({ "data": { "A": "MA==", "STALE": "MA==" } })).await;
    let sync: ZoppSecretSync = apply(&world, "web", sync_of(&scene, &json!({ "secretName": "db" }))).await.unwrap();
    assert_eq!((sync.spec.sync_interval_seconds, &*sync.spec.target.secret_type), (60, "Opaque"));
    world.holds("db", &[("A", "1")]).await;
    told::<ZoppSecretSync>(&world, "web", "SyncSuccess").await;
    let status = api::<ZoppSecretSync>(&world).get("web").await.unwrap().status.unwrap();
    assert_eq!((status.secret_count, status.last_sync_version.is_some()), (Some(1), true));
    scene.set("B", "2");
    world.holds("db", &[("A", "1"), ("B", "2")]).await;

    let elsewhere = sync_of(&scene, &json!({ "secretName": "db", "namespace": "kube-system" }));
    apply::<ZoppSecretSync>(&world, "across", elsewhere).await.unwrap();
    assert!(told::<ZoppSecretSync>(&world, "across", "SyncFailed").await.contains("may not write to other namespaces"));
    let suspended = json!({ "suspend": true });
    let mut spec = sync_of(&scene, &json!({ "secretName": "db" }));
    spec["suspend"] = suspended["suspend"].clone();
    apply::<ZoppSecretSync>(&world, "web", spec).await.unwrap();
    told::<ZoppSecretSync>(&world, "web", "Suspended").await;
    api::<ZoppSecretSync>(&world).delete("web", &DeleteParams::default()).await.unwrap();
    tokio::time::sleep(QUIET).await;
    world.holds("db", &[("A", "1"), ("B", "2")]).await;
}
