//! Watching objects, for ever.
//!
//! Whole objects, or with `PartialObjectMeta<K>` their metadata alone, so that the payload of a Secret never enters the process.
//! Nothing is stored here: events pass through. [`cache`](crate::cache) stores them, and an [`EventHandler`] keeps what a program needs to know
//! of them.

mod explained;
mod guarded;
mod handler;
mod initial_list;
mod list_watch;
mod namespace;
mod selector;
mod watch_when_available;

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures::{Stream, StreamExt, TryStreamExt, future, stream};
use konverge_core::{backoff::Backoff, error::in_one_line, outage::LONGEST_PAUSE};
use kube::{Client, runtime::watcher};
use tokio::{sync::watch, time::Instant};

use explained::{explained, served_as};
pub(crate) use guarded::keeping;
pub use guarded::{Guarded, Undecodable};
pub use handler::{EventHandler, Origin, handle_events};
pub use initial_list::InitialList;
pub use kube::runtime::watcher::Event;
pub(crate) use list_watch::Observed;
use list_watch::list_watch;
pub use namespace::{NamespaceError, namespace};
pub use selector::{SelectorError, label_selector};
pub(crate) use watch_when_available::watch_when_available;

use crate::object::{Object, Scope};

/// Which objects, and how soon a dead connection is noticed.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct WatchOptions {
    /// One namespace, or all.
    pub namespace: Option<String>,
    /// Only objects with these labels, in the syntax of `kubectl -l`.
    pub label_selector: Option<String>,
    /// Only objects with these fields, in the syntax of `kubectl --field-selector`.
    pub field_selector: Option<String>,
    /// How long one watch lasts before the next one begins where it ended, at the cost of one request. A watch that has not ended four
    /// seconds later counts as dead, so this bounds how long a frozen connection goes unnoticed, and with it how stale the events can
    /// be. Rounded up to whole seconds.
    pub timeout: Duration,
    /// For one page of a list, from the request to its last byte, and for the next object of a streamed list.
    pub list_timeout: Duration,
    /// Whether the kind may be missing. If the API server does not serve it, the watch counts as complete, and begins once the
    /// definition of the kind is installed. So it is if the program may not list the kind.
    pub optional: bool,
    /// How what exists is read at the beginning.
    pub initial_list: InitialList,
    /// The pauses after failures.
    pub backoff: Backoff,
}

impl Default for WatchOptions {
    /// All objects, watches of 25 seconds, so that a frozen connection is noticed within 30, and pauses of up to four seconds: changes made
    /// in an outage are seen within five seconds of its end.
    fn default() -> Self {
        Self {
            namespace: None,
            label_selector: None,
            field_selector: None,
            timeout: Duration::from_secs(25),
            list_timeout: Duration::from_secs(30),
            optional: false,
            initial_list: InitialList::default(),
            backoff: Backoff { base: Duration::from_secs(1), factor: 2.0, cap: LONGEST_PAUSE },
        }
    }
}

konverge_core::with!(WatchOptions);

/// How a watch is doing. Clones look at the same watch.
#[derive(Debug, Clone)]
pub struct WatchHealth {
    synced: Arc<watch::Sender<bool>>,
    missing: Arc<watch::Sender<bool>>,
    forbidden: Arc<watch::Sender<bool>>,
    state: Arc<Mutex<HealthState>>,
}

impl Default for WatchHealth {
    fn default() -> Self {
        let flag = || Arc::new(watch::Sender::new(false));
        Self { synced: flag(), missing: flag(), forbidden: flag(), state: Arc::default() }
    }
}

/// The state of a watch of a kind that the cluster may lack. No variant will be added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Presence {
    /// A complete list was seen.
    Listed,
    /// There are none, because the API server does not serve the kind.
    Missing,
    /// There may be objects, but this program may not list them.
    Forbidden,
}

#[derive(Debug, Default)]
struct HealthState {
    /// Failures that nothing good came after.
    failing: Option<Failing>,
    /// Since when a list has been read that is not complete yet.
    listing_since: Option<Instant>,
}

#[derive(Debug)]
struct Failing {
    since: Instant,
    error: String,
}

/// A watch that fails for longer than this says that what is known may be old.
const RESTART: Duration = Duration::from_secs(30);

/// So does a list that takes longer than this while what was known before is in use.
const LONG_LIST: Duration = Duration::from_secs(60);

impl WatchHealth {
    /// Whether a complete list was seen since the start; the check for readiness.
    pub fn is_synced(&self) -> bool {
        *self.synced.borrow()
    }

    /// Returns as soon as a complete list was seen. Cancel safe.
    pub async fn synced(&self) {
        // The sender lives as long as `self`, so this cannot fail.
        let _ = self.synced.subscribe().wait_for(|synced| *synced).await;
    }

    /// Whether the API server does not serve the kind. Only an [optional](WatchOptions::optional) kind may be missing; any other counts
    /// as failing.
    pub fn is_missing(&self) -> bool {
        *self.missing.borrow()
    }

    /// Returns as soon as the kind [is missing](Self::is_missing), or is not. Cancel safe.
    pub async fn when_missing(&self, is_missing: bool) {
        // As in `synced`, this cannot fail.
        let _ = self.missing.subscribe().wait_for(|missing| *missing == is_missing).await;
    }

    /// Returns as soon as a complete list was seen, or the API server has said why there can be none. Cancel safe.
    pub async fn presence(&self) -> Presence {
        let mut forbidden = self.forbidden.subscribe();
        tokio::select! {
            () = self.synced() => if self.is_missing() { Presence::Missing } else { Presence::Listed },
            _ = forbidden.wait_for(|forbidden| *forbidden) => Presence::Forbidden,
        }
    }

    /// A check for [`Checks::readiness`](crate::checks::Checks::readiness).
    ///
    /// Fails until the first list is complete. Later, fails while the watch has been failing for longer than a restart of the API server
    /// takes, and while a list takes very long.
    pub fn check(&self) -> Result<(), String> {
        let (state, synced) = (self.state(), self.is_synced());
        if let Some(Failing { since, error }) = &state.failing
            && (!synced || since.elapsed() > RESTART)
        {
            return Err(format!("failing for {} s: {error}", since.elapsed().as_secs()));
        }
        match state.listing_since.map(|since| since.elapsed()) {
            _ if !synced => Err("the first list is not complete".to_owned()),
            Some(listing) if listing > LONG_LIST => {
                Err(format!("listing again for {} s; what is known may be old", listing.as_secs()))
            }
            _ => Ok(()),
        }
    }

    /// How long the watch has been failing, if it is.
    pub fn failing_for(&self) -> Option<Duration> {
        self.state().failing.as_ref().map(|failing| failing.since.elapsed())
    }

    fn observed<T>(&self, observed: &Observed<T>) {
        let mut state = self.state();
        match observed {
            // The beginning of a list is no success yet.
            Observed::Init => {
                state.listing_since.get_or_insert_with(Instant::now);
            }
            Observed::InitDone(_) => {
                *state = HealthState::default();
                self.missing.send_replace(false);
                self.synced.send_replace(true);
            }
            _ => state.failing = None,
        }
    }

    fn failed(&self, error: String) {
        let mut state = self.state();
        let since = state.failing.as_ref().map_or_else(Instant::now, |failing| failing.since);
        state.failing = Some(Failing { since, error });
    }

    fn set_forbidden(&self) {
        self.forbidden.send_replace(true);
    }

    fn set_missing(&self) {
        *self.state() = HealthState::default();
        self.missing.send_replace(true);
        self.synced.send_replace(true);
    }

    fn state(&self) -> std::sync::MutexGuard<'_, HealthState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The events of all objects of kind `K` that the options choose. The stream never ends; failures are logged, waited out and
/// seen in the [`WatchHealth`].
///
/// `Init`, `InitApply` for each object and `InitDone` begin it, and come again whenever events may have been missed; an object
/// that was known before and is not among them is deleted. Then `Apply` and `Delete` follow.
///
/// A backlog in the consumer holds the watch up and nothing else. An object that is not what its kind says fails the whole watch unless
/// `K` is [`Guarded`].
pub fn events<K: Object>(
    client: Client,
    kind: &K::DynamicType,
    options: &WatchOptions,
) -> (impl Stream<Item = Event<K>> + Send + use<K>, WatchHealth) {
    let (observed, health) = observe::<K>(client, kind, options);
    (observed.filter_map(|observed| future::ready(observed.event())), health)
}

/// [`events`] with the resource versions that prove how far they go.
pub(crate) fn observe<K: Object>(
    client: Client,
    kind: &K::DynamicType,
    options: &WatchOptions,
) -> (impl Stream<Item = Observed<K>> + Send + use<K>, WatchHealth) {
    let health = WatchHealth::default();
    let api = <K::Scope as Scope>::api::<K>(client, kind, options.namespace.as_deref());
    let served_as = served_as::<K>(kind);
    let kind = K::kind(kind).into_owned();
    let options = options.clone();
    let stream_options =
        StreamOptions { list: options.initial_list, backoff: options.backoff, optional: options.optional };
    let begin = move |list: InitialList| {
        let served_as = served_as.clone();
        list_watch(api.clone(), &options, list).map_err(move |error| explained(error, &served_as)).boxed()
    };
    (never_ending(begin, stream_options, health.clone(), &kind), health)
}

/// How [`never_ending`] begins, and what it does when something fails.
struct StreamOptions {
    list: InitialList,
    backoff: Backoff,
    optional: bool,
}

/// The state that [`never_ending`] carries from event to event.
struct Progress<Begin, S> {
    begin: Begin,
    list: InitialList,
    is_listing: bool,
    events: S,
    failures: u32,
    is_missing: bool,
    /// Whether a list was complete once.
    is_listed: bool,
}

impl<Begin: Fn(InitialList) -> S, S> Progress<Begin, S> {
    fn begin_anew(&mut self) {
        self.events = (self.begin)(self.list);
        self.is_listing = false;
    }

    /// An API server that does not stream lists is asked for pages from now on.
    fn fall_back(&mut self, kind: &str) {
        tracing::info!(kind, "the API server does not stream lists of this kind; reading them in pages");
        self.list = InitialList::default();
        self.begin_anew();
    }
}

fn never_ending<T, Begin, S>(
    begin: Begin,
    stream_options: StreamOptions,
    health: WatchHealth,
    kind: &str,
) -> impl Stream<Item = Observed<T>> + Send + use<T, Begin, S>
where
    T: Send,
    Begin: Fn(InitialList) -> S + Send,
    S: Stream<Item = Result<Observed<T>, watcher::Error>> + Send + Unpin,
{
    let (StreamOptions { list, backoff, optional }, kind) = (stream_options, kind.to_owned());
    let events = begin(list);
    let progress =
        Progress { begin, list, is_listing: false, events, failures: 0, is_missing: false, is_listed: false };
    stream::unfold(progress, move |mut progress| {
        let (health, kind) = (health.clone(), kind.clone());
        async move {
            loop {
                match progress.events.next().await {
                    // An API server that does not know streamed lists never ends one.
                    Some(Ok(Observed::Init)) if progress.is_listing && progress.list.is_streamed() => {
                        progress.fall_back(&kind);
                    }
                    Some(Ok(observed)) => {
                        health.observed(&observed);
                        match observed {
                            Observed::Init => progress.is_listing = true,
                            Observed::InitDone(_) => {
                                progress.is_listed = true;
                                (progress.is_listing, progress.is_missing, progress.failures) = (false, false, 0);
                            }
                            _ => progress.failures = 0,
                        }
                        return Some((observed, progress));
                    }
                    Some(Err(error)) if progress.list.is_refused_by(&error) => progress.fall_back(&kind),
                    Some(Err(error))
                        if optional && (answers(&error, 404) || (!progress.is_listed && answers(&error, 403))) =>
                    {
                        if !std::mem::replace(&mut progress.is_missing, true) {
                            tracing::info!(kind, "not watched until that changes: {}", in_one_line(&error));
                        }
                        health.set_missing();
                        tokio::time::sleep(watch_when_available::EVERY_UNKNOWN).await;
                        progress.begin_anew();
                    }
                    Some(Err(error)) => {
                        progress.failures = progress.failures.saturating_add(1);
                        let pause = backoff.delay(progress.failures, rand::random());
                        let why = in_one_line(&error);
                        tracing::warn!(kind, error = %why, retry_after = ?pause, "watch failed");
                        if needs_new_list(&error) {
                            progress.begin_anew();
                        }
                        health.failed(why);
                        tokio::time::sleep(pause).await;
                    }
                    None => progress.begin_anew(),
                }
            }
        }
    })
}

/// Whether a watch after the same version is in vain.
fn needs_new_list(error: &watcher::Error) -> bool {
    matches!(error, watcher::Error::WatchStartFailed(kube::Error::Api(status)) if status.code == 410)
}

/// Whether the API server refuses to list the kind with this code: 404 if it does not serve the kind, and 403 if the program may not list it, which the API
/// server finds out first.
fn answers(error: &watcher::Error, code: u16) -> bool {
    let (watcher::Error::InitialListFailed(kube::Error::Api(status))
    | watcher::Error::WatchStartFailed(kube::Error::Api(status))) = error
    else {
        return false;
    };
    status.code == code
}

#[cfg(test)]
mod tests;
