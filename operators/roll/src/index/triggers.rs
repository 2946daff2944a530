//! Triggers: the objects that request rollouts of workloads for secrets in Vault.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    sync::Arc,
    time::Duration,
};

use konverge_core::reverse_index::ReverseIndex;
use konverge_workload::{Need, Usage};

use super::Shows;
use crate::{
    object::{SourceName, SourceRef, WorkloadRef},
    state::Observed,
    trigger::{TriggerKind, TriggerRef, TriggerSpec, WatchedTrigger},
    uses::{self, Use},
};

/// The triggers.
#[derive(Default)]
pub(super) struct Triggers {
    known: BTreeMap<TriggerRef, Arc<WatchedTrigger>>,
    /// The kinds of which a complete list was handled.
    listed: BTreeSet<TriggerKind>,
    /// The workloads that a trigger names. A workload need not exist.
    targets: ReverseIndex<TriggerRef, WorkloadRef>,
    /// The triggers that select workloads of a namespace by labels.
    selectors: ReverseIndex<TriggerRef, String, Arc<TriggerSpec>>,
    /// The sources that a trigger requests rollouts for.
    followed: ReverseIndex<TriggerRef, SourceRef>,
}

impl Triggers {
    /// Returns one trigger.
    pub(super) fn get(&self, key: &TriggerRef) -> Option<&Arc<WatchedTrigger>> {
        self.known.get(key)
    }

    /// Returns the spec of a trigger, if it can be followed and is not being deleted.
    pub(super) fn spec(&self, key: &TriggerRef) -> Option<&Arc<TriggerSpec>> {
        self.known.get(key)?.spec()
    }

    /// Returns the number of triggers.
    pub(super) fn len(&self) -> usize {
        self.known.len()
    }

    /// Changes the state of a trigger if it still has this uid. Returns `true` if it did.
    pub(super) fn update(&mut self, key: &TriggerRef, uid: &str, change: impl FnOnce(&mut WatchedTrigger)) -> bool {
        let known = self.known.get_mut(key).filter(|known| known.uid == uid);
        known.map(Arc::make_mut).map(change).is_some()
    }

    /// Returns `true` if this version of a trigger is outdated.
    pub(super) fn is_outdated(&self, by: Shows<'_>, key: &TriggerRef, shown: &WatchedTrigger) -> bool {
        let before = self.known.get(key).filter(|before| before.uid == shown.uid);
        before.is_some_and(|before| by.is_outdated(&shown.version, &before.version))
    }

    /// Replaces a trigger by a version with the same spec. Returns `false` if the spec differs.
    pub(super) fn replace_same(&mut self, key: &TriggerRef, shown: &WatchedTrigger) -> bool {
        let before = self
            .known
            .get_mut(key)
            .filter(|before| before.uid == shown.uid && before.spec == shown.spec && before.deleting == shown.deleting);
        before.map(|before| *before = Arc::new(shown.clone())).is_some()
    }

    /// Replaces a trigger, or removes it. Returns the sources that it requested or requests rollouts for: the interval at which they are followed may change.
    pub(super) fn set(&mut self, key: &TriggerRef, shown: Option<WatchedTrigger>) -> BTreeSet<SourceRef> {
        let mut sources: BTreeSet<_> = self.followed.targets(key).cloned().collect();
        match shown {
            Some(shown) => drop(self.known.insert(key.clone(), Arc::new(shown))),
            None => drop(self.known.remove(key)),
        }
        let spec = self.spec(key).cloned();
        let targets = spec.iter().flat_map(|spec| &spec.targets).map(|target| (target.clone(), ()));
        self.targets.set(key, targets);
        let scope = |spec: &Arc<TriggerSpec>, namespace: &String| (namespace.clone(), Arc::clone(spec));
        let scopes = spec.iter().flat_map(|spec| spec.choices.iter().map(|choice| scope(spec, &choice.namespace)));
        self.selectors.set(key, scopes);
        let followed = spec.iter().flat_map(|spec| spec.sources.keys()).map(|source| (source.of(""), ()));
        self.followed.set(key, followed);
        sources.extend(self.followed.targets(key).cloned());
        sources
    }

    /// Returns the triggers of one kind that a complete list does not contain.
    pub(super) fn missing_in(&self, kind: TriggerKind, listed: &HashSet<TriggerRef>) -> Vec<TriggerRef> {
        self.known.keys().filter(|key| key.kind == kind && !listed.contains(*key)).cloned().collect()
    }

    /// Records that a complete list of a kind was handled.
    pub(super) fn set_listed(&mut self, kind: TriggerKind) {
        self.listed.insert(kind);
    }

    /// Returns `true` if complete lists of all kinds were handled. Until then, record entries that belong to triggers stay.
    pub(super) fn all_listed(&self) -> bool {
        self.listed.len() == TriggerKind::ALL.len()
    }

    /// Returns the triggers that name a workload.
    pub(super) fn naming(&self, key: &WorkloadRef) -> impl Iterator<Item = &TriggerRef> {
        self.targets.referrers(key)
    }

    /// Returns the triggers that name a workload, and then those that select it by its labels.
    pub(super) fn of_workload<'a>(
        &'a self,
        key: &'a WorkloadRef,
        labels: &'a BTreeMap<String, String>,
    ) -> impl Iterator<Item = &'a TriggerRef> {
        let selecting =
            self.selectors.matching(&key.namespace, move |_, spec: &Arc<TriggerSpec>| spec.chooses(key, labels));
        self.targets.referrers(key).chain(selecting)
    }

    /// Returns the triggers whose requests count for a workload: those that can be followed, and that the workload allows.
    pub(super) fn requests<'a>(
        &'a self,
        key: &'a WorkloadRef,
        workload: &'a Observed,
    ) -> impl Iterator<Item = (&'a TriggerRef, &'a Arc<WatchedTrigger>, &'a Arc<TriggerSpec>)> {
        let own = workload.spec.as_ref().ok().filter(|own| !own.never);
        let allowed = own.into_iter().flat_map(move |own| {
            let triggers = self.of_workload(key, &workload.labels);
            triggers.filter(move |trigger| own.allows(&key.namespace, &trigger.namespace))
        });
        allowed.filter_map(move |trigger| {
            let shown = self.known.get(trigger)?;
            Some((trigger, shown, shown.spec()?))
        })
    }

    /// Adds the sources for which triggers request rollouts of a workload, and the Secrets that they wait for.
    pub(super) fn add_uses(&self, key: &WorkloadRef, workload: &Observed, found: &mut BTreeMap<SourceName, Use>) {
        let mut requested = BTreeMap::new();
        let has_template = workload.template_of.is_none();
        for (trigger, _, spec) in self.requests(key, workload).filter(|_| has_template) {
            for (source, keys) in &spec.sources {
                // No pod is known to have started without it.
                let usage = Usage { need: Need::Required, keys: keys.clone(), required: BTreeSet::new() };
                uses::add(&mut requested, source, usage, trigger.rule());
            }
        }
        found.extend(requested);
        for (trigger, _, spec) in self.requests(key, workload) {
            if let Some(wait) = &spec.wait_for {
                uses::add_awaited(found, wait.secret.clone(), wait.keys.clone(), trigger.rule());
            }
        }
    }

    /// Returns the triggers that request rollouts for a source.
    pub(super) fn followers(&self, source: &SourceRef) -> impl Iterator<Item = &TriggerRef> {
        self.followed.referrers(source)
    }

    /// Returns the shortest poll interval that a trigger sets for a source.
    pub(super) fn interval(&self, source: &SourceRef) -> Option<Duration> {
        self.followers(source).filter_map(|key| self.spec(key)).map(|spec| spec.every).min()
    }

    #[cfg(test)]
    pub(super) fn has_references(&self) -> bool {
        !(self.targets.is_empty() && self.selectors.is_empty() && self.followed.is_empty())
    }
}
