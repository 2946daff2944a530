//! The workloads of earlier waves, in queues that all workloads of a later wave share.

use std::collections::{BTreeMap, HashMap};

use konverge_core::reverse_index::ReverseIndex;

use crate::{
    object::{SourceName, WorkloadRef},
    time::Time,
    waves::{Looked, WaveGate, WaveQueue},
};

/// A queue: the workloads of a namespace that use a source and are of an earlier wave than this one. A secret in Vault may have users everywhere, but a
/// workload waits for no other namespace.
#[derive(Debug, Clone, Copy)]
pub(super) struct QueueRef<'a> {
    pub(super) namespace: &'a str,
    pub(super) source: &'a SourceName,
    pub(super) wave: i32,
}

/// The queues, and the workloads that wait.
#[derive(Default)]
pub(super) struct WaveQueues {
    /// By namespace, source and wave.
    queues: HashMap<String, BTreeMap<(SourceName, i32), WaveQueue<WorkloadRef>>>,
    /// The workload that must move before another one may be rolled.
    waiting: ReverseIndex<WorkloadRef, WorkloadRef>,
}

impl WaveQueues {
    /// Returns whether there is no queue.
    pub(super) fn is_empty(&self) -> bool {
        self.queues.is_empty()
    }

    /// Drops all queues.
    pub(super) fn clear(&mut self) {
        self.queues.clear();
    }

    /// Notes that a workload has changed in a way that may let others go on, or hold them up.
    pub(super) fn invalidate(&mut self, key: &WorkloadRef) {
        let Some(queues) = self.queues.get_mut(&key.namespace) else { return };
        queues.retain(|_, queue| queue.invalidate(key));
        if queues.is_empty() {
            self.queues.remove(&key.namespace);
        }
    }

    /// Returns a queue, made of these workloads if it is new.
    pub(super) fn queue(
        &mut self,
        at: QueueRef<'_>,
        users: impl FnOnce() -> Vec<WorkloadRef>,
    ) -> &mut WaveQueue<WorkloadRef> {
        let queues = self.queues.entry(at.namespace.to_owned()).or_default();
        queues.entry((at.source.clone(), at.wave)).or_insert_with(|| WaveQueue::of(users()))
    }

    /// Notes the result of looking at workloads. Returns whose turn it is, or `None` if the queue has been dropped meanwhile.
    pub(super) fn settle(
        &mut self,
        at: QueueRef<'_>,
        looked: Vec<Looked<WorkloadRef>>,
        now: Time,
    ) -> Option<WaveGate<WorkloadRef>> {
        let queue = self.queues.get_mut(at.namespace)?.get_mut(&(at.source.clone(), at.wave))?;
        queue.settle(looked, now);
        Some(queue.gate())
    }

    /// Sets which workload another one waits for.
    pub(super) fn set_waiting(&mut self, key: &WorkloadRef, after: Option<&WorkloadRef>) {
        self.waiting.set(key, after.map(|after| (after.clone(), ())));
    }

    /// Returns the workloads that wait for this one.
    pub(super) fn waiting_for(&self, key: &WorkloadRef) -> impl Iterator<Item = &WorkloadRef> {
        self.waiting.referrers(key)
    }
}
