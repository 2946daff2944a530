//! How an object that asks for rollouts stands, as it says itself. One type for both kinds; what only one of them has, its definition alone
//! names. However many workloads an object asks for, this stays small: who stands out is named, and the others are counted.

#![allow(clippy::doc_markdown, reason = "descriptions are read in `kubectl explain`, where backticks are noise")]

use jiff::Timestamp;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{CustomResourceDefinition, JSONSchemaProps};
use konverge_apply::conditions::Conditions;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The type of the condition that tells of the last rollout for an object's sake: what for, when, and who had decided it. Present from the
/// first one on.
pub const ROLLED_OUT: &str = "RolledOut";

/// The type of the condition that tells what is held back, why, and until when. Present only while something is.
pub const HELD: &str = "Held";

/// How it stands. Written by the operator alone.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Status {
    /// In the original's words.
    #[serde(rename = "vault_sync", skip_serializing_if = "Option::is_none")]
    pub vault_sync: Option<VaultSync>,
    /// The generation of the object that this is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The object's own uid. A status that came along with a copy names another's, and counts for nothing.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// With which versions the pods run.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub baseline: Vec<Baseline>,
    /// The number of workloads that the object names or selects.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workloads: Option<u32>,
    /// The number of workloads whose pods run with what is in Vault.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub in_sync_workloads: Option<u32>,
    /// The number of workloads that are to be rolled, and wait for something.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pending_workloads: Option<u32>,
    /// When the workload was last rolled for this object's sake.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub last_rollout_time: Option<Timestamp>,
    /// Ready, and while it is not: Reconciling or Stalled.
    pub conditions: Conditions,
}

/// The original's word.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(default)]
pub struct VaultSync {
    /// Already in Sync, Synced or Error.
    #[serde(rename = "SyncStatus")]
    pub sync_status: String,
}

/// With which version of a secret the pods of a workload run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Baseline {
    /// The workload.
    pub workload: String,
    /// Its uid.
    pub uid: String,
    /// The secret: its engine and its path.
    pub source: String,
    /// The version.
    pub version: u64,
    /// When that was written, in Vault's own words.
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
