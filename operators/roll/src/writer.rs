//! Writing on workloads: each time in one request, for exactly the version that was decided upon.

use std::{collections::BTreeMap, marker::PhantomData};

use konverge_apply::{Applier, ApplyError, MetadataChange};
use konverge_core::error::{Classify, ErrorClass};
use konverge_workload::WorkloadKind;
use kube::{
    Client,
    core::{DynamicObject, NotUsed, Object, ObjectMeta, PartialObjectMeta},
};
use serde::{Deserialize, Serialize};

use crate::{
    annotations::{RECORD, STAMP},
    object::WorkloadRef,
    reasons,
};

/// The field manager of every write.
pub const FIELD_MANAGER: &str = "vault-rollout-operator";

/// The result of a write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Written {
    /// The write succeeded. Holds the new resource version.
    Done(String),
    /// Nothing was written, because the workload has changed.
    Outdated,
    /// Nothing was written, because the workload does not exist.
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
    /// Returns `true` if the API server refused the write.
    pub fn is_refused(&self) -> bool {
        self.class() == ErrorClass::Refused && !self.is_altered()
    }

    /// Returns `true` if admission changed the object.
    fn is_altered(&self) -> bool {
        matches!(*self.source, ApplyError::Altered { .. })
    }
}

impl Classify for WriteError {
    fn class(&self) -> ErrorClass {
        self.source.class()
    }

    fn reason(&self) -> &'static str {
        if self.is_altered() { self.source.reason() } else { reasons::WORKLOAD_NOT_WRITABLE }
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
    pub async fn write_record(&self, decided: Decided<'_>) -> Result<Written, WriteError> {
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

    /// Writes the record, and on the pod template the stamp, and the time in these annotations of others. The answer shows whether the stamp
    /// was stored.
    pub async fn roll(
        &self,
        decided: Decided<'_>,
        stamp: &str,
        (marks, now): (&[&str], &str),
    ) -> Result<Written, WriteError> {
        let marks = marks.iter().map(|mark| ((*mark).to_owned(), now.to_owned()));
        let of_pods = [(STAMP.to_owned(), stamp.to_owned())].into_iter().chain(marks).collect();
        let kind = decided.key.kind;
        let record = [(RECORD.to_owned(), decided.record.to_owned())].into();
        let metadata = ObjectMeta { annotations: Some(record), ..decided.named() };
        let wanted = Restarted { types: None, metadata, spec: Spec::of(kind, of_pods), status: None };
        let seen = Restarted { types: None, metadata: decided.seen(), spec: Spec::default(), status: None };
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

/// A workload of any kind, as far as a restart writes it. The rest of the answer, which may be long, is not read.
type Restarted = Object<Spec, NotUsed>;

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    #[serde(skip_serializing_if = "Option::is_none")]
    template: Option<Template>,
    /// Where a `CronJob` has its pod template.
    #[serde(skip_serializing_if = "Option::is_none")]
    job_template: Option<JobTemplate>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
struct Template {
    metadata: Option<ObjectMeta>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
struct JobTemplate {
    spec: Box<Spec>,
}

impl Spec {
    /// The spec with these annotations of the pod template.
    fn of(kind: WorkloadKind, annotations: BTreeMap<String, String>) -> Self {
        let metadata = ObjectMeta { annotations: Some(annotations), ..ObjectMeta::default() };
        let spec = Self { template: Some(Template { metadata: Some(metadata) }), job_template: None };
        match kind {
            WorkloadKind::CronJob => Self { template: None, job_template: Some(JobTemplate { spec: Box::new(spec) }) },
            _ => spec,
        }
    }
}
