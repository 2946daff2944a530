//! One subscription per distinct environment, however many Secrets want it.
//!
//! A hub follows its environment by stream, with a jittered poll as the net beneath it, and wakes everybody who is bound to the
//! environment when it changed. It fetches for all of them at once, and keeps no value: a fetched environment lives as long as
//! the workers that use it.

mod follow;
mod missed;
mod pace;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use futures::{
    FutureExt,
    future::{BoxFuture, Shared, WeakShared},
};
use konverge_core::error::Classify;
use konverge_zopp_client::{Client, ContentFingerprint, EnvironmentName, EnvironmentReader, FetchError, Snapshot};
use tokio::{sync::Notify, time::Instant};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::{memory::Memory, metrics::Metrics};

/// Tells all that are bound to an environment to look again.
pub type Wake = Arc<dyn Fn(&EnvironmentName) + Send + Sync>;

/// All hubs of the process.
pub struct Hubs {
    client: Client,
    poll_interval: Duration,
    wake: Wake,
    metrics: Metrics,
    memory: Arc<Memory>,
    active: Mutex<HashMap<EnvironmentName, Weak<Hub>>>,
}

impl Hubs {
    /// Creates hubs that read with `client` once `memory` is loaded, poll about every `poll_interval`, and call `wake` from their own tasks.
    pub fn new(client: Client, poll_interval: Duration, wake: Wake, metrics: Metrics, memory: Arc<Memory>) -> Self {
        Self { client, poll_interval, wake, metrics, memory, active: Mutex::default() }
    }

    /// The environment's hub, started if nobody was bound to it. It ends with the last clone of what this returns.
    pub fn subscribe(&self, name: &EnvironmentName) -> Arc<Hub> {
        let mut active = self.active.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(hub) = active.get(name).and_then(Weak::upgrade) {
            return hub;
        }
        active.retain(|_, hub| hub.strong_count() > 0);
        let reader = EnvironmentReader::new(self.client.clone(), name.clone());
        let fetcher = Arc::new(Fetcher::new(reader, Arc::clone(&self.memory)));
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

type Answer = Result<Arc<Snapshot>, Arc<FetchError>>;
type Fetch = Shared<BoxFuture<'static, Answer>>;

/// Which environment the server has under the name, and its version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stated {
    /// The environment's id.
    pub environment_id: String,
    /// Its version.
    pub version: i64,
    /// Its content; `None` if the version was only heard of.
    pub content: Option<ContentFingerprint>,
    /// Whether a manifest was given with it.
    pub has_manifest: bool,
    /// Stands for its content, if the server has such a thing and nothing changed since.
    pub tag: Option<String>,
    /// When the process learned of this version.
    pub since: Instant,
}

impl Stated {
    /// The statement of an answer that arrived now.
    fn by(snapshot: &Snapshot) -> Self {
        Self {
            environment_id: snapshot.environment_id.clone(),
            version: snapshot.version,
            content: Some(snapshot.content),
            has_manifest: snapshot.serial.is_some(),
            tag: snapshot.tag.clone(),
            since: Instant::now(),
        }
    }

    /// Whether it says the same of the environment; when that was learned does not matter. A server that lost changes states a version
    /// again that it stated before, with other content.
    pub fn agrees_with(&self, other: &Self) -> bool {
        let has_other_content = self.content.zip(other.content).is_some_and(|(content, other)| content != other);
        self.environment_id == other.environment_id && self.version == other.version && !has_other_content
    }
}

/// Reads one environment, one call at a time, and remembers what the server stated, but no value.
struct Fetcher {
    reader: EnvironmentReader,
    memory: Arc<Memory>,
    state: Mutex<State>,
    /// Told when a fetch failed, so that the hub tries again.
    failed: Notify,
    /// Told when the hub should try again soon.
    wanted: Notify,
}

struct State {
    /// When the server last answered, be it with a refusal; before that, when it was first wanted.
    answered: Instant,
    /// Counts what makes earlier fetches outdated.
    era: u64,
    stated: Option<Stated>,
    /// Of which kind the last failure was, until an answer comes.
    trouble: Option<&'static str>,
    /// The last failure, for all who ask before the hub tries again.
    failure: Option<(u64, Arc<FetchError>)>,
    /// The call under way. Weak, so that its answer goes with the last caller that waits for it.
    under_way: Option<Begun<WeakShared<BoxFuture<'static, Answer>>>>,
    /// The last answer while a caller still uses it.
    last: Option<Begun<Weak<Snapshot>>>,
}

/// A call to the server, or its answer, with the era and the moment in which it began.
struct Begun<T> {
    era: u64,
    at: Instant,
    what: T,
}

impl<T> Begun<T> {
    /// Whether it began in this era and not before `since`.
    fn is_new_enough(&self, era: u64, since: Option<Instant>) -> bool {
        self.era == era && since.is_none_or(|since| since <= self.at)
    }
}

impl Fetcher {
    fn new(reader: EnvironmentReader, memory: Arc<Memory>) -> Self {
        let state = State {
            answered: Instant::now(),
            era: 0,
            stated: None,
            trouble: None,
            failure: None,
            under_way: None,
            last: None,
        };
        Self { reader, memory, state: Mutex::new(state), failed: Notify::new(), wanted: Notify::new() }
    }

    fn stated(&self) -> Option<Stated> {
        self.state().stated.clone()
    }

    /// How long ago the server last answered, or was first asked if it never did.
    fn age(&self) -> Duration {
        self.state().answered.elapsed()
    }

    /// Of which kind the last failure was, if nothing good came after it.
    fn trouble(&self) -> Option<&'static str> {
        self.state().trouble
    }

    /// The last failure, if no answer came after it.
    fn failure(&self) -> Option<Arc<FetchError>> {
        self.state().failure.as_ref().map(|(_, failure)| Arc::clone(failure))
    }

    /// Asks, by one small call, whether what the server stated last still holds. Returns it if so; `None` if it does not, or nobody can tell.
    async fn confirm(&self) -> Option<Stated> {
        let stated = self.stated()?;
        if !self.reader.is_current(stated.tag.as_ref()?).await.unwrap_or(false) {
            return None;
        }
        let mut state = self.state();
        // A change that was heard of meanwhile knows better.
        let holds = state.stated.as_ref() == Some(&stated);
        if holds {
            state.answered = Instant::now();
        }
        holds.then_some(stated)
    }

    /// Makes everything that was fetched before now outdated.
    fn outdate(&self) {
        self.state().era += 1;
    }

    /// The stream told of a change.
    fn changed(&self, version: i64) {
        let mut state = self.state();
        state.era += 1;
        if let Some(stated) = &mut state.stated {
            stated.version = version;
            stated.content = None;
            stated.tag = None;
            stated.since = Instant::now();
        }
    }

    /// The answer of a call that belongs to the current era and, with `since`, began no earlier than that. Callers share calls.
    async fn snapshot(self: &Arc<Self>, since: Option<Instant>) -> Answer {
        let fetch = {
            let mut state = self.state();
            // Of two calls in one era, the older one could answer last and be taken for the newer.
            if state.under_way.as_ref().is_some_and(|fetch| fetch.era == state.era && since > Some(fetch.at)) {
                state.era += 1;
            }
            let era = state.era;
            if let Some(last) = state.last.as_ref().filter(|last| last.is_new_enough(era, since))
                && let Some(snapshot) = last.what.upgrade()
            {
                return Ok(snapshot);
            }
            if let Some((of, failure)) = &state.failure
                && *of == era
            {
                return Err(Arc::clone(failure));
            }
            let under_way = state.under_way.as_ref().filter(|fetch| fetch.is_new_enough(era, since));
            under_way.and_then(|fetch| fetch.what.upgrade()).unwrap_or_else(|| {
                let at = Instant::now();
                let fetch: Fetch = Arc::clone(self).fetch(era, at).boxed().shared();
                state.under_way = fetch.downgrade().map(|what| Begun { era, at, what });
                fetch
            })
        };
        fetch.await
    }

    async fn fetch(self: Arc<Self>, era: u64, at: Instant) -> Answer {
        self.memory.loaded().await;
        match self.reader.fetch().await {
            Ok(snapshot) => {
                let snapshot = Arc::new(snapshot);
                let mut state = self.state();
                state.trouble = None;
                state.failure = None;
                state.answered = Instant::now();
                // A change that was heard of meanwhile knows better.
                if state.era == era {
                    state.last = Some(Begun { era, at, what: Arc::downgrade(&snapshot) });
                    state.learn(&snapshot);
                }
                Ok(snapshot)
            }
            Err(error) => {
                let error = Arc::new(error);
                let mut state = self.state();
                if !matches!(*error, FetchError::Unreachable { .. }) {
                    state.answered = Instant::now();
                }
                state.stated = None;
                state.failure = Some((era, Arc::clone(&error)));
                state.worsen(&error);
                drop(state);
                self.failed.notify_one();
                Err(error)
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// That nothing can be reached, after something was and refused, is no news: a broken answer is often followed by that.
    fn worsen(&mut self, error: &FetchError) {
        if self.trouble.is_none() || !matches!(error, FetchError::Unreachable { .. }) {
            self.trouble = Some(error.reason());
        }
    }

    fn learn(&mut self, snapshot: &Snapshot) {
        let stated = Stated::by(snapshot);
        match &mut self.stated {
            // Since when it is so does not change.
            Some(before) if before.agrees_with(&stated) => *before = Stated { since: before.since, ..stated },
            _ => self.stated = Some(stated),
        }
    }
}
