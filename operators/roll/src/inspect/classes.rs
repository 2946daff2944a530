//! Classes of the Secrets Store CSI driver, as a person sees them.

use konverge_kubectl::{Cluster, Failure};
use konverge_workload::SecretProviderClass;
use kube::{Api, api::ListParams};

/// Those of a namespace; none where the cluster does not know such.
pub(super) async fn of_namespace(cluster: &Cluster, namespace: &str) -> Result<Vec<SecretProviderClass>, Failure> {
    let api: Api<SecretProviderClass> = Api::namespaced(cluster.client.clone(), namespace);
    match api.list(&ListParams::default()).await {
        Ok(found) => Ok(found.items),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(Vec::new()),
        Err(error) => Err(Failure::of(&format!("list secretproviderclasses in namespace {namespace}"), &error)),
    }
}
