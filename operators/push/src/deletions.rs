//! The guard of the operator's deletions: one mistake, such as a chart without its annotations, must not empty Vault.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use konverge_core::deletion_guard::{DeletionBudget, DeletionGuard, Stopped};
use tokio::sync::Notify;

use crate::{
    bindings::{Bindings, Heritage},
    record::{Record, Written},
};

/// Deletions within this time count together if the grace period is shorter.
const WITHIN: Duration = Duration::from_mins(5);

/// A path of the object with this uid.
type Item = (String, String);

/// Counts the deletions of all objects and orphans, and stops them if there are too many. Clones share the counts.
#[derive(Clone)]
pub struct Deletions {
    guard: Arc<Mutex<DeletionGuard<Item>>>,
    bindings: Arc<Bindings>,
    /// The number of paths in the list of orphans.
    orphaned: Arc<AtomicUsize>,
    /// Whether the list of orphans shows, or is about to show, that deletions are stopped.
    was_stopped: Arc<AtomicBool>,
    told: Arc<Notify>,
}

impl Deletions {
    /// Creates the guard. Without a budget, it allows all deletions. Notifies `told` when it stops deletions.
    pub fn new(budget: Option<DeletionBudget>, grace: Duration, bindings: Arc<Bindings>, told: Arc<Notify>) -> Self {
        let guard = DeletionGuard::new(budget, grace.max(WITHIN));
        Self {
            guard: Arc::new(Mutex::new(guard)),
            bindings,
            orphaned: Arc::default(),
            was_stopped: Arc::default(),
            told,
        }
    }

    /// Requests the deletion of the recorded paths that the object no longer requests, and withdraws that for the others.
    pub(crate) fn follow(&self, record: &Record) {
        let mut guard = self.lock();
        for (path, written) in &record.paths {
            let item = (record.uid.clone(), path.clone());
            if written.unwanted.is_some() && is_deletion(record, written) {
                guard.request(item);
            } else {
                guard.withdraw(&item);
            }
        }
    }

    /// Requests the deletion of the paths of a deleted object.
    pub(crate) fn leave(&self, record: &Record) {
        let mut guard = self.lock();
        for (path, _) in record.paths.iter().filter(|(_, written)| is_deletion(record, written)) {
            guard.request((record.uid.clone(), path.clone()));
        }
    }

    /// Checks that one path may be deleted now.
    ///
    /// # Errors
    ///
    /// Returns an error if more deletions are requested than the budget allows.
    pub(crate) fn check(&self, uid: &str, path: &str) -> Result<(), Stopped> {
        let known = self.known();
        let checked = self.lock().check(&(uid.to_owned(), path.to_owned()), known, Instant::now());
        if checked.is_err() && !self.was_stopped.swap(true, Ordering::Relaxed) {
            self.told.notify_one();
        }
        checked
    }

    /// Like [`check`](Self::check), but for all paths of a record.
    pub(crate) fn check_all(&self, record: &Record) -> Result<(), Stopped> {
        record.paths.keys().try_for_each(|path| self.check(&record.uid, path))
    }

    /// Records that the path was deleted, or handed over to another object.
    pub(crate) fn settle(&self, uid: &str, path: &str, is_deleted: bool) {
        let item = (uid.to_owned(), path.to_owned());
        let mut guard = self.lock();
        if is_deleted { guard.done(item, Instant::now()) } else { guard.withdraw(&item) }
    }

    /// Sets the number of paths in the list of orphans.
    pub(crate) fn orphaned(&self, paths: usize) {
        self.orphaned.store(paths, Ordering::Relaxed);
    }

    /// Returns the reason why deletions wait for an approval, or `None` if none waits.
    pub fn stopped(&self) -> Option<Stopped> {
        let known = self.known();
        self.lock().stopped(known, Instant::now())
    }

    /// Sets whether the list of orphans shows that deletions are stopped.
    pub(crate) fn is_told(&self, stopped: bool) {
        self.was_stopped.store(stopped, Ordering::Relaxed);
    }

    /// Approves all requested deletions and returns their number.
    pub(crate) fn approve(&self) -> usize {
        self.lock().approve()
    }

    fn known(&self) -> usize {
        self.bindings.paths().saturating_add(self.orphaned.load(Ordering::Relaxed))
    }

    fn lock(&self) -> MutexGuard<'_, DeletionGuard<Item>> {
        self.guard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns `true` if clearing the path deletes the operator's content: it was written, and the policy does not keep it.
fn is_deletion(record: &Record, written: &Written) -> bool {
    let has_content = written.written || written.begun.is_some() || !written.pending.is_empty();
    has_content && record.deletion.in_vault().is_some()
}

impl Heritage {
    /// Returns `true` if another object takes over the whole path.
    pub(crate) fn is_complete(&self, written: &Written) -> bool {
        let mut keys = written.keys.iter().flatten().chain(&written.pending).peekable();
        self.whole.is_some() || keys.peek().is_some() && keys.all(|name| self.keys.contains_key(name))
    }
}
