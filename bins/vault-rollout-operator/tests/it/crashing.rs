//! The operator, crashed at every write to the API server, and told nothing of the success of every one: with what is in the cluster, and with what
//! is in Vault (F01, F02; I5, I6, I12, A6, A11).

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use konverge_roll::trigger::TriggerKind::VaultSyncStatus;
use konverge_testkit::{
    ControlPlane, ProcessSpec,
    crash::{CrashTest, Scenario},
};
use konverge_testkit_stores::VaultOptions;
use kube::{
    Client,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};

use crate::{
    stage::{Result, Stage, install, operator},
    vault::Vault,
    view::{ALL, View},
};

/// The number of runs at the same time, each with an installation of its own. They mostly wait for controllers and for
/// Vault.
const AT_ONCE: usize = 3;

/// The value of each step. The last is what it was at first.
const VALUES: [&str; 3] = ["1", "2", "1"];

/// First sight, a change, and a change back, of what two workloads use whose pod templates stand in different places.
struct Life;

impl Scenario for Life {
    fn name(&self) -> &'static str {
        "life"
    }

    fn steps(&self) -> usize {
        VALUES.len()
    }

    /// Each run has an installation of its own, so that the key of digests is made in each.
    async fn prepare(&self, plane: &ControlPlane, namespace: &str) -> Result<PathBuf> {
        install(plane, namespace).await
    }

    fn operator(&self, kubeconfig: &Path, namespace: &str) -> ProcessSpec {
        operator(kubeconfig, namespace).0
    }

    async fn change(&self, step: usize, client: &Client, namespace: &str) -> Result<()> {
        let view = View::new(client.clone(), namespace);
        view.secret("db", VALUES[step]).await?;
        if step == 0 {
            view.deployment("web", "db").await?;
            view.workload("CronJob", "job", "db", json!({ ALL: "true" })).await?;
        }
        Ok(())
    }

    async fn is_converged(&self, step: usize, client: &Client, namespace: &str) -> Result<bool> {
        let view = View::new(client.clone(), namespace);
        let job = view.seen("CronJob", "job").await?;
        Ok(view.is_rolled("web", step).await? && job.changes == step && job.content.is_some())
    }

    /// How often each was rolled, and whether what is recorded is about the same source and stands on the pods as well.
    async fn end_state(&self, client: &Client, namespace: &str) -> Result<Value> {
        let view = View::new(client.clone(), namespace);
        let mut state = json!({ "templates": view.templates("web").await? });
        for (kind, name) in [("Deployment", "web"), ("CronJob", "job")] {
            let seen = view.seen(kind, name).await?;
            let sources: Vec<_> = seen.content.iter().filter_map(Value::as_object).flat_map(|map| map.keys()).collect();
            state[name] = json!({
                "changes": seen.changes, "sources": sources, "is_stamped": seen.stamp.is_some(),
                "is_dated": seen.rolled.is_some(),
            });
        }
        Ok(state)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn f01_f02_it_survives_a_crash_at_every_write() {
    let stage = Stage::shared().await;
    let mut test = CrashTest::new(&stage.plane, &Life);
    (test.quiet, test.at_once) = (Duration::from_millis(150), AT_ONCE);
    let report = test.run().await.unwrap();
    // The key of digests; for each of the two workloads a note and two rollouts. One is refused and repeated where a controller was quicker.
    assert!(report.writes.len() > 2 * 3, "{:?}", report.writes);
    report.verdict().unwrap();
}

/// The state of the original is taken over, and two versions are written one after the other.
struct Followed {
    vault: Vault,
}

impl Scenario for Followed {
    fn name(&self) -> &'static str {
        "followed"
    }

    fn steps(&self) -> usize {
        2
    }

    async fn prepare(&self, plane: &ControlPlane, namespace: &str) -> Result<PathBuf> {
        install(plane, namespace).await
    }

    fn operator(&self, kubeconfig: &Path, namespace: &str) -> ProcessSpec {
        self.vault.operator(kubeconfig, namespace).0.arg("--write-spec-timestamp")
    }

    async fn change(&self, step: usize, client: &Client, namespace: &str) -> Result<()> {
        let view = View::new(client.clone(), namespace);
        // Each run has a secret of its own.
        self.vault.write(namespace, "the same").await;
        if step == 0 {
            view.secret("unchanged", "1").await?;
            view.workload("Deployment", "web", "unchanged", json!({})).await?;
            view.asks(VaultSyncStatus, "web", namespace).await?;
            let left = json!({ "metadata": {
                "finalizers": ["kopf.zalando.org/KopfFinalizerMarker"],
                "annotations": { "kopf.zalando.org/last-handled-configuration": "{}" },
            } });
            view.triggers(VaultSyncStatus).patch("web", &PatchParams::default(), &Patch::Merge(left)).await?;
        }
        Ok(())
    }

    async fn is_converged(&self, step: usize, client: &Client, namespace: &str) -> Result<bool> {
        let view = View::new(client.clone(), namespace);
        let status = view.status(VaultSyncStatus, "web").await?;
        let is_told = status["vault_sync"]["SyncStatus"] == "Already in Sync"
            && status["baseline"][0]["version"] == step + 1
            && view.says(VaultSyncStatus, "web", "InSync").await?.is_some();
        let object = view.triggers(VaultSyncStatus).get("web").await?;
        let is_told = is_told && object.data["spec"]["timeStamp"] == status["baseline"][0]["created"];
        let metadata = object.metadata;
        Ok(is_told && metadata.finalizers.is_none() && view.is_rolled("web", step).await?)
    }

    async fn end_state(&self, client: &Client, namespace: &str) -> Result<Value> {
        let view = View::new(client.clone(), namespace);
        let seen = view.seen("Deployment", "web").await?;
        let object = view.triggers(VaultSyncStatus).get("web").await?;
        let status = &object.data["status"];
        let conditions = status["conditions"].as_array().into_iter().flatten();
        let conditions: Vec<_> = conditions.map(|known| json!([known["type"], known["status"]])).collect();
        Ok(json!({
            "templates": view.templates("web").await?, "changes": seen.changes,
            "entries": seen.content.iter().filter_map(Value::as_object).map(serde_json::Map::len).sum::<usize>(),
            "is_stamped": seen.stamp.is_some(), "is_dated": seen.rolled.is_some(),
            "leftovers": object.metadata.annotations.unwrap_or_default().into_keys().collect::<Vec<_>>(),
            "version": status["baseline"][0]["version"], "conditions": conditions,
            "is_dated_there": status["lastRolloutTime"].is_string(),
        }))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn f01_f02_a6_with_vault_it_survives_a_crash_at_every_write() {
    let stage = Stage::shared().await;
    let scenario = Followed { vault: Vault::start(VaultOptions::default()).await };
    let mut test = CrashTest::new(&stage.plane, &scenario);
    (test.quiet, test.at_once) = (Duration::from_millis(150), AT_ONCE);
    let report = test.run().await.unwrap();
    // The key of digests; the finalizer and the annotation; a note, and a rollout; and at least twice how it stands.
    assert!(report.writes.len() > 6, "{:?}", report.writes);
    report.verdict().unwrap();
}
