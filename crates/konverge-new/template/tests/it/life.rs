//! The life of an object on a real API server, under exactly the generated role.

use std::time::Duration;

use konverge::{
    k8s_openapi::api::core::v1::ConfigMap,
    kube::{
        Api,
        api::{DeleteParams, Patch, PatchParams, PostParams},
    },
    serde_json::json,
};
use konverge_template::{Greeting, GreetingSpec};
use konverge_testkit::{ControlPlane, Options, RoleUse, eventually};

const PROGRAM: &str = "konverge-template";
/// The time limit for changes that should take milliseconds.
const LIMIT: Duration = Duration::from_mins(1);

#[tokio::test(flavor = "multi_thread")]
async fn a_child_follows_its_object_from_beginning_to_end() {
    let plane = ControlPlane::start(Options::default()).await.unwrap();
    let client = plane.admin_client().await.unwrap();
    let home = plane.namespace("operator").await.unwrap();
    let manifest = konverge_template::operator().generate(&home).unwrap().manifest();
    let installed = plane.install(PROGRAM, &home, &manifest).await.unwrap();
    let binary = env!("CARGO_BIN_EXE_konverge-template");
    let mut operator = installed.start(PROGRAM, binary, &["--leader-election"]).await.unwrap();

    let namespace = plane.namespace("user").await.unwrap();
    let objects = Api::<Greeting>::namespaced(client.clone(), &namespace);
    let children = Api::<ConfigMap>::namespaced(client, &namespace);
    let holds = async |text: &str| {
        let found = eventually(LIMIT, || async {
            let child = children.get_opt("first").await.unwrap()?;
            (child.data?.get("text")? == text).then_some(())
        });
        found.await.unwrap_or_else(|_| panic!("the child does not hold {text:?} in time"));
    };
    let says = async |condition: &str, reason: &str| {
        let found = eventually(LIMIT, || async {
            let object = objects.get_opt("first").await.unwrap()?;
            let status = object.status?.standard;
            let is_current = status.observed_generation == object.metadata.generation;
            let condition = status.conditions.get(condition)?;
            (is_current && condition.status == "True" && condition.reason == reason).then_some(())
        });
        found.await.unwrap_or_else(|_| panic!("the object does not say {condition} {reason} in time"));
    };
    let change = async |text: &str| {
        let patch = Patch::Merge(json!({ "spec": { "text": text } }));
        objects.patch("first", &PatchParams::default(), &patch).await.unwrap();
    };

    // Created.
    let spec = GreetingSpec { text: "one".to_owned() };
    objects.create(&PostParams::default(), &Greeting::new("first", spec)).await.unwrap();
    holds("one").await;
    says("Ready", "Reconciled").await;

    // Changed by the user, and drift caused by somebody else.
    change("two").await;
    holds("two").await;
    let drift = Patch::Merge(json!({ "data": { "text": "drift" } }));
    children.patch("first", &PatchParams::default(), &drift).await.unwrap();
    holds("two").await;
    children.delete("first", &DeleteParams::default()).await.unwrap();
    holds("two").await;

    // Wrong, and corrected.
    change("").await;
    says("Stalled", "NoText").await;
    change("three").await;
    holds("three").await;
    says("Ready", "Reconciled").await;

    // Deleted, with its child.
    objects.delete("first", &DeleteParams::default()).await.unwrap();
    let gone = eventually(LIMIT, || async {
        let (object, child) = (objects.get_opt("first").await.unwrap(), children.get_opt("first").await.unwrap());
        (object.is_none() && child.is_none()).then_some(())
    });
    gone.await.expect("the object and its child are deleted in time");

    // The API server refused no request, and the operator needs each verb of its role.
    operator.terminate(Duration::from_secs(40)).await.unwrap();
    let rules = konverge_template::operator().grant(&home).rules();
    let requests = installed.requests(&plane.audit_log().unwrap()).unwrap();
    assert_eq!(RoleUse::of(&requests, &rules), RoleUse::default());
}
