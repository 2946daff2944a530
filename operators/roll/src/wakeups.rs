//! The work queues, and why a key is in one of them, in one word: in logs, spans and introspection.

use std::time::Duration;

use konverge_runtime::{Metrics, Priority, Queue};

use crate::{
    object::{SourceRef, WorkloadRef},
    trigger::TriggerRef,
};

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
    pub fn new(metrics: &Metrics) -> Self {
        let (workloads, sources, triggers) = ("roll", "roll-sources", "roll-triggers");
        Self {
            workloads: Queue::new(workloads, metrics.queues()).with_namespaces(|key: &WorkloadRef| &key.namespace),
            sources: Queue::new(sources, metrics.queues())
                .with_rest(REST)
                .with_namespaces(|key: &SourceRef| &key.namespace),
            triggers: Queue::new(triggers, metrics.queues())
                .with_rest(REST)
                .with_namespaces(|key: &TriggerRef| &key.namespace),
        }
    }

    /// Wakes the workload for which the budget has room by now, if there is one.
    pub(crate) fn wake_next(&self, next: Option<WorkloadRef>) {
        self.workloads.add_all(next, Priority::Normal, ROOM);
    }
}

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
