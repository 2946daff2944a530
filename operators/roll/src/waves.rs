//! The order of workloads that use the same: those of a smaller wave are rolled and ready before the next. Pure.
//!
//! Of a thousand that wait for a thousand others, each looking after each would be a million looks, and as many again whenever one has moved. So
//! those of earlier waves are kept in a [`Line`] for all that wait for them, and only who has stirred is looked at again.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use konverge_workload::Progress;

/// Another workload, of an earlier wave, that uses what changed.
#[derive(Debug, Clone, Copy)]
pub struct Peer {
    /// Whether its pods run with what there is, as far as its record says.
    pub in_step: bool,
    /// How its pods stand.
    pub progress: Progress,
    /// Whether it has had its time to become ready; one that is not in step, to be read and written.
    pub overdue: bool,
    /// When all of this may be otherwise though nothing happens.
    pub until: Option<Timestamp>,
}

/// Whether it is a wave's turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Turn<K> {
    /// It is.
    Now,
    /// One of an earlier wave is still to be rolled or to become ready: the last one of those, so that who waits need not look after each.
    After(K),
    /// One of an earlier wave does not become ready, or cannot be rolled: later waves stay as they are, until it does, it can, or its content
    /// changes.
    Halted(K),
}

impl<K: Ord> Turn<K> {
    /// Who has to move before it can be.
    pub fn after(&self) -> Option<&K> {
        match self {
            Self::Now => None,
            Self::After(key) | Self::Halted(key) => Some(key),
        }
    }

    /// The same for who is in two lines.
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

/// How one of an earlier wave stands in the way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stand {
    /// It does not.
    Aside,
    /// It is first.
    First,
    /// It is first, and does not come to an end.
    Halting,
}

impl Peer {
    fn stand(self) -> Stand {
        match (self.in_step, self.progress) {
            // Nobody looks after it, so nobody will say more.
            (true, Progress::Ready | Progress::Unknown) => Stand::Aside,
            (true, Progress::Failed) => Stand::Halting,
            (true, Progress::Running | Progress::Unready) | (false, _) if self.overdue => Stand::Halting,
            _ => Stand::First,
        }
    }
}

/// Those of waves before one, as far as they stand in the way.
#[derive(Debug)]
pub struct Line<K> {
    /// Those that are first.
    first: BTreeSet<K>,
    /// Those of them that do not come to an end.
    halting: BTreeSet<K>,
    /// When who is to be looked at again though nothing happens.
    due: BTreeSet<(Timestamp, K)>,
    /// The same by who.
    until: BTreeMap<K, Timestamp>,
    /// Who is to be looked at.
    stirred: BTreeSet<K>,
    /// How many there were in the beginning.
    size: usize,
}

impl<K: Ord + Clone> Line<K> {
    /// All that may be in it, of which nothing is known yet.
    pub fn of(all: impl IntoIterator<Item = K>) -> Self {
        let stirred: BTreeSet<_> = all.into_iter().collect();
        let size = stirred.len();
        let (first, halting, due, until) = Default::default();
        Self { first, halting, due, until, stirred, size }
    }

    /// Something is otherwise about one that may be in it. Returns whether it is worth keeping: where as many have stirred as there were, a new one
    /// takes no more looks.
    #[must_use]
    pub fn stir(&mut self, key: &K) -> bool {
        if !self.stirred.contains(key) {
            self.stirred.insert(key.clone());
        }
        self.stirred.len() <= self.size
    }

    /// Whose turn it is by now. `look` tells how one stands; nothing if it is not of an earlier wave, or not any more.
    pub fn turn(&mut self, now: Timestamp, mut look: impl FnMut(&K) -> Option<Peer>) -> Turn<K> {
        while self.due.first().is_some_and(|(due, _)| *due <= now) {
            self.stirred.extend(self.due.pop_first().map(|(_, key)| key));
        }
        for key in std::mem::take(&mut self.stirred) {
            if let Some(until) = self.until.remove(&key) {
                self.due.remove(&(until, key.clone()));
            }
            self.first.remove(&key);
            self.halting.remove(&key);
            let Some(peer) = look(&key) else { continue };
            if let Some(until) = peer.until.filter(|until| *until > now) {
                self.until.insert(key.clone(), until);
                self.due.insert((until, key.clone()));
            }
            match peer.stand() {
                Stand::Aside => {}
                Stand::First => drop(self.first.insert(key)),
                Stand::Halting => drop(self.halting.insert(key)),
            }
        }
        match (self.halting.first(), self.first.last()) {
            (Some(key), _) => Turn::Halted(key.clone()),
            (None, Some(key)) => Turn::After(key.clone()),
            (None, None) => Turn::Now,
        }
    }
}

#[cfg(test)]
mod tests {
    use Progress::{Failed, Ready, Running, Unknown, Unready};
    use proptest::prelude::*;

    use super::*;

    fn peer(in_step: bool, progress: Progress) -> Peer {
        Peer { in_step, progress, overdue: false, until: None }
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn a_wave_comes_after_all_smaller_ones() {
        let late = Peer { overdue: true, ..peer(true, Unready) };
        for (what, peers, expected) in [
            ("alone", vec![], Turn::Now),
            ("one to be rolled", vec![("a", peer(false, Ready))], Turn::After("a")),
            ("one that failed before and is to be rolled", vec![("a", peer(false, Failed))], Turn::After("a")),
            ("one under way", vec![("b", peer(true, Ready)), ("a", peer(true, Running))], Turn::After("a")),
            (
                "several",
                vec![("a", peer(false, Ready)), ("b", peer(true, Running)), ("c", peer(true, Ready))],
                Turn::After("b"),
            ),
            ("one not ready", vec![("a", peer(true, Unready))], Turn::After("a")),
            ("all done", vec![("a", peer(true, Ready)), ("b", peer(true, Unknown))], Turn::Now),
            ("one failed", vec![("a", peer(false, Ready)), ("b", peer(true, Failed))], Turn::Halted("b")),
            (
                "one cannot be rolled",
                vec![("a", Peer { overdue: true, ..peer(false, Ready) }), ("b", peer(true, Running))],
                Turn::Halted("a"),
            ),
            ("one takes too long", vec![("a", peer(true, Running)), ("late", late)], Turn::Halted("late")),
            ("several do", vec![("a", late), ("b", peer(true, Failed)), ("c", late)], Turn::Halted("a")),
        ] {
            let peers = BTreeMap::from_iter(peers);
            let mut line = Line::of(peers.keys().copied());
            assert_eq!(line.turn(at(0), |key| peers.get(key).copied()), expected, "{what}");
        }
    }

    #[test]
    fn who_is_in_two_lines_waits_for_both() {
        let (after, halted) = (Turn::After, Turn::Halted);
        for (one, another, expected) in [
            (Turn::Now, Turn::Now, Turn::Now),
            (Turn::Now, after("a"), after("a")),
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
        let mut line = Line::of(0..MANY);
        let mut looks = 0;
        let mut turn = |line: &mut Line<usize>, rolled: &[bool]| {
            line.turn(at(0), |key| {
                looks += 1;
                Some(peer(rolled[*key], Ready))
            })
        };
        for next in 0..MANY {
            for _ in 0..MANY {
                assert_eq!(turn(&mut line, &rolled), Turn::After(MANY - 1));
            }
            rolled[next] = true;
            assert!(line.stir(&next));
        }
        assert!((0..MANY).all(|_| turn(&mut line, &rolled) == Turn::Now));
        assert_eq!(looks, 2 * MANY, "once in the beginning, and once when it was rolled");
    }

    #[test]
    fn one_is_looked_at_again_when_its_time_comes_and_not_before() {
        let mut line = Line::of(["a"]);
        let runs_until = |overdue, until| Peer { overdue, until: Some(at(until)), ..peer(true, Running) };
        assert_eq!(line.turn(at(0), |_| Some(runs_until(false, 10))), Turn::After("a"));
        assert_eq!(line.turn(at(9), |_| panic!("its time has not come")), Turn::After("a"));
        assert_eq!(line.turn(at(10), |_| Some(runs_until(true, 10))), Turn::Halted("a"));
        assert_eq!(line.turn(at(11), |_| panic!("its time is over")), Turn::Halted("a"));
        assert!(line.stir(&"a"));
        assert_eq!(line.turn(at(12), |_| Some(peer(true, Ready))), Turn::Now);
    }

    #[test]
    fn a_line_in_which_all_has_stirred_is_not_worth_keeping() {
        let mut line = Line::of(["a", "b"]);
        assert_eq!(line.turn(at(0), |_| None), Turn::Now);
        assert!(line.stir(&"a") && line.stir(&"a") && line.stir(&"x") && !line.stir(&"b"));
    }

    proptest! {
        /// Whatever happens in whatever order, one that is kept tells what a new one would.
        #[test]
        fn one_that_is_kept_tells_what_a_new_one_would(
            steps in proptest::collection::vec((0..5_usize, 0..6_usize, any::<bool>(), 0..20_i64), 1..60),
        ) {
            let mut peers: BTreeMap<usize, (Peer, i64)> = BTreeMap::new();
            // Who is known to run is overdue from its time on.
            let look = |peers: &BTreeMap<usize, (Peer, i64)>, now: i64, key: &usize| {
                let (peer, end) = peers.get(key)?;
                Some(Peer { overdue: now >= *end, until: Some(at(*end)), ..*peer })
            };
            let (mut line, mut now) = (Line::of(0..5), 0);
            for (key, progress, in_step, time) in steps {
                match [Ready, Running, Unready, Failed, Unknown].get(progress) {
                    Some(progress) => drop(peers.insert(key, (peer(in_step, *progress), now + time))),
                    None => drop(peers.remove(&key)),
                }
                if !line.stir(&key) {
                    line = Line::of(0..5);
                }
                now += time / 4;
                let kept = line.turn(at(now), |key| look(&peers, now, key));
                prop_assert_eq!(kept, Line::of(0..5).turn(at(now), |key| look(&peers, now, key)));
            }
        }
    }
}
