//! The validation of a `VaultRollout`, beyond its types.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;
use schemars::{Schema, SchemaGenerator, json_schema};

use super::VaultRollout;
use crate::status;

/// The definition that a cluster needs.
pub fn definition() -> CustomResourceDefinition {
    let mut definition = VaultRollout::crd();
    // How each workload stands is recorded on the workload.
    status::without(&mut definition, &["vault_sync", "baseline"]);
    definition
}

/// A path that could lead elsewhere than it reads is refused, as by the operator itself.
pub(super) fn mount(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string",
        "minLength": 1,
        "maxLength": 256,
        "x-kubernetes-validations": [
            { "rule": "!self.startsWith('/') && !self.endsWith('/')", "message": "write it without slashes around" },
            { "rule": "!self.contains(':')", "message": "a colon in its name is not understood" },
            { "rule": NO_WAY_OUT, "message": NO_WAY_OUT_MESSAGE }
        ]
    })
}

pub(super) fn path(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string",
        "minLength": 1,
        "maxLength": 1024,
        "x-kubernetes-validations": [
            { "rule": "!self.startsWith('/') && !self.endsWith('/')", "message": "write it without slashes around" },
            { "rule": NO_WAY_OUT, "message": NO_WAY_OUT_MESSAGE }
        ]
    })
}

const NO_WAY_OUT: &str = "!self.matches('(^|/)[.]{0,2}(/|$)')";
const NO_WAY_OUT_MESSAGE: &str = "no segment may be empty, a dot or two dots";
