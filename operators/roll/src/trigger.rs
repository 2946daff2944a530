//! Objects that ask for rollouts of others: which workloads, for which secrets in Vault. Pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
    time::Duration,
};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use konverge_workload::Keys;
use kube::core::ApiResource;

use crate::{
    declarations::Rule,
    object::{SourceName, WorkloadRef},
    vault::Version,
    vault_sync_status::Status,
};

/// A kind of such objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TriggerKind {
    /// `stable.example.com/v1`.
    VaultSyncStatus,
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

/// What an object asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asks {
    /// Whose rollouts.
    pub targets: BTreeSet<WorkloadRef>,
    /// For what, and for which keys of it.
    pub sources: BTreeMap<SourceName, Keys>,
    /// How often Vault is asked.
    pub every: Duration,
    /// What the pods are taken to run with before anything was noted of them.
    pub before: Before,
    /// What cannot be followed and does no harm: told, and passed over.
    pub notes: Vec<Arc<str>>,
}

/// What the pods are taken to run with before anything was noted of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Before {
    /// Whatever is there when it is first seen.
    Adopted,
    /// What was there at that time, which somebody else has noted down.
    Time(Timestamp),
    /// Something else than is there.
    Other,
}

/// An object as a watch shows it.
#[derive(Debug, Clone)]
pub struct Shown {
    /// Its uid.
    pub uid: String,
    /// Its version.
    pub version: String,
    /// Its generation.
    pub generation: Option<i64>,
    /// What it asks for; why that cannot be understood.
    pub asks: Result<Arc<Asks>, Arc<str>>,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// What the original has left on it.
    pub leftovers: Leftovers,
    /// What its status says, if it is about this object.
    pub status: Arc<Status>,
}

/// What kopf leaves on objects, on which nobody works any more.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Leftovers {
    /// Its finalizers, without which nobody would let the object go.
    pub finalizers: Vec<String>,
    /// Its annotations.
    pub annotations: Vec<String>,
}

impl TriggerKind {
    /// As in manifests.
    pub fn name(self) -> &'static str {
        match self {
            Self::VaultSyncStatus => "VaultSyncStatus",
        }
    }

    /// Group and version, as in manifests.
    pub fn api_version(self) -> &'static str {
        match self {
            Self::VaultSyncStatus => "stable.example.com/v1",
        }
    }

    /// What a dynamic client needs to know.
    pub fn resource(self) -> ApiResource {
        let (group, version) = self.api_version().split_once('/').unwrap_or_default();
        ApiResource {
            group: group.to_owned(),
            version: version.to_owned(),
            api_version: self.api_version().to_owned(),
            kind: self.name().to_owned(),
            plural: match self {
                Self::VaultSyncStatus => "vaultsyncstatus".to_owned(),
            },
        }
    }
}

impl TriggerRef {
    /// What is told of as the cause.
    pub fn rule(&self) -> Rule {
        self.kind.name()
    }

    /// As events refer to it.
    pub fn reference(&self, uid: &str) -> ObjectReference {
        ObjectReference {
            api_version: Some(self.kind.api_version().to_owned()),
            kind: Some(self.kind.name().to_owned()),
            name: Some(self.name.clone()),
            namespace: Some(self.namespace.clone()),
            uid: Some(uid.to_owned()),
            ..ObjectReference::default()
        }
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

impl Shown {
    /// What it asks for as long as it is there.
    pub fn asks(&self) -> Option<&Arc<Asks>> {
        self.asks.as_ref().ok().filter(|_| !self.deleting)
    }

    /// Whether what is there is another version than a workload's pods are taken to run with, of which nothing is recorded. What the status
    /// says counts before what the spec does: that was for the time before anybody had looked.
    pub fn is_news(&self, workload: &WorkloadRef, uid: &str, source: &SourceName, now: &Version) -> bool {
        if !now.is_known() {
            return false;
        }
        let (workload, source) = (workload.to_string(), source.to_string());
        let noted = self.status.baseline.iter().find(|noted| noted.workload == workload && noted.source == source);
        match (noted, self.asks().map(|asks| asks.before)) {
            // One that was made anew has read what there was then.
            (Some(noted), _) => noted.uid == uid && (noted.version, &noted.created) != (now.number, &now.created),
            (None, None | Some(Before::Adopted)) => false,
            (None, Some(Before::Other)) => true,
            (None, Some(Before::Time(time))) => now.created.parse::<Timestamp>().is_ok_and(|created| created > time),
        }
    }
}
