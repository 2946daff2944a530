//! The operator, crashed at every write to the API server, and told nothing of the success of every one (F01, F02; I1, I12, I13).

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use konverge_testkit::{
    ControlPlane, ProcessSpec,
    crash::{CrashTest, Scenario, snapshot},
};
use kube::{Client, api::ApiResource};
use serde_json::Value;

use crate::{
    life::{STEPS, change, is_converged, vault_state},
    stage::{Result, Stage, View},
};

/// With an account of its own, so that nothing is counted that the operators of other tests do at the same time.
struct Life(&'static Stage, PathBuf);

impl Scenario for Life {
    fn name(&self) -> &'static str {
        "life"
    }

    fn steps(&self) -> usize {
        STEPS
    }

    async fn prepare(&self, _: &ControlPlane, _: &str) -> Result<PathBuf> {
        Ok(self.1.clone())
    }

    fn operator(&self, kubeconfig: &Path, namespace: &str) -> ProcessSpec {
        self.0.operator(kubeconfig, namespace, self.0.server.address()).0
    }

    async fn change(&self, step: usize, client: &Client, namespace: &str) -> Result<()> {
        change(&View::new(&self.0.server, client.clone(), namespace), step).await
    }

    async fn is_converged(&self, step: usize, client: &Client, namespace: &str) -> Result<bool> {
        is_converged(&View::new(&self.0.server, client.clone(), namespace), step).await
    }

    async fn end_state(&self, client: &Client, namespace: &str) -> Result<Value> {
        let kinds = [
            ApiResource::erase::<k8s_openapi::api::core::v1::Secret>(&()),
            ApiResource::erase::<k8s_openapi::api::apps::v1::Deployment>(&()),
        ];
        let mut state = snapshot(client, namespace, &kinds).await?;
        state["vault"] = vault_state(&self.0.server, &View::new(&self.0.server, client.clone(), namespace)).await?;
        Ok(state)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn it_survives_a_crash_at_every_write_to_the_api_server() {
    let stage = Stage::shared().await;
    let life = Life(stage, stage.another(|manifest| manifest).await.1);
    let mut test = CrashTest::new(&stage.plane, &life);
    // Restart to converged.
    test.limit = Duration::from_secs(10);
    test.quiet = Duration::from_millis(150);
    let report = test.run().await.unwrap();
    assert!(report.writes.len() >= 8, "{:?}", report.writes);
    report.verdict().unwrap();
}
