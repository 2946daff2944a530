//! [`Parts`]. The methods that carry events to the index and from there to the queues are in [`watch`](crate::watch).

use std::sync::{Mutex, MutexGuard, PoisonError};

use konverge_apply::Announcer;

use crate::{budget::Budget, digest_key::Key, index::Index, metrics::Metrics, wakeups::Queues};

/// The parts that the watches and the controllers share.
pub struct Parts {
    /// The state of the cluster as the watches show it.
    pub index: Index,
    /// How many rollouts there may be.
    pub budget: Mutex<Budget>,
    /// Makes digests, once the key is there.
    pub key: Key,
    /// Where keys are left to be worked on.
    pub queues: Queues,
    /// The metrics.
    pub metrics: Metrics,
    /// Announces how workloads and triggers stand.
    pub announcer: Announcer,
    /// Announces how sources stand.
    pub source_announcer: Announcer,
}

impl Parts {
    /// The budget, for as long as the guard lives.
    pub(crate) fn budget(&self) -> MutexGuard<'_, Budget> {
        self.budget.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
