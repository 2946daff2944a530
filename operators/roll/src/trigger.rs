//! Triggers: objects that request rollouts of workloads for secrets in Vault. Pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
    time::Duration,
};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::ObjectReference;
use konverge_apply::events;
use konverge_workload::{Keys, WorkloadKind};
use kube::core::{ApiResource, GroupVersionKind, Selector, SelectorExt};

use crate::{
    annotations::Rule,
    definition::Status,
    object::{SourceName, WorkloadRef},
    vault::Version,
};

/// A kind of triggers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TriggerKind {
    /// `stable.example.com/v1`.
    VaultSyncStatus,
    /// `konverge.dev/v1alpha1`.
    VaultRollout,
}

/// Which object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TriggerRef {
    /// Its kind.
    pub kind: TriggerKind,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// The spec of a trigger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TriggerSpec {
    /// The workloads that it names.
    pub targets: BTreeSet<WorkloadRef>,
    /// The workloads that it selects by labels.
    pub choices: Vec<Choice>,
    /// The sources, each with the keys that count.
    pub sources: BTreeMap<SourceName, Keys>,
    /// The poll interval.
    pub every: Duration,
    /// The version that the pods are taken to run with before anything was recorded.
    pub before: Before,
    /// Whether it is suspended. Changes are recorded.
    pub suspended: bool,
    /// The Secret that must change before a rollout.
    pub wait_for: Option<WaitFor>,
    /// Values that cannot be followed and do no harm. They are reported and ignored.
    pub notes: Vec<Arc<str>>,
}

/// The Secret that must change before a rollout.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitFor {
    /// The Secret.
    pub secret: SourceName,
    /// The keys of which a value must change.
    pub keys: Keys,
    /// The longest wait.
    pub timeout: SignedDuration,
    /// Whether the rollout waits for the Secret even after the timeout.
    pub holds: bool,
}

/// Workloads of a namespace with certain labels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    /// The namespace.
    pub namespace: String,
    /// Of which kind; of all if there is none.
    pub kind: Option<WorkloadKind>,
    /// Their labels.
    pub labels: Selector,
}

/// The version that the pods are taken to run with before anything was recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Before {
    /// The version that exists at first sight.
    Adopted,
    /// The version of that time, which another operator has recorded.
    Time(Timestamp),
    /// Something else than is there.
    Other,
}

/// A trigger as a watch shows it.
#[derive(Debug, Clone)]
pub struct WatchedTrigger {
    /// Its uid.
    pub uid: String,
    /// Its version.
    pub version: String,
    /// Its generation.
    pub generation: Option<i64>,
    /// The spec, or why it is not followed.
    pub spec: Result<Arc<TriggerSpec>, Refusal>,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// The finalizers and annotations that the original has left on it.
    pub leftovers: Leftovers,
    /// Its status, if it is about this object.
    pub status: Arc<Status>,
}

/// Why nothing is rolled for an object's sake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// One of [`reasons`](crate::reasons).
    pub reason: &'static str,
    /// The cause, and the next step.
    pub text: Arc<str>,
}

/// The finalizers and annotations that kopf leaves on objects.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Leftovers {
    /// Its finalizers, without which nobody would let the object go.
    pub finalizers: Vec<String>,
    /// Its annotations.
    pub annotations: Vec<String>,
}

impl TriggerSpec {
    /// Returns whether it selects a workload with these labels.
    pub fn chooses(&self, workload: &WorkloadRef, labels: &BTreeMap<String, String>) -> bool {
        self.choices.iter().any(|choice| choice.fits(workload) && choice.labels.matches(labels))
    }

    /// Returns whether it waits for this Secret.
    pub fn waits_for(&self, secret: &SourceName) -> bool {
        self.wait_for.as_ref().is_some_and(|wait| wait.secret == *secret)
    }
}

impl Choice {
    fn fits(&self, workload: &WorkloadRef) -> bool {
        self.namespace == workload.namespace && self.kind.is_none_or(|kind| kind == workload.kind)
    }
}

impl TriggerKind {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::VaultSyncStatus, Self::VaultRollout];

    /// As in manifests.
    pub fn name(self) -> &'static str {
        match self {
            Self::VaultSyncStatus => "VaultSyncStatus",
            Self::VaultRollout => "VaultRollout",
        }
    }

    /// Group and version, as in manifests.
    pub fn api_version(self) -> &'static str {
        match self {
            Self::VaultSyncStatus => "stable.example.com/v1",
            Self::VaultRollout => "konverge.dev/v1alpha1",
        }
    }

    /// Returns the resource for a dynamic client.
    pub fn resource(self) -> ApiResource {
        ApiResource::from_gvk_with_plural(&self.gvk(), self.plural())
    }

    /// Returns the plural of the resource.
    pub fn plural(self) -> &'static str {
        match self {
            Self::VaultSyncStatus => "vaultsyncstatus",
            Self::VaultRollout => "vaultrollouts",
        }
    }

    /// Group, version and name.
    pub fn gvk(self) -> GroupVersionKind {
        let (group, version) = self.api_version().split_once('/').unwrap_or_default();
        GroupVersionKind::gvk(group, version, self.name())
    }
}

impl TriggerRef {
    /// Returns the name that messages give as the cause.
    pub fn rule(&self) -> Rule {
        self.kind.name()
    }

    /// As events refer to it.
    pub fn reference(&self, uid: &str) -> ObjectReference {
        events::reference(&self.kind.gvk(), &self.namespace, &self.name, uid)
    }
}

/// `VaultSyncStatus shop/web`.
impl fmt::Display for TriggerRef {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} {}/{}", self.kind.name(), self.namespace, self.name)
    }
}

impl Leftovers {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.finalizers.is_empty() && self.annotations.is_empty()
    }
}

impl WatchedTrigger {
    /// Returns its spec, unless it is being deleted.
    pub fn spec(&self) -> Option<&Arc<TriggerSpec>> {
        self.spec.as_ref().ok().filter(|_| !self.deleting)
    }

    /// Whether what is there is another version than a workload's pods are taken to run with, of which nothing is recorded. The status counts before the spec, which is about the time before the first look.
    pub fn is_news(&self, workload: &WorkloadRef, uid: &str, source: &SourceName, now: &Version) -> bool {
        if !now.is_known() {
            return false;
        }
        let (workload, source) = (workload.to_string(), source.to_string());
        let noted = self.status.baseline.iter().find(|noted| noted.workload == workload && noted.source == source);
        match (noted, self.spec().map(|spec| spec.before)) {
            // A recreated workload has read the content of that time.
            (Some(noted), _) => noted.uid == uid && (noted.version, &noted.created) != (now.number, &now.created),
            // The spec is about the time before the first look. Another target or path is seen for the first time.
            (None, _) if !self.status.baseline.is_empty() => false,
            (None, None | Some(Before::Adopted)) => false,
            (None, Some(Before::Other)) => true,
            (None, Some(Before::Time(time))) => now.created.parse::<Timestamp>().is_ok_and(|created| created > time),
        }
    }
}
