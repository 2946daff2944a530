//! Fetching once for all who ask at the same time.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use futures::{
    FutureExt,
    future::{BoxFuture, Shared, WeakShared},
};
use konverge_core::error::Classify;
use konverge_zopp_client::{ContentFingerprint, EnvironmentReader, FetchError, Snapshot};
use tokio::{sync::Notify, time::Instant};

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
    /// Stands for its content, if the server has such a thing and nothing changed since.
    pub tag: Option<String>,
    /// When the process learned of this version.
    pub since: Instant,
}

impl Stated {
    /// The statement of an answer that arrived now.
    pub(super) fn by(snapshot: &Snapshot) -> Self {
        Self {
            environment_id: snapshot.environment_id.clone(),
            version: snapshot.version,
            content: Some(snapshot.content),
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
pub(super) struct Fetcher {
    pub(super) reader: EnvironmentReader,
    state: Mutex<State>,
    /// Told when a fetch failed, so that the hub tries again.
    pub(super) failed: Notify,
    /// Told when the hub should try again soon.
    pub(super) wanted: Notify,
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
    pub(super) fn new(reader: EnvironmentReader) -> Self {
        let state = State {
            answered: Instant::now(),
            era: 0,
            stated: None,
            trouble: None,
            failure: None,
            under_way: None,
            last: None,
        };
        Self { reader, state: Mutex::new(state), failed: Notify::new(), wanted: Notify::new() }
    }

    pub(super) fn stated(&self) -> Option<Stated> {
        self.state().stated.clone()
    }

    /// How long ago the server last answered, or was first asked if it never did.
    pub(super) fn age(&self) -> Duration {
        self.state().answered.elapsed()
    }

    /// Of which kind the last failure was, if nothing good came after it.
    pub(super) fn trouble(&self) -> Option<&'static str> {
        self.state().trouble
    }

    /// The last failure, if no answer came after it.
    pub(super) fn failure(&self) -> Option<Arc<FetchError>> {
        self.state().failure.as_ref().map(|(_, failure)| Arc::clone(failure))
    }

    /// Asks, by one small call, whether what the server stated last still holds. Returns it if so; `None` if it does not, or nobody can tell.
    pub(super) async fn confirm(&self) -> Option<Stated> {
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
    pub(super) fn outdate(&self) {
        self.state().era += 1;
    }

    /// The stream told of a change.
    pub(super) fn changed(&self, version: i64) {
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
    pub(super) async fn snapshot(self: &Arc<Self>, since: Option<Instant>) -> Answer {
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
