//! Watching objects, for ever.
//!
//! Whole objects, or with `PartialObjectMeta<K>` their metadata alone, so that the payload of a Secret never enters the process.
//! Nothing is stored here: events pass through. [`cache`](crate::cache) stores them.

mod explained;
mod guarded;
mod initial_list;
mod namespace;
mod once_allowed;
mod selector;

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures::{Stream, StreamExt, TryStreamExt, stream};
use konverge_core::{backoff::Backoff, outage::LONGEST_PAUSE};
use kube::{
    Client,
    runtime::watcher::{self, watcher},
};
use tokio::{sync::watch, time::Instant};

use explained::{explained, served_as};
pub(crate) use guarded::keeping;
pub use guarded::{Guarded, Undecodable};
pub use initial_list::InitialList;
pub use kube::runtime::watcher::Event;
pub use namespace::{NamespaceError, namespace};
pub use once_allowed::once_allowed;
pub use selector::{SelectorError, label_selector};

use crate::object::{Object, Scope};

/// Which objects, and how soon a dead connection is noticed.
#[derive(Debug, Clone)]
pub struct WatchOptions {
    /// One namespace, or all.
    pub namespace: Option<String>,
    /// Only objects with these labels, in the syntax of `kubectl -l`.
    pub label_selector: Option<String>,
    /// Only objects with these fields, in the syntax of `kubectl --field-selector`.
    pub field_selector: Option<String>,
    /// How long one watch lasts before the next begins where it ended. A connection that died without a word is noticed five
    /// seconds later, so this bounds how stale the events can be. Rounded up to whole seconds.
    pub timeout: Duration,
    /// How what exists is read at the beginning.
    pub initial_list: InitialList,
    /// The pauses after failures.
    pub backoff: Backoff,
}

impl Default for WatchOptions {
    /// All objects, watches of a minute, pauses of up to four seconds: changes made in an outage are seen within five seconds of its end.
    fn default() -> Self {
        Self {
            namespace: None,
            label_selector: None,
            field_selector: None,
            timeout: Duration::from_secs(60),
            initial_list: InitialList::default(),
            backoff: Backoff { base: Duration::from_secs(1), factor: 2.0, cap: LONGEST_PAUSE },
        }
    }
}

/// How a watch is doing. Clones look at the same watch.
#[derive(Debug, Clone)]
pub struct WatchHealth {
    synced: Arc<watch::Sender<bool>>,
    failing: Arc<Mutex<Option<Failing>>>,
}

impl Default for WatchHealth {
    fn default() -> Self {
        Self { synced: Arc::new(watch::Sender::new(false)), failing: Arc::default() }
    }
}

/// Failures that nothing good came after.
#[derive(Debug)]
struct Failing {
    since: Instant,
    last: Instant,
    error: String,
}

/// An opened watch says nothing while nothing happens. Failing ones fail more often than this, so silence is health.
const SILENCE_IS_HEALTH: Duration = Duration::from_secs(90);

/// A watch that fails for longer than this says that what is known may be old.
const RESTART: Duration = Duration::from_secs(30);

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

    /// Fails until the first list is complete, and while the watch has been failing for longer than a restart of the API server
    /// takes; for [`Checks::readiness`](crate::checks::Checks::readiness).
    pub fn check(&self) -> Result<(), String> {
        let (failing_for, synced) = (self.failing_for(), self.is_synced());
        match (&*self.failing(), failing_for) {
            (Some(last), Some(since)) if !synced || since > RESTART => {
                Err(format!("failing for {} s: {}", since.as_secs(), last.error))
            }
            _ if synced => Ok(()),
            _ => Err("the first list is not complete".to_owned()),
        }
    }

    /// How long the watch has been failing, if it is.
    pub fn failing_for(&self) -> Option<Duration> {
        let failing = self.failing();
        let failing = failing.as_ref().filter(|failing| failing.last.elapsed() < SILENCE_IS_HEALTH);
        failing.map(|failing| failing.since.elapsed())
    }

    fn succeeded(&self, synced: bool) {
        *self.failing() = None;
        if synced {
            self.synced.send_replace(true);
        }
    }

    fn failed(&self, error: String) {
        let mut failing = self.failing();
        let now = Instant::now();
        let since = failing.as_ref().map_or(now, |failing| failing.since);
        *failing = Some(Failing { since, last: now, error });
    }

    fn failing(&self) -> std::sync::MutexGuard<'_, Option<Failing>> {
        self.failing.lock().unwrap_or_else(PoisonError::into_inner)
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
    let health = WatchHealth::default();
    let api = <K::Scope as Scope>::api::<K>(client, kind, options.namespace.as_deref());
    let config = watcher::Config {
        label_selector: options.label_selector.clone(),
        field_selector: options.field_selector.clone(),
        timeout: Some(u32::try_from(options.timeout.as_millis().div_ceil(1000)).unwrap_or(u32::MAX)),
        ..watcher::Config::default()
    };
    let served_as = served_as::<K>(kind);
    let kind = K::kind(kind).into_owned();
    let begin = move |list: InitialList| {
        let served_as = served_as.clone();
        let events = watcher(api.clone(), list.put_into(config.clone()));
        events.map_err(move |error| explained(error, &served_as)).boxed()
    };
    (never_ending(begin, options.initial_list, options.backoff, health.clone(), kind), health)
}

/// What [`never_ending`] carries from event to event.
struct Progress<Begin, S> {
    begin: Begin,
    list: InitialList,
    is_listing: bool,
    events: S,
    failures: u32,
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
    list: InitialList,
    backoff: Backoff,
    health: WatchHealth,
    kind: String,
) -> impl Stream<Item = Event<T>> + Send
where
    T: Send,
    Begin: Fn(InitialList) -> S + Send,
    S: Stream<Item = Result<Event<T>, watcher::Error>> + Send + Unpin,
{
    let events = begin(list);
    stream::unfold(Progress { begin, list, is_listing: false, events, failures: 0 }, move |mut progress| {
        let (health, kind) = (health.clone(), kind.clone());
        async move {
            loop {
                match progress.events.next().await {
                    // One that does not know what a streamed list is never ends it.
                    Some(Ok(Event::Init)) if progress.is_listing && progress.list.is_streamed() => {
                        progress.fall_back(&kind);
                    }
                    Some(Ok(event)) => {
                        // The beginning of a list is no success yet.
                        if !matches!(event, Event::Init) {
                            progress.failures = 0;
                            health.succeeded(matches!(event, Event::InitDone));
                        }
                        progress.is_listing = match event {
                            Event::Init => true,
                            Event::InitDone => false,
                            _ => progress.is_listing,
                        };
                        return Some((event, progress));
                    }
                    Some(Err(error)) if progress.list.is_refused_by(&error) => progress.fall_back(&kind),
                    Some(Err(error)) => {
                        progress.failures = progress.failures.saturating_add(1);
                        let pause = backoff.delay(progress.failures, rand::random());
                        tracing::warn!(kind, error = &error as &dyn std::error::Error, retry_after = ?pause, "watch failed");
                        if needs_new_list(&error) {
                            progress.begin_anew();
                        }
                        health.failed(error.to_string());
                        tokio::time::sleep(pause).await;
                    }
                    None => progress.begin_anew(),
                }
            }
        }
    })
}

/// The watcher of kube asks again for the same version after HTTP 410 at the opening of a watch, which is in vain.
fn needs_new_list(error: &watcher::Error) -> bool {
    matches!(error, watcher::Error::WatchStartFailed(kube::Error::Api(status)) if status.code == 410)
}

#[cfg(test)]
mod tests;
