//! The operator does not write at rest, list, read foreign Secrets, or send forbidden requests.

use std::time::Duration;

use k8s_openapi::{ByteString, api::core::v1::Secret};
use konverge_e2e::{Operator, Stage, operator_rules};
use konverge_testkit::{RoleUse, until_true};
use kube::{
    Api,
    api::{ObjectMeta, PostParams},
};

use crate::recorder::{ReceivedRequest, Recorder};

/// The definitions that this repository ships for pull.
const DEFINITIONS: [&str; 4] = [
    include_str!("../../deploy/crds/secretpulls.yaml"),
    include_str!("../../deploy/crds/secretsources.yaml"),
    include_str!("../../deploy/crds/clustersecretsources.yaml"),
    include_str!("../../deploy/crds/zoppsecretsyncs.yaml"),
];

/// An object of each kind. No Vault listens at the address.
const OBJECTS: &str = r#"
apiVersion: konverge.dev/v1alpha1
kind: SecretSource
metadata: { name: vault, namespace: NAMESPACE }
spec: { vault: { address: "http://127.0.0.1:9", login: { token: { name: backend, key: A } } } }
---
apiVersion: konverge.dev/v1alpha1
kind: ClusterSecretSource
metadata: { name: vault }
spec:
  namespaceSelector: { matchLabels: { team: a } }
  credentialsNamespace: NAMESPACE
  vault: { address: "http://127.0.0.1:9", login: { token: { name: backend, key: A } } }
---
apiVersion: zopp.dev/v1alpha1
kind: ZoppSecretSync
metadata: { name: synced, namespace: NAMESPACE }
spec:
  source: { workspace: acme, project: backend, environment: production }
  target: { secretName: synced }
"#;

const SOON: Duration = Duration::from_mins(1);

/// Polls per second in these tests, so that a rest of a moment holds several.
const POLL: &str = "1";

#[tokio::test]
async fn at_rest_nothing_is_written_and_nothing_listed() {
    let stage = Stage::set_on_ours().await.unwrap();
    let namespace = stage.control_plane.namespace("rest").await.unwrap();
    let watcher = stage.watcher(&namespace);
    for name in ["one", "two"] {
        let environment = stage.environment(name).await.unwrap();
        stage.user.set(&environment, "A", b"1").await.unwrap();
        stage.bind(&namespace, name, &environment).await.unwrap();
        stage.bind(&namespace, &format!("{name}-again"), &environment).await.unwrap();
    }
    let arguments = ["--namespace", &namespace, "--poll-interval", POLL];
    let mut operator = stage.operator_with("zopp-operator", &arguments).unwrap();
    operator.ready().await.unwrap();
    for name in ["one", "one-again", "two", "two-again"] {
        watcher.holds(name, SOON, &[("A", "1")]).await.unwrap();
    }
    let streams = operator.metric_becomes("konverge_pull_streams", "", |open| open > 0.0).await.unwrap();
    assert!(streams <= 2.0, "one stream an environment, not one a Secret: {streams}");
    operator.metric_becomes("konverge_events_total", "published", |count| count >= 4.0).await.unwrap();

    let polls = operator.metric("konverge_pull_polls_total", "").await.unwrap();
    let log = stage.control_plane.audit_log().unwrap();
    log.catch_up(stage.client()).await.unwrap();
    let rest = log.from_now().unwrap();
    operator.metric_becomes("konverge_pull_polls_total", "", |count| count >= polls + 6.0).await.unwrap();
    rest.catch_up(stage.client()).await.unwrap();
    let asked = rest.entries_of(stage.operator_user()).unwrap();
    let loud: Vec<_> = asked.iter().filter(|entry| entry.verb != "watch").collect();
    assert!(loud.is_empty(), "{loud:?}");
    assert!(operator.metric("konverge_pull_missed_events_total", "").await.unwrap() < 1.0);
}

#[tokio::test]
async fn foreign_secrets_are_never_read_and_no_permission_is_missing_or_spare() {
    let stage = Stage::set_on_ours().await.unwrap();
    let namespace = stage.control_plane.namespace("foreign").await.unwrap();
    for definition in DEFINITIONS {
        stage.control_plane.apply(definition).await.unwrap();
    }
    let api = Api::<Secret>::namespaced(stage.client().clone(), &namespace);
    for number in 0..5 {
        let metadata = ObjectMeta { name: Some(format!("foreign-{number}")), ..ObjectMeta::default() };
        let data = Some([("payload".to_owned(), ByteString(b"theirs".to_vec()))].into());
        api.create(&PostParams::default(), &Secret { metadata, data, ..Secret::default() }).await.unwrap();
    }
    let environment = stage.environment("production").await.unwrap();
    stage.user.set(&environment, "A", b"1").await.unwrap();
    // The operator talks through a proxy that sees which representation it asks for.
    let run = stage.control_plane.run_directory();
    let own = stage.operator_user().split(':').nth(2).unwrap();
    let recorder = Recorder::start(stage.operator_kubeconfig(), own, run.path()).await;
    let arguments = ["--leader-election"];
    let url = stage.server.url();
    let mut operator =
        Operator::start(run, "zopp-operator", recorder.kubeconfig(), &url, stage.credentials(), &arguments).unwrap();
    operator.ready().await.unwrap();
    stage.bind(&namespace, "backend", &environment).await.unwrap();
    stage.watcher(&namespace).holds("backend", SOON, &[("A", "1")]).await.unwrap();
    operator.metric_becomes("leader_election_master_status", "", |leads| leads > 0.0).await.unwrap();
    let told = async |events: f64| {
        operator.metric_becomes("konverge_events_total", "published", |count| count >= events).await.unwrap()
    };
    told(1.0).await;
    // The same once more makes a series of an event, which is the one thing that events are patched for.
    stage.bind(&namespace, "backend", "acme/backend/nowhere").await.unwrap();
    told(2.0).await;
    stage.bind(&namespace, "backend", &environment).await.unwrap();
    told(3.0).await;

    let collection = "/api/v1/secrets";
    let about_secrets: Vec<ReceivedRequest> = recorder
        .requests()
        .into_iter()
        .filter(|asked| asked.path.contains("/secrets/") || asked.path.ends_with("/secrets"))
        .collect();
    let (whole, named): (Vec<_>, Vec<_>) = about_secrets.into_iter().partition(|asked| asked.path == collection);
    assert!(whole.len() >= 2, "a list and a watch: {whole:?}");
    for asked in &whole {
        let representations = asked.accept.split(',');
        let only_metadata = representations.clone().all(|one| one.contains("as=PartialObjectMetadata"));
        assert!(
            asked.method == "GET" && only_metadata,
            "lists and watches ask for metadata and take nothing else: {asked:?}"
        );
    }
    let ours = format!("/api/v1/namespaces/{namespace}/secrets/backend");
    assert!(!named.is_empty() && named.iter().all(|asked| asked.path == ours), "only the bound one: {named:?}");

    // Custom resources use what is left of the role. The second name of a target has the first one deleted.
    let watcher = stage.watcher(&namespace);
    stage.control_plane.apply(&OBJECTS.replace("NAMESPACE", &namespace)).await.unwrap();
    watcher.holds("synced", SOON, &[("A", "1")]).await.unwrap();
    for target in ["first", "second"] {
        let pull = format!(
            "apiVersion: konverge.dev/v1alpha1\nkind: SecretPull\nmetadata: {{ name: pulled, namespace: {namespace} }}\nspec: {{ target: {{ name: \
             {target} }}, sources: [{{ from: 'zopp://{environment}' }}] }}"
        );
        stage.control_plane.apply(&pull).await.unwrap();
        watcher.holds(target, SOON, &[("A", "1")]).await.unwrap();
    }
    until_true("the Secret with the former name is deleted", async || Ok(api.get_opt("first").await?.is_none())).await;

    // Its last act is to release the lease.
    operator.process().terminate(SOON).await.unwrap();
    let log = stage.control_plane.audit_log().unwrap();
    log.catch_up(stage.client()).await.unwrap();
    let asked = log.entries_of(stage.operator_user()).unwrap();
    let used = RoleUse::of(&asked, &operator_rules().unwrap());
    // For --enable-metrics-auth.
    let unused = ["create authentication.k8s.io/tokenreviews", "create authorization.k8s.io/subjectaccessreviews"];
    let unused = unused.map(str::to_owned).into();
    let expected = RoleUse { unused, ..RoleUse::default() };
    assert_eq!(used, expected, "the shipped role has all that it needs and nothing else");
    let lists = asked.iter().filter(|entry| entry.object_ref.resource == "secrets" && entry.verb == "list").count();
    assert_eq!(lists, 1, "one list, at the start");
}

#[tokio::test]
async fn no_value_and_no_key_material_is_logged() {
    const CANARY: &str = "canary-5d1f0c";
    let stage = Stage::set_on_ours().await.unwrap();
    let namespace = stage.control_plane.namespace("canary").await.unwrap();
    let environment = stage.environment("production").await.unwrap();
    let mut operator = stage.operator_with("zopp-operator", &["--namespace", &namespace]).unwrap();
    operator.process().kill();
    let spec = operator.process().spec_mut();
    *spec = spec.clone().env("RUST_LOG", "trace");
    operator.process().start_again().unwrap();
    stage.user.set(&environment, "A", CANARY.as_bytes()).await.unwrap();
    stage.bind(&namespace, "backend", &environment).await.unwrap();
    stage.watcher(&namespace).holds("backend", SOON, &[("A", CANARY)]).await.unwrap();

    let said = operator.process().logged();
    assert!(said.contains("backend"), "it logs at all");
    assert!(!said.contains(CANARY));
    // Base64, as it stands in the request and the object.
    assert!(!said.contains("Y2FuYXJ5LTVkMWYwYw"));
    let credentials: serde_json::Value = serde_json::from_slice(&std::fs::read(stage.credentials()).unwrap()).unwrap();
    for key in ["private_key", "x25519_private_key"] {
        let private = credentials["principals"][0][key].as_str().unwrap();
        assert!(!said.contains(private), "{key}");
    }
}
