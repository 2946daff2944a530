//! Everything that the operator does, under the shipped role and with a very verbose log. No permission is missing and none is spare
//! (W21), only permitted readers get metrics (W20), and no value is where it does not belong (I8, F36).

use std::{fs, path::PathBuf, time::Duration};

use k8s_openapi::api::{core::v1::Secret, events::v1::Event, rbac::v1::PolicyRule};
use konverge_testkit::{ARGO_ROLLOUTS, ProcessSpec, RoleUse, eventually, http_get};
use kube::{Api, api::ListParams, config::Kubeconfig};
use rcgen::{CertificateParams, KeyPair};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use tokio_rustls::{
    TlsConnector,
    rustls::{ClientConfig, RootCertStore, crypto::ring, pki_types::ServerName},
};

use crate::stage::{ACCOUNT, MANIFEST, SOON, Stage, View, until};

/// In the clear and as the API server would show it.
const VALUES: [&str; 4] = ["hunter-one-3141", "aHVudGVyLW9uZS0zMTQx", "hunter-two-2718", "aHVudGVyLXR3by0yNzE4"];

/// Secrets of a first sync.
const MANY: usize = 24;

const WORKLOADS: [&str; 6] = ["Deployment", "StatefulSet", "DaemonSet", "CronJob", "Job", "Rollout"];

/// Asks for the metrics over TLS.
async fn metrics(address: &str, roots: &RootCertStore, token: Option<&str>) -> (u16, String) {
    let config = ClientConfig::builder_with_provider(ring::default_provider().into())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots.clone())
        .with_no_client_auth();
    let stream = TcpStream::connect(address).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let mut stream = TlsConnector::from(std::sync::Arc::new(config)).connect(name, stream).await.unwrap();
    let token = token.map(|token| format!("Authorization: Bearer {token}\r\n")).unwrap_or_default();
    let request = format!("GET /metrics HTTP/1.1\r\nHost: localhost\r\n{token}Connection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    (answer.split(' ').nth(1).unwrap().parse().unwrap(), answer)
}

/// A certificate for metrics, and who trusts it.
struct Tls {
    certificate: PathBuf,
    key: PathBuf,
    roots: RootCertStore,
}

impl Tls {
    fn new(stage: &Stage) -> Self {
        let key = KeyPair::generate().unwrap();
        let made = CertificateParams::new(["localhost".to_owned()]).unwrap().self_signed(&key).unwrap();
        let file = |name: &str, content: String| {
            let file = stage.plane.run_directory().path().join(name);
            fs::write(&file, content).unwrap();
            file
        };
        let mut roots = RootCertStore::empty();
        roots.add(made.der().clone()).unwrap();
        Self { certificate: file("metrics.crt", made.pem()), key: file("metrics.key", key.serialize_pem()), roots }
    }

    /// The program with it.
    fn of(&self, spec: ProcessSpec) -> ProcessSpec {
        spec.arg("-metrics-cert-file").arg(&self.certificate).arg("-metrics-key-file").arg(&self.key)
    }
}

/// The token of a service account that may do what `role` allows, if there is one.
async fn token(stage: &Stage, name: &str, role: Option<&str>) -> String {
    let namespace = &stage.home;
    if let Some(role) = role {
        let binding = format!(
            "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRoleBinding\nmetadata: {{name: {name}}}\n\
             roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: {role}}}\n\
             subjects: [{{kind: ServiceAccount, name: {name}, namespace: {namespace}}}]\n"
        );
        stage.plane.apply(&binding).await.unwrap();
    }
    let kubeconfig = stage.plane.service_account_kubeconfig(namespace, name).await.unwrap();
    let kubeconfig = serde_json::to_value(Kubeconfig::read_from(kubeconfig).unwrap()).unwrap();
    kubeconfig["users"][0]["user"]["token"].as_str().unwrap().to_owned()
}

/// The rules of what is shipped that are the operator's.
fn rules() -> Vec<PolicyRule> {
    let documents = MANIFEST.split("\n---\n").map(|document| serde_saphyr::from_str::<Value>(document).unwrap());
    let roles = documents.filter(|document| {
        let is_role = document["kind"] == "ClusterRole" || document["kind"] == "Role";
        is_role && document["metadata"]["name"] != "vault-sync-operator-metrics-reader"
    });
    roles.flat_map(|role| serde_json::from_value::<Vec<PolicyRule>>(role["rules"].clone()).unwrap()).collect()
}

async fn events(view: &View) -> Vec<Event> {
    let events = Api::<Event>::namespaced(view.client.clone(), &view.namespace);
    events.list(&ListParams::default()).await.unwrap().items
}

/// Each kind is synced, rotated and deleted; something is wrong, right and wrong again.
async fn live(view: &View) {
    let whole = view.path("whole");
    view.secret("db", &[("password", VALUES[0])], Some(&whole)).await.unwrap();
    for kind in WORKLOADS {
        view.workload(kind, "app", "db", &view.path(kind)).await.unwrap();
    }
    let declared = view.path("declared");
    view.vault_push("declared", "db", &declared).await.unwrap();
    for value in [VALUES[0], VALUES[2]] {
        view.secret("db", &[("password", value)], Some(&whole)).await.unwrap();
        for kind in WORKLOADS {
            let path = format!("{}/db", view.path(kind));
            until(&format!("{kind} is in sync"), async || {
                Ok(view.holds(&path, "password", value).await? && view.is_synced(kind, "app", &[&path]).await?)
            })
            .await;
        }
        until("the VaultPush is in sync", async || {
            let is_synced = view.is_synced("VaultPush", "declared", &[&declared]).await?;
            Ok(is_synced && view.holds(&declared, "password", value).await?)
        })
        .await;
    }
    view.delete("VaultPush", "declared").await.unwrap();
    until("the VaultPush is gone", async || view.is_gone("VaultPush", "declared").await).await;
    let wrong = json!({ "vault-sync.io/secrets": format!("[{{\"name\": \"db\", \"keys\": [\"{}\"", "no-such-key") });
    for annotations in [wrong.clone(), json!({ "vault-sync.io/secrets": null }), wrong] {
        view.annotate("Secret", "db", annotations.clone()).await.unwrap();
        let state = if annotations["vault-sync.io/secrets"].is_null() { "Synced" } else { "InvalidSecretsAnnotation" };
        until(&format!("it is {state}"), async || {
            Ok(view.record("Secret", "db").await?.is_some_and(|record| record["state"] == state))
        })
        .await;
    }
    let again = eventually(SOON, || async {
        let is_it = |event: &&Event| event.reason.as_deref() == Some("InvalidSecretsAnnotation");
        events(view).await.iter().find(is_it).and_then(|event| event.series.clone())
    });
    again.await.unwrap();
    for kind in WORKLOADS {
        view.delete(kind, "app").await.unwrap();
        until(&format!("{kind} is gone"), async || view.is_gone(kind, "app").await).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn w20_metrics_are_for_those_who_may_get_them_and_no_token_goes_in_the_clear() {
    let stage = Stage::set().await;
    let namespace = stage.plane.namespace("metrics").await.unwrap();
    let view = stage.view(&namespace).await;
    let tls = Tls::new(&stage);
    // As it is shipped nothing is said of who may see them.
    let operator = stage.start(&namespace, |spec| tls.of(spec)).await;
    let path = view.path("db");
    view.secret("db", &[("password", VALUES[0])], Some(&path)).await.unwrap();
    until("db is in sync", async || view.is_synced("Secret", "db", &[&path]).await).await;
    let (reader, stranger) = (
        token(&stage, "reader", Some("vault-sync-operator-metrics-reader")).await,
        token(&stage, "stranger", None).await,
    );
    for (bearer, expected) in [(None, 401), (Some("nobody's"), 401), (Some(&*stranger), 403), (Some(&*reader), 200)] {
        let (code, shown) = metrics(&operator.metrics, &tls.roots, bearer).await;
        assert_eq!(code, expected, "{shown}");
        assert_eq!(shown.contains("vault_sync_operator_"), expected == 200, "{shown}");
    }
    assert!(http_get(&operator.metrics, "/metrics").await.is_err(), "who speaks without TLS is not answered");
    let (code, _) = http_get(&operator.health, "/metrics").await.unwrap();
    assert_ne!(code, 200, "nor are they served where nobody has to prove anything");
    for page in ["/healthz?verbose", "/readyz?verbose"] {
        let (_, shown) = http_get(&operator.health, page).await.unwrap();
        assert!(!shown.contains(&namespace), "no object is named there: {shown}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn w21_no_permission_is_missing_or_spare_and_no_value_is_shown() {
    let mut stage = Stage::set().await;
    let namespace = stage.plane.namespace("everything").await.unwrap();
    let view = stage.view(&namespace).await;
    stage.plane.apply(ARGO_ROLLOUTS).await.unwrap();
    let rollouts = view.api("Rollout");
    eventually(SOON, async || rollouts.list(&ListParams::default()).await.ok().map(drop)).await.unwrap();
    let tls = Tls::new(&stage);
    // Enough objects at once for the journal.
    let many: Vec<String> = (0..MANY).map(|number| format!("many-{number}")).collect();
    for name in &many {
        view.secret(name, &[("password", VALUES[0])], Some(&view.path(name))).await.unwrap();
    }
    let mut operator = stage
        .start(&namespace, |spec| {
            tls.of(spec)
                .args(["-leader-elect", "-finalizer-deadline", "2s", "-terminating-namespace-deadline", "1s"])
                .env("RUST_LOG", "trace")
        })
        .await;
    for name in &many {
        until(name, async || view.is_synced("Secret", name, &[&view.path(name)]).await).await;
    }
    let journal = Api::<Secret>::namespaced(view.client.clone(), &stage.home);
    let noted = ListParams::default().labels(konverge_push::journal::LABEL);
    until("nothing is in the journal", async || Ok(journal.list(&noted).await?.items.is_empty())).await;
    live(&view).await;

    let reader = token(&stage, "reader", Some("vault-sync-operator-metrics-reader")).await;
    let (code, shown) = metrics(&operator.metrics, &tls.roots, Some(&reader)).await;
    assert!(code == 200 && shown.contains("vault_sync_operator_sync_attempts_total"), "{shown}");

    // The paths that stay behind during an outage of Vault.
    stage.server.kill();
    view.delete("Secret", "db").await.unwrap();
    until("it is let go", async || view.is_gone("Secret", "db").await).await;
    let told = eventually(SOON, || async {
        events(&view).await.into_iter().find(|event| event.reason.as_deref() == Some("ReleasedWithOrphans"))
    });
    told.await.unwrap();
    let places = [
        ("metrics", shown),
        ("events", serde_json::to_string(&events(&view).await).unwrap()),
        ("arguments", fs::read_to_string(format!("/proc/{}/cmdline", operator.process.pid().unwrap())).unwrap()),
    ];
    operator.process.terminate(Duration::from_secs(20)).await.unwrap();
    let log = operator.process.logged();
    assert!(log.contains("TRACE") && log.contains("konverge_push"), "it says all it can");
    for (place, text) in places.iter().map(|(place, text)| (*place, text)).chain([("log", &log)]) {
        assert!(!text.is_empty(), "{place} says nothing at all");
        for value in VALUES.iter().copied().chain([stage.server.root_token(), &reader]) {
            assert!(!text.contains(value), "{place} shows {value}");
        }
    }
    let log = stage.plane.audit_log().unwrap();
    log.catch_up(&view.client).await.unwrap();
    let asked = log.entries_of(&format!("system:serviceaccount:{}:{ACCOUNT}", stage.home)).unwrap();
    assert_eq!(RoleUse::of(&asked, &rules()), RoleUse::default(), "no 403 and no verb unused");
}
