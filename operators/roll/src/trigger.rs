//! Triggers: objects that request rollouts of workloads for secrets in Vault. Pure functions.

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

/// A reference to a trigger.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TriggerRef {
    /// The kind of the trigger.
    pub kind: TriggerKind,
    /// The namespace of the trigger.
    pub namespace: String,
    /// The name of the trigger.
    pub name: String,
}

/// The spec of a trigger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TriggerSpec {
    /// The workloads that the trigger names.
    pub targets: BTreeSet<WorkloadRef>,
    /// The workloads that the trigger selects by labels.
    pub choices: Vec<Choice>,
    /// The sources, each with the keys that count.
    pub sources: BTreeMap<SourceName, Keys>,
    /// The poll interval.
    pub every: Duration,
    /// The version that pods are assumed to run with before the first record.
    pub before: Before,
    /// Whether it is suspended. Changes are recorded.
    pub suspended: bool,
    /// The Secret that must change before a rollout.
    pub wait_for: Option<WaitFor>,
    /// Invalid values that do no harm. The operator reports and ignores them.
    pub notes: Vec<Arc<str>>,
}

/// The Secret that must change before a rollout.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitFor {
    /// The Secret.
    pub secret: SourceName,
    /// The keys, of which one must change.
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
    /// The kind of the workloads. `None` selects all kinds.
    pub kind: Option<WorkloadKind>,
    /// The labels of the workloads.
    pub labels: Selector,
}

/// The version that pods are assumed to run with before the first record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Before {
    /// The version that exists at first sight.
    Adopted,
    /// The version at this time, which another operator has recorded.
    Time(Timestamp),
    /// A version other than the current one.
    Other,
}

/// A trigger as observed by a watch.
#[derive(Debug, Clone)]
pub struct WatchedTrigger {
    /// The uid of the trigger.
    pub uid: String,
    /// The resource version of the trigger.
    pub version: String,
    /// The generation of the trigger.
    pub generation: Option<i64>,
    /// The spec, or the reason for which the operator does not follow it.
    pub spec: Result<Arc<TriggerSpec>, Refusal>,
    /// Whether the trigger is being deleted.
    pub deleting: bool,
    /// The finalizers and annotations that the original has left on it.
    pub leftovers: Leftovers,
    /// The status, if it belongs to this object.
    pub status: Arc<Status>,
}

/// The reason for which a trigger causes no rollout.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The reason, one of [`reasons`](crate::reasons).
    pub reason: &'static str,
    /// The cause, and the next step.
    pub text: Arc<str>,
}

/// The finalizers and annotations that kopf leaves on objects.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Leftovers {
    /// The finalizers. The operator removes them, because the original no longer does and they would block the deletion.
    pub finalizers: Vec<String>,
    /// The annotations.
    pub annotations: Vec<String>,
}

impl TriggerSpec {
    /// Returns `true` if the trigger selects a workload with these labels.
    pub fn chooses(&self, workload: &WorkloadRef, labels: &BTreeMap<String, String>) -> bool {
        self.choices.iter().any(|choice| choice.fits(workload) && choice.labels.matches(labels))
    }

    /// Returns `true` if the trigger waits for this Secret.
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
    /// All kinds of triggers.
    pub const ALL: [Self; 2] = [Self::VaultSyncStatus, Self::VaultRollout];

    /// Returns the name used in manifests.
    pub fn name(self) -> &'static str {
        match self {
            Self::VaultSyncStatus => "VaultSyncStatus",
            Self::VaultRollout => "VaultRollout",
        }
    }

    /// Returns the group and version used in manifests.
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

    /// Returns the group, version and kind.
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

    /// Returns the reference that events use.
    pub fn reference(&self, uid: &str) -> ObjectReference {
        events::reference(&self.kind.gvk(), &self.namespace, &self.name, uid)
    }
}

/// Displays the trigger as `VaultSyncStatus shop/web`.
impl fmt::Display for TriggerRef {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} {}/{}", self.kind.name(), self.namespace, self.name)
    }
}

impl Leftovers {
    /// Returns `true` if there are no leftovers.
    pub fn is_empty(&self) -> bool {
        self.finalizers.is_empty() && self.annotations.is_empty()
    }
}

impl WatchedTrigger {
    /// Returns the spec, or `None` if the trigger is invalid or being deleted.
    pub fn spec(&self) -> Option<&Arc<TriggerSpec>> {
        self.spec.as_ref().ok().filter(|_| !self.deleting)
    }

    /// Returns `true` if `now` is another version than the pods of a workload without a record are assumed to run with. The status takes precedence
    /// over the spec, which describes the time before the first observation.
    pub fn is_news(&self, workload: &WorkloadRef, uid: &str, source: &SourceName, now: &Version) -> bool {
        if !now.is_known() {
            return false;
        }
        let (workload, source) = (workload.to_string(), source.to_string());
        let noted = self.status.baseline.iter().find(|noted| noted.workload == workload && noted.source == source);
        match (noted, self.spec().map(|spec| spec.before)) {
            // The pods of a recreated workload have read the content at that time.
            (Some(noted), _) => noted.uid == uid && (noted.version, &noted.created) != (now.number, &now.created),
            // The spec describes the time before the first observation. Another target or path is observed for the first time.
            (None, _) if !self.status.baseline.is_empty() => false,
            (None, None | Some(Before::Adopted)) => false,
            (None, Some(Before::Other)) => true,
            (None, Some(Before::Time(time))) => now.created.parse::<Timestamp>().is_ok_and(|created| created > time),
        }
    }
}
