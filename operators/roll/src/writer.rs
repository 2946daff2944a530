//! Writing on workloads: each time in one request, for exactly the version that was decided upon.

use konverge_apply::error::class_of;
use konverge_core::error::{Classify, ErrorClass};
use konverge_workload::WorkloadKind;
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
    core::DynamicObject,
};
use serde_json::{Value, json};

use crate::{
    declarations::{RECORD, STAMP},
    object::WorkloadRef,
};

/// The field manager of every write.
pub const FIELD_MANAGER: &str = "vault-rollout-operator";

/// The result of a write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Written {
    /// It was done; the workload is of this version now.
    Done(String),
    /// Nothing: the workload is another one than it was.
    Outdated,
    /// Nothing: there is no such workload any more.
    Gone,
}

/// The API server did not take a write.
#[derive(Debug, thiserror::Error)]
#[error("cannot write on {object}: {source}")]
pub struct WriteError {
    object: WorkloadRef,
    source: Box<kube::Error>,
}

impl WriteError {
    /// Whether the API server has said no, so that nothing was written.
    pub fn is_refused(&self) -> bool {
        self.class() == ErrorClass::Refused
    }
}

impl Classify for WriteError {
    fn class(&self) -> ErrorClass {
        class_of(&self.source)
    }

    fn reason(&self) -> &'static str {
        "WorkloadNotWritable"
    }
}

/// A workload as it was decided upon.
#[derive(Debug, Clone, Copy)]
pub struct Decided<'a> {
    /// Which one.
    pub key: &'a WorkloadRef,
    /// Its uid.
    pub uid: &'a str,
    /// Its version.
    pub version: &'a str,
    /// Its next record.
    pub record: &'a str,
}

/// Writes on workloads.
#[derive(Clone)]
pub struct Writer {
    client: Client,
}

impl Writer {
    /// Writes through this client.
    pub fn new(client: Client) -> Self {
        Self { client }
    }

    /// Writes the record and leaves the pods alone. It is a merge patch, since an apply without the pod template would take back what
    /// an earlier one has put there.
    pub async fn note(&self, decided: Decided<'_>) -> Result<Written, WriteError> {
        let Decided { uid, version, record, .. } = decided;
        let annotations = json!({ RECORD: record });
        let body = json!({ "metadata": { "uid": uid, "resourceVersion": version, "annotations": annotations } });
        let parameters = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        self.patch(decided.key, &parameters, &Patch::Merge(&body)).await
    }

    /// Writes the record, and on the pod template the stamp, and the time in these annotations of others.
    pub async fn roll(
        &self,
        decided: Decided<'_>,
        stamp: &str,
        (marks, now): (&[&str], &str),
    ) -> Result<Written, WriteError> {
        let Decided { key, uid, version, record } = decided;
        let mut of_pods = json!({ STAMP: stamp });
        for mark in marks {
            of_pods[*mark] = now.into();
        }
        let body = json!({
            "apiVersion": key.kind.api_version(),
            "kind": key.kind.name(),
            "metadata": {
                "name": key.name,
                "namespace": key.namespace,
                "uid": uid,
                "resourceVersion": version,
                "annotations": { RECORD: record },
            },
            "spec": with_template(key.kind, &json!({ "metadata": { "annotations": of_pods } })),
        });
        self.patch(key, &PatchParams::apply(FIELD_MANAGER).force(), &Patch::Apply(&body)).await
    }

    async fn patch(
        &self,
        key: &WorkloadRef,
        parameters: &PatchParams,
        patch: &Patch<&Value>,
    ) -> Result<Written, WriteError> {
        let api = Api::<DynamicObject>::namespaced_with(self.client.clone(), &key.namespace, &key.kind.resource());
        // Only the metadata comes back, whatever the size of the pod template.
        match api.patch_metadata(&key.name, parameters, patch).await {
            Ok(now) => Ok(Written::Done(now.metadata.resource_version.unwrap_or_default())),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(Written::Gone),
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(Written::Outdated),
            Err(source) => Err(WriteError { object: key.clone(), source: Box::new(source) }),
        }
    }
}

/// Where the pod template of a kind is.
fn with_template(kind: WorkloadKind, template: &Value) -> Value {
    match kind {
        WorkloadKind::CronJob => json!({ "jobTemplate": { "spec": { "template": template } } }),
        _ => json!({ "template": template }),
    }
}
