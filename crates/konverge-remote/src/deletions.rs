//! The guard of deletions on the server: one mistake in the cluster must not empty it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use konverge_core::deletion_guard::{Deletion, DeletionBudget, DeletionGuard, Stopped};

use crate::{
    memory::lock,
    relations::{Interest, Subject},
};

/// Deletions within this time count together.
const WITHIN: Duration = Duration::from_secs(300);

/// The uid of an object that is being deleted, or the uid and one part of an object that stays.
type Item = (String, Option<String>);

/// The deletion of an [`Item`].
pub(crate) type Doomed = Deletion<Item>;

/// Returns the deletion of the item of an object with this uid, or of one part of it.
pub(crate) fn doomed(subject: &Subject, uid: &str, part: Option<String>) -> Doomed {
    Deletion::new(subject.namespace.clone().unwrap_or_default(), (uid.to_owned(), part))
}

/// The guard of deletions on the server. All collections with the same [`Settings::deletions`](crate::Settings::deletions) share it. Clones share
/// the counts.
///
/// It counts objects, and not items: an object with several items is one decision of a user. An object counts for five minutes from the time at which
/// the cluster shows that it is being deleted, while its deletion waits for an approval, and until five minutes after its end. The default guard
/// allows everything.
#[derive(Clone, Debug)]
pub struct Deletions(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    guard: DeletionGuard<Item>,
    /// Whether it is known if an earlier process had stopped deletions. Before, nothing is deleted.
    has_begun: bool,
    next_step: &'static str,
    /// The uid of each object, and whether it is being deleted.
    objects: BTreeMap<Subject, (String, bool)>,
    /// The objects that are being deleted, and since when that is known. They may wait for something else for long.
    announced: BTreeMap<Doomed, Instant>,
    /// The deletions that were refused and wait.
    held: BTreeSet<Doomed>,
    /// The deletions that were begun.
    deleted: BTreeSet<Doomed>,
    /// The ends of deleted objects that still count.
    ended: Vec<Instant>,
}

/// A deletion that waits for an approval.
pub(crate) struct Held {
    /// The cause and the next step.
    pub(crate) message: String,
    /// Whether the deletion begins to wait for an approval.
    pub(crate) is_new: bool,
}

impl Default for Deletions {
    fn default() -> Self {
        Self::new(None, "")
    }
}

impl Deletions {
    /// Creates a guard. `None` allows everything. `next_step` is the end of the message of an object that waits: what a person can do.
    pub fn new(budget: Option<DeletionBudget>, next_step: &'static str) -> Self {
        Self(Arc::new(Mutex::new(State {
            guard: DeletionGuard::new(budget, WITHIN),
            has_begun: true,
            next_step,
            objects: BTreeMap::new(),
            announced: BTreeMap::new(),
            held: BTreeSet::new(),
            deleted: BTreeSet::new(),
            ended: Vec::new(),
        })))
    }

    /// Lets all deletions wait until [`begin`](Self::begin) tells what an earlier process has left.
    #[must_use]
    pub fn waiting(self) -> Self {
        lock(&self.0).has_begun = false;
        self
    }

    /// Begins. If an earlier process had stopped deletions, all that are requested within five minutes need an approval, because it is not known how many
    /// that process had carried out.
    pub fn begin(&self, was_stopped: bool) {
        let mut state = lock(&self.0);
        if was_stopped && !state.has_begun {
            state.guard.stopped_earlier(now());
        }
        state.has_begun = true;
    }

    /// Returns why deletions wait for an approval, if some do.
    pub fn stopped(&self) -> Option<Stopped> {
        let mut state = lock(&self.0);
        state.expire(now());
        let known = state.known();
        state.guard.stopped(known, now()).filter(|_| !state.held.is_empty())
    }

    /// Approves all deletions that are requested by now. Returns the number of objects.
    pub fn approve(&self) -> usize {
        lock(&self.0).guard.approve()
    }

    /// Records what a watch shows of an object.
    pub(crate) fn follow(&self, subject: &Subject, interest: Option<&Interest>) {
        let mut state = lock(&self.0);
        let shown = interest.map(|interest| (interest.uid.clone(), interest.is_deleting && interest.is_recorded));
        let before = match shown.clone() {
            Some(object) => state.objects.insert(subject.clone(), object),
            None => state.objects.remove(subject),
        };
        if let Some((uid, true)) = shown.clone().filter(|_| before != shown) {
            let doomed = doomed(subject, &uid, None);
            state.guard.request(doomed.clone());
            state.announced.insert(doomed, now());
        }
        if let Some((uid, _)) = before.filter(|(uid, _)| interest.is_none_or(|interest| interest.uid != *uid)) {
            state.end(&doomed(subject, &uid, None));
        }
    }

    /// Checks that an item may be deleted now.
    pub(crate) fn check(&self, doomed: &Doomed) -> Result<(), Held> {
        let mut state = lock(&self.0);
        if state.deleted.contains(doomed) {
            // A deletion that has begun ends, also if others have come since.
            return Ok(());
        }
        state.expire(now());
        let known = state.known();
        state.guard.request(doomed.clone());
        if !state.has_begun {
            let message = "the operator has not read yet whether an earlier process had stopped deletions".to_owned();
            return Err(Held { message, is_new: false });
        }
        match state.guard.check(doomed, known, now()) {
            Ok(()) => {
                state.held.remove(doomed);
                // The reply may be lost, so the deletion counts from here on.
                state.deleted.insert(doomed.clone());
                Ok(())
            }
            Err(stopped) => {
                let is_new = state.held.insert(doomed.clone());
                Err(Held { message: format!("{stopped}{}", state.next_step), is_new })
            }
        }
    }

    /// Records that nothing is left to delete of one part of an object that stays.
    pub(crate) fn settle(&self, doomed: &Doomed) {
        lock(&self.0).settle(doomed);
    }

    /// Records that a part of an object is to stay.
    pub(crate) fn withdraw(&self, doomed: &Doomed) {
        let mut state = lock(&self.0);
        state.held.remove(doomed);
        state.guard.withdraw(doomed);
    }
}

impl State {
    /// Returns the number of objects, with those that were deleted a moment ago.
    fn known(&self) -> usize {
        self.objects.len() + self.ended.len()
    }

    /// Records that an object is gone.
    fn end(&mut self, object: &Doomed) {
        if self.deleted.contains(object) {
            self.ended.push(now());
        }
        let is_of_object = |doomed: &&Doomed| doomed.item.0 == object.item.0;
        let parts: BTreeSet<_> = self.held.iter().chain(&self.deleted).filter(is_of_object).cloned().collect();
        for part in parts {
            self.settle(&part);
        }
        self.announced.remove(object);
        self.settle(object);
    }

    /// Stops counting objects whose deletion has waited for something else since long ago.
    fn expire(&mut self, now: Instant) {
        let is_old = |since: Instant| now.saturating_duration_since(since) >= WITHIN;
        self.ended.retain(|ended| !is_old(*ended));
        let is_over = |(_, since): &(&Doomed, &Instant)| is_old(**since);
        let old: Vec<Doomed> = self.announced.iter().filter(is_over).map(|(doomed, _)| doomed.clone()).collect();
        for doomed in old {
            self.announced.remove(&doomed);
            if !self.held.contains(&doomed) && !self.deleted.contains(&doomed) {
                self.guard.withdraw(&doomed);
            }
        }
    }

    /// Records that nothing is left to delete.
    fn settle(&mut self, doomed: &Doomed) {
        self.held.remove(doomed);
        if self.deleted.remove(doomed) {
            self.guard.done(doomed.clone(), now());
        } else {
            self.guard.withdraw(doomed);
        }
    }
}

/// Returns the time, which tests may set.
fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}
