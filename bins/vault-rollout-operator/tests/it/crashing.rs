//! The operator, crashed at every write to the API server, and told nothing of the success of every one (F01, F02; I5, I6, I12, A6).

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use konverge_testkit::{
    ControlPlane, ProcessSpec,
    crash::{CrashTest, Scenario},
};
use kube::Client;
use serde_json::{Value, json};

use crate::{
    stage::{Result, Stage, install, operator},
    view::{ALL, View},
};

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
    test.quiet = Duration::from_millis(150);
    let report = test.run().await.unwrap();
    // The key of digests; for each of the two workloads a note and two rollouts. One is refused and repeated where a controller was quicker.
    assert!(report.writes.len() > 2 * 3, "{:?}", report.writes);
    // How often a controller is quicker differs from run to run, so that the last points may lie beyond what a run has of writes.
    let is_beyond = |fault: &String| fault.starts_with("the fault never befell it");
    let wrong: Vec<_> = report.findings.iter().filter(|finding| !finding.faults.iter().all(is_beyond)).collect();
    assert!(wrong.is_empty(), "{wrong:?}");
}
