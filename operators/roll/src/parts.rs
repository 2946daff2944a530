//! The parts that the watches and the controllers share: the way of an event to the index, and from there to the work queues.

use std::{
    collections::HashSet,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use konverge_apply::Announcer;
use konverge_runtime::{Priority, Queue, watch::Origin};
use konverge_workload::{Workload, WorkloadKind};

use crate::{
    budget::{self, Budget},
    digest_key::Key,
    index::{Index, Shows, Work},
    messages,
    metrics::Metrics,
    object::{SourceRef, WorkloadRef},
    time::Time,
    trigger::{TriggerKind, TriggerRef},
};

// Why a key is in a queue, in one word: in logs, spans and introspection.
/// An object has changed.
pub const OBJECT: &str = "object";
/// An object is in the first list, or in a list after a watch was broken.
pub const LISTED: &str = "listed";
/// The content of a source has changed, or it may not be read.
pub const SOURCE: &str = "source";
/// There is room in the budget.
const ROOM: &str = "room";
/// An object was changed by another client while the operator worked on it.
pub const CONTENDED: &str = "contended";
/// Something was reported about a workload of a trigger.
pub const WORKLOAD: &str = "workload";

/// The parts that the watches and the controllers share.
pub struct Parts {
    /// The state of the cluster as the watches show it.
    pub index: Index,
    /// How many rollouts there may be.
    pub budget: Mutex<Budget>,
    /// Makes digests, once the key is there.
    pub key: Key,
    /// The work queues.
    pub queues: Queues,
    /// The metrics.
    pub metrics: Metrics,
    /// Announces statements about workloads and triggers.
    pub announcer: Announcer,
    /// Announces statements about sources.
    pub source_announcer: Announcer,
}

impl Parts {
    /// The budget, for as long as the guard lives.
    pub(crate) fn budget(&self) -> MutexGuard<'_, Budget> {
        self.budget.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// No object of this kind requests rollouts.
    pub(crate) fn no_triggers(&self, kind: TriggerKind) {
        self.enqueue(self.index.retain_triggers(kind, &HashSet::new()), Priority::Normal, OBJECT);
    }

    /// A watch event or a list shows a workload. Returns whether it can be named.
    pub(crate) fn apply_workload(&self, kind: WorkloadKind, workload: Workload, origin: Origin) -> bool {
        let (shows, priority, reason) = origin_of(origin);
        let now = Time::now();
        let (key, work) = self.index.apply_workload(shows, kind, workload, now);
        if let Some(key) = &key
            && let Some((stamp, rolled, progress)) = self.index.rollout(key)
        {
            let is_over = budget::is_over(progress);
            let next = self.budget().seen(key, &stamp, (now.recorded(rolled), now), is_over);
            self.queues.wake_next(next);
        }
        self.enqueue(work, priority, reason);
        key.is_some()
    }

    /// A workload is gone.
    pub(crate) fn forget(&self, key: &WorkloadRef) {
        let work = self.index.forget(key);
        self.forget_key(key);
        self.enqueue(work, Priority::Normal, OBJECT);
    }

    /// Forgets a workload that the index does not know any more.
    pub(crate) fn forget_key(&self, key: &WorkloadRef) {
        self.drop_if_gone(key);
        self.end_rollout(key);
    }

    /// A workload has opted out, or is being deleted.
    pub(crate) fn opt_out(&self, key: &WorkloadRef) {
        self.index.opt_out(key);
        self.end_rollout(key);
    }

    /// The rollout of a workload is over, or does not concern the budget any more.
    fn end_rollout(&self, key: &WorkloadRef) {
        let next = self.budget().done(key, Time::now());
        self.queues.wake_next(next);
    }

    /// On a standby, drops the key of a workload that is gone. Its place in the budget and in the waiting list is given up without a run. A
    /// leader keeps the key, because a run may have taken a place meanwhile.
    fn drop_if_gone(&self, key: &WorkloadRef) {
        self.queues.workloads.remove_on_standby(key, || self.index.has(key));
    }

    /// The same for a source that no workload uses.
    fn drop_if_unused(&self, key: &SourceRef) {
        self.queues.sources.remove_on_standby(key, || self.index.is_used(key));
    }

    /// Queues work. A standby keeps only keys of existing objects, also if the watch of another kind has removed one meanwhile: no
    /// worker of its own has begun anything that would have to be ended.
    pub(crate) fn enqueue(&self, work: Work, priority: Priority, reason: &'static str) {
        for source in work.sources {
            self.queues.sources.add(source.clone(), priority, reason);
            self.drop_if_unused(&source);
        }
        for source in work.unused {
            self.drop_if_unused(&source);
        }
        for workload in work.workloads {
            self.queues.workloads.add(workload.clone(), priority, reason);
            self.drop_if_gone(&workload);
        }
        for trigger in work.triggers {
            self.queues.triggers.add(trigger.clone(), priority, reason);
            self.queues.triggers.remove_on_standby(&trigger, || self.index.has_trigger(&trigger));
        }
        if let Some((source, uid, invalid)) = work.invalid {
            self.source_announcer.announce(&source, source.reference(&uid), &messages::invalid(&invalid));
        }
    }
}

/// Returns how an object counts that comes from there, how soon its keys are worked on, and why.
pub(crate) fn origin_of(origin: Origin) -> (Shows<'static>, Priority, &'static str) {
    match origin {
        Origin::List => (Shows::List, Priority::Low, LISTED),
        Origin::Watch => (Shows::Event, Priority::Normal, OBJECT),
    }
}

/// The time between two reads of one source. A source that changes faster rolls nothing sooner.
const REST: Duration = Duration::from_millis(500);

/// The work queues. Clones are handles to the same queues.
#[derive(Clone)]
pub struct Queues {
    /// Workloads to reconcile.
    pub workloads: Queue<WorkloadRef>,
    /// Sources to read.
    pub sources: Queue<SourceRef>,
    /// Triggers whose status to report.
    pub triggers: Queue<TriggerRef>,
}

impl Queues {
    /// Returns empty queues.
    pub fn new(metrics: &konverge_runtime::Metrics) -> Self {
        let (workloads, sources, triggers) = ("roll", "roll-sources", "roll-triggers");
        Self {
            workloads: Queue::new(workloads, metrics.queues()).with_namespaces(|key: &WorkloadRef| &key.namespace),
            sources: Queue::new(sources, metrics.queues())
                .with_min_interval(REST)
                .with_namespaces(|key: &SourceRef| &key.namespace),
            triggers: Queue::new(triggers, metrics.queues())
                .with_min_interval(REST)
                .with_namespaces(|key: &TriggerRef| &key.namespace),
        }
    }

    /// Wakes the workload for which the budget has room by now, if there is one.
    pub(crate) fn wake_next(&self, next: Option<WorkloadRef>) {
        self.workloads.add_all(next, Priority::Normal, ROOM);
    }
}
