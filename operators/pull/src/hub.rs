//! One subscription per distinct reference, however many Secrets name it.
//!
//! A hub follows its content as the store allows, and wakes everybody who is bound to it when it changed. It fetches for all of them at once, and keeps no
//! value: a snapshot lives as long as the workers that use it.

mod feed;
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
use konverge_apply::Statement;
use tokio::{sync::Notify, time::Instant};
use tokio_util::sync::{CancellationToken, DropGuard};

pub use self::{
    feed::{Feed, poll_after},
    pace::{Failures, SHORTEST_PAUSE},
};
use crate::{
    metrics::Metrics,
    source::{Cause, Failure, Reference, Revision, Snapshot, Sources, Succession, Upstream},
};

/// Tells all that are bound to a content to look again.
pub type Wake = Arc<dyn Fn(&Reference) + Send + Sync>;

/// All hubs of the process.
pub struct Hubs {
    sources: Sources,
    poll_interval: Duration,
    wake: Wake,
    metrics: Metrics,
    active: Mutex<HashMap<Reference, Weak<Hub>>>,
}

impl Hubs {
    /// Creates hubs for contents of these stores. They poll about every `poll_interval`, and call `wake` from their own tasks.
    pub fn new(sources: Sources, poll_interval: Duration, wake: Wake, metrics: Metrics) -> Self {
        Self { sources, poll_interval, wake, metrics, active: Mutex::default() }
    }

    /// Returns the hub of the content. Starts it if no Secret is bound to the content. The hub ends when its last `Arc` is dropped.
    ///
    /// # Errors
    /// A statement for the owner of the Secret, if no store can have such a content.
    pub fn subscribe(&self, reference: &Reference) -> Result<Arc<Hub>, Statement> {
        let mut active = self.active.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(hub) = active.get(reference).and_then(Weak::upgrade) {
            return Ok(hub);
        }
        active.retain(|_, hub| hub.strong_count() > 0);
        let fetcher = Arc::new(Fetcher::new(self.sources.open(reference)?));
        let stop = CancellationToken::new();
        let feed = Feed {
            reference: reference.clone(),
            fetcher: Arc::clone(&fetcher),
            poll_interval: self.poll_interval,
            wake: Arc::clone(&self.wake),
            metrics: self.metrics.clone(),
        };
        let followed = Arc::clone(&fetcher);
        let follow = async move { followed.upstream.follow(feed).await };
        tokio::spawn(stop.clone().run_until_cancelled_owned(follow));
        let hub = Arc::new(Hub { fetcher, _stop: stop.drop_guard() });
        active.insert(reference.clone(), Arc::downgrade(&hub));
        Ok(hub)
    }

    /// Returns the longest time since a store answered about one of the contents. A refusal is an answer. The poll keeps it below its interval as
    /// long as all is well. Returns `None` if no Secret is bound.
    pub fn stalest(&self) -> Option<Duration> {
        let active = self.active.lock().unwrap_or_else(PoisonError::into_inner);
        active.values().filter_map(Weak::upgrade).map(|hub| hub.fetcher.age()).max()
    }
}

/// A subscription to one content. Its task ends when this is dropped.
pub struct Hub {
    fetcher: Arc<Fetcher>,
    _stop: DropGuard,
}

impl Hub {
    /// Returns the last statement of the store about the content. `None` before the first answer, and after a failed one.
    pub fn stated(&self) -> Option<Stated> {
        self.fetcher.stated()
    }

    /// Returns the content, as the store has it.
    pub fn upstream(&self) -> &dyn Upstream {
        &*self.fetcher.upstream
    }

    /// The content, at least as new as every change that the hub heard of before this call; with `since`, from a call to the store that began no
    /// earlier. Callers at the same time share one fetch. After an error the hub itself tries again, and wakes everybody when it succeeds.
    pub async fn snapshot(&self, since: Option<Instant>) -> Result<Arc<Snapshot>, Arc<Failure>> {
        self.fetcher.snapshot(since).await
    }

    /// Returns the time since the store last answered about the content. A refusal is an answer.
    pub fn age(&self) -> Duration {
        self.fetcher.age()
    }

    /// Tells the hub that a bound Secret has changed. If the last fetch failed, the hub tries again within a second.
    pub fn retry_soon(&self) {
        if self.fetcher.failure().is_some() {
            self.fetcher.wanted.notify_one();
        }
    }
}

type Answer = Result<Arc<Snapshot>, Arc<Failure>>;
type Fetch = Shared<BoxFuture<'static, Answer>>;

/// The revision that the store has of a content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stated {
    /// The revision.
    pub revision: Revision,
    /// The contents that it may replace.
    pub succession: Succession,
    /// The tag with which [`Upstream::is_current`] asks for this revision. `None` if the store has no tags, or has told of a change since.
    pub tag: Option<String>,
    /// When the process learned of this revision.
    pub since: Instant,
}

impl Stated {
    /// The statement of an answer that arrived now.
    fn by(snapshot: &Snapshot) -> Self {
        Self {
            revision: snapshot.revision.clone(),
            succession: snapshot.succession,
            tag: snapshot.tag.clone(),
            since: Instant::now(),
        }
    }

    /// Returns whether both are the same for the Secrets that hold the content. A first proof changes no content, but Secrets record it.
    fn is_no_news_after(&self, before: &Self) -> bool {
        let is_proven = |stated: &Self| matches!(stated.succession, Succession::Proven(_));
        self.revision.agrees_with(&before.revision) && is_proven(self) == is_proven(before)
    }
}

/// Reads one content, one call at a time, and remembers what the store stated, but no value.
struct Fetcher {
    upstream: Box<dyn Upstream>,
    state: Mutex<State>,
    /// Told when a fetch failed, so that the hub tries again.
    failed: Notify,
    /// Told when the hub should try again soon.
    wanted: Notify,
}

struct State {
    /// When the store last answered. A refusal is an answer. Before the first answer, when the hub began.
    answered: Instant,
    /// Counts what makes earlier fetches outdated.
    era: u64,
    stated: Option<Stated>,
    /// Of which kind the last failure was, until an answer comes.
    trouble: Option<&'static str>,
    /// The last failure, for all who ask before the hub tries again.
    failure: Option<(u64, Arc<Failure>)>,
    /// The call under way. Weak, so that its answer goes with the last caller that waits for it.
    under_way: Option<Begun<WeakShared<BoxFuture<'static, Answer>>>>,
    /// The last answer while a caller still uses it.
    last: Option<Begun<Weak<Snapshot>>>,
}

/// A call to the store, or its answer, with the era and the moment in which it began.
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
    fn new(upstream: Box<dyn Upstream>) -> Self {
        let state = State {
            answered: Instant::now(),
            era: 0,
            stated: None,
            trouble: None,
            failure: None,
            under_way: None,
            last: None,
        };
        Self { upstream, state: Mutex::new(state), failed: Notify::new(), wanted: Notify::new() }
    }

    fn stated(&self) -> Option<Stated> {
        self.state().stated.clone()
    }

    /// Returns the time since the store last answered, or since the hub began if it never did.
    fn age(&self) -> Duration {
        let answered = self.state().answered;
        self.upstream.answered().map_or(answered, |otherwise| otherwise.max(answered)).elapsed()
    }

    /// Of which kind the last failure was, if nothing good came after it.
    fn trouble(&self) -> Option<&'static str> {
        self.state().trouble
    }

    /// The last failure, if no answer came after it.
    fn failure(&self) -> Option<Arc<Failure>> {
        self.state().failure.as_ref().map(|(_, failure)| Arc::clone(failure))
    }

    /// Asks, by one small request, whether the last statement of the store still holds. Returns the statement if it does, and `None` if it does not or the store cannot tell.
    async fn confirm(&self) -> Option<Stated> {
        let stated = self.stated()?;
        if !self.upstream.is_current(stated.tag.as_ref()?).await {
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

    /// Forgets everything that was stated.
    fn forget(&self) {
        let mut state = self.state();
        state.era += 1;
        state.stated = None;
    }

    /// Records that the store has told of a change.
    fn changed(&self, number: i64) {
        let mut state = self.state();
        state.era += 1;
        if let Some(stated) = &mut state.stated {
            stated.revision.number = number;
            stated.revision.fingerprint = None;
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
        match self.upstream.fetch().await {
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
                if error.cause != Cause::Unreachable {
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
    fn worsen(&mut self, error: &Failure) {
        if self.trouble.is_none() || error.cause != Cause::Unreachable {
            self.trouble = Some(error.kind);
        }
    }

    fn learn(&mut self, snapshot: &Snapshot) {
        let stated = Stated::by(snapshot);
        match &mut self.stated {
            // Since when it is so does not change.
            Some(before) if before.revision.agrees_with(&stated.revision) => {
                *before = Stated { since: before.since, ..stated }
            }
            _ => self.stated = Some(stated),
        }
    }
}
