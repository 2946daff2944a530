//! `konverge migrate` on a real API server: it finds what uses another tool, and writes nothing.

use std::process::{Command, Output};

use k8s_openapi::api::{apps::v1::Deployment, core::v1::Secret};
use konverge_pull::objects::secret_pull::SecretPull;
use konverge_testkit::{ControlPlane, Options};
use kube::{Api, ResourceExt, api::ListParams};
use serde_json::{Value, json};

fn migrate(plane: &ControlPlane, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_konverge"));
    command.env_clear().env("HOME", "/nowhere").arg("migrate").args(arguments);
    command.arg("--kubeconfig").arg(plane.kubeconfig()).output().unwrap()
}

async fn create(plane: &ControlPlane, namespace: &str, version: &str, kind: &str, mut object: Value) {
    object["apiVersion"] = json!(version);
    object["kind"] = json!(kind);
    object["metadata"]["namespace"] = json!(namespace);
    plane.apply(&object.to_string()).await.unwrap();
}

fn pod(image: &str) -> Value {
    json!({ "metadata": { "labels": { "app": "a" } }, "spec": { "containers": [{ "name": "a", "image": image }] } })
}

fn deployment(name: &str, annotations: &Value, image: &str) -> Value {
    json!({
        "metadata": { "name": name, "annotations": annotations },
        "spec": { "selector": { "matchLabels": { "app": "a" } }, "template": pod(image) },
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn what_uses_another_tool_is_found_and_nothing_is_written() {
    let plane = ControlPlane::start(Options::default()).await.unwrap();
    let client = plane.admin_client().await.unwrap();
    let (shop, empty) = (plane.namespace("shop").await.unwrap(), plane.namespace("empty").await.unwrap());
    let auto = json!({ "reloader.stakater.com/auto": "true" });
    create(&plane, &shop, "apps/v1", "Deployment", deployment("web", &auto, "web")).await;
    create(&plane, &shop, "apps/v1", "Deployment", deployment("other", &json!({}), "web")).await;
    let mut reloader = deployment("reloader", &json!({}), "ghcr.io/stakater/reloader:v1.4.12");
    reloader["spec"]["template"]["spec"]["containers"][0]["args"] = json!(["--reload-on-delete=true"]);
    create(&plane, &shop, "apps/v1", "Deployment", reloader).await;
    let mut template = pod("report");
    template["spec"]["restartPolicy"] = json!("Never");
    let of_cron = json!({
        "metadata": { "name": "report", "annotations": auto },
        "spec": { "schedule": "@daily", "jobTemplate": { "spec": { "template": template } } },
    });
    create(&plane, &shop, "batch/v1", "CronJob", of_cron).await;
    let bound = json!({
        "zopp.dev/sync": "true", "zopp.dev/workspace": "acme", "zopp.dev/project": shop, "zopp.dev/environment": "dev",
        "reloader.stakater.com/match": "true",
    });
    create(
        &plane,
        &shop,
        "v1",
        "Secret",
        json!({ "metadata": { "name": "db", "annotations": bound }, "stringData": { "k": "hunter2" } }),
    )
    .await;
    let versions = async || {
        let deployments =
            Api::<Deployment>::namespaced(client.clone(), &shop).list(&ListParams::default()).await.unwrap();
        let secrets = Api::<Secret>::namespaced(client.clone(), &shop).list(&ListParams::default()).await.unwrap();
        let of_deployments = deployments.iter().map(ResourceExt::resource_version);
        of_deployments.chain(secrets.iter().map(ResourceExt::resource_version)).collect::<Vec<_>>()
    };
    let before = versions().await;

    let ran = migrate(&plane, &["reloader", "--dry-run", "-n", &shop]);
    let said = String::from_utf8(ran.stdout).unwrap();
    assert_eq!(ran.status.code(), Some(1), "something is lost: {said}");
    for (object, part) in [
        ("deployment/web", "roll follows them with --reloader-annotations"),
        ("deployment/reloader", "a deletion restarts nothing"),
        ("cronjob/report", "kubectl create job"),
        ("secret/db", "roll follows them"),
    ] {
        let begins = format!("{object} in namespace {shop}\n");
        let section = said.split("\n\n").find_map(|section| section.strip_prefix(&begins));
        let section =
            section.unwrap_or_else(|| panic!("{object}: {said}")).split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(section.contains(part), "{part}: {section}");
    }
    assert!(!said.contains("deployment/other") && !said.contains("hunter2"), "{said}");
    assert!(said.contains("4 objects use reloader. 2 of them lose a feature."), "{said}");

    let ran = migrate(&plane, &["zopp", "--dry-run", "-n", &shop, "-o", "json"]);
    assert_eq!(ran.status.code(), Some(0), "nothing is lost, and the cluster lacks a kind: {ran:?}");
    let report: Value = serde_json::from_slice(&ran.stdout).unwrap();
    assert_eq!((&report["objects"][0]["name"], &report["objects"][1]), (&json!("db"), &Value::Null));
    let ran = migrate(&plane, &["reloader", "-n", &empty]);
    assert!(ran.status.success() && ran.stdout.starts_with(b"No object uses reloader."), "{ran:?}");
    let ran = migrate(&plane, &["relauder"]);
    let told = String::from_utf8(ran.stderr).unwrap();
    assert_eq!(ran.status.code(), Some(2));
    assert!(told.contains("write one of reloader, wave, vault-sync-operator, zopp"), "{told}");

    let strangers = plane.service_account_kubeconfig(&shop, "stranger").await.unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_konverge"));
    let ran = command.args(["migrate", "wave", "--kubeconfig"]).arg(strangers).output().unwrap();
    let told = String::from_utf8(ran.stderr).unwrap();
    assert_eq!((ran.status.code(), told.contains("you may not list deployments")), (Some(2), true), "{told}");
    assert_eq!(versions().await, before, "it only reads");
}

/// The definition of a kind of another tool, of any form.
fn definition(group: &str, version: &str, kind: &str, plural: &str) -> Value {
    let any = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    let version = json!({ "name": version, "served": true, "storage": true, "schema": { "openAPIV3Schema": any } });
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": format!("{plural}.{group}") },
        "spec": {
            "group": group, "scope": "Namespaced", "versions": [version],
            "names": { "kind": kind, "plural": plural, "singular": kind.to_lowercase() },
        },
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn the_objects_that_take_the_place_of_others_are_printed_and_the_api_server_takes_them() {
    let plane = ControlPlane::start(Options::default()).await.unwrap();
    let shop = plane.namespace("shop").await.unwrap();
    for definition in [
        definition("external-secrets.io", "v1beta1", "SecretStore", "secretstores"),
        definition("external-secrets.io", "v1beta1", "ExternalSecret", "externalsecrets"),
        definition("secrets.hashicorp.com", "v1beta1", "VaultStaticSecret", "vaultstaticsecrets"),
    ] {
        plane.apply(&definition.to_string()).await.unwrap();
    }
    let vault = json!({ "server": "https://vault:8200", "path": "secret", "auth": { "tokenSecretRef": { "name": "t", "key": "token" } } });
    let eso = "external-secrets.io/v1beta1";
    let store = json!({ "metadata": { "name": "vault" }, "spec": { "provider": { "vault": vault } } });
    create(&plane, &shop, eso, "SecretStore", store).await;
    let spec = json!({
        "secretStoreRef": { "name": "vault" }, "dataFrom": [{ "extract": { "key": "shop/db" } }],
        "target": { "immutable": true, "template": { "data": { "URL": "pg://{{ .user }}" } } },
    });
    create(&plane, &shop, eso, "ExternalSecret", json!({ "metadata": { "name": "db" }, "spec": spec })).await;
    let spec = json!({ "mount": "secret", "path": "shop/api", "destination": { "name": "api" } });
    let secret = json!({ "metadata": { "name": "api" }, "spec": spec });
    create(&plane, &shop, "secrets.hashicorp.com/v1beta1", "VaultStaticSecret", secret).await;

    let ran = migrate(&plane, &["external-secrets", "-n", &shop]);
    let said = String::from_utf8(ran.stdout).unwrap();
    assert_eq!(ran.status.code(), Some(1), "something is lost: {said}");
    assert!(said.contains("a SecretPull makes the Secret db of vault://secret/shop/db"), "{said}");
    let crds = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/crds");
    for file in ["secretpulls.yaml", "secretsources.yaml"] {
        plane.apply(&std::fs::read_to_string(format!("{crds}/{file}")).unwrap()).await.unwrap();
    }
    for (tool, code, parts) in [
        ("external-secrets", 1, &["# LOST: target.immutable", "kind: SecretSource", "kind: SecretPull"][..]),
        ("vault-secrets-operator", 0, &["kind: SecretPull"]),
    ] {
        let ran = migrate(&plane, &[tool, "-n", &shop, "--manifests"]);
        let manifests = String::from_utf8(ran.stdout).unwrap();
        assert_eq!(ran.status.code(), Some(code), "{manifests}");
        assert!(parts.iter().all(|part| manifests.contains(part)), "{manifests}");
        plane.apply(&manifests).await.unwrap();
    }
    let pulls = Api::<SecretPull>::namespaced(plane.admin_client().await.unwrap(), &shop);
    let names: Vec<_> = pulls.list(&ListParams::default()).await.unwrap().iter().map(ResourceExt::name_any).collect();
    assert_eq!(names, ["api", "db"]);
}
