//! The operator, crashed at every one of its writes and told nothing of the success of every one (F01, F02; I1, I5, I6).

use std::{collections::BTreeMap, path::Path};

use configmapsync_operator::{ConfigMapSync, ConfigMapSyncSpec};
use k8s_openapi::api::core::v1::ConfigMap;
use konverge_testkit::{
    ControlPlane, Options, ProcessSpec,
    crash::{CrashTest, Scenario, snapshot},
    free_port,
};
use kube::{
    Api, Client,
    api::{ApiResource, DeleteParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// An object is made, changed and deleted.
struct Syncing;

impl Scenario for Syncing {
    fn name(&self) -> &'static str {
        "syncing"
    }

    fn steps(&self) -> usize {
        3
    }

    fn operator(&self, kubeconfig: &Path, namespace: &str) -> ProcessSpec {
        let address = format!("127.0.0.1:{}", free_port().unwrap());
        ProcessSpec::new("operator", env!("CARGO_BIN_EXE_configmapsync-operator"))
            .arg("--kubeconfig")
            .arg(kubeconfig)
            .args(["--namespace", namespace, "--lease-namespace", namespace, "--address", &address])
    }

    async fn change(&self, step: usize, client: &Client, namespace: &str) -> Result<()> {
        let syncs = Api::<ConfigMapSync>::namespaced(client.clone(), namespace);
        match step {
            0 => {
                let data = BTreeMap::from([("LEVEL".to_owned(), "info".to_owned())]);
                let spec = ConfigMapSyncSpec { target_namespace: namespace.to_owned(), data };
                syncs.create(&PostParams::default(), &ConfigMapSync::new("app", spec)).await?;
            }
            1 => {
                let change = json!({ "spec": { "data": { "LEVEL": null, "MAX": "100" } } });
                syncs.patch("app", &PatchParams::default(), &Patch::Merge(change)).await?;
            }
            _ => {
                syncs.delete("app", &DeleteParams::default()).await?;
            }
        }
        Ok(())
    }

    async fn is_converged(&self, step: usize, client: &Client, namespace: &str) -> Result<bool> {
        let sync = Api::<ConfigMapSync>::namespaced(client.clone(), namespace).get_opt("app").await?;
        let copy = Api::<ConfigMap>::namespaced(client.clone(), namespace).get_opt("cms-app").await?;
        let Some(key) = ["LEVEL", "MAX"].get(step) else { return Ok(sync.is_none() && copy.is_none()) };
        let is_ready = sync.is_some_and(|sync| {
            let ready = sync.status.as_ref().and_then(|status| status.standard.conditions.get("Ready"));
            ready.is_some_and(|ready| ready.status == "True" && ready.observed_generation == sync.metadata.generation)
        });
        let data = copy.and_then(|copy| copy.data).unwrap_or_default();
        Ok(is_ready && data.keys().eq([key]))
    }

    async fn end_state(&self, client: &Client, namespace: &str) -> Result<Value> {
        let kinds = [ApiResource::erase::<ConfigMap>(&()), ApiResource::erase::<ConfigMapSync>(&())];
        Ok(snapshot(client, namespace, &kinds).await?)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn it_survives_a_crash_at_every_write() {
    let plane = ControlPlane::start(Options::ours()).await.unwrap();
    let namespace = plane.namespace("operator").await.unwrap();
    let files = configmapsync_operator::operator().generate(&namespace).unwrap();
    plane.install("configmapsync-operator", &namespace, &files.manifest()).await.unwrap();
    let mut test = CrashTest::new(&plane, &Syncing);
    // Each run has a namespace and a lease of its own.
    test.at_once = 4;
    test.run().await.unwrap().verdict().unwrap();
}
