//! The rollouts of the last minute.

use std::collections::BTreeMap;

use jiff::SignedDuration;

use super::{Limit, Limits, Spent};
use crate::{object::WorkloadRef, time::Time};

/// The rollouts of the last minute.
#[derive(Debug, Default)]
pub(super) struct Rate {
    /// The rollouts by the time at which they began, and how the budget knows of each.
    begun: BTreeMap<(Time, WorkloadRef), Evidence>,
}

/// How the budget knows of a rollout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Evidence {
    /// This process began it.
    Own,
    /// The record of the workload says so.
    Record,
}

const MINUTE: SignedDuration = SignedDuration::from_mins(1);

impl Rate {
    /// Returns the limit that lets no workload of this namespace begin now. Returns `None` if one may begin.
    pub(super) fn spent(&mut self, limits: &Limits, namespace: &str, now: Time) -> Option<Spent> {
        self.begun.retain(|(begun, _), _| is_of_this_minute(*begun, now));
        let of_namespace = limits.rate_of_namespace().and_then(|share| {
            let until = free_again(self.of_namespace(namespace), share)?;
            Some(Spent { by: Limit::RateOfNamespace(share), until })
        });
        of_namespace.or_else(|| {
            let until = free_again(self.begun.keys().map(|(begun, _)| *begun), limits.per_minute?)?;
            Some(Spent { by: Limit::Rate, until })
        })
    }

    /// Notes that this process begins a rollout.
    pub(super) fn begin(&mut self, limits: &Limits, key: &WorkloadRef, now: Time) {
        if limits.per_minute.is_some() {
            self.begun.insert((now, key.clone()), Evidence::Own);
        }
    }

    /// The last rollout of a workload was not begun after all.
    pub(super) fn give_back(&mut self, key: &WorkloadRef) {
        let mut own = self.begun.iter().filter(|((_, begun), evidence)| begun == key && **evidence == Evidence::Own);
        if let Some((last, _)) = own.next_back().map(|(begun, evidence)| (begun.clone(), *evidence)) {
            self.begun.remove(&last);
        }
    }

    /// The record of a workload tells of a rollout. The rollout replaces the one of an earlier record, so a workload counts once, however often its record is written.
    /// Beyond the share of the namespace it does not count.
    pub(super) fn recorded(&mut self, limits: &Limits, key: &WorkloadRef, since: Time, now: Time) {
        if limits.per_minute.is_none() || !is_of_this_minute(since, now) {
            return;
        }
        self.begun.retain(|(begun, _), _| is_of_this_minute(*begun, now));
        // The record says when it began on the wall clock alone.
        if self.begun.keys().any(|(begun, known)| known == key && begun.wall() == since.wall()) {
            return;
        }
        self.begun.retain(|(_, known), evidence| known != key || *evidence == Evidence::Own);
        if limits.rate_of_namespace().is_none_or(|share| self.of_namespace(&key.namespace).count() < share) {
            self.begun.insert((since, key.clone()), Evidence::Record);
        }
    }

    /// Returns the times at which the rollouts of a namespace began, in order.
    fn of_namespace(&self, namespace: &str) -> impl DoubleEndedIterator<Item = Time> {
        self.begun.keys().filter(move |(_, begun)| begun.namespace == namespace).map(|(begun, _)| *begun)
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.begun.len()
    }
}

/// Returns the time from which fewer than `most` of these rollouts are of the last minute. Returns `None` if that is so now.
fn free_again(begun: impl DoubleEndedIterator<Item = Time>, most: usize) -> Option<Time> {
    Some(begun.rev().nth(most.checked_sub(1)?)?.later(MINUTE))
}

fn is_of_this_minute(time: Time, now: Time) -> bool {
    now.since(time) < MINUTE
}
