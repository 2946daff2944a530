//! The custom resource `VaultRollout`.

#![allow(clippy::doc_markdown, reason = "descriptions are read in `kubectl explain`, where backticks are noise")]
#![allow(unreachable_pub, reason = "the derived schema has a copy of each type in a function")]

use konverge_workload::SelectorSpec;
use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};

use crate::{schema as fields, status::Status, wait::WaitForSpec};

/// Workloads that are rolled when secrets in Vault have changed.
#[derive(CustomResource, KubeSchema, Clone, Debug, PartialEq, Deserialize, Serialize)]
#[kube(
    group = "konverge.dev",
    version = "v1alpha1",
    kind = "VaultRollout",
    plural = "vaultrollouts",
    shortname = "vroll",
    category = "konverge",
    namespaced,
    status = "Status",
    doc = "Workloads that are rolled when secrets in Vault or OpenBao have changed.",
    printcolumn = r#"{"name": "Ready", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"Ready\")].status"}"#,
    printcolumn = r#"{"name": "Reason", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"Ready\")].reason"}"#,
    printcolumn = r#"{"name": "In Sync", "type": "integer", "jsonPath": ".status.inSyncWorkloads"}"#,
    printcolumn = r#"{"name": "Workloads", "type": "integer", "jsonPath": ".status.workloads"}"#,
    printcolumn = r#"{"name": "Last Rollout", "type": "date", "jsonPath": ".status.lastRolloutTime"}"#,
    printcolumn = r#"{"name": "Path", "type": "string", "jsonPath": ".spec.vaultSecrets[*].path", "priority": 1}"#,
    printcolumn = r#"{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct VaultRolloutSpec {
    /// The secrets in Vault. A change of any of them rolls all targets.
    #[schemars(length(min = 1, max = 32))]
    pub vault_secrets: Vec<VaultSecretSpec>,
    /// The workloads: by name, or by their labels.
    #[schemars(length(min = 1, max = 1000))]
    pub targets: Vec<TargetSpec>,
    /// How often Vault is asked, such as 30s; that of the operator if it is not said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "fields::interval")]
    pub interval: Option<String>,
    /// Whether nothing is to be rolled for this object's sake for the time being. What changes is remembered, and rolled once afterwards.
    #[serde(default)]
    pub suspend: bool,
    /// A Secret in the namespace of each workload that has to follow before that is rolled: one that somebody syncs from Vault.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_for: Option<WaitForSpec>,
}

/// A secret in Vault.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[x_kube(
    validation = Rule::new("!has(self.keys) || (has(self.mode) && self.mode == 'Content') || (has(self.engineVersion) && self.engineVersion == 1)")
        .message("which keys have changed is only known with mode Content"),
    validation = Rule::new("!has(self.engineVersion) || self.engineVersion != 1 || !has(self.mode) || self.mode == 'Content'")
        .message("an engine of version 1 has no versions; leave mode out, or write Content")
)]
#[serde(rename_all = "camelCase")]
pub struct VaultSecretSpec {
    /// Where the KV engine is mounted, without slashes around.
    #[schemars(schema_with = "fields::mount")]
    pub mount: String,
    /// The path of the secret in the engine, without data/ or metadata/.
    #[schemars(schema_with = "fields::path")]
    pub path: String,
    /// Version: each new version counts, and is the default. Content: only other values do, for which the operator has to be allowed to read them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "fields::mode")]
    pub mode: Option<String>,
    /// With mode Content, the keys whose values count; all if it is not said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "fields::keys")]
    pub keys: Option<Vec<String>>,
    /// The version of the KV engine. With 1 it is always the content that counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "fields::engine_version")]
    pub engine_version: Option<u8>,
}

/// A workload, or those with certain labels.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[x_kube(
    validation = Rule::new("has(self.name) != has(self.selector)").message("give either a name or a selector"),
    validation = Rule::new("!has(self.name) || has(self.kind)").message("a name needs a kind, such as Deployment")
)]
#[serde(rename_all = "camelCase")]
pub struct TargetSpec {
    /// What it is: Deployment, StatefulSet, DaemonSet, CronJob or Rollout. With a selector, all of these if it is not said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "fields::kind")]
    pub kind: Option<String>,
    /// Its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "fields::object_name")]
    pub name: Option<String>,
    /// Its namespace, if it is not that of this object; then each workload has to allow it: roll.konverge.dev/allow-from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "fields::object_name")]
    pub namespace: Option<String>,
    /// What its labels have to be. One that fits later takes part from then on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(
        validation = Rule::new("has(self.matchLabels) || has(self.matchExpressions)")
            .message("an empty selector would roll every workload of the namespace; give matchLabels or matchExpressions")
    )]
    pub selector: Option<SelectorSpec>,
}
