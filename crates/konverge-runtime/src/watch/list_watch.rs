//! Lists a collection and then watches it: one attempt after the other, with an error for each that fails.
//!
//! kube's watcher does the same, but keeps the resource versions of lists and bookmarks to itself. They tell a cache which objects a list
//! proves to be gone, and that the API server's store was replaced by an older one.

use std::{collections::VecDeque, pin::Pin, time::Duration};

use futures::{
    StreamExt,
    stream::{self, BoxStream},
};
use kube::{
    Api, Error as ClientError, ResourceExt,
    api::{ListParams, WatchEvent, WatchParams},
    runtime::watcher::{Error, Event},
};
use tokio::time::{Instant, timeout, timeout_at};

use super::{InitialList, WatchOptions};
use crate::{object::Object, version};

/// How much longer than agreed a watch is waited for before its connection counts as dead.
const MARGIN: Duration = Duration::from_secs(4);

/// How much of its time a watch may lack to count as one that the API server ended as agreed.
const EARLY: Duration = Duration::from_secs(1);

/// A watch that ends so soon and has shown nothing has failed.
const AT_ONCE: Duration = Duration::from_millis(500);

/// How long a streamed list may last. It is one watch, and the API server ends it after this time, complete or not.
const STREAMED_LIST: Duration = Duration::from_secs(290);

/// Marks the bookmark that ends a streamed list.
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// After so many attempts in a row that did not reach the API server, its store may be another one, so the collection is listed again.
const OUTAGE: u32 = 2;

/// After a comparison of versions, the next one is not before this time, so that watches that break off in a row cost one list. The store of
/// an API server is not replaced so soon after; if it is, the watch stays silent, and the versions are compared when it ends.
const COMPARED: Duration = Duration::from_secs(10);

/// A watch that ends as agreed and has shown nothing for its whole time is compared so rarely. Where the store is replaced, its watches break off, and
/// that is noticed at once. This is the safety net for a break that a load balancer or a repeated request hides.
const PROVEN: Duration = Duration::from_secs(15 * 60);

/// A watch that is resumed and shows nothing for so long is compared with the version of the collection.
const SILENCE: Duration = Duration::from_secs(1);

/// An observation of a watch: an [`Event`], or a resource version that proves how far the events go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Observed<T> {
    /// A list begins.
    Init,
    /// An object of the list.
    InitApply(T),
    /// The list is complete. It is the state at this version.
    InitDone(Option<u64>),
    /// An object was created or changed.
    Apply(T),
    /// An object was deleted, or left the selection.
    Delete(T),
    /// Everything up to this version was observed.
    Bookmark(u64),
    /// The API server accepted a watch.
    Opened,
}

impl<T> Observed<T> {
    /// Returns the event for those who need no versions.
    pub(super) fn event(self) -> Option<Event<T>> {
        Some(match self {
            Self::Init => Event::Init,
            Self::InitApply(object) => Event::InitApply(object),
            Self::InitDone(_) => Event::InitDone,
            Self::Apply(object) => Event::Apply(object),
            Self::Delete(object) => Event::Delete(object),
            Self::Bookmark(_) | Self::Opened => return None,
        })
    }
}

impl<T> From<Event<T>> for Observed<T> {
    fn from(event: Event<T>) -> Self {
        match event {
            Event::Init => Self::Init,
            Event::InitApply(object) => Self::InitApply(object),
            Event::InitDone => Self::InitDone(None),
            Event::Apply(object) => Self::Apply(object),
            Event::Delete(object) => Self::Delete(object),
        }
    }
}

type Step<K> = Result<Observed<K>, Error>;

/// Returns what is observed of a collection. After an error the stream goes on where it can; the caller waits before it polls again.
pub(super) fn list_watch<K: Object>(
    api: Api<K>,
    options: &WatchOptions,
    list: InitialList,
) -> BoxStream<'static, Step<K>> {
    let lister = Lister {
        api,
        label_selector: options.label_selector.clone(),
        field_selector: options.field_selector.clone(),
        timeout: Duration::from_secs(u64::from(seconds(options.timeout))),
        list_timeout: options.list_timeout,
        list,
        failures: 0,
        compared: None,
        proven: Instant::now(),
    };
    let steps = stream::unfold((lister, State::Empty), |(mut lister, mut state)| async move {
        loop {
            let (step, next) = lister.step(state).await;
            state = next;
            if let Some(step) = step {
                return Some((step, (lister, state)));
            }
        }
    });
    steps.boxed()
}

/// The API server takes whole seconds, at least one.
fn seconds(timeout: Duration) -> u32 {
    u32::try_from(timeout.as_millis().div_ceil(1000)).unwrap_or(u32::MAX).max(1)
}

type Events<K> = BoxStream<'static, kube::Result<WatchEvent<K>>>;

enum State<K> {
    /// A list is to begin.
    Empty,
    /// A list is read in pages.
    Page { next: Option<String>, objects: VecDeque<K>, version: Option<String> },
    /// A list is to be asked for as events.
    Stream,
    /// A list is read as events.
    Streamed { events: Events<K> },
    /// A watch is to begin after this version. If that is doubtful, the version is compared with that of the collection before any event
    /// of the watch is taken.
    Listed { version: String, is_doubtful: bool },
    /// Events after this version are awaited.
    Watching { version: String, watch: OpenWatch<K> },
}

/// A watch that the API server has accepted.
struct OpenWatch<K> {
    events: Events<K>,
    opened: Instant,
    /// Whether it has shown an event or a bookmark.
    has_spoken: bool,
    /// Whether only silence speaks for its version, and a comparison was left out.
    is_doubtful: bool,
}

impl<K> State<K> {
    fn doubtful(version: String) -> Self {
        Self::Listed { version, is_doubtful: true }
    }
}

struct Lister<K> {
    api: Api<K>,
    label_selector: Option<String>,
    field_selector: Option<String>,
    timeout: Duration,
    list_timeout: Duration,
    list: InitialList,
    /// Attempts in a row that did not reach the API server.
    failures: u32,
    /// When the version of a watch was last found to be of the store that the API server has.
    compared: Option<Instant>,
    /// When a list or a comparison last proved that.
    proven: Instant,
}

impl<K: Object> Lister<K> {
    async fn step(&mut self, state: State<K>) -> (Option<Step<K>>, State<K>) {
        match state {
            // Told before the list is asked for, so what happened until then is in it.
            State::Empty => (Some(Ok(Observed::Init)), self.begin()),
            State::Page { next, mut objects, version } => match objects.pop_front() {
                Some(object) => (Some(Ok(Observed::InitApply(object))), State::Page { next, objects, version }),
                None => self.page(next, version).await,
            },
            State::Stream => self.stream().await,
            State::Streamed { events } => self.streamed(events).await,
            State::Listed { version, is_doubtful } => self.open(version, is_doubtful).await,
            State::Watching { version, watch } => self.watching(version, watch).await,
        }
    }

    fn begin(&self) -> State<K> {
        match self.list {
            InitialList::Pages(_) => State::Page { next: None, objects: VecDeque::new(), version: None },
            InitialList::Streamed => State::Stream,
        }
    }

    async fn stream(&mut self) -> (Option<Step<K>>, State<K>) {
        let parameters = WatchParams { send_initial_events: true, ..self.watch_parameters(STREAMED_LIST) };
        // Without a version the API server answers with what it has now, not with what its own cache happens to have.
        match self.api.watch(&parameters, "").await {
            Ok(events) => (None, State::Streamed { events: events.boxed() }),
            Err(error) => (Some(Err(Error::WatchStartFailed(error))), State::Stream),
        }
    }

    async fn page(&mut self, next: Option<String>, version: Option<String>) -> (Option<Step<K>>, State<K>) {
        if let (None, Some(version)) = (&next, version) {
            return self.listed(version);
        }
        let InitialList::Pages(size) = self.list else { return (None, State::Empty) };
        match self.read_page(size.max(1), next.clone()).await {
            Ok(list) => {
                let version = list.metadata.resource_version.filter(|version| !version.is_empty());
                let next = list.metadata.continue_.filter(|next| !next.is_empty());
                if version.is_none() && next.is_none() {
                    return (Some(Err(Error::NoResourceVersion)), State::Empty);
                }
                (None, State::Page { next, objects: list.items.into(), version })
            }
            // The pages before were read, and the API server keeps the place for some minutes.
            Err(error) if next.is_some() && !is_answer(&error) => {
                let state = State::Page { next, objects: VecDeque::new(), version: None };
                (Some(Err(Error::InitialListFailed(error))), state)
            }
            Err(error) => (Some(Err(Error::InitialListFailed(error))), State::Empty),
        }
    }

    /// The list is complete and of this version.
    fn listed(&mut self, version: String) -> (Option<Step<K>>, State<K>) {
        self.proven = Instant::now();
        let done = Observed::InitDone(version::number(&version));
        (Some(Ok(done)), State::Listed { version, is_doubtful: false })
    }

    async fn read_page(&self, size: u32, next: Option<String>) -> kube::Result<kube::core::ObjectList<K>> {
        let parameters = ListParams {
            label_selector: self.label_selector.clone(),
            field_selector: self.field_selector.clone(),
            limit: Some(size),
            continue_token: next,
            ..ListParams::default()
        };
        let too_late =
            |_| ClientError::Service(format!("the list is not complete after {:?}", self.list_timeout).into());
        timeout(self.list_timeout, self.api.list(&parameters)).await.map_err(too_late)?
    }

    async fn streamed(&mut self, mut events: Events<K>) -> (Option<Step<K>>, State<K>) {
        match timeout(self.list_timeout, events.next()).await.unwrap_or_default() {
            Some(Ok(WatchEvent::Added(object) | WatchEvent::Modified(object))) => {
                (Some(Ok(Observed::InitApply(object))), State::Streamed { events })
            }
            // The watch that follows has a shorter time, and with it a deadline that fits.
            Some(Ok(WatchEvent::Bookmark(mark))) if mark.metadata.annotations.contains_key(INITIAL_EVENTS_END) => {
                self.listed(mark.metadata.resource_version)
            }
            Some(Ok(WatchEvent::Bookmark(_) | WatchEvent::Deleted(_))) => (None, State::Streamed { events }),
            Some(Ok(WatchEvent::Error(status))) => (Some(Err(Error::WatchError(status.boxed()))), State::Empty),
            Some(Err(error @ ClientError::SerdeError(_))) => {
                (Some(Err(Error::WatchFailed(error))), State::Streamed { events })
            }
            Some(Err(error)) => (Some(Err(Error::WatchFailed(error))), State::Empty),
            // Too late, or ended without an end of the list.
            None => (None, State::Empty),
        }
    }

    /// Whether the collection is at an older version than this one, so that the version is of another store.
    ///
    /// After a restore of an older copy of its store, the API server takes the version of a watch for one of the future and is silent until it
    /// is reached, so silence proves nothing.
    async fn is_of_another_store(&self, version: &str) -> kube::Result<bool> {
        let list = self.read_page(1, None).await?;
        let now = list.metadata.resource_version.unwrap_or_default();
        let is_older = version::is_older(&now, version);
        if is_older {
            tracing::warn!(
                now,
                before = version,
                "the resource versions of the API server moved backwards, as after a restore of an older copy of etcd; listing everything again"
            );
        }
        Ok(is_older)
    }

    /// The version is compared once the API server has accepted the watch, so no list is asked for while it refuses watches.
    async fn open(&mut self, version: String, is_doubtful: bool) -> (Option<Step<K>>, State<K>) {
        let events = match self.api.watch(&self.watch_parameters(self.timeout), &version).await {
            Ok(events) => events.boxed(),
            Err(error) => return self.not_reached(Error::WatchStartFailed(error), version),
        };
        let opened = Instant::now();
        let mut events = events.peekable();
        // An event is newer than the version, or an error that ends the watch; only silence needs the comparison.
        let has_event = if is_doubtful {
            timeout(SILENCE, Pin::new(&mut events).peek()).await.map(|event| event.is_some())
        } else {
            Ok(true)
        };
        let mut is_doubtful = has_event != Ok(true);
        let events = events.boxed();
        if has_event.is_err() && self.compared.is_none_or(|at| at.elapsed() >= COMPARED) {
            match self.is_of_another_store(&version).await {
                Ok(false) => {
                    self.proven = Instant::now();
                    self.compared = Some(self.proven);
                    is_doubtful = false;
                }
                Ok(true) => return (None, State::Empty),
                Err(error) => return self.not_reached(Error::InitialListFailed(error), version),
            }
        }
        self.failures = 0;
        let watch = OpenWatch { events, opened, has_spoken: false, is_doubtful };
        (Some(Ok(Observed::Opened)), State::Watching { version, watch })
    }

    /// An outage ends with a list, not with the watch from before: when it is over, the store may be an older copy, whose versions have
    /// passed ours since.
    fn not_reached(&mut self, error: Error, version: String) -> (Option<Step<K>>, State<K>) {
        let is_busy = matches!(&error, Error::InitialListFailed(ClientError::Api(status)) | Error::WatchStartFailed(ClientError::Api(status)) if status.code == 429);
        self.failures += u32::from(!is_busy);
        self.compared = None;
        if self.failures < OUTAGE {
            return (Some(Err(error)), State::doubtful(version));
        }
        self.failures = 0;
        (Some(Err(error)), State::Empty)
    }

    async fn watching(&mut self, version: String, watch: OpenWatch<K>) -> (Option<Step<K>>, State<K>) {
        let OpenWatch { mut events, opened, has_spoken, is_doubtful } = watch;
        // An event that has arrived is taken before the time is checked, so a slow consumer loses nothing.
        let Ok(next) = timeout_at(opened + self.timeout + MARGIN, events.next()).await else {
            tracing::debug!(
                kind = std::any::type_name::<K>(),
                "a watch has not ended in its time; its connection is dead"
            );
            return (None, State::doubtful(version));
        };
        let watching = |version, events| State::Watching {
            version,
            watch: OpenWatch { events, opened, has_spoken: true, is_doubtful: false },
        };
        match next {
            Some(Ok(WatchEvent::Added(object) | WatchEvent::Modified(object))) => match version_of(&object) {
                Some(version) => (Some(Ok(Observed::Apply(object))), watching(version, events)),
                None => (Some(Err(Error::NoResourceVersion)), State::Empty),
            },
            Some(Ok(WatchEvent::Deleted(object))) => match version_of(&object) {
                Some(version) => (Some(Ok(Observed::Delete(object))), watching(version, events)),
                None => (Some(Err(Error::NoResourceVersion)), State::Empty),
            },
            Some(Ok(WatchEvent::Bookmark(mark))) => {
                let version = mark.metadata.resource_version;
                let bookmark = version::number(&version).map(|version| Ok(Observed::Bookmark(version)));
                (bookmark, watching(version, events))
            }
            Some(Ok(WatchEvent::Error(status))) => {
                let state = if status.code == 410 { State::Empty } else { State::doubtful(version) };
                (Some(Err(Error::WatchError(status.boxed()))), state)
            }
            // Begun again, it would fail at the same event.
            Some(Err(error @ ClientError::SerdeError(_))) => {
                (Some(Err(Error::WatchFailed(error))), watching(version, events))
            }
            Some(Err(error)) => (Some(Err(Error::WatchFailed(error))), State::doubtful(version)),
            // Without a pause, an API server that cannot keep a watch would be asked all the time.
            None if !has_spoken && opened.elapsed() < AT_ONCE => {
                let error = ClientError::Service("the watch ended as soon as it began".into());
                (Some(Err(Error::WatchFailed(error))), State::doubtful(version))
            }
            // For a kind without events, the API server sends no bookmark either.
            None => {
                let is_early = opened.elapsed() + EARLY < self.timeout;
                let is_unproven = !has_spoken && self.proven.elapsed() >= PROVEN;
                (None, State::Listed { version, is_doubtful: is_doubtful || is_early || is_unproven })
            }
        }
    }

    fn watch_parameters(&self, timeout: Duration) -> WatchParams {
        WatchParams {
            label_selector: self.label_selector.clone(),
            field_selector: self.field_selector.clone(),
            timeout: Some(seconds(timeout)),
            bookmarks: true,
            send_initial_events: false,
        }
    }
}

/// Whether the API server answered, so that the same question has the same answer.
fn is_answer(error: &ClientError) -> bool {
    matches!(error, ClientError::Api(status) if !matches!(status.code, 429 | 500..=599))
}

fn version_of<K: ResourceExt>(object: &K) -> Option<String> {
    object.resource_version().filter(|version| !version.is_empty())
}
