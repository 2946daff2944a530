//! The manifests that users apply.

use std::process::Stdio;

use k8s_openapi::api::apps::v1::Deployment;
use konverge_e2e::binary;
use konverge_testkit::{ControlPlane, Options};
use tokio::process::Command;

const DEPLOYMENT: &str = include_str!("../../deploy/zopp-operator.yaml");
const ROLE: &str = include_str!("../../deploy/rbac/zopp-operator.yaml");

fn deployment() -> Deployment {
    let document: serde_json::Value = serde_saphyr::from_str(DEPLOYMENT).unwrap();
    serde_json::from_value(document).unwrap()
}

#[tokio::test]
async fn the_api_server_takes_the_deployment_as_it_is_written_and_its_pods_where_they_are_restricted() {
    let control_plane = ControlPlane::start(Options::default()).await.unwrap();
    control_plane.would_take(DEPLOYMENT, "konverge-system").await.unwrap();
    control_plane.would_run_restricted(DEPLOYMENT).await.unwrap();
}

#[tokio::test]
async fn its_flags_and_its_account_are_those_of_the_program() {
    let pod = deployment().spec.unwrap().template.spec.unwrap();
    assert!(
        ROLE.contains(&format!("kind: ServiceAccount\nmetadata:\n  name: {}\n", pod.service_account_name.unwrap()))
    );
    assert!(pod.termination_grace_period_seconds > Some(30), "the program ends by itself within 30 s");
    let container = &pod.containers[0];
    let mut command = Command::new(binary("zopp-operator").unwrap());
    // Flags are read one after another, so an unknown one, or a value that is no good, is found before this one ends it all.
    command.args(container.args.as_ref().unwrap()).arg("--version").stdin(Stdio::null());
    let output = command.output().await.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let port = container.ports.as_ref().unwrap()[0].container_port;
    let help = Command::new(binary("zopp-operator").unwrap()).arg("--help").output().await.unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    assert!(help.contains(&format!("[default: 0.0.0.0:{port}]")), "{help}");
}
