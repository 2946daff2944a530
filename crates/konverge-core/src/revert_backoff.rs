//! The backoff against an actor that keeps reverting our writes. The operator cannot know which of the two is right, so it
//! restores its value with growing pauses.

use std::time::Duration;

use crate::backoff::Backoff;

/// The number of reverts after which the value is restored at once: a person may have replaced the object by hand.
const AT_ONCE: u32 = 3;

/// How often another actor reverted the same write in a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RevertBackoff {
    times: u32,
    longest: Duration,
}

impl RevertBackoff {
    /// Counts a revert that came this long after the last one. No pause is longer than `longest`. An actor that waits `longest` more than
    /// the pause starts a new row.
    pub fn again(before: Option<(Self, Duration)>, longest: Duration) -> Self {
        let goes_on = before.filter(|(before, quiet)| before.goes_on(*quiet));
        Self { times: goes_on.map_or(1, |(before, _)| before.times.saturating_add(1)), longest }
    }

    /// Whether a revert now, after `quiet` without one, belongs to the same row.
    pub fn goes_on(self, quiet: Duration) -> bool {
        quiet <= self.pause().saturating_add(self.longest)
    }

    /// Whether the reverts are too many to be an accident.
    pub fn is_contested(self) -> bool {
        self.times > AT_ONCE
    }

    /// Returns how long the operator leaves the revert in place. Each pause is twice as long as the one before.
    pub fn pause(self) -> Duration {
        let pauses = self.times.saturating_sub(AT_ONCE);
        let backoff = Backoff { cap: self.longest, ..Backoff::default() };
        if pauses == 0 { Duration::ZERO } else { backoff.delay(pauses, 1.0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONGEST: Duration = Duration::from_secs(300);

    fn after(times: u32) -> RevertBackoff {
        RevertBackoff { times, longest: LONGEST }
    }

    #[test]
    fn a_row_ends_in_an_answer_each_longest_pause() {
        let mut backoff = None;
        let mut pauses = Vec::new();
        for _ in 0..14 {
            // It is written when the pause is over, and undone at once.
            let now = RevertBackoff::again(backoff.map(|before: RevertBackoff| (before, before.pause())), LONGEST);
            pauses.push(now.pause().as_secs());
            assert_eq!(now.is_contested(), pauses.len() > 3, "{now:?}");
            backoff = Some(now);
        }
        assert_eq!(pauses, [0, 0, 0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]);
    }

    #[test]
    fn a_row_is_over_when_nothing_comes_for_the_longest_pause_after_the_last() {
        for (what, times, quiet, expected) in [
            ("at once", 1, 0, 2),
            ("after a while", 3, 300, 4),
            ("too long after", 3, 301, 1),
            ("after a pause and a while", 5, 302, 6),
            ("too long after a pause", 5, 303, 1),
            ("as soon as it can be", 20, 300, 21),
            ("when it was quiet for as long again", 20, 601, 1),
        ] {
            let again = RevertBackoff::again(Some((after(times), Duration::from_secs(quiet))), LONGEST);
            assert_eq!(again.times, expected, "{what}");
        }
    }

    #[test]
    fn for_ever_is_no_overflow_and_a_short_interval_is_kept_to() {
        let last = RevertBackoff { times: u32::MAX, longest: Duration::MAX };
        assert!(last.goes_on(Duration::MAX));
        assert_eq!(RevertBackoff::again(Some((last, Duration::ZERO)), LONGEST).times, u32::MAX);
        assert_eq!(RevertBackoff { times: 9, longest: Duration::from_secs(2) }.pause(), Duration::from_secs(2));
    }
}
