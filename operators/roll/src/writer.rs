//! Writing on workloads: each time in one request, for exactly the version that was decided upon.

use std::marker::PhantomData;

use konverge_apply::{Applier, ApplyError, MetadataChange};
use konverge_core::error::{Classify, ErrorClass};
use konverge_workload::WorkloadKind;
use kube::{
    Client,
    core::{DynamicObject, ObjectMeta, PartialObjectMeta},
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

/// The API server did not take a write, or stored something else.
#[derive(Debug, thiserror::Error)]
#[error("cannot write on {object}: {source}")]
pub struct WriteError {
    object: WorkloadRef,
    // Boxed, since the error of an apply is large.
    source: Box<ApplyError>,
}

impl WriteError {
    /// Whether the API server has said no, so that nothing was written.
    pub fn is_refused(&self) -> bool {
        self.class() == ErrorClass::Refused && !self.is_altered()
    }

    /// Whether admission changed what was written.
    fn is_altered(&self) -> bool {
        matches!(*self.source, ApplyError::Altered { .. })
    }
}

impl Classify for WriteError {
    fn class(&self) -> ErrorClass {
        self.source.class()
    }

    fn reason(&self) -> &'static str {
        if self.is_altered() { self.source.reason() } else { "WorkloadNotWritable" }
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
    applier: Applier,
}

impl Writer {
    /// Writes through this client.
    pub fn new(client: Client) -> Self {
        Self { applier: Applier::new(client, FIELD_MANAGER).for_the_version_seen() }
    }

    /// Writes the record and leaves the pods alone. It is a merge patch, since an apply without the pod template would take back what
    /// an earlier one has put there. Only the metadata comes back, whatever the size of the pod template.
    pub async fn note(&self, decided: Decided<'_>) -> Result<Written, WriteError> {
        let kind = decided.key.kind.resource();
        let metadata = decided.seen();
        let seen = PartialObjectMeta::<DynamicObject> { types: None, metadata, _phantom: PhantomData };
        let change = MetadataChange::new().annotation(RECORD, decided.record);
        let written = self.applier.change_metadata_with(&seen, &change, &kind).await;
        let version = |written: Option<PartialObjectMeta<DynamicObject>>| {
            written.map_or_else(|| decided.version.to_owned(), |now| now.metadata.resource_version.unwrap_or_default())
        };
        decided.outcome(written.map(version))
    }

    /// Writes the record, and on the pod template the stamp, and the time in these annotations of others. The whole object comes back, because
    /// its template shows whether the stamp was stored.
    pub async fn roll(
        &self,
        decided: Decided<'_>,
        stamp: &str,
        (marks, now): (&[&str], &str),
    ) -> Result<Written, WriteError> {
        let mut of_pods = json!({ STAMP: stamp });
        for mark in marks {
            of_pods[*mark] = now.into();
        }
        let kind = decided.key.kind;
        let annotations = [(RECORD.to_owned(), decided.record.to_owned())].into();
        let wanted = DynamicObject {
            types: None,
            metadata: ObjectMeta { annotations: Some(annotations), ..decided.named() },
            data: json!({ "spec": with_template(kind, &json!({ "metadata": { "annotations": of_pods } })) }),
        };
        let seen = DynamicObject { types: None, metadata: decided.seen(), data: json!({}) };
        let written = self.applier.apply_with(&wanted, Some(&seen), &kind.resource()).await;
        decided.outcome(written.map(|applied| applied.object.metadata.resource_version.unwrap_or_default()))
    }
}

impl Decided<'_> {
    fn named(&self) -> ObjectMeta {
        let WorkloadRef { namespace, name, .. } = self.key;
        ObjectMeta { name: Some(name.clone()), namespace: Some(namespace.clone()), ..ObjectMeta::default() }
    }

    fn seen(&self) -> ObjectMeta {
        let (uid, resource_version) = (Some(self.uid.to_owned()), Some(self.version.to_owned()));
        ObjectMeta { uid, resource_version, ..self.named() }
    }

    fn outcome(&self, written: Result<String, ApplyError>) -> Result<Written, WriteError> {
        match written {
            Ok(version) => Ok(Written::Done(version)),
            Err(ApplyError::Gone { .. }) => Ok(Written::Gone),
            Err(ApplyError::OutOfDate { .. }) => Ok(Written::Outdated),
            Err(source) => Err(WriteError { object: self.key.clone(), source: Box::new(source) }),
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
