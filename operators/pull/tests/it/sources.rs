//! Connections that custom resources declare: whose identity reads, and what becomes of a Secret when a connection changes.

use std::fs;

use clap::Parser;
use k8s_openapi::api::{
    core::v1::{Namespace, Secret, ServiceAccount},
    rbac::v1::ClusterRoleBinding,
};
use konverge_pull::{
    config::Config,
    objects::{
        secret_pull::SecretPull,
        secret_source::{ClusterSecretSource, SecretSource},
    },
    run::assemble,
};
use konverge_testkit::{ControlPlane, Options, until, until_true};
use konverge_testkit_stores::{VaultOptions, VaultServer};
use kube::{
    Api, Client,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use crate::{
    objects::{apply, install, is_told, told},
    world::{Operator, QUIET, World, control_plane},
};

/// A Vault in which team a and team b each have a folder, and a namespace of team a.
struct Stage {
    vault: VaultServer,
    world: World,
    operator: Operator,
}

impl Stage {
    async fn new() -> Self {
        let vault = vault().await;
        let world = World::new().await;
        install(&world).await;
        let operator = world.restarted_without_zopp(&["--secret-sources-only"]).await;
        Self { vault, world, operator }
    }

    /// Stores a token of team a.
    async fn store_token(&self, secret: &str) {
        let token = self.vault.token(&["a"], json!({})).await.unwrap();
        self.world.apply(secret, json!({ "stringData": { "token": token } })).await;
    }

    fn spec(&self, login: &Value) -> Value {
        json!({ "vault": { "address": self.vault.address(), "interval": "10s", "login": login } })
    }

    async fn source(&self, name: &str, login: &Value) {
        apply::<SecretSource>(&self.world, name, self.spec(login)).await.unwrap();
    }

    async fn source_is_told(&self, name: &str, reason: &str) -> String {
        told::<SecretSource>(&self.world, name, reason).await
    }

    async fn pull(&self, name: &str, source: &str, path: &str) {
        apply::<SecretPull>(&self.world, name, pull_spec("SecretSource", source, path)).await.unwrap();
    }
}

fn pull_spec(kind: &str, source: &str, path: &str) -> Value {
    json!({ "sources": [{ "source": { "kind": kind, "name": source }, "from": format!("vault://secret/{path}") }] })
}

async fn vault() -> VaultServer {
    let vault = VaultServer::start(VaultOptions::default()).await.unwrap();
    vault.mount_kv("secret", 2).await.unwrap();
    for team in ["a", "b"] {
        let rules = format!(
            r#"path "secret/*" {{ capabilities = ["list"] }} path "secret/data/{team}/*" {{ capabilities = ["read"] }} path "secret/metadata/{team}/*" {{ capabilities = ["read"] }}"#
        );
        vault.policy(team, &rules).await.unwrap();
        let body = json!({ "data": { "TEAM": team } });
        vault.request("POST", &format!("secret/data/{team}/db"), &body).await.unwrap();
    }
    vault
}

#[tokio::test(flavor = "multi_thread")]
async fn a_team_reads_what_vault_grants_to_its_service_account_and_nothing_else() {
    let stage = Stage::new().await;
    let namespace = &stage.world.namespace;
    // Vault reviews tokens at the API server.
    let control_plane = control_plane().await;
    let reviewer = control_plane.service_account_kubeconfig(namespace, "reviewer").await.unwrap();
    let reviewer: Value = serde_json::from_slice(&fs::read(reviewer).unwrap()).unwrap();
    let binding = serde_json::from_value(json!({
        "metadata": { "name": format!("reviewer-of-{namespace}") },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:auth-delegator" },
        "subjects": [{ "kind": "ServiceAccount", "name": "reviewer", "namespace": namespace }],
    }));
    let bindings = Api::<ClusterRoleBinding>::all(stage.world.kubernetes.clone());
    bindings.create(&PostParams::default(), &binding.unwrap()).await.unwrap();
    stage.vault.request("POST", "sys/auth/kubernetes", &json!({ "type": "kubernetes" })).await.unwrap();
    let config = json!({
        "kubernetes_host": reviewer["clusters"][0]["cluster"]["server"],
        "kubernetes_ca_cert": fs::read_to_string(control_plane.run_directory().path().join("ca.crt")).unwrap(),
        "token_reviewer_jwt": reviewer["users"][0]["user"]["token"],
    });
    stage.vault.request("POST", "auth/kubernetes/config", &config).await.unwrap();
    let role = json!({
        "bound_service_account_names": ["app"], "bound_service_account_namespaces": [namespace], "token_policies": ["a"],
    });
    stage.vault.request("POST", "auth/kubernetes/role/team-a", &role).await.unwrap();

    let login = json!({ "kubernetes": { "serviceAccount": "app", "role": "team-a" } });
    stage.source("vault", &login).await;
    let text = stage.source_is_told("vault", "CredentialsInvalid").await;
    assert!(text.contains(&format!("ServiceAccount {namespace}/app does not exist")), "{text}");
    stage.pull("own", "vault", "a/db").await;
    is_told(&stage.world, "own", "CredentialsInvalid").await;

    let app: ServiceAccount = serde_json::from_value(json!({ "metadata": { "name": "app" } })).unwrap();
    let accounts = Api::namespaced(stage.world.kubernetes.clone(), namespace);
    accounts.create(&PostParams::default(), &app).await.unwrap();
    stage.world.holds("own", &[("TEAM", "a")]).await;
    stage.source_is_told("vault", "Connected").await;
    assert!(is_told(&stage.world, "own", "Synced").await.ends_with("through SecretSource/vault"));
    stage.pull("foreign", "vault", "b/db").await;
    let text = is_told(&stage.world, "foreign", "PermissionDenied").await;
    assert!(text.contains("b/db"), "{text}");
    assert!(stage.world.secrets().get_opt("foreign").await.unwrap().is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_waits_for_its_source_and_keeps_its_data_when_the_source_goes() {
    let stage = Stage::new().await;
    stage.pull("web", "vault", "a/db").await;
    let text = is_told(&stage.world, "web", "SourceNotReady").await;
    assert!(text.contains("SecretSource/vault does not exist"), "{text}");
    stage.source("vault", &json!({ "token": { "name": "credentials", "key": "token" } })).await;
    let text = stage.source_is_told("vault", "CredentialsUnavailable").await;
    assert!(text.ends_with("/credentials does not exist"), "{text}");
    until("the pull is told why", async || {
        let text = is_told(&stage.world, "web", "SourceNotReady").await;
        if text.contains("is not ready") { Ok(()) } else { Err(text) }
    })
    .await;

    // Nobody touches the source when its credentials come.
    stage.store_token("credentials").await;
    stage.world.holds("web", &[("TEAM", "a")]).await;
    stage.source_is_told("vault", "Connected").await;

    Api::<SecretSource>::namespaced(stage.world.kubernetes.clone(), &stage.world.namespace)
        .delete("vault", &DeleteParams::default())
        .await
        .unwrap();
    is_told(&stage.world, "web", "SourceNotReady").await;
    stage.world.holds("web", &[("TEAM", "a")]).await;
    stage.world.stays("web", &[&stage.operator]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn other_credentials_are_used_at_once_and_wrong_ones_change_nothing() {
    let stage = Stage::new().await;
    stage.store_token("credentials").await;
    stage.source("vault", &json!({ "token": { "name": "credentials", "key": "token" } })).await;
    stage.pull("web", "vault", "a/db").await;
    stage.world.holds("web", &[("TEAM", "a")]).await;

    stage.world.apply("credentials", json!({ "stringData": { "token": "hvs.wrong" } })).await;
    let text = stage.source_is_told("vault", "CredentialsInvalid").await;
    assert!(!text.contains("hvs.wrong"), "{text}");
    stage.world.holds("web", &[("TEAM", "a")]).await;
    let body = json!({ "data": { "TEAM": "a", "NEW": "1" } });
    stage.vault.request("POST", "secret/data/a/db", &body).await.unwrap();
    stage.store_token("credentials").await;
    stage.world.holds("web", &[("NEW", "1"), ("TEAM", "a")]).await;
    stage.source_is_told("vault", "Connected").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn at_rest_a_source_is_not_written() {
    let stage = Stage::new().await;
    stage.store_token("credentials").await;
    stage.source("vault", &json!({ "token": { "name": "credentials", "key": "token" } })).await;
    stage.source_is_told("vault", "Connected").await;
    let api = Api::<SecretSource>::namespaced(stage.world.kubernetes.clone(), &stage.world.namespace);
    let version = async || api.get("vault").await.unwrap().metadata.resource_version;
    let before = version().await;
    // It is looked at again.
    stage.store_token("credentials").await;
    tokio::time::sleep(QUIET).await;
    assert_eq!(version().await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_definition_refuses_what_is_wrong_with_a_sentence() {
    let stage = Stage::new().await;
    let token = json!({ "token": { "name": "credentials", "key": "token" } });
    let both = json!({ "token": { "name": "a", "key": "b" }, "kubernetes": { "serviceAccount": "a", "role": "b" } });
    let zopp = json!({ "address": "https://zopp:50051", "credentials": { "name": "a", "key": "b" } });
    let mut with_two_authorities = stage.spec(&token);
    with_two_authorities["vault"]["caBundle"] = "PEM".into();
    with_two_authorities["vault"]["caSecret"] = json!({ "name": "a", "key": "b" });
    let mut with_path = stage.spec(&token);
    with_path["vault"]["address"] = "https://vault:8200/v1".into();
    let mut with_both_stores = stage.spec(&token);
    with_both_stores["zopp"] = zopp;
    for (spec, sentence) in [
        (json!({}), "give either vault or zopp"),
        (with_both_stores, "give either vault or zopp"),
        (stage.spec(&both), "give exactly one of kubernetes, jwt, appRole, certificate and token"),
        (stage.spec(&json!({})), "give exactly one of kubernetes, jwt, appRole, certificate and token"),
        (with_two_authorities, "give either caBundle or caSecret"),
        (with_path, "should match"),
    ] {
        let error = apply::<SecretSource>(&stage.world, "wrong", spec).await.unwrap_err().to_string();
        assert!(error.contains(sentence), "{error}");
    }
}

/// Applies an object of the cluster.
async fn apply_cluster_source(client: &Client, spec: &Value) -> Result<ClusterSecretSource, kube::Error> {
    let object = json!({
        "apiVersion": "konverge.dev/v1alpha1", "kind": "ClusterSecretSource", "metadata": { "name": "main" }, "spec": spec,
    });
    Api::all(client.clone()).patch("main", &PatchParams::apply("user").force(), &Patch::Apply(&object)).await
}

/// It has a control plane of its own, since its operator serves all namespaces.
#[tokio::test(flavor = "multi_thread")]
async fn a_source_of_the_cluster_serves_the_namespaces_that_it_names_or_selects() {
    let vault = vault().await;
    let control_plane = ControlPlane::start(Options::ours()).await.unwrap();
    let world = World::on(&control_plane).await;
    crate::objects::install_on(&world).await;
    let client = world.kubernetes.clone();
    let config = ["zopp-operator", "--health-addr", "127.0.0.1:0", "--secret-sources-only", "--kubeconfig"];
    let kubeconfig = control_plane.kubeconfig().to_str().unwrap();
    let config = Config::try_parse_from([&config, [kubeconfig].as_slice()].concat()).unwrap();
    let manager = assemble(config, None).await.unwrap();
    let running = tokio::spawn(async { manager.run().await.unwrap() });

    let token = vault.token(&["a"], json!({})).await.unwrap();
    world.apply("credentials", json!({ "stringData": { "token": token } })).await;
    let spec = |namespaces: Value| {
        let mut spec = json!({
            "credentialsNamespace": world.namespace,
            "vault": { "address": vault.address(), "login": { "token": { "name": "credentials", "key": "token" } } },
        });
        spec.as_object_mut().unwrap().extend(namespaces.as_object().unwrap().clone());
        spec
    };
    let error = apply_cluster_source(&client, &spec(json!({}))).await.unwrap_err().to_string();
    assert!(error.contains("say who may use it"), "{error}");
    apply_cluster_source(&client, &spec(json!({ "namespaces": ["team-*"] }))).await.unwrap();
    for (namespace, label) in [("team-a", None), ("labelled", Some("yes")), ("other", None)] {
        let namespace: Namespace = serde_json::from_value(
            json!({ "metadata": { "name": namespace, "labels": label.map(|label| json!({ "pull": label })) } }),
        )
        .unwrap();
        Api::<Namespace>::all(client.clone()).create(&PostParams::default(), &namespace).await.unwrap();
        let name = namespace.metadata.name.unwrap();
        let object = json!({
            "apiVersion": "konverge.dev/v1alpha1", "kind": "SecretPull", "metadata": { "name": "web" },
            "spec": pull_spec("ClusterSecretSource", "main", "a/db"),
        });
        let api = Api::<SecretPull>::namespaced(client.clone(), &name);
        api.patch("web", &PatchParams::apply("user").force(), &Patch::Apply(&object)).await.unwrap();
    }
    let is_filled = async |namespace: &str| {
        Api::<Secret>::namespaced(client.clone(), namespace).get_opt("web").await.unwrap().is_some()
    };
    let reason = async |namespace: &str| {
        let object = Api::<SecretPull>::namespaced(client.clone(), namespace).get("web").await.unwrap();
        let conditions = serde_json::to_value(object.status).unwrap()["conditions"].clone();
        let ready = conditions.as_array().into_iter().flatten().find(|condition| condition["type"] == "Ready").cloned();
        ready.map(|ready| ready["reason"].as_str().unwrap().to_owned())
    };
    until_true("the named namespace is served", async || Ok(is_filled("team-a").await)).await;
    let is_refused = async |namespace: &str| reason(namespace).await.as_deref() == Some("NotAllowed");
    for refused in ["labelled", "other"] {
        until_true(&format!("{refused} is told"), async || Ok(is_refused(refused).await)).await;
        assert!(!is_filled(refused).await);
    }

    let selected = json!({ "namespaces": ["nobody"], "namespaceSelector": { "matchLabels": { "pull": "yes" } } });
    apply_cluster_source(&client, &spec(selected)).await.unwrap();
    until_true("the selected namespace is served", async || Ok(is_filled("labelled").await)).await;
    until_true("the other one is told", async || Ok(is_refused("team-a").await)).await;
    assert!(is_filled("team-a").await && !is_filled("other").await, "what is filled stays");
    running.abort();
}
