//! `SecretPull`, the custom resource that has a Secret made and filled from several sources.

#![allow(clippy::doc_markdown, reason = "descriptions are read in `kubectl explain`, where backticks are noise")]
#![allow(unreachable_pub, reason = "the derived schema has a copy of each type in a function")]

mod template;

use std::{collections::BTreeMap, time::Duration};

use k8s_openapi::jiff::Timestamp;
use konverge::{CustomStatus, Status};
use konverge_apply::SecretMetadata;
use kube::{CustomResource, KubeSchema, Resource, ResourceExt};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

pub use self::template::{FileSpec, RegistrySpec, TemplateSpec};
use super::{RECORD_VERIFIED_EVERY, Request, Requests, check_annotations, is_valid_target};
use crate::{
    bindings::SecretRef,
    config::parse_duration,
    record::TargetRecord,
    select::{Rename, Selection},
    source::{ConnectionName, Reference, ReferenceError},
    wanted::{Made, Owner, OwnerKind, Wanted, WantedSource},
};

/// The Secret to make, and where its keys come from.
#[derive(CustomResource, KubeSchema, Clone, Debug, PartialEq, Deserialize, Serialize)]
#[kube(
    group = "konverge.dev",
    version = "v1alpha1",
    kind = "SecretPull",
    plural = "secretpulls",
    shortname = "spull",
    category = "konverge",
    namespaced,
    status = "SecretPullStatus",
    doc = "A Secret of this namespace that is made and filled from zopp, Vault or OpenBao.",
    printcolumn = r#"{"name": "Target", "type": "string", "jsonPath": ".status.target"}"#,
    printcolumn = r#"{"name": "Ready", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"Ready\")].status"}"#,
    printcolumn = r#"{"name": "Reason", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"Ready\")].reason"}"#,
    printcolumn = r#"{"name": "Keys", "type": "integer", "jsonPath": ".status.keys"}"#,
    printcolumn = r#"{"name": "Changed", "type": "date", "jsonPath": ".status.lastChangeTime"}"#,
    printcolumn = r#"{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct SecretPullSpec {
    /// The Secret that is made.
    #[serde(default)]
    pub target: TargetSpec,
    /// Where the keys come from. Of a key that several sources have, the first source counts.
    #[schemars(length(min = 1, max = 32))]
    pub sources: Vec<SourceSpec>,
    /// Keys that are made of the sources' keys, such as a connection string or a whole file. Default: the Secret has the sources' keys.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<TemplateSpec>,
    /// What happens while a source gives nothing. Keep: its keys stay as they are in the Secret, and those of the others follow. Stop: nothing in the
    /// Secret changes until all sources answer.
    #[serde(default)]
    #[schemars(schema_with = "failure_policy")]
    pub when_source_fails: FailurePolicy,
    /// How often the stores are asked at least, such as 5m; at least 10s. They are followed more closely where the operator's settings say so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "interval")]
    pub refresh_interval: Option<String>,
    /// Leaves the Secret as it is.
    #[serde(default)]
    pub suspend: bool,
}

/// The Secret that is made.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("!has(self.type) || !(self.type in ['kubernetes.io/service-account-token', 'bootstrap.kubernetes.io/token', 'helm.sh/release.v1'])")
    .message("Secrets of this type belong to Kubernetes or Helm and are never filled"))]
pub struct TargetSpec {
    /// Its name. Default: the name of this object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(min = 1, max = 253),
        regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$")
    )]
    pub name: Option<String>,
    /// Its type, such as kubernetes.io/tls. The keys that the type demands must be there before the Secret is made. Default: Opaque.
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub secret_type: Option<String>,
    /// Its labels. Labels of others stay.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Its annotations. Annotations of others stay.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// What happens to the Secret when this object is deleted or names another Secret: Delete or Retain.
    #[serde(default)]
    #[schemars(schema_with = "deletion_policy")]
    pub deletion_policy: DeletionPolicy,
    /// Whether a Secret of this name that this object has not made is taken over. Its other keys stay.
    #[serde(default)]
    pub adopt: bool,
}

/// A connection to a store.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SourceName {
    /// Its kind: SecretSource of this namespace, or ClusterSecretSource.
    #[serde(default)]
    #[schemars(schema_with = "source_kind")]
    pub kind: SourceKind,
    /// Its name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}

/// The kinds of connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub enum SourceKind {
    /// With an identity of the namespace.
    #[default]
    SecretSource,
    /// With an identity of the platform.
    ClusterSecretSource,
}

/// A source of keys.
#[derive(KubeSchema, Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SourceSpec {
    /// The connection to the store. Default: that of the operator's settings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<SourceName>,
    /// The content, such as zopp://acme/backend/production or vault://secret/team-a/db. ?version=3 behind a path in Vault pins a version.
    #[schemars(length(min = 1, max = 2048), regex(pattern = "^[a-z]+://."))]
    pub from: String,
    /// The keys that are taken. * stands for any run of characters. A key that is named without * and that the source lacks is reported. Default: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    pub keys: Vec<String>,
    /// The names of the keys in the Secret. Default: their own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rename: Option<RenameSpec>,
    /// Whether the Secret is made without this source while the store has no such content. Keys that it once gave stay all the same.
    #[serde(default)]
    pub optional: bool,
}

/// How keys are renamed: by a table or by a rule.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("!has(self.table) || (!has(self.strip) && !has(self.prefix) && !(has(self.upper) && self.upper))")
    .message("give either a table or strip, prefix and upper"))]
pub struct RenameSpec {
    /// From the key of the source to the key of the Secret. Keys that are not in it keep their names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub table: Option<BTreeMap<String, String>>,
    /// The beginning that is removed from keys that begin with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub strip: Option<String>,
    /// The text that is put in front, after strip.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub prefix: Option<String>,
    /// Whether the letters a to z become upper case.
    #[serde(default)]
    pub upper: bool,
}

/// What happens while a source gives nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub enum FailurePolicy {
    /// Its keys stay, and those of the others follow.
    #[default]
    Keep,
    /// Nothing changes.
    Stop,
}

/// What happens to the Secret when it is not requested any more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub enum DeletionPolicy {
    /// It is deleted.
    #[default]
    Delete,
    /// It stays as it is.
    Retain,
}

/// The state of a `SecretPull`. Only the operator writes it.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct SecretPullStatus {
    /// The Secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// The number of keys that the sources gave, before a template.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keys: Option<u32>,
    /// The sources, as they are in the Secret.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<SourceStatus>,
    /// When the operator last saw the Secret hold something new.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "time")]
    pub last_change_time: Option<Timestamp>,
    /// When the sources had confirmed what the Secret holds. Written hourly at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "time")]
    pub last_verified_time: Option<Timestamp>,
    /// The generation that the operator processed last, and the condition Ready.
    #[serde(flatten)]
    pub standard: Status,
}

/// The state of one source.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct SourceStatus {
    /// The content.
    pub from: String,
    /// The number of its version in the Secret. 0 in a store without versions.
    pub version: i64,
    /// The number of keys that it gave.
    pub keys: u32,
}

impl CustomStatus for SecretPullStatus {
    fn standard(&self) -> &Status {
        &self.standard
    }

    fn standard_mut(&mut self) -> &mut Status {
        &mut self.standard
    }
}

/// Declares the words of a policy, beside what its type says of it to readers of code.
macro_rules! words {
    ($($name:ident = $default:literal: $($word:literal),+;)*) => {$(
        fn $name(_: &mut SchemaGenerator) -> Schema {
            json_schema!({ "type": "string", "enum": [$($word),+], "default": $default })
        }
    )*};
}

words! {
    source_kind = "SecretSource": "SecretSource", "ClusterSecretSource";
    failure_policy = "Keep": "Keep", "Stop";
    deletion_policy = "Delete": "Delete", "Retain";
}

pub(super) fn interval(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string",
        "maxLength": 32,
        "pattern": "^[0-9]{1,9}(s|m|h)$",
        "x-kubernetes-validations": [
            { "rule": "duration(self) >= duration('10s')", "message": "the shortest interval is 10s" }
        ]
    })
}

pub(super) fn time(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "format": "date-time" })
}

impl RenameSpec {
    fn rename(&self) -> Rename {
        let Self { table, strip, prefix, upper } = self.clone();
        match table {
            Some(table) => Rename::Table(table),
            None => Rename::Rule { strip: strip.unwrap_or_default(), prefix: prefix.unwrap_or_default(), upper },
        }
    }
}

impl Requests for SecretPull {
    const KIND: OwnerKind = OwnerKind::SecretPull;

    fn request(&self) -> Result<Request, String> {
        let SecretPullSpec { target, sources, template, when_source_fails, refresh_interval, suspend: _ } = &self.spec;
        let name = target.name.clone().unwrap_or_else(|| self.name_any());
        if !is_valid_target(&name) {
            return Err(format!("spec.target.name: no Secret can have the name {name:?}"));
        }
        check_annotations(&target.annotations)?;
        let source = |(number, source): (usize, &SourceSpec)| {
            let reference = source.from.parse::<Reference>();
            let reference =
                reference.map_err(|error: ReferenceError| format!("spec.sources[{number}].from: {error}"))?;
            let reference = match &source.source {
                Some(SourceName { kind, name }) => {
                    let namespace = self.namespace().filter(|_| *kind == SourceKind::SecretSource);
                    reference.through(ConnectionName { namespace, name: name.clone() })
                }
                None => reference,
            };
            let rename = source.rename.as_ref().map_or(Rename::No, RenameSpec::rename);
            let selection = Selection { keys: source.keys.clone(), rename };
            Ok::<_, String>(WantedSource { reference, selection, is_optional: source.optional })
        };
        let sources: Vec<_> = sources.iter().enumerate().map(source).collect::<Result<_, _>>()?;
        for (number, source) in sources.iter().enumerate() {
            if sources[..number].iter().any(|before| before.reference == source.reference) {
                return Err(format!(
                    "spec.sources[{number}].from: {} is named twice; put all of its keys into one entry",
                    source.reference
                ));
            }
        }
        let refresh = refresh_interval
            .as_deref()
            .map(|text| parse_duration(text).map_err(|error| format!("spec.refreshInterval: {error}")));
        let owner = match target.deletion_policy {
            DeletionPolicy::Delete => self.controller_owner_ref(&()),
            DeletionPolicy::Retain => None,
        };
        let metadata = SecretMetadata {
            labels: target.labels.clone(),
            annotations: target.annotations.clone(),
            owner,
            secret_type: target.secret_type.clone(),
        };
        let made = Made {
            owner: Owner { kind: Self::KIND, name: self.name_any() },
            metadata,
            adopts: target.adopt,
            template: template.as_ref().map(TemplateSpec::read).transpose()?,
            is_strict: *when_source_fails == FailurePolicy::Stop,
            refresh: refresh.transpose()?.map(|every: Duration| every.max(super::SHORTEST_REFRESH)),
        };
        let target = SecretRef { namespace: self.namespace().unwrap_or_default(), name };
        Ok(Request { target, wanted: Wanted { sources, made: Some(made) } })
    }

    fn is_suspended(&self) -> bool {
        self.spec.suspend
    }

    fn former_target(&self) -> Option<&str> {
        let is_deleted = self.spec.target.deletion_policy == DeletionPolicy::Delete;
        self.status.as_ref()?.target.as_deref().filter(|_| is_deleted)
    }

    fn reason(reason: &'static str) -> &'static str {
        reason
    }

    fn record(status: &mut SecretPullStatus, target: &str, record: Option<&TargetRecord>, verified: Option<Timestamp>) {
        let count = |keys: usize| u32::try_from(keys).unwrap_or(u32::MAX);
        status.target = Some(target.to_owned());
        let Some(record) = record else { return };
        let sources = record.sources.iter();
        let sources: Vec<_> = sources
            .map(|source| SourceStatus {
                from: source.from.clone(),
                version: source.version,
                keys: count(source.keys.len()),
            })
            .collect();
        let keys = Some(count(record.sources.iter().map(|source| source.keys.len()).sum()));
        let is_changed = (&sources, keys) != (&status.sources, status.keys);
        if is_changed {
            (status.sources, status.keys) = (sources, keys);
            status.last_change_time = Some(super::now());
        }
        let is_old = |last: Timestamp, at: Timestamp| {
            Duration::try_from(at.duration_since(last)).is_ok_and(|age| age >= RECORD_VERIFIED_EVERY)
        };
        if let Some(at) = verified
            && (is_changed || status.last_verified_time.is_none_or(|last| is_old(last, at)))
        {
            status.last_verified_time = Some(at);
        }
    }
}
