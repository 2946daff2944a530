//! `doctor`, on a cluster of its own: it looks at all of it.

use k8s_openapi::api::{
    apps::v1::Deployment,
    coordination::v1::Lease,
    core::v1::{ConfigMap, Event, Pod, Secret},
    rbac::v1::{ClusterRole, PolicyRule, Role},
};
use konverge_testkit::ARGO_ROLLOUTS;
use kube::{
    Api,
    api::{ApiResource, DeleteParams, Patch, PatchParams},
    core::{DynamicObject, GroupVersionKind},
};
use serde_json::json;

use crate::stage::{Stage, World};

#[tokio::test(flavor = "multi_thread")]
async fn each_trouble_is_found_with_its_next_step() {
    let stage = Stage::set().await;
    let world = stage.world().await;
    let client = &world.client;
    let doctor = async || doctor(&world).await;
    doctor().await.ends(0).says(&["push note operator it is not installed", "pull note operator it is not installed"]);

    // Somebody runs it outside of the cluster, and it leads.
    let operator = world.operator(&["--leader-elect"]).await;
    world.secret("db", &[("a", "b")], json!({ "vault-sync.io/path": world.path("db") })).await;
    world.until("secret/db", "Synced").await;
    doctor().await.ends(1).says(&[
        "there is no Deployment labelled",
        "would release these objects when they are deleted: secret/db",
        "note watches no operator in this cluster watches these objects, which have opted in: secret/db",
    ]);

    stage.deploy(2).await;
    let well = doctor().await.ends(0);
    well.says(&[
        "ok operator",
        "2 of 2 ready",
        "ok settings one rule says who may write where",
        "ok permissions",
        "ok leader",
        "ok objects 1 of 1 in sync",
        "ok orphans",
        "ok vault it serves",
    ]);
    let findings = world.run("doctor -o json").await.ends(0).json();
    assert_eq!(findings["jobs"]["push"][0]["verdict"], "fine");

    stage.deploy(1).await;
    doctor().await.ends(0).says(&["note operator", "1 of 2 ready"]);
    stage.deploy(0).await;
    doctor().await.ends(1).says(&["WRONG operator", "0 of 2 ready", "kubectl logs deployment/"]);
    stage.deploy(2).await;

    world.secret("far", &[("a", "b")], json!({ "vault-sync.io/path": "secret/data/elsewhere/x" })).await;
    world.until("secret/far", "PathNotAllowed").await;
    doctor().await.ends(1).says(&[
        "ok objects 1 of 2 in sync",
        "WRONG objects PathNotAllowed: secret/far",
        "kubectl konverge why secret/far",
    ]);
    let secrets = Api::<Secret>::namespaced(client.clone(), &world.namespace);
    secrets.delete("far", &DeleteParams::default()).await.unwrap();

    leftovers_are_told(&stage, &world).await;
    an_annotated_pod_is_told(&world).await;
    an_annotated_rollout_of_an_excluded_kind_is_told(&stage, &world).await;

    stage.server.seal().await.unwrap();
    doctor().await.ends(1).says(&["WRONG vault", "sealed"]);
    stage.server.unseal().await.unwrap();

    let roles = Api::<ClusterRole>::all(client.clone());
    let less = Patch::Merge(
        json!({ "rules": [{ "apiGroups": [""], "resources": ["secrets"], "verbs": ["get", "list", "watch"] }] }),
    );
    roles.patch("vault-sync-operator-manager-role", &PatchParams::default(), &less).await.unwrap();
    let lacking = async || {
        let ran = doctor().await;
        ran.out.contains("may not").then_some(ran)
    };
    let ran = konverge_testkit::eventually(crate::stage::SOON, lacking).await.unwrap();
    ran.ends(1).says(&[
        "WRONG permissions",
        "may not get deployments",
        "patch secrets",
        "deploy/rbac/vault-sync-operator.yaml",
    ]);

    // It ends without giving its lease back.
    drop(operator);
    let leases = Api::<Lease>::namespaced(client.clone(), &stage.home);
    let old = Patch::Merge(json!({ "spec": { "renewTime": "2026-01-01T00:00:00.000000Z" } }));
    leases.patch("vault-sync-operator.io", &PatchParams::default(), &old).await.unwrap();
    doctor().await.ends(1).says(&["WRONG leader no replica has renewed the lease"]);
    leases.delete("vault-sync-operator.io", &DeleteParams::default()).await.unwrap();
    doctor().await.ends(1).says(&["WRONG leader there is no lease"]);
    let deployments = Api::<Deployment>::namespaced(client.clone(), &stage.home);
    let name = "vault-sync-operator-controller-manager";
    let scaled = Patch::Merge(json!({ "spec": { "replicas": 0 } }));
    deployments.patch(name, &PatchParams::default(), &scaled).await.unwrap();
    doctor().await.ends(1).says(&["WRONG operator", "--replicas=2", "WRONG finalizers"]);
    let wrong = json!([{ "op": "replace", "path": "/spec/template/spec/containers/0/args", "value": ["--allow-path=nonsense"] }]);
    let wrong: Patch<()> = Patch::Json(serde_json::from_value(wrong).unwrap());
    deployments.patch(name, &PatchParams::default(), &wrong).await.unwrap();
    doctor().await.ends(1).says(&["WRONG settings", "nonsense"]);
}

/// The content that deleted objects have left.
async fn leftovers_are_told(stage: &Stage, world: &World<'_>) {
    let client = &world.client;
    let orphans = Api::<ConfigMap>::namespaced(client.clone(), &stage.home);
    let record = json!({
        "uid": "1", "state": "Synced", "since": "2026-01-01T00:00:00Z", "deletion": "soft",
        "paths": { "secret/data/left/db": { "mount": "secret", "kv": 2, "written": true } },
    });
    let orphan = json!({ "kind": "Secret", "namespace": world.namespace, "name": "gone", "record": record });
    let list = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "vault-sync-operator-orphans" },
        "data": { "1": orphan.to_string() },
    });
    orphans
        .patch("vault-sync-operator-orphans", &PatchParams::apply("test").force(), &Patch::Apply(&list))
        .await
        .unwrap();
    doctor(world).await.ends(1).says(&["WRONG orphans deleted objects with content left in Vault: 1"]);
    let left = format!("left behind, push: secret/data/left/db (of {}/Secret/gone)", world.namespace);
    world.run("status").await.ends(0).says(&[&left]);
    // The event that manage publishes about an item that it could not delete.
    let object =
        json!({ "apiVersion": "openzro.io/v1", "kind": "OZGroup", "namespace": world.namespace, "name": "devs" });
    let event = json!({
        "apiVersion": "v1", "kind": "Event", "metadata": { "name": "devs.1" }, "involvedObject": object, "type": "Warning",
        "reportingComponent": "openzro-operator", "reason": "LeftBehind", "message": "left behind group devs (g1)", "lastTimestamp": "2026-01-01T00:00:00Z",
    });
    let events = Api::<Event>::namespaced(client.clone(), &world.namespace);
    events.patch("devs.1", &PatchParams::apply("test"), &Patch::Apply(&event)).await.unwrap();
    let item = format!("left behind, manage: left behind group devs (g1) (of {}/OZGroup/devs)", world.namespace);
    world.run("status").await.ends(0).says(&[&left, &item]);
    // The operator's list has the same item, and one whose event the cluster has forgotten.
    let entry = |name: &str, item: &str| {
        let object = format!("OZGroup/{name}");
        json!({ "since": "2026-01-01T00:00:00Z", "namespace": world.namespace, "object": object, "item": item })
            .to_string()
    };
    let entries =
        json!({ "1": entry("devs", "left behind group devs (g1)"), "2": entry("ops", "left behind group ops (g2)") });
    let list = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "openzro-operator-deletions" }, "data": entries,
    });
    orphans.patch("openzro-operator-deletions", &PatchParams::apply("test"), &Patch::Apply(&list)).await.unwrap();
    let ops = format!("left behind, manage: left behind group ops (g2) (of {}/OZGroup/ops)", world.namespace);
    let told = world.run("status").await.ends(0);
    told.says(&[&item, &ops]);
    assert_eq!(told.out.matches("group devs").count(), 1, "{}", told.out);
    orphans.delete("openzro-operator-deletions", &DeleteParams::default()).await.unwrap();
    orphans.delete("vault-sync-operator-orphans", &DeleteParams::default()).await.unwrap();
    doctor(world).await.ends(0);
}

async fn an_annotated_pod_is_told(world: &World<'_>) {
    let client = &world.client;
    let pods = Api::<Pod>::namespaced(client.clone(), &world.namespace);
    let metadata = json!({ "name": "bare", "annotations": { "vault-sync.io/path": world.path("bare") } });
    let spec = json!({ "containers": [{ "name": "main", "image": "example.com/app" }] });
    let pod = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec });
    pods.patch("bare", &PatchParams::apply("test"), &Patch::Apply(&pod)).await.unwrap();
    doctor(world).await.ends(1).says(&[
        "WRONG annotations",
        "vault-sync.io/path has no effect on: pod/bare",
        "VaultPush",
    ]);
    world.run("doctor").await.says(&["WRONG annotations"]);
    let elsewhere = world.run_in("default", "doctor").await.out;
    assert!(!elsewhere.contains("WRONG annotations"), "{elsewhere}");
    pods.delete("bare", &DeleteParams::default().grace_period(0)).await.unwrap();
    doctor(world).await.ends(0);
}

/// With `--kinds`, the platform has excluded Rollouts. Another operator, of one namespace only, does not follow them elsewhere either.
async fn an_annotated_rollout_of_an_excluded_kind_is_told(stage: &Stage, world: &World<'_>) {
    stage.plane.apply(ARGO_ROLLOUTS).await.unwrap();
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("argoproj.io", "v1alpha1", "Rollout"));
    let rollouts = Api::<DynamicObject>::namespaced_with(world.client.clone(), &world.namespace, &kind);
    let metadata = json!({ "name": "canary", "annotations": { "vault-sync.io/path": world.path("canary") } });
    let spec = json!({ "template": { "spec": { "containers": [{ "name": "main", "image": "example.com/app" }] } } });
    let rollout = json!({ "apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, "spec": spec });
    rollouts.patch("canary", &PatchParams::apply("test"), &Patch::Apply(&rollout)).await.unwrap();
    let told = ["WRONG watches the operator does not watch these objects, which have opted in: rollout/canary"];
    for (arguments, expected) in [
        (vec!["--kinds=deployments,secrets"], &told[..]),
        (vec!["--namespace=elsewhere"], &["WRONG watches", "rollout/canary", "see --kinds and --namespace"]),
    ] {
        stage.deploy_with(&arguments).await;
        doctor(world).await.ends(1).says(expected);
    }
    stage.deploy(2).await;
    let said = doctor(world).await.out;
    assert!(!said.contains("watches"), "{said}");
    rollouts.delete("canary", &DeleteParams::default()).await.unwrap();
    let is_gone = async || rollouts.get_opt("canary").await.unwrap().is_none().then_some(());
    konverge_testkit::eventually(crate::stage::SOON, is_gone).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn each_permission_of_the_role_is_missed_by_its_name() {
    let stage = Stage::set().await;
    let world = stage.world().await;
    stage.deploy(2).await;
    let (role, cluster_role) = (ApiResource::erase::<Role>(&()), ApiResource::erase::<ClusterRole>(&()));
    let everywhere = Api::all_with(world.client.clone(), &cluster_role);
    each_is_missed(&world, &everywhere, "vault-sync-operator-manager-role", "").await;
    each_is_missed(&world, &everywhere, "vault-sync-operator-auth-role", "").await;
    let at_home = Api::namespaced_with(world.client.clone(), &stage.home, &role);
    let place = format!(" in namespace {}", stage.home);
    each_is_missed(&world, &at_home, "vault-sync-operator-own-namespace", &place).await;
}

/// Takes one permission after another from a role.
async fn each_is_missed(world: &World<'_>, api: &Api<DynamicObject>, role: &str, place: &str) {
    let rules: Vec<PolicyRule> = serde_json::from_value(api.get(role).await.unwrap().data["rules"].clone()).unwrap();
    assert!(!rules.is_empty());
    let change = async |rules: &[PolicyRule]| {
        let patch = Patch::Merge(json!({ "rules": rules }));
        api.patch(role, &PatchParams::default(), &patch).await.unwrap();
    };
    for (at, rule) in rules.iter().enumerate() {
        for resource in rule.resources.iter().flatten() {
            for verb in &rule.verbs {
                let others = |all: &[String], one: &String| all.iter().filter(|known| *known != one).cloned().collect();
                let resources = rule.resources.as_deref().unwrap_or_default();
                let mut less = rules.clone();
                less[at].resources = Some(vec![resource.clone()]);
                less[at].verbs = others(&rule.verbs, verb);
                if resources.len() > 1 {
                    less.push(PolicyRule { resources: Some(others(resources, resource)), ..rule.clone() });
                }
                less.retain(|rule| !rule.verbs.is_empty());
                change(&less).await;
                let of = [std::slice::from_ref(resource), rule.resource_names.as_deref().unwrap_or_default()]
                    .concat()
                    .join(" ");
                let missed = format!("may not {verb} {of}{place} → apply deploy/rbac/vault-sync-operator.yaml");
                says_in_time(world, &missed).await;
            }
        }
    }
    change(&rules).await;
    says_in_time(world, "ok permissions").await;
}

/// The API server learns of a role a moment after it was written.
async fn says_in_time(world: &World<'_>, words: &str) {
    let said = konverge_testkit::eventually(crate::stage::SOON, async || {
        let said = doctor(world).await.out.split_whitespace().collect::<Vec<_>>().join(" ");
        said.contains(words).then_some(())
    });
    if said.await.is_err() {
        doctor(world).await.says(&[words]);
    }
}

async fn doctor(world: &World<'_>) -> crate::stage::Ran {
    let mut command = world.plugin();
    crate::stage::ran(command.arg("doctor")).await
}
