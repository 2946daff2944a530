//! The definition of a `VaultRollout`.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;

use super::resource::VaultRollout;
use crate::status;

/// The definition that a cluster needs.
pub fn definition() -> CustomResourceDefinition {
    let mut definition = VaultRollout::crd();
    // How each workload stands is recorded on the workload.
    status::without(&mut definition, &["vault_sync", "baseline"]);
    definition
}
