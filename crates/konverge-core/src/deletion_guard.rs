//! A guard for deletions: one mistake must not empty a store.
//!
//! Single deletions are intended. When more are requested within a time than a [`DeletionBudget`] allows, the guard stops all of
//! them until a person [approves](DeletionGuard::approve) them or enough requests are withdrawn. Pure: the caller passes the time.

use std::{
    collections::BTreeMap,
    fmt,
    time::{Duration, Instant},
};

/// The number of deletions within a time that need no approval.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeletionBudget {
    /// The share of all known items, in percent.
    pub percent: u8,
    /// The minimum number, even if the share is smaller.
    pub at_least: usize,
}

impl DeletionBudget {
    /// Returns the number of `known` items that may be deleted without approval.
    ///
    /// ```
    /// use konverge_core::deletion_guard::DeletionBudget;
    ///
    /// let budget = DeletionBudget::default();
    /// assert_eq!((budget.allowed(20), budget.allowed(300)), (5, 30));
    /// ```
    pub fn allowed(self, known: usize) -> usize {
        (known.saturating_mul(self.percent.into()) / 100).max(self.at_least)
    }
}

/// Ten percent, and at least five.
impl Default for DeletionBudget {
    fn default() -> Self {
        Self { percent: 10, at_least: 5 }
    }
}

/// Counts the deletions of items that are identified by `I`.
#[derive(Debug)]
pub struct DeletionGuard<I> {
    /// `None` allows everything.
    budget: Option<DeletionBudget>,
    within: Duration,
    requests: BTreeMap<I, Request>,
}

/// A requested deletion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Request {
    Waiting {
        is_approved: bool,
    },
    /// The time at which the item was deleted without an approval.
    Done(Instant),
}

/// More deletions are requested than the budget allows, so none is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stopped {
    /// The number of deletions that were requested or done within the time.
    pub requested: usize,
    /// The number that the budget allows.
    pub allowed: usize,
    /// The number of known items.
    pub known: usize,
}

impl fmt::Display for Stopped {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { requested, allowed, known } = self;
        write!(out, "{requested} deletions are requested, and {allowed} of {known} are allowed without approval")
    }
}

impl std::error::Error for Stopped {}

impl<I: Ord> DeletionGuard<I> {
    /// Creates a guard with this budget for each span of `within`. Without a budget, it allows everything.
    pub fn new(budget: Option<DeletionBudget>, within: Duration) -> Self {
        Self { budget, within, requests: BTreeMap::new() }
    }

    /// Records a request to delete an item, due or not. A repeated request counts once.
    pub fn request(&mut self, item: I) {
        let request = self.requests.entry(item).or_insert(Request::Waiting { is_approved: false });
        if matches!(request, Request::Done(_)) {
            *request = Request::Waiting { is_approved: false };
        }
    }

    /// Withdraws the request to delete the item.
    pub fn withdraw(&mut self, item: &I) {
        if matches!(self.requests.get(item), Some(Request::Waiting { .. })) {
            self.requests.remove(item);
        }
    }

    /// Records the deletion of the item.
    pub fn done(&mut self, item: I, now: Instant) {
        match self.requests.get(&item) {
            Some(Request::Waiting { is_approved: true }) => drop(self.requests.remove(&item)),
            _ => drop(self.requests.insert(item, Request::Done(now))),
        }
    }

    /// Checks that the item may be deleted now, out of `known` items including it.
    ///
    /// # Errors
    ///
    /// Returns an error if more deletions are requested than the budget allows, and this one is not approved.
    pub fn check(&mut self, item: &I, known: usize, now: Instant) -> Result<(), Stopped> {
        match self.requests.get(item) {
            Some(Request::Waiting { is_approved: true }) => Ok(()),
            _ => self.stopped(known, now).map_or(Ok(()), Err),
        }
    }

    /// Returns the reason why deletions wait for an approval, or `None` if none waits.
    pub fn stopped(&mut self, known: usize, now: Instant) -> Option<Stopped> {
        let within = self.within;
        self.requests.retain(|_, request| match request {
            Request::Done(when) => now.saturating_duration_since(*when) < within,
            Request::Waiting { .. } => true,
        });
        let counts = |request: &&Request| **request != Request::Waiting { is_approved: true };
        let requested = self.requests.values().filter(counts).count();
        let is_waiting = |request: &Request| *request == Request::Waiting { is_approved: false };
        let allowed = self.budget?.allowed(known);
        (requested > allowed && self.requests.values().any(is_waiting)).then_some(Stopped { requested, allowed, known })
    }

    /// Approves all requested deletions and returns their number. Later requests need another approval.
    pub fn approve(&mut self) -> usize {
        self.requests.retain(|_, request| matches!(request, Request::Waiting { .. }));
        for request in self.requests.values_mut() {
            *request = Request::Waiting { is_approved: true };
        }
        self.requests.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WITHIN: Duration = Duration::from_mins(5);

    fn guard() -> DeletionGuard<u32> {
        DeletionGuard::new(Some(DeletionBudget::default()), WITHIN)
    }

    fn request(guard: &mut DeletionGuard<u32>, items: std::ops::Range<u32>) {
        for item in items {
            guard.request(item);
        }
    }

    #[test]
    fn the_budget_is_a_share_and_a_least_number() {
        for (known, allowed) in [(0, 5), (5, 5), (50, 5), (59, 5), (60, 6), (1000, 100), (usize::MAX, usize::MAX / 100)]
        {
            assert_eq!(DeletionBudget::default().allowed(known), allowed, "{known}");
        }
    }

    #[test]
    fn one_deletion_too_many_stops_all_that_wait() {
        let (mut guard, now) = (guard(), Instant::now());
        request(&mut guard, 0..5);
        assert_eq!(guard.check(&0, 20, now), Ok(()));
        guard.request(4);
        assert_eq!(guard.stopped(20, now), None, "a repeated request counts once");
        guard.request(5);
        let stopped = Stopped { requested: 6, allowed: 5, known: 20 };
        assert_eq!(guard.check(&0, 20, now), Err(stopped));
        assert_eq!(guard.stopped(20, now + 10 * WITHIN), Some(stopped), "time alone approves nothing");
        guard.withdraw(&3);
        assert_eq!(guard.check(&0, 20, now), Ok(()), "a request was withdrawn");
    }

    #[test]
    fn deletions_that_were_done_count_for_a_time() {
        let (mut guard, now) = (guard(), Instant::now());
        for item in 0..5 {
            guard.request(item);
            assert_eq!(guard.check(&item, 20, now), Ok(()), "{item}");
            guard.done(item, now);
        }
        guard.request(5);
        assert!(guard.check(&5, 20, now).is_err());
        assert_eq!(guard.check(&5, 20, now + WITHIN), Ok(()));
    }

    #[test]
    fn an_approval_is_for_what_waits_by_then() {
        let (mut guard, now) = (guard(), Instant::now());
        request(&mut guard, 0..9);
        assert!(guard.check(&0, 20, now).is_err());
        assert_eq!(guard.approve(), 9);
        for item in 0..9 {
            assert_eq!(guard.check(&item, 20, now), Ok(()), "{item}");
            guard.done(item, now);
        }
        request(&mut guard, 10..15);
        assert_eq!(guard.check(&10, 20, now), Ok(()), "what was approved does not count");
        guard.request(15);
        assert!(guard.check(&10, 20, now).is_err());
    }

    #[test]
    fn without_a_budget_everything_is_allowed() {
        let (mut guard, now) = (DeletionGuard::new(None, WITHIN), Instant::now());
        request(&mut guard, 0..100);
        assert_eq!(guard.check(&0, 100, now), Ok(()));
    }
}
