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
    inheriting::Inheriting,
    life::Plain,
    lives::Life,
    pushes::Pushes,
    stage::{Result, Stage, View},
};

/// A life with an account of its own, so that nothing is counted that the operators of other tests do at the same time.
struct Crashed<L>(L, &'static Stage, PathBuf);

impl<L: Life> Crashed<L> {
    async fn survives(life: L, writes: usize) {
        let stage = Stage::shared().await;
        let scenario = Self(life, stage, stage.another(|manifest| manifest).await.1);
        let mut test = CrashTest::new(&stage.plane, &scenario);
        (test.quiet, test.at_once) = (Duration::from_millis(150), L::AT_ONCE);
        let report = test.run().await.unwrap();
        assert!(report.writes.len() >= writes, "{:?}", report.writes);
        report.verdict().unwrap();
    }

    fn view(&self, client: &Client, namespace: &str) -> View {
        View::new(&self.1.server, client.clone(), namespace)
    }
}

impl<L: Life> Scenario for Crashed<L> {
    fn name(&self) -> &str {
        L::NAME
    }

    fn steps(&self) -> usize {
        L::STEPS
    }

    async fn prepare(&self, _: &ControlPlane, _: &str) -> Result<PathBuf> {
        // The list of orphans is its own.
        Ok(if L::FLAGS.is_empty() { self.2.clone() } else { self.1.another(|manifest| manifest).await.1 })
    }

    fn operator(&self, kubeconfig: &Path, namespace: &str) -> ProcessSpec {
        self.1.operator(kubeconfig, namespace, self.1.server.address()).0.args(L::FLAGS)
    }

    async fn change(&self, step: usize, client: &Client, namespace: &str) -> Result<()> {
        self.0.change(&self.view(client, namespace), step).await
    }

    async fn is_converged(&self, step: usize, client: &Client, namespace: &str) -> Result<bool> {
        self.0.is_converged(&self.view(client, namespace), step).await
    }

    async fn end_state(&self, client: &Client, namespace: &str) -> Result<Value> {
        let kinds = [
            ApiResource::erase::<k8s_openapi::api::core::v1::Secret>(&()),
            ApiResource::erase::<k8s_openapi::api::apps::v1::Deployment>(&()),
            ApiResource::erase::<konverge_push::vault_push::VaultPush>(&()),
        ];
        let mut state = snapshot(client, namespace, &kinds).await?;
        state["vault"] = self.0.left(&self.1.server, &self.view(client, namespace)).await?;
        Ok(state)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn it_survives_a_crash_at_every_write_to_the_api_server() {
    Crashed::survives(Plain, 8).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn it_survives_it_with_vault_pushes_by_label_and_into_a_shared_path() {
    Crashed::survives(Pushes, 8).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn it_survives_it_while_content_waits_for_its_deletion_and_is_handed_over() {
    Crashed::survives(Inheriting, 10).await;
}
