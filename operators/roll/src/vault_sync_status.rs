//! `VaultSyncStatus`, the resource of AA047267/vault-kubernetes-operator, as its users know it.
//!
//! What the original takes is taken, and what it writes in the status stands in the same place. New fields are optional.

#![allow(clippy::doc_markdown, reason = "descriptions are read in `kubectl explain`, where backticks are noise")]
#![allow(unreachable_pub, reason = "the derived schema has a copy of each type in a function")]

mod schema;
mod spelling;

use jiff::Timestamp;
use konverge_apply::conditions::Conditions;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use self::{
    schema::definition,
    spelling::{KOPF_FINALIZER, KOPF_PREFIX, Settings, shown},
};

/// A workload that is restarted when a secret in Vault has changed.
#[derive(CustomResource, JsonSchema, Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[kube(
    group = "stable.example.com",
    version = "v1",
    kind = "VaultSyncStatus",
    plural = "vaultsyncstatus",
    singular = "vaultsyncstatus",
    shortname = "vss",
    namespaced,
    status = "Status",
    doc = "A workload that is restarted when a secret in Vault has changed.",
    printcolumn = r#"{"name": "Deployment_Name", "type": "string", "jsonPath": ".spec.deployName"}"#,
    printcolumn = r#"{"name": "Deployment_Namespace", "type": "string", "jsonPath": ".spec.deployNamespace"}"#,
    printcolumn = r#"{"name": "Secret_Engine", "type": "string", "jsonPath": ".spec.secretEngine"}"#,
    printcolumn = r#"{"name": "Secret_Path", "type": "string", "jsonPath": ".spec.secretPath"}"#,
    printcolumn = r#"{"name": "Sync_Status", "type": "string", "jsonPath": ".status.vault_sync.SyncStatus"}"#,
    printcolumn = r#"{"name": "Ready", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"Ready\")].status", "priority": 1}"#,
    printcolumn = r#"{"name": "Reason", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"Ready\")].reason", "priority": 1}"#
)]
#[serde(rename_all = "camelCase", default)]
pub struct VaultSyncStatusSpec {
    /// The workload to restart: the name of a Deployment, or of what deployKind says.
    pub deploy_name: Option<String>,
    /// Its namespace. If that is not the one of this object, the workload has to allow it: roll.konverge.dev/allow-from.
    pub deploy_namespace: Option<String>,
    /// Where the KV engine is mounted in Vault, without slashes around.
    pub secret_engine: Option<String>,
    /// The path of the secret in the engine, without data/ or metadata/.
    pub secret_path: Option<String>,
    /// When the secret was last updated as far as the workload's pods know, for the time before the operator has first seen it. Not written by
    /// the operator unless it was started with --write-spec-timestamp.
    pub time_stamp: Option<String>,
    /// What the workload is, if it is no Deployment.
    #[schemars(schema_with = "schema::kind")]
    pub deploy_kind: Option<String>,
    /// version: each new version counts. content: only other values do, for which the operator has to be allowed to read them.
    #[schemars(schema_with = "schema::mode")]
    pub mode: Option<String>,
    /// With mode content, the keys whose values count; all if it is not said.
    #[schemars(schema_with = "schema::keys")]
    pub keys: Option<Vec<String>>,
    /// The version of the KV engine. With 1 it is always the content that counts.
    #[schemars(schema_with = "schema::engine_version")]
    pub engine_version: Option<u8>,
    /// How often Vault is asked, such as 30s; that of the operator if it is not said.
    #[schemars(schema_with = "schema::interval")]
    pub interval: Option<String>,
}

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
    /// When the workload was last rolled for this object's sake.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub last_rollout: Option<Timestamp>,
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
