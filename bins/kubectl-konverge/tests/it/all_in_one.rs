//! `doctor` where one process runs all jobs, as it is shipped.

use k8s_openapi::api::{apps::v1::Deployment, rbac::v1::ClusterRole};
use konverge_testkit::{ControlPlane, Options, eventually};
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use serde_json::json;
use tokio::process::Command;

use crate::stage::{Ran, SOON, ran};

const ROLE: &str = include_str!("../../../../deploy/rbac/konverge.yaml");
const DEPLOYMENT: &str = include_str!("../../../../deploy/konverge.yaml");
const NAME: &str = "konverge";

async fn doctor(plane: &ControlPlane) -> Ran {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kubectl-konverge"));
    ran(command.env_clear().env("KUBECONFIG", plane.kubeconfig()).arg("doctor")).await
}

#[tokio::test(flavor = "multi_thread")]
async fn each_job_of_one_process_is_found_with_its_own_settings() {
    let plane = ControlPlane::start(Options::ours()).await.unwrap();
    let client = plane.admin_client().await.unwrap();
    let home = plane.namespace(NAME).await.unwrap();
    for manifest in [ROLE, DEPLOYMENT] {
        plane.apply(&manifest.replace("konverge-system", &home)).await.unwrap();
    }
    let deployments = Api::<Deployment>::namespaced(client.clone(), &home);
    let ready = Patch::Merge(json!({ "status": { "replicas": 2, "readyReplicas": 2 } }));
    deployments.patch_status(NAME, &PatchParams::default(), &ready).await.unwrap();

    let found = doctor(&plane).await.ends(1);
    let operator = format!("ok operator {home}/konverge: 2 of 2 ready");
    for (job, settings) in [
        ("pull", "ok settings one rule says who may have what: *=*/{namespace}/* "),
        ("push", "ok settings one rule says who may write where: *=secret/data/{namespace}/* "),
        (
            "roll",
            "ok settings each workload at most once in 1m, at most 100 rollouts per minute, 25 concurrent rollouts \
             ok watches secrets, configmaps, deployments, statefulsets, daemonsets, cronjobs, rollouts ",
        ),
    ] {
        found.says(&[&format!(
            "{job} {operator} {settings}ok permissions service account {home}/konverge has all permissions"
        )]);
    }
    // Each elects, and none of them has run.
    found.says(&["there is no lease zopp-operator,", "there is no lease vault-sync-operator.io,"]);

    let roles = Api::<ClusterRole>::all(client);
    let less = json!({ "rules": [{ "apiGroups": [""], "resources": ["secrets"], "verbs": ["get", "list", "watch"] }] });
    roles.patch(NAME, &PatchParams::default(), &Patch::Merge(less)).await.unwrap();
    // The API server learns of a role a moment after it was written.
    let lacking = async || {
        let ran = doctor(&plane).await;
        ran.out.contains("may not").then_some(ran)
    };
    let lacking = eventually(SOON, lacking).await.unwrap();
    lacking.says(&["patch secrets", "→ apply deploy/rbac/konverge.yaml"]);
    assert!(!lacking.out.contains("deploy/rbac/vault"), "{}", lacking.out);

    let arguments = "/spec/template/spec/containers/0/args";
    let fewer = json!([{ "op": "replace", "path": arguments, "value": ["run", "--job=roll"] }]);
    let fewer: Patch<()> = Patch::Json(serde_json::from_value(fewer).unwrap());
    deployments.patch(NAME, &PatchParams::default(), &fewer).await.unwrap();
    doctor(&plane).await.says(&[
        "push note operator it is not installed",
        "pull note operator it is not installed",
        &format!("roll {operator}"),
    ]);
}
