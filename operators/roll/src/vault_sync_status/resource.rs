//! The custom resource `VaultSyncStatus`.

#![allow(clippy::doc_markdown, reason = "descriptions are read in `kubectl explain`, where backticks are noise")]
#![allow(unreachable_pub, reason = "the derived schema has a copy of each type in a function")]

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{schema as fields, status::Status, wait::WaitForSpec};

/// A workload that is restarted when a secret in Vault changes.
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
    doc = "A workload that is restarted when a secret in Vault changes.",
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
    /// The name of the workload to restart: a Deployment, unless deployKind names another kind.
    pub deploy_name: Option<String>,
    /// The namespace of the workload. If it is not that of this object, the workload must allow it by roll.konverge.dev/allow-from.
    pub deploy_namespace: Option<String>,
    /// The mount path of the KV engine in Vault, without leading and trailing slashes.
    pub secret_engine: Option<String>,
    /// The path of the secret in the engine, without data/ or metadata/.
    pub secret_path: Option<String>,
    /// When the secret version with which the workload's pods run was written. It counts only until the operator has its own record. The operator
    /// writes it only with --write-spec-timestamp.
    pub time_stamp: Option<String>,
    /// The kind of the workload. Default: Deployment.
    #[schemars(schema_with = "fields::kind")]
    pub deploy_kind: Option<String>,
    /// Version (the default): each new version is a change. Content: only changed values are a change, which needs permission to read them.
    #[schemars(schema_with = "fields::mode")]
    pub mode: Option<String>,
    /// The keys whose values count, with mode Content. Default: all keys.
    #[schemars(schema_with = "fields::keys")]
    pub keys: Option<Vec<String>>,
    /// The version of the KV engine. With 1, the mode is always Content.
    #[schemars(schema_with = "fields::engine_version")]
    pub engine_version: Option<u8>,
    /// The poll interval, such as 30s. Default: the operator's setting.
    #[schemars(schema_with = "fields::interval")]
    pub interval: Option<String>,
    /// A Secret in the namespace of the workload that is synced from Vault. The restart waits until this Secret has changed, too.
    pub wait_for: Option<WaitForSpec>,
}
