//! Whether the pods of a manifest may run where the strictest of the Pod Security Standards is enforced.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Namespace, Pod, ServiceAccount};
use kube::{
    Api, Client,
    api::{DynamicObject, Patch, PatchParams, PostParams},
    core::ApiResource,
};
use serde_json::{Value, json};

use super::{
    ControlPlane,
    manifest::{ManifestError, called, documents},
};
use crate::wait::eventually;

/// The time within which the API server must enforce a new role.
const NEVER: Duration = Duration::from_secs(60);

impl ControlPlane {
    /// Whether the pods of all workloads in a manifest may run where the Pod Security Standard `restricted` is enforced; a manifest without any is an
    /// error. Nothing of it is made.
    pub async fn would_run_restricted(&self, manifest: &str) -> Result<(), ManifestError> {
        let documents = documents(manifest)?;
        let pods: Vec<_> = documents
            .iter()
            .filter_map(|document| Some((called(document), document.data.pointer("/spec/template/spec")?.clone())))
            .collect();
        if pods.is_empty() {
            return Err(ManifestError::NoPods);
        }
        let client = self.admin_client().await.map_err(Box::new)?;
        let namespace = self.namespace("restricted").await.map_err(Box::new)?;
        let probe = Probe { api: Api::namespaced_with(client.clone(), &namespace, &ApiResource::erase::<Pod>(&())) };
        enforce(&client, &namespace).await.map_err(|source| ManifestError::NotEnforced(Some(Box::new(source))))?;
        // Not before one is refused does it mean anything that another is not.
        let loose = json!({ "hostNetwork": true, "containers": [{ "name": "loose", "image": "loose" }] });
        let is_enforced = async || probe.is_refused(&loose).await.then_some(());
        eventually(NEVER, is_enforced).await.map_err(|_| ManifestError::NotEnforced(None))?;
        for (object, pod) in pods {
            let refused = |source| ManifestError::NotRestricted { object, source: Box::new(source) };
            probe.runs(&pod).await.map_err(refused)?;
        }
        Ok(())
    }
}

async fn enforce(client: &Client, namespace: &str) -> kube::Result<()> {
    let label = json!({ "metadata": { "labels": { "pod-security.kubernetes.io/enforce": "restricted" } } });
    let namespaces = Api::<Namespace>::all(client.clone());
    namespaces.patch(namespace, &PatchParams::default(), &Patch::Merge(label)).await?;
    // No pod is taken without an account, and nobody makes one where no controller runs.
    let account = json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": "default" } });
    let accounts = Api::<ServiceAccount>::namespaced(client.clone(), namespace);
    accounts.patch("default", &PatchParams::apply("konverge-testkit"), &Patch::Apply(account)).await.map(drop)
}

/// Makes pods in the namespace where it is enforced, and none that stays.
struct Probe {
    api: Api<DynamicObject>,
}

impl Probe {
    async fn runs(&self, spec: &Value) -> kube::Result<()> {
        let mut spec = spec.clone();
        // The account does not matter to the standard, and is not there.
        spec["serviceAccountName"] = "default".into();
        let resource = ApiResource::erase::<Pod>(&());
        let pod = DynamicObject::new("pod", &resource).data(json!({ "spec": spec }));
        self.api.create(&PostParams { dry_run: true, ..PostParams::default() }, &pod).await.map(drop)
    }

    async fn is_refused(&self, spec: &Value) -> bool {
        matches!(self.runs(spec).await, Err(kube::Error::Api(status)) if status.message.contains("violates PodSecurity"))
    }
}
