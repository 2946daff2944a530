//! A guard for deletions: one mistake must not empty a store, and one tenant must not stop the deletions of others.
//!
//! Single deletions are intended. When more are requested within a time than a [`DeletionBudget`] allows, the guard stops them until a
//! person [approves](DeletionGuard::approve) them or enough requests are withdrawn. Each namespace is judged by itself: its own deletions
//! count in full, and those of each other namespace up to half of what is allowed. So a mass in one namespace waits alone, and a mistake
//! in all namespaces stops all of them. Pure: the caller passes the time.

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
    /// The maximum number, even if the share is larger. Creating many items raises the share, but not this maximum.
    pub at_most: usize,
}

impl DeletionBudget {
    /// Returns the number of `known` items that may be deleted without approval.
    ///
    /// ```
    /// use konverge_core::deletion_guard::DeletionBudget;
    ///
    /// let budget = DeletionBudget::default();
    /// assert_eq!((budget.allowed(20), budget.allowed(300), budget.allowed(9000)), (5, 30, 100));
    /// ```
    pub fn allowed(self, known: usize) -> usize {
        (known.saturating_mul(self.percent.into()) / 100).min(self.at_most).max(self.at_least)
    }
}

/// Ten percent, at least five and at most a hundred.
impl Default for DeletionBudget {
    fn default() -> Self {
        Self { percent: 10, at_least: 5, at_most: 100 }
    }
}

/// The deletion of an item of an object in a namespace.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Deletion<I> {
    /// The namespace, or an empty string for an object without one.
    pub namespace: String,
    /// The item to delete.
    pub item: I,
}

impl<I> Deletion<I> {
    /// Creates the deletion of an item in a namespace.
    pub fn new(namespace: impl Into<String>, item: I) -> Self {
        Self { namespace: namespace.into(), item }
    }
}

/// Counts deletions of items that are identified by `I`.
///
/// No method but [`withdraw_unless`](Self::withdraw_unless) and [`approve`](Self::approve) walks all items. A check takes a time that grows
/// with the number of namespaces that have deletions.
#[derive(Debug)]
pub struct DeletionGuard<I> {
    /// `None` allows everything.
    budget: Option<DeletionBudget>,
    within: Duration,
    requests: BTreeMap<Deletion<I>, Request>,
    /// The items that were deleted without an approval, the earliest first.
    done: BTreeSet<(Instant, Deletion<I>)>,
    /// The counts of each namespace that has deletions without an approval.
    counts: BTreeMap<String, Counts>,
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

impl Request {
    /// Returns what the request adds to the counts of its namespace.
    fn counts(self) -> Counts {
        match self {
            Self::Waiting { is_approved } => Counts { waiting: usize::from(!is_approved), done: 0 },
            Self::Done(_) => Counts { waiting: 0, done: 1 },
        }
    }
}

/// The deletions of a namespace without an approval.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Counts {
    waiting: usize,
    done: usize,
}

impl Counts {
    fn requested(self) -> usize {
        self.waiting + self.done
    }
}

/// More deletions are requested than the budget allows, so the deletions in these namespaces wait.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stopped {
    /// The namespaces whose deletions are stopped, in order. The name is empty for cluster-scoped objects.
    pub namespaces: Vec<String>,
    /// The number of deletions in these namespaces that were requested or done within the time.
    pub requested: usize,
    /// The deletions in other namespaces, each namespace counted up to half of `allowed`.
    pub elsewhere: usize,
    /// The number of deletions in these namespaces that wait for an approval.
    pub waiting: usize,
    /// The number that the budget allows.
    pub allowed: usize,
    /// The number of known items.
    pub known: usize,
    /// Whether they wait because an earlier process had stopped deletions.
    pub by_earlier_process: bool,
}

impl Stopped {
    /// Returns `true` if deletions are stopped in a namespace that is not among the `told` ones.
    pub fn is_news(&self, told: &[String]) -> bool {
        self.namespaces.iter().any(|namespace| !told.contains(namespace))
    }

    /// Returns the words for where the deletions are requested.
    fn place(&self) -> String {
        const SHOWN: usize = 5;
        let of_cluster = self.namespaces.iter().any(String::is_empty).then(|| "of cluster-scoped objects".to_owned());
        let names: Vec<&str> = self.namespaces.iter().map(String::as_str).filter(|name| !name.is_empty()).collect();
        let in_namespaces = match &*names {
            [] => None,
            [one] => Some(format!("in namespace {one}")),
            [first @ .., last] if names.len() <= SHOWN => {
                Some(format!("in namespaces {} and {last}", first.join(", ")))
            }
            all => Some(format!("in {} namespaces, including {}", all.len(), all[..SHOWN].join(", "))),
        };
        of_cluster.into_iter().chain(in_namespaces).collect::<Vec<_>>().join(" and ")
    }
}

impl fmt::Display for Stopped {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { requested, elsewhere, allowed, known, by_earlier_process, .. } = self;
        let deletions = if *requested == 1 { "deletion is" } else { "deletions are" };
        write!(out, "{requested} {deletions} requested {}", self.place())?;
        if *elsewhere > 0 {
            write!(out, " in addition to {elsewhere} in other namespaces")?;
        }
        if *by_earlier_process {
            write!(out, ", and an earlier process had stopped deletions")
        } else {
            write!(out, ", and {allowed} of {known} are allowed without approval")
        }
    }
}

impl std::error::Error for Stopped {}

impl<I: Ord + Clone> DeletionGuard<I> {
    /// Creates a guard with this budget for each span of `within`. Without a budget, it allows everything.
    pub fn new(budget: Option<DeletionBudget>, within: Duration) -> Self {
        let (requests, done, counts) = (BTreeMap::new(), BTreeSet::new(), BTreeMap::new());
        Self { budget, within, requests, done, counts, stopped_earlier: None }
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

    /// Records a requested deletion, due or not. A repeated request counts once.
    pub fn request(&mut self, deletion: Deletion<I>) {
        if !matches!(self.requests.get(&deletion), Some(Request::Waiting { .. })) {
            self.set(deletion, Some(Request::Waiting { is_approved: false }));
        }
    }

    /// Withdraws the request.
    pub fn withdraw(&mut self, deletion: &Deletion<I>) {
        if matches!(self.requests.get(deletion), Some(Request::Waiting { .. })) {
            self.set(deletion.clone(), None);
        }
    }

    /// Withdraws the requests that are not to be kept.
    pub fn withdraw_unless(&mut self, keep: impl Fn(&Deletion<I>) -> bool) {
        let is_void = |(deletion, request): &(&Deletion<I>, &Request)| {
            matches!(request, Request::Waiting { .. }) && !keep(deletion)
        };
        let void: Vec<_> = self.requests.iter().filter(is_void).map(|(deletion, _)| deletion.clone()).collect();
        for deletion in &void {
            self.withdraw(deletion);
        }
    }

    /// Records that the item was deleted.
    pub fn done(&mut self, deletion: Deletion<I>, now: Instant) {
        let is_approved = self.requests.get(&deletion) == Some(&Request::Waiting { is_approved: true });
        self.set(deletion, (!is_approved).then_some(Request::Done(now)));
    }

    /// Checks that the item, whose deletion was requested, may be deleted now, out of `known` items including it.
    ///
    /// # Errors
    ///
    /// Returns an error if more deletions are requested than the budget allows for the namespace, and this one is not approved.
    pub fn check(&mut self, deletion: &Deletion<I>, known: usize, now: Instant) -> Result<(), Stopped> {
        if self.requests.get(deletion) == Some(&Request::Waiting { is_approved: true }) {
            return Ok(());
        }
        self.stopped_of(known, now, |namespace| namespace == deletion.namespace).map_or(Ok(()), Err)
    }

    /// Returns the reason why deletions wait for an approval, or `None` if none waits.
    pub fn stopped(&mut self, known: usize, now: Instant) -> Option<Stopped> {
        self.stopped_of(known, now, |_| true)
    }

    /// Approves all requested deletions and returns their number. Later requests need another approval.
    pub fn approve(&mut self) -> usize {
        self.requests.retain(|_, request| matches!(request, Request::Waiting { .. }));
        for request in self.requests.values_mut() {
            *request = Request::Waiting { is_approved: true };
        }
        self.done.clear();
        self.counts.clear();
        self.stopped_earlier = None;
        self.requests.len()
    }

    /// Returns the reason why deletions of the chosen namespaces wait for an approval.
    fn stopped_of(&mut self, known: usize, now: Instant, is_chosen: impl Fn(&str) -> bool) -> Option<Stopped> {
        self.expire(now);
        let allowed = self.budget?.allowed(known);
        let beside = |counts: &Counts| counts.requested().min(allowed / 2);
        let mut elsewhere = self.counts.values().map(beside).sum::<usize>();
        let is_stopped = |(namespace, counts): &(&String, &Counts)| {
            let requested = counts.requested() + elsewhere - beside(counts);
            let is_over = requested > allowed || self.stopped_earlier.is_some();
            is_over && counts.waiting > 0 && is_chosen(namespace)
        };
        let stopped: Vec<_> = self.counts.iter().filter(is_stopped).collect();
        elsewhere -= stopped.iter().map(|(_, counts)| beside(counts)).sum::<usize>();
        (!stopped.is_empty()).then(|| Stopped {
            namespaces: stopped.iter().map(|(namespace, _)| (*namespace).clone()).collect(),
            requested: stopped.iter().map(|(_, counts)| counts.requested()).sum(),
            elsewhere,
            waiting: stopped.iter().map(|(_, counts)| counts.waiting).sum(),
            allowed,
            known,
            by_earlier_process: self.stopped_earlier.is_some(),
        })
    }

    /// Forgets what was done, and stopped, longer ago than the span.
    fn expire(&mut self, now: Instant) {
        let within = self.within;
        let is_over = |then: Instant| now.saturating_duration_since(then) >= within;
        while let Some((_, deletion)) = self.done.first().filter(|(when, _)| is_over(*when)) {
            self.set(deletion.clone(), None);
        }
        self.stopped_earlier = self.stopped_earlier.filter(|when| !is_over(*when));
    }

    /// Replaces the state of a deletion, and updates the counts.
    fn set(&mut self, deletion: Deletion<I>, request: Option<Request>) {
        let before = match request {
            Some(request) => self.requests.insert(deletion.clone(), request),
            None => self.requests.remove(&deletion),
        };
        if let Some(Request::Done(when)) = before {
            self.done.remove(&(when, deletion.clone()));
        }
        if let Some(Request::Done(when)) = request {
            self.done.insert((when, deletion.clone()));
        }
        let (less, more) =
            (before.map(Request::counts).unwrap_or_default(), request.map(Request::counts).unwrap_or_default());
        let Deletion { namespace, .. } = deletion;
        let counts = self.counts.remove(&namespace).unwrap_or_default();
        let counts =
            Counts { waiting: counts.waiting + more.waiting - less.waiting, done: counts.done + more.done - less.done };
        if counts != Counts::default() {
            self.counts.insert(namespace, counts);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prop_assert, proptest};

    use super::*;

    const WITHIN: Duration = Duration::from_mins(5);

    fn guard() -> DeletionGuard<u32> {
        DeletionGuard::new(Some(DeletionBudget::default()), WITHIN)
    }

    fn of(namespace: &str, item: u32) -> Deletion<u32> {
        Deletion::new(namespace, item)
    }

    fn shop(item: u32) -> Deletion<u32> {
        of("shop", item)
    }

    fn request(guard: &mut DeletionGuard<u32>, namespace: &str, items: std::ops::Range<u32>) {
        for item in items {
            guard.request(of(namespace, item));
        }
    }

    /// The stopped deletions of the namespace alone, of 20 items.
    fn stopped(requested: usize, waiting: usize) -> Stopped {
        let namespaces = vec!["shop".to_owned()];
        Stopped { namespaces, requested, elsewhere: 0, waiting, allowed: 5, known: 20, by_earlier_process: false }
    }

    #[test]
    fn the_budget_is_a_share_between_two_numbers() {
        for (known, allowed) in [(0, 5), (5, 5), (50, 5), (59, 5), (60, 6), (1000, 100), (2000, 100), (usize::MAX, 100)]
        {
            assert_eq!(DeletionBudget::default().allowed(known), allowed, "{known}");
        }
    }

    #[test]
    fn one_deletion_too_many_stops_all_that_wait_in_the_namespace() {
        let (mut guard, now) = (guard(), Instant::now());
        request(&mut guard, "shop", 0..5);
        assert_eq!(guard.check(&shop(0), 20, now), Ok(()));
        guard.request(shop(4));
        assert_eq!(guard.stopped(20, now), None, "a repeated request counts once");
        guard.request(shop(5));
        assert_eq!(guard.check(&shop(0), 20, now), Err(stopped(6, 6)));
        assert_eq!(guard.stopped(20, now + 10 * WITHIN), Some(stopped(6, 6)), "time alone approves nothing");
        guard.withdraw(&shop(3));
        assert_eq!(guard.check(&shop(0), 20, now), Ok(()), "a request was withdrawn");
    }

    #[test]
    fn a_mass_in_one_namespace_stops_only_those_that_delete_more_than_the_other_half() {
        for (crowd, few, is_stopped) in [(1000, 3, false), (1000, 4, true), (5, 3, false), (1, 4, false), (1, 5, true)]
        {
            let (mut guard, now) = (guard(), Instant::now());
            request(&mut guard, "crowd", 0..crowd);
            request(&mut guard, "shop", 0..few);
            let checked = guard.check(&shop(0), 20, now);
            assert_eq!(checked.is_err(), is_stopped, "{few} beside {crowd}: {checked:?}");
            assert_eq!(guard.check(&of("crowd", 0), 20, now).is_err(), crowd > 1, "{few} beside {crowd}");
        }
    }

    #[test]
    fn one_deletion_in_each_of_many_namespaces_stops_all() {
        let (mut guard, now) = (guard(), Instant::now());
        for namespace in ["a", "b", "c", "d", "e", "f"] {
            guard.request(of(namespace, 0));
        }
        let stopped = guard.stopped(20, now).unwrap();
        assert_eq!((stopped.requested, stopped.elsewhere, stopped.namespaces.len()), (6, 0, 6));
        assert!(guard.check(&of("a", 0), 20, now).is_err());
    }

    proptest! {
        #[test]
        fn namespaces_one_after_another_delete_at_most_twice_the_budget(
            known in 0_usize..400,
            namespaces in vec(0_u32..40, 0..400),
        ) {
            let (mut guard, now) = (guard(), Instant::now());
            let mut deleted = 0;
            for (item, namespace) in (0..).zip(namespaces) {
                let deletion = of(&namespace.to_string(), item);
                guard.request(deletion.clone());
                if guard.check(&deletion, known, now).is_ok() {
                    guard.done(deletion, now);
                    deleted += 1;
                }
            }
            prop_assert!(deleted <= 2 * DeletionBudget::default().allowed(known), "{} of {}", deleted, known);
        }
    }

    #[test]
    fn the_sentence_names_where_and_why() {
        let named = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let base = stopped(6, 6);
        let of_five = ", and 5 of 20 are allowed without approval";
        for (names, requested, elsewhere, by_earlier_process, expected) in [
            (&["shop"][..], 6, 0, false, format!("6 deletions are requested in namespace shop{of_five}")),
            (
                &["shop"],
                4,
                2,
                false,
                format!("4 deletions are requested in namespace shop in addition to 2 in other namespaces{of_five}"),
            ),
            (&[""], 6, 0, false, format!("6 deletions are requested of cluster-scoped objects{of_five}")),
            (
                &["", "a", "b"],
                9,
                0,
                false,
                format!("9 deletions are requested of cluster-scoped objects and in namespaces a and b{of_five}"),
            ),
            (
                &["a", "b", "c", "d", "e", "f"],
                9,
                0,
                false,
                format!("9 deletions are requested in 6 namespaces, including a, b, c, d, e{of_five}"),
            ),
            (
                &["shop"],
                1,
                0,
                true,
                "1 deletion is requested in namespace shop, and an earlier process had stopped deletions".to_owned(),
            ),
        ] {
            let stopped =
                Stopped { namespaces: named(names), requested, elsewhere, by_earlier_process, ..base.clone() };
            assert_eq!(stopped.to_string(), expected);
        }
    }

    #[test]
    fn deletions_that_were_done_count_for_a_time() {
        let (mut guard, now) = (guard(), Instant::now());
        for item in (0..5).map(shop) {
            guard.request(item.clone());
            assert_eq!(guard.check(&item, 20, now), Ok(()), "{item:?}");
            guard.done(item, now);
        }
        guard.request(shop(5));
        assert!(guard.check(&shop(5), 20, now).is_err());
        assert_eq!(guard.check(&shop(5), 20, now + WITHIN), Ok(()));
    }

    #[test]
    fn an_approval_is_for_what_waits_by_then() {
        let (mut guard, now) = (guard(), Instant::now());
        request(&mut guard, "shop", 0..9);
        assert!(guard.check(&shop(0), 20, now).is_err());
        assert_eq!(guard.approve(), 9);
        for item in (0..9).map(shop) {
            assert_eq!(guard.check(&item, 20, now), Ok(()), "{item:?}");
            guard.done(item, now);
        }
        request(&mut guard, "shop", 10..15);
        assert_eq!(guard.check(&shop(10), 20, now), Ok(()), "what was approved does not count");
        guard.request(shop(15));
        assert!(guard.check(&shop(10), 20, now).is_err());
    }

    #[test]
    fn only_what_waits_counts_as_waiting_and_a_settled_deletion_stops_nothing() {
        let (mut guard, now) = (guard(), Instant::now());
        request(&mut guard, "shop", 0..3);
        for item in 0..3 {
            guard.done(shop(item), now);
        }
        request(&mut guard, "shop", 3..6);
        assert_eq!(guard.stopped(20, now), Some(stopped(6, 3)));
        guard.withdraw_unless(|deletion| deletion.item == 3);
        assert_eq!(guard.stopped(20, now), None, "one waits, and three are done");
        request(&mut guard, "shop", 4..7);
        assert_eq!(guard.stopped(20, now), Some(stopped(7, 4)));
        guard.request(shop(0));
        assert_eq!(guard.stopped(20, now), Some(stopped(7, 5)));
        guard.done(shop(0), now + WITHIN);
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
            guard.request(shop(0));
            if is_approved {
                guard.approve();
                guard.request(shop(1));
            }
            let expected = is_stopped.then(|| Stopped { by_earlier_process: true, ..stopped(1, 1) });
            assert_eq!(guard.stopped(20, now + later), expected, "{is_approved} {later:?}");
        }
    }

    #[test]
    fn a_mass_of_deletions_is_checked_in_a_moment() {
        const MANY: u32 = 100_000;
        let (mut guard, now) = (guard(), Instant::now());
        request(&mut guard, "shop", 0..MANY);
        for item in 0..MANY {
            assert!(guard.check(&shop(item), 20, now).is_err());
        }
        guard.approve();
        for item in 0..MANY {
            guard.done(shop(item), now);
        }
        assert!(now.elapsed() < Duration::from_secs(20), "{:?}", now.elapsed());
    }

    #[test]
    fn without_a_budget_everything_is_allowed() {
        let (mut guard, now) = (DeletionGuard::new(None, WITHIN), Instant::now());
        request(&mut guard, "shop", 0..100);
        assert_eq!(guard.check(&shop(0), 100, now), Ok(()));
    }
}
