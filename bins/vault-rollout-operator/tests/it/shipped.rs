//! Everything that the operator does, as a process under the shipped role and with a very verbose log. No permission is missing, none is
//! spare, and no value is where it does not belong.

use std::{collections::BTreeSet, fs, time::Duration};

use futures::future::join_all;
use k8s_openapi::api::{events::v1::Event, rbac::v1::PolicyRule};
use konverge_testkit::{
    ARGO_ROLLOUTS, ControlPlane, Options, Process, ProcessSpec, RoleUse, eventually, free_port, http_get,
};
use konverge_testkit_stores::{VaultOptions, VaultServer};
use kube::{
    Api, Client,
    api::{ApiResource, ListParams, Patch, PatchParams, PostParams},
    config::Kubeconfig,
    core::{DynamicObject, GroupVersionKind},
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

const ACCOUNT: &str = "vault-rollout-operator";
const METRICS_READER: &str = "vault-rollout-operator-metrics-reader";
const DEFINITION: &str = include_str!("../../../../deploy/crds/vaultsyncstatus.yaml");
const OWN_DEFINITION: &str = include_str!("../../../../deploy/crds/vaultrollouts.yaml");
const ROLE: &str = include_str!("../../../../deploy/rbac/vault-rollout-operator.yaml");

/// In the clear and as the API server would show it.
const VALUES: [&str; 4] = ["hunter-one-3141", "aHVudGVyLW9uZS0zMTQx", "hunter-two-2718", "aHVudGVyLXR3by0yNzE4"];

/// The part of all values in Vault, in the clear and in base64.
const IN_VAULT: [&str; 2] = ["canary-1618", "Y2FuYXJ5LTE2MTg"];

/// With group and version, and the plural.
const KINDS: [(&str, &str, &str); 5] = [
    ("Deployment", "apps/v1", "deployments"),
    ("StatefulSet", "apps/v1", "statefulsets"),
    ("DaemonSet", "apps/v1", "daemonsets"),
    ("CronJob", "batch/v1", "cronjobs"),
    ("Rollout", "argoproj.io/v1alpha1", "rollouts"),
];

const CLASSES: &str = include_str!("../../../../operators/roll/tests/definitions/secretproviderclasses.yaml");

/// Far longer than anything here takes, on a machine that does other things, too.
const SOON: Duration = Duration::from_mins(2);

/// A namespace, and a person in it.
struct View {
    client: Client,
    namespace: String,
}

impl View {
    fn api(&self, kind: &str, version: &str) -> Api<DynamicObject> {
        let (group, version) = version.split_once('/').unwrap_or(("", version));
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        Api::namespaced_with(self.client.clone(), &self.namespace, &resource)
    }

    async fn apply(&self, object: Value) {
        let text = |field: &str| object[field].as_str().unwrap().to_owned();
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        let (kind, version) = (text("kind"), text("apiVersion"));
        let parameters = PatchParams::apply("user").force();
        self.api(&kind, &version).patch(&name, &parameters, &Patch::Apply(&object)).await.unwrap();
    }

    async fn values(&self, value: &str) {
        let (metadata, data) = (json!({ "name": "db" }), json!({ "k": value }));
        self.apply(json!({ "apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": data })).await;
        self.apply(json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data })).await;
    }

    async fn workload(&self, kind: &str, version: &str) {
        let labels = json!({ "app": "app" });
        let uses = json!([{ "secretRef": { "name": "db" } }, { "configMapRef": { "name": "db" } }]);
        let mut pod = json!({
            "metadata": { "labels": labels },
            "spec": { "containers": [{ "name": "main", "image": "example.com/app", "envFrom": uses }] },
        });
        let selector = json!({ "matchLabels": labels });
        let spec = match kind {
            "CronJob" => {
                pod["spec"]["restartPolicy"] = "Never".into();
                json!({ "schedule": "@yearly", "suspend": true, "jobTemplate": { "spec": { "template": pod } } })
            }
            "StatefulSet" => json!({ "serviceName": "app", "selector": selector, "template": pod }),
            _ => json!({ "selector": selector, "template": pod }),
        };
        let metadata = json!({ "name": "app", "annotations": { "roll.konverge.dev/on-change": "true" } });
        self.apply(json!({ "apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec })).await;
    }

    fn vault_sync_status(&self) -> Api<DynamicObject> {
        let gvk = GroupVersionKind::gvk("stable.example.com", "v1", "VaultSyncStatus");
        let resource = ApiResource::from_gvk_with_plural(&gvk, "vaultsyncstatus");
        Api::namespaced_with(self.client.clone(), &self.namespace, &resource)
    }

    /// An object on which the original has left its finalizer.
    async fn of_original(&self) {
        let api = self.vault_sync_status();
        let served = async || api.list(&ListParams::default()).await.ok().map(drop);
        eventually(SOON, served).await.unwrap();
        let object = json!({
            "apiVersion": "stable.example.com/v1", "kind": "VaultSyncStatus",
            "metadata": { "name": "app", "finalizers": ["kopf.zalando.org/KopfFinalizerMarker"] },
            "spec": { "deployName": "app", "deployNamespace": self.namespace, "secretEngine": "secret", "secretPath": "app" },
        });
        api.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
    }

    /// One of our own kind, for the same.
    async fn of_ours(&self) {
        let api = self.api("VaultRollout", "konverge.dev/v1alpha1");
        eventually(SOON, async || api.list(&ListParams::default()).await.ok().map(drop)).await.unwrap();
        let secrets = json!([{ "mount": "secret", "path": "app" }]);
        let spec = json!({ "vaultSecrets": secrets, "targets": [{ "kind": "Deployment", "name": "app" }] });
        let metadata = json!({ "name": "app" });
        let object = json!({
            "apiVersion": "konverge.dev/v1alpha1", "kind": "VaultRollout", "metadata": metadata, "spec": spec,
        });
        self.apply(object).await;
    }

    /// One for what secrets hold in engines of both versions.
    async fn of_content(&self) {
        let secrets = json!([
            { "mount": "secret", "path": "content", "mode": "Content" }, { "mount": "old", "path": "content", "engineVersion": 1 },
        ]);
        let spec = json!({ "vaultSecrets": secrets, "targets": [{ "kind": "Deployment", "name": "app" }] });
        let object = json!({
            "apiVersion": "konverge.dev/v1alpha1", "kind": "VaultRollout", "metadata": { "name": "content" }, "spec": spec,
        });
        self.apply(object).await;
    }

    /// Whether it is told how each of them stands.
    async fn are_told(&self) -> bool {
        let is_told = async |name| {
            let object = self.api("VaultRollout", "konverge.dev/v1alpha1").get(name).await.unwrap();
            object.data["status"]["conditions"][0]["reason"] == "InSync"
        };
        is_told("app").await && is_told("content").await
    }

    /// Whether the Deployment was rolled for what this secret holds.
    async fn is_rolled_for(&self, source: &str) -> bool {
        let rolled = format!("{source} changed");
        self.events().await.iter().any(|event| {
            event.reason.as_deref() == Some("RolledOut")
                && event.note.as_deref().is_some_and(|note| note.contains(&rolled))
        })
    }

    /// Whether the finalizer is gone and how it stands was told.
    async fn is_taken_over(&self) -> bool {
        let object = self.vault_sync_status().get("app").await.unwrap();
        object.metadata.finalizers.is_none() && object.data["status"]["conditions"][0]["reason"] == "InSync"
    }

    /// The stamps of all.
    async fn stamps(&self) -> Vec<Option<String>> {
        let of = async |(kind, version, _): (&str, &str, &str)| {
            let object = self.api(kind, version).get("app").await.unwrap();
            let spec = &object.data["spec"];
            let template = if kind == "CronJob" { &spec["jobTemplate"]["spec"]["template"] } else { &spec["template"] };
            template["metadata"]["annotations"]["roll.konverge.dev/content"].as_str().map(str::to_owned)
        };
        join_all(KINDS.map(of)).await
    }

    /// Whether it was noted with what the pods of all run.
    async fn are_noted(&self) -> bool {
        let is_noted = async |(kind, version, _): (&str, &str, &str)| {
            let annotations = self.api(kind, version).get_metadata("app").await.unwrap().metadata.annotations;
            annotations.is_some_and(|annotations| annotations.contains_key("roll.konverge.dev/record"))
        };
        join_all(KINDS.map(is_noted)).await.into_iter().all(|is_noted| is_noted)
    }

    /// The objects that ask for rollouts, as they are.
    async fn askers(&self) -> String {
        let ours = self.api("VaultRollout", "konverge.dev/v1alpha1").list(&ListParams::default()).await.unwrap();
        let of_original = self.vault_sync_status().list(&ListParams::default()).await.unwrap();
        serde_json::to_string(&(ours, of_original)).unwrap()
    }

    async fn events(&self) -> Vec<Event> {
        let events = Api::<Event>::namespaced(self.client.clone(), &self.namespace);
        events.list(&ListParams::default()).await.unwrap().items
    }

    /// Annotates all of them, over and over, so that what is decided upon is not what is there.
    async fn meddle(&self) {
        for round in 0..20 {
            let change = json!({ "metadata": { "annotations": { "example.com/round": round.to_string() } } });
            let patch = Patch::Merge(&change);
            let meddle = async |(kind, version, _): (&str, &str, &str)| {
                self.api(kind, version).patch_metadata("app", &PatchParams::default(), &patch).await.unwrap();
            };
            join_all(KINDS.map(meddle)).await;
        }
    }
}

/// A token that may do what the page of roll says, with something to read.
async fn vault_token(vault: &VaultServer) -> String {
    vault.mount_kv("secret", 2).await.unwrap();
    vault.mount_kv("old", 1).await.unwrap();
    let secret = json!({ "data": { "k": VALUES[0] } });
    vault.request("POST", "secret/data/app", &secret).await.unwrap();
    write_content(vault, 0).await;
    let rules = r#"
path "+/metadata/*" { capabilities = ["read", "list"] }
path "secret/data/content" { capabilities = ["read"] }
path "old/content" { capabilities = ["read"] }
"#;
    vault.policy("rollout", rules).await.unwrap();
    vault.token(&["rollout"], json!({})).await.unwrap()
}

/// Writes what nobody is to see in both engines.
async fn write_content(vault: &VaultServer, round: usize) {
    // So that what it begins with stays what it is in every spelling.
    let value = format!("{}-{round}", IN_VAULT[0]);
    let fields = json!({ "text": value, "nested": { "list": [value] } });
    vault.request("POST", "secret/data/content", &json!({ "data": fields })).await.unwrap();
    vault.request("POST", "old/content", &fields).await.unwrap();
}

/// The token of an account that has the shipped role for readers of metrics.
async fn reader(plane: &ControlPlane, namespace: &str) -> String {
    let binding = format!(
        "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRoleBinding\nmetadata: {{name: reader}}\n\
         roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: {METRICS_READER}}}\n\
         subjects: [{{kind: ServiceAccount, name: reader, namespace: {namespace}}}]\n"
    );
    plane.apply(&binding).await.unwrap();
    let kubeconfig = plane.service_account_kubeconfig(namespace, "reader").await.unwrap();
    let kubeconfig = serde_json::to_value(Kubeconfig::read_from(kubeconfig).unwrap()).unwrap();
    kubeconfig["users"][0]["user"]["token"].as_str().unwrap().to_owned()
}

/// The metrics, which are for a reader with this token and for nobody else.
async fn metrics(address: &str, token: &str) -> String {
    assert_eq!(
        http_get(address, "/metrics").await.unwrap().0,
        401,
        "metrics are for clients that the API server knows"
    );
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request =
        format!("GET /metrics HTTP/1.1\r\nHost: test\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.contains("konverge_roll_"), "{answer}");
    answer
}

/// The rules of what is shipped that are the operator's.
fn rules() -> Vec<PolicyRule> {
    let documents = ROLE.split("\n---\n").map(|document| serde_saphyr::from_str::<Value>(document).unwrap());
    let roles = documents.filter(|document| {
        let is_role = document["kind"] == "ClusterRole" || document["kind"] == "Role";
        is_role && document["metadata"]["name"] != METRICS_READER
    });
    roles.flat_map(|role| serde_json::from_value::<Vec<PolicyRule>>(role["rules"].clone()).unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn no_permission_is_missing_or_spare_and_no_value_is_shown() {
    let plane = ControlPlane::start(Options::ours()).await.unwrap();
    plane.apply(ARGO_ROLLOUTS).await.unwrap();
    plane.apply(CLASSES).await.unwrap();
    let home = plane.namespace("operator").await.unwrap();
    let manifest = ROLE.replace("vault-rollout-operator-system", &home);
    let installed = plane.install(ACCOUNT, &home, &manifest).await.unwrap();
    let namespace = plane.namespace("shop").await.unwrap();
    let view = View { client: plane.admin_client().await.unwrap(), namespace };
    let served = async || view.api("Rollout", "argoproj.io/v1alpha1").list(&ListParams::default()).await.ok().map(drop);
    eventually(SOON, served).await.unwrap();
    let classes = view.api("SecretProviderClass", "secrets-store.csi.x-k8s.io/v1");
    eventually(SOON, async || classes.list(&ListParams::default()).await.ok()).await.unwrap();

    let vault = VaultServer::start(VaultOptions::default()).await.unwrap();
    let token = vault_token(&vault).await;
    let token_file = plane.run_directory().path().join("vault-token");
    fs::write(&token_file, &token).unwrap();
    plane.apply(DEFINITION).await.unwrap();
    view.of_original().await;
    plane.apply(OWN_DEFINITION).await.unwrap();
    view.of_ours().await;
    view.of_content().await;
    let address = format!("127.0.0.1:{}", free_port().unwrap());
    let spec = ProcessSpec::new(ACCOUNT, env!("CARGO_BIN_EXE_vault-rollout-operator"))
        .arg("--kubeconfig")
        .arg(installed.kubeconfig())
        .args(["--namespace", &view.namespace, "--bind-address", &address, "--min-interval", "0s", "--leader-elect"])
        .args(crate::stage::UNLIMITED)
        .args(["--vault-interval", "1s"])
        .args([
            "--enable-metrics-auth",
            "--runaway-changes",
            "0",
            "--vault-url",
            &format!("{}/v1/", vault.address()),
            "--vault-token-file",
        ])
        .arg(&token_file)
        .env("RUST_LOG", "trace");
    let mut process = Process::start(plane.run_directory(), spec).unwrap();
    let is_ready = || async { http_get(&address, "/readyz").await.is_ok_and(|(code, _)| code == 200) };
    process.ready("become ready", SOON, is_ready).await.unwrap();

    view.values(VALUES[0]).await;
    for (kind, version, _) in KINDS {
        view.workload(kind, version).await;
    }
    eventually(SOON, async || view.are_noted().await.then_some(())).await.unwrap();

    eventually(SOON, async || view.is_taken_over().await.then_some(())).await.unwrap();
    eventually(SOON, async || view.are_told().await.then_some(())).await.unwrap();

    // Each kind has to be found changed at a moment when it is decided upon, and is read again then.
    let log = plane.audit_log().unwrap();
    let account = format!("system:serviceaccount:{home}:{ACCOUNT}");
    let are_read_again = async || {
        log.catch_up(&view.client).await.unwrap();
        let entries = log.entries_of(&account).unwrap();
        let read = entries.iter().filter(|entry| entry.verb == "get").map(|entry| &*entry.object_ref.resource);
        let read: BTreeSet<_> = read.collect();
        KINDS.iter().all(|(_, _, plural)| read.contains(plural))
    };
    let mut values = [VALUES[2], VALUES[0]].into_iter().cycle();
    let mut before = view.stamps().await;
    let mut rounds = 0;
    // And something has to be told twice.
    let is_told_again = async || view.events().await.iter().any(|event| event.series.is_some());
    let is_rolled_for_vault = async || {
        view.is_rolled_for("VaultContent/secret:content").await && view.is_rolled_for("VaultV1/old:content").await
    };
    while rounds < 2 || !are_read_again().await || !is_told_again().await || !is_rolled_for_vault().await {
        rounds += 1;
        assert!(rounds < 60, "not every kind was found changed, or nothing was told again");
        tokio::join!(view.values(values.next().unwrap()), view.meddle(), write_content(&vault, rounds));
        let rolled = async || {
            let now = view.stamps().await;
            now.iter().zip(&before).all(|(now, before)| now.is_some() && now != before).then_some(now)
        };
        before = eventually(SOON, rolled).await.unwrap();
    }

    let reader = reader(&plane, &home).await;
    let metrics = metrics(&address, &reader).await;

    let objects = KINDS.map(async |(kind, version, _)| {
        let object = view.api(kind, version).get("app").await.unwrap();
        serde_json::to_string(&object).unwrap()
    });
    let places = [
        ("metrics", metrics),
        ("readiness", http_get(&address, "/readyz?verbose").await.unwrap().1),
        ("events", serde_json::to_string(&view.events().await).unwrap()),
        ("workloads", join_all(objects).await.concat()),
        ("objects", view.askers().await),
        ("arguments", fs::read_to_string(format!("/proc/{}/cmdline", process.pid().unwrap())).unwrap()),
    ];
    process.terminate(Duration::from_secs(40)).await.unwrap();
    let said = process.logged();
    assert!(said.contains("TRACE") && said.contains("konverge_roll"), "it says all it can");
    for (place, text) in places.iter().map(|(place, text)| (*place, text)).chain([("log", &said)]) {
        assert!(!text.is_empty(), "{place} says nothing at all");
        for value in VALUES.iter().copied().chain(IN_VAULT).chain([&*token, &reader]) {
            assert!(!text.contains(value), "{place} shows {value}");
        }
    }
    log.catch_up(&view.client).await.unwrap();
    let asked = log.entries_of(&account).unwrap();
    assert_eq!(RoleUse::of(&asked, &rules()), RoleUse::default(), "no 403 and no verb unused");
}
