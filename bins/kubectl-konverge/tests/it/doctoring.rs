//! `doctor`, on a cluster of its own: it looks at all of it.

use k8s_openapi::api::{
    apps::v1::Deployment,
    coordination::v1::Lease,
    core::v1::{ConfigMap, Secret},
    rbac::v1::ClusterRole,
};
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams},
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
    doctor()
        .await
        .ends(1)
        .says(&["there is no Deployment labelled", "would let these go when they are deleted: secret/db"]);

    stage.deploy(2).await;
    let well = doctor().await.ends(0);
    well.says(&[
        "ok operator",
        "2 of 2 ready",
        "ok settings one rule says who may write where",
        "ok permissions",
        "ok leader",
        "ok objects 1 of 1 in step",
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
        "ok objects 1 of 2 in step",
        "WRONG objects PathNotAllowed: secret/far",
        "kubectl konverge why secret/far",
    ]);
    let secrets = Api::<Secret>::namespaced(client.clone(), &world.namespace);
    secrets.delete("far", &DeleteParams::default()).await.unwrap();

    let orphans = Api::<ConfigMap>::namespaced(client.clone(), &stage.home);
    let list = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "vault-sync-operator-orphans" }, "data": { "1": "{}" } });
    orphans
        .patch("vault-sync-operator-orphans", &PatchParams::apply("test").force(), &Patch::Apply(&list))
        .await
        .unwrap();
    doctor().await.ends(1).says(&["WRONG orphans of 1 deleted objects"]);
    orphans.delete("vault-sync-operator-orphans", &DeleteParams::default()).await.unwrap();
    doctor().await.ends(0);

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
    doctor().await.ends(1).says(&["WRONG leader nobody has renewed the lease"]);
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

async fn doctor(world: &World<'_>) -> crate::stage::Ran {
    let mut command = world.plugin();
    crate::stage::ran(command.arg("doctor")).await
}
