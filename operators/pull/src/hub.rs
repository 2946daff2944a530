//! One subscription per distinct environment, however many Secrets want it.
//!
//! A hub follows its environment by stream, with a jittered poll as the net beneath it, and wakes everybody who is bound to the
//! environment when it changed. It fetches for all of them at once, and keeps no value: a fetched environment lives as long as
//! the workers that use it.

mod fetch;
mod follow;
mod missed;
mod pace;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError, Weak},
    time::Duration,
};

use konverge_zopp_client::{Client, EnvironmentName, EnvironmentReader, FetchError, Snapshot};
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};

use self::fetch::Fetcher;
pub use self::fetch::Stated;
use crate::metrics::Metrics;

/// Tells all that are bound to an environment to look again.
pub type Wake = Arc<dyn Fn(&EnvironmentName) + Send + Sync>;

/// All hubs of the process.
pub struct Hubs {
    client: Client,
    poll_interval: Duration,
    wake: Wake,
    metrics: Metrics,
    active: Mutex<HashMap<EnvironmentName, Weak<Hub>>>,
}

impl Hubs {
    /// Hubs read with `client`, poll about every `poll_interval`, and call `wake` from their own tasks.
    pub fn new(client: Client, poll_interval: Duration, wake: Wake, metrics: Metrics) -> Self {
        Self { client, poll_interval, wake, metrics, active: Mutex::default() }
    }

    /// The environment's hub, started if nobody was bound to it. It ends with the last clone of what this returns.
    pub fn subscribe(&self, name: &EnvironmentName) -> Arc<Hub> {
        let mut active = self.active.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(hub) = active.get(name).and_then(Weak::upgrade) {
            return hub;
        }
        active.retain(|_, hub| hub.strong_count() > 0);
        let reader = EnvironmentReader::new(self.client.clone(), name.clone());
        let fetcher = Arc::new(Fetcher::new(reader));
        let stop = CancellationToken::new();
        let follow = follow::Follow {
            fetcher: Arc::clone(&fetcher),
            poll_interval: self.poll_interval,
            wake: Arc::clone(&self.wake),
            metrics: self.metrics.clone(),
        };
        tokio::spawn(stop.clone().run_until_cancelled_owned(follow.run()));
        let hub = Arc::new(Hub { fetcher, _stop: stop.drop_guard() });
        active.insert(name.clone(), Arc::downgrade(&hub));
        hub
    }

    /// How long ago the server last answered about the environment about which it was silent for the longest time. A refusal is an answer. The
    /// poll keeps it below its interval as long as all is well; nothing if no environment is wanted.
    pub fn stalest(&self) -> Option<Duration> {
        let active = self.active.lock().unwrap_or_else(PoisonError::into_inner);
        active.values().filter_map(Weak::upgrade).map(|hub| hub.fetcher.age()).max()
    }
}

/// A subscription to one environment. Its task and its stream end when this is dropped.
pub struct Hub {
    fetcher: Arc<Fetcher>,
    _stop: DropGuard,
}

impl Hub {
    /// Returns the last statement of the server about the environment. `None` before the first answer, and after a failed one.
    pub fn stated(&self) -> Option<Stated> {
        self.fetcher.stated()
    }

    /// The environment, at least as new as every change that the hub heard of before this call; with `since`, from a call to the server that began no
    /// earlier. Callers at the same time share one fetch. After an error the hub itself tries again, and wakes everybody when it succeeds.
    pub async fn snapshot(&self, since: Option<Instant>) -> Result<Arc<Snapshot>, Arc<FetchError>> {
        self.fetcher.snapshot(since).await
    }

    /// Tells that a Secret of the environment has changed: an environment that could not be read is asked for again within a second.
    pub fn retry_soon(&self) {
        if self.fetcher.failure().is_some() {
            self.fetcher.wanted.notify_one();
        }
    }
}
