//! A stand-in for the kubelets of a control plane, which has no nodes.

use std::time::Duration;

use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Error,
    api::{Patch, PatchParams},
    runtime::{WatchStreamExt, watcher},
};
use serde_json::json;
use tokio::{sync::watch, time::sleep};

/// The image of pods that never become ready.
pub const BROKEN_IMAGE: &str = "example.com/broken";

/// The pause after the API server has not answered.
const PAUSE: Duration = Duration::from_millis(100);

/// Marks each of these pods as ready as soon as it exists and `may_go` is true, except those with a container of [`BROKEN_IMAGE`]. Continues when the
/// API server has been away, and ends when the sender of `may_go` is dropped. Does not: start anything, or bind a pod to a node.
pub async fn make_pods_ready(pods: Api<Pod>, mut may_go: watch::Receiver<bool>) {
    // Of the pods that are ready already, the API server sends nothing.
    let waiting = watcher::Config::default().fields("status.phase!=Running");
    let mut events = std::pin::pin!(watcher(pods.clone(), waiting).default_backoff().applied_objects());
    while let Some(pod) = events.next().await {
        // A failed watch begins anew.
        let Ok(pod) = pod else { continue };
        if is_broken(&pod) || pod.metadata.deletion_timestamp.is_some() {
            continue;
        }
        if may_go.wait_for(|may_go| *may_go).await.is_err() {
            return;
        }
        make_ready(&pods, &pod).await;
    }
}

fn is_broken(pod: &Pod) -> bool {
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    containers.into_iter().any(|container| container.image.as_deref() == Some(BROKEN_IMAGE))
}

async fn make_ready(pods: &Api<Pod>, pod: &Pod) {
    let (Some(namespace), Some(name)) = (&pod.metadata.namespace, &pod.metadata.name) else { return };
    let condition = json!({ "type": "Ready", "status": "True", "lastTransitionTime": Timestamp::now() });
    let status = json!({ "status": { "phase": "Running", "conditions": [condition] } });
    let pods: Api<Pod> = Api::namespaced(pods.clone().into_client(), namespace);
    loop {
        match pods.patch_status(name, &PatchParams::default(), &Patch::Merge(&status)).await {
            // The API server refuses where the pod is gone, which is as good.
            Ok(_) | Err(Error::Api(_)) => return,
            Err(_) => sleep(PAUSE).await,
        }
    }
}
