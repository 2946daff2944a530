//! The status of an object that requests rollouts. Both kinds share the type, and each definition leaves out the fields of the other kind. The
//! status stays small for any number of workloads: it names exceptional ones and counts the others.

#![allow(clippy::doc_markdown, reason = "descriptions are read in `kubectl explain`, where backticks are noise")]

use jiff::Timestamp;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{CustomResourceDefinition, JSONSchemaProps};
use konverge_apply::conditions::Conditions;
use schemars::JsonSchema;
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
