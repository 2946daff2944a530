//! The checks of the API server on a `VaultPush` that its types do not express.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use konverge_text::Template;
use kube::CustomResourceExt;
use schemars::{Schema, SchemaGenerator, json_schema};

use super::VaultPush;

/// The definition that a cluster needs.
pub fn definition() -> CustomResourceDefinition {
    VaultPush::crd()
}

/// Names of Secrets. How long they are bounds what the rules cost that look at them.
pub(super) fn names(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "minItems": 1,
        "maxItems": 100,
        "x-kubernetes-list-type": "set",
        "items": {
            "type": "string",
            "maxLength": 253,
            "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
        }
    })
}

/// The syntax of [`Template`].
pub(super) fn templates(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "minProperties": 1,
        "maxProperties": 64,
        "additionalProperties": {
            "type": "string",
            "maxLength": Template::LONGEST,
            "pattern": Template::PATTERN
        }
    })
}

/// A span as Go writes it, long enough not to be a load.
pub(super) fn interval(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string",
        "maxLength": 32,
        "pattern": "^([0-9]+(\\.[0-9]+)?(s|m|h))+$",
        "x-kubernetes-validations": [
            { "rule": "duration(self) >= duration('30s')", "message": "the shortest interval is 30s" }
        ]
    })
}

/// A moment.
pub(super) fn time(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "format": "date-time" })
}

/// The words of a policy, beside what its type says of it to readers of code.
macro_rules! enumerations {
    ($($name:ident $(= $default:literal)?: $($word:literal),+;)*) => {$(
        pub(super) fn $name(_: &mut SchemaGenerator) -> Schema {
            json_schema!({ "type": "string", "enum": [$($word),+] $(, "default": $default)? })
        }
    )*};
}

enumerations! {
    update_policy = "Replace": "Replace", "Merge", "IfNotExists";
    deletion_policy: "Soft", "Destroy", "Metadata", "Keep";
    existing_policy: "Adopt", "Refuse";
    binary_policy: "Base64", "Refuse";
}
