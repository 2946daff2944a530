//! The queue's decisions, as a state machine that is told the time.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    hash::Hash,
    sync::Arc,
    time::Duration,
};

use tokio::time::Instant;

use super::reasons::Reasons;

/// What is worked on first. Within one priority, first come, first served.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Priority {
    /// Can wait: the initial list, safety repetitions.
    Low,
    /// Somebody changed something in the cluster.
    Normal,
    /// Somebody waits for it: a change streamed in from outside.
    High,
}

impl Priority {
    /// All of them, for metrics.
    pub(super) const ALL: [Self; 3] = [Self::Low, Self::Normal, Self::High];
}

/// A key that is to be reconciled, handed to exactly one worker at a time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request<K> {
    /// Which object.
    pub key: K,
    /// Why, all reasons since it was last handed out.
    pub reasons: BTreeSet<&'static str>,
    /// 1 on the first try, 2 after one failure, and so on.
    pub attempt: u32,
}

/// How a request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Completion {
    /// All is as it should be.
    Done,
    /// All is as it should be; look again after this long, at low priority.
    DoneUntil(Duration),
    /// It failed; try again after this long.
    Retry(Duration),
}

/// The reason given to repetitions after a failure.
pub const RETRY: &str = "retry";
/// The reason given to repetitions asked for with [`Completion::DoneUntil`].
pub const PERIODIC: &str = "periodic";

/// How a key stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueuedKey<K> {
    /// Which object.
    pub key: K,
    /// Failed attempts since the last success.
    pub failures: u32,
    /// For how long a worker has had it, if one has.
    pub in_flight_for: Option<Duration>,
    /// How long until its next run may begin, if one is wanted.
    pub due_in: Option<Duration>,
    /// Why the next run is wanted.
    pub reasons: BTreeSet<&'static str>,
}

/// A wish to run. Wishes for one key merge: the earliest time, the highest priority, all reasons.
#[derive(Debug, Clone)]
struct Wish {
    due: Instant,
    priority: Priority,
    reasons: Reasons,
    /// Ties are served in the order of arrival.
    arrival: u64,
}

impl Wish {
    fn merge(&mut self, other: Self) {
        self.due = self.due.min(other.due);
        self.priority = self.priority.max(other.priority);
        self.reasons.merge(other.reasons);
    }

    fn ready_place(&self) -> (std::cmp::Reverse<Priority>, u64) {
        (std::cmp::Reverse(self.priority), self.arrival)
    }
}

#[derive(Debug, Default)]
struct Entry {
    /// What is waiting: to run for the first time, or again after the run in flight.
    wish: Option<Wish>,
    /// Whether the wish is in `ready` rather than in `delayed`; meaningless while in flight.
    is_ready: bool,
    /// Since when a worker has it.
    in_flight: Option<Instant>,
    /// Whether that run is of more than low priority.
    is_urgent: bool,
    failures: u32,
    /// The next run begins no earlier.
    rests_until: Option<Instant>,
    /// Whether the run in flight began before what made the earlier ones fail has changed.
    is_outdated: bool,
}

/// Keys waiting, delayed and in flight. A key is shared between its entry and its place.
#[derive(Debug)]
pub(super) struct State<K> {
    entries: HashMap<Arc<K>, Entry>,
    ready: BTreeMap<(std::cmp::Reverse<Priority>, u64), Arc<K>>,
    delayed: BTreeMap<(Instant, u64), Arc<K>>,
    /// Keys that are only remembered because of the rest they need, by its end.
    resting: BTreeMap<(Instant, u64), Arc<K>>,
    /// How many keys of more than low priority are in flight.
    urgent: usize,
    arrivals: u64,
    rest: Duration,
}

/// Once this many keys were there and none is left, their places are given back: a queue is long after a start, and seldom again.
const MANY: usize = 1000;

/// What [`State::take`] found.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Taken<K> {
    /// Work, and how long it was ready before a worker came.
    Request(Request<K>, Duration),
    /// Nothing before this time.
    NothingUntil(Instant),
    /// Nothing until something is added.
    Nothing,
}

impl<K: Clone + Eq + Hash> State<K> {
    pub(super) fn new() -> Self {
        Self {
            entries: HashMap::new(),
            ready: BTreeMap::new(),
            delayed: BTreeMap::new(),
            resting: BTreeMap::new(),
            urgent: 0,
            arrivals: 0,
            rest: Duration::ZERO,
        }
    }

    /// How long a key rests between the beginnings of two runs.
    pub(super) fn rest(&mut self, rest: Duration) {
        self.rest = rest;
    }

    /// Wishes for a run of `key` at `due`.
    pub(super) fn add(&mut self, key: K, due: Instant, priority: Priority, reason: &'static str) {
        self.arrivals += 1;
        let key = self.entries.get_key_value(&key).map_or_else(|| Arc::new(key), |(known, _)| Arc::clone(known));
        let entry = self.entries.entry(Arc::clone(&key)).or_default();
        let due = entry.rests_until.map_or(due, |end| due.max(end));
        let wish = Wish { due, priority, reasons: Reasons::One(reason), arrival: self.arrivals };
        if entry.in_flight.is_some() {
            match &mut entry.wish {
                Some(waiting) => waiting.merge(wish),
                None => entry.wish = Some(wish),
            }
            return;
        }
        let Some(mut waiting) = entry.wish.take() else {
            self.delayed.insert((wish.due, wish.arrival), key);
            entry.wish = Some(wish);
            entry.is_ready = false;
            return;
        };
        if entry.is_ready {
            self.ready.remove(&waiting.ready_place());
            waiting.merge(wish);
            self.ready.insert(waiting.ready_place(), key);
        } else {
            self.delayed.remove(&(waiting.due, waiting.arrival));
            waiting.merge(wish);
            self.delayed.insert((waiting.due, waiting.arrival), key);
        }
        entry.wish = Some(waiting);
    }

    /// Hands out the most urgent key that is due.
    pub(super) fn take(&mut self, now: Instant) -> Taken<K> {
        self.promote(now);
        if let Some((_, key)) = self.ready.pop_first()
            && let Some(entry) = self.entries.get_mut(&key)
            && let Some(wish) = entry.wish.take()
        {
            entry.in_flight = Some(now);
            entry.is_urgent = wish.priority > Priority::Low;
            self.urgent += usize::from(entry.is_urgent);
            entry.rests_until = (!self.rest.is_zero()).then(|| now + self.rest);
            let reasons = wish.reasons.into_set();
            let request = Request { key: K::clone(&key), reasons, attempt: entry.failures.saturating_add(1) };
            return Taken::Request(request, now.saturating_duration_since(wish.due));
        }
        self.delayed.first_key_value().map_or(Taken::Nothing, |(&(due, _), _)| Taken::NothingUntil(due))
    }

    /// Takes a key back. Returns how long it was in flight; nothing if it was not.
    pub(super) fn complete(&mut self, key: &K, completion: Completion, now: Instant) -> Option<Duration> {
        let shared = Arc::clone(self.entries.get_key_value(key)?.0);
        let entry = self.entries.get_mut(key)?;
        let started = entry.in_flight.take()?;
        self.urgent -= usize::from(entry.is_urgent);
        entry.failures = match completion {
            _ if std::mem::take(&mut entry.is_outdated) => 0,
            Completion::Retry(_) => entry.failures.saturating_add(1),
            Completion::Done | Completion::DoneUntil(_) => 0,
        };
        entry.is_ready = false;
        if let Some(wish) = &entry.wish {
            self.delayed.insert((wish.due, wish.arrival), shared);
        } else if completion == Completion::Done {
            match entry.rests_until.filter(|end| *end > now) {
                Some(end) => {
                    self.arrivals += 1;
                    self.resting.insert((end, self.arrivals), shared);
                }
                None => self.forget(key),
            }
        }
        match completion {
            Completion::Done => {}
            Completion::DoneUntil(delay) => self.add(key.clone(), now + delay, Priority::Low, PERIODIC),
            Completion::Retry(delay) => self.add(key.clone(), now + delay, Priority::Normal, RETRY),
        }
        Some(now.saturating_duration_since(started))
    }

    /// Makes the next attempt the first.
    pub(super) fn forget_failures(&mut self, key: &K) {
        if let Some(entry) = self.entries.get_mut(key) {
            entry.failures = 0;
            entry.is_outdated = entry.in_flight.is_some();
        }
    }

    /// All keys and how they stand.
    pub(super) fn snapshot(&self, now: Instant) -> Vec<QueuedKey<K>> {
        let look = |(key, entry): (&Arc<K>, &Entry)| QueuedKey {
            key: K::clone(key),
            failures: entry.failures,
            in_flight_for: entry.in_flight.map(|since| now.saturating_duration_since(since)),
            due_in: entry.wish.as_ref().map(|wish| wish.due.saturating_duration_since(now)),
            reasons: entry.wish.as_ref().map(|wish| wish.reasons.clone().into_set()).unwrap_or_default(),
        };
        let is_wanted = |(_, entry): &(&Arc<K>, &Entry)| entry.in_flight.is_some() || entry.wish.is_some();
        self.entries.iter().filter(is_wanted).map(look).collect()
    }

    /// Keys due at `now` that no worker has, by priority.
    pub(super) fn depth(&mut self, now: Instant, priority: Priority) -> usize {
        self.promote(now);
        self.ready.keys().filter(|(std::cmp::Reverse(of), _)| *of == priority).count()
    }

    /// Whether at least so many keys of more than low priority are ready or in flight.
    pub(super) fn is_crowded(&mut self, now: Instant, many: usize) -> bool {
        self.promote(now);
        let last = many.saturating_sub(self.urgent).checked_sub(1).map(|last| self.ready.keys().nth(last));
        last.is_none_or(|place| place.is_some_and(|(std::cmp::Reverse(priority), _)| *priority > Priority::Low))
    }

    /// Since when workers have had the keys that are in flight.
    pub(super) fn in_flight(&self) -> impl Iterator<Item = Instant> {
        self.entries.values().filter_map(|entry| entry.in_flight)
    }

    /// Whether more is ready, so that another worker is worth waking.
    pub(super) fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    fn forget(&mut self, key: &K) {
        self.entries.remove(key);
        if self.entries.is_empty() && self.entries.capacity() > MANY {
            self.entries = HashMap::new();
        }
    }

    fn promote(&mut self, now: Instant) {
        while let Some(first) = self.resting.first_entry()
            && first.key().0 <= now
        {
            let key = first.remove();
            let is_idle = |entry: &Entry| {
                entry.wish.is_none()
                    && entry.in_flight.is_none()
                    && entry.failures == 0
                    && entry.rests_until.is_none_or(|end| end <= now)
            };
            if self.entries.get(&key).is_some_and(is_idle) {
                self.forget(&key);
            }
        }
        while let Some(first) = self.delayed.first_entry()
            && first.key().0 <= now
        {
            let key = first.remove();
            if let Some(entry) = self.entries.get_mut(&key)
                && let Some(wish) = &entry.wish
            {
                entry.is_ready = true;
                self.ready.insert(wish.ready_place(), key);
            }
        }
    }
}

#[cfg(test)]
mod tests;
