//! The custom resource `VaultSyncStatus`.

#![allow(clippy::doc_markdown, reason = "descriptions are read in `kubectl explain`, where backticks are noise")]
#![allow(unreachable_pub, reason = "the derived schema has a copy of each type in a function")]

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{schema as fields, status::Status, wait::WaitForSpec};

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
    #[schemars(schema_with = "fields::kind")]
    pub deploy_kind: Option<String>,
    /// Version: each new version counts. Content: only other values do, for which the operator has to be allowed to read them.
    #[schemars(schema_with = "fields::mode")]
    pub mode: Option<String>,
    /// With mode Content, the keys whose values count; all if it is not said.
    #[schemars(schema_with = "fields::keys")]
    pub keys: Option<Vec<String>>,
    /// The version of the KV engine. With 1 it is always the content that counts.
    #[schemars(schema_with = "fields::engine_version")]
    pub engine_version: Option<u8>,
    /// How often Vault is asked, such as 30s; that of the operator if it is not said.
    #[schemars(schema_with = "fields::interval")]
    pub interval: Option<String>,
    /// A Secret in the namespace of the workload that has to follow before the workload is restarted: one that somebody syncs from Vault.
    pub wait_for: Option<WaitForSpec>,
}
