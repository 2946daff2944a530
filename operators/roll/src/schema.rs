//! The validation of fields of triggers, beyond their types.

use schemars::{Schema, SchemaGenerator, json_schema};

pub(crate) fn kind(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "enum": ["Deployment", "StatefulSet", "DaemonSet", "CronJob", "Rollout"] })
}

pub(crate) fn mode(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "enum": ["Version", "Content"] })
}

pub(crate) fn keys(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "minItems": 1,
        "maxItems": 100,
        "x-kubernetes-list-type": "set",
        "items": { "type": "string", "minLength": 1, "maxLength": 1024 }
    })
}

pub(crate) fn engine_version(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "integer", "minimum": 1, "maximum": 2 })
}

/// Long enough not to be a load.
pub(crate) fn interval(_: &mut SchemaGenerator) -> Schema {
    span("the shortest interval is 1s")
}

/// Long enough for anybody to follow.
pub(crate) fn timeout(_: &mut SchemaGenerator) -> Schema {
    span("the shortest timeout is 1s")
}

/// A second or more; else this is said.
fn span(too_short: &str) -> Schema {
    json_schema!({
        "type": "string",
        "maxLength": 32,
        "pattern": "^([0-9]+(\\.[0-9]+)?(s|m|h))+$",
        "x-kubernetes-validations": [{ "rule": "duration(self) >= duration('1s')", "message": too_short }]
    })
}

/// The name of an object.
pub(crate) fn object_name(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string",
        "maxLength": 253,
        "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
    })
}

pub(crate) fn on_timeout(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "enum": ["Roll", "Hold"] })
}

/// A path that could lead elsewhere than it reads is refused, as by the operator itself.
pub(crate) fn mount(_: &mut SchemaGenerator) -> Schema {
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

pub(crate) fn path(_: &mut SchemaGenerator) -> Schema {
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
