//! The state of one workload and of one source, and the snapshot of both that a plan is made of. No lock, no IO.

pub mod revert_guard;
pub mod source;
pub mod workload;

use std::{collections::BTreeMap, sync::Arc};

use konverge_workload::Rollout;

pub use self::{
    source::{Read, SourceChange, SourceState},
    workload::{Observed, WorkloadState},
};
use crate::{
    object::{SourceName, WorkloadRef},
    time::Time,
    trigger::{TriggerRef, TriggerSpec, WatchedTrigger},
};

/// A snapshot of one workload and of all that it uses. It shares what it shows with the index, which leaves it as it is.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// Which workload.
    pub key: WorkloadRef,
    /// The workload.
    pub workload: Arc<WorkloadState>,
    /// The pods of its template, even if another workload runs them.
    pub pods: Pods,
    /// The sources that it uses, and those of its triggers.
    pub sources: BTreeMap<SourceName, Arc<SourceState>>,
    /// The triggers whose requests count for it, with their specs.
    pub triggers: Vec<(TriggerRef, Arc<WatchedTrigger>, Arc<TriggerSpec>)>,
    /// Whether all triggers have been seen. Before, entries in records that belong to triggers stay.
    pub all_triggers_listed: bool,
}

/// The pods of a template.
#[derive(Debug, Clone, Copy)]
pub struct Pods {
    /// Their state.
    pub rollout: Rollout,
    /// Since when some of them have not been available.
    pub unready: Option<Time>,
}

impl Snapshot {
    /// Returns the workload as the API server has it.
    pub fn observed(&self) -> &Observed {
        &self.workload.observed
    }

    /// Returns one source, if it is known.
    pub fn source(&self, name: &SourceName) -> Option<&SourceState> {
        self.sources.get(name).map(|source| &**source)
    }

    /// Returns the specs of the triggers whose requests count.
    pub fn specs(&self) -> impl Iterator<Item = &TriggerSpec> {
        self.triggers.iter().map(|(_, _, spec)| &**spec)
    }
}
