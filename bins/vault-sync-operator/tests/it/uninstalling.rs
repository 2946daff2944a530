//! `drain` before an uninstall (W8, X9).

use std::time::Duration;

use k8s_openapi::api::admissionregistration::v1::{ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding};
use konverge_testkit::Process;
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde_json::json;

use crate::stage::{Stage, View, until};

#[tokio::test(flavor = "multi_thread")]
async fn drained_objects_can_be_deleted_without_the_operator_and_vault_stays() {
    let stage = Stage::shared().await;
    let namespace = stage.plane.namespace("drain").await.unwrap();
    let view = stage.view(&namespace).await;
    let (whole, app, declared) = (view.path("whole"), view.path("app/db"), view.path("declared"));
    let mut operator = stage.start(&namespace, |spec| spec).await;
    view.secret("db", &[("n", "1")], Some(&whole)).await.unwrap();
    view.deployment("app", "db", &view.path("app")).await.unwrap();
    view.vault_push("declared", "db", &declared).await.unwrap();
    until("all are in step", async || {
        Ok(view.is_synced("Secret", "db", &[&whole]).await?
            && view.is_synced("Deployment", "app", &[&app]).await?
            && view.is_synced("VaultPush", "declared", &[&declared]).await?)
    })
    .await;
    operator.process.terminate(Duration::from_secs(20)).await.unwrap();
    // One is stuck in its deletion already, as after an operator was taken away.
    view.delete("Secret", "db").await.unwrap();
    assert!(!view.is_gone("Secret", "db").await.unwrap());
    // Neither Vault nor a port is needed for it.
    let (spec, ..) = stage.operator(stage.kubeconfig(), &namespace, "http://127.0.0.1:1");
    let mut drain = Process::start(stage.plane.run_directory(), spec.arg("drain")).unwrap();
    let status = drain.ended(Duration::from_secs(20)).await.unwrap();
    assert!(status.success(), "{}", drain.logged());
    assert!(view.is_gone("Secret", "db").await.unwrap());
    let left = view.api("Deployment").get_metadata("app").await.unwrap().metadata;
    assert_eq!(left.finalizers, None);
    assert!(!left.annotations.unwrap().contains_key("vault-sync.io/status"));
    let declaration = view.api("VaultPush").get("declared").await.unwrap();
    assert_eq!(declaration.metadata.finalizers, None);
    assert_eq!(declaration.data["status"]["uid"].as_str().unwrap_or_default(), "", "{}", declaration.data);
    view.delete("Deployment", "app").await.unwrap();
    assert!(view.is_gone("Deployment", "app").await.unwrap());
    for path in [&whole, &app, &declared] {
        assert!(view.holds(path, "n", "1").await.unwrap(), "{path}");
    }
}

/// The permissions of our manifest beyond the role of the original's chart.
const BEYOND: [(&str, &str); 4] = [
    ("deployments, statefulsets, daemonsets", "deployments"),
    ("apiGroups: [batch]", "apiGroups: [nothing.example.com]"),
    ("apiGroups: [konverge.dev]", "apiGroups: [nothing.example.com]"),
    ("resources: [namespaces]", "resources: [nothing]"),
];

fn the_originals(manifest: String) -> String {
    BEYOND.iter().fold(manifest, |manifest, (ours, originals)| {
        assert!(manifest.contains(ours), "{ours}");
        manifest.replace(ours, originals)
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn under_the_originals_role_all_is_drained_that_was_written_on() {
    let stage = Stage::shared().await;
    let namespace = stage.plane.namespace("drain-original").await.unwrap();
    let view = stage.view(&namespace).await;
    let (_, kubeconfig) = stage.another(the_originals).await;
    let (whole, app) = (view.path("whole"), view.path("app/db"));
    let (spec, ..) = stage.operator(&kubeconfig, &namespace, stage.server.address());
    let mut operator = Process::start(stage.plane.run_directory(), spec).unwrap();
    view.secret("db", &[("n", "1")], Some(&whole)).await.unwrap();
    view.deployment("app", "db", &view.path("app")).await.unwrap();
    until("all are in step", async || {
        Ok(view.is_synced("Secret", "db", &[&whole]).await? && view.is_synced("Deployment", "app", &[&app]).await?)
    })
    .await;
    operator.terminate(Duration::from_secs(20)).await.unwrap();
    let (spec, ..) = stage.operator(&kubeconfig, &namespace, "http://127.0.0.1:1");
    let mut drain = Process::start(stage.plane.run_directory(), spec.arg("drain")).unwrap();
    let status = drain.ended(Duration::from_secs(20)).await.unwrap();
    let said = drain.logged();
    assert!(status.success(), "{said}");
    assert!(said.contains("statefulsets, daemonsets, cronjobs, jobs, vaultpushes"), "{said}");
    for (kind, name) in [("Secret", "db"), ("Deployment", "app")] {
        assert_eq!(view.api(kind).get_metadata(name).await.unwrap().metadata.finalizers, None, "{kind}");
        view.delete(kind, name).await.unwrap();
        assert!(view.is_gone(kind, name).await.unwrap(), "{kind}");
    }
    assert!(view.holds(&whole, "n", "1").await.unwrap() && view.holds(&app, "n", "1").await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_may_not_be_listed_and_may_have_been_written_on_makes_drain_fail_when_the_others_are_released() {
    let stage = Stage::shared().await;
    let namespace = stage.plane.namespace("drain-some").await.unwrap();
    let view = stage.view(&namespace).await;
    let whole = view.path("whole");
    let mut operator = stage.start(&namespace, |spec| spec).await;
    view.secret("db", &[("n", "1")], Some(&whole)).await.unwrap();
    until("it is in step", async || view.is_synced("Secret", "db", &[&whole]).await).await;
    operator.process.terminate(Duration::from_secs(20)).await.unwrap();
    let without = |manifest: String| manifest.replace("deployments, statefulsets", "statefulsets");
    let (_, kubeconfig) = stage.another(without).await;
    let (spec, ..) = stage.operator(&kubeconfig, &namespace, "http://127.0.0.1:1");
    let mut drain = Process::start(stage.plane.run_directory(), spec.arg("drain")).unwrap();
    let status = drain.ended(Duration::from_secs(20)).await.unwrap();
    assert!(!status.success() && drain.logged().contains("cannot list deployments"), "{}", drain.logged());
    assert_eq!(view.api("Secret").get_metadata("db").await.unwrap().metadata.finalizers, None);
}

/// Has the API server refuse every change of what has this name in the namespace, and waits until it does.
async fn forbid_changes(view: &View, name: &str) {
    let policy = json!({ "metadata": { "name": view.namespace }, "spec": {
        "matchConstraints": {
            "namespaceSelector": { "matchLabels": { "kubernetes.io/metadata.name": view.namespace } },
            "resourceRules": [{ "apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["secrets"] }],
        },
        "validations": [{ "expression": format!("object.metadata.name != '{name}'"), "message": "nobody changes it" }],
    } });
    let binding = json!({ "metadata": { "name": view.namespace }, "spec": {
        "policyName": view.namespace, "validationActions": ["Deny"],
    } });
    let policies = Api::<ValidatingAdmissionPolicy>::all(view.client.clone());
    policies.create(&PostParams::default(), &serde_json::from_value(policy).unwrap()).await.unwrap();
    let bindings = Api::<ValidatingAdmissionPolicyBinding>::all(view.client.clone());
    bindings.create(&PostParams::default(), &serde_json::from_value(binding).unwrap()).await.unwrap();
    let touch = Patch::Merge(json!({ "metadata": { "labels": { "touched": "yes" } } }));
    let dry_run = PatchParams { dry_run: true, ..PatchParams::default() };
    until("the policy is in force", async || Ok(view.api("Secret").patch(name, &dry_run, &touch).await.is_err())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_object_that_cannot_be_released_keeps_no_other_from_it() {
    let stage = Stage::shared().await;
    let namespace = stage.plane.namespace("drain-stubborn").await.unwrap();
    let view = stage.view(&namespace).await;
    let (stubborn, willing, declared) = (view.path("a"), view.path("b"), view.path("declared"));
    let mut operator = stage.start(&namespace, |spec| spec).await;
    view.secret("a-stubborn", &[("n", "1")], Some(&stubborn)).await.unwrap();
    view.secret("b-willing", &[("n", "1")], Some(&willing)).await.unwrap();
    view.vault_push("declared", "a-stubborn", &declared).await.unwrap();
    until("all are in step", async || {
        Ok(view.is_synced("Secret", "a-stubborn", &[&stubborn]).await?
            && view.is_synced("Secret", "b-willing", &[&willing]).await?
            && view.is_synced("VaultPush", "declared", &[&declared]).await?)
    })
    .await;
    operator.process.terminate(Duration::from_secs(20)).await.unwrap();
    forbid_changes(&view, "a-stubborn").await;
    let drain = async || {
        let (spec, ..) = stage.operator(stage.kubeconfig(), &namespace, "http://127.0.0.1:1");
        let mut drain = Process::start(stage.plane.run_directory(), spec.arg("drain")).unwrap();
        (drain.ended(Duration::from_secs(20)).await.unwrap().success(), drain.logged())
    };
    let (succeeded, said) = drain().await;
    let named = format!("Secret {namespace}/a-stubborn keeps its finalizer");
    assert!(!succeeded && said.contains(&named) && said.contains("nobody changes it"), "{said}");
    for (kind, name, left) in
        [("Secret", "a-stubborn", true), ("Secret", "b-willing", false), ("VaultPush", "declared", false)]
    {
        let finalizers = view.api(kind).get_metadata(name).await.unwrap().metadata.finalizers;
        assert_eq!(finalizers.is_some(), left, "{kind} {name}");
    }
    let bindings = Api::<ValidatingAdmissionPolicyBinding>::all(view.client.clone());
    bindings.delete(&namespace, &DeleteParams::default()).await.unwrap();
    until("it can be drained", async || Ok(drain().await.0)).await;
    assert_eq!(view.api("Secret").get_metadata("a-stubborn").await.unwrap().metadata.finalizers, None);
}
