//! The demo, as a newcomer runs it.

use std::{path::Path, process::Stdio, time::Duration};

use k8s_openapi::api::{core::v1::Namespace, rbac::v1::ClusterRole};
use konverge_e2e::binary;
use konverge_testkit::{ControlPlane, KUBECONFIG_VARIABLE, Options, eventually};
use kube::{Api, ResourceExt, api::ListParams};
use tokio::process::Command;

/// Runs the demo with a folder for temporary files of its own, and returns what it printed.
async fn demo(temporary: &Path, kubeconfig: Option<&Path>) -> String {
    let mut command = Command::new(binary("demo").unwrap());
    command.env("TMPDIR", temporary).stdin(Stdio::null());
    if let Some(path) = kubeconfig {
        command.env(KUBECONFIG_VARIABLE, path);
    }
    let output = command.output().await.unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
    said
}

#[tokio::test]
async fn the_demo_tells_what_happened_and_leaves_nothing_behind() {
    let temporary = tempfile::tempdir().unwrap();
    let said = demo(temporary.path(), None).await;
    assert!(said.contains("exactly the environment's keys: DATABASE_URL"), "{said}");
    let steps: Vec<u64> = said
        .lines()
        .filter_map(|line| line.split("in the Secret ").nth(1)?.split_whitespace().next()?.parse().ok())
        .collect();
    assert_eq!(steps.len(), 4, "{said}");
    assert!(steps.iter().all(|&milliseconds| milliseconds < 1000), "well under a second: {steps:?}");

    let left: Vec<_> = std::fs::read_dir(temporary.path()).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
    let processes = Command::new("ps").args(["-eo", "args="]).output().await.unwrap();
    let processes = String::from_utf8_lossy(&processes.stdout).into_owned();
    assert!(!processes.contains(&*temporary.path().to_string_lossy()), "{processes}");
}

#[tokio::test]
async fn on_a_named_cluster_the_demo_takes_away_what_it_made() {
    // The controller manager ends namespaces that were deleted.
    let options = Options { controller_manager: true, ..Options::default() };
    let control_plane = ControlPlane::start(options).await.unwrap();
    let client = control_plane.admin_client().await.unwrap();
    let namespaces = Api::<Namespace>::all(client.clone());
    let names = async || {
        let list = namespaces.list(&ListParams::default()).await.unwrap();
        list.items.iter().map(ResourceExt::name_any).collect::<Vec<_>>()
    };
    let before = names().await;
    let temporary = tempfile::tempdir().unwrap();
    demo(temporary.path(), Some(control_plane.kubeconfig())).await;
    let clean = || async { (names().await == before).then_some(()) };
    eventually(Duration::from_mins(1), clean).await.unwrap();
    assert!(Api::<ClusterRole>::all(client).get_opt("zopp-operator").await.unwrap().is_none());
}
