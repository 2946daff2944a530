//! A lease for each job, the same as that of its own program.

use k8s_openapi::api::coordination::v1::Lease;
use konverge_e2e::binary;
use konverge_testkit::{Process, ProcessSpec};
use kube::Api;

use crate::{
    ending::IN_TIME,
    stage::{Stage, until},
};

const LEADS: &str = "leader_election_master_status";

#[tokio::test(flavor = "multi_thread")]
async fn a_job_whose_lease_another_program_holds_waits_while_the_others_work() {
    let stage = Stage::set().await.unwrap();
    let scene = stage.scene("leasing").await.unwrap();
    let leases = Api::<Lease>::namespaced(scene.client.clone(), &scene.home);
    let holder = async |name: &str| {
        let lease = leases.get_opt(name).await.unwrap().and_then(|lease| lease.spec);
        lease.and_then(|lease| lease.holder_identity).filter(|holder| !holder.is_empty())
    };
    // The drop-in, which looks after another namespace.
    let elsewhere = stage.zopp.control_plane.namespace("elsewhere").await.unwrap();
    let spec = ProcessSpec::new("vault-sync-operator", binary("vault-sync-operator").unwrap())
        .arg("-kubeconfig")
        .arg(&scene.kubeconfig)
        .args(["-vault-addr", stage.vault.address(), "-vault-auth-method=token", "-namespace", &elsewhere])
        .args(["-leader-elect", "-metrics-bind-address=0", "-health-probe-bind-address=0"])
        .env("VAULT_TOKEN", stage.vault.root_token());
    let mut other = Process::start(stage.zopp.control_plane.run_directory(), spec).unwrap();
    until("the other leads", async || Ok(holder("vault-sync-operator.io").await.is_some())).await;
    let first = holder("vault-sync-operator.io").await;

    scene.set("one").await.unwrap();
    let mut running = scene.start(&scene.lines(true)).await.unwrap();
    until("pull works", async || scene.is_pulled("one").await).await;
    scene.deploy().await.unwrap();
    until("roll works", async || scene.is_noted().await).await;
    for (job, leads) in [("pull", 1.0), ("push", 0.0), ("roll", 1.0)] {
        assert!((running.metric(job, LEADS, "").await - leads).abs() < f64::EPSILON, "{job}");
    }
    assert_eq!(holder("vault-sync-operator.io").await, first, "what is held is not taken");
    assert_eq!(scene.pushed().await.unwrap(), None, "who does not lead does not write");
    assert_eq!(running.get("/readyz").await, (200, "ok".to_owned()), "a standby is ready");

    assert!(other.terminate(IN_TIME).await.unwrap().success());
    until("push takes over", async || scene.is_pushed("one").await).await;
    assert!((running.metric("push", LEADS, "").await - 1.0).abs() < f64::EPSILON);
    assert!(running.process.terminate(IN_TIME).await.unwrap().success());
    for name in ["zopp-operator", "vault-sync-operator.io", "vault-rollout-operator"] {
        assert_eq!(holder(name).await, None, "{name} is given back");
    }
}
