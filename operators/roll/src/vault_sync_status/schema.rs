//! What the API server knows of a `VaultSyncStatus`: what the original's definition says, and no more than that of the original's fields.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{CustomResourceDefinition, JSONSchemaProps};
use kube::CustomResourceExt;
use schemars::{Schema, SchemaGenerator, json_schema};

use super::VaultSyncStatus;

/// The definition that a cluster needs. Nothing is required, and what is not known is kept, so that each object that the original's
/// definition has let in stays as it is.
pub fn definition() -> CustomResourceDefinition {
    let mut definition = VaultSyncStatus::crd();
    let schemas = definition.spec.versions.iter_mut().filter_map(|version| version.schema.as_mut());
    for schema in schemas.filter_map(|schema| schema.open_api_v3_schema.as_mut()) {
        schema.required = None;
        for part in ["spec", "status"] {
            if let Some(part) = schema.properties.as_mut().and_then(|properties| properties.get_mut(part)) {
                open(part);
            }
        }
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

pub(super) fn kind(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "enum": ["Deployment", "StatefulSet", "DaemonSet", "CronJob", "Rollout"] })
}

pub(super) fn mode(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "enum": ["version", "content"] })
}

pub(super) fn keys(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "minItems": 1,
        "maxItems": 100,
        "x-kubernetes-list-type": "set",
        "items": { "type": "string", "minLength": 1, "maxLength": 1024 }
    })
}

pub(super) fn engine_version(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "integer", "minimum": 1, "maximum": 2 })
}

/// Long enough not to be a load.
pub(super) fn interval(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string",
        "maxLength": 32,
        "pattern": "^([0-9]+(\\.[0-9]+)?(s|m|h))+$",
        "x-kubernetes-validations": [
            { "rule": "duration(self) >= duration('1s')", "message": "the shortest interval is 1s" }
        ]
    })
}
