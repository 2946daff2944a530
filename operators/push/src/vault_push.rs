//! `VaultPush`, the custom resource for requests that annotations cannot express.
//!
//! The API server refuses objects that the schema does not allow. An object that an older definition accepted is parsed as far as possible, or
//! reported as invalid.

#![allow(clippy::doc_markdown, reason = "descriptions are read in `kubectl explain`, where backticks are noise")]
#![allow(unreachable_pub, reason = "the derived schema has a copy of each type in a function")]

mod convert;
mod pascal_case;
mod schema;
mod status;

use std::collections::BTreeMap;

use konverge_workload::SelectorSpec;
use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};

pub(crate) use self::convert::{parse, watched_object};
pub use self::{
    schema::definition,
    status::{PathStatus, VaultPushStatus},
};
use crate::spec::{BinaryPolicy, DeletionPolicy, ExistingPolicy, UpdatePolicy};

/// The Secrets of this namespace that are pushed, their place in Vault, and the policies for it.
#[derive(CustomResource, KubeSchema, Clone, Debug, PartialEq, Deserialize, Serialize)]
#[kube(
    group = "konverge.dev",
    version = "v1alpha1",
    kind = "VaultPush",
    plural = "vaultpushes",
    shortname = "vpush",
    category = "konverge",
    namespaced,
    status = "VaultPushStatus",
    doc = "Secrets of this namespace that are pushed into Vault or OpenBao.",
    printcolumn = r#"{"name": "Ready", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"Ready\")].status"}"#,
    printcolumn = r#"{"name": "Reason", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"Ready\")].reason"}"#,
    printcolumn = r#"{"name": "Written", "type": "integer", "jsonPath": ".status.writtenPaths"}"#,
    printcolumn = r#"{"name": "Paths", "type": "integer", "jsonPath": ".status.totalPaths"}"#,
    printcolumn = r#"{"name": "Last Verified", "type": "date", "jsonPath": ".status.lastVerifiedTime"}"#,
    printcolumn = r#"{"name": "Path", "type": "string", "jsonPath": ".spec.path", "priority": 1}"#,
    printcolumn = r#"{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}"#
)]
#[x_kube(
    validation = Rule::new("!has(self.secrets.selector) || self.path.contains('{secret}')")
        .message("with a selector the path must contain {secret}: which Secrets fit may change, and two of them could have one key"),
    validation = Rule::new("!has(self.secrets.names) || size(self.secrets.names) == 1 || self.path.contains('{secret}') || has(self.keys) || has(self.templates)")
        .message("with several names the path must contain {secret}, or keys or templates must say what is taken of which Secret"),
    validation = Rule::new("!has(self.keys) || !has(self.secrets.names) || size(self.secrets.names) == 1 || self.path.contains('{secret}') || self.keys.all(key, has(key.secret))")
        .message("where several Secrets share a path, each entry of keys must name its secret"),
    validation = Rule::new("!has(self.keys) || self.keys.all(key, !has(key.secret) || (has(self.secrets.names) && key.secret in self.secrets.names))")
        .message("a secret in keys must be one of secrets.names"),
    validation = Rule::new("self.updatePolicy != 'Merge' || !has(self.deletionPolicy) || self.deletionPolicy in ['Soft', 'Keep']")
        .message("with updatePolicy Merge the deletionPolicy is Soft or Keep: older versions hold keys of others"),
    validation = Rule::new("self.updatePolicy != 'Merge' || !has(self.engineVersion) || self.engineVersion == 2")
        .message("updatePolicy Merge needs an engine of version 2, which has check-and-set"),
    validation = Rule::new("self.updatePolicy != 'IfNotExists' || !has(self.existing)")
        .message("existing says nothing with updatePolicy IfNotExists, which leaves alone what is there")
)]
#[serde(rename_all = "camelCase")]
pub struct VaultPushSpec {
    /// The Secrets of this namespace that are pushed.
    pub secrets: SecretsSpec,
    /// The mount path of the KV engine, without leading and trailing slashes.
    #[schemars(length(min = 1, max = 256), regex(pattern = "^[^/].*[^/]$|^[^/]$"))]
    pub mount: String,
    /// The path of the secret in the engine, such as shop/{secret}, without the data/ of the API, which the operator adds. The namespace and the
    /// name of this object replace {namespace} and {name}. The name of each Secret replaces {secret}, so that each Secret has its own path.
    #[schemars(
        length(min = 1, max = 1024),
        regex(pattern = r"^([^{}/]|\{(namespace|name|secret)\})([^{}]|\{(namespace|name|secret)\})*$")
    )]
    pub path: String,
    /// The version of the KV engine. Used only where the operator's Vault policy does not let it detect the version. Default: 2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 2))]
    pub engine_version: Option<u8>,
    /// The keys of the Secrets to push, and their names in Vault. Without keys and templates, all keys are pushed under their own names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 100))]
    pub keys: Option<Vec<KeySpec>>,
    /// A prefix for the keys in Vault. It does not apply to keys that are named by to or by templates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub key_prefix: Option<String>,
    /// Keys in Vault that are rendered from templates: ${key} is the value of a key, ${secret/key} that of a named Secret, and $$ a dollar sign.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::templates")]
    pub templates: Option<BTreeMap<String, String>>,
    /// Replace: the path has exactly the pushed keys. Merge: the operator writes and removes only its own keys, and keeps the keys of others.
    /// IfNotExists: the operator writes the path only if it does not exist, and never changes it, even if the Secret changes.
    #[serde(default)]
    #[schemars(schema_with = "schema::update_policy")]
    pub update_policy: UpdatePolicy,
    /// How the operator clears a path that is no longer requested: Soft, Destroy, Metadata or Keep. Default: the operator's setting.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "pascal_case")]
    #[schemars(schema_with = "schema::deletion_policy")]
    pub deletion_policy: Option<DeletionPolicy>,
    /// How the operator treats existing content that has no owner: Adopt or Refuse. Default: the operator's setting.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "pascal_case")]
    #[schemars(schema_with = "schema::existing_policy")]
    pub existing: Option<ExistingPolicy>,
    /// How the operator treats a value that is not valid UTF-8: Base64 (written encoded) or Refuse. Default: the operator's setting.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "pascal_case")]
    #[schemars(schema_with = "schema::binary_policy")]
    pub binary: Option<BinaryPolicy>,
    /// The interval of the drift check, such as 5m; at least 30s. Without it, the operator does not check Vault for drift.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::interval")]
    pub interval: Option<String>,
    /// Suspends writes to Vault. When the object is deleted, its paths are cleared nevertheless.
    #[serde(default)]
    pub suspend: bool,
}

/// The Secrets to push, by name or by label.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[x_kube(validation = Rule::new("has(self.names) != has(self.selector)").message("give either names or a selector"))]
#[serde(rename_all = "camelCase")]
pub struct SecretsSpec {
    /// The names of the Secrets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::names")]
    pub names: Option<Vec<String>>,
    /// A label selector. A Secret is pushed once it matches, and its path is cleared once it no longer matches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(
        validation = Rule::new("has(self.matchLabels) || has(self.matchExpressions)")
            .message("an empty selector would push every Secret of the namespace; give matchLabels or matchExpressions")
    )]
    pub selector: Option<SelectorSpec>,
}

/// A key to push.
#[derive(KubeSchema, Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct KeySpec {
    /// The Secret that has the key. Default: each Secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub secret: Option<String>,
    /// The key in the Secret.
    #[schemars(length(min = 1, max = 253), regex(pattern = "^[-._a-zA-Z0-9]+$"))]
    pub from: String,
    /// The key in Vault. Default: keyPrefix and the key in the Secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub to: Option<String>,
}
