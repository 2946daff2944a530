//! The rollouts under way.

use std::collections::BTreeMap;

use super::Limits;
use crate::{object::WorkloadRef, time::Time};

/// The number of slots that each namespace holds.
pub(super) type Held = BTreeMap<String, usize>;

/// The rollouts under way.
#[derive(Debug, Default)]
pub(super) struct Slots {
    running: BTreeMap<WorkloadRef, Slot>,
}

/// A rollout under way.
#[derive(Debug)]
pub(super) struct Slot {
    /// When it began, or the first of the rollouts that it has superseded.
    pub(super) since: Time,
    /// The stamp that its pod template got.
    pub(super) stamp: String,
}

impl Slots {
    /// Forgets the rollouts that have hung for the whole timeout.
    pub(super) fn expire(&mut self, limits: &Limits, now: Time) {
        self.running.retain(|_, slot| slot.holds(limits, now));
    }

    /// Returns the slot of a workload.
    pub(super) fn get(&self, key: &WorkloadRef) -> Option<&Slot> {
        self.running.get(key)
    }

    /// Gives a workload a slot.
    pub(super) fn insert(&mut self, key: &WorkloadRef, since: Time, stamp: &str) {
        self.running.insert(key.clone(), Slot { since, stamp: stamp.to_owned() });
    }

    /// Gives a workload a slot whose record tells of a rollout, unless that has hung for the whole timeout, or the namespace has its share.
    pub(super) fn recorded(&mut self, limits: &Limits, key: &WorkloadRef, (since, now): (Time, Time), stamp: &str) {
        self.expire(limits, now);
        let own = self.running.keys().filter(|other| other.namespace == key.namespace).count();
        let slot = Slot { since, stamp: stamp.to_owned() };
        if slot.holds(limits, now) && limits.slots_of_namespace().is_none_or(|share| own < share) {
            self.running.insert(key.clone(), slot);
        }
    }

    /// Takes the slot of a workload away.
    pub(super) fn remove(&mut self, key: &WorkloadRef) {
        self.running.remove(key);
    }

    /// Returns the number of slots that each namespace holds.
    pub(super) fn held(&self, limits: &Limits, now: Time) -> Held {
        let mut held = Held::new();
        for (key, _) in self.running.iter().filter(|(_, slot)| slot.holds(limits, now)) {
            *held.entry(key.namespace.clone()).or_default() += 1;
        }
        held
    }

    /// Returns the number of free slots. A slot that only counts against its own namespace is free for others.
    pub(super) fn room(&self, limits: &Limits, held: &Held, now: Time) -> usize {
        limits.concurrent.map_or(usize::MAX, |most| most.saturating_sub(self.ends(limits, held, now).count()))
    }

    /// Returns the first time at which a slot counts against its own namespace alone.
    pub(super) fn first_end(&self, limits: &Limits, held: &Held, now: Time) -> Option<Time> {
        self.ends(limits, held, now).min()
    }

    /// Returns the first time at which a slot of a namespace is free though its rollout hangs.
    pub(super) fn first_end_in(&self, limits: &Limits, namespace: &str, now: Time) -> Option<Time> {
        let own = self.running.iter().filter(|(key, slot)| key.namespace == namespace && slot.holds(limits, now));
        own.map(|(_, slot)| slot.since.later(limits.timeout)).min()
    }

    /// Returns the times at which the slots that count against all namespaces do so no more.
    fn ends(&self, limits: &Limits, held: &Held, now: Time) -> impl Iterator<Item = Time> {
        let ends = self.running.iter().map(|(key, slot)| {
            let count = held.get(&*key.namespace).and_then(|count| i32::try_from(*count).ok()).unwrap_or(1);
            slot.since.later(limits.timeout / count.max(1))
        });
        ends.filter(move |end| *end > now)
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.running.is_empty()
    }

    #[cfg(test)]
    pub(super) fn count_in(&self, namespace: &str) -> usize {
        self.running.keys().filter(|key| key.namespace == namespace).count()
    }
}

impl Slot {
    /// Returns `true` if it counts, at least against its own namespace.
    fn holds(&self, limits: &Limits, now: Time) -> bool {
        now.since(self.since) < limits.timeout
    }
}
