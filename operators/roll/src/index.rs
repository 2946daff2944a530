//! The index: which workloads use which sources, as the watches show it. All of it can be lost at any time, because the cluster has the truth.
//!
//! The index keeps the references of each workload, opted in or not, since a Secret may request rollouts of its users at any time. Of a Secret or `ConfigMap` that
//! rolls nobody and has no spec, it keeps nothing. Of the others it keeps digests, and never a value.
//!
//! One lock guards all tables. Nothing is decided under it: a question takes a [`Snapshot`](crate::state::Snapshot), and a pure function of [`plan`](crate::plan) answers it outside.

mod classes;
mod queries;
mod sources;
mod tables;
mod triggers;
mod wave_queues;
mod work;
mod workloads;

use std::{
    collections::{BTreeSet, HashSet},
    sync::{Mutex, MutexGuard, PoisonError},
};

use jiff::SignedDuration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use konverge_apply::Statement;
use konverge_workload::{SecretProviderClass, Workload, WorkloadKind};

use crate::{
    breaker,
    declarations::{Others, SourceSpec},
    digest::KeyDigests,
    object::{SourceKind, SourceName, SourceRef, WorkloadRef},
    state::{Read, SourceChange, WorkloadState},
    time::Time,
    trigger::{TriggerKind, TriggerRef, WatchedTrigger},
    unacknowledged::UnacknowledgedRollout,
    vault::SecretState,
};
pub use classes::ClassRef;
use tables::Tables;
pub use work::{Shows, Work};

/// The index.
pub struct Index {
    others: Others,
    breaker: breaker::Settings,
    tables: Mutex<Tables>,
}

impl Index {
    /// Returns an empty index.
    pub fn new(others: Others, breaker: breaker::Settings) -> Self {
        Self { others, breaker, tables: Mutex::default() }
    }

    /// A watch event shows a workload. Returns its key, and the work that follows.
    pub fn show(&self, kind: WorkloadKind, workload: Workload, now: Time) -> (Option<WorkloadRef>, Work) {
        self.show_by(Shows::Event, kind, workload, now)
    }

    /// A watch event, a list or an answer shows a workload.
    pub fn show_by(
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

    /// A workload is gone.
    pub fn forget(&self, key: &WorkloadRef) -> Work {
        let mut work = Work::default();
        let mut tables = self.lock();
        tables.remove_workload(key, &mut work);
        tables.wake_later_waves(key, &mut work);
        work
    }

    /// A complete list of a kind was seen: the workloads that it does not contain are gone. Returns them.
    pub fn retain(&self, kind: WorkloadKind, shown: &HashSet<WorkloadRef>) -> (Vec<WorkloadRef>, Work) {
        let gone = self.lock().workloads.missing_in(kind, shown);
        let mut work = Work::default();
        for key in &gone {
            work.add(self.forget(key));
        }
        (gone, work)
    }

    /// Changes the state of a workload, unless it is another one than that with this uid by now.
    fn note(&self, key: &WorkloadRef, uid: &str, note: impl FnOnce(&mut WorkloadState)) {
        let mut tables = self.lock();
        if let Some(state) = tables.workloads.with_uid(key, uid) {
            note(state);
            tables.waves.invalidate(key);
        }
    }

    /// Notes the messages of a run. Returns the messages that were not reported before.
    pub fn say(&self, key: &WorkloadRef, uid: &str, messages: Vec<Statement>, now: Time) -> Vec<Statement> {
        let mut new = Vec::new();
        self.note(key, uid, |state| new = state.health.say(messages, now));
        new
    }

    /// Notes whether a workload waits to be rolled: the time of this run, and the earliest time of the rollout, if that is known.
    pub fn pending(&self, key: &WorkloadRef, uid: &str, waits: Option<(Time, Option<Time>)>) {
        self.note(key, uid, |state| state.health.wait(waits));
    }

    /// Notes that this record is about to be written. Its watch event is then not taken for a write of another leader.
    pub fn writing(&self, key: &WorkloadRef, uid: &str, record: &str) {
        self.note(key, uid, |state| state.record.writing(record));
    }

    /// Notes that this process has written on a workload, which is `version` of it now. `rolled` is the new stamp on its pod template, and when.
    pub fn wrote(&self, key: &WorkloadRef, uid: &str, version: &str, record: String, rolled: Option<(String, Time)>) {
        self.note(key, uid, |state| state.wrote(version, record, rolled));
    }

    /// Notes a rollout whose answer was lost.
    pub fn set_unacknowledged(&self, key: &WorkloadRef, uid: &str, unacknowledged: UnacknowledgedRollout) {
        self.note(key, uid, |state| state.record.set_unacknowledged(unacknowledged));
    }

    /// Takes a rollout whose answer was lost and that was done after all. It is reported once.
    pub fn take_acknowledged(&self, key: &WorkloadRef, uid: &str) -> Option<UnacknowledgedRollout> {
        let mut tables = self.lock();
        let is_lost = tables.workloads.get(key).is_some_and(|state| state.record.has_unacknowledged());
        tables.workloads.with_uid(key, uid).filter(|_| is_lost)?.take_acknowledged()
    }

    /// A workload has opted out: it waits for nothing, and no message about it holds.
    pub fn opt_out(&self, key: &WorkloadRef) {
        let mut tables = self.lock();
        tables.waves.set_waiting(key, None);
        if let Some(state) = tables.workloads.get_mut(key) {
            state.health.opt_out();
            tables.waves.invalidate(key);
        }
    }

    /// A workload waits for no turn any more.
    pub fn needs_no_turn(&self, key: &WorkloadRef) {
        self.lock().waves.set_waiting(key, None);
    }

    /// A watch event or a list shows a source. A source that rolls nobody and has no spec leaves no trace.
    pub fn show_source(&self, kind: SourceKind, metadata: ObjectMeta) -> (Option<SourceRef>, Work) {
        let mut work = Work::default();
        let (Some(namespace), Some(name)) = (metadata.namespace, metadata.name) else { return (None, work) };
        let source = SourceName { kind, name }.of(&namespace);
        let (spec, invalid) = match metadata.annotations.map(|own| SourceSpec::read(&own, self.others)) {
            None => (SourceSpec::default(), None),
            Some(Ok(spec)) => (spec, None),
            // It may say that it is to be ignored.
            Some(Err(invalid)) => (SourceSpec { ignored: true, ..SourceSpec::default() }, Some(invalid)),
        };
        let mut tables = self.lock();
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
        // Also before the answer to the first read: it may be from before this event.
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

    /// A source is about to be read: the answer is newer than everything that was shown before.
    pub fn reading(&self, source: &SourceRef) {
        self.lock().sources.reading(source);
    }

    /// A source was read in this version, or does not exist.
    pub fn learn(
        &self,
        source: &SourceRef,
        version: Option<String>,
        content: Option<KeyDigests>,
        now: Time,
    ) -> SourceChange {
        self.lock().learn(source, Read { version, content, in_vault: None }, &self.breaker, now)
    }

    /// A source may not be read. Its state stays. Returns its users, unless they know that.
    pub fn refuse(&self, source: &SourceRef, why: Statement) -> BTreeSet<WorkloadRef> {
        let mut tables = self.lock();
        match tables.sources.get_mut(source) {
            Some(known) if known.refused.as_ref() != Some(&why) => known.refused = Some(why),
            _ => return BTreeSet::new(),
        }
        tables.invalidate_users(source);
        tables.sources.users(source).cloned().collect()
    }

    /// A source is gone.
    pub fn forget_source(&self, source: &SourceRef, now: Time) -> Work {
        let learned = self.learn(source, None, None, now);
        let mut work = self.lock().remove_source_spec(source);
        work.workloads.extend(learned.users);
        work
    }

    /// Returns the sources of a kind that exist as far as is known.
    pub fn sources_there(&self, kind: SourceKind) -> HashSet<SourceRef> {
        self.lock().sources.existing(kind)
    }

    /// A complete list was seen, and it does not contain these sources that were [there](Self::sources_there) when it began. They have no spec any more. The next
    /// read tells whether they are gone: one that nobody used when the list passed it by may be used by now.
    pub fn retain_sources(&self, missing: impl IntoIterator<Item = SourceRef>) -> Work {
        let mut work = Work::default();
        for source in missing {
            work.add(self.lock().remove_source_spec(&source));
            work.sources.extend(Some(source).filter(|source| self.is_used(source)));
        }
        work
    }

    /// A secret in Vault stands like this. Returns also the triggers to report that to, if it stood otherwise before.
    pub fn learn_vault(
        &self,
        source: &SourceRef,
        standing: SecretState,
        content: Option<KeyDigests>,
        now: Time,
    ) -> (SourceChange, BTreeSet<TriggerRef>) {
        let mut tables = self.lock();
        let every = tables.triggers.interval(source).and_then(|every| SignedDuration::try_from(every).ok());
        let Some(known) = tables.sources.get_mut(source) else { return Default::default() };
        let is_new = known.standing != standing;
        known.standing.clone_from(&standing);
        tables.invalidate_users(source);
        let telling = tables.triggers.followers(source).filter(|_| is_new).cloned().collect();
        let Some(content) = content else { return (SourceChange::default(), telling) };
        let in_vault = match standing {
            SecretState::Live(version) if version.is_known() => Some(version),
            _ => None,
        };
        let read = Read { version: None, content: Some(content), in_vault };
        // Two questions without a change in between make it quiet.
        let quiet = self.breaker.quiet.max(every.unwrap_or_default() * 2);
        (tables.learn(source, read, &breaker::Settings { quiet, ..self.breaker }, now), telling)
    }

    /// A watch event or a list shows a class of the Secrets Store CSI driver. Returns its key, or `None` if it has no name.
    pub fn show_class(&self, class: SecretProviderClass) -> (Option<ClassRef>, Work) {
        let Some(key) = class.metadata.namespace.zip(class.metadata.name) else { return (None, Work::default()) };
        let secrets = class.secrets.into_iter().map(SourceName::secret).collect();
        let work = self.lock().set_class(&key, secrets);
        (Some(key), work)
    }

    /// A class is gone.
    pub fn forget_class(&self, key: &ClassRef) -> Work {
        self.lock().set_class(key, BTreeSet::new())
    }

    /// A complete list of classes was seen: the classes that it does not contain are gone.
    pub fn retain_classes(&self, shown: &HashSet<ClassRef>) -> Work {
        let mut tables = self.lock();
        let mut work = Work::default();
        for class in tables.classes.missing_in(shown) {
            work.add(tables.set_class(&class, BTreeSet::new()));
        }
        work
    }

    /// A watch event shows a trigger.
    pub fn show_trigger(&self, key: TriggerRef, shown: WatchedTrigger) -> Work {
        self.show_trigger_by(Shows::Event, key, shown)
    }

    /// A watch event, a list or an answer shows a trigger.
    pub fn show_trigger_by(&self, by: Shows<'_>, key: TriggerRef, shown: WatchedTrigger) -> Work {
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

    /// A trigger is gone.
    pub fn forget_trigger(&self, key: &TriggerRef) -> Work {
        let mut work = Work::default();
        self.lock().put_trigger(key, None, &mut work);
        work
    }

    /// A complete list of a kind was seen: the triggers that it does not contain are gone, and entries of records that belong to none may go.
    pub fn retain_triggers(&self, kind: TriggerKind, shown: &HashSet<TriggerRef>) -> Work {
        let mut work = Work::default();
        let gone = self.lock().triggers.missing_in(kind, shown);
        for key in gone {
            work.add(self.forget_trigger(&key));
            // Its own run forgets the rest of it.
            work.triggers.insert(key);
        }
        let mut tables = self.lock();
        tables.triggers.set_listed(kind);
        // From now on, records of triggers count as they are.
        tables.waves.clear();
        work
    }

    /// Changes what is known of a trigger after a write, unless it is another one than that with this uid by now.
    pub fn update_trigger(&self, key: &TriggerRef, uid: &str, note: impl FnOnce(&mut WatchedTrigger)) {
        let mut tables = self.lock();
        if tables.triggers.update(key, uid, note) {
            tables.invalidate_concerned(key);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Tables> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
