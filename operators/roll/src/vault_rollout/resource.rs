//! The custom resource `VaultRollout`.

#![allow(clippy::doc_markdown, reason = "descriptions are read in `kubectl explain`, where backticks are noise")]
#![allow(unreachable_pub, reason = "the derived schema has a copy of each type in a function")]

use konverge_workload::SelectorSpec;
use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};

use crate::{schema as fields, status::Status, wait::WaitForSpec};

/// Workloads that are restarted when secrets in Vault change.
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
    doc = "Workloads that are restarted when secrets in Vault or OpenBao change.",
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
    /// The secrets in Vault. A change of any of them restarts all targets.
    #[schemars(length(min = 1, max = 32))]
    pub vault_secrets: Vec<VaultSecretSpec>,
    /// The workloads to restart, by name or by label.
    #[schemars(length(min = 1, max = 1000))]
    pub targets: Vec<TargetSpec>,
    /// The poll interval, such as 30s. Default: the operator's setting.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "fields::interval")]
    pub interval: Option<String>,
    /// Suspends rollouts for this object. Afterwards, one rollout follows if a secret changed meanwhile.
    #[serde(default)]
    pub suspend: bool,
    /// A Secret in the namespace of each workload that is synced from Vault. The rollout waits until this Secret has changed, too.
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
    /// The mount path of the KV engine, without leading and trailing slashes.
    #[schemars(schema_with = "fields::mount")]
    pub mount: String,
    /// The path of the secret in the engine, without data/ or metadata/.
    #[schemars(schema_with = "fields::path")]
    pub path: String,
    /// Version (the default): each new version is a change. Content: only changed values are a change, which needs permission to read them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "fields::mode")]
    pub mode: Option<String>,
    /// The keys whose values count, with mode Content. Default: all keys.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "fields::keys")]
    pub keys: Option<Vec<String>>,
    /// The version of the KV engine. With 1, the mode is always Content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "fields::engine_version")]
    pub engine_version: Option<u8>,
}

/// A workload by name, or workloads by label.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[x_kube(
    validation = Rule::new("has(self.name) != has(self.selector)").message("give either a name or a selector"),
    validation = Rule::new("!has(self.name) || has(self.kind)").message("a name needs a kind, such as Deployment")
)]
#[serde(rename_all = "camelCase")]
pub struct TargetSpec {
    /// The kind: Deployment, StatefulSet, DaemonSet, CronJob or Rollout. With a selector, the default is all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "fields::kind")]
    pub kind: Option<String>,
    /// The name of the workload.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "fields::object_name")]
    pub name: Option<String>,
    /// The namespace of the workloads, by default that of this object. Elsewhere, each workload must allow it by roll.konverge.dev/allow-from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "fields::object_name")]
    pub namespace: Option<String>,
    /// A label selector. A workload is a target as long as it matches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(
        validation = Rule::new("has(self.matchLabels) || has(self.matchExpressions)")
            .message("an empty selector would roll every workload of the namespace; give matchLabels or matchExpressions")
    )]
    pub selector: Option<SelectorSpec>,
}
