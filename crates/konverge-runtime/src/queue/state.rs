//! The queue's decisions, as a state machine that is told the time.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    hash::Hash,
    sync::Arc,
    time::Duration,
};

use konverge_core::outage::Outage;
use tokio::time::Instant;

use super::{lane::Lane, reasons::Reasons};

/// Which keys are worked on first.
///
/// Within one priority the namespaces take turns, and the oldest key of a namespace goes first. A lower priority is never starved: it gets
/// at least every tenth run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Priority {
    /// Can wait: the initial list, safety repetitions.
    Low,
    /// Somebody changed something in the cluster.
    Normal,
    /// Somebody waits for it: a change streamed in from outside.
    High,
}

impl Priority {
    /// All priorities, the lowest first.
    pub(super) const ALL: [Self; 3] = [Self::Low, Self::Normal, Self::High];

    fn lane(self) -> usize {
        match self {
            Self::Low => 0,
            Self::Normal => 1,
            Self::High => 2,
        }
    }
}

/// A key that is to be reconciled, handed to exactly one worker at a time.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Request<K> {
    /// Which object.
    pub key: K,
    /// Why, all reasons since it was last handed out.
    pub reasons: BTreeSet<&'static str>,
    /// 1 on the first try, 2 after one failure, and so on.
    pub attempt: u32,
}

impl<K> Request<K> {
    /// Returns a request that no queue has handed out, for a reconciler in a test.
    pub fn new(key: K, reasons: BTreeSet<&'static str>, attempt: u32) -> Self {
        Self { key, reasons, attempt }
    }
}

/// How a request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Completion {
    /// All is as it should be.
    Done,
    /// All is as it should be; look again after this long, at low priority.
    DoneUntil(Duration),
    /// Something is still under way; look again after this long, at the priority of the run that ends here.
    Again(Duration),
    /// It failed; try again after this long.
    Retry(Duration),
    /// It ended without a result, at its time limit or in a panic; try again after this long.
    Abandoned(Duration),
    /// This endpoint answered nobody; try again when it does.
    Unavailable(&'static str),
}

impl Completion {
    /// Whether another attempt follows because this one failed.
    pub(super) fn is_failure(self) -> bool {
        matches!(self, Self::Retry(_) | Self::Abandoned(_) | Self::Unavailable(_))
    }
}

/// The reason given to repetitions after a failure.
pub const RETRY: &str = "retry";
/// The reason given to repetitions requested with [`Completion::DoneUntil`] or [`Completion::Again`].
pub const PERIODIC: &str = "periodic";

/// How a key stands.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueuedKey<K> {
    /// Which object.
    pub key: K,
    /// Failed attempts since the last success.
    pub failures: u32,
    /// For how long a worker has had it, if one has.
    pub in_flight_for: Option<Duration>,
    /// How long until its next run may begin, if one is wanted.
    pub due_in: Option<Duration>,
    /// How urgent that run is.
    pub priority: Option<Priority>,
    /// Why the next run is wanted.
    pub reasons: BTreeSet<&'static str>,
}

/// A run that a key waits for. Requests for one key merge: the earliest time, the highest priority, all reasons.
#[derive(Debug, Clone)]
struct PendingRun {
    due: Instant,
    priority: Priority,
    reasons: Reasons,
    /// Ties are served in the order of arrival.
    arrival: u64,
}

impl PendingRun {
    fn merge(&mut self, other: Self) {
        self.due = self.due.min(other.due);
        self.priority = self.priority.max(other.priority);
        self.reasons.merge(other.reasons);
    }
}

#[derive(Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each says another thing of a key, and most combinations occur")]
struct Entry {
    /// The state of a waiting key: it runs for the first time, or again after the run in flight.
    pending: Option<PendingRun>,
    /// Whether the pending run is in `ready` rather than in `delayed`; meaningless while in flight.
    is_ready: bool,
    /// Since when a worker has it.
    in_flight: Option<Instant>,
    /// The priority of that run.
    priority: Option<Priority>,
    failures: Failures,
    /// The endpoint that did not answer the last run.
    endpoint: Option<&'static str>,
    /// Whether the pending run is in the endpoint's waiting list.
    is_parked: bool,
    /// The next run begins no earlier.
    rests_until: Option<Instant>,
    /// Whether `resting` knows of that.
    is_resting: bool,
    /// Whether the object went while a worker has its key, so the end of that run requests no other run.
    is_gone: bool,
    /// Whether the run in flight began before what made the earlier ones fail has changed.
    is_outdated: bool,
}

/// The attempts that failed since the last success.
#[derive(Debug, Default)]
struct Failures {
    number: u32,
    /// How often in a row the backoff has elapsed in vain. Unlike the number it does not grow with each event.
    level: u32,
    /// When the current backoff has elapsed.
    backs_off_until: Option<Instant>,
}

impl Failures {
    /// The level after another failure of a run that began at `begun`.
    fn next_level(&self, begun: Option<Instant>) -> u32 {
        let has_elapsed = self.backs_off_until.is_none_or(|until| begun.is_some_and(|begun| begun >= until));
        self.level.saturating_add(u32::from(has_elapsed))
    }

    fn add(&mut self) {
        self.number = self.number.saturating_add(1);
    }

    /// Adds one of a run that began at `begun`, and backs off for so long.
    fn back_off(&mut self, begun: Option<Instant>, delay: Duration, now: Instant) {
        let level = self.next_level(begun);
        self.add();
        if level > self.level {
            (self.level, self.backs_off_until) = (level, now.checked_add(delay));
        }
    }
}

/// Keys waiting, delayed and in flight. A key is shared between its entry and its place.
#[derive(Debug)]
pub(super) struct State<K> {
    entries: HashMap<Arc<K>, Entry>,
    /// Ready keys, by priority.
    ready: [Lane<K>; 3],
    /// How many runs in a row each priority has had to let pass.
    passed_over: [u32; 3],
    /// The namespace of a key.
    namespace: fn(&K) -> &str,
    delayed: BTreeMap<(Instant, u64), Arc<K>>,
    /// Endpoints that did not answer, and the keys that wait for them.
    endpoints: BTreeMap<&'static str, Endpoint<K>>,
    /// Draws the jitter of the endpoints' pauses, from 0 to 1.
    chance: fn() -> f64,
    /// Keys that are only remembered because of the rest they need, by its end.
    resting: BTreeMap<(Instant, u64), Arc<K>>,
    /// How many keys of more than low priority are in flight.
    urgent: usize,
    /// Whether a worker has ever taken a key. On a standby none has.
    has_begun: bool,
    arrivals: u64,
    min_interval: Duration,
}

/// An endpoint that did not answer.
#[derive(Debug)]
struct Endpoint<K> {
    outage: Outage,
    /// Those with the fewest failures first: a key that fails whether or not the endpoint answers does not stand in the others' way.
    waiting: BTreeMap<(u32, u64), Arc<K>>,
    /// The keys that failed again when others were answered. They wait until none is left that has not tried.
    failed_again: BTreeMap<(u32, u64), Arc<K>>,
}

/// A key that waits for an endpoint runs for a new request, but not more often than this.
const PARKED_REST: Duration = Duration::from_secs(1);

/// Once this many keys were there and none is left, their places are given back: a queue is long after a start, and seldom again.
const MANY: usize = 1000;

/// The number of runs of higher priorities before one of a lower priority has its turn.
pub(super) const PASSED_OVER_AT_MOST: u32 = 8;

/// The result of [`State::take`].
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Taken<K> {
    /// Work, and how long it was ready before a worker came.
    Request(Request<K>, Duration),
    /// Nothing before this time.
    NothingUntil(Instant),
    /// Nothing until something is added.
    Nothing,
}

impl Entry {
    /// Counts the end of the run in flight.
    fn learn(&mut self, completion: Completion, now: Instant) {
        match completion {
            _ if std::mem::take(&mut self.is_outdated) => self.failures = Failures::default(),
            Completion::Done | Completion::DoneUntil(_) | Completion::Again(_) => self.failures = Failures::default(),
            Completion::Retry(delay) | Completion::Abandoned(delay) => {
                self.failures.back_off(self.in_flight, delay, now);
            }
            // The endpoint is at fault and not the object.
            Completion::Unavailable(_) => self.failures.add(),
        }
    }
}

impl<K> Endpoint<K> {
    fn new(now: Instant, chance: f64) -> Self {
        Self { outage: Outage::new(now.into_std(), chance), waiting: BTreeMap::new(), failed_again: BTreeMap::new() }
    }

    /// Takes a key out of the lists.
    fn remove(&mut self, failures: u32, arrival: u64) {
        let place = (failures, arrival);
        self.waiting.remove(&place).or_else(|| self.failed_again.remove(&place));
    }

    /// When the next key that waits may run.
    fn next(&self) -> Option<Instant> {
        self.outage.next().filter(|_| !self.waiting.is_empty()).map(Instant::from_std)
    }
}

impl<K: Clone + Eq + Hash> State<K> {
    pub(super) fn new() -> Self {
        Self {
            entries: HashMap::new(),
            ready: Default::default(),
            passed_over: [0; 3],
            namespace: |_| "",
            delayed: BTreeMap::new(),
            endpoints: BTreeMap::new(),
            chance: rand::random,
            resting: BTreeMap::new(),
            urgent: 0,
            has_begun: false,
            arrivals: 0,
            min_interval: Duration::ZERO,
        }
    }

    /// Sets the least time between the beginnings of two runs of a key.
    pub(super) fn set_min_interval(&mut self, min_interval: Duration) {
        self.min_interval = min_interval;
    }

    /// Lets the namespaces take turns that this function tells.
    pub(super) fn namespaces(&mut self, namespace: fn(&K) -> &str) {
        self.namespace = namespace;
    }

    /// Requests a run of `key` at `due`.
    pub(super) fn add(&mut self, key: K, due: Instant, priority: Priority, reason: &'static str) {
        self.arrivals += 1;
        let key = self.entries.get_key_value(&key).map_or_else(|| Arc::new(key), |(known, _)| Arc::clone(known));
        let entry = self.entries.entry(Arc::clone(&key)).or_default();
        entry.is_gone = false;
        let due = entry.rests_until.map_or(due, |end| due.max(end));
        let pending = PendingRun { due, priority, reasons: Reasons::One(reason), arrival: self.arrivals };
        if entry.in_flight.is_some() {
            match &mut entry.pending {
                Some(waiting) => waiting.merge(pending),
                None => entry.pending = Some(pending),
            }
            return;
        }
        let Some(mut waiting) = entry.pending.take() else {
            self.delayed.insert((pending.due, pending.arrival), key);
            entry.pending = Some(pending);
            entry.is_ready = false;
            return;
        };
        if entry.is_parked {
            // Its place is by its arrival, which a merge keeps.
            waiting.merge(pending);
        } else if entry.is_ready {
            let (namespace, before) = ((self.namespace)(&key), waiting.priority);
            waiting.merge(pending);
            if waiting.priority != before {
                self.ready[before.lane()].remove(namespace, waiting.arrival);
                self.ready[waiting.priority.lane()].insert(namespace, waiting.arrival, Arc::clone(&key));
            }
        } else {
            self.delayed.remove(&(waiting.due, waiting.arrival));
            waiting.merge(pending);
            self.delayed.insert((waiting.due, waiting.arrival), key);
        }
        entry.pending = Some(waiting);
    }

    /// Drops the request for a run of a key whose object is gone.
    ///
    /// A run in flight goes on, and the key is forgotten when it ends, unless it is added again before that.
    pub(super) fn remove(&mut self, key: &K, now: Instant) {
        let Some((shared, _)) = self.entries.get_key_value(key) else { return };
        let shared = Arc::clone(shared);
        let Some(entry) = self.entries.get_mut(key) else { return };
        let failures = std::mem::take(&mut entry.failures).number;
        let pending = entry.pending.take();
        if entry.in_flight.is_some() {
            entry.is_outdated = true;
            entry.is_gone = true;
            return;
        }
        match pending {
            Some(pending) if std::mem::take(&mut entry.is_parked) => {
                if let Some(known) = entry.endpoint.and_then(|endpoint| self.endpoints.get_mut(endpoint)) {
                    known.remove(failures, pending.arrival);
                }
            }
            Some(pending) if entry.is_ready => {
                self.ready[pending.priority.lane()].remove((self.namespace)(key), pending.arrival);
            }
            Some(pending) => drop(self.delayed.remove(&(pending.due, pending.arrival))),
            None => {}
        }
        self.retire(shared, now);
    }

    /// Whether a worker has ever taken a key.
    pub(super) fn has_begun(&self) -> bool {
        self.has_begun
    }

    /// Drops the requests for keys that wait and whose objects do not exist.
    pub(super) fn retain(&mut self, mut exists: impl FnMut(&K) -> bool, now: Instant) {
        let waits = |entry: &Entry| entry.pending.is_some() && entry.in_flight.is_none();
        let waiting = self.entries.iter().filter(|(_, entry)| waits(entry)).map(|(key, _)| key);
        let gone: Vec<_> = waiting.filter(|key| !exists(key)).map(Arc::clone).collect();
        for key in gone {
            self.remove(&key, now);
        }
    }

    /// Forgets a key that no worker has and nothing is wanted for, as soon as it has rested.
    fn retire(&mut self, key: Arc<K>, now: Instant) {
        let Some(entry) = self.entries.get_mut(&key) else { return };
        match entry.rests_until.filter(|end| *end > now) {
            Some(_) if entry.is_resting => {}
            Some(end) => {
                entry.is_resting = true;
                self.arrivals += 1;
                self.resting.insert((end, self.arrivals), key);
            }
            None => self.forget(&key),
        }
    }

    /// The priority to serve next: the highest that has ready keys, unless a lower one has been passed over long enough.
    fn next_priority(&self) -> Option<Priority> {
        let has_ready = |priority: &Priority| !self.ready[priority.lane()].is_empty();
        let passed_over = |priority: &Priority| self.passed_over[priority.lane()];
        let overdue = Priority::ALL.into_iter().filter(|it| has_ready(it) && passed_over(it) >= PASSED_OVER_AT_MOST);
        overdue.max_by_key(passed_over).or_else(|| Priority::ALL.into_iter().rfind(has_ready))
    }

    fn pop(&mut self) -> Option<Arc<K>> {
        let next = self.next_priority()?;
        for priority in Priority::ALL {
            let waits = priority != next && !self.ready[priority.lane()].is_empty();
            let passed_over = &mut self.passed_over[priority.lane()];
            *passed_over = if waits { passed_over.saturating_add(1) } else { 0 };
        }
        self.ready[next.lane()].pop()
    }

    /// Hands out the key whose turn it is.
    pub(super) fn take(&mut self, now: Instant) -> Taken<K> {
        self.promote(now);
        if let Some(key) = self.pop()
            && let Some(entry) = self.entries.get_mut(&key)
            && let Some(pending) = entry.pending.take()
        {
            self.has_begun = true;
            entry.in_flight = Some(now);
            entry.priority = Some(pending.priority);
            self.urgent += usize::from(pending.priority > Priority::Low);
            entry.is_resting = false;
            entry.rests_until = (!self.min_interval.is_zero()).then(|| now + self.min_interval);
            let reasons = pending.reasons.into_set();
            let request = Request { key: K::clone(&key), reasons, attempt: entry.failures.number.saturating_add(1) };
            return Taken::Request(request, now.saturating_duration_since(pending.due));
        }
        let delayed = self.delayed.first_key_value().map(|(&(due, _), _)| due);
        let parked = self.endpoints.values().filter_map(Endpoint::next);
        parked.chain(delayed).min().map_or(Taken::Nothing, Taken::NothingUntil)
    }

    /// The level of the backoff after a failure of the run that is in flight: it rises once per elapsed backoff, however many events have led
    /// to attempts meanwhile.
    pub(super) fn level_after_failure(&self, key: &K) -> u32 {
        self.entries.get(key).map_or(1, |entry| entry.failures.next_level(entry.in_flight))
    }

    /// Takes a key back. Returns how long it was in flight; nothing if it was not.
    pub(super) fn complete(&mut self, key: &K, completion: Completion, now: Instant) -> Option<Duration> {
        let shared = Arc::clone(self.entries.get_key_value(key)?.0);
        let entry = self.entries.get_mut(key)?;
        let started = entry.in_flight?;
        // A request that came meanwhile does not wait for an endpoint.
        let is_outdated = entry.is_outdated;
        entry.learn(completion, now);
        let waited_for = entry.endpoint.take();
        entry.in_flight = None;
        let priority = entry.priority.take().unwrap_or(Priority::Normal);
        self.urgent -= usize::from(priority > Priority::Low);
        let ended = completion;
        // There is no object any more to look at again.
        let completion = if std::mem::take(&mut entry.is_gone) { Completion::Done } else { completion };
        entry.is_ready = false;
        if let Some(pending) = &entry.pending {
            self.delayed.insert((pending.due, pending.arrival), shared);
        } else if completion == Completion::Done {
            self.retire(shared, now);
        }
        if let Some(endpoint) = waited_for {
            self.record_evidence(endpoint, ended, (started, now));
        }
        match completion {
            Completion::Done => {}
            Completion::DoneUntil(delay) => self.add(key.clone(), now + delay, Priority::Low, PERIODIC),
            Completion::Again(delay) => self.add(key.clone(), now + delay, priority, PERIODIC),
            Completion::Retry(delay) | Completion::Abandoned(delay) => {
                self.add(key.clone(), now + delay, Priority::Normal, RETRY);
            }
            Completion::Unavailable(endpoint) => {
                let chance = (self.chance)();
                let known = self.endpoints.entry(endpoint).or_insert_with(|| Endpoint::new(now, chance));
                if waited_for != Some(endpoint) {
                    known.outage.failed(false, started.into_std(), now.into_std(), chance);
                }
                self.add(key.clone(), now, Priority::Normal, RETRY);
                if let Some(entry) = self.entries.get_mut(key) {
                    entry.endpoint = Some(endpoint);
                }
                if !is_outdated {
                    self.park(key, endpoint, now);
                }
            }
        }
        Some(now.saturating_duration_since(started))
    }

    /// The evidence of a finished run about the endpoint that did not answer the run before.
    fn record_evidence(&mut self, endpoint: &'static str, completion: Completion, (started, now): (Instant, Instant)) {
        let Some(known) = self.endpoints.get_mut(endpoint) else { return };
        match completion {
            // A run that was abandoned may have hung there.
            Completion::Abandoned(_) => {
                known.outage.failed(true, started.into_std(), now.into_std(), (self.chance)());
            }
            Completion::Unavailable(other) if other == endpoint => {
                known.outage.failed(true, started.into_std(), now.into_std(), (self.chance)());
            }
            _ => known.outage.answered(now.into_std()),
        }
    }

    /// Lets the pending run of an idle key wait for the endpoint.
    fn park(&mut self, key: &K, endpoint: &'static str, now: Instant) {
        let (Some((shared, _)), Some(known)) = (self.entries.get_key_value(key), self.endpoints.get_mut(endpoint))
        else {
            return;
        };
        let shared = Arc::clone(shared);
        let Some(entry) = self.entries.get_mut(key) else { return };
        let Some(pending) = &entry.pending else { return };
        self.delayed.remove(&(pending.due, pending.arrival));
        let list = if known.outage.is_over() { &mut known.failed_again } else { &mut known.waiting };
        list.insert((entry.failures.number, pending.arrival), shared);
        entry.is_parked = true;
        let rested = now + PARKED_REST;
        entry.rests_until = Some(entry.rests_until.map_or(rested, |end| end.max(rested)));
    }

    /// Makes the next attempt the first.
    pub(super) fn forget_failures(&mut self, key: &K) {
        let Some((shared, _)) = self.entries.get_key_value(key) else { return };
        let shared = Arc::clone(shared);
        let Some(entry) = self.entries.get_mut(key) else { return };
        let failures = std::mem::take(&mut entry.failures).number;
        entry.is_outdated = entry.in_flight.is_some();
        // A new request does not wait for the endpoint: the next run tells the object how it stands.
        if std::mem::take(&mut entry.is_parked)
            && let Some(pending) = &mut entry.pending
        {
            if let Some(known) = entry.endpoint.and_then(|endpoint| self.endpoints.get_mut(endpoint)) {
                known.remove(failures, pending.arrival);
            }
            pending.due = entry.rests_until.map_or(pending.due, |end| end.max(pending.due));
            self.delayed.insert((pending.due, pending.arrival), shared);
        }
    }

    /// All keys and how they stand.
    pub(super) fn snapshot(&self, now: Instant) -> Vec<QueuedKey<K>> {
        let look = |(key, entry): (&Arc<K>, &Entry)| QueuedKey {
            key: K::clone(key),
            failures: entry.failures.number,
            in_flight_for: entry.in_flight.map(|since| now.saturating_duration_since(since)),
            due_in: entry.pending.as_ref().map(|pending| {
                let known =
                    entry.endpoint.filter(|_| entry.is_parked).and_then(|endpoint| self.endpoints.get(endpoint));
                known.and_then(Endpoint::next).unwrap_or(pending.due).saturating_duration_since(now)
            }),
            priority: entry.pending.as_ref().map(|pending| pending.priority),
            reasons: entry.pending.as_ref().map(|pending| pending.reasons.clone().into_set()).unwrap_or_default(),
        };
        let is_wanted = |(_, entry): &(&Arc<K>, &Entry)| entry.in_flight.is_some() || entry.pending.is_some();
        self.entries.iter().filter(is_wanted).map(look).collect()
    }

    /// Keys due at `now` that no worker has, by priority.
    pub(super) fn depth(&mut self, now: Instant, priority: Priority) -> usize {
        self.promote(now);
        self.ready[priority.lane()].len()
    }

    /// Whether at least so many keys of more than low priority are ready or in flight.
    pub(super) fn is_depth_at_least(&mut self, now: Instant, many: usize) -> bool {
        self.promote(now);
        let ready = [Priority::Normal, Priority::High].map(|priority| self.ready[priority.lane()].len());
        self.urgent + ready.iter().sum::<usize>() >= many
    }

    /// Since when workers have had the keys that are in flight.
    pub(super) fn in_flight(&self) -> impl Iterator<Item = Instant> {
        self.entries.values().filter_map(|entry| entry.in_flight)
    }

    /// Whether more is ready, so that another worker is worth waking.
    pub(super) fn has_ready(&self) -> bool {
        self.ready.iter().any(|lane| !lane.is_empty())
    }

    fn forget(&mut self, key: &K) {
        self.entries.remove(key);
        if self.entries.is_empty() && self.entries.capacity() > MANY {
            self.entries = HashMap::new();
        }
    }

    /// Lets those try that wait for an endpoint, as many as may by now.
    fn let_through(&mut self, now: Instant) {
        for known in self.endpoints.values_mut() {
            if known.outage.is_over() && known.waiting.is_empty() && !known.failed_again.is_empty() {
                *known = Endpoint {
                    outage: Outage::new(now.into_std(), (self.chance)()),
                    waiting: std::mem::take(&mut known.failed_again),
                    failed_again: BTreeMap::new(),
                };
            }
            while known.next().is_some_and(|next| next <= now)
                && let Some((_, key)) = known.waiting.pop_first()
            {
                known.outage.admit(now.into_std());
                if let Some(entry) = self.entries.get_mut(&key)
                    && let Some(pending) = &mut entry.pending
                {
                    pending.due = entry.rests_until.map_or(now, |end| end.max(now));
                    (entry.is_parked, entry.is_ready) = (false, false);
                    self.delayed.insert((pending.due, pending.arrival), key);
                }
            }
        }
        self.endpoints
            .retain(|_, known| !known.outage.is_over() || !known.waiting.is_empty() || !known.failed_again.is_empty());
    }

    fn promote(&mut self, now: Instant) {
        while let Some(first) = self.resting.first_entry()
            && first.key().0 <= now
        {
            let ((end, _), key) = first.remove_entry();
            if let Some(entry) = self.entries.get_mut(&key)
                && entry.rests_until == Some(end)
            {
                entry.is_resting = false;
            }
            let is_idle = |entry: &Entry| {
                entry.pending.is_none()
                    && entry.in_flight.is_none()
                    && entry.failures.number == 0
                    && entry.rests_until.is_none_or(|end| end <= now)
            };
            if self.entries.get(&key).is_some_and(is_idle) {
                self.forget(&key);
            }
        }
        self.let_through(now);
        while let Some(first) = self.delayed.first_entry()
            && first.key().0 <= now
        {
            let key = first.remove();
            if let Some(entry) = self.entries.get_mut(&key)
                && let Some(pending) = &entry.pending
            {
                entry.is_ready = true;
                self.ready[pending.priority.lane()].insert((self.namespace)(&key), pending.arrival, Arc::clone(&key));
            }
        }
    }
}

#[cfg(test)]
mod tests;
