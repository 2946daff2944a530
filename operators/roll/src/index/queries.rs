//! Questions to the index. Each one takes a snapshot under the lock, and is answered by a pure function outside.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use jiff::{SignedDuration, Timestamp};
use konverge_workload::Progress;

use super::{Index, wave_queues::QueueRef};
use crate::{
    digest::Digester,
    object::{SourceName, SourceRef, WorkloadRef},
    plan::{self, View},
    record::Record,
    time::Time,
    trigger::{TriggerRef, WatchedTrigger},
    trigger_status::state::{self, TargetStatus},
    vault::SecretState,
    waves::{Looked, WaveGate},
};

impl Index {
    /// Returns a workload and the plan for it. Returns `None` if it has not opted in.
    pub fn view(&self, key: &WorkloadRef, digester: &Digester, now: Time) -> Option<View> {
        // It ends with the first plan during which the workload has not changed. A plan takes far less time than two events of one workload.
        loop {
            let snapshot = self.lock().snapshot(key).filter(|snapshot| snapshot.workload.is_opted_in())?;
            let plan = plan::plan(&snapshot, digester, now);
            let settled = self.lock().settle(&snapshot, &plan, now);
            if let Some(is_decided_now) = settled {
                return Some(View { snapshot, plan, is_decided_now });
            }
        }
    }

    /// Returns whether it is the turn of a workload, among those that use one of these sources. A workload that has to wait is woken by the one that it waits for.
    /// `rollout_timeout` is how long one may take to become ready.
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

    fn wave_gate_in(
        &self,
        at: QueueRef<'_>,
        digester: &Digester,
        (now, rollout_timeout): (Time, SignedDuration),
    ) -> WaveGate<WorkloadRef> {
        // A queue is dropped when each of its workloads has changed. Then it is made anew.
        loop {
            let due = self.lock().look(at, now);
            let looked = due.into_iter().map(|(key, change, snapshot)| {
                let peer = snapshot.map(|snapshot| plan::peer(&snapshot, digester, now, rollout_timeout));
                Looked { key, change, peer }
            });
            let looked = looked.collect();
            let settled = self.lock().waves.settle(at, looked, now);
            if let Some(turn) = settled {
                #[cfg(test)]
                self.assert_wave_gate(at, &turn, digester, (now, rollout_timeout));
                return turn;
            }
        }
    }

    /// In each test, a queue that was kept says the same as a new one.
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

    /// Returns how each workload of a trigger stands with each of its sources.
    pub fn target_statuses(&self, key: &TriggerRef, digester: &Digester, now: Time) -> Vec<TargetStatus> {
        let targets = self.lock().targets(key);
        targets.map(|targets| state::target_statuses(key, &targets, digester, now)).unwrap_or_default()
    }

    /// Returns whether a workload exists.
    pub fn has(&self, key: &WorkloadRef) -> bool {
        self.lock().workloads.get(key).is_some()
    }

    /// Returns the time since which the first of all waiting workloads has been waiting, and how many there are.
    pub fn waiting(&self) -> (Option<Time>, usize) {
        let tables = self.lock();
        let pending = || tables.workloads.iter().filter_map(|(_, state)| state.health.pending);
        (pending().map(|(since, _)| since).min(), pending().count())
    }

    /// Returns the stamp of a workload that this operator has rolled, the time of that, and how far the rollout is.
    pub fn rollout(&self, key: &WorkloadRef) -> Option<(String, Timestamp, Progress)> {
        let tables = self.lock();
        let state = tables.workloads.get(key)?;
        // The record may be of another object: at worst, a slot of the budget is taken for some time.
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

    /// Returns whether any workload is rolled for a source.
    pub fn is_used(&self, source: &SourceRef) -> bool {
        self.lock().sources.is_used(source)
    }

    /// Returns the shortest interval at which a trigger wants to know of a source.
    pub fn interval(&self, source: &SourceRef) -> Option<Duration> {
        self.lock().triggers.interval(source)
    }

    /// Returns whether a workload uses a secret in Vault of which nothing has been learned.
    pub fn is_unknown(&self, source: &SourceRef) -> bool {
        self.lock().sources.get(source).is_some_and(|known| known.standing == SecretState::Unknown)
    }

    /// Returns whether a trigger exists.
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

    /// Returns the number of triggers, and of the secrets that Vault does not tell of.
    pub fn trigger_counts(&self) -> (usize, usize) {
        let tables = self.lock();
        let failing = tables.sources.iter().filter(|(_, known)| matches!(known.standing, SecretState::Failing { .. }));
        (tables.triggers.len(), failing.count())
    }

    /// Returns the number of sources that are not followed until they are quiet.
    pub fn ran_away(&self, now: Time) -> usize {
        let tables = self.lock();
        let used = tables.sources.iter().filter(|(source, _)| tables.sources.is_used(source));
        used.filter(|(_, known)| known.breaker.open_until(now).is_some()).count()
    }
}
