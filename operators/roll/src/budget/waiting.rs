//! The workloads that wait for a slot.

use std::mem;

use super::slots::Held;
use crate::{object::WorkloadRef, time::Time};

/// The workloads that wait for a slot, in order of arrival.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    waiters: Vec<Waiter>,
}

/// A workload that waits for a slot.
#[derive(Debug)]
struct Waiter {
    key: WorkloadRef,
    /// Whether the workload was called for a free slot, and has not asked again since.
    is_called: bool,
    /// The time until which the rate lets it not begin. Until then, a slot is of no use to it.
    rests_until: Option<Time>,
}

impl Waiting {
    /// Returns `true` if no workload waits.
    pub(super) fn is_empty(&self) -> bool {
        self.waiters.is_empty()
    }

    /// Adds a workload, or notes that it waits again.
    pub(super) fn add(&mut self, key: &WorkloadRef) {
        match self.waiters.iter_mut().find(|waiter| waiter.key == *key) {
            Some(waiter) => (waiter.is_called, waiter.rests_until) = (false, None),
            None => self.waiters.push(Waiter { key: key.clone(), is_called: false, rests_until: None }),
        }
    }

    /// Removes a workload.
    pub(super) fn remove(&mut self, key: &WorkloadRef) {
        self.waiters.retain(|waiter| waiter.key != *key);
    }

    /// Keeps the place of a workload that waits until then for something else. It stands in nobody's way.
    pub(super) fn rest(&mut self, key: &WorkloadRef, until: Time) {
        if let Some(waiter) = self.waiters.iter_mut().find(|waiter| waiter.key == *key) {
            (waiter.is_called, waiter.rests_until) = (false, Some(until));
        }
    }

    /// Calls the workload at this place, and returns it.
    pub(super) fn call(&mut self, place: usize) -> WorkloadRef {
        let waiter = &mut self.waiters[place];
        waiter.is_called = true;
        waiter.key.clone()
    }

    /// Returns the place of the first workload that was not called, among those for which there is room.
    pub(super) fn first_uncalled(&self, held: &Held, share: Option<usize>, room: usize, now: Time) -> Option<usize> {
        let mut order = self.order(held, share, None, now).into_iter().take(room);
        order.find(|place| !self.waiters[*place].is_called)
    }

    /// Returns the number of workloads ahead of this one. A workload that does not wait yet comes after the waiting ones of namespaces with as few slots.
    pub(super) fn ahead(&self, held: &Held, key: &WorkloadRef, share: Option<usize>, now: Time) -> usize {
        let order = self.order(held, share, Some(key), now);
        if let Some(place) = order.iter().position(|place| self.waiters[*place].key == *key) {
            return place;
        }
        let active = || self.waiters.iter().filter(|waiter| !waiter.rests(now));
        let mine = active().filter(|waiter| waiter.key.namespace == key.namespace).count();
        let load = held.get(&*key.namespace).copied().unwrap_or_default() + mine;
        let mut loads = held.clone();
        let before = active().filter(|waiter| {
            let other = loads.entry(waiter.key.namespace.clone()).or_default();
            *other += 1;
            *other <= load + 1 && share.is_none_or(|share| *other <= share)
        });
        before.count()
    }

    /// Returns the places of the workloads that may roll, in order. The next one is always of the namespace with the fewest slots at that point. Workloads
    /// beyond the share of their namespace are left out, and so are those that rest, unless one `asks`.
    fn order(&self, held: &Held, share: Option<usize>, asks: Option<&WorkloadRef>, now: Time) -> Vec<usize> {
        let mut loads = held.clone();
        let active = self.waiters.iter().zip(0..).filter(|(waiter, _)| !waiter.rests(now) || asks == Some(&waiter.key));
        let load = |(waiter, place): (&Waiter, usize)| {
            let load = loads.entry(waiter.key.namespace.clone()).or_default();
            (mem::replace(load, *load + 1), place)
        };
        let mut places: Vec<_> = active.map(load).collect();
        places.retain(|(load, _)| share.is_none_or(|share| *load < share));
        places.sort_unstable();
        places.into_iter().map(|(_, place)| place).collect()
    }
}

impl Waiter {
    /// Returns `true` if a slot is of no use to it now.
    fn rests(&self, now: Time) -> bool {
        self.rests_until.is_some_and(|until| until > now)
    }
}
