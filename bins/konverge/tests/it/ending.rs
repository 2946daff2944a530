//! How the process ends.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use serde_json::json;

use crate::stage::{Stage, until};

/// More than the grace of the program.
pub(crate) const IN_TIME: Duration = Duration::from_secs(40);

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_that_one_job_loses_ends_them_all_and_is_named() {
    let stage = Stage::set().await.unwrap();
    let scene = stage.scene("losing").await.unwrap();
    let [pull, _, roll] = scene.lines(true);
    let mut running = scene.start(&[pull, roll]).await.unwrap();
    let leases = Api::<Lease>::namespaced(scene.client.clone(), &scene.home);
    let leads = async |name: &str| {
        let lease = leases.get_opt(name).await?.and_then(|lease| lease.spec);
        Ok(lease.is_some_and(|lease| lease.holder_identity.is_some_and(|holder| !holder.is_empty())))
    };
    for name in ["zopp-operator", "vault-rollout-operator"] {
        until("both lead", async || leads(name).await).await;
    }
    let taken = Patch::Merge(json!({ "spec": { "holderIdentity": "somebody-else" } }));
    leases.patch("vault-rollout-operator", &PatchParams::default(), &taken).await.unwrap();
    let ended = running.process.ended(IN_TIME).await.unwrap();
    let logged = running.process.logged();
    assert_eq!(ended.code(), Some(1), "{logged}");
    let said = "the job roll failed: no longer the leader: lost the lease";
    assert!(logged.lines().last().is_some_and(|line| line.contains(said)), "{logged}");
    assert!(!leads("zopp-operator").await.unwrap_or(true), "the other job has given its lease back");
}
