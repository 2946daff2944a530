//! Faults of the operator's configuration, or of its server.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use konverge_e2e::{Operator, binary};
use konverge_testkit::{Process, ProcessSpec, eventually, free_port};
use kube::api::ListParams;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use serde_json::Value;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

use super::{SOON, Scene, is, on_stage};

impl Scene {
    /// An operator in the place of the healthy one that cannot begin: it ends, with this in its log, and both Secrets stay as they
    /// are. Returns the log.
    async fn refuses_to_start(&mut self, server: &str, credentials: &Path, parts: &[&str]) -> String {
        self.operator.process().kill();
        let run = self.stage.control_plane.run_directory();
        let name = format!("refusing-{}-{}", self.name, free_port().unwrap());
        let before = self.versions().await;
        let arguments = ["--namespace", &self.namespace];
        let kubeconfig = self.stage.operator_kubeconfig();
        let mut operator = Operator::start(run, &name, kubeconfig, server, credentials, &arguments).unwrap();
        let status = operator.process().ended(SOON).await.unwrap();
        assert_eq!(status.code(), Some(1));
        let log = operator.process().logged();
        for part in parts {
            assert!(log.contains(part), "{part:?} is not in the log:\n{log}");
        }
        assert_eq!(self.versions().await, before, "it has touched a Secret");
        log
    }

    /// The healthy operator again, with what it missed.
    async fn recovers(&mut self, environment: &str) {
        self.stage.user.set(environment, "A", b"2").await.unwrap();
        self.operator.process().start_again().unwrap();
        self.holds("bad", &[("A", "2")]).await;
        self.good_follows("1").await;
    }

    async fn versions(&self) -> Vec<Option<String>> {
        let secrets = self.secrets().list(&ListParams::default()).await.unwrap().items.into_iter();
        secrets.map(|secret| secret.metadata.resource_version).collect()
    }
}

#[test]
fn wrong_or_truncated_credentials() {
    on_stage("credentials", async |mut scene: Scene| {
        let environment = scene.in_sync().await;
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
            let log = scene.refuses_to_start(&url, &path, &parts).await;
            assert!(!log.contains(&key[..10]), "a key is in the log");
        }
        scene.recovers(&environment).await;
    });
}

#[test]
fn a_server_address_without_scheme() {
    on_stage("scheme", async |mut scene: Scene| {
        let environment = scene.in_sync().await;
        let url = scene.stage.server.url();
        let address = url.strip_prefix("http://").unwrap();
        let parts = [address, "no scheme", &format!("http://{address}"), &format!("https://{address}")];
        scene.refuses_to_start(address, scene.stage.credentials(), &parts).await;
        scene.recovers(&environment).await;
    });
}

/// Both Secrets, with data of ours, now looked after by an operator that talks to `server`: each keeps its data and is told one of
/// `reasons`; one is told the first of them, with `parts`. No Secret can follow its environment where the server is the trouble.
async fn keeps_its_data(scene: Scene, server: &str, arguments: &[&str], reasons: &[&'static str], parts: &[&str]) {
    let environment = scene.in_sync().await;
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
    let told = async |name: &str| {
        let mut notes = Vec::new();
        for reason in reasons {
            notes.extend(scene.events(name, reason).await.into_iter().map(|(note, _)| (*reason, note)));
        }
        notes
    };
    for (name, environment) in [("bad", environment.as_str()), ("good", &scene.good)] {
        let (_, note) = eventually(SOON, async || told(name).await.into_iter().next()).await.unwrap();
        assert!(note.contains(environment) && note.contains("data stays"), "{note}");
    }
    let exactly = async || {
        let all = [told("bad").await, told("good").await].concat();
        all.into_iter().find_map(|(reason, note)| (reason == reasons[0]).then_some(note))
    };
    let note = eventually(SOON, exactly).await.unwrap();
    assert!(parts.iter().all(|part| note.contains(part)), "{parts:?} are not in the event: {note}");
    let counted = async || {
        let mut sum = 0.0;
        for reason in reasons {
            sum += scene.operator.metric("konverge_pull_bindings", &format!("reason=\"{reason}\"")).await.ok()?;
        }
        is(2)(sum).then_some(())
    };
    eventually(SOON, counted).await.unwrap();
    let (ready, why) = scene.operator.get("/readyz").await.unwrap();
    assert_eq!(ready, 503, "{why}");
    assert_eq!(scene.operator.get("/healthz").await.unwrap().0, 200);
    for (name, key, value) in [("bad", "A", b"1"), ("good", "GOOD", b"0")] {
        let held = scene.watcher.now(name).unwrap().data;
        assert_eq!(held, BTreeMap::from([(key.to_owned(), value.to_vec())]), "{name}");
    }
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
        keeps_its_data(scene, &url, &arguments, &["ServerUnreachable"], &["certificate", &url]).await;
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
        // Calls share a connection: one sees the garbage, and the others that the connection is closed upon it.
        keeps_its_data(scene, &url, &[], &["BadServerAnswer", "ServerUnreachable"], &["zopp"]).await;
    });
}
