//! `VaultRollout`, the resource for several workloads or several secrets.
//!
//! It requests the same as a [`VaultSyncStatus`](crate::vault_sync_status), by the same code. The schema keeps out most invalid specs. An older
//! definition may have let one in: the operator reads it as far as possible, or reports it.

#![allow(clippy::doc_markdown, reason = "descriptions are read in `kubectl explain`, where backticks are noise")]
#![allow(unreachable_pub, reason = "the derived schema has a copy of each type in a function")]

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use konverge_workload::{Keys, SelectorSpec};
use kube::{CustomResource, CustomResourceExt, KubeSchema};
use serde::{Deserialize, Serialize};

use crate::{
    annotations::object_name,
    convert::{self, Settings, TriggerResource},
    definition::{self as fields, Status, WaitForSpec},
    object::WorkloadRef,
    trigger::{Before, Choice, TriggerKind, TriggerSpec},
    vault,
};

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

/// The definition that a cluster needs.
pub fn definition() -> CustomResourceDefinition {
    let mut definition = VaultRollout::crd();
    // How each workload stands is recorded on the workload.
    fields::without(&mut definition, &["vault_sync", "baseline"]);
    definition
}

impl TriggerResource for VaultRollout {
    const KIND: TriggerKind = TriggerKind::VaultRollout;

    fn read(spec: &VaultRolloutSpec, home: &str, settings: &Settings) -> Result<TriggerSpec, String> {
        let mut sources = BTreeMap::new();
        for (number, secret) in spec.vault_secrets.iter().enumerate() {
            let field = format!("spec.vaultSecrets[{number}]");
            let VaultSecretSpec { mount, path, mode, keys, engine_version } = secret;
            let kind = convert::source_kind(&field, *engine_version, mode.as_deref())?;
            let source =
                vault::source(kind, mount, path).map_err(|cause| format!("{field}.mount and {field}.path: {cause}"))?;
            let keys = convert::keys(&field, keys.as_deref(), kind)?;
            // The same secret with other keys: both sets count.
            let keys = match sources.remove(&source) {
                Some(known) => Keys::and(known, keys),
                None => keys,
            };
            sources.insert(source, keys);
        }
        if sources.is_empty() {
            return Err("spec.vaultSecrets is empty".to_owned());
        }
        let (mut targets, mut choices) = (BTreeSet::new(), Vec::new());
        for (number, target) in spec.targets.iter().enumerate() {
            let field = format!("spec.targets[{number}]");
            let kind = target.kind.as_deref();
            let kind = kind.map(|kind| convert::workload_kind(&format!("{field}.kind"), kind)).transpose()?;
            let namespace = object_name(target.namespace.as_deref().unwrap_or(home))
                .map_err(|cause| format!("{field}.namespace: {cause}"))?;
            match (&target.name, &target.selector) {
                (Some(name), None) => {
                    let name = object_name(name).map_err(|cause| format!("{field}.name: {cause}"))?;
                    let kind = kind.ok_or_else(|| format!("{field}.kind is missing, such as Deployment"))?;
                    targets.insert(WorkloadRef { namespace, kind, name });
                }
                (None, Some(selector)) => {
                    let labels = selector.read().map_err(|cause| format!("{field}.selector: {cause}"))?;
                    let labels = labels
                        .ok_or_else(|| format!("{field}.selector: it is empty, and would roll every workload"))?;
                    choices.push(Choice { namespace, kind, labels });
                }
                _ => return Err(format!("{field}: give either a name or a selector")),
            }
        }
        if targets.is_empty() && choices.is_empty() {
            return Err("spec.targets is empty".to_owned());
        }
        Ok(TriggerSpec {
            targets,
            choices,
            sources,
            every: spec.interval.as_deref().map_or(Ok(settings.every), convert::interval)?,
            // Never by the first sight of an object, whatever the operator is told for those of the original.
            before: Before::Adopted,
            suspended: spec.suspend,
            wait_for: spec.wait_for.as_ref().map(convert::wait_for).transpose()?,
            notes: Vec::new(),
        })
    }
}

#[cfg(test)]
mod tests;
