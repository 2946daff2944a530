//! The input and the output of the index: where an object comes from, and which keys need a run.

use std::collections::BTreeSet;

use konverge_runtime::version::is_older;

use crate::{
    declarations::Invalid,
    object::{SourceRef, WorkloadRef},
    trigger::TriggerRef,
};

/// The keys that need a run after the index has changed.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Workloads to reconcile.
    pub workloads: BTreeSet<WorkloadRef>,
    /// Secrets and `ConfigMaps` to read, and secrets in Vault to follow or to follow no more.
    pub sources: BTreeSet<SourceRef>,
    /// Secrets and `ConfigMaps`, in the cluster or in Vault, that no workload uses any more.
    pub unused: BTreeSet<SourceRef>,
    /// Triggers whose status may change.
    pub triggers: BTreeSet<TriggerRef>,
    /// An annotation of a source that is invalid, with the uid of the source. Reported once for each text.
    pub invalid: Option<(SourceRef, String, Invalid)>,
}

impl Work {
    /// Adds more work.
    pub(super) fn add(&mut self, more: Self) {
        self.workloads.extend(more.workloads);
        self.sources.extend(more.sources);
        self.unused.extend(more.unused);
        self.triggers.extend(more.triggers);
        self.invalid = self.invalid.take().or(more.invalid);
    }
}

/// Where an object comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shows<'a> {
    /// A watch event. An older version than the known one is late.
    Event,
    /// A list. An older version than the known one counts: the API server's storage was restored from a backup.
    List,
    /// The answer to a read after this version turned out to be outdated. An older version counts unless the index has changed since.
    Answer(&'a str),
}

impl Shows<'_> {
    /// Returns whether `version` is late compared with the `known` one.
    pub(super) fn is_outdated(self, version: &str, known: &str) -> bool {
        match self {
            Self::Event => is_older(version, known),
            Self::List => false,
            Self::Answer(outdated) => known != outdated && is_older(version, known),
        }
    }
}
