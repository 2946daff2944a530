//! `doctor` where the chart installed the operators.

use k8s_openapi::api::{apps::v1::Deployment, rbac::v1::ClusterRole};
use konverge_testkit::{ControlPlane, Options, eventually};
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use serde_json::json;
use tokio::process::Command;

use crate::stage::{Ran, SOON, ran};

/// The chart as it is rendered with all parts: `bins/konverge/tests/shipped/rendered.rs` compares it with the chart.
const RENDERED: &str = include_str!("../../../konverge/tests/golden/everything.yaml");

/// The kinds that the plugin looks at.
const KINDS: [&str; 6] = ["ClusterRole", "ClusterRoleBinding", "Deployment", "Role", "RoleBinding", "ServiceAccount"];

/// Makes a release of the chart in a namespace, without pods. Helm writes the annotation; it is not part of the rendering.
async fn install(plane: &ControlPlane, home: &str) {
    let is_wanted = |document: &&str| {
        let kind = document.lines().find_map(|line| line.strip_prefix("kind: "));
        kind.is_some_and(|kind| KINDS.contains(&kind))
    };
    let documents: Vec<_> = RENDERED.split("\n---\n").filter(is_wanted).collect();
    plane.apply(&documents.join("\n---\n").replace("\"home\"", home)).await.unwrap();
    let deployments = Api::<Deployment>::namespaced(plane.admin_client().await.unwrap(), home);
    let annotation = json!({ "metadata": { "annotations": { "meta.helm.sh/release-name": "release" } } });
    let ready = json!({ "status": { "replicas": 2, "readyReplicas": 2 } });
    let parameters = PatchParams::default();
    for part in ["operator", "push", "roll", "manage"] {
        let name = format!("release-konverge-{part}");
        deployments.patch(&name, &parameters, &Patch::Merge(&annotation)).await.unwrap();
        deployments.patch_status(&name, &parameters, &Patch::Merge(&ready)).await.unwrap();
    }
}

async fn doctor(plane: &ControlPlane) -> Ran {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kubectl-konverge"));
    ran(command.env_clear().env("KUBECONFIG", plane.kubeconfig()).arg("doctor")).await
}

#[tokio::test(flavor = "multi_thread")]
async fn each_part_of_a_release_is_found_with_its_own_settings_and_permissions() {
    let plane = ControlPlane::start(Options::ours()).await.unwrap();
    let client = plane.admin_client().await.unwrap();
    let home = plane.namespace("home").await.unwrap();
    install(&plane, &home).await;

    // No lease exists, because nothing runs.
    let found = doctor(&plane).await.ends(1);
    for (job, part) in [("pull", "operator"), ("push", "push"), ("roll", "roll"), ("manage", "manage")] {
        let operator = format!("{home}/release-konverge-{part}");
        found.says(&[
            &format!("{job} ok operator {operator}: 2 of 2 ready"),
            &format!("ok permissions service account {operator} has all permissions"),
        ]);
    }
    found.says(&["one rule says who may write where: *=secret/data/{namespace}/*"]);

    let roles = Api::<ClusterRole>::all(client);
    let less = json!({ "rules": [{ "apiGroups": [""], "resources": ["secrets"], "verbs": ["get", "list", "watch"] }] });
    roles.patch("home-release-konverge-roll", &PatchParams::default(), &Patch::Merge(less)).await.unwrap();
    // The API server learns of a role a moment after it was written.
    let lacking = async || {
        let ran = doctor(&plane).await;
        ran.out.contains("may not").then_some(ran)
    };
    let lacking = eventually(SOON, lacking).await.unwrap();
    lacking.says(&[&format!("→ helm upgrade release -n {home} --reset-then-reuse-values")]);
}
