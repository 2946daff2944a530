//! `VaultSyncStatus`, the resource of AA047267/vault-kubernetes-operator, as its users know it.
//!
//! It takes what the original takes, and writes the status in the same place. New fields are optional.

#![allow(clippy::doc_markdown, reason = "descriptions are read in `kubectl explain`, where backticks are noise")]
#![allow(unreachable_pub, reason = "the derived schema has a copy of each type in a function")]

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use jiff::Timestamp;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{CustomResourceDefinition, JSONSchemaProps};
use konverge_workload::WorkloadKind;
use kube::{CustomResource, CustomResourceExt, core::ObjectMeta};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    annotations::object_name,
    convert::{self, Settings, TriggerResource},
    definition::{self as fields, Status, WaitForSpec},
    object::WorkloadRef,
    trigger::{Before, Leftovers, TriggerKind, TriggerSpec},
    vault,
};

/// The finalizer of kopf, the framework of the original.
const KOPF_FINALIZER: &str = "kopf.zalando.org/KopfFinalizerMarker";
/// The prefix of its annotations.
const KOPF_PREFIX: &str = "kopf.zalando.org/";

/// The time before all others in the samples of the original.
const DUMMY: &str = "0000-00-00T00:00:00";

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

/// The definition that a cluster needs. For the fields of the original, it says what the definition of the original says, and no more. Nothing is required,
/// and what is not known is kept, so that each object that the original's definition has let in stays as it is.
pub fn definition() -> CustomResourceDefinition {
    let mut definition = VaultSyncStatus::crd();
    fields::without(&mut definition, &["workloads", "inSyncWorkloads", "pendingWorkloads"]);
    let schemas = definition.spec.versions.iter_mut().filter_map(|version| version.schema.as_mut());
    schemas.filter_map(|schema| schema.open_api_v3_schema.as_mut()).for_each(|schema| schema.required = None);
    for part in ["spec", "status"] {
        fields::parts(&mut definition, part).for_each(open);
    }
    definition
}

fn open(part: &mut JSONSchemaProps) {
    part.x_kubernetes_preserve_unknown_fields = Some(true);
    part.required = None;
    part.nullable = None;
    part.default = None;
    for property in part.properties.iter_mut().flat_map(|properties| properties.values_mut()) {
        // The definition of the original says nothing about an absent field.
        property.default = None;
        property.nullable = None;
    }
}

impl TriggerResource for VaultSyncStatus {
    const KIND: TriggerKind = TriggerKind::VaultSyncStatus;

    fn read(spec: &VaultSyncStatusSpec, _: &str, settings: &Settings) -> Result<TriggerSpec, String> {
        let name = required("deployName", spec.deploy_name.as_deref())?;
        let namespace = required("deployNamespace", spec.deploy_namespace.as_deref())?;
        let engine = required("secretEngine", spec.secret_engine.as_deref())?;
        let path = required("secretPath", spec.secret_path.as_deref())?;
        let target = WorkloadRef {
            namespace: object_name(namespace).map_err(|cause| format!("spec.deployNamespace: {cause}"))?,
            kind: match spec.deploy_kind.as_deref() {
                None => WorkloadKind::Deployment,
                Some(kind) => convert::workload_kind("spec.deployKind", kind)?,
            },
            name: object_name(name).map_err(|cause| format!("spec.deployName: {cause}"))?,
        };
        let kind = convert::source_kind("spec", spec.engine_version, spec.mode.as_deref())?;
        let source = vault::source(kind, engine, path)
            .map_err(|cause| format!("spec.secretEngine and spec.secretPath: {cause}"))?;
        let (before, notes) = before(spec.time_stamp.as_deref(), settings);
        Ok(TriggerSpec {
            targets: BTreeSet::from([target]),
            choices: Vec::new(),
            sources: BTreeMap::from([(source, convert::keys("spec", spec.keys.as_deref(), kind)?)]),
            every: spec.interval.as_deref().map_or(Ok(settings.every), convert::interval)?,
            before,
            suspended: false,
            wait_for: spec.wait_for.as_ref().map(convert::wait_for).transpose()?,
            notes,
        })
    }

    /// The finalizers and annotations that kopf has left on it.
    fn leftovers(metadata: &ObjectMeta) -> Leftovers {
        let annotations = metadata.annotations.iter().flat_map(BTreeMap::keys);
        Leftovers {
            finalizers: metadata
                .finalizers
                .iter()
                .flatten()
                .filter(|known| *known == KOPF_FINALIZER)
                .cloned()
                .collect(),
            annotations: annotations.filter(|name| name.starts_with(KOPF_PREFIX)).cloned().collect(),
        }
    }
}

fn required<'a>(field: &str, value: Option<&'a str>) -> Result<&'a str, String> {
    let value = value.map(str::trim).filter(|value| !value.is_empty());
    value.ok_or_else(|| format!("spec.{field} is missing"))
}

/// A time that cannot be understood counts as none, since what follows from it would be a restart.
fn before(time: Option<&str>, settings: &Settings) -> (Before, Vec<Arc<str>>) {
    let unknown = if settings.restart_on_first_seen { Before::Other } else { Before::Adopted };
    let text = time.map(str::trim).filter(|text| !text.is_empty() && !text.starts_with(DUMMY));
    match text.map(|text| text.parse::<Timestamp>().map_err(|_| text)) {
        None => (unknown, Vec::new()),
        Some(Ok(time)) => (Before::Time(time), Vec::new()),
        Some(Err(text)) => {
            let shown: String = text.chars().take(64).collect();
            let note = format!(
                "spec.timeStamp is {shown:?}, which is no time such as 2026-01-31T12:00:00Z; it counts as if it were not there"
            );
            (Before::Adopted, vec![note.into()])
        }
    }
}

#[cfg(test)]
mod tests;
