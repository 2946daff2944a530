//! Roll: what the plugin tells of workloads that restart when what they use changes, with the operator that does it.

use std::path::PathBuf;

use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{ConfigMap, Secret},
    rbac::v1::ClusterRole,
};
use konverge_roll::run::assemble;
use konverge_testkit::{ControlPlane, Options, eventually};
use konverge_testkit_stores::{VaultOptions, VaultServer};
use kube::{
    Api, Client,
    api::{DeleteParams, Patch, PatchParams},
    core::{ApiResource, DynamicObject, GroupVersionKind},
};
use serde_json::{Value, json};
use tokio::{process::Command, task::JoinHandle};

use crate::stage::{Ran, SOON, VALUES, ran};

const ACCOUNT: &str = "vault-rollout-operator";
const DEFINITION: &str = include_str!("../../../../deploy/crds/vaultrollouts.yaml");
const ROLE: &str = include_str!("../../../../deploy/rbac/vault-rollout-operator.yaml");
const DEPLOYMENT: &str = include_str!("../../../../deploy/vault-rollout-operator.yaml");
const ALL: &str = "roll.konverge.dev/on-change";

/// A control plane, a namespace in it, and a person with all of it.
struct World {
    plane: ControlPlane,
    client: Client,
    home: String,
    namespace: String,
    operator: PathBuf,
}

struct Operator(JoinHandle<()>);

impl Drop for Operator {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl World {
    async fn set() -> Self {
        let plane = ControlPlane::start(Options::ours()).await.unwrap();
        let home = plane.namespace("operator").await.unwrap();
        let manifest = ROLE.replace("vault-rollout-operator-system", &home);
        let operator = plane.install(ACCOUNT, &home, &manifest).await.unwrap().kubeconfig().to_owned();
        let namespace = plane.namespace("shop").await.unwrap();
        let client = plane.admin_client().await.unwrap();
        Self { plane, client, home, namespace, operator }
    }

    /// An operator for the namespace, with the role that is shipped, until it is dropped.
    async fn operator(&self, arguments: &[&str]) -> Operator {
        let common = [ACCOUNT, "--bind-address", "0", "--namespace", &self.namespace];
        let kubeconfig = ["--kubeconfig", self.operator.to_str().unwrap()];
        let given = [&common, kubeconfig.as_slice(), arguments].concat();
        let manager = assemble(konverge_roll::config::arguments(given.iter().map(Into::into))).await.unwrap();
        Operator(tokio::spawn(async { manager.run().await.unwrap() }))
    }

    /// The shipped manifest, with these arguments. There is no kubelet that would start any.
    async fn deploy(&self, arguments: &[&str]) {
        self.plane.apply(&DEPLOYMENT.replace("vault-rollout-operator-system", &self.home)).await.unwrap();
        let api = Api::<Deployment>::namespaced(self.client.clone(), &self.home);
        let place = "/spec/template/spec/containers/0/args";
        let change = json!([{ "op": "replace", "path": place, "value": arguments }]);
        let change: Patch<()> = Patch::Json(serde_json::from_value(change).unwrap());
        api.patch(ACCOUNT, &PatchParams::default(), &change).await.unwrap();
        let status = json!({ "status": { "replicas": 2, "readyReplicas": 2 } });
        api.patch_status(ACCOUNT, &PatchParams::default(), &Patch::Merge(&status)).await.unwrap();
    }

    async fn secret(&self, name: &str, password: &str, annotations: Value) {
        let metadata = json!({ "name": name, "annotations": annotations });
        let data = json!({ "password": password, "user": "shop" });
        let object = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": data });
        let api = Api::<Secret>::namespaced(self.client.clone(), &self.namespace);
        api.patch(name, &PatchParams::apply("user").force(), &Patch::Apply(&object)).await.unwrap();
    }

    async fn config_map(&self, name: &str, value: &str) {
        let object = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name }, "data": { "k": value },
        });
        let api = Api::<ConfigMap>::namespaced(self.client.clone(), &self.namespace);
        api.patch(name, &PatchParams::apply("user").force(), &Patch::Apply(&object)).await.unwrap();
    }

    /// A Deployment that uses one key of the Secret `db` and all of the `ConfigMap` `app`.
    async fn deployment(&self, name: &str, annotations: Value) {
        let labels = json!({ "app": name });
        let key = json!({ "name": "P", "valueFrom": { "secretKeyRef": { "name": "db", "key": "password" } } });
        let container = json!({
            "name": "main", "image": "example.com/app", "env": [key], "envFrom": [{ "configMapRef": { "name": "app" } }],
        });
        let pod = json!({ "metadata": { "labels": labels }, "spec": { "containers": [container] } });
        let object = json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": name, "annotations": annotations },
            "spec": { "selector": { "matchLabels": labels }, "template": pod },
        });
        let api = Api::<Deployment>::namespaced(self.client.clone(), &self.namespace);
        api.patch(name, &PatchParams::apply("user").force(), &Patch::Apply(&object)).await.unwrap();
    }

    fn workloads(&self, kind: &str, plural: &str) -> Api<DynamicObject> {
        let gvk = GroupVersionKind::gvk("apps", "v1", kind);
        let resource = ApiResource::from_gvk_with_plural(&gvk, plural);
        Api::namespaced_with(self.client.clone(), &self.namespace, &resource)
    }

    async fn run(&self, line: &str) -> Ran {
        self.run_as(self.plane.kubeconfig(), line).await
    }

    async fn run_as(&self, kubeconfig: &std::path::Path, line: &str) -> Ran {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kubectl-konverge"));
        command.env_clear().env("KUBECONFIG", kubeconfig).args(["-n", &self.namespace]).args(line.split(' '));
        ran(&mut command).await
    }

    /// A person with these rules in the namespace.
    async fn person(&self, rules: &str) -> PathBuf {
        let role = format!(
            "apiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata: {{name: person, namespace: {0}}}\nrules: {rules}\n---\n\
             apiVersion: rbac.authorization.k8s.io/v1\nkind: RoleBinding\nmetadata: {{name: person, namespace: {0}}}\n\
             roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: Role, name: person}}\n\
             subjects: [{{kind: ServiceAccount, name: person, namespace: {0}}}]\n",
            self.namespace
        );
        self.plane.apply(&role).await.unwrap();
        self.plane.service_account_kubeconfig(&self.namespace, "person").await.unwrap()
    }

    /// Waits until a verb says this.
    async fn until(&self, line: &str, says: &str) -> Ran {
        let said = eventually(SOON, async || {
            let ran = self.run(line).await;
            let words = ran.out.split_whitespace().collect::<Vec<_>>().join(" ");
            words.contains(says).then_some(ran)
        });
        let said = said.await;
        let Ok(ran) = said else { panic!("{line} never says {says:?}: {:?}", self.run(line).await) };
        ran
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_rolled_for_what_and_what_is_held_back() {
    let world = World::set().await;
    world.secret("db", VALUES[0], json!({})).await;
    world.config_map("app", "one").await;
    world.deployment("web", json!({ ALL: "true" })).await;
    world.deployment("silent", json!({})).await;
    world.deployment("wrong", json!({ ALL: "db" })).await;
    world.deploy(&["--min-interval=1h"]).await;
    world.until("status deploy/web", "roll Pending").await;
    let _operator = world.operator(&["--min-interval", "1h"]).await;

    world.until("status deploy/web", "roll Noted ConfigMap/app and 1 more").await.ends(0);
    world.run("why deploy/web").await.ends(0).says(&[
        "Noted",
        "rolled for Secret/db, key password: requested by roll.konverge.dev/on-change",
        "rolled for ConfigMap/app, all keys: requested by roll.konverge.dev/on-change",
        "last rolled never since it opted in",
        "now its pods run with the current content",
        "at most once in 1h, by --min-interval",
        "paths ConfigMap/app, digest",
        "nothing to do",
    ]);
    world.run("diff deploy/web").await.ends(0).says(&["Secret/db is in sync", "only its key password counts"]);
    world.run("status").await.ends(1).says(&["deployment/wrong roll InvalidAnnotation"]);
    let wrong = world.run("why deploy/wrong").await.ends(1);
    wrong.says(&[
        "the annotation roll.konverge.dev/on-change is \"db\"",
        "Warning InvalidAnnotation",
        "next fix the cause",
    ]);
    let silent = world.run("why deploy/silent").await.ends(0);
    silent.says(&["It has not opted in", "kubectl annotate deployment silent roll.konverge.dev/on-change=true"]);
    world
        .run("sync deploy/web")
        .await
        .ends(2)
        .says(&["roll needs no request", "kubectl rollout restart deployment/web"]);

    world.secret("db", VALUES[2], json!({})).await;
    world.until("status deploy/web", "roll RolledOut").await.ends(0);
    world.run("why deploy/web").await.ends(0).says(&[
        "RolledOut since",
        "Secret/db changed (roll.konverge.dev/on-change)",
        "Normal RolledOut: rolled: Secret/db changed",
    ]);
    // The next one has to wait for an hour.
    world.secret("db", VALUES[0], json!({})).await;
    let held = world.until("why deploy/web", "Normal WaitingForInterval").await;
    held.says(&[
        "now Secret/db changed (roll.konverge.dev/on-change): a restart is due",
        "held back until 20",
        "the minimum interval has not passed",
    ]);
    let differs = world.run("diff deploy/web").await.ends(1);
    differs.says(&[
        "Secret/db differs from the content in use: recorded digest",
        "now digest",
        "ConfigMap/app is in sync",
    ]);
    let shown = world.run("diff deploy/web -o json").await.ends(1).json();
    assert_eq!(shown["paths"][0]["fate"], "differs", "{shown}");

    // Its digests are nothing without the key, which is not for everybody.
    let rules = "[{apiGroups: [apps], resources: [deployments], verbs: [get, list]}]";
    let person = world.person(rules).await;
    world.run_as(&person, "why deploy/web").await.ends(0).says(&[
        "unknown which sources request its restart: you may not list secrets",
        "rolled for Secret/db, key password",
        "last rolled not known",
        "now not compared with what is recorded: you may not",
    ]);
    world.run_as(&person, "diff deploy/web").await.ends(2).says(&["comparing them needs their key and the content"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn r21_a_vault_rollout_tells_how_it_stands_and_a_workload_who_asks_for_it() {
    let world = World::set().await;
    world.plane.apply(DEFINITION).await.unwrap();
    let vault = VaultServer::start(VaultOptions::default()).await.unwrap();
    vault.mount_kv("secret", 2).await.unwrap();
    let write = async |value: &str| {
        vault.request("POST", "secret/data/app", &json!({ "data": { "k": value } })).await.unwrap();
    };
    write(VALUES[0]).await;
    let token = world.plane.run_directory().path().join("vault-token");
    std::fs::write(&token, vault.root_token()).unwrap();
    world.secret("db", VALUES[0], json!({})).await;
    world.config_map("app", "one").await;
    world.deployment("web", json!({})).await;
    let object = json!({
        "apiVersion": "konverge.dev/v1alpha1", "kind": "VaultRollout", "metadata": { "name": "all" },
        "spec": {
            "vaultSecrets": [{ "mount": "secret", "path": "app" }], "targets": [{ "kind": "Deployment", "name": "web" }],
        },
    });
    let resource = konverge_roll::trigger::TriggerKind::VaultRollout.resource();
    let api: Api<DynamicObject> = Api::namespaced_with(world.client.clone(), &world.namespace, &resource);
    api.patch("all", &PatchParams::apply("user"), &Patch::Apply(&object)).await.unwrap();
    world.until("status vroll/all", "roll Pending").await.ends(1);

    let reach = [format!("--vault-url={}/v1/", vault.address()), format!("--vault-token-file={}", token.display())];
    let _operator = world.operator(&[&*reach[0], &*reach[1], "--vault-interval=1s", "--min-interval=0s"]).await;
    world.until("status vroll/all", "roll InSync").await.ends(0);
    let web = format!("Deployment {}/web", world.namespace);
    world.run("why vroll/all").await.ends(0).says(&[
        "rolls for Vault/secret:app",
        &format!("rolls {web}"),
        "in sync 1 of 1 workloads run with the content of Vault",
    ]);
    world.run("why deploy/web").await.ends(0).says(&[
        "rolled for Vault/secret:app, all keys: requested by VaultRollout",
        &format!("trigger VaultRollout {}/all: InSync", world.namespace),
        "now its pods run with the current content",
    ]);
    world.run("pause vroll/all").await.ends(2).says(&["set its spec.suspend instead"]);

    write(VALUES[2]).await;
    let page = world.until("why vroll/all", "last rolled Deployment").await;
    page.says(&["for version 2 of Vault/secret:app: Vault/secret:app changed (VaultRollout)"]);
    let page = format!("{}{}", page.out, world.run("why deploy/web").await.out);
    assert!(VALUES.iter().all(|value| !page.contains(value)), "{page}");
}

/// The Deployment follows the `ConfigMap` alone, or the Secret as well.
#[tokio::test(flavor = "multi_thread")]
async fn why_names_missing_references() {
    for (follows, is_followed) in [("configmap/app", false), ("true", true)] {
        let world = World::set().await;
        world.secret("db", VALUES[0], json!({})).await;
        world.config_map("app", "one").await;
        world.deployment("web", json!({ ALL: follows })).await;
        world.deploy(&["--min-interval=0s"]).await;
        let _operator = world.operator(&["--min-interval", "0s"]).await;
        world.until("status deploy/web", "roll Noted").await;
        let secrets = Api::<Secret>::namespaced(world.client.clone(), &world.namespace);
        let patch = Patch::Merge(json!({ "data": { "password": null } }));
        secrets.patch("db", &PatchParams::default(), &patch).await.unwrap();
        let lacks = "held back new pods could not start, so it is not rolled: Secret/db has no key password.";
        let before = world.run("why deploy/web").await;
        before.says(&[lacks, "next remove the cause that holds it back"]);
        let runs = if is_followed { "earlier content, a part of which was removed" } else { "the current content" };
        before.says(&[&format!("now its pods run with {runs}")]);

        world.config_map("app", "two").await;
        let due = world.until("why deploy/web", "Warning ReferenceMissing").await;
        due.says(&["now ConfigMap/app changed (roll.konverge.dev/on-change): a restart is due", lacks]);
        secrets.delete("db", &DeleteParams::default()).await.unwrap();
        world.until("why deploy/web", "so it is not rolled: there is no Secret/db.").await;
        world.secret("db", VALUES[2], json!({})).await;
        world.until("status deploy/web", "roll RolledOut").await.ends(0);
        let after = world.run("why deploy/web").await.ends(0);
        after.says(&["now its pods run with the current content", "next nothing to do"]);
        assert!(!after.out.contains("held back"), "{after:?}");

        let rules = "[{apiGroups: [apps], resources: [deployments], verbs: [get, list]}]";
        let person = world.person(rules).await;
        let unknown = if is_followed {
            "not compared with what is recorded: you may not"
        } else {
            "unknown whether new pods could start: you may not get Secret/db"
        };
        world.run_as(&person, "why deploy/web").await.ends(0).says(&[unknown]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn it_is_paused_and_resumed_and_a_source_tells_who_is_rolled_for_it() {
    let world = World::set().await;
    world.secret("db", VALUES[0], json!({ "roll.konverge.dev/roll-users": "true" })).await;
    world.config_map("app", "one").await;
    world.deployment("web", json!({ ALL: "configmap/app", "vault-sync.io/path": "secret/data/shop" })).await;
    world.deployment("other", json!({})).await;
    let operator = world.operator(&["--min-interval", "0s"]).await;
    world.until("status deploy/web", "roll Noted").await;
    world.until("status deploy/other", "roll Noted Secret/db").await;
    world.run("status secrets").await.ends(0).says(&["secret/db roll Asks"]);
    let page = world.run("why secret/db").await.ends(0);
    page.says(&[
        "workloads that use it restart when its content changes",
        "deployment/other by roll.konverge.dev/roll-users, deployment/web by roll.konverge.dev/roll-users",
    ]);
    world.run("why deploy/other").await.ends(0).says(&[
        "rolled for Secret/db, key password: requested by roll.konverge.dev/roll-users",
        "not for ConfigMap/app, which its pods use, too",
    ]);
    world.run("pause secret/db").await.ends(2).says(&["roll pauses and resumes only workloads"]);

    // Push, which nobody runs here, is asked, too.
    world.run("pause deploy/web").await.ends(0).says(&["is paused for push and roll"]);
    world.until("status deploy/web", "roll Paused").await;
    world.config_map("app", "two").await;
    let held = world.until("why deploy/web", "Normal RolloutPaused").await.ends(1);
    held.says(&["held back until it is resumed", "next kubectl konverge resume deployment/web"]);
    world.run("resume deploy/web").await.ends(0).says(&["is resumed for push and roll"]);
    world.until("status deploy/web", "roll RolledOut").await;

    // Nobody rolls what changes from here on.
    drop(operator);
    let gone = Api::<ConfigMap>::namespaced(world.client.clone(), &world.namespace);
    gone.delete("app", &DeleteParams::default()).await.unwrap();
    world.run("diff deploy/web").await.says(&["ConfigMap/app would stay as it is: it is gone, and nothing restarts"]);
    let scaled = Patch::Merge(json!({ "spec": { "replicas": 0 } }));
    let deployments = Api::<Deployment>::namespaced(world.client.clone(), &world.namespace);
    deployments.patch("other", &PatchParams::default(), &scaled).await.unwrap();
    world.secret("db", VALUES[2], json!({ "roll.konverge.dev/roll-users": "true" })).await;
    let empty = world.run("diff deploy/other").await.ends(1);
    empty.says(&["Secret/db would be recorded: it has no pods that a restart would concern"]);
    world.run("why deploy/other").await.says(&["it has no pods: the change is still to be recorded"]);
    world.deployment("new", json!({ ALL: "secret/db:user" })).await;
    world.run("diff deploy/new").await.ends(1).says(&["Secret/db would be recorded: it is seen for the first time"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_doctor_finds_each_trouble_of_roll() {
    let world = World::set().await;
    let doctor = async || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kubectl-konverge"));
        ran(command.env_clear().env("KUBECONFIG", world.plane.kubeconfig()).arg("doctor")).await
    };
    doctor().await.ends(0).says(&["roll note operator it is not installed, and no object needs it"]);

    world.secret("db", VALUES[0], json!({})).await;
    world.config_map("app", "one").await;
    world.deployment("web", json!({ ALL: "true" })).await;
    doctor().await.says(&[
        "there is no Deployment labelled app.kubernetes.io/name=vault-rollout-operator",
        "Pending: deployment/web",
    ]);

    let operator = world.operator(&["--leader-elect"]).await;
    world.until("status deploy/web", "roll Noted").await;
    let shipped = ["--leader-elect", "--bind-address=:8080"];
    world.deploy(&shipped).await;
    doctor().await.ends(0).says(&[
        "ok operator",
        "2 of 2 ready",
        "ok settings each workload at most once in 1m, at most 100 rollouts per minute, 25 concurrent rollouts",
        "ok permissions",
        "ok key the key of digests is in the secret",
        "ok leader",
        "ok watches secrets, configmaps, deployments, statefulsets, daemonsets, cronjobs, rollouts",
        "ok objects 1 of 1 in sync",
    ]);

    world.deploy(&["--max-concurrent-rollouts=3", "--max-rollouts-per-minute=60", "--reloader-annotations"]).await;
    doctor().await.says(&[
        "60 rollouts per minute, 3 concurrent rollouts, annotations of Stakater Reloader",
        "2 processes work at the same time",
    ]);
    world.deployment("theirs", json!({ "reloader.stakater.com/auto": "true" })).await;
    world.deploy(&shipped).await;
    doctor().await.says(&["note settings", "which the operator does not follow: deployment/theirs"]);
    world.deployment("wrong", json!({ ALL: "yes" })).await;
    doctor()
        .await
        .ends(1)
        .says(&["WRONG objects InvalidAnnotation: deployment/wrong", "kubectl konverge why deployment/wrong"]);
    world.deploy(&["--leader-elect", "--kinds=statefulsets"]).await;
    doctor()
        .await
        .ends(1)
        .says(&["WRONG watches the operator does not watch these objects, which have opted in: deployment/"]);
    world.deploy(&["--leader-elect", "--namespace=elsewhere"]).await;
    doctor().await.ends(1).says(&["WRONG watches the operator does not watch these"]);
    world.deploy(&["--min-interval=soon"]).await;
    doctor().await.ends(1).says(&["WRONG settings", "soon"]);
    world.deploy(&shipped).await;

    drop(operator);
    let secrets = Api::<Secret>::namespaced(world.client.clone(), &world.home);
    let name = "vault-rollout-operator-digest-key";
    secrets.delete(name, &DeleteParams::default()).await.unwrap();
    doctor().await.says(&["note key there is no secret"]);
    let object =
        json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": name }, "stringData": { "key": "short" } });
    secrets.patch(name, &PatchParams::apply("user"), &Patch::Apply(&object)).await.unwrap();
    doctor().await.ends(1).says(&["WRONG key", "holds no key of digests", "kubectl delete secret"]);

    let roles = Api::<ClusterRole>::all(world.client.clone());
    let less = json!({ "rules": [{ "apiGroups": [""], "resources": ["secrets"], "verbs": ["get", "list", "watch"] }] });
    roles.patch(ACCOUNT, &PatchParams::default(), &Patch::Merge(less)).await.unwrap();
    let lacking = async || {
        let ran = doctor().await;
        ran.out.contains("may not").then_some(ran)
    };
    let ran = eventually(SOON, lacking).await.unwrap();
    ran.ends(1).says(&["WRONG permissions", "may not get configmaps", "deploy/rbac/vault-rollout-operator.yaml"]);
}

/// There is no controller here, so the status of the workloads is written by hand.
#[tokio::test(flavor = "multi_thread")]
async fn the_doctor_ends_with_1_for_a_failed_rollout_of_each_kind() {
    let world = World::set().await;
    world.secret("db", VALUES[0], json!({})).await;
    let kinds = [("Deployment", "deployments"), ("StatefulSet", "statefulsets"), ("DaemonSet", "daemonsets")];
    for (kind, plural) in kinds {
        let labels = json!({ "app": plural });
        let container = json!({ "name": "main", "image": "a", "envFrom": [{ "secretRef": { "name": "db" } }] });
        let pod = json!({ "metadata": { "labels": labels }, "spec": { "containers": [container] } });
        let mut spec = json!({ "selector": { "matchLabels": labels }, "template": pod });
        if kind == "StatefulSet" {
            spec["serviceName"] = "a".into();
        }
        let metadata = json!({ "name": "web", "annotations": { ALL: "true" } });
        let object = json!({ "apiVersion": "apps/v1", "kind": kind, "metadata": metadata, "spec": spec });
        let patch = Patch::Apply(&object);
        world.workloads(kind, plural).patch("web", &PatchParams::apply("user").force(), &patch).await.unwrap();
    }
    let _operator = world.operator(&["--min-interval=0s", "--rollout-timeout=3s"]).await;
    for (_, plural) in kinds {
        world.until(&format!("status {plural}/web"), "roll Noted").await;
    }
    world.secret("db", VALUES[1], json!({})).await;
    let under_way = eventually(SOON, async || {
        let deployments = world.workloads("Deployment", "deployments");
        let generation = deployments.get("web").await.unwrap().metadata.generation;
        let status = json!({ "observedGeneration": generation, "replicas": 1, "updatedReplicas": 1 });
        let change = Patch::Merge(json!({ "status": status }));
        deployments.patch_status("web", &PatchParams::default(), &change).await.unwrap();
        let page = world.run("why deployments/web").await.out;
        page.contains("its last restart was for the current content, and not all of its pods are available")
            .then_some(())
    });
    assert!(under_way.await.is_ok(), "{}", world.run("why deployments/web").await.out);
    for (kind, plural) in kinds {
        let workloads = world.workloads(kind, plural);
        let failed = eventually(SOON, async || {
            let object = workloads.get("web").await.unwrap();
            // Its controller has seen the newest template, and the pods of that do not become available.
            let status = match kind {
                "DaemonSet" => json!({
                    "desiredNumberScheduled": 1, "currentNumberScheduled": 1, "updatedNumberScheduled": 1,
                    "numberAvailable": 0, "numberMisscheduled": 0, "numberReady": 0,
                }),
                "StatefulSet" => json!({
                    "replicas": 1, "updatedReplicas": 0, "availableReplicas": 0,
                    "currentRevision": "a", "updateRevision": "b",
                }),
                _ => json!({ "replicas": 1, "updatedReplicas": 1, "unavailableReplicas": 1, "conditions": [{
                    "type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded",
                }] }),
            };
            let mut change = json!({ "status": status });
            change["status"]["observedGeneration"] = json!(object.metadata.generation);
            workloads.patch_status("web", &PatchParams::default(), &Patch::Merge(&change)).await.unwrap();
            let ran = world.run(&format!("status {plural}/web")).await;
            ran.out.contains("RolloutFailed").then_some(())
        });
        let failed = failed.await;
        assert!(failed.is_ok(), "{kind}: {}", world.run(&format!("status {plural}/web")).await.out);
        let why = world.run(&format!("why {plural}/web")).await.ends(1);
        why.says(&["RolloutFailed", "Secret/db changed", "now its last restart, for the current content, has failed"]);
        assert!(!why.out.contains("nothing to do"), "{}", why.out);
    }
    let doctor = world.run("doctor").await.ends(1);
    doctor.says(&["WRONG objects RolloutFailed:", "deployment/web", "statefulset/web", "daemonset/web"]);
}
