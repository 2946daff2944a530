//! All tables of the index, and how a change of one reaches the others.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use konverge_core::reverse_index::ReverseIndex;

use super::{
    Shows, Work,
    classes::{ClassRef, Classes},
    sources::Sources,
    triggers::Triggers,
    workloads::Workloads,
};
use crate::{
    breaker,
    object::{SourceName, SourceRef, WorkloadRef},
    plan::Plan,
    state::{Doubt, Health, Pods, Read, Snapshot, SourceChange, WorkloadState},
    time::Time,
    trigger::{TriggerRef, TriggerSpec, WatchedTrigger},
    trigger_status::Targets,
    uses,
    waves::{QueueRef, WaveQueues},
};

/// The tables. Each one keeps its own entries; the functions here keep them consistent.
#[derive(Default)]
pub(super) struct Tables {
    pub(super) workloads: Workloads,
    pub(super) sources: Sources,
    pub(super) triggers: Triggers,
    pub(super) classes: Classes,
    pub(super) waves: WaveQueues,
    /// The sources that must exist before a workload may be rolled, although it is not rolled for them.
    pub(super) missing: ReverseIndex<WorkloadRef, SourceRef>,
    /// The workloads whose record says that their last rollout has failed.
    failed: BTreeSet<WorkloadRef>,
}

impl Tables {
    /// Inserts or replaces a workload, as it was shown.
    pub(super) fn apply_workload(
        &mut self,
        shows: Shows<'_>,
        key: &WorkloadRef,
        mut state: WorkloadState,
        now: Time,
    ) -> Work {
        let mut work = Work::default();
        let is_changed = self.workloads.get(key).is_none_or(|before| before.changes_status(&state));
        let before = self.workloads.get(key).filter(|before| before.observed.uid == state.observed.uid);
        // The response to a write of this process may arrive before the event of an earlier version.
        if before.is_some_and(|before| shows.is_outdated(&state.observed.version, &before.observed.version)) {
            return work;
        }
        if before.is_none() {
            self.remove_workload(key, &mut work);
        }
        let labels = self.workloads.get(key).map(|before| before.observed.labels.clone());
        if let Some(labels) = labels.as_ref().filter(|labels| **labels != state.observed.labels) {
            work.triggers.extend(self.triggers.of_workload(key, labels).cloned());
        }
        if is_changed || labels.is_none_or(|labels| labels != state.observed.labels) {
            work.triggers.extend(self.triggers.of_workload(key, &state.observed.labels).cloned());
        }
        if let Some(before) = self.workloads.get_mut(key) {
            state.carry_over(before, now);
        }
        self.classes.set_mounted(key, &state.observed.classes);
        let owners = self.workloads.insert(key, state);
        self.note_failure(key);
        self.set_named(key);
        self.invalidate_owners(owners, &mut work);
        self.update_uses(key, &mut work);
        if is_changed {
            self.wake_later_waves(key, &mut work);
        }
        work
    }

    /// Removes a workload.
    pub(super) fn remove_workload(&mut self, key: &WorkloadRef, work: &mut Work) {
        self.set_uses(key, BTreeMap::new(), work);
        self.waves.invalidate(key);
        self.waves.set_waiting(key, None);
        self.missing.remove(key);
        self.failed.remove(key);
        let Some((state, owners)) = self.workloads.remove(key) else { return };
        work.triggers.extend(self.triggers.of_workload(key, &state.observed.labels).cloned());
        self.classes.remove_workload(key);
        self.sources.remove_workload(key);
        self.invalidate_owners(owners, work);
    }

    /// Records whether the last rollout of a workload has failed, according to its record.
    pub(super) fn note_failure(&mut self, key: &WorkloadRef) {
        if self.workloads.get(key).is_some_and(|state| state.record.says_failed()) {
            self.failed.insert(key.clone());
        } else {
            self.failed.remove(key);
        }
    }

    /// Returns a snapshot of each other workload of the namespace whose last rollout has failed.
    pub(super) fn failed_beside(&self, key: &WorkloadRef) -> Vec<Snapshot> {
        let others = self.failed.iter().filter(|other| other.namespace == key.namespace && *other != key);
        others.filter_map(|other| self.snapshot(other)).collect()
    }

    /// Returns the number of workloads whose last rollout has failed.
    pub(super) fn failed_count(&self) -> usize {
        self.failed.len()
    }

    /// Adds the workloads that wait for this one.
    pub(super) fn wake_later_waves(&self, key: &WorkloadRef, work: &mut Work) {
        work.workloads.extend(self.waves.waiting_for(key).cloned());
    }

    /// Evaluates template owners again, because their pods are those of another workload.
    fn invalidate_owners(&mut self, owners: Vec<WorkloadRef>, work: &mut Work) {
        for owner in owners {
            self.waves.invalidate(&owner);
            work.workloads.insert(owner);
        }
    }

    /// Sets which sources may concern a workload by their annotations.
    fn set_named(&mut self, key: &WorkloadRef) {
        let Some(state) = self.workloads.get(key) else { return };
        let referenced = self.classes.referenced(&key.namespace, &state.observed);
        let named = state.observed.spec.iter().flat_map(|spec| spec.named.keys());
        self.sources.set_named(key, named.chain(referenced.keys()).map(|name| name.of(&key.namespace)));
    }

    /// Updates what a workload is rolled for.
    fn update_uses(&mut self, key: &WorkloadRef, work: &mut Work) {
        self.waves.invalidate(key);
        let Some(state) = self.workloads.get(key) else { return };
        let workload = &state.observed;
        let of_source = |name: &SourceName| self.sources.get(&name.of(&key.namespace)).map(|source| &source.spec);
        let mut found = match &workload.spec {
            Ok(spec) if workload.template_of.is_none() => {
                let selecting = self.sources.selecting(&key.namespace, &workload.labels);
                uses::uses(spec, &self.classes.referenced(&key.namespace, workload), selecting, of_source)
            }
            // The workload has no template of its own, or its annotations are invalid.
            Ok(_) | Err(_) => BTreeMap::new(),
        };
        self.triggers.add_uses(key, workload, &mut found);
        let before = &state.uses.current;
        // A trigger has nothing to report about a new use until its baseline is recorded, and that record wakes it.
        if before.iter().any(|(name, used)| found.get(name) != Some(used)) {
            work.triggers.extend(self.triggers.of_workload(key, &workload.labels).cloned());
        }
        // Also a workload that has just opted out, because it may hold a slot of the budget.
        if !found.is_empty() || state.is_opted_in() {
            work.workloads.insert(key.clone());
        }
        self.set_uses(key, found, work);
    }

    fn set_uses(&mut self, key: &WorkloadRef, found: BTreeMap<SourceName, uses::Use>, work: &mut Work) {
        let Some(state) = self.workloads.get(key) else { return };
        let is_same = state.uses.current.len() == found.len() && state.uses.current.iter().eq(found.iter());
        let used: Vec<_> = found.keys().map(|name| name.of(&key.namespace)).collect();
        if !is_same && let Some(state) = self.workloads.get_mut(key) {
            state.uses.replace(found.into_iter().collect(), state.record.shown.as_deref());
        }
        let changes = self.sources.set_used(key, &used);
        // The watch of a source may lag behind the watch of the workload, so older knowledge does not count for a new user. A version in Vault carries
        // its own time.
        for source in changes.added.iter().filter(|source| !source.name.kind.is_in_vault()) {
            self.sources.doubt(source);
            self.invalidate_users(source);
        }
        for source in used {
            // Requested until the source was read, because an earlier request may have been interrupted.
            let is_known =
                self.sources.get(&source).is_some_and(|known| known.read.is_some() && known.doubt == Doubt::None);
            if !is_known {
                self.sources.entry(&source);
                work.sources.insert(source);
            }
        }
        for source in changes.removed {
            if !self.sources.is_used(&source) {
                work.unused.insert((*source).clone());
            }
            self.sources.drop_unused(&source);
            if source.name.kind.is_in_vault() {
                work.sources.insert((*source).clone());
            }
        }
    }

    /// Records a read of a source. Does nothing for a source without users.
    pub(super) fn learn(
        &mut self,
        source: &SourceRef,
        read: Read,
        breaker: &breaker::Settings,
        now: Time,
    ) -> SourceChange {
        self.invalidate_users(source);
        let users: BTreeSet<_> = self.sources.users(source).cloned().collect();
        let known = self.sources.get_mut(source).filter(|_| !users.is_empty());
        let is_used = |key: &str| uses_key(&self.workloads, &source.name, users.iter(), key);
        let learned = known.and_then(|known| known.learn(read, is_used, breaker, now));
        learned.map_or_else(SourceChange::default, |learned| SourceChange { users, ..learned })
    }

    /// Returns the number of used sources with a used key that changes too often.
    pub(super) fn ran_away(&self, now: Time) -> usize {
        let runaway = self.sources.iter().filter(|(source, known)| {
            let is_used = |key| uses_key(&self.workloads, &source.name, self.sources.users(source), key);
            known.runaway_keys(now).any(|key| is_used(key))
        });
        runaway.count()
    }

    /// Removes the spec of a source.
    pub(super) fn remove_source_spec(&mut self, source: &SourceRef) -> Work {
        let mut work = Work::default();
        if let Some(known) = self.sources.get_mut(source) {
            let before = std::mem::take(&mut known.spec);
            known.invalid = None;
            if !before.is_silent() {
                self.update_source_spec(source, &mut work);
            }
        }
        self.sources.drop_unused(source);
        work
    }

    /// Updates every workload that the changed annotations of a source may concern.
    pub(super) fn update_source_spec(&mut self, source: &SourceRef, work: &mut Work) {
        let (mut concerned, selects) = self.sources.update_selector(source);
        if selects {
            let all = self.workloads.iter().map(|(key, _)| key).filter(|key| key.namespace == source.namespace);
            concerned.extend(all.cloned());
        }
        for key in concerned {
            self.update_uses(&key, work);
        }
    }

    /// Invalidates all users of a source in the wave queues.
    pub(super) fn invalidate_users(&mut self, source: &SourceRef) {
        if self.waves.is_empty() {
            return;
        }
        for user in self.sources.users(source) {
            self.waves.invalidate(user);
        }
    }

    /// Replaces or removes a trigger, and updates every workload that it concerns, before or after the change.
    pub(super) fn put_trigger(&mut self, key: &TriggerRef, shown: Option<WatchedTrigger>, work: &mut Work) {
        let mut concerned = self.concerned(key);
        work.sources.extend(self.triggers.set(key, shown));
        concerned.extend(self.concerned(key));
        for workload in concerned {
            self.update_uses(&workload, work);
        }
    }

    /// Returns the workloads that a trigger names or selects.
    fn concerned(&self, key: &TriggerRef) -> BTreeSet<WorkloadRef> {
        let Some(spec) = self.triggers.spec(key) else { return BTreeSet::new() };
        self.selected(spec).map(|(key, _)| key).chain(&spec.targets).cloned().collect()
    }

    /// Returns the workloads that a spec selects by labels.
    pub(super) fn selected<'a>(
        &'a self,
        spec: &'a TriggerSpec,
    ) -> impl Iterator<Item = (&'a WorkloadRef, &'a Arc<WorkloadState>)> {
        let all = Some(&self.workloads).filter(|_| !spec.choices.is_empty()).into_iter().flat_map(Workloads::iter);
        all.filter(|(key, state)| spec.chooses(key, &state.observed.labels))
    }

    /// Invalidates the workloads of a trigger in the wave queues, because its status counts in their plans.
    pub(super) fn invalidate_concerned(&mut self, key: &TriggerRef) {
        if self.waves.is_empty() {
            return;
        }
        for workload in self.concerned(key) {
            self.waves.invalidate(&workload);
        }
    }

    /// Sets the Secrets that the driver makes for pods that mount a class.
    /// `None`: the class is gone.
    pub(super) fn set_class(&mut self, class: &ClassRef, secrets: Option<BTreeSet<SourceName>>) -> Work {
        let mut work = Work::default();
        for user in self.classes.set_secrets(class, secrets) {
            self.set_named(&user);
            self.update_uses(&user, &mut work);
        }
        work
    }

    /// Takes a snapshot of a workload.
    pub(super) fn snapshot(&self, key: &WorkloadRef) -> Option<Snapshot> {
        let workload = Arc::clone(self.workloads.get(key)?);
        let owner = self.workloads.pod_owner(key, &workload);
        let Health { unready, available, succeeded, .. } = owner.health;
        // The pods of another workload may be those of the template before.
        let awaited = workload.health.awaited && std::ptr::eq(Arc::as_ptr(&workload), owner);
        let pods = Pods { rollout: owner.observed.rollout, unready, available, succeeded, awaited };
        let requests = self.triggers.requests(key, &workload.observed);
        let triggers: Vec<_> =
            requests.map(|(trigger, shown, spec)| (trigger.clone(), Arc::clone(shown), Arc::clone(spec))).collect();
        let requested = triggers.iter().flat_map(|(_, _, spec)| spec.sources.keys());
        let names = workload.uses.current.keys().chain(requested);
        let source = |name: &SourceName| Some((name.clone(), Arc::clone(self.sources.get(&name.of(&key.namespace))?)));
        let sources = names.filter_map(source).collect();
        let all_triggers_listed = self.triggers.all_listed();
        let made_by_driver = self.classes.made_for(&key.namespace, &workload.observed);
        Some(Snapshot { key: key.clone(), workload, pods, sources, made_by_driver, triggers, all_triggers_listed })
    }

    /// Takes a snapshot of every workload of a trigger.
    pub(super) fn targets(&self, key: &TriggerRef) -> Option<Targets> {
        let spec = Arc::clone(self.triggers.spec(key)?);
        let mut workloads: BTreeSet<_> = spec.targets.iter().collect();
        let selected = self.selected(&spec).filter(|(_, state)| !state.observed.says_never());
        workloads.extend(selected.map(|(workload, _)| workload));
        let workloads = workloads.into_iter().map(|workload| (workload.clone(), self.snapshot(workload))).collect();
        let state = |source: &SourceName| self.sources.get(&source.of("")).map(|known| known.secret.clone());
        let secrets = spec.sources.keys().map(|source| (source.clone(), state(source).unwrap_or_default())).collect();
        Some(Targets { spec, workloads, secrets })
    }

    /// Records the results of a plan. Returns `true` if this is the first decision after a time without one, and `None` if the workload has changed
    /// since the snapshot.
    pub(super) fn update_if_current(&mut self, snapshot: &Snapshot, plan: &Plan, now: Time) -> Option<bool> {
        let state = self.workloads.get(&snapshot.key)?;
        if !Arc::ptr_eq(state, &snapshot.workload) {
            return None;
        }
        for source in &plan.doubted {
            self.sources.doubt(source);
            self.invalidate_users(source);
        }
        let before = &snapshot.workload;
        let doubted = before.record.doubted && plan.comparison.verdict.is_none();
        let undecided = plan.verdict().is_none().then(|| before.health.undecided.unwrap_or(now));
        let is_decided_now = undecided.is_none() && before.health.undecided.is_some();
        if (doubted, undecided) != (before.record.doubted, before.health.undecided)
            && let Some(state) = self.workloads.get_mut(&snapshot.key)
        {
            state.record.doubted = doubted;
            state.health.undecided = undecided;
        }
        if undecided != before.health.undecided {
            self.waves.invalidate(&snapshot.key);
        }
        Some(is_decided_now)
    }

    /// Returns the workloads of a queue that are due for evaluation, each with a snapshot if it is of an earlier wave.
    pub(super) fn look(&mut self, at: QueueRef<'_>, now: Time) -> Vec<(WorkloadRef, u64, Option<Snapshot>)> {
        let Self { sources, waves, .. } = self;
        let due = waves.queue(at, || sources.users_in(at.namespace, at.source)).due(now);
        due.into_iter().map(|(key, seen)| (key.clone(), seen, self.peer(&key, at))).collect()
    }

    /// Takes a snapshot of a workload, if it uses the source of a queue and is of an earlier wave.
    pub(super) fn peer(&self, key: &WorkloadRef, at: QueueRef<'_>) -> Option<Snapshot> {
        let state = self.workloads.get(key)?;
        let is_earlier = state.observed.wave() < at.wave && !state.observed.deleting;
        if is_earlier && state.uses.current.contains_key(at.source) { self.snapshot(key) } else { None }
    }
}

/// Returns `true` if one of these users of a source is rolled for a key of it.
fn uses_key<'a>(
    workloads: &Workloads,
    source: &SourceName,
    mut users: impl Iterator<Item = &'a WorkloadRef>,
    key: &str,
) -> bool {
    users.any(|user| {
        let used = workloads.get(user).and_then(|state| state.uses.current.get(source));
        used.is_some_and(|used| used.keys.contains(key))
    })
}
