//! The definition of a `VaultSyncStatus`. For the fields of the original, it says what the definition of the original says, and no more.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{CustomResourceDefinition, JSONSchemaProps};
use kube::CustomResourceExt;

use super::resource::VaultSyncStatus;
use crate::status;

/// The definition that a cluster needs. Nothing is required, and what is not known is kept, so that each object that the original's
/// definition has let in stays as it is.
pub fn definition() -> CustomResourceDefinition {
    let mut definition = VaultSyncStatus::crd();
    status::without(&mut definition, &["workloads", "inSyncWorkloads", "pendingWorkloads"]);
    let schemas = definition.spec.versions.iter_mut().filter_map(|version| version.schema.as_mut());
    schemas.filter_map(|schema| schema.open_api_v3_schema.as_mut()).for_each(|schema| schema.required = None);
    for part in ["spec", "status"] {
        status::parts(&mut definition, part).for_each(open);
    }
    definition
}

fn open(part: &mut JSONSchemaProps) {
    part.x_kubernetes_preserve_unknown_fields = Some(true);
    part.required = None;
    part.nullable = None;
    part.default = None;
    for property in part.properties.iter_mut().flat_map(|properties| properties.values_mut()) {
        // Nothing is said of what is not there but that it is not there.
        property.default = None;
        property.nullable = None;
    }
}
