//! The budget of rollouts in the cluster, per minute and at the same time. A state machine; the caller passes the time.
//!
//! Namespaces share both fairly. None has more than its share, and a free slot goes to the namespace with the fewest. A rollout that hangs counts
//! against its own namespace until the timeout, and against the others for a part of it only: the more slots its namespace has, the shorter.
//!
//! Rollouts that an earlier leader began are known from the records of workloads. Anybody who may write a workload can write its record, so such a
//! rollout counts within the share of its namespace only, and once for each workload.

mod rate;
mod slots;
mod waiting;

use jiff::SignedDuration;
use konverge_workload::Progress;

use self::{rate::Rate, slots::Slots, waiting::Waiting};
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
    /// The time to ask again at the latest.
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
    rate: Rate,
    slots: Slots,
    waiting: Waiting,
}

/// The shortest delay after which a workload asks again for a slot.
const RECHECK: SignedDuration = SignedDuration::from_secs(1);

impl Budget {
    /// Creates a budget of which nothing is spent.
    pub fn new(limits: Limits) -> Self {
        Self { limits, rate: Rate::default(), slots: Slots::default(), waiting: Waiting::default() }
    }

    /// Takes the share of one rollout, or returns the time to ask again. Afterwards the caller wakes the workload that [`next`](Self::next) returns.
    pub fn take(&mut self, key: &WorkloadRef, stamp: &str, now: Time) -> Result<(), Spent> {
        self.slots.expire(&self.limits, now);
        let superseded = self.slots.get(key);
        // Whether the write was done is not known, and it is tried again: it has what it needs.
        if superseded.is_some_and(|slot| slot.stamp == stamp) {
            return Ok(());
        }
        // A rollout that supersedes one of its own keeps the place of that one and its time. A workload that never becomes ready would keep the place for ever
        // otherwise, if its content changes often enough.
        let since = superseded.map(|slot| slot.since);
        if since.is_none() {
            self.wait_for_slot(key, now)?;
        }
        if let Some(spent) = self.rate.spent(&self.limits, &key.namespace, now) {
            // The workload keeps its place in the order, and the others do not wait for it.
            self.waiting.rest(key, spent.until);
            return Err(spent);
        }
        self.rate.begin(&self.limits, key, now);
        self.waiting.remove(key);
        if self.limits.has_slots() {
            self.slots.insert(key, since.unwrap_or(now), stamp);
        }
        Ok(())
    }

    /// Adds the workload to the waiting ones, and returns the reason why it has no slot yet.
    fn wait_for_slot(&mut self, key: &WorkloadRef, now: Time) -> Result<(), Spent> {
        let Self { limits, slots, waiting, .. } = self;
        let held = slots.held(limits, now);
        let own = held.get(&*key.namespace).copied().unwrap_or_default();
        let share = limits.slots_of_namespace();
        if let Some(share) = share.filter(|share| own >= *share) {
            let until = slots.first_end_in(limits, &key.namespace, now);
            waiting.add(key);
            // Without a limit per namespace, the workload waits for the slots of all namespaces.
            let by = match limits.per_namespace {
                Some(_) => Limit::ConcurrentOfNamespace(share),
                None => Limit::Concurrent,
            };
            return Err(Spent { by, until: limits.ask_again(until, now) });
        }
        let room = slots.room(limits, &held, now);
        if room > 0 && room > waiting.ahead(&held, key, share, now) {
            return Ok(());
        }
        let until = slots.first_end(limits, &held, now);
        waiting.add(key);
        Err(Spent { by: Limit::Concurrent, until: limits.ask_again(until, now) })
    }

    /// The rollout was not begun after all. Returns who may go now.
    #[must_use]
    pub fn give_back(&mut self, key: &WorkloadRef, now: Time) -> Option<WorkloadRef> {
        self.rate.give_back(key);
        self.done(key, now)
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
        if let Some(since) = since {
            self.rate.recorded(&self.limits, key, since, now);
        }
        if !self.limits.has_slots() {
            return None;
        }
        match self.slots.get(key) {
            // The event may be from before our write.
            Some(slot) if slot.stamp == stamp && is_over => return self.done(key, now),
            // It began before we did.
            None if !is_over => self.slots.recorded(&self.limits, key, (since.unwrap_or(now), now), stamp),
            Some(_) | None => {}
        }
        None
    }

    /// A workload need not be rolled now. A slot that it has taken and not used is free again. Returns who may go now.
    #[must_use]
    pub fn release_slot(&mut self, key: &WorkloadRef, stamp: Option<&str>, now: Time) -> Option<WorkloadRef> {
        if self.slots.get(key).is_some_and(|slot| Some(slot.stamp.as_str()) != stamp) {
            self.slots.remove(key);
        }
        self.leave(key, now)
    }

    /// A rollout is done, or given up, or its workload is gone. Returns who may go now.
    #[must_use]
    pub fn done(&mut self, key: &WorkloadRef, now: Time) -> Option<WorkloadRef> {
        self.slots.remove(key);
        self.leave(key, now)
    }

    /// A workload does not wait for a slot any more, or not until it asks again. Returns who may go now.
    #[must_use]
    pub fn leave(&mut self, key: &WorkloadRef, now: Time) -> Option<WorkloadRef> {
        self.waiting.remove(key);
        self.next(now)
    }

    /// Returns the next waiting workload that was not called yet, if there is a slot for it. It is called by that.
    #[must_use]
    pub fn next(&mut self, now: Time) -> Option<WorkloadRef> {
        let place = self.place_of_next(now)?;
        Some(self.waiting.call(place))
    }

    /// Returns the place of the next waiting workload that was not called yet. The budget keeps a slot for a called workload until that workload asks.
    fn place_of_next(&self, now: Time) -> Option<usize> {
        let Self { limits, slots, waiting, .. } = self;
        if waiting.is_empty() {
            return None;
        }
        let held = slots.held(limits, now);
        let room = Some(slots.room(limits, &held, now)).filter(|room| *room > 0)?;
        waiting.first_uncalled(&held, limits.slots_of_namespace(), room, now)
    }
}

impl Spent {
    /// Returns the time before which the rollout cannot begin. A slot may become free at any time.
    pub fn not_before(&self) -> Option<Time> {
        match self.by {
            Limit::Rate | Limit::RateOfNamespace(_) => Some(self.until),
            Limit::Concurrent | Limit::ConcurrentOfNamespace(_) => None,
        }
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

    /// Returns the time to ask again for a slot when the next one ends then. A slot may end sooner, because its namespace gets more of them, or the
    /// namespace that waits has fewer by then. So it is no later than after the shortest time for which a slot counts.
    fn ask_again(&self, end: Option<Time>, now: Time) -> Time {
        let most = self.slots_of_namespace().and_then(|most| i32::try_from(most.max(1)).ok()).unwrap_or(i32::MAX);
        let latest = now.later((self.timeout / most).max(RECHECK));
        end.map_or(latest, |end| end.min(latest))
    }

    /// Returns the maximum number of rollouts that a namespace may begin in a minute.
    fn rate_of_namespace(&self) -> Option<usize> {
        let (rate, share, all) = (self.per_minute?, self.per_namespace?, self.concurrent?);
        Some(rate.saturating_mul(share).div_ceil(all).min(rate))
    }
}

/// Returns whether the state of a rollout is final.
pub(crate) fn is_over(progress: Progress) -> bool {
    matches!(progress, Progress::Ready | Progress::Failed | Progress::Unknown)
}

#[cfg(test)]
mod tests;
