//! Changes of paths, with one request per path for any number of subscribers.
//!
//! Vault tells nothing by itself, so it is asked at intervals. The cheapest question is for metadata: no value comes over the wire and
//! the policy for it is `read` on `metadata/`. Where that is denied it is asked for the key names, and then for the data.

mod driver;
mod folder;
mod key;
mod poll;
mod schedule;

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use konverge_core::digest::DigestKey;
use tokio::{
    sync::{Notify, watch},
    time::Instant,
};
use tokio_util::task::AbortOnDropHandle;

pub use self::key::{Seen, StateKey};
use self::schedule::Schedule;
use crate::{client::Vault, error::VaultError, mount::Location};

/// Nobody is asked more often than this.
const SHORTEST: Duration = Duration::from_millis(100);

/// The known state of a location.
#[derive(Debug, Clone, Default)]
pub struct Known {
    /// The state at the last read, or `None` before the first response.
    pub seen: Option<Seen>,
    /// When that was confirmed last.
    pub verified: Option<Instant>,
    /// Why the last question that was sent had no answer. The state that was seen before stays.
    pub failure: Option<Arc<VaultError>>,
}

/// Watches of one Vault. Clones are the same; the task that asks ends with the last of them and of their [`Watch`]es.
///
/// Guarantees: each distinct location is read once per interval, the shortest of its subscribers. An error leaves the known state
/// unchanged. A secret counts as gone only after two reads in a row found nothing. A state older than the known one, which a lagging
/// server may return, is ignored.
///
/// A write is noticed within 1.1 intervals and the wait for the client's limits. Does not report each version: two versions within one
/// interval are one change.
#[derive(Clone)]
pub struct Watches {
    shared: Arc<Shared>,
    _driver: Arc<AbortOnDropHandle<()>>,
}

struct Shared {
    schedule: Mutex<Schedule>,
    wake: Notify,
    next_id: AtomicU64,
    questions: AtomicU64,
}

/// The interest of one in a location. It ends when this is dropped.
pub struct Watch {
    known: watch::Receiver<Known>,
    location: Location,
    id: u64,
    watches: Watches,
}

impl Watches {
    /// Watches through this client; to be called within a tokio runtime. The key is for digests of what an engine of version 1 holds;
    /// they are compared only within this process.
    pub fn new(vault: Vault, key: DigestKey) -> Self {
        let shared = Arc::new(Shared {
            schedule: Mutex::default(),
            wake: Notify::new(),
            next_id: AtomicU64::default(),
            questions: AtomicU64::default(),
        });
        let driver = tokio::spawn(driver::run(vault, Arc::new(key), Arc::clone(&shared)));
        Self { shared, _driver: Arc::new(AbortOnDropHandle::new(driver)) }
    }

    /// Watches a location, asked at once and then at this interval or a shorter one, if somebody else wants that.
    pub fn watch(&self, location: Location, every: Duration) -> Watch {
        let id = self.shared.next_id.fetch_add(1, Ordering::Relaxed);
        let known = self.shared.schedule().add(&location, id, every.max(SHORTEST), Instant::now());
        self.shared.wake.notify_one();
        Watch { known, location, id, watches: self.clone() }
    }

    /// How many questions were sent so far.
    pub fn questions(&self) -> u64 {
        self.shared.questions.load(Ordering::Relaxed)
    }
}

impl Shared {
    fn schedule(&self) -> std::sync::MutexGuard<'_, Schedule> {
        self.schedule.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Watch {
    /// Returns the current state.
    pub fn known(&self) -> Known {
        self.known.borrow().clone()
    }

    /// Waits until something else was seen, or until questions begin or cease to fail, or fail for another cause; what comes in between is
    /// passed over.
    pub async fn changed(&mut self) -> Known {
        // The sender lives as long as this interest.
        let _ = self.known.changed().await;
        self.known.borrow_and_update().clone()
    }

    /// The location.
    pub fn location(&self) -> &Location {
        &self.location
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.watches.shared.schedule().remove(&self.location, self.id);
    }
}
