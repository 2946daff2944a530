//! The reasons on the workload itself for which it is not rolled yet. Pure; the caller passes the time.

use jiff::SignedDuration;
use konverge_workload::Rollout;

use crate::{annotations::WorkloadSpec, config::Pace, plan::View, time::Time};

/// The longest wait for a source that keeps changing, as a multiple of the debounce.
const DEBOUNCES: i32 = 5;

/// A workload whose content changed.
#[derive(Debug, Clone, Copy)]
pub struct Candidate {
    /// The state of its pods.
    pub rollout: Rollout,
    /// Whether its annotation says to wait.
    pub paused: bool,
    /// When it was last rolled by us.
    pub rolled: Option<Time>,
    /// The least time between two rollouts of it.
    pub min_interval: SignedDuration,
    /// When what it uses changed last, as far as that was seen.
    pub changed: Option<Time>,
    /// How long to wait for more changes.
    pub debounce: SignedDuration,
    /// Since when it has been waiting to be rolled, if it has been seen to.
    pub pending: Option<Time>,
}

/// Why it is not rolled now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockedBy {
    /// Its own annotation pauses it; until that is removed.
    Annotation,
    /// Its rollout is paused; until somebody resumes it.
    Paused,
    /// More changes may come.
    Debounce(Time),
    /// It was rolled a short while ago.
    Interval(Time),
}

impl BlockedBy {
    /// When to look again, if nothing else says so.
    pub fn until(self) -> Option<Time> {
        match self {
            Self::Annotation | Self::Paused => None,
            Self::Debounce(until) | Self::Interval(until) => Some(until),
        }
    }
}

impl Candidate {
    /// The workload of a view, by its own spec and by the flags.
    pub fn of(view: &View, spec: &WorkloadSpec, pace: &Pace, now: Time) -> Self {
        Self {
            rollout: view.snapshot.pods.rollout,
            paused: spec.paused,
            rolled: view.plan.comparison.record.as_ref().and_then(|record| Some(now.recorded_or_now(record.rolled?))),
            min_interval: spec.min_interval.unwrap_or(pace.min_interval),
            changed: view.plan.changed,
            debounce: pace.debounce,
            pending: view.pending(),
        }
    }

    /// Returns why it has to wait. Returns `None` if it may be rolled. A rollout of its own that is under way is no reason: new content supersedes it, as a
    /// new pod template does.
    pub fn blocked_by(&self, now: Time) -> Option<BlockedBy> {
        let after = |time: Option<Time>, span: SignedDuration| Some(time?.later(span)).filter(|until| *until > now);
        if self.paused {
            return Some(BlockedBy::Annotation);
        }
        if self.rollout.paused {
            return Some(BlockedBy::Paused);
        }
        let last = self.pending.map_or(Time::MAX, |since| since.later(self.debounce * DEBOUNCES));
        if let Some(until) =
            after(self.changed, self.debounce).map(|until| until.min(last)).filter(|until| *until > now)
        {
            return Some(BlockedBy::Debounce(until));
        }
        after(self.rolled, self.min_interval).map(BlockedBy::Interval)
    }
}

#[cfg(test)]
mod tests {
    use konverge_workload::Progress;
    use proptest::prelude::*;

    use super::*;

    fn at(second: i64) -> Time {
        Time::at(second)
    }

    fn candidate() -> Candidate {
        Candidate {
            rollout: Rollout { progress: Progress::Ready, paused: false, ..Rollout::SETTLED },
            paused: false,
            rolled: None,
            min_interval: SignedDuration::from_secs(60),
            changed: Some(at(1000)),
            debounce: SignedDuration::ZERO,
            pending: None,
        }
    }

    #[test]
    fn each_reason_and_its_end() {
        let rollout = |progress, paused| Rollout { progress, paused, ..Rollout::SETTLED };
        let free = candidate();
        for (what, candidate, expected) in [
            ("free", free, None),
            ("asked to wait", Candidate { paused: true, ..free }, Some(BlockedBy::Annotation)),
            (
                "paused",
                Candidate { rollout: rollout(Progress::Ready, true), rolled: Some(at(990)), ..free },
                Some(BlockedBy::Paused),
            ),
            (
                "more may come",
                Candidate { debounce: SignedDuration::from_secs(5), ..free },
                Some(BlockedBy::Debounce(at(1005))),
            ),
            (
                "more may come, and has for some time",
                Candidate { debounce: SignedDuration::from_secs(5), pending: Some(at(977)), ..free },
                Some(BlockedBy::Debounce(at(1002))),
            ),
            (
                "it never ends",
                Candidate { debounce: SignedDuration::from_secs(5), pending: Some(at(975)), ..free },
                None,
            ),
            ("rolled just now", Candidate { rolled: Some(at(990)), ..free }, Some(BlockedBy::Interval(at(1050)))),
            ("rolled some time ago", Candidate { rolled: Some(at(940)), ..free }, None),
            (
                "under way",
                Candidate { rollout: rollout(Progress::Running, false), rolled: Some(at(900)), ..free },
                None,
            ),
            (
                "under way since a short while",
                Candidate { rollout: rollout(Progress::Running, false), rolled: Some(at(990)), ..free },
                Some(BlockedBy::Interval(at(1050))),
            ),
            ("not up", Candidate { rollout: rollout(Progress::Unready, false), ..free }, None),
            ("given up", Candidate { rollout: rollout(Progress::Failed, false), ..free }, None),
        ] {
            assert_eq!(candidate.blocked_by(at(1000)), expected, "{what}");
        }
    }

    #[test]
    fn what_changes_all_the_time_is_rolled_in_the_end() {
        let debounce = SignedDuration::from_secs(30);
        let held = |second: &i64| {
            let candidate = Candidate { changed: Some(at(*second)), pending: Some(at(1000)), debounce, ..candidate() };
            candidate.blocked_by(at(*second)).is_some()
        };
        // A change each 20 seconds, which is too seldom for a source that runs away.
        assert_eq!((1000..).step_by(20).find(|second| !held(second)), Some(1160));
    }

    proptest! {
        /// A reason with a time has gone at that time: no workload comes back for the same reason.
        #[test]
        fn a_time_that_is_told_is_kept(
            rolled in 0..2000_i64, changed in 0..2000_i64, pending in proptest::option::of(0..1000_i64),
        ) {
            let mut candidate = Candidate {
                rollout: Rollout { progress: Progress::Running, paused: false, ..Rollout::SETTLED },
                rolled: Some(at(rolled)),
                changed: Some(at(changed)),
                debounce: SignedDuration::from_secs(5),
                pending: pending.map(at),
                ..candidate()
            };
            let mut now = at(1000);
            let mut told = 0;
            // Nothing happens meanwhile, so what lies in the future was never true.
            candidate.rolled = candidate.rolled.map(|time| time.min(now));
            candidate.changed = candidate.changed.map(|time| time.min(now));
            while let Some(until) = candidate.blocked_by(now).and_then(BlockedBy::until) {
                prop_assert!(until > now);
                now = until;
                told += 1;
                prop_assert!(told <= 2);
            }
        }
    }
}
