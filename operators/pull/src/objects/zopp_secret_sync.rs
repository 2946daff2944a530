//! `ZoppSecretSync`, the custom resource of the original operator: a Secret that is made and filled from one environment.
//!
//! The schema, the columns, the condition and its reasons are those of the original. Unlike there, the labels and annotations of the Secret are kept as
//! the object says, a Secret that somebody else made is not taken over, and the Secret is in the namespace of the object.

#![allow(clippy::doc_markdown, reason = "descriptions are read in `kubectl explain`, where backticks are noise")]
#![allow(unreachable_pub, reason = "the derived schema has a copy of each type in a function")]

use std::{collections::BTreeMap, time::Duration};

use k8s_openapi::jiff::Timestamp;
use konverge::{CustomStatus, Status};
use konverge_apply::SecretMetadata;
use konverge_zopp_client::EnvironmentName;
use kube::{CustomResource, ResourceExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Request, Requests, check_annotations, is_valid_target};
use crate::{
    bindings::SecretRef,
    reasons,
    record::TargetRecord,
    select::Selection,
    wanted::{Made, Owner, OwnerKind, Wanted, WantedSource},
    zopp,
};

/// The environment, and the Secret to make.
#[derive(CustomResource, Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "zopp.dev",
    version = "v1alpha1",
    kind = "ZoppSecretSync",
    plural = "zoppsecretsyncs",
    singular = "zoppsecretsync",
    shortname = "zss",
    namespaced,
    status = "ZoppSecretSyncStatus",
    doc = "A Secret that is made and filled from one environment of zopp.",
    printcolumn = r#"{"name": "Workspace", "type": "string", "jsonPath": ".spec.source.workspace"}"#,
    printcolumn = r#"{"name": "Project", "type": "string", "jsonPath": ".spec.source.project"}"#,
    printcolumn = r#"{"name": "Environment", "type": "string", "jsonPath": ".spec.source.environment"}"#,
    printcolumn = r#"{"name": "Target", "type": "string", "jsonPath": ".spec.target.secretName"}"#,
    printcolumn = r#"{"name": "Ready", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"Ready\")].status"}"#,
    printcolumn = r#"{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct ZoppSecretSyncSpec {
    /// The environment.
    pub source: EnvironmentSource,
    /// The Secret that is made.
    pub target: SyncTarget,
    /// How often, in seconds, the server is asked at least. The operator follows the environment by a stream besides.
    #[serde(default = "default_interval")]
    pub sync_interval_seconds: u64,
    /// Leaves the Secret as it is.
    #[serde(default)]
    pub suspend: bool,
}

/// An environment of zopp.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EnvironmentSource {
    /// Name of the workspace.
    pub workspace: String,
    /// Name of the project.
    pub project: String,
    /// Name of the environment.
    pub environment: String,
}

/// The Secret that is made.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SyncTarget {
    /// Its name.
    pub secret_name: String,
    /// Its namespace, which must be that of this object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Its type.
    #[serde(default = "opaque")]
    pub secret_type: String,
    /// Its labels.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// Its annotations.
    #[serde(default)]
    pub annotations: BTreeMap<String, String>,
}

/// The state of a `ZoppSecretSync`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ZoppSecretSyncStatus {
    /// When the operator last saw the Secret hold something new.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "super::secret_pull::time")]
    pub last_sync_time: Option<Timestamp>,
    /// The version of the environment in the Secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_sync_version: Option<i64>,
    /// The number of keys.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret_count: Option<i32>,
    /// The generation that the operator processed last, and the condition Ready.
    #[serde(flatten)]
    pub standard: Status,
}

impl CustomStatus for ZoppSecretSyncStatus {
    fn standard(&self) -> &Status {
        &self.standard
    }

    fn standard_mut(&mut self) -> &mut Status {
        &mut self.standard
    }
}

fn default_interval() -> u64 {
    60
}

fn opaque() -> String {
    "Opaque".to_owned()
}

impl Requests for ZoppSecretSync {
    const KIND: OwnerKind = OwnerKind::ZoppSecretSync;

    fn request(&self) -> Result<Request, String> {
        let ZoppSecretSyncSpec { source, target, sync_interval_seconds, suspend: _ } = &self.spec;
        let namespace = self.namespace().unwrap_or_default();
        if !is_valid_target(&target.secret_name) {
            return Err(format!("spec.target.secretName: no Secret can have the name {:?}", target.secret_name));
        }
        if target.namespace.as_ref().is_some_and(|other| *other != namespace) {
            return Err(format!(
                "spec.target.namespace is not the namespace of this object, and an object may not write to other namespaces; create the object in \
                 the namespace of the Secret, which is {:?}",
                target.namespace.clone().unwrap_or_default()
            ));
        }
        check_annotations(&target.annotations)?;
        let parts =
            [("workspace", &source.workspace), ("project", &source.project), ("environment", &source.environment)];
        if let Some((part, _)) = parts.iter().find(|(_, name)| name.trim().is_empty()) {
            return Err(format!("spec.source.{part} is empty"));
        }
        let name = EnvironmentName::new(&*source.workspace, &*source.project, &*source.environment);
        let source =
            WantedSource { reference: zopp::reference(&name), selection: Selection::default(), is_optional: false };
        let (mut labels, mut annotations) = (target.labels.clone(), target.annotations.clone());
        labels.entry("app.kubernetes.io/managed-by".to_owned()).or_insert_with(|| "zopp-operator".to_owned());
        annotations.entry("zopp.dev/managed".to_owned()).or_insert_with(|| "true".to_owned());
        let secret_type = Some(target.secret_type.clone());
        let made = Made {
            owner: Owner { kind: Self::KIND, name: self.name_any() },
            metadata: SecretMetadata { labels, annotations, owner: None, secret_type },
            template: None,
            adopts: false,
            is_strict: false,
            refresh: Some(Duration::from_secs(*sync_interval_seconds).max(super::SHORTEST_REFRESH)),
        };
        let target = SecretRef { namespace, name: target.secret_name.clone() };
        Ok(Request { target, wanted: Wanted { sources: vec![source], made: Some(made) } })
    }

    fn is_suspended(&self) -> bool {
        self.spec.suspend
    }

    /// The original leaves the Secrets of former names behind, and so does this.
    fn former_target(&self) -> Option<&str> {
        None
    }

    fn reason(reason: &'static str) -> &'static str {
        match reason {
            reasons::SYNCED => "SyncSuccess",
            reasons::SERVER_UNREACHABLE | reasons::BAD_SERVER_ANSWER => "ConnectionFailed",
            reasons::DECRYPTION_FAILED => "DecryptionFailed",
            reasons::CREDENTIALS_INVALID => "CredentialsInvalid",
            reasons::SUSPENDED => "Suspended",
            _ => "SyncFailed",
        }
    }

    fn record(status: &mut ZoppSecretSyncStatus, _: &str, record: Option<&TargetRecord>, _: Option<Timestamp>) {
        let Some([source]) = record.map(|record| &record.sources[..]) else { return };
        let (version, count) = (Some(source.version), i32::try_from(source.keys.len()).ok());
        if (version, count) != (status.last_sync_version, status.secret_count) {
            (status.last_sync_version, status.secret_count) = (version, count);
            status.last_sync_time = Some(super::now());
        }
    }
}
