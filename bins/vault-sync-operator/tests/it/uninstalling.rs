//! `drain` before an uninstall (W8, X9).

use std::path::PathBuf;

use k8s_openapi::api::admissionregistration::v1::{ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding};
use konverge_testkit::{Process, ProcessSpec};
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde_json::json;

use crate::stage::{SOON, Stage, View, until};

/// An installation with a lease of its own, which no other test takes.
struct Installation {
    stage: &'static Stage,
    /// The namespace of the operator.
    home: String,
    kubeconfig: PathBuf,
    view: View,
}

impl Installation {
    async fn new(name: &str) -> Self {
        Self::with(name, |manifest| manifest).await
    }

    /// One with another manifest.
    async fn with(name: &str, change: impl FnOnce(String) -> String) -> Self {
        let stage = Stage::shared().await;
        let (home, kubeconfig) = stage.another(change).await;
        let namespace = stage.plane.namespace(name).await.unwrap();
        let view = stage.view(&namespace).await;
        Self { stage, home, kubeconfig, view }
    }

    fn begin(&self, change: impl FnOnce(ProcessSpec) -> ProcessSpec, vault: &str) -> Process {
        let (spec, ..) = self.stage.operator(&self.kubeconfig, &self.view.namespace, vault);
        Process::start(self.stage.plane.run_directory(), change(spec)).unwrap()
    }

    /// Starts the operator.
    fn start(&self, arguments: &[&str]) -> Process {
        self.begin(|spec| spec.args(arguments), self.stage.server.address())
    }

    /// Starts the operator, and waits until Vault has the Secret `db`. It is at the path `whole`.
    async fn with_secret(&self, arguments: &[&str]) -> Process {
        let (view, whole) = (&self.view, self.view.path("whole"));
        let operator = self.start(arguments);
        view.secret("db", &[("n", "1")], Some(&whole)).await.unwrap();
        until("it is in sync", async || view.is_synced("Secret", "db", &[&whole]).await).await;
        operator
    }

    /// Starts a drain, which needs neither Vault nor a port.
    fn begin_drain(&self) -> Process {
        self.begin(|spec| spec.arg("drain"), "http://127.0.0.1:1")
    }

    /// Drains. Returns whether it succeeded, and its log.
    async fn drain(&self) -> (bool, String) {
        let mut drain = self.begin_drain();
        (drain.ended(SOON).await.unwrap().success(), drain.logged())
    }

    async fn finalizers(&self, kind: &str, name: &str) -> Option<Vec<String>> {
        self.view.api(kind).get_metadata(name).await.unwrap().metadata.finalizers
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn drained_objects_can_be_deleted_without_the_operator_and_vault_stays() {
    let installed = Installation::new("drain").await;
    let view = &installed.view;
    let (whole, app, declared) = (view.path("whole"), view.path("app/db"), view.path("declared"));
    let mut operator = installed.start(&[]);
    view.secret("db", &[("n", "1")], Some(&whole)).await.unwrap();
    view.deployment("app", "db", &view.path("app")).await.unwrap();
    view.vault_push("declared", "db", &declared).await.unwrap();
    until("all are in sync", async || {
        Ok(view.is_synced("Secret", "db", &[&whole]).await?
            && view.is_synced("Deployment", "app", &[&app]).await?
            && view.is_synced("VaultPush", "declared", &[&declared]).await?)
    })
    .await;
    operator.terminate(SOON).await.unwrap();
    // One is stuck in its deletion already, as after an operator was taken away.
    view.delete("Secret", "db").await.unwrap();
    assert!(!view.is_gone("Secret", "db").await.unwrap());
    let (succeeded, said) = installed.drain().await;
    assert!(succeeded, "{said}");
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

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_waits_until_the_operator_has_stopped() {
    let installed = Installation::new("drain-early").await;
    let view = &installed.view;
    let mut operator = installed.with_secret(&["-leader-elect"]).await;
    let mut drain = installed.begin_drain();
    // The log is that of all processes.
    let lease = format!("lease={}/", installed.home);
    let waits = |line: &str| line.contains("the operator holds its lease") && line.contains(&lease);
    until("the drain waits", async || Ok(drain.logged().lines().any(waits))).await;
    assert!(installed.finalizers("Secret", "db").await.is_some(), "{}", drain.logged());
    operator.terminate(SOON).await.unwrap();
    let status = drain.ended(SOON).await.unwrap();
    assert!(status.success(), "{}", drain.logged());
    assert_eq!(installed.finalizers("Secret", "db").await, None);
    view.delete("Secret", "db").await.unwrap();
    assert!(view.is_gone("Secret", "db").await.unwrap());
    assert!(view.holds(&view.path("whole"), "n", "1").await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_names_what_an_operator_without_a_lease_has_taken_up_again() {
    let installed = Installation::new("drain-beside").await;
    let view = &installed.view;
    let mut operator = installed.with_secret(&[]).await;
    let (succeeded, said) = installed.drain().await;
    let named = format!("Secret {}/db was released, and the operator has taken it up again", view.namespace);
    assert!(!succeeded && said.contains(&named) && said.contains("stop it"), "{said}");
    operator.terminate(SOON).await.unwrap();
    let (succeeded, said) = installed.drain().await;
    assert!(succeeded, "{said}");
    assert_eq!(installed.finalizers("Secret", "db").await, None);
}

/// The permissions of our manifest beyond the role of the original's chart.
const BEYOND: [(&str, &str); 5] = [
    ("deployments, statefulsets, daemonsets", "deployments"),
    ("apiGroups: [batch]", "apiGroups: [nothing.example.com]"),
    ("apiGroups: [argoproj.io]", "apiGroups: [nothing.example.com]"),
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
    let installed = Installation::with("drain-original", the_originals).await;
    let view = &installed.view;
    let (whole, app) = (view.path("whole"), view.path("app/db"));
    let mut operator = installed.start(&[]);
    view.secret("db", &[("n", "1")], Some(&whole)).await.unwrap();
    view.deployment("app", "db", &view.path("app")).await.unwrap();
    until("all are in sync", async || {
        Ok(view.is_synced("Secret", "db", &[&whole]).await? && view.is_synced("Deployment", "app", &[&app]).await?)
    })
    .await;
    operator.terminate(SOON).await.unwrap();
    let (succeeded, said) = installed.drain().await;
    assert!(succeeded, "{said}");
    assert!(said.contains("statefulsets, daemonsets, cronjobs, jobs, rollouts, vaultpushes"), "{said}");
    for (kind, name) in [("Secret", "db"), ("Deployment", "app")] {
        assert_eq!(installed.finalizers(kind, name).await, None, "{kind}");
        view.delete(kind, name).await.unwrap();
        assert!(view.is_gone(kind, name).await.unwrap(), "{kind}");
    }
    assert!(view.holds(&whole, "n", "1").await.unwrap() && view.holds(&app, "n", "1").await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_may_not_be_listed_and_may_have_been_written_on_makes_drain_fail_when_the_others_are_released() {
    let installed = Installation::new("drain-some").await;
    let mut operator = installed.with_secret(&[]).await;
    operator.terminate(SOON).await.unwrap();
    let without = |manifest: String| manifest.replace("deployments, statefulsets", "statefulsets");
    let (_, kubeconfig) = installed.stage.another(without).await;
    let installed = Installation { kubeconfig, ..installed };
    let (succeeded, said) = installed.drain().await;
    assert!(!succeeded && said.contains("cannot list deployments"), "{said}");
    assert_eq!(installed.finalizers("Secret", "db").await, None);
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
    let installed = Installation::new("drain-stubborn").await;
    let view = &installed.view;
    let (stubborn, willing, declared) = (view.path("a"), view.path("b"), view.path("declared"));
    let mut operator = installed.start(&[]);
    view.secret("a-stubborn", &[("n", "1")], Some(&stubborn)).await.unwrap();
    view.secret("b-willing", &[("n", "1")], Some(&willing)).await.unwrap();
    view.vault_push("declared", "a-stubborn", &declared).await.unwrap();
    until("all are in sync", async || {
        Ok(view.is_synced("Secret", "a-stubborn", &[&stubborn]).await?
            && view.is_synced("Secret", "b-willing", &[&willing]).await?
            && view.is_synced("VaultPush", "declared", &[&declared]).await?)
    })
    .await;
    operator.terminate(SOON).await.unwrap();
    forbid_changes(view, "a-stubborn").await;
    let (succeeded, said) = installed.drain().await;
    let named = format!("Secret {}/a-stubborn keeps its finalizer", view.namespace);
    assert!(!succeeded && said.contains(&named) && said.contains("nobody changes it"), "{said}");
    // It was not released, so nobody has taken it up again.
    assert!(!said.contains(&format!("Secret {}/a-stubborn was released", view.namespace)), "{said}");
    for (kind, name, left) in
        [("Secret", "a-stubborn", true), ("Secret", "b-willing", false), ("VaultPush", "declared", false)]
    {
        assert_eq!(installed.finalizers(kind, name).await.is_some(), left, "{kind} {name}");
    }
    let bindings = Api::<ValidatingAdmissionPolicyBinding>::all(view.client.clone());
    bindings.delete(&view.namespace, &DeleteParams::default()).await.unwrap();
    until("it can be drained", async || Ok(installed.drain().await.0)).await;
    assert_eq!(installed.finalizers("Secret", "a-stubborn").await, None);
}
