//! All workloads of the cluster, opted in or not.

use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
};

use konverge_core::reverse_index::ReverseIndex;
use konverge_workload::WorkloadKind;

use crate::{
    annotations::WorkloadSpec,
    object::WorkloadRef,
    state::{Observed, WorkloadState},
};

/// The workloads.
#[derive(Default)]
pub(super) struct Workloads {
    known: BTreeMap<WorkloadRef, Arc<WorkloadState>>,
    /// The spec of the last inserted workload. Most workloads have the same spec, and share it.
    usual: Arc<WorkloadSpec>,
    /// The Deployment whose pod template a workload runs.
    template_refs: ReverseIndex<WorkloadRef, WorkloadRef>,
}

impl Workloads {
    /// Returns one workload.
    pub(super) fn get(&self, key: &WorkloadRef) -> Option<&Arc<WorkloadState>> {
        self.known.get(key)
    }

    /// Returns one workload to change it. Snapshots keep what they have.
    pub(super) fn get_mut(&mut self, key: &WorkloadRef) -> Option<&mut WorkloadState> {
        self.known.get_mut(key).map(Arc::make_mut)
    }

    /// Like [`get_mut`](Self::get_mut), but returns `None` if the workload has another uid.
    pub(super) fn with_uid(&mut self, key: &WorkloadRef, uid: &str) -> Option<&mut WorkloadState> {
        let known = self.known.get_mut(key).filter(|known| known.observed.uid == uid)?;
        Some(Arc::make_mut(known))
    }

    /// Returns all workloads, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&WorkloadRef, &Arc<WorkloadState>)> {
        self.known.iter()
    }

    /// Returns the workloads of one kind that a complete list does not contain.
    pub(super) fn missing_in(&self, kind: WorkloadKind, listed: &HashSet<WorkloadRef>) -> Vec<WorkloadRef> {
        let is_missing = |key: &&WorkloadRef| key.kind == kind && !listed.contains(*key);
        self.known.keys().filter(is_missing).cloned().collect()
    }

    /// Inserts or replaces a workload. Returns the owners of its template, before and after the change.
    pub(super) fn insert(&mut self, key: &WorkloadRef, mut state: WorkloadState) -> Vec<WorkloadRef> {
        self.share_spec(&mut state.observed);
        let owner = template_owner(key, &state.observed);
        self.known.insert(key.clone(), Arc::new(state));
        self.set_template_owner(key, owner)
    }

    /// Removes a workload. Returns it, and the owner of the template that it ran.
    pub(super) fn remove(&mut self, key: &WorkloadRef) -> Option<(Arc<WorkloadState>, Vec<WorkloadRef>)> {
        let state = self.known.remove(key)?;
        Some((state, self.set_template_owner(key, None)))
    }

    /// Returns the workload that runs the pods of a template: another one, if this one has no pods and the other one has.
    pub(super) fn pod_owner<'a>(&'a self, key: &WorkloadRef, state: &'a WorkloadState) -> &'a WorkloadState {
        if !state.observed.rollout.empty {
            return state;
        }
        let owners = self.template_refs.referrers(key).filter_map(|owner| self.known.get(owner));
        owners.map(|owner| &**owner).find(|owner| !owner.observed.rollout.empty).unwrap_or(state)
    }

    fn set_template_owner(&mut self, key: &WorkloadRef, owner: Option<WorkloadRef>) -> Vec<WorkloadRef> {
        let changes = self.template_refs.set(key, owner.clone().map(|owner| (owner, ())));
        changes.removed.iter().map(|owner| (**owner).clone()).chain(owner).collect()
    }

    fn share_spec(&mut self, workload: &mut Observed) {
        if let Ok(spec) = &mut workload.spec {
            if *spec == self.usual {
                spec.clone_from(&self.usual);
            } else {
                self.usual.clone_from(spec);
            }
        }
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.known.is_empty() && self.template_refs.is_empty()
    }

    #[cfg(test)]
    pub(super) fn has_template_refs(&self) -> bool {
        !self.template_refs.is_empty()
    }
}

/// The Deployment whose pod template a workload runs. An Argo Rollout names it in `workloadRef`: the Rollout has no template that could be changed, and the
/// Deployment has no pods of its own.
fn template_owner(key: &WorkloadRef, workload: &Observed) -> Option<WorkloadRef> {
    let owner = workload.template_of.as_ref().filter(|other| other.kind == WorkloadKind::Deployment.name())?;
    Some(WorkloadRef { namespace: key.namespace.clone(), kind: WorkloadKind::Deployment, name: owner.name.clone() })
}
