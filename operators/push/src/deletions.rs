//! The guard of the operator's deletions: one mistake, such as a chart without its annotations, must not empty Vault.

use std::{
    collections::BTreeSet,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use konverge_core::deletion_guard::{Deletion, DeletionBudget, DeletionGuard, Stopped};
use tokio::sync::Notify;

use crate::{
    bindings::Bindings,
    messages,
    object::{Kind, ObjectRef},
    record::{Record, Written},
};

/// Deletions within this time count together if the grace period is shorter.
const WITHIN: Duration = Duration::from_mins(5);

/// A path of the object with this uid.
type Item = (String, String);

/// Counts the deletions of all objects and orphans, and stops them if there are too many. Clones share the counts.
///
/// The counts are in memory, and what they count is on the objects and in the list of orphans. So a new process deletes nothing before it has
/// read all of that.
#[derive(Clone)]
pub struct Deletions {
    state: Arc<Mutex<State>>,
    bindings: Arc<Bindings>,
    /// The number of paths in the list of orphans.
    orphaned: Arc<AtomicUsize>,
    /// Whether the list of orphans shows, or is about to show, that deletions are stopped.
    was_stopped: Arc<AtomicBool>,
    told: Arc<Notify>,
}

struct State {
    guard: DeletionGuard<Item>,
    /// Whether the objects and the list of orphans were read.
    has_begun: bool,
    /// The kinds whose objects are counted.
    counted: BTreeSet<Kind>,
    /// The uids of the objects that neither exist nor are in the list of orphans, and whose unfinished writes are being cleared.
    abandoned: BTreeSet<String>,
}

/// Why a path is not deleted now.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Held {
    /// The operator has just begun to lead, and has not counted the deletions yet.
    #[error("nothing is deleted before the operator has read all objects and its list of orphans")]
    Uncounted,
    /// More deletions are requested than the operator does without approval.
    #[error("{}", messages::stopped(.0))]
    Stopped(Stopped),
}

impl Deletions {
    /// Creates the guard. Without a budget, it allows all deletions. Notifies `told` when it stops deletions.
    pub fn new(budget: Option<DeletionBudget>, grace: Duration, bindings: Arc<Bindings>, told: Arc<Notify>) -> Self {
        let guard = DeletionGuard::new(budget, grace.max(WITHIN));
        let has_begun = budget.is_none();
        let state = State { guard, has_begun, counted: BTreeSet::new(), abandoned: BTreeSet::new() };
        Self {
            state: Arc::new(Mutex::new(state)),
            bindings,
            orphaned: Arc::default(),
            was_stopped: Arc::default(),
            told,
        }
    }

    /// Begins to count deletions. Call it when the list of orphans and all objects are known. `stopped_earlier` is `true` if the list says that deletions
    /// are stopped.
    pub(crate) fn begin(&self, stopped_earlier: bool) {
        let mut state = self.lock();
        if !state.has_begun {
            state.has_begun = true;
            if stopped_earlier {
                state.guard.stopped_earlier(Instant::now());
            }
        }
        state.count(&self.bindings);
    }

    /// Returns `true` if the deletions are counted.
    pub(crate) fn has_begun(&self) -> bool {
        self.lock().has_begun
    }

    /// Counts the paths of a record that the object no longer requests. A path that it requests again, or that another object gets, is no deletion.
    pub(crate) fn follow(&self, key: &ObjectRef, record: &Record, is_inherited: impl Fn(&str, &Written) -> bool) {
        let is_requested: Vec<_> = record
            .paths
            .iter()
            .map(|(path, written)| {
                let is_deleted = written.unwanted.is_some() && is_deletion(record, written);
                (path, is_deleted && !is_inherited(path, written))
            })
            .collect();
        let mut state = self.lock();
        for (path, is_requested) in is_requested {
            state.request(deletion(key, &record.uid, path), is_requested);
        }
    }

    /// Counts a path of a deleted object, unless another object gets it.
    pub(crate) fn leave(
        &self,
        key: &ObjectRef,
        record: &Record,
        (path, written): (&str, &Written),
        is_inherited: bool,
    ) {
        let is_requested = is_deletion(record, written) && !is_inherited;
        self.lock().request(deletion(key, &record.uid, path), is_requested);
    }

    /// Counts the paths of the journal's record for an object that no longer exists or requests nothing. They count until
    /// [`resume`](Self::resume), although no list has them.
    pub(crate) fn abandon(&self, key: &ObjectRef, record: &Record, is_inherited: impl Fn(&str, &Written) -> bool) {
        self.lock().abandoned.insert(record.uid.clone());
        for (path, written) in &record.paths {
            self.leave(key, record, (path, written), is_inherited(path, written));
        }
    }

    /// Records that the paths of the journal's record for this object are cleared, or that the object requests them again.
    pub(crate) fn resume(&self, uid: &str) {
        self.lock().abandoned.remove(uid);
    }

    /// Withdraws the requests of the objects that are not `known`, because nothing settles these.
    pub(crate) fn forget_unless(&self, known: impl Fn(&str) -> bool) {
        let State { guard, abandoned, .. } = &mut *self.lock();
        guard.withdraw_unless(|Deletion { item: (uid, _), .. }| known(uid) || abandoned.contains(uid));
    }

    /// Checks that a path of an object may be deleted now. `is_gone` tells that the object no longer exists, so its kind need not be counted.
    ///
    /// # Errors
    ///
    /// Returns an error if more deletions are requested than the budget allows, or if that is not known yet.
    pub(crate) fn check(&self, key: &ObjectRef, uid: &str, path: &str, is_gone: bool) -> Result<(), Held> {
        let known = self.known();
        let checked = {
            let mut state = self.lock();
            state.count(&self.bindings);
            if !state.has_begun || !is_gone && !state.is_counted(key.kind) {
                return Err(Held::Uncounted);
            }
            state.guard.check(&deletion(key, uid, path), known, Instant::now())
        };
        if checked.is_err() && !self.was_stopped.swap(true, Ordering::Relaxed) {
            self.told.notify_one();
        }
        checked.map_err(Held::Stopped)
    }

    /// Records that the path was deleted, or handed over to another object.
    pub(crate) fn settle(&self, key: &ObjectRef, uid: &str, path: &str, is_deleted: bool) {
        let deletion = deletion(key, uid, path);
        let guard = &mut self.lock().guard;
        if is_deleted { guard.done(deletion, Instant::now()) } else { guard.withdraw(&deletion) }
    }

    /// Sets the number of paths in the list of orphans.
    pub(crate) fn orphaned(&self, paths: usize) {
        self.orphaned.store(paths, Ordering::Relaxed);
    }

    /// Returns the reason why deletions wait for an approval, or `None` if none waits.
    pub fn stopped(&self) -> Option<Stopped> {
        let known = self.known();
        self.lock().guard.stopped(known, Instant::now())
    }

    /// Sets whether the list of orphans shows that deletions are stopped.
    pub(crate) fn is_told(&self, stopped: bool) {
        self.was_stopped.store(stopped, Ordering::Relaxed);
    }

    /// Approves all requested deletions and returns their number.
    pub(crate) fn approve(&self) -> usize {
        self.lock().guard.approve()
    }

    fn known(&self) -> usize {
        self.bindings.paths().saturating_add(self.orphaned.load(Ordering::Relaxed))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn request(&mut self, deletion: Deletion<Item>, is_requested: bool) {
        if is_requested { self.guard.request(deletion) } else { self.guard.withdraw(&deletion) }
    }

    /// Counts what the objects of each kind have left, as soon as all objects of the kind are known.
    fn count(&mut self, bindings: &Bindings) {
        if !self.has_begun || self.guard.allows_everything() {
            return;
        }
        let new: BTreeSet<Kind> = bindings.listed().difference(&self.counted).copied().collect();
        if new.is_empty() {
            return;
        }
        for (key, record) in bindings.left(&new) {
            for (path, _) in record.paths.iter().filter(|(_, written)| is_deletion(&record, written)) {
                self.guard.request(deletion(&key, &record.uid, path));
            }
        }
        self.counted.extend(new);
    }

    fn is_counted(&self, kind: Kind) -> bool {
        self.guard.allows_everything() || self.counted.contains(&kind)
    }
}

/// Returns the deletion of a path of the object with this uid.
fn deletion(key: &ObjectRef, uid: &str, path: &str) -> Deletion<Item> {
    Deletion::new(key.namespace.clone(), (uid.to_owned(), path.to_owned()))
}

/// Returns `true` if clearing the path deletes the operator's content: it was written, and the policy does not keep it.
fn is_deletion(record: &Record, written: &Written) -> bool {
    let has_content = written.written || written.begun.is_some() || !written.pending.is_empty();
    has_content && record.deletion.in_vault().is_some()
}

#[cfg(test)]
mod tests;
