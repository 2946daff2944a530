//! In the place of all kubelets: pods are ready as soon as they are there.

use std::{path::PathBuf, time::Duration};

use k8s_openapi::api::core::v1::Pod;
use konverge_testkit::client_for;
use kube::{
    Api,
    api::{ListParams, Patch, PatchParams},
};
use serde_json::json;
use tokio::time::sleep;

const PAUSE: Duration = Duration::from_millis(100);

/// Works until the process ends, on a thread of its own: a test that ends takes its tasks along, and all tests share the cluster.
pub(crate) fn start(kubeconfig: PathBuf) {
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let api = Api::<Pod>::all(client_for(&kubeconfig).await.unwrap());
            loop {
                // Also while the API server is away.
                for pod in api.list(&ListParams::default()).await.map(|list| list.items).unwrap_or_default() {
                    make_ready(api.clone().into_client(), pod).await;
                }
                sleep(PAUSE).await;
            }
        });
    });
}

async fn make_ready(client: kube::Client, pod: Pod) {
    let mut conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let is_ready = conditions.any(|condition| condition.type_ == "Ready" && condition.status == "True");
    let (Some(namespace), Some(name)) = (pod.metadata.namespace, pod.metadata.name) else { return };
    if is_ready || pod.metadata.deletion_timestamp.is_some() {
        return;
    }
    let condition = json!({ "type": "Ready", "status": "True", "lastTransitionTime": jiff::Timestamp::now() });
    let status = json!({ "status": { "phase": "Running", "conditions": [condition] } });
    let api = Api::<Pod>::namespaced(client, &namespace);
    // A pod that is gone by now needs nothing.
    let _ = api.patch_status(&name, &PatchParams::default(), &Patch::Merge(&status)).await;
}
