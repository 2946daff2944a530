//! The order of workloads that use the same: those of a smaller wave are rolled and ready before the next. Pure.

use konverge_workload::Progress;

/// Another workload that uses what changed.
#[derive(Debug, Clone)]
pub struct Peer<K> {
    /// Which one.
    pub key: K,
    /// Its place in the order.
    pub wave: i32,
    /// Whether its pods run with what there is, as far as its record says.
    pub in_step: bool,
    /// How its pods stand.
    pub progress: Progress,
    /// Whether it has had its time to become ready; one that is not in step, to be read and written.
    pub overdue: bool,
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

impl<K> Turn<K> {
    /// Who has to move before it can be.
    pub fn after(&self) -> Option<&K> {
        match self {
            Self::Now => None,
            Self::After(key) | Self::Halted(key) => Some(key),
        }
    }
}

/// Whether it is the turn of `wave`, and if not, whose it is.
pub fn turn<K: Clone>(wave: i32, peers: impl IntoIterator<Item = Peer<K>>) -> Turn<K> {
    let mut turn = Turn::Now;
    for peer in peers.into_iter().filter(|peer| peer.wave < wave) {
        match (peer.in_step, peer.progress) {
            // Nobody looks after it, so nobody will say more.
            (true, Progress::Ready | Progress::Unknown) => {}
            (true, Progress::Failed) => return Turn::Halted(peer.key),
            (true, Progress::Running | Progress::Unready) | (false, _) if peer.overdue => {
                return Turn::Halted(peer.key);
            }
            _ => turn = Turn::After(peer.key),
        }
    }
    turn
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(key: &str, wave: i32, in_step: bool, progress: Progress) -> Peer<&str> {
        Peer { key, wave, in_step, progress, overdue: false }
    }

    #[test]
    fn a_wave_comes_after_all_smaller_ones() {
        use Progress::{Failed, Ready, Running, Unknown, Unready};
        let late = Peer { overdue: true, ..peer("late", 0, true, Unready) };
        for (what, peers, expected) in [
            ("alone", vec![], Turn::Now),
            ("one of the same wave", vec![peer("a", 1, false, Ready)], Turn::Now),
            ("one of a later wave", vec![peer("a", 2, false, Failed)], Turn::Now),
            ("one to be rolled", vec![peer("a", 0, false, Ready)], Turn::After("a")),
            ("one that failed before and is to be rolled", vec![peer("a", 0, false, Failed)], Turn::After("a")),
            ("one under way", vec![peer("b", 0, true, Ready), peer("a", 0, true, Running)], Turn::After("a")),
            (
                "several",
                vec![peer("a", 0, false, Ready), peer("b", 0, true, Running), peer("c", 0, true, Ready)],
                Turn::After("b"),
            ),
            ("one not ready", vec![peer("a", -1, true, Unready)], Turn::After("a")),
            ("all done", vec![peer("a", 0, true, Ready), peer("b", 0, true, Unknown)], Turn::Now),
            ("one failed", vec![peer("a", 0, false, Ready), peer("b", 0, true, Failed)], Turn::Halted("b")),
            (
                "one cannot be rolled",
                vec![Peer { overdue: true, ..peer("a", 0, false, Ready) }, peer("b", 0, true, Running)],
                Turn::Halted("a"),
            ),
            ("one takes too long", vec![peer("a", 0, true, Running), late], Turn::Halted("late")),
        ] {
            assert_eq!(turn(1, peers), expected, "{what}");
        }
    }
}
