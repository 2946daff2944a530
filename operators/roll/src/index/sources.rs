//! Secrets and `ConfigMaps`, in the cluster and in Vault.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    sync::Arc,
};

use konverge_core::reverse_index::{Changes, ReverseIndex};
use kube::core::{Selector, SelectorExt};

use crate::{
    object::{SourceKind, SourceName, SourceRef, WorkloadRef},
    state::{Doubt, SourceState},
};

/// The sources that a workload uses or that have a spec.
#[derive(Default)]
pub(super) struct Sources {
    known: HashMap<SourceRef, Arc<SourceState>>,
    /// The sources whose annotations may concern a workload: those that it names, and those that its pods use.
    named: ReverseIndex<WorkloadRef, SourceRef>,
    /// The sources that a workload is rolled for.
    users: ReverseIndex<WorkloadRef, SourceRef>,
    /// The sources that select workloads of their namespace by labels.
    selectors: ReverseIndex<SourceRef, String, Selector>,
}

impl Sources {
    /// Returns one source.
    pub(super) fn get(&self, source: &SourceRef) -> Option<&Arc<SourceState>> {
        self.known.get(source)
    }

    /// Returns one source to change it. Snapshots keep what they have.
    pub(super) fn get_mut(&mut self, source: &SourceRef) -> Option<&mut SourceState> {
        self.known.get_mut(source).map(Arc::make_mut)
    }

    /// Returns one source to change it. A source that is not known yet is added.
    pub(super) fn entry(&mut self, source: &SourceRef) -> &mut SourceState {
        Arc::make_mut(self.known.entry(source.clone()).or_default())
    }

    /// Returns all sources.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&SourceRef, &Arc<SourceState>)> {
        self.known.iter()
    }

    /// Returns the workloads that are rolled for a source, in order.
    pub(super) fn users<'a>(&'a self, source: &SourceRef) -> impl Iterator<Item = &'a WorkloadRef> + use<'a> {
        self.users.referrers(source)
    }

    /// Returns the workloads of a namespace that are rolled for a source.
    pub(super) fn users_in(&self, namespace: &str, source: &SourceName) -> Vec<WorkloadRef> {
        self.users(&source.of(namespace)).filter(|user| user.namespace == namespace).cloned().collect()
    }

    /// Returns `true` if any workload is rolled for a source.
    pub(super) fn is_used(&self, source: &SourceRef) -> bool {
        self.users.is_referenced(source)
    }

    /// Returns the number of sources that a workload is rolled for.
    pub(super) fn used_count(&self) -> usize {
        self.users.target_count()
    }

    /// Sets which sources a workload is rolled for.
    pub(super) fn set_used(&mut self, key: &WorkloadRef, sources: &[SourceRef]) -> Changes<SourceRef> {
        self.users.set(key, sources.iter().map(|source| (source.clone(), ())))
    }

    /// Sets which sources may concern a workload by their annotations.
    pub(super) fn set_named(&mut self, key: &WorkloadRef, sources: impl IntoIterator<Item = SourceRef>) {
        self.named.set(key, sources.into_iter().map(|source| (source, ())));
    }

    /// Returns the sources that select a workload of this namespace by these labels.
    pub(super) fn selecting<'a>(
        &'a self,
        namespace: &String,
        labels: &'a std::collections::BTreeMap<String, String>,
    ) -> impl Iterator<Item = &'a SourceName> {
        self.selectors.matching(namespace, |_, selector: &Selector| selector.matches(labels)).map(|source| &source.name)
    }

    /// Updates the selector of a source after a change of its annotations. Returns the workloads that name or use the source, and whether it selects
    /// workloads by labels, before or after the change.
    pub(super) fn update_selector(&mut self, source: &SourceRef) -> (BTreeSet<WorkloadRef>, bool) {
        let selector = self.known.get(source).and_then(|known| known.spec.selector.clone());
        let selects = selector.is_some();
        let changes = self.selectors.set(source, selector.map(|selector| (source.namespace.clone(), selector)));
        (self.named.referrers(source).cloned().collect(), selects || !changes.removed.is_empty())
    }

    /// Records that a source is about to be read. The response will be newer than every update until now.
    pub(super) fn reading(&mut self, source: &SourceRef) {
        if self.known.get(source).is_some_and(|known| known.doubt == Doubt::Open)
            && let Some(known) = self.get_mut(source)
        {
            known.doubt = Doubt::Reading;
        }
    }

    /// Marks the content of a source as possibly older than the content that a user runs with.
    pub(super) fn doubt(&mut self, source: &SourceRef) {
        if let Some(known) = self.get_mut(source) {
            known.doubt = Doubt::Open;
        }
    }

    /// Drops the parts of a source that are no longer needed.
    pub(super) fn drop_unused(&mut self, source: &SourceRef) {
        if self.is_used(source) {
            return;
        }
        if self.known.get(source).is_some_and(|known| known.spec.is_silent()) {
            self.known.remove(source);
        } else if let Some(known) = self.get_mut(source) {
            // The source is read again for the next user.
            known.read = None;
            known.doubt = Doubt::None;
            known.refused = None;
        }
    }

    /// Forgets a workload.
    pub(super) fn remove_workload(&mut self, key: &WorkloadRef) {
        self.named.remove(key);
    }

    /// Returns the known sources of a kind that exist.
    pub(super) fn existing(&self, kind: SourceKind) -> HashSet<SourceRef> {
        let existing = self.known.iter().filter(|(source, known)| source.name.kind == kind && known.exists());
        existing.map(|(source, _)| source.clone()).collect()
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.known.is_empty() && self.users.is_empty()
    }

    #[cfg(test)]
    pub(super) fn has_named(&self) -> bool {
        !self.named.is_empty()
    }
}
