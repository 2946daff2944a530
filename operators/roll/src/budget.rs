//! The budget of rollouts in the cluster, per minute and at the same time. A state machine; the caller passes the time.
//!
//! Namespaces share both fairly. None has more than its share, and a free slot goes to the namespace with the fewest. A rollout that hangs counts
//! against its own namespace until the timeout, and against the others for a part of it only: the more slots its namespace has, the shorter.

use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
};

use jiff::SignedDuration;
use konverge_workload::Progress;

use crate::{object::WorkloadRef, time::Time};

/// The limits of the budget.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// In any minute; any number if there is none.
    pub per_minute: Option<usize>,
    /// Under way at the same time; any number if there is none.
    pub concurrent: Option<usize>,
    /// The maximum of concurrent rollouts in one namespace, which has the same share of the rollouts in a minute. `None` sets no limit for a
    /// namespace.
    pub per_namespace: Option<usize>,
    /// After this time, a rollout holds up no other.
    pub timeout: SignedDuration,
}

/// Why a rollout has to wait for others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spent {
    /// The limit that is used up.
    pub by: Limit,
    /// When it is there again at the latest.
    pub until: Time,
}

/// A limit of the budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// Rollouts in a minute.
    Rate,
    /// Rollouts at the same time.
    Concurrent,
    /// The namespace has begun this number of rollouts in a minute.
    RateOfNamespace(usize),
    /// The namespace has this number of concurrent rollouts.
    ConcurrentOfNamespace(usize),
}

/// The state of the budget.
#[derive(Debug)]
pub struct Budget {
    limits: Limits,
    /// When whose rollout began, as far as that may count.
    begun: BTreeSet<(Time, WorkloadRef)>,
    running: BTreeMap<WorkloadRef, Slot>,
    /// The workloads that wait for a slot, in order of arrival.
    waiting: Vec<Waiter>,
}

/// A workload that waits for a slot.
#[derive(Debug)]
struct Waiter {
    key: WorkloadRef,
    /// Whether the workload was called for a free slot, and has not asked again since.
    is_called: bool,
}

/// A rollout under way.
#[derive(Debug)]
struct Slot {
    /// When it began, or the first of the rollouts that it has superseded.
    since: Time,
    /// The stamp that its pod template got.
    stamp: String,
}

const MINUTE: SignedDuration = SignedDuration::from_mins(1);

/// The delay after which a workload asks again that waits only for called workloads.
const RECHECK: SignedDuration = SignedDuration::from_secs(1);

impl Budget {
    /// Creates a budget of which nothing is spent.
    pub fn new(limits: Limits) -> Self {
        Self { limits, begun: BTreeSet::new(), running: BTreeMap::new(), waiting: Vec::new() }
    }

    /// Takes the share of one rollout, or returns the time to ask again.
    pub fn take(&mut self, key: &WorkloadRef, stamp: &str, now: Time) -> Result<(), Spent> {
        self.running.retain(|_, slot| now.since(slot.since) < self.limits.timeout);
        // Whether the write was done is not known, and it is tried again: it has what it needs.
        if self.running.get(key).is_some_and(|slot| slot.stamp == stamp) {
            return Ok(());
        }
        // A rollout that supersedes one of its own keeps the place of that one and its time. A workload that never becomes ready would keep the place for ever
        // otherwise, if its content changes often enough.
        let superseded = self.running.get(key).map(|slot| slot.since);
        if superseded.is_none() {
            self.wait_for_slot(key, now)?;
        }
        self.begun.retain(|(begun, _)| is_of_this_minute(*begun, now));
        if let Some(share) = self.limits.rate_of_namespace() {
            let of_namespace = || self.begun.iter().filter(|(_, begun)| begun.namespace == key.namespace);
            let full = of_namespace().count().checked_sub(share).and_then(|over| of_namespace().nth(over));
            if let Some((first, _)) = full {
                return Err(Spent { by: Limit::RateOfNamespace(share), until: first.later(MINUTE) });
            }
        }
        if let Some(most) = self.limits.per_minute {
            let full = self.begun.len().checked_sub(most).and_then(|over| self.begun.iter().nth(over));
            if let Some((first, _)) = full {
                return Err(Spent { by: Limit::Rate, until: first.later(MINUTE) });
            }
            self.begun.insert((now, key.clone()));
        }
        self.waiting.retain(|waiting| waiting.key != *key);
        if self.limits.has_slots() {
            self.running.insert(key.clone(), Slot { since: superseded.unwrap_or(now), stamp: stamp.to_owned() });
        }
        Ok(())
    }

    /// Adds the workload to the waiting ones, and returns the reason why it has no slot yet.
    fn wait_for_slot(&mut self, key: &WorkloadRef, now: Time) -> Result<(), Spent> {
        let held = self.held();
        let own = || self.running.iter().filter(|(other, _)| other.namespace == key.namespace);
        let share = self.limits.slots_of_namespace();
        if let Some(share) = share.filter(|share| own().count() >= *share) {
            let until = own().map(|(_, slot)| slot.since.later(self.limits.timeout)).min().unwrap_or(now);
            self.wait(key);
            // Without a limit per namespace, the workload waits for the slots of all namespaces.
            let by = match self.limits.per_namespace {
                Some(_) => Limit::ConcurrentOfNamespace(share),
                None => Limit::Concurrent,
            };
            return Err(Spent { by, until });
        }
        let Some(most) = self.limits.concurrent else { return Ok(()) };
        let ends = self.running.iter().map(|(other, slot)| {
            let count = held.get(&*other.namespace).copied().unwrap_or(1);
            slot.since.later(self.limits.timeout / i32::try_from(count).unwrap_or(i32::MAX))
        });
        let ends: Vec<_> = ends.filter(|end| *end > now).collect();
        let room = most.saturating_sub(ends.len());
        if room > 0 && ahead(&self.waiting, &held, key, share) < room {
            return Ok(());
        }
        let until = ends.into_iter().min().unwrap_or_else(|| now.later(RECHECK));
        self.wait(key);
        Err(Spent { by: Limit::Concurrent, until })
    }

    /// Returns the number of slots that each namespace holds.
    fn held(&self) -> BTreeMap<String, usize> {
        let mut held = BTreeMap::new();
        for key in self.running.keys() {
            *held.entry(key.namespace.clone()).or_default() += 1;
        }
        held
    }

    fn wait(&mut self, key: &WorkloadRef) {
        match self.waiting.iter_mut().find(|waiter| waiter.key == *key) {
            Some(waiter) => waiter.is_called = false,
            None => self.waiting.push(Waiter { key: key.clone(), is_called: false }),
        }
    }

    /// The rollout was not begun after all. Returns who may go now.
    #[must_use]
    pub fn give_back(&mut self, key: &WorkloadRef) -> Option<WorkloadRef> {
        let begun = self.begun.iter().rev().find(|(_, begun)| begun == key).cloned();
        if let Some(begun) = begun {
            self.begun.remove(&begun);
        }
        self.done(key)
    }

    /// A watch shows a workload that was rolled by us, then; `None` if its record tells a time in the future, which counts for no minute. `is_over` is whether nobody will say more of its rollout. Returns who may go now.
    #[must_use]
    pub fn seen(
        &mut self,
        key: &WorkloadRef,
        stamp: &str,
        (since, now): (Option<Time>, Time),
        is_over: bool,
    ) -> Option<WorkloadRef> {
        // A rollout that an earlier leader began counts, too. One of this process is in already.
        if let Some(since) = since.filter(|since| self.limits.per_minute.is_some() && is_of_this_minute(*since, now)) {
            self.begun.retain(|(begun, _)| is_of_this_minute(*begun, now));
            // The record says when it began on the wall clock alone.
            if !self.begun.iter().any(|(begun, known)| known == key && begun.wall() == since.wall()) {
                self.begun.insert((since, key.clone()));
            }
        }
        if !self.limits.has_slots() {
            return None;
        }
        match self.running.get(key) {
            // The event may be from before our write.
            Some(slot) if slot.stamp == stamp && is_over => return self.done(key),
            // It began before we did.
            None if !is_over => {
                let slot = Slot { since: since.unwrap_or(now), stamp: stamp.to_owned() };
                self.running.insert(key.clone(), slot);
            }
            Some(_) | None => {}
        }
        None
    }

    /// A workload need not be rolled now. A slot that it has taken and not used is free again. Returns who may go now.
    #[must_use]
    pub fn release_slot(&mut self, key: &WorkloadRef, stamp: Option<&str>) -> Option<WorkloadRef> {
        self.waiting.retain(|waiting| waiting.key != *key);
        if self.running.get(key).is_some_and(|slot| Some(slot.stamp.as_str()) != stamp) {
            self.running.remove(key);
        }
        self.next()
    }

    /// A rollout is done, or given up, or its workload is gone. Returns who may go now.
    #[must_use]
    pub fn done(&mut self, key: &WorkloadRef) -> Option<WorkloadRef> {
        self.waiting.retain(|waiting| waiting.key != *key);
        self.running.remove(key);
        self.next()
    }

    /// Returns the next waiting workload, if there is a free slot. While another called workload has not asked yet, it may be one too many, which
    /// then waits again.
    fn next(&mut self) -> Option<WorkloadRef> {
        if self.limits.concurrent.is_some_and(|most| self.running.len() >= most) {
            return None;
        }
        let (held, share) = (self.held(), self.limits.slots_of_namespace());
        let place = order(&self.waiting, &held, share).into_iter().find(|place| !self.waiting[*place].is_called)?;
        let waiter = &mut self.waiting[place];
        waiter.is_called = true;
        Some(waiter.key.clone())
    }
}

impl Limits {
    /// Returns `true` if the number of concurrent rollouts is limited.
    fn has_slots(&self) -> bool {
        self.concurrent.is_some() || self.per_namespace.is_some()
    }

    /// Returns the maximum number of slots of a namespace.
    fn slots_of_namespace(&self) -> Option<usize> {
        [self.per_namespace, self.concurrent].into_iter().flatten().min()
    }

    /// Returns the maximum number of rollouts that a namespace may begin in a minute.
    fn rate_of_namespace(&self) -> Option<usize> {
        let (rate, share, all) = (self.per_minute?, self.per_namespace?, self.concurrent?);
        Some(rate.saturating_mul(share).div_ceil(all).min(rate))
    }
}

/// Returns the indexes of the workloads that may roll, in order. The next one is always of the namespace with the fewest slots at that point.
/// Workloads beyond the share of their namespace are left out.
fn order(waiting: &[Waiter], held: &BTreeMap<String, usize>, share: Option<usize>) -> Vec<usize> {
    let mut loads = held.clone();
    let load = |waiter: &Waiter| {
        let load = loads.entry(waiter.key.namespace.clone()).or_default();
        mem::replace(load, *load + 1)
    };
    let mut places: Vec<_> = waiting.iter().map(load).zip(0..).collect();
    places.retain(|(load, _)| share.is_none_or(|share| *load < share));
    places.sort_unstable();
    places.into_iter().map(|(_, place)| place).collect()
}

/// Returns the number of workloads ahead of this one. A workload that does not wait yet comes after the waiting ones of namespaces with as few slots.
fn ahead(waiting: &[Waiter], held: &BTreeMap<String, usize>, key: &WorkloadRef, share: Option<usize>) -> usize {
    let order = order(waiting, held, share);
    if let Some(place) = order.iter().position(|place| waiting[*place].key == *key) {
        return place;
    }
    let mine = waiting.iter().filter(|waiter| waiter.key.namespace == key.namespace).count();
    let load = held.get(&*key.namespace).copied().unwrap_or_default() + mine;
    let mut loads = held.clone();
    let before = waiting.iter().filter(|waiter| {
        let other = loads.entry(waiter.key.namespace.clone()).or_default();
        *other += 1;
        *other <= load + 1 && share.is_none_or(|share| *other <= share)
    });
    before.count()
}

/// Returns whether the state of a rollout is final.
pub(crate) fn is_over(progress: Progress) -> bool {
    matches!(progress, Progress::Ready | Progress::Failed | Progress::Unknown)
}

fn is_of_this_minute(time: Time, now: Time) -> bool {
    now.since(time) < MINUTE
}

#[cfg(test)]
mod tests {
    use konverge_workload::WorkloadKind;
    use proptest::prelude::*;

    use super::*;

    fn key(name: usize) -> WorkloadRef {
        WorkloadRef { namespace: "shop".to_owned(), kind: WorkloadKind::Deployment, name: name.to_string() }
    }

    fn at(second: i64) -> Time {
        Time::at(second)
    }

    fn budget(per_minute: Option<usize>, concurrent: Option<usize>) -> Budget {
        Budget::new(Limits { per_minute, concurrent, per_namespace: None, timeout: SignedDuration::from_mins(10) })
    }

    #[test]
    fn without_limits_everybody_goes_and_nothing_is_kept() {
        let mut budget = budget(None, None);
        assert!((0..1000).all(|name| budget.take(&key(name), "s", at(0)).is_ok()));
        assert!(budget.begun.is_empty() && budget.running.is_empty());
    }

    #[test]
    fn who_waits_goes_in_order_when_one_is_done() {
        let mut budget = budget(None, Some(2));
        assert!(budget.take(&key(1), "s", at(0)).is_ok() && budget.take(&key(2), "s", at(1)).is_ok());
        let spent = Spent { by: Limit::Concurrent, until: at(600) };
        assert_eq!(budget.take(&key(3), "s", at(2)), Err(spent));
        assert_eq!(budget.take(&key(4), "s", at(2)), Err(spent));
        assert!(budget.take(&key(1), "s", at(3)).is_ok(), "its own place is its own");
        assert_eq!(budget.done(&key(9)), None, "nobody's place");
        assert_eq!(budget.done(&key(2)), Some(key(3)));
        assert!(budget.take(&key(3), "s", at(4)).is_ok());
        assert_eq!(budget.done(&key(3)), Some(key(4)));
        assert_eq!(budget.done(&key(1)), None);
    }

    #[test]
    fn whose_turn_it_is_and_who_leaves_passes_it_on() {
        let mut budget = budget(None, Some(1));
        assert!(budget.take(&key(1), "s", at(0)).is_ok());
        assert!(budget.take(&key(2), "s", at(1)).is_err() && budget.take(&key(3), "s", at(1)).is_err());
        assert_eq!(budget.done(&key(1)), Some(key(2)));
        // It opts out before it has taken its slot.
        assert_eq!(budget.done(&key(2)), Some(key(3)));
    }

    #[test]
    fn asking_twice_is_no_second_place() {
        let mut budget = budget(None, Some(2));
        assert!(budget.take(&key(1), "s", at(0)).is_ok() && budget.take(&key(2), "s", at(0)).is_ok());
        assert!(budget.take(&key(3), "s", at(1)).is_err() && budget.take(&key(3), "s", at(2)).is_err());
        assert_eq!(budget.done(&key(1)), Some(key(3)));
        assert_eq!(budget.done(&key(2)), None);
    }

    #[test]
    fn one_that_never_ends_makes_room() {
        let mut budget = budget(None, Some(1));
        assert_eq!(budget.seen(&key(1), "s", (Some(at(0)), at(0)), false), None);
        assert!(budget.take(&key(2), "s", at(599)).is_err());
        assert!(budget.take(&key(2), "s", at(600)).is_ok());
    }

    #[test]
    fn a_rollout_is_over_when_the_watch_shows_it_with_what_it_got() {
        let mut budget = budget(None, Some(1));
        assert_eq!(budget.seen(&key(1), "s", (Some(at(0)), at(0)), true), None, "over before we began");
        assert!(budget.take(&key(1), "t", at(0)).is_ok());
        assert!(budget.take(&key(2), "s", at(1)).is_err());
        assert_eq!(budget.seen(&key(1), "s", (Some(at(0)), at(0)), true), None, "from before");
        assert_eq!(budget.seen(&key(1), "t", (Some(at(0)), at(0)), false), None, "under way");
        assert_eq!(budget.seen(&key(1), "t", (Some(at(0)), at(0)), true), Some(key(2)));
    }

    #[test]
    fn what_began_before_a_restart_is_of_this_minute_too() {
        let mut budget = budget(Some(2), None);
        assert!(budget.take(&key(1), "s", at(100)).is_ok());
        assert_eq!(budget.seen(&key(1), "s", (Some(at(100)), at(101)), false), None, "counted already");
        assert_eq!(budget.seen(&key(2), "s", (Some(at(20)), at(101)), true), None, "a while ago");
        assert_eq!(budget.begun.len(), 1);
        assert_eq!(budget.seen(&key(3), "s", (Some(at(90)), at(101)), true), None);
        let spent = Spent { by: Limit::Rate, until: at(150) };
        assert_eq!(budget.take(&key(4), "s", at(102)), Err(spent));
        assert!(budget.take(&key(4), "s", at(150)).is_ok());
    }

    #[test]
    fn what_another_gives_back_is_its_own() {
        let mut budget = budget(Some(2), None);
        assert!(budget.take(&key(1), "s", at(0)).is_ok() && budget.take(&key(2), "s", at(30)).is_ok());
        assert_eq!(budget.give_back(&key(1)), None);
        assert!(budget.take(&key(3), "s", at(40)).is_ok());
        assert_eq!(budget.take(&key(4), "s", at(80)), Err(Spent { by: Limit::Rate, until: at(90) }));
    }

    #[test]
    fn room_that_is_not_used_goes_to_the_next() {
        let mut budget = budget(None, Some(1));
        assert!(budget.take(&key(1), "t", at(0)).is_ok());
        assert!(budget.take(&key(2), "s", at(1)).is_err() && budget.take(&key(3), "s", at(1)).is_err());
        assert_eq!(budget.release_slot(&key(1), Some("t")), None, "it is under way");
        assert_eq!(
            budget.release_slot(&key(1), Some("s")),
            Some(key(2)),
            "the write was lost, and is not needed any more"
        );
        assert_eq!(budget.release_slot(&key(2), None), Some(key(3)));
        assert_eq!(budget.release_slot(&key(3), None), None);
    }

    #[test]
    fn a_write_that_is_tried_again_takes_nothing_more() {
        let mut budget = budget(Some(2), Some(1));
        for second in [0, 200, 400, 599] {
            assert!(budget.take(&key(1), "s", at(second)).is_ok());
            assert_eq!(budget.begun.len(), 1, "{second}");
        }
        assert_eq!(budget.take(&key(2), "s", at(599)), Err(Spent { by: Limit::Concurrent, until: at(600) }));
        assert!(budget.take(&key(2), "s", at(600)).is_ok(), "its time is over however often it was tried");
    }

    #[test]
    fn a_rollout_that_supersedes_its_own_needs_no_other_place_and_gets_no_more_time() {
        let mut budget = budget(None, Some(1));
        for (second, stamp) in [(0, "s"), (200, "t"), (400, "u")] {
            assert!(budget.take(&key(1), stamp, at(second)).is_ok(), "{second}");
        }
        assert_eq!(budget.seen(&key(1), "t", (Some(at(200)), at(401)), true), None, "from before");
        assert_eq!(budget.take(&key(2), "s", at(599)), Err(Spent { by: Limit::Concurrent, until: at(600) }));
        assert!(budget.take(&key(2), "s", at(600)).is_ok());
        assert!(budget.take(&key(1), "v", at(601)).is_err(), "its time is over, so it waits as all others do");
    }

    fn of(namespace: &str, name: usize) -> WorkloadRef {
        WorkloadRef { namespace: namespace.to_owned(), ..key(name) }
    }

    fn shared(concurrent: usize, per_namespace: usize) -> Budget {
        let per_namespace = Some(per_namespace);
        let timeout = SignedDuration::from_mins(10);
        Budget::new(Limits { per_minute: Some(100), concurrent: Some(concurrent), per_namespace, timeout })
    }

    #[test]
    fn a_namespace_has_no_more_than_its_share() {
        let mut budget = shared(5, 3);
        for name in 0..3 {
            assert!(budget.take(&of("a", name), "s", at(0)).is_ok());
        }
        let spent = Spent { by: Limit::ConcurrentOfNamespace(3), until: at(600) };
        assert_eq!(budget.take(&of("a", 3), "s", at(1)), Err(spent), "also while there is room");
        assert!(budget.take(&of("b", 0), "s", at(1)).is_ok());
        assert_eq!(budget.done(&of("b", 0)), None, "that is no place for it");
        assert_eq!(budget.done(&of("a", 1)), Some(of("a", 3)));
        assert!(budget.take(&of("a", 3), "s", at(2)).is_ok());
    }

    #[test]
    fn a_free_slot_goes_to_the_namespace_with_the_fewest_in_turn() {
        let mut budget = shared(4, 4);
        for name in 0..4 {
            assert!(budget.take(&of("a", name), "s", at(0)).is_ok());
        }
        for waiter in [of("a", 4), of("a", 5), of("b", 0), of("b", 1), of("c", 0)] {
            assert!(budget.take(&waiter, "s", at(1)).is_err());
        }
        let mut order = Vec::new();
        for name in 0..4 {
            let next = budget.done(&of("a", name)).unwrap();
            assert!(budget.take(&of("a", 9), "s", at(2)).is_err(), "one that comes later does not go first");
            assert!(budget.take(&next, "s", at(2)).is_ok());
            order.push(next);
        }
        assert_eq!(order, [of("b", 0), of("c", 0), of("a", 4), of("a", 5)], "where they have as many, who came first");
    }

    /// One namespace whose rollouts never end, and another one that comes later.
    #[test]
    fn rollouts_that_hang_hold_up_other_namespaces_the_shorter_the_more_there_are() {
        for (stuck, until) in [(1, 600), (2, 300), (10, 60)] {
            let mut budget = shared(stuck, stuck);
            for name in 0..stuck {
                assert!(budget.take(&of("a", name), "s", at(0)).is_ok());
            }
            let spent = Spent { by: Limit::Concurrent, until: at(until) };
            assert_eq!(budget.take(&of("b", 0), "s", at(1)), Err(spent), "{stuck}");
            assert!(budget.take(&of("b", 0), "s", at(until)).is_ok(), "{stuck}");
            let own = budget.take(&of("a", 99), "s", at(until)).err().map(|spent| spent.by);
            assert!(until == 600 || own == Some(Limit::ConcurrentOfNamespace(stuck)), "its own wait for all of it");
        }
    }

    #[test]
    fn a_namespace_has_the_same_share_of_the_rate() {
        let mut budget = Budget::new(Limits { per_minute: Some(10), ..shared(5, 2).limits });
        let mut begun = 0;
        while budget.take(&of("a", begun), "s", at(0)).is_ok() {
            let _ = budget.done(&of("a", begun));
            begun += 1;
        }
        assert_eq!(begun, 4);
        let spent = Spent { by: Limit::RateOfNamespace(4), until: at(60) };
        assert_eq!(budget.take(&of("a", 9), "s", at(1)), Err(spent));
        assert!(budget.take(&of("b", 0), "s", at(1)).is_ok());
    }

    #[test]
    fn what_was_given_back_does_not_count() {
        let mut budget = budget(Some(1), Some(1));
        assert!(budget.take(&key(1), "s", at(0)).is_ok());
        assert_eq!(budget.give_back(&key(1)), None);
        assert!(budget.take(&key(2), "s", at(0)).is_ok());
    }

    proptest! {
        /// Some namespaces never become ready. A workload that asks again when called begins within a timeout of its turn, and no namespace exceeds
        /// its share.
        #[test]
        fn no_namespace_starves(asks in proptest::collection::vec((0..4_usize, 0..20_i64), 1..60)) {
            let mut budget = shared(6, 3);
            let mut now = 0;
            for (name, (namespace, pause)) in asks.into_iter().enumerate() {
                now += pause;
                // The last namespace is well: its rollouts end at once.
                let own = of(&namespace.to_string(), name);
                let taken = budget.take(&own, "s", at(now));
                if namespace == 3 {
                    let mut later = now;
                    let mut taken = taken;
                    while let Err(spent) = taken {
                        prop_assert!(spent.until > at(later), "it is told another time");
                        later = spent.until.wall().as_second();
                        taken = budget.take(&own, "s", at(later));
                    }
                    // A namespace with three slots loses each after a third of the timeout.
                    prop_assert!(later - now <= 300, "it waited {} s", later - now);
                    now = later;
                    let _ = budget.done(&own);
                }
                for other in 0..4 {
                    let held = budget.running.keys().filter(|key| key.namespace == other.to_string()).count();
                    prop_assert!(held <= 3);
                }
            }
        }

        /// No minute has more rollouts than allowed, and a workload that comes back when it is told to gets its slot.
        #[test]
        fn the_rate_is_kept_in_every_minute(most in 1..4_usize, pauses in proptest::collection::vec(0..40_i64, 1..60)) {
            let mut budget = budget(Some(most), None);
            let mut now = 0;
            let mut begun = Vec::new();
            for (name, pause) in pauses.into_iter().enumerate() {
                now += pause;
                if let Err(spent) = budget.take(&key(name), "s", at(now)) {
                    prop_assert_eq!(spent.by, Limit::Rate);
                    prop_assert!(spent.until > at(now) && spent.until <= at(now + 60));
                    now = spent.until.wall().as_second();
                    prop_assert!(budget.take(&key(name), "s", at(now)).is_ok());
                }
                begun.push(now);
                prop_assert!(begun.iter().filter(|time| now - **time < 60).count() <= most);
            }
        }
    }
}
