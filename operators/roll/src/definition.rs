//! The parts that the definitions of both kinds of triggers share: the status, the part of a spec about a Secret to wait for, and the validation of fields beyond
//! their types. Each definition leaves out the fields of the status that its kind never has. The status stays small for any number of workloads: it names
//! exceptional ones and counts the others.

#![allow(clippy::doc_markdown, reason = "descriptions are read in `kubectl explain`, where backticks are noise")]

use jiff::Timestamp;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{CustomResourceDefinition, JSONSchemaProps};
use konverge_apply::conditions::Conditions;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// The type of the condition about the last rollout for an object: its cause, its time and its trigger. Present after the first rollout.
pub const ROLLED_OUT: &str = "RolledOut";

/// The type of the condition about delayed rollouts: the workloads, the cause and the end of the delay. Present only during a delay.
pub const HELD: &str = "Held";

/// The state of the object. Only the operator writes it.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Status {
    /// The state in the format of the original operator.
    #[serde(rename = "vault_sync", skip_serializing_if = "Option::is_none")]
    pub vault_sync: Option<VaultSync>,
    /// The generation of the object that the operator processed last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The uid of the object. The operator ignores a status with another uid, because it was copied from another object.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// The versions of the secrets with which the pods run.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub baseline: Vec<Baseline>,
    /// The number of workloads that the object names or selects.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workloads: Option<u32>,
    /// The number of workloads whose pods run with the current content of Vault.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub in_sync_workloads: Option<u32>,
    /// The number of workloads whose rollout is due and delayed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pending_workloads: Option<u32>,
    /// When this object last caused a rollout.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub last_rollout_time: Option<Timestamp>,
    /// The condition Ready and, while the object is not ready, Reconciling or Stalled.
    pub conditions: Conditions,
}

/// The state in the format of the original operator.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(default)]
pub struct VaultSync {
    /// Already in Sync, Synced or Error.
    #[serde(rename = "SyncStatus")]
    pub sync_status: String,
}

/// The version of a secret with which the pods of a workload run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Baseline {
    /// The workload.
    pub workload: String,
    /// The uid of the workload.
    pub uid: String,
    /// The secret, by its engine and its path.
    pub source: String,
    /// The version.
    pub version: u64,
    /// When that version was written, as Vault reports it.
    pub created: String,
}

/// The parts of a definition's schema: `spec` and `status`.
pub(crate) fn parts<'a>(
    definition: &'a mut CustomResourceDefinition,
    part: &'a str,
) -> impl Iterator<Item = &'a mut JSONSchemaProps> {
    let schemas = definition.spec.versions.iter_mut().filter_map(|version| version.schema.as_mut());
    let schemas = schemas.filter_map(|schema| schema.open_api_v3_schema.as_mut());
    schemas.filter_map(move |schema| schema.properties.as_mut()?.get_mut(part))
}

/// Takes out of a definition what the status of its kind never has.
pub(crate) fn without(definition: &mut CustomResourceDefinition, fields: &[&str]) {
    for properties in parts(definition, "status").filter_map(|status| status.properties.as_mut()) {
        properties.retain(|name, _| !fields.contains(&name.as_str()));
    }
}

/// The part of a `spec` about a Secret that is synced from Vault.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WaitForSpec {
    /// The name of the Secret, in the namespace of each workload.
    #[schemars(schema_with = "object_name")]
    pub secret: String,
    /// The keys of which a value must change. Default: all keys.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "keys")]
    pub keys: Option<Vec<String>>,
    /// The longest wait after the change in Vault, such as 90s. Default: 5m.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "timeout")]
    pub timeout: Option<String>,
    /// The action after the timeout. Roll (the default): the workload is restarted now, and once more after the Secret has changed. Hold: the
    /// workload is restarted only after the Secret has changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "on_timeout")]
    pub on_timeout: Option<String>,
}

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
