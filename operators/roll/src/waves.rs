//! The order of workloads that use the same source: the workloads of a smaller wave are rolled and ready before the next. Pure.
//!
//! If each of a thousand workloads looked after each of a thousand others, there would be a million looks, and as many again whenever one has changed. So
//! the workloads of earlier waves are kept in a [`WaveQueue`] for all that wait for them, and only a workload that has changed is looked at again.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use konverge_core::reverse_index::ReverseIndex;
use konverge_workload::Progress;

use crate::{
    object::{SourceName, WorkloadRef},
    time::Time,
};

/// Another workload, of an earlier wave, that uses what changed.
#[derive(Debug, Clone, Copy)]
pub struct Peer {
    /// Whether its pods run with what there is, as far as its record says.
    pub in_sync: bool,
    /// The state of its pods.
    pub progress: Progress,
    /// Whether its time to become ready is over, or its time to be read and written if it is out of sync.
    pub overdue: bool,
    /// The time at which this may change without an event.
    pub until: Option<Time>,
}

/// Whether it is a wave's turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WaveGate<K> {
    /// It is the turn of the workload.
    Now,
    /// One of an earlier wave is still to be rolled or to become ready: the last one of those, so that who waits need not look after each.
    After(K),
    /// One of an earlier wave does not become ready, or cannot be rolled: later waves stay as they are, until it does, it can, or its content
    /// changes.
    Halted(K),
}

impl<K: Ord> WaveGate<K> {
    /// Returns the workload that must move first.
    pub fn after(&self) -> Option<&K> {
        match self {
            Self::Now => None,
            Self::After(key) | Self::Halted(key) => Some(key),
        }
    }

    /// Returns the gate of a workload that is in two queues.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Now, turn) | (turn, Self::Now) => turn,
            (Self::Halted(one), Self::Halted(another)) => Self::Halted(one.min(another)),
            (Self::Halted(key), _) | (_, Self::Halted(key)) => Self::Halted(key),
            (Self::After(one), Self::After(another)) => Self::After(one.max(another)),
        }
    }
}

/// Whether a workload of an earlier wave blocks the later ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Blocks {
    /// The workload blocks no later wave.
    No,
    /// Later waves wait for the workload.
    First,
    /// Later waves wait for the workload, which does not become ready.
    Halting,
}

impl Peer {
    fn blocks(self) -> Blocks {
        match (self.in_sync, self.progress) {
            // No controller looks after it, so nothing will say more.
            (true, Progress::Ready | Progress::Unknown) => Blocks::No,
            (true, Progress::Failed) => Blocks::Halting,
            (true, Progress::Running | Progress::Unready) | (false, _) if self.overdue => Blocks::Halting,
            _ => Blocks::First,
        }
    }
}

/// The workloads of earlier waves that block a wave.
#[derive(Debug)]
pub struct WaveQueue<K> {
    /// Workloads that go first.
    first: BTreeSet<K>,
    /// Workloads that go first and do not come to an end.
    halting: BTreeSet<K>,
    /// When a workload is looked at again though nothing happens.
    due: BTreeSet<(Time, K)>,
    /// The same by workload.
    until: BTreeMap<K, Time>,
    /// Workloads to look at, with the number of the change that calls for it.
    invalidated: BTreeMap<K, u64>,
    /// The number of the last change.
    change: u64,
    /// The number of workloads at the beginning.
    size: usize,
}

/// The result of looking at a workload.
#[derive(Debug)]
pub struct Looked<K> {
    /// The workload.
    pub key: K,
    /// The number of the change that called for it.
    pub change: u64,
    /// The workload as a peer. `None` if it is not of an earlier wave, or not any more.
    pub peer: Option<Peer>,
}

impl<K: Ord + Clone> WaveQueue<K> {
    /// Makes a queue of all workloads that may be in it, of which nothing is known yet.
    pub fn of(all: impl IntoIterator<Item = K>) -> Self {
        let invalidated: BTreeMap<_, _> = all.into_iter().map(|key| (key, 0)).collect();
        let size = invalidated.len();
        let (first, halting, due, until) = Default::default();
        Self { first, halting, due, until, invalidated, change: 0, size }
    }

    /// Notes that a workload has changed. Returns whether the queue is worth keeping: if as many have changed as there were, a new queue takes no more looks.
    #[must_use]
    pub fn invalidate(&mut self, key: &K) -> bool {
        self.change += 1;
        match self.invalidated.get_mut(key) {
            Some(change) => *change = self.change,
            None => drop(self.invalidated.insert(key.clone(), self.change)),
        }
        self.invalidated.len() <= self.size
    }

    /// Returns the workloads to look at, each with the number of the change that calls for it.
    pub fn due(&mut self, now: Time) -> Vec<(K, u64)> {
        while self.due.first().is_some_and(|(due, _)| *due <= now) {
            self.change += 1;
            let change = self.change;
            self.invalidated.extend(self.due.pop_first().map(|(_, key)| (key, change)));
        }
        self.invalidated.iter().map(|(key, change)| (key.clone(), *change)).collect()
    }

    /// Notes what was found. A workload that has changed since the look will be looked at once more, and one that somebody else has looked at since stays as it is.
    pub fn update(&mut self, looked: impl IntoIterator<Item = Looked<K>>, now: Time) {
        for Looked { key, change, peer } in looked {
            match self.invalidated.get(&key) {
                None => continue,
                Some(known) if *known == change => drop(self.invalidated.remove(&key)),
                Some(_) => {}
            }
            self.set(key, peer, now);
        }
    }

    fn set(&mut self, key: K, peer: Option<Peer>, now: Time) {
        if let Some(until) = self.until.remove(&key) {
            self.due.remove(&(until, key.clone()));
        }
        self.first.remove(&key);
        self.halting.remove(&key);
        let Some(peer) = peer else { return };
        if let Some(until) = peer.until.filter(|until| *until > now) {
            self.until.insert(key.clone(), until);
            self.due.insert((until, key.clone()));
        }
        match peer.blocks() {
            Blocks::No => {}
            Blocks::First => drop(self.first.insert(key)),
            Blocks::Halting => drop(self.halting.insert(key)),
        }
    }

    /// Returns whose turn it is, as far as the workloads were looked at.
    pub fn gate(&self) -> WaveGate<K> {
        match (self.halting.first(), self.first.last()) {
            (Some(key), _) => WaveGate::Halted(key.clone()),
            (None, Some(key)) => WaveGate::After(key.clone()),
            (None, None) => WaveGate::Now,
        }
    }

    /// Looks at all workloads that are due, and returns whose turn it is.
    pub fn evaluate(&mut self, now: Time, mut look: impl FnMut(&K) -> Option<Peer>) -> WaveGate<K> {
        let due = self.due(now);
        let looked = due.into_iter().map(|(key, change)| Looked { peer: look(&key), key, change }).collect::<Vec<_>>();
        self.update(looked, now);
        self.gate()
    }
}

/// A queue: the workloads of a namespace that use a source and are of an earlier wave than this one. A secret in Vault may have users everywhere, but a
/// workload waits for no other namespace.
#[derive(Debug, Clone, Copy)]
pub(crate) struct QueueRef<'a> {
    pub(crate) namespace: &'a str,
    pub(crate) source: &'a SourceName,
    pub(crate) wave: i32,
}

/// The queues, and the workloads that wait.
#[derive(Default)]
pub(crate) struct WaveQueues {
    /// By namespace, source and wave.
    queues: HashMap<String, BTreeMap<(SourceName, i32), WaveQueue<WorkloadRef>>>,
    /// The workload that must move before another one may be rolled.
    waiting: ReverseIndex<WorkloadRef, WorkloadRef>,
}

impl WaveQueues {
    /// Returns whether there is no queue.
    pub(crate) fn is_empty(&self) -> bool {
        self.queues.is_empty()
    }

    /// Drops all queues.
    pub(crate) fn clear(&mut self) {
        self.queues.clear();
    }

    /// Notes that a workload has changed in a way that may let others go on, or hold them up.
    pub(crate) fn invalidate(&mut self, key: &WorkloadRef) {
        let Some(queues) = self.queues.get_mut(&key.namespace) else { return };
        queues.retain(|_, queue| queue.invalidate(key));
        if queues.is_empty() {
            self.queues.remove(&key.namespace);
        }
    }

    /// Returns a queue, made of these workloads if it is new.
    pub(crate) fn queue(
        &mut self,
        at: QueueRef<'_>,
        users: impl FnOnce() -> Vec<WorkloadRef>,
    ) -> &mut WaveQueue<WorkloadRef> {
        let queues = self.queues.entry(at.namespace.to_owned()).or_default();
        queues.entry((at.source.clone(), at.wave)).or_insert_with(|| WaveQueue::of(users()))
    }

    /// Notes the result of looking at workloads. Returns whose turn it is, or `None` if the queue has been dropped meanwhile.
    pub(crate) fn update(
        &mut self,
        at: QueueRef<'_>,
        looked: Vec<Looked<WorkloadRef>>,
        now: Time,
    ) -> Option<WaveGate<WorkloadRef>> {
        let queue = self.queues.get_mut(at.namespace)?.get_mut(&(at.source.clone(), at.wave))?;
        queue.update(looked, now);
        Some(queue.gate())
    }

    /// Sets which workload another one waits for.
    pub(crate) fn set_waiting(&mut self, key: &WorkloadRef, after: Option<&WorkloadRef>) {
        self.waiting.set(key, after.map(|after| (after.clone(), ())));
    }

    /// Returns the workloads that wait for this one.
    pub(crate) fn waiting_for(&self, key: &WorkloadRef) -> impl Iterator<Item = &WorkloadRef> {
        self.waiting.referrers(key)
    }
}

#[cfg(test)]
mod tests {
    use Progress::{Failed, Ready, Running, Unknown, Unready};
    use proptest::prelude::*;

    use super::*;

    fn peer(in_sync: bool, progress: Progress) -> Peer {
        Peer { in_sync, progress, overdue: false, until: None }
    }

    fn at(second: i64) -> Time {
        Time::at(second)
    }

    #[test]
    fn a_wave_comes_after_all_smaller_ones() {
        let late = Peer { overdue: true, ..peer(true, Unready) };
        for (what, peers, expected) in [
            ("alone", vec![], WaveGate::Now),
            ("one to be rolled", vec![("a", peer(false, Ready))], WaveGate::After("a")),
            ("one that failed before and is to be rolled", vec![("a", peer(false, Failed))], WaveGate::After("a")),
            ("one under way", vec![("b", peer(true, Ready)), ("a", peer(true, Running))], WaveGate::After("a")),
            (
                "several",
                vec![("a", peer(false, Ready)), ("b", peer(true, Running)), ("c", peer(true, Ready))],
                WaveGate::After("b"),
            ),
            ("one not ready", vec![("a", peer(true, Unready))], WaveGate::After("a")),
            ("all done", vec![("a", peer(true, Ready)), ("b", peer(true, Unknown))], WaveGate::Now),
            ("one failed", vec![("a", peer(false, Ready)), ("b", peer(true, Failed))], WaveGate::Halted("b")),
            (
                "one cannot be rolled",
                vec![("a", Peer { overdue: true, ..peer(false, Ready) }), ("b", peer(true, Running))],
                WaveGate::Halted("a"),
            ),
            ("one takes too long", vec![("a", peer(true, Running)), ("late", late)], WaveGate::Halted("late")),
            ("several do", vec![("a", late), ("b", peer(true, Failed)), ("c", late)], WaveGate::Halted("a")),
        ] {
            let peers = BTreeMap::from_iter(peers);
            let mut line = WaveQueue::of(peers.keys().copied());
            assert_eq!(line.evaluate(at(0), |key| peers.get(key).copied()), expected, "{what}");
        }
    }

    #[test]
    fn who_is_in_two_lines_waits_for_both() {
        let (after, halted) = (WaveGate::After, WaveGate::Halted);
        for (one, another, expected) in [
            (WaveGate::Now, WaveGate::Now, WaveGate::Now),
            (WaveGate::Now, after("a"), after("a")),
            (after("a"), after("b"), after("b")),
            (after("b"), halted("a"), halted("a")),
            (halted("a"), halted("b"), halted("a")),
        ] {
            assert_eq!(one.clone().and(another.clone()), expected);
            assert_eq!(another.and(one), expected);
        }
    }

    /// A thousand wait for a thousand, and those are rolled one after the other.
    #[test]
    fn only_who_has_stirred_is_looked_at_however_many_wait() {
        const MANY: usize = 1000;
        let mut rolled = vec![false; MANY];
        let mut line = WaveQueue::of(0..MANY);
        let mut looks = 0;
        let mut turn = |line: &mut WaveQueue<usize>, rolled: &[bool]| {
            line.evaluate(at(0), |key| {
                looks += 1;
                Some(peer(rolled[*key], Ready))
            })
        };
        for next in 0..MANY {
            for _ in 0..MANY {
                assert_eq!(turn(&mut line, &rolled), WaveGate::After(MANY - 1));
            }
            rolled[next] = true;
            assert!(line.invalidate(&next));
        }
        assert!((0..MANY).all(|_| turn(&mut line, &rolled) == WaveGate::Now));
        assert_eq!(looks, 2 * MANY, "once in the beginning, and once when it was rolled");
    }

    #[test]
    fn one_is_looked_at_again_when_its_time_comes_and_not_before() {
        let mut line = WaveQueue::of(["a"]);
        let runs_until = |overdue, until| Peer { overdue, until: Some(at(until)), ..peer(true, Running) };
        assert_eq!(line.evaluate(at(0), |_| Some(runs_until(false, 10))), WaveGate::After("a"));
        assert_eq!(line.evaluate(at(9), |_| panic!("its time has not come")), WaveGate::After("a"));
        assert_eq!(line.evaluate(at(10), |_| Some(runs_until(true, 10))), WaveGate::Halted("a"));
        assert_eq!(line.evaluate(at(11), |_| panic!("its time is over")), WaveGate::Halted("a"));
        assert!(line.invalidate(&"a"));
        assert_eq!(line.evaluate(at(12), |_| Some(peer(true, Ready))), WaveGate::Now);
    }

    /// Two workers look at the same line at the same time.
    #[test]
    fn a_look_counts_unless_another_one_was_later_and_a_change_meanwhile_calls_for_one_more() {
        let mut line = WaveQueue::of(["a"]);
        let looked = |(key, change), in_sync| vec![Looked { key, change, peer: Some(peer(in_sync, Ready)) }];
        let early = line.due(at(0))[0];
        assert!(line.invalidate(&"a"));
        let late = line.due(at(0))[0];
        line.update(looked(early, false), at(0));
        assert_eq!((line.gate(), line.due(at(0))), (WaveGate::After("a"), vec![late]), "it has changed since");
        line.update(looked(late, true), at(0));
        line.update(looked(early, false), at(0));
        assert_eq!((line.gate(), line.due(at(0))), (WaveGate::Now, vec![]), "the first look was earlier");
        line.update(looked(late, false), at(0));
        assert_eq!(line.gate(), WaveGate::Now, "and the same look counts once");
    }

    #[test]
    fn a_line_in_which_all_has_stirred_is_not_worth_keeping() {
        let mut line = WaveQueue::of(["a", "b"]);
        assert_eq!(line.evaluate(at(0), |_| None), WaveGate::Now);
        assert!(line.invalidate(&"a") && line.invalidate(&"a") && line.invalidate(&"x") && !line.invalidate(&"b"));
    }

    proptest! {
        /// After any events in any order, a kept queue says what a new one says.
        #[test]
        fn one_that_is_kept_tells_what_a_new_one_would(
            steps in proptest::collection::vec((0..5_usize, 0..6_usize, any::<bool>(), 0..20_i64), 1..60),
        ) {
            let mut peers: BTreeMap<usize, (Peer, i64)> = BTreeMap::new();
            // A running workload is overdue from its time on.
            let look = |peers: &BTreeMap<usize, (Peer, i64)>, now: i64, key: &usize| {
                let (peer, end) = peers.get(key)?;
                Some(Peer { overdue: now >= *end, until: Some(at(*end)), ..*peer })
            };
            let (mut line, mut now) = (WaveQueue::of(0..5), 0);
            for (key, progress, in_sync, time) in steps {
                match [Ready, Running, Unready, Failed, Unknown].get(progress) {
                    Some(progress) => drop(peers.insert(key, (peer(in_sync, *progress), now + time))),
                    None => drop(peers.remove(&key)),
                }
                if !line.invalidate(&key) {
                    line = WaveQueue::of(0..5);
                }
                now += time / 4;
                let kept = line.evaluate(at(now), |key| look(&peers, now, key));
                prop_assert_eq!(kept, WaveQueue::of(0..5).evaluate(at(now), |key| look(&peers, now, key)));
            }
        }
    }
}
