//! The work queue: which object is reconciled next.
//!
//! A key waits once however often it is added, and one worker has it at a time; added while it runs, it runs again after.
//! Repetitions after failures wait as the caller says, but a new event never waits for them. Keys that failed because an endpoint does not
//! answer wait for that endpoint instead: one of them finds out when it answers again, and then all are let through, a thousand in a second.
//! Adding never blocks.
//!
//! No key starves: a lower priority gets at least every tenth run, and within a priority the namespaces take turns. The key of an object
//! that is gone leaves the queue, so the queue of a standby, which no worker empties, is never longer than the list of its objects.

mod lane;
pub(crate) mod metrics;
mod reasons;
mod state;

use std::{
    hash::Hash,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{sync::Notify, time::Instant};
use tokio_util::sync::CancellationToken;

pub use metrics::QueueMetrics;
pub use state::{Completion, PERIODIC, Priority, QueuedKey, RETRY, Request};
use state::{State, Taken};

/// A queue of keys. Clones are handles to the same queue.
pub struct Queue<K>(Arc<Shared<K>>);

struct Shared<K> {
    name: String,
    state: Mutex<State<K>>,
    changed: Notify,
    closed: CancellationToken,
    metrics: QueueMetrics,
}

impl<K> Clone for Queue<K> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<K: Clone + Eq + Hash + Send + Sync + 'static> Queue<K> {
    /// An empty queue; `name` labels its metrics.
    pub fn new(name: impl Into<String>, metrics: &QueueMetrics) -> Self {
        let queue = Self(Arc::new(Shared {
            name: name.into(),
            state: Mutex::new(State::new()),
            changed: Notify::new(),
            closed: CancellationToken::new(),
            metrics: metrics.clone(),
        }));
        let shared = Arc::downgrade(&queue.0);
        metrics.measure_before_scrape(move || shared.upgrade().is_some_and(|shared| Self(shared).measure()));
        queue
    }

    /// Sets the least time between the beginnings of two runs of one key, for every reason of the second. The default is zero.
    #[must_use]
    pub fn with_min_interval(self, min_interval: Duration) -> Self {
        self.state().set_min_interval(min_interval);
        self
    }

    /// Lets the namespaces take turns within a priority, so the flood of one does not delay the keys of another. `namespace` returns the
    /// namespace of a key; without it, all keys count as of one namespace.
    #[must_use]
    pub fn with_namespaces(self, namespace: fn(&K) -> &str) -> Self {
        self.state().namespaces(namespace);
        self
    }

    /// The name that labels its metrics.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Asks for a run as soon as possible. `reason` comes from a fixed list and is shown to the reconciler.
    pub fn add(&self, key: K, priority: Priority, reason: &'static str) {
        self.add_after(key, Duration::ZERO, priority, reason);
    }

    /// [Asks](Self::add) for a run of each of these keys.
    pub fn add_all(&self, keys: impl IntoIterator<Item = K>, priority: Priority, reason: &'static str) {
        for key in keys {
            self.add(key, priority, reason);
        }
    }

    /// Asks for a run after `delay`, or at the time asked for before, whichever is earlier.
    pub fn add_after(&self, key: K, delay: Duration, priority: Priority, reason: &'static str) {
        if self.0.closed.is_cancelled() {
            return;
        }
        self.state().add(key, Instant::now() + delay, priority, reason);
        self.0.metrics.added(&self.0.name);
        self.0.changed.notify_one();
    }

    /// The next request, as soon as there is one; nothing once the queue is closed.
    ///
    /// The caller hands the key back with [`complete`](Self::complete); until then nobody else gets it. Cancel safe.
    pub async fn next(&self) -> Option<Request<K>> {
        loop {
            if self.0.closed.is_cancelled() {
                return None;
            }
            let due = match self.take() {
                Taken::Request(request, waited) => {
                    self.0.metrics.started(&self.0.name, waited);
                    return Some(request);
                }
                Taken::NothingUntil(due) => Some(due),
                Taken::Nothing => None,
            };
            let wake_up = async {
                match due {
                    Some(due) => tokio::time::sleep_until(due).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = self.0.changed.notified() => {}
                () = wake_up => {}
                () = self.0.closed.cancelled() => {}
            }
        }
    }

    /// Hands a key back.
    pub fn complete(&self, key: &K, completion: Completion) {
        let worked = self.state().complete(key, completion, Instant::now());
        if let Some(worked) = worked {
            self.0.metrics.finished(&self.0.name, worked, completion.is_failure());
        }
        self.0.changed.notify_one();
    }

    /// Lets nothing in and nothing out any more; what is in flight can still be handed back.
    pub fn close(&self) {
        self.0.closed.cancel();
    }

    /// Lets the next attempt be the first again: what made the earlier ones fail has changed.
    pub fn forget_failures(&self, key: &K) {
        self.state().forget_failures(key);
    }

    /// Drops what was requested for a key, because its object is gone and nothing is left to do for it. A run in flight goes on; its end
    /// requests no other run. Adding the key again, such as for a new object of that name, counts as usual.
    pub fn remove(&self, key: &K) {
        self.state().remove(key, Instant::now());
    }

    /// [`remove`](Self::remove)s a key unless its object exists. `exists` is called while the queue is locked, so a key that is added for a
    /// new object after that is kept. `exists` must be quick and must not use this queue.
    pub fn remove_unless(&self, key: &K, exists: impl FnOnce() -> bool) {
        let mut state = self.state();
        if !exists() {
            state.remove(key, Instant::now());
        }
    }

    /// [`remove_unless`](Self::remove_unless), but only as long as no worker has taken any key, as on a standby: no run has left anything that
    /// another run would have to clear. Once workers run, the key stays, and a run finds that its object is gone.
    pub fn remove_on_standby(&self, key: &K, exists: impl FnOnce() -> bool) {
        let mut state = self.state();
        if !state.has_begun() && !exists() {
            state.remove(key, Instant::now());
        }
    }

    /// Whether a worker has ever taken a key. On a standby none has.
    pub fn has_begun(&self) -> bool {
        self.state().has_begun()
    }

    /// [`remove_unless`](Self::remove_unless) for each key that waits.
    pub fn retain(&self, exists: impl FnMut(&K) -> bool) {
        self.state().retain(exists, Instant::now());
    }

    /// Returns the level of the backoff if the run in flight fails now; the first is 1. It rises once per elapsed backoff, however many events
    /// led to attempts meanwhile.
    pub(crate) fn level_after_failure(&self, key: &K) -> u32 {
        self.state().level_after_failure(key)
    }

    /// Cancelled when the queue is closed.
    pub(crate) fn closed(&self) -> &CancellationToken {
        &self.0.closed
    }

    /// Every key that waits, is delayed or is worked on, in no order; for people who look into a running program.
    pub fn snapshot(&self) -> Vec<QueuedKey<K>> {
        self.state().snapshot(Instant::now())
    }

    /// Waiting keys that are due.
    pub fn len(&self) -> usize {
        let now = Instant::now();
        let mut state = self.state();
        Priority::ALL.iter().map(|priority| state.depth(now, *priority)).sum()
    }

    /// Whether at least `many` keys of more than [`Priority::Low`] are due or worked on.
    pub fn is_depth_at_least(&self, many: usize) -> bool {
        self.state().is_depth_at_least(Instant::now(), many)
    }

    /// Whether no key is due.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// For how long the worker that has had its key longest has had it.
    pub fn longest_in_flight(&self) -> Option<Duration> {
        let now = Instant::now();
        self.state().in_flight().map(|since| now.saturating_duration_since(since)).max()
    }

    fn take(&self) -> Taken<K> {
        let mut state = self.state();
        let taken = state.take(Instant::now());
        // One permit may stand for several additions, so the worker that takes one wakes the next.
        if matches!(taken, Taken::Request(..)) && state.has_ready() {
            self.0.changed.notify_one();
        }
        taken
    }

    fn measure(&self) -> bool {
        let now = Instant::now();
        let mut state = self.state();
        let depths = Priority::ALL.map(|priority| (priority, state.depth(now, priority)));
        let running = state.in_flight().map(|since| now.saturating_duration_since(since)).collect::<Vec<_>>();
        drop(state);
        self.0.metrics.measured(&self.0.name, depths, &running);
        true
    }

    /// No code runs under this lock that could panic or that waits for long.
    fn state(&self) -> MutexGuard<'_, State<K>> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
