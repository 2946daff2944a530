//! A guard for deletions: one mistake must not empty a store.
//!
//! Single deletions are intended. When more are requested within a time than a [`DeletionBudget`] allows, the guard stops all of
//! them until a person [approves](DeletionGuard::approve) them or enough requests are withdrawn. Pure: the caller passes the time.

use std::{
    collections::{BTreeMap, BTreeSet},
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
///
/// No method walks all items, so a mass of deletions is counted in a time that grows with their number and not with its square.
#[derive(Debug)]
pub struct DeletionGuard<I> {
    /// `None` allows everything.
    budget: Option<DeletionBudget>,
    within: Duration,
    requests: BTreeMap<I, Request>,
    /// The items that were deleted without an approval, the earliest first.
    done: BTreeSet<(Instant, I)>,
    /// The number of deletions that wait without an approval.
    waiting: usize,
    /// When an earlier process had stopped deletions, as far as that still counts.
    stopped_earlier: Option<Instant>,
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

const WAITING: Request = Request::Waiting { is_approved: false };

/// More deletions are requested than the budget allows, so none is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stopped {
    /// The number of deletions that were requested or done within the time.
    pub requested: usize,
    /// The number of these that wait for an approval.
    pub waiting: usize,
    /// The number that the budget allows.
    pub allowed: usize,
    /// The number of known items.
    pub known: usize,
}

impl fmt::Display for Stopped {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { requested, waiting: _, allowed, known } = self;
        write!(out, "{requested} deletions are requested, and {allowed} of {known} are allowed without approval")
    }
}

impl std::error::Error for Stopped {}

impl<I: Ord + Clone> DeletionGuard<I> {
    /// Creates a guard with this budget for each span of `within`. Without a budget, it allows everything.
    pub fn new(budget: Option<DeletionBudget>, within: Duration) -> Self {
        let (requests, done) = (BTreeMap::new(), BTreeSet::new());
        Self { budget, within, requests, done, waiting: 0, stopped_earlier: None }
    }

    /// Whether everything is allowed.
    pub fn allows_everything(&self) -> bool {
        self.budget.is_none()
    }

    /// Records that an earlier process had stopped deletions. The deletions of that process are unknown, so for one span everything that is
    /// requested needs an approval.
    pub fn stopped_earlier(&mut self, now: Instant) {
        self.stopped_earlier = Some(now);
    }

    /// Records a request to delete an item, due or not. A repeated request counts once.
    pub fn request(&mut self, item: I) {
        if !matches!(self.requests.get(&item), Some(Request::Waiting { .. })) {
            self.set(item, Some(WAITING));
        }
    }

    /// Withdraws the request to delete the item.
    pub fn withdraw(&mut self, item: &I) {
        if matches!(self.requests.get(item), Some(Request::Waiting { .. })) {
            self.set(item.clone(), None);
        }
    }

    /// Withdraws the requests to delete items that are not to be kept.
    pub fn withdraw_unless(&mut self, keep: impl Fn(&I) -> bool) {
        let is_void = |(item, request): &(&I, &Request)| matches!(request, Request::Waiting { .. }) && !keep(item);
        let void: Vec<I> = self.requests.iter().filter(is_void).map(|(item, _)| item.clone()).collect();
        for item in &void {
            self.withdraw(item);
        }
    }

    /// Records the deletion of the item.
    pub fn done(&mut self, item: I, now: Instant) {
        let is_approved = self.requests.get(&item) == Some(&Request::Waiting { is_approved: true });
        self.set(item, (!is_approved).then_some(Request::Done(now)));
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
        let is_over = |then: Instant| now.saturating_duration_since(then) >= within;
        while self.done.first().is_some_and(|(when, _)| is_over(*when))
            && let Some((_, item)) = self.done.pop_first()
        {
            self.requests.remove(&item);
        }
        self.stopped_earlier = self.stopped_earlier.filter(|when| !is_over(*when));
        let allowed = self.budget?.allowed(known);
        let waiting = self.waiting;
        let least = if self.stopped_earlier.is_some() { allowed.saturating_add(1) } else { 0 };
        let requested = self.done.len().saturating_add(waiting).max(least);
        (requested > allowed && waiting > 0).then_some(Stopped { requested, waiting, allowed, known })
    }

    /// Approves all requested deletions and returns their number. Later requests need another approval.
    pub fn approve(&mut self) -> usize {
        self.requests.retain(|_, request| matches!(request, Request::Waiting { .. }));
        for request in self.requests.values_mut() {
            *request = Request::Waiting { is_approved: true };
        }
        self.done.clear();
        self.waiting = 0;
        self.stopped_earlier = None;
        self.requests.len()
    }

    /// Replaces what is known of the item, and keeps the counts.
    fn set(&mut self, item: I, request: Option<Request>) {
        if let Some(Request::Done(when)) = request {
            self.done.insert((when, item.clone()));
        }
        self.waiting += usize::from(request == Some(WAITING));
        let before = match request {
            Some(request) => self.requests.insert(item.clone(), request),
            None => self.requests.remove(&item),
        };
        self.waiting -= usize::from(before == Some(WAITING));
        if let Some(Request::Done(when)) = before.filter(|before| Some(*before) != request) {
            self.done.remove(&(when, item));
        }
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
        let stopped = Stopped { requested: 6, waiting: 6, allowed: 5, known: 20 };
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
    fn only_what_waits_counts_as_waiting_and_a_settled_deletion_stops_nothing() {
        let (mut guard, now) = (guard(), Instant::now());
        request(&mut guard, 0..3);
        for item in 0..3 {
            guard.done(item, now);
        }
        request(&mut guard, 3..6);
        let stopped = Stopped { requested: 6, waiting: 3, allowed: 5, known: 20 };
        assert_eq!(guard.stopped(20, now), Some(stopped));
        guard.withdraw_unless(|item| *item == 3);
        assert_eq!(guard.stopped(20, now), None, "one waits, and three are done");
        request(&mut guard, 4..7);
        assert_eq!(guard.stopped(20, now).map(|stopped| (stopped.requested, stopped.waiting)), Some((7, 4)));
        guard.request(0);
        assert_eq!(guard.stopped(20, now).map(|stopped| (stopped.requested, stopped.waiting)), Some((7, 5)));
        guard.done(0, now + WITHIN);
        assert_eq!(guard.stopped(20, now + WITHIN), None, "the others are over");
    }

    #[test]
    fn what_an_earlier_process_has_stopped_stays_so_until_an_approval_or_for_one_span() {
        let now = Instant::now();
        for (is_approved, later, is_stopped) in [
            (false, Duration::ZERO, true),
            (false, WITHIN / 2, true),
            (false, WITHIN, false),
            (true, Duration::ZERO, false),
        ] {
            let mut guard = guard();
            guard.stopped_earlier(now);
            assert_eq!(guard.stopped(20, now), None, "nothing waits");
            guard.request(0);
            if is_approved {
                guard.approve();
                guard.request(1);
            }
            let stopped = Stopped { requested: 6, waiting: 1, allowed: 5, known: 20 };
            let expected = is_stopped.then_some(stopped);
            assert_eq!(guard.stopped(20, now + later), expected, "{is_approved} {later:?}");
        }
    }

    #[test]
    fn a_mass_of_deletions_is_checked_in_a_moment() {
        const MANY: u32 = 100_000;
        let (mut guard, now) = (guard(), Instant::now());
        request(&mut guard, 0..MANY);
        for item in 0..MANY {
            assert!(guard.check(&item, 20, now).is_err());
        }
        guard.approve();
        for item in 0..MANY {
            guard.done(item, now);
        }
        assert!(now.elapsed() < Duration::from_secs(20), "{:?}", now.elapsed());
    }

    #[test]
    fn without_a_budget_everything_is_allowed() {
        let (mut guard, now) = (DeletionGuard::new(None, WITHIN), Instant::now());
        request(&mut guard, 0..100);
        assert_eq!(guard.check(&0, 100, now), Ok(()));
    }
}
