//! Some rollouts hang, and the others take time.

use std::collections::BTreeMap;

use super::*;

/// A workload: its namespace, the second at which its content changes, and the seconds that its rollout takes. `None`: it hangs.
type Change = (&'static str, i64, Option<i64>);

/// Workloads that ask when their content changes, when they are called, and when they are told to ask again.
struct Cluster {
    budget: Budget,
    changes: Vec<Change>,
    /// The second at which each workload acts next: it asks, or its rollout ends.
    next: BTreeMap<usize, i64>,
    /// The second at which the rollout of each workload began.
    begun: BTreeMap<usize, i64>,
    now: i64,
}

impl Cluster {
    fn new(budget: Budget, changes: &[Change]) -> Self {
        let next = changes.iter().zip(0..).map(|((_, second, _), name)| (name, *second)).collect();
        Self { budget, changes: changes.to_vec(), next, begun: BTreeMap::new(), now: 0 }
    }

    fn key(&self, name: usize) -> WorkloadRef {
        of(self.changes[name].0, name)
    }

    /// Lets the time pass to the next second at which a workload acts. Returns `false` if none does.
    fn step(&mut self) -> bool {
        let Some(second) = self.next.values().copied().min() else { return false };
        self.now = second;
        while let Some((&name, _)) = self.next.iter().find(|(_, next)| **next == second) {
            self.act(name);
        }
        true
    }

    fn act(&mut self, name: usize) {
        self.next.remove(&name);
        let (key, now) = (self.key(name), at(self.now));
        let call = if self.begun.contains_key(&name) {
            self.budget.done(&key, now)
        } else {
            match self.budget.take(&key, "s", now) {
                Ok(()) => {
                    self.begun.insert(name, self.now);
                    let end = self.changes[name].2.map(|takes| (name, self.now + takes));
                    self.next.extend(end);
                }
                Err(spent) => {
                    assert!(spent.until > now, "it is told another time");
                    self.next.insert(name, spent.until.wall().as_second());
                }
            }
            self.budget.next(now)
        };
        self.next.extend(call.map(|called| (called.name.parse().unwrap(), self.now)));
    }

    /// Returns the longest wait of the workloads whose rollouts end.
    fn longest_wait(mut self) -> i64 {
        while self.step() {}
        let changes = self.changes.iter().zip(0..).filter(|((_, _, takes), _)| takes.is_some());
        changes.map(|((_, second, _), name)| self.begun[&name] - second).max().unwrap_or_default()
    }
}

/// Returns this many changes of a namespace.
fn changes(count: usize, namespace: &'static str, second: i64, takes: Option<i64>) -> Vec<Change> {
    vec![(namespace, second, takes); count]
}

#[test]
fn rollouts_that_hang_leave_others_their_slots_after_a_part_of_the_timeout() {
    // 20 that hang count for 30 seconds, so two namespaces share all 25 slots afterwards. Three rounds of 20 seconds make 60 rollouts.
    let hanging = changes(20, "a", 0, None);
    let healthy = [changes(30, "b", 100, Some(20)), changes(30, "c", 100, Some(20))].concat();
    let wait = Cluster::new(shared(25, 20), &[hanging, healthy].concat()).longest_wait();
    assert!(wait <= 40, "the last one waited {wait} s");
}

#[test]
fn all_slots_that_hang_in_two_namespaces_leave_others_what_they_hold_too_long() {
    // The 20 of one namespace count for 30 seconds, and the 5 of the other one for 120.
    let hanging = [changes(20, "a", 0, None), changes(5, "b", 0, None)].concat();
    let healthy = [changes(20, "c", 1, Some(20)), changes(20, "d", 1, Some(20))].concat();
    let wait = Cluster::new(shared(25, 20), &[hanging, healthy].concat()).longest_wait();
    assert!(wait <= 50, "the last one waited {wait} s");
}

#[test]
fn a_namespace_without_rate_leaves_a_free_slot_to_others() {
    let limits = Limits { per_minute: Some(4), ..shared(2, 1).limits };
    let mut budget = Budget::new(limits);
    for name in 0..2 {
        assert!(budget.take(&of("a", name), "s", at(0)).is_ok());
        assert_eq!(budget.done(&of("a", name), at(1)), None);
    }
    assert!(budget.take(&of("b", 0), "s", at(2)).is_ok() && budget.take(&of("c", 0), "s", at(2)).is_ok());
    assert!(budget.take(&of("a", 2), "s", at(3)).is_err() && budget.take(&of("d", 0), "s", at(3)).is_err());
    assert_eq!(budget.done(&of("b", 0), at(4)), Some(of("a", 2)));
    let spent = Spent { by: Limit::RateOfNamespace(2), until: at(60) };
    assert_eq!(budget.take(&of("a", 2), "s", at(4)), Err(spent));
    assert_eq!(budget.next(at(4)), Some(of("d", 0)), "the slot is of no use to the other one for now");
}

#[test]
fn a_called_workload_that_fails_before_it_asks_leaves_its_slot_to_the_next() {
    let mut budget = budget(None, Some(1));
    assert!(budget.take(&key(1), "s", at(0)).is_ok());
    assert!(budget.take(&key(2), "s", at(1)).is_err() && budget.take(&key(3), "s", at(1)).is_err());
    assert_eq!(budget.done(&key(1), at(2)), Some(key(2)));
    assert_eq!(budget.next(at(2)), None, "there is one slot");
    assert_eq!(budget.leave(&key(2), at(3)), Some(key(3)));
}

proptest! {
    /// No slot stays free for longer than the shortest time for which a slot counts, while a workload waits that may have it.
    #[test]
    fn no_slot_stays_free_while_a_workload_waits(
        changes in proptest::collection::vec((0..4_usize, 0..900_i64, proptest::option::of(1..90_i64)), 1..40),
        per_minute in proptest::option::of(2..30_usize),
    ) {
        let changes: Vec<Change> = changes
            .into_iter()
            .map(|(namespace, second, takes)| (["a", "b", "c", "d"][namespace], second, takes))
            .collect();
        let limits = Limits { per_minute, ..shared(6, 3).limits };
        let mut cluster = Cluster::new(Budget::new(limits), &changes);
        while let Some(next) = cluster.next.values().copied().min() {
            let now = cluster.now;
            prop_assert_eq!(cluster.budget.place_of_next(at(now)), None, "a slot that is free now is given away now");
            // A rollout that hangs frees its slot without an event.
            let latest = next - 1 - 200;
            prop_assert!(latest < now || cluster.budget.place_of_next(at(latest)).is_none(), "free at {latest}, asked at {next}");
            cluster.step();
        }
        prop_assert_eq!(cluster.begun.len(), changes.len(), "each one begins");
    }
}
