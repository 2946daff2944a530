//! Bad input to the operator: one test per input. Each shows the event and the metric that tell of it, that the data already in
//! the Secret stays, and that another Secret of the same operator follows its environment meanwhile.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    time::Duration,
};

use k8s_openapi::api::{core::v1::Secret, events::v1::Event};
use konverge_e2e::{Operator, Stage, Watcher, annotated_secret, binary};
use konverge_testkit::{Process, ProcessSpec, eventually, free_port};
use kube::{
    Api,
    api::{DeleteParams, ListParams, Patch, PatchParams},
};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
    sync::OnceCell,
};

const SOON: Duration = Duration::from_secs(30);

/// How soon the other Secret has to follow: far less than any timeout that the bad one might run into.
const UNDELAYED: Duration = Duration::from_secs(3);

/// For gauges, which count whole things.
fn is(expected: u32) -> impl Fn(f64) -> bool {
    move |value| (value - f64::from(expected)).abs() < 0.5
}

/// Runs on one stage for all tests of this file; it ends with the process. Its clients live on a runtime of their own.
fn on_stage(name: &str, test: impl AsyncFnOnce(Scene)) {
    static RUNTIME: std::sync::LazyLock<tokio::runtime::Runtime> =
        std::sync::LazyLock::new(|| tokio::runtime::Runtime::new().unwrap());
    static STAGE: OnceCell<Stage> = OnceCell::const_new();
    RUNTIME.block_on(async {
        let stage = STAGE.get_or_init(|| async { Stage::set().await.unwrap() }).await;
        test(Scene::set(stage, name).await).await;
    });
}

/// A namespace with the healthy Secret `good`, and an operator that looks after it.
struct Scene {
    stage: &'static Stage,
    name: String,
    namespace: String,
    operator: Operator,
    watcher: Watcher,
    good: String,
}

impl Scene {
    async fn set(stage: &'static Stage, name: &str) -> Self {
        let namespace = stage.control_plane.namespace(name).await.unwrap();
        let good = stage.environment(&format!("{name}-good")).await.unwrap();
        let operator = stage.operator(&format!("operator-{name}"), &namespace).await.unwrap();
        let watcher = stage.watcher(&namespace);
        let scene = Self { stage, name: name.to_owned(), namespace, operator, watcher, good };
        scene.bind("good", &scene.good).await;
        scene.good_follows("0").await;
        scene
    }

    fn secrets(&self) -> Api<Secret> {
        Api::namespaced(self.stage.client().clone(), &self.namespace)
    }

    /// Makes an environment that the operator may read, with one key, and a Secret in step with it.
    async fn in_step(&self) -> String {
        let environment = self.stage.environment(&self.name).await.unwrap();
        self.stage.user.set(&environment, "A", b"1").await.unwrap();
        self.bind("bad", &environment).await;
        self.holds("bad", &[("A", "1")]).await;
        environment
    }

    async fn bind(&self, name: &str, environment: &str) {
        self.apply(name, annotated_secret(name, environment)).await;
    }

    async fn apply(&self, name: &str, manifest: Value) {
        let parameters = PatchParams::apply("user").force();
        self.secrets().patch(name, &parameters, &Patch::Apply(&manifest)).await.unwrap();
    }

    async fn merge(&self, name: &str, patch: Value) {
        self.secrets().patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
    }

    async fn holds(&self, name: &str, expected: &[(&str, &str)]) {
        self.watcher.holds(name, SOON, expected).await.unwrap();
    }

    /// Waits for the event with this reason on the Secret `bad`, and checks that the text has all of these.
    async fn told(&self, reason: &str, parts: &[&str]) {
        let api = Api::<Event>::namespaced(self.stage.client().clone(), &self.namespace);
        let note = eventually(SOON, || async {
            let events = api.list(&ListParams::default()).await.ok()?.items;
            let about_bad = |event: &&Event| {
                event.reason.as_deref() == Some(reason)
                    && event.regarding.as_ref().is_some_and(|object| object.name.as_deref() == Some("bad"))
            };
            events.iter().find(about_bad).map(|event| event.note.clone().unwrap_or_default())
        });
        let note = note.await.unwrap_or_else(|error| panic!("no event {reason}: {error}"));
        for part in parts {
            assert!(note.contains(part), "{part:?} is not in the event: {note}");
        }
        assert!(note.len() > 40, "too short to help anybody: {note}");
    }

    /// Waits until the gauge of bindings says that one is in this state.
    async fn counted(&self, reason: &str) {
        let label = format!("reason=\"{reason}\"");
        self.operator.metric_becomes("konverge_pull_bindings", &label, is(1)).await.unwrap();
    }

    /// The healthy Secret follows a change at once.
    async fn good_follows(&self, value: &str) {
        self.stage.user.set(&self.good, "GOOD", value.as_bytes()).await.unwrap();
        self.watcher.holds("good", UNDELAYED, &[("GOOD", value)]).await.unwrap();
    }
}

#[test]
fn missing_or_empty_annotations() {
    on_stage("annotations", async |scene: Scene| {
        let environment = scene.in_step().await;
        let annotations = json!({ "zopp.dev/sync": "true", "zopp.dev/workspace": "acme", "zopp.dev/project": "" });
        let manifest = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "bad", "annotations": annotations }
        });
        scene.apply("bad", manifest).await;
        scene.told("InvalidAnnotation", &["zopp.dev/project", "zopp.dev/environment", "data stays"]).await;
        scene.counted("InvalidAnnotation").await;
        scene.stage.user.set(&environment, "A", b"2").await.unwrap();
        scene.good_follows("1").await;
        scene.holds("bad", &[("A", "1")]).await;
    });
}

#[test]
fn an_environment_that_does_not_exist() {
    on_stage("absent", async |scene: Scene| {
        scene.in_step().await;
        scene.bind("bad", "acme/backend/nowhere").await;
        scene.told("EnvironmentNotFound", &["acme/backend/nowhere", "annotations"]).await;
        scene.counted("EnvironmentNotFound").await;
        scene.good_follows("1").await;
        scene.holds("bad", &[("A", "1")]).await;
        // It is noticed when it comes into being.
        let environment = scene.stage.environment("nowhere").await.unwrap();
        scene.stage.user.set(&environment, "N", b"1").await.unwrap();
        scene.watcher.holds("bad", Duration::from_secs(90), &[("N", "1")]).await.unwrap();
    });
}

#[test]
fn an_environment_that_is_not_permitted() {
    on_stage("denied", async |scene: Scene| {
        scene.in_step().await;
        let path = "acme/backend/vault";
        scene.stage.user.create_environment(path).await.unwrap();
        scene.stage.user.set(path, "V", b"1").await.unwrap();
        scene.bind("bad", path).await;
        let next_step =
            format!("zopp permission env-set -w acme -p backend -e vault --principal {}", scene.stage.principal());
        scene.told("AccessDenied", &[path, &next_step]).await;
        scene.counted("AccessDenied").await;
        scene.good_follows("1").await;
        scene.holds("bad", &[("A", "1")]).await;
        scene.stage.user.grant(path, scene.stage.principal(), "read").await.unwrap();
        scene.watcher.holds("bad", Duration::from_secs(90), &[("V", "1")]).await.unwrap();
    });
}

#[test]
fn a_key_name_that_kubernetes_does_not_allow() {
    on_stage("names", async |scene: Scene| {
        let environment = scene.in_step().await;
        scene.stage.user.set(&environment, "not/allowed", b"x").await.unwrap();
        scene.stage.user.set(&environment, "B", b"2").await.unwrap();
        scene.holds("bad", &[("A", "1"), ("B", "2")]).await;
        scene.told("InvalidKeyName", &["\"not/allowed\"", "Kubernetes"]).await;
        scene.counted("InvalidKeyName").await;
        scene.good_follows("1").await;
    });
}

#[test]
fn more_than_a_secret_may_hold() {
    on_stage("large", async |scene: Scene| {
        let environment = scene.in_step().await;
        scene.stage.user.set(&environment, "LARGE", &vec![b'x'; (1 << 20) + 1]).await.unwrap();
        scene.told("TooLarge", &["1048576", "data stays"]).await;
        scene.counted("TooLarge").await;
        scene.good_follows("1").await;
        scene.holds("bad", &[("A", "1")]).await;
        scene.stage.user.delete(&environment, "LARGE").await.unwrap();
        scene.operator.metric_becomes("konverge_pull_bindings", "reason=\"Synced\"", is(2)).await.unwrap();
    });
}

#[test]
fn an_immutable_secret() {
    on_stage("immutable", async |scene: Scene| {
        let environment = scene.in_step().await;
        scene.merge("bad", json!({ "immutable": true })).await;
        scene.stage.user.set(&environment, "A", b"2").await.unwrap();
        scene.told("Immutable", &["immutable", "create it again"]).await;
        scene.counted("Immutable").await;
        scene.good_follows("1").await;
        scene.holds("bad", &[("A", "1")]).await;
    });
}

#[test]
fn a_secret_deleted_and_made_again() {
    on_stage("again", async |scene: Scene| {
        let environment = scene.in_step().await;
        for round in 0..3 {
            scene.secrets().delete("bad", &DeleteParams::default()).await.unwrap();
            scene.bind("bad", &environment).await;
            scene.holds("bad", &[("A", "1")]).await;
            scene.good_follows(&round.to_string()).await;
        }
    });
}

#[test]
fn the_annotation_removed_and_put_back() {
    on_stage("removed", async |scene: Scene| {
        let environment = scene.in_step().await;
        scene.operator.metric_becomes("konverge_pull_streams", "", is(2)).await.unwrap();
        let bare = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "bad" } });
        scene.apply("bad", bare).await;
        scene.operator.metric_becomes("konverge_pull_streams", "", is(1)).await.unwrap();
        scene.stage.user.set(&environment, "A", b"2").await.unwrap();
        scene.good_follows("1").await;
        scene.holds("bad", &[("A", "1")]).await;
        scene.bind("bad", &environment).await;
        scene.holds("bad", &[("A", "2")]).await;
    });
}

/// Operators that cannot do anything, each with the good Secret's namespace: what they would have to be told is in their log.
async fn refuses_to_start(scene: &Scene, server: &str, credentials: &Path, parts: &[&str]) -> String {
    let run = scene.stage.control_plane.run_directory();
    let name = format!("refusing-{}-{}", scene.name, free_port().unwrap());
    let mut operator =
        Operator::start(run, &name, scene.stage.operator_kubeconfig(), server, credentials, &[]).unwrap();
    let status = operator.process().ended(SOON).await.unwrap();
    assert_eq!(status.code(), Some(1));
    let log = operator.process().logged();
    for part in parts {
        assert!(log.contains(part), "{part:?} is not in the log:\n{log}");
    }
    scene.good_follows(&name).await;
    log
}

#[test]
fn wrong_or_truncated_credentials() {
    on_stage("credentials", async |scene: Scene| {
        let whole = std::fs::read_to_string(scene.stage.credentials()).unwrap();
        let key =
            serde_json::from_str::<Value>(&whole).unwrap()["principals"][0]["private_key"].as_str().unwrap().to_owned();
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, content: &str| -> PathBuf {
            let path = folder.path().join(name);
            std::fs::write(&path, content).unwrap();
            path
        };
        let url = scene.stage.server.url();
        for (path, parts) in [
            (folder.path().join("missing.json"), vec!["missing.json", "does not exist", "zopp join"]),
            (file("truncated.json", &whole[..whole.len() / 2]), vec!["truncated.json", "line", "column"]),
            (file("empty.json", ""), vec!["empty.json"]),
            (file("nobody.json", r#"{"principals":[]}"#), vec!["nobody.json", "no principal"]),
            (file("short.json", &whole.replace(&key, &key[..10])), vec!["short.json", "private_key"]),
        ] {
            let log = refuses_to_start(&scene, &url, &path, &parts).await;
            assert!(!log.contains(&key[..10]), "a key is in the log");
        }
    });
}

#[test]
fn a_server_address_without_scheme() {
    on_stage("scheme", async |scene: Scene| {
        let url = scene.stage.server.url();
        let address = url.strip_prefix("http://").unwrap();
        let parts = [address, "no scheme", &format!("http://{address}"), &format!("https://{address}")];
        refuses_to_start(&scene, address, scene.stage.credentials(), &parts).await;
    });
}

/// A Secret with data of ours, now looked after by an operator that talks to `server`: it is told `reason` and keeps its data.
async fn keeps_its_data(scene: Scene, server: &str, arguments: &[&str], reason: &str, parts: &[&str]) {
    let environment = scene.in_step().await;
    let namespace = scene.namespace.clone();
    let arguments = [&["--namespace", &namespace], arguments].concat();
    let Scene { stage, operator, watcher, good, name, .. } = scene;
    drop(operator);
    let run = stage.control_plane.run_directory();
    let operator = Operator::start(
        run,
        &format!("lost-{name}"),
        stage.operator_kubeconfig(),
        server,
        stage.credentials(),
        &arguments,
    )
    .unwrap();
    let scene = Scene { stage, name, namespace, operator, watcher, good };
    scene.told(reason, &[&[environment.as_str(), "data stays"], parts].concat()).await;
    let label = format!("reason=\"{reason}\"");
    scene.operator.metric_becomes("konverge_pull_bindings", &label, |count| count >= 1.0).await.unwrap();
    let (ready, why) = scene.operator.get("/readyz").await.unwrap();
    assert_eq!(ready, 503, "{why}");
    assert_eq!(scene.operator.get("/healthz").await.unwrap().0, 200);
    let held: BTreeMap<_, _> = scene.watcher.now("bad").unwrap().data;
    assert_eq!(held, BTreeMap::from([("A".to_owned(), b"1".to_vec())]));
}

#[test]
fn a_certificate_of_another_authority() {
    on_stage("certificate", async |scene: Scene| {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, content: String| -> PathBuf {
            let path = folder.path().join(name);
            std::fs::write(&path, content).unwrap();
            path
        };
        let (authority, certificate, key) = certificates();
        let (other, _, _) = certificates();
        let (certificate, key) = (write("server.pem", certificate), write("server.key", key));
        let (authority, other) = (write("ca.pem", authority), write("other.pem", other));
        let port = free_port().unwrap();
        let run = scene.stage.control_plane.run_directory();
        let spec = ProcessSpec::new("zopp-server-tls", binary("zopp-server").unwrap())
            .args(["--database-url", &format!("sqlite://{}/tls.db?mode=rwc", folder.path().display()), "serve"])
            .args([
                "--addr",
                &format!("127.0.0.1:{port}"),
                "--health-addr",
                &format!("127.0.0.1:{}", free_port().unwrap()),
            ])
            .args([Path::new("--tls-cert"), &certificate, Path::new("--tls-key"), &key]);
        let _server = Process::start(run, spec).unwrap();
        let url = format!("https://127.0.0.1:{port}");
        // With the right authority the server is reached, and does not know the principal.
        let arguments = ["--tls-ca-cert", authority.to_str().unwrap()];
        let reaching = Operator::start(
            run,
            "reaching",
            scene.stage.operator_kubeconfig(),
            &url,
            scene.stage.credentials(),
            &[["--namespace", scene.namespace.as_str()], arguments].concat(),
        )
        .unwrap();
        let label = "reason=\"CredentialsInvalid\"";
        reaching.metric_becomes("konverge_pull_bindings", label, is(1)).await.unwrap();
        drop(reaching);
        let arguments = ["--tls-ca-cert", other.to_str().unwrap()];
        keeps_its_data(scene, &url, &arguments, "ServerUnreachable", &["certificate", &url]).await;
    });
}

/// A CA, and a certificate of it for 127.0.0.1 with its key, all PEM.
fn certificates() -> (String, String, String) {
    let authority_key = KeyPair::generate().unwrap();
    let mut parameters = CertificateParams::new(Vec::new()).unwrap();
    parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = parameters.self_signed(&authority_key).unwrap();
    let issuer = Issuer::new(parameters, authority_key);
    let key = KeyPair::generate().unwrap();
    let server = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap().signed_by(&key, &issuer).unwrap();
    (authority.pem(), server.pem(), key.serialize_pem())
}

#[test]
fn a_server_that_answers_garbage() {
    on_stage("garbage", async |scene: Scene| {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 13\r\n\r\n<html></html>").await;
                    // Open until the other side has had enough, as servers do.
                    while stream.read(&mut [0; 1024]).await.is_ok_and(|read| read > 0) {}
                });
            }
        });
        keeps_its_data(scene, &url, &[], "BadServerAnswer", &["zopp"]).await;
    });
}
