//! The memory of a process about the items of a collection.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use konverge_core::revert_backoff::RevertBackoff;
use tokio::time::Instant;

use crate::{mark::Mark, relations::Subject};

/// The longest pause between two writes that another client undoes.
const LONGEST_REVERT_BACKOFF: Duration = Duration::from_secs(300);
/// How many items that were left behind are remembered.
const LEFT_BEHIND: usize = 1000;

/// An item that stayed on the server although its object is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeftBehind {
    /// The object that is gone.
    pub subject: Subject,
    /// The item, and why it stayed.
    pub item: String,
}

/// The memory of this process. Nothing correct depends on it beyond the life of the process.
#[derive(Default)]
pub(crate) struct Memory {
    /// When the last create ended that may have taken effect.
    creates: HashMap<Mark, Instant>,
    /// Objects that bear the intent of a create that the server refused, because it could not be taken back.
    void: HashSet<Mark>,
    /// By scope and id: the fields that were written last, and how often they were undone.
    reverts: HashMap<(String, String), (Vec<&'static str>, RevertBackoff, Instant)>,
    left: VecDeque<LeftBehind>,
}

impl Memory {
    /// Returns when the last create for this mark ended that may have taken effect.
    pub(crate) fn last_create(&self, mark: &Mark) -> Option<Instant> {
        self.creates.get(mark).copied()
    }

    /// Forgets a create whose effect is known.
    pub(crate) fn forget_create(&mut self, mark: &Mark) {
        self.creates.remove(mark);
    }

    /// Remembers that the recorded intent stands for nothing.
    pub(crate) fn intent_is_void(&mut self, mark: &Mark) {
        self.void.insert(mark.clone());
    }

    /// Remembers that the record was written anew.
    pub(crate) fn intent_counts(&mut self, mark: &Mark) {
        self.void.remove(mark);
    }

    /// Whether the recorded intent stands for nothing.
    pub(crate) fn is_intent_void(&self, mark: &Mark) -> bool {
        self.void.contains(mark)
    }

    /// Returns how often these fields will have been written in a row; `None` if others set them back so often that the write has to wait.
    pub(crate) fn backoff(&mut self, scope: &str, id: &str, differing: &[&'static str]) -> Option<RevertBackoff> {
        self.reverts.retain(|_, (_, backoff, at)| backoff.goes_on(at.elapsed()));
        let before = self.reverts.get(&(scope.to_owned(), id.to_owned()));
        let before = before.filter(|(fields, _, _)| fields == differing);
        let before = before.map(|(_, backoff, at)| (*backoff, at.elapsed()));
        let must_wait = before.is_some_and(|(backoff, quiet)| quiet < backoff.pause());
        (!must_wait).then(|| RevertBackoff::again(before, LONGEST_REVERT_BACKOFF))
    }

    /// Remembers that these fields of an item were written.
    pub(crate) fn wrote(&mut self, scope: &str, id: &str, fields: Vec<&'static str>, backoff: RevertBackoff) {
        self.reverts.insert((scope.to_owned(), id.to_owned()), (fields, backoff, Instant::now()));
    }

    /// Remembers an item that stays, and forgets the oldest one if there are too many.
    pub(crate) fn leave(&mut self, item: LeftBehind) {
        if self.left.len() >= LEFT_BEHIND {
            self.left.pop_front();
        }
        self.left.push_back(item);
    }

    /// Returns the items that stayed.
    pub(crate) fn left_behind(&self) -> Vec<LeftBehind> {
        self.left.iter().cloned().collect()
    }
}

/// A create that is under way. When dropped, it notes that the create may have taken effect until now.
pub(crate) struct Unsettled<'a> {
    memory: &'a Mutex<Memory>,
    mark: &'a Mark,
}

impl<'a> Unsettled<'a> {
    pub(crate) fn new(memory: &'a Mutex<Memory>, mark: &'a Mark) -> Self {
        Self { memory, mark }
    }
}

impl Drop for Unsettled<'_> {
    fn drop(&mut self) {
        lock(self.memory).creates.insert(self.mark.clone(), Instant::now());
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
