//! The index: which workloads use which sources, as observed by the watches. Its loss does no harm, because the cluster is the source of truth.
//!
//! The index keeps the references of each workload, opted in or not, because a Secret may request rollouts of its users at any time. It keeps nothing
//! of a Secret or `ConfigMap` that rolls no workload and has no spec. Of other sources it keeps digests, and never a value.
//!
//! One lock guards all tables. No decision is made under the lock: a caller takes a [`Snapshot`](crate::state::Snapshot), and a pure function of
//! [`plan`] decides outside.

mod classes;
mod sources;
mod tables;
mod triggers;
mod workloads;

use std::{
    collections::{BTreeSet, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use konverge_apply::Statement;
use konverge_runtime::version::is_older;
use konverge_workload::{Keys, Progress, SecretProviderClass, Workload, WorkloadKind};

pub use self::classes::ClassRef;
use self::tables::Tables;
use crate::{
    annotations::{Invalid, Others, SourceSpec},
    breaker,
    digest::{Digester, KeyDigests},
    object::{SourceKind, SourceName, SourceRef, WorkloadRef},
    plan::{self, View},
    record::{Record, UnacknowledgedRollout},
    state::{Read, SourceChange, WorkloadState},
    time::Time,
    trigger::{TriggerKind, TriggerRef, WatchedTrigger},
    trigger_status::{self, TargetStatus},
    vault::SecretState,
    waves::{Looked, QueueRef, WaveGate},
};

/// The keys that need a run after a change of the index.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Workloads to reconcile.
    pub workloads: BTreeSet<WorkloadRef>,
    /// Secrets and `ConfigMaps` to read, and secrets in Vault that the operator starts or stops to follow.
    pub sources: BTreeSet<SourceRef>,
    /// Sources, in the cluster or in Vault, that no workload uses any longer.
    pub unused: BTreeSet<SourceRef>,
    /// Triggers whose status may change.
    pub triggers: BTreeSet<TriggerRef>,
    /// An annotation of a source that is invalid, with the uid of the source. Reported once for each text.
    pub invalid: Option<(SourceRef, String, Invalid)>,
}

impl Work {
    /// Adds more work.
    fn add(&mut self, more: Self) {
        self.workloads.extend(more.workloads);
        self.sources.extend(more.sources);
        self.unused.extend(more.unused);
        self.triggers.extend(more.triggers);
        self.invalid = self.invalid.take().or(more.invalid);
    }
}

/// The origin of an update to the index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shows<'a> {
    /// A watch event. A version older than the known one arrived late and is ignored.
    Event,
    /// A list. A version older than the known one counts, because the storage of the API server may have been restored from a backup.
    List,
    /// The response to a read, which was made because this version was outdated. An older version counts unless the index has changed since.
    Answer(&'a str),
}

impl Shows<'_> {
    /// Returns `true` if `version` is outdated compared with the `known` one.
    fn is_outdated(self, version: &str, known: &str) -> bool {
        match self {
            Self::Event => is_older(version, known),
            Self::List => false,
            Self::Answer(outdated) => known != outdated && is_older(version, known),
        }
    }
}

/// The index.
pub struct Index {
    others: Others,
    breaker: breaker::Settings,
    tables: Mutex<Tables>,
}

impl Index {
    /// Creates an empty index.
    pub fn new(others: Others, breaker: breaker::Settings) -> Self {
        Self { others, breaker, tables: Mutex::default() }
    }

    /// Handles a workload that a watch event, a list or a read shows. Returns its key and the resulting work.
    pub fn apply_workload(
        &self,
        shows: Shows<'_>,
        kind: WorkloadKind,
        workload: Workload,
        now: Time,
    ) -> (Option<WorkloadRef>, Work) {
        let Some((key, state)) = WorkloadState::read(kind, workload, self.others, now) else {
            return (None, Work::default());
        };
        let work = self.lock().apply_workload(shows, &key, state, now);
        (Some(key), work)
    }

    /// Handles the deletion of a workload.
    pub fn forget(&self, key: &WorkloadRef) -> Work {
        let mut work = Work::default();
        let mut tables = self.lock();
        tables.remove_workload(key, &mut work);
        tables.wake_later_waves(key, &mut work);
        work
    }

    /// Handles a complete list of a kind. Removes the workloads that the list does not contain, and returns them.
    pub fn retain(&self, kind: WorkloadKind, shown: &HashSet<WorkloadRef>) -> (Vec<WorkloadRef>, Work) {
        let gone = self.lock().workloads.missing_in(kind, shown);
        let mut work = Work::default();
        for key in &gone {
            work.add(self.forget(key));
        }
        (gone, work)
    }

    /// Changes the state of a workload if it still has this uid.
    fn update_workload(&self, key: &WorkloadRef, uid: &str, update: impl FnOnce(&mut WorkloadState)) {
        let mut tables = self.lock();
        if let Some(state) = tables.workloads.with_uid(key, uid) {
            update(state);
            tables.waves.invalidate(key);
        }
    }

    /// Records that a workload waits to be rolled: the time of the run and, if known, the earliest time of the rollout. The start of an earlier wait
    /// stays. `None` ends the wait.
    pub fn wait(&self, key: &WorkloadRef, uid: &str, waits: Option<(Time, Option<Time>)>) {
        self.update_workload(key, uid, |state| state.health.wait(waits));
    }

    /// Records that this process is about to write this record on a workload.
    pub fn writing(&self, key: &WorkloadRef, uid: &str, record: &str) {
        self.update_workload(key, uid, |state| state.record.writing(record));
    }

    /// Records a rollout whose response was lost.
    pub fn set_unacknowledged(&self, key: &WorkloadRef, uid: &str, unacknowledged: UnacknowledgedRollout) {
        self.update_workload(key, uid, |state| state.record.set_unacknowledged(Some(unacknowledged)));
    }

    /// Records the messages of a run. Returns the messages that were not reported before.
    pub fn report(&self, key: &WorkloadRef, uid: &str, messages: Vec<Statement>, now: Time) -> Vec<Statement> {
        let mut new = Vec::new();
        self.update_workload(key, uid, |state| new = state.health.report(messages, now));
        new
    }

    /// Records that this process has written a workload, which now has this `version`. `rolled` is the new stamp on its pod template and the time of
    /// the rollout.
    pub fn wrote(&self, key: &WorkloadRef, uid: &str, version: &str, record: String, rolled: Option<(String, Time)>) {
        self.update_workload(key, uid, |state| state.wrote(version, record, rolled));
        self.lock().note_failure(key);
    }

    /// Takes a rollout whose response was lost, if the API server has applied it. So each rollout is reported once.
    pub fn take_acknowledged(&self, key: &WorkloadRef, uid: &str) -> Option<UnacknowledgedRollout> {
        let mut tables = self.lock();
        let is_lost = tables.workloads.get(key).is_some_and(|state| state.record.has_unacknowledged());
        tables.workloads.with_uid(key, uid).filter(|_| is_lost)?.take_acknowledged()
    }

    /// Returns `true` if this process began the last rollout of a workload and its outcome is not counted yet. It counts as counted by that.
    pub fn take_awaited(&self, key: &WorkloadRef, uid: &str) -> bool {
        let mut awaited = false;
        self.update_workload(key, uid, |state| awaited = std::mem::take(&mut state.health.awaited));
        awaited
    }

    /// Handles a workload that has opted out. Ends its waits and clears its messages.
    pub fn opt_out(&self, key: &WorkloadRef) {
        let mut tables = self.lock();
        tables.waves.set_waiting(key, None);
        tables.missing.remove(key);
        if let Some(state) = tables.workloads.get_mut(key) {
            state.health.opt_out();
            tables.waves.invalidate(key);
        }
    }

    /// Ends the waits of a workload for other workloads and for missing references.
    pub fn waits_for_nothing(&self, key: &WorkloadRef) {
        let mut tables = self.lock();
        tables.waves.set_waiting(key, None);
        tables.missing.remove(key);
    }

    /// Wakes a workload on each change of these sources, although it is not rolled for them.
    pub fn wait_for_references(&self, key: &WorkloadRef, sources: impl IntoIterator<Item = SourceRef>) {
        self.lock().missing.set(key, sources.into_iter().map(|source| (source, ())));
    }

    /// Handles a source that a watch event or a list shows. The index keeps nothing of a source that rolls no workload and has no spec.
    pub fn apply_source(&self, kind: SourceKind, metadata: ObjectMeta) -> (Option<SourceRef>, Work) {
        let mut work = Work::default();
        let (Some(namespace), Some(name)) = (metadata.namespace, metadata.name) else { return (None, work) };
        let source = SourceName { kind, name }.of(&namespace);
        let (spec, invalid) = match metadata.annotations.map(|own| SourceSpec::read(&own, self.others)) {
            None => (SourceSpec::default(), None),
            Some(Ok(spec)) => (spec, None),
            // The invalid annotation may be the one that asks to ignore the source.
            Some(Err(invalid)) => (SourceSpec { ignored: true, ..SourceSpec::default() }, Some(invalid)),
        };
        let mut tables = self.lock();
        work.workloads.extend(tables.missing.referrers(&source).cloned());
        let is_used = tables.sources.is_used(&source);
        if spec.is_silent() && tables.sources.get(&source).is_none() {
            return (None, work);
        }
        let known = tables.sources.entry(&source);
        known.uid = metadata.uid.unwrap_or_default();
        if known.invalid != invalid {
            work.invalid = invalid.clone().map(|invalid| (source.clone(), known.uid.clone(), invalid));
            known.invalid = invalid;
        }
        // Also while the first read is under way, because its response may be older than this event.
        if is_used && known.read.as_ref().is_none_or(|read| read.version != metadata.resource_version) {
            work.sources.insert(source.clone());
        }
        let before = std::mem::replace(&mut known.spec, spec);
        if before != known.spec {
            tables.update_source_spec(&source, &mut work);
        }
        tables.sources.drop_unused(&source);
        (Some(source), work)
    }

    /// Records that a source is about to be read. The response will be newer than every update until now.
    pub fn reading(&self, source: &SourceRef) {
        self.lock().sources.reading(source);
    }

    /// Records that a source was read in this version, or does not exist.
    pub fn learn(
        &self,
        source: &SourceRef,
        version: Option<String>,
        content: Option<KeyDigests>,
        now: Time,
    ) -> SourceChange {
        self.lock().learn(source, Read { version, content, in_vault: None }, &self.breaker, now)
    }

    /// Records that the operator may not read a source, whose known state stays. Returns its users, or nothing if this refusal is known.
    pub fn refuse(&self, source: &SourceRef, why: Statement) -> BTreeSet<WorkloadRef> {
        let mut tables = self.lock();
        match tables.sources.get_mut(source) {
            Some(known) if known.refused.as_ref() != Some(&why) => known.refused = Some(why),
            _ => return BTreeSet::new(),
        }
        tables.invalidate_users(source);
        tables.sources.users(source).cloned().collect()
    }

    /// Handles the deletion of a source.
    pub fn forget_source(&self, source: &SourceRef, now: Time) -> Work {
        let learned = self.learn(source, None, None, now);
        let mut work = self.lock().remove_source_spec(source);
        work.workloads.extend(learned.users);
        work
    }

    /// Returns the known sources of a kind that exist.
    pub fn sources_there(&self, kind: SourceKind) -> HashSet<SourceRef> {
        self.lock().sources.existing(kind)
    }

    /// Handles a complete list that lacks these sources, which [existed](Self::sources_there) when the list began. Removes their specs. Sources with
    /// users are read again, because a source may have got its first user since the list.
    pub fn retain_sources(&self, missing: impl IntoIterator<Item = SourceRef>) -> Work {
        let mut work = Work::default();
        for source in missing {
            work.add(self.lock().remove_source_spec(&source));
            work.sources.extend(Some(source).filter(|source| self.is_used(source)));
        }
        work
    }

    /// Records the state of a secret in Vault. Also returns the triggers that must report the state, if it has changed.
    pub fn learn_vault(
        &self,
        source: &SourceRef,
        state: SecretState,
        content: Option<KeyDigests>,
        now: Time,
    ) -> (SourceChange, BTreeSet<TriggerRef>) {
        let mut tables = self.lock();
        let every = tables.triggers.interval(source).and_then(|every| SignedDuration::try_from(every).ok());
        let Some(known) = tables.sources.get_mut(source) else { return Default::default() };
        let is_new = known.secret != state;
        known.secret.clone_from(&state);
        tables.invalidate_users(source);
        let triggers = tables.triggers.followers(source).filter(|_| is_new).cloned().collect();
        let Some(content) = content else { return (SourceChange::default(), triggers) };
        let in_vault = match state {
            SecretState::Live(version) if version.is_known() => Some(version),
            _ => None,
        };
        let read = Read { version: None, content: Some(content), in_vault };
        // A source is quiet after two requests without a change.
        let quiet = self.breaker.quiet.max(every.unwrap_or_default() * 2);
        (tables.learn(source, read, &breaker::Settings { quiet, ..self.breaker }, now), triggers)
    }

    /// Handles a class of the Secrets Store CSI driver that a watch event or a list shows. Returns its key, or `None` if it has no name.
    pub fn apply_class(&self, class: SecretProviderClass) -> (Option<ClassRef>, Work) {
        let Some(key) = class.metadata.namespace.zip(class.metadata.name) else { return (None, Work::default()) };
        let secrets = class.secrets.into_iter().map(SourceName::secret).collect();
        let work = self.lock().set_class(&key, Some(secrets));
        (Some(key), work)
    }

    /// Handles the deletion of a class.
    pub fn forget_class(&self, key: &ClassRef) -> Work {
        self.lock().set_class(key, None)
    }

    /// Handles a complete list of classes. Removes the classes that the list does not contain.
    pub fn retain_classes(&self, shown: &HashSet<ClassRef>) -> Work {
        let mut tables = self.lock();
        let mut work = Work::default();
        for class in tables.classes.missing_in(shown) {
            work.add(tables.set_class(&class, None));
        }
        work
    }

    /// Handles a trigger that a watch event, a list or a read shows.
    pub fn apply_trigger(&self, by: Shows<'_>, key: TriggerRef, shown: WatchedTrigger) -> Work {
        let mut work = Work::default();
        let mut tables = self.lock();
        if tables.triggers.is_outdated(by, &key, &shown) {
            return work;
        }
        if tables.triggers.replace_same(&key, &shown) {
            tables.invalidate_concerned(&key);
        } else {
            tables.put_trigger(&key, Some(shown), &mut work);
        }
        work.triggers.insert(key);
        work
    }

    /// Handles the deletion of a trigger.
    pub fn forget_trigger(&self, key: &TriggerRef) -> Work {
        let mut work = Work::default();
        self.lock().put_trigger(key, None, &mut work);
        work
    }

    /// Handles a complete list of a kind. Removes the triggers that the list does not contain. From now on, record entries that belong to no trigger
    /// may be removed.
    pub fn retain_triggers(&self, kind: TriggerKind, shown: &HashSet<TriggerRef>) -> Work {
        let mut work = Work::default();
        let gone = self.lock().triggers.missing_in(kind, shown);
        for key in gone {
            work.add(self.forget_trigger(&key));
            // The run of the trigger removes the rest of its state.
            work.triggers.insert(key);
        }
        let mut tables = self.lock();
        tables.triggers.set_listed(kind);
        // From now on, record entries of triggers count as they are.
        tables.waves.clear();
        work
    }

    /// Changes the state of a trigger after a write, if it still has this uid.
    pub fn update_trigger(&self, key: &TriggerRef, uid: &str, note: impl FnOnce(&mut WatchedTrigger)) {
        let mut tables = self.lock();
        if tables.triggers.update(key, uid, note) {
            tables.invalidate_concerned(key);
        }
    }

    /// Returns a workload and the plan for it. Returns `None` if it has not opted in.
    pub fn view(&self, key: &WorkloadRef, digester: &Digester, now: Time) -> Option<View> {
        // The loop ends with the first plan during which the workload does not change. A plan takes far less time than two events of one workload.
        loop {
            let snapshot = self.lock().snapshot(key).filter(|snapshot| snapshot.workload.is_opted_in())?;
            let plan = plan::plan(&snapshot, digester, now);
            let updated = self.lock().update_if_current(&snapshot, &plan, now);
            if let Some(is_decided_now) = updated {
                return Some(View { snapshot, plan, is_decided_now });
            }
        }
    }

    /// Returns the gate of a workload's wave among the workloads that use one of these sources. A workload that has to wait is woken by the one that
    /// it waits for. `rollout_timeout` is the time that a workload may take to become ready.
    pub fn wave_gate(
        &self,
        key: &WorkloadRef,
        wave: i32,
        sources: &[SourceName],
        digester: &Digester,
        (now, rollout_timeout): (Time, SignedDuration),
    ) -> WaveGate<WorkloadRef> {
        let turns = sources.iter().map(|source| {
            self.wave_gate_in(QueueRef { namespace: &key.namespace, source, wave }, digester, (now, rollout_timeout))
        });
        let turn = turns.fold(WaveGate::Now, WaveGate::and);
        self.lock().waves.set_waiting(key, turn.after());
        turn
    }

    /// Returns another workload of the namespace that was rolled for the current content of one of these sources, and whose pods have failed since.
    /// Its changes wake the waiting workload, which waits for these keys of each source.
    pub fn failed_before(
        &self,
        key: &WorkloadRef,
        waiting: &[(SourceName, &Keys)],
        digester: &Digester,
        now: Time,
    ) -> Option<WorkloadRef> {
        let failed = self.lock().failed_beside(key);
        let failed = failed.into_iter().find(|other| plan::has_failed_for(other, waiting, digester, now))?;
        self.lock().waves.set_waiting(key, Some(&failed.key));
        Some(failed.key)
    }

    /// Returns the number of workloads whose last rollout has failed.
    pub fn failed_count(&self) -> usize {
        self.lock().failed_count()
    }

    fn wave_gate_in(
        &self,
        at: QueueRef<'_>,
        digester: &Digester,
        (now, rollout_timeout): (Time, SignedDuration),
    ) -> WaveGate<WorkloadRef> {
        // A queue is dropped when each of its workloads has changed. The loop then creates it again.
        loop {
            let due = self.lock().look(at, now);
            let looked = due.into_iter().map(|(key, change, snapshot)| {
                let peer = snapshot.map(|snapshot| plan::peer(&snapshot, digester, now, rollout_timeout));
                Looked { key, change, peer }
            });
            let looked = looked.collect();
            let updated = self.lock().waves.update(at, looked, now);
            if let Some(turn) = updated {
                #[cfg(test)]
                self.assert_wave_gate(at, &turn, digester, (now, rollout_timeout));
                return turn;
            }
        }
    }

    /// Checks in each test that a kept queue gives the same result as a new one.
    #[cfg(test)]
    fn assert_wave_gate(
        &self,
        at: QueueRef<'_>,
        turn: &WaveGate<WorkloadRef>,
        digester: &Digester,
        (now, rollout_timeout): (Time, SignedDuration),
    ) {
        let tables = self.lock();
        let mut queue = crate::waves::WaveQueue::of(tables.sources.users_in(at.namespace, at.source));
        let new = queue.evaluate(now, |user| {
            tables.peer(user, at).map(|snapshot| plan::peer(&snapshot, digester, now, rollout_timeout))
        });
        assert_eq!(*turn, new, "{at:?}");
    }

    /// Returns the state of each workload of a trigger with each of its sources.
    pub fn target_statuses(&self, key: &TriggerRef, digester: &Digester, now: Time) -> Vec<TargetStatus> {
        let targets = self.lock().targets(key);
        targets.map(|targets| trigger_status::target_statuses(key, &targets, digester, now)).unwrap_or_default()
    }

    /// Returns `true` if a workload exists.
    pub fn has(&self, key: &WorkloadRef) -> bool {
        self.lock().workloads.get(key).is_some()
    }

    /// Returns the start of the longest wait, and the number of waiting workloads.
    pub fn waiting(&self) -> (Option<Time>, usize) {
        let tables = self.lock();
        let pending = || tables.workloads.iter().filter_map(|(_, state)| state.health.pending);
        (pending().map(|(since, _)| since).min(), pending().count())
    }

    /// Returns the stamp of a workload that this operator has rolled, the time of the rollout, and its progress.
    pub fn rollout(&self, key: &WorkloadRef) -> Option<(String, Timestamp, Progress)> {
        let tables = self.lock();
        let state = tables.workloads.get(key)?;
        // Anybody who may write the workload can write that record, so the budget does not rely on it.
        let rolled = Record::of_any(state.record.shown.as_deref()?)?.rolled?;
        Some((state.observed.stamp.clone()?, rolled, state.observed.rollout.progress))
    }

    /// Returns all sources that the pods of a workload use.
    pub fn referenced(&self, key: &WorkloadRef) -> Vec<SourceName> {
        let tables = self.lock();
        let Some(state) = tables.workloads.get(key) else { return Vec::new() };
        tables.classes.referenced(&key.namespace, &state.observed).keys().cloned().collect()
    }

    /// Returns the uid of a source, if it was seen.
    pub fn source_uid(&self, source: &SourceRef) -> Option<String> {
        self.lock().sources.get(source).map(|known| known.uid.clone()).filter(|uid| !uid.is_empty())
    }

    /// Returns `true` if any workload is rolled for a source.
    pub fn is_used(&self, source: &SourceRef) -> bool {
        self.lock().sources.is_used(source)
    }

    /// Returns the shortest poll interval that a trigger sets for a source.
    pub fn interval(&self, source: &SourceRef) -> Option<Duration> {
        self.lock().triggers.interval(source)
    }

    /// Returns `true` if the state of a secret in Vault is unknown.
    pub fn is_unknown(&self, source: &SourceRef) -> bool {
        self.lock().sources.get(source).is_some_and(|known| known.secret == SecretState::Unknown)
    }

    /// Returns `true` if a trigger exists.
    pub fn has_trigger(&self, key: &TriggerRef) -> bool {
        self.lock().triggers.get(key).is_some()
    }

    /// Returns a trigger.
    pub fn trigger(&self, key: &TriggerRef) -> Option<Arc<WatchedTrigger>> {
        self.lock().triggers.get(key).cloned()
    }

    /// Returns the triggers of a workload.
    pub fn triggers_of(&self, key: &WorkloadRef) -> BTreeSet<TriggerRef> {
        let tables = self.lock();
        match tables.workloads.get(key) {
            Some(state) => tables.triggers.of_workload(key, &state.observed.labels).cloned().collect(),
            None => tables.triggers.naming(key).cloned().collect(),
        }
    }

    /// Returns the number of workloads that are rolled for something, and of the sources that they are rolled for.
    pub fn counts(&self) -> (usize, usize) {
        let tables = self.lock();
        let users = tables.workloads.iter().filter(|(_, state)| !state.uses.current.is_empty());
        (users.count(), tables.sources.used_count())
    }

    /// Returns the number of triggers, and of the secrets in Vault whose state cannot be read.
    pub fn trigger_counts(&self) -> (usize, usize) {
        let tables = self.lock();
        let failing = tables.sources.iter().filter(|(_, known)| matches!(known.secret, SecretState::Failing { .. }));
        (tables.triggers.len(), failing.count())
    }

    /// Returns the number of sources that the operator does not follow until they are quiet.
    pub fn ran_away(&self, now: Time) -> usize {
        self.lock().ran_away(now)
    }

    fn lock(&self) -> MutexGuard<'_, Tables> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
