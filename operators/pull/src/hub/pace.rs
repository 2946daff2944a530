//! How long a hub waits after a failure.

use std::time::Duration;

use konverge_core::{backoff::Backoff, outage::LONGEST_PAUSE};

use crate::source::Cause;

/// The limit of the first pause, and the pause before an attempt that somebody waits for.
pub const SHORTEST_PAUSE: Duration = Duration::from_secs(1);

/// From a second to four, so that a store is found again within five seconds however long it was away.
const RECONNECT: Backoff = Backoff { base: SHORTEST_PAUSE, factor: 2.0, cap: LONGEST_PAUSE };

/// The pauses while the store refuses. No event shows that somebody has granted a role or corrected a name, so the pauses grow until they end between one and two
/// minutes, as after every refusal ([`ErrorClass::Refused`](konverge_core::error::ErrorClass::Refused)).
const REFUSED: Backoff = Backoff { cap: Duration::from_mins(2), ..RECONNECT };

/// Failures in a row of one kind: the store is away, or it refuses.
#[derive(Debug, Clone, Copy, Default)]
pub struct Failures {
    in_a_row: u32,
    are_refusals: bool,
}

impl Failures {
    /// Counts one more. A stream that the store ended without an error has no cause.
    pub fn count(&mut self, cause: Option<Cause>) {
        self.count_one(cause == Some(Cause::Refused));
    }

    fn count_one(&mut self, is_refusal: bool) {
        let before = if self.are_refusals == is_refusal { self.in_a_row } else { 0 };
        *self = Self { in_a_row: before.saturating_add(1), are_refusals: is_refusal };
    }

    /// Returns the number of failures.
    pub fn in_a_row(self) -> u32 {
        self.in_a_row
    }

    /// The pause before the next attempt. `random` is from 0 to 1.
    pub fn pause(self, random: f64) -> Duration {
        if self.are_refusals {
            REFUSED.late_delay(self.in_a_row, random)
        } else {
            RECONNECT.delay(self.in_a_row, random)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_of_an_outage_stay_short_and_those_of_a_refusal_grow_to_two_minutes() {
        let pauses = |is_refusal, random| {
            let mut failures = Failures::default();
            let mut pauses = Vec::new();
            for _ in 0..10 {
                failures.count_one(is_refusal);
                pauses.push(failures.pause(random).as_secs_f64());
            }
            pauses
        };
        assert_eq!(pauses(false, 1.0), [1.0, 2.0, 4.0, 4.0, 4.0, 4.0, 4.0, 4.0, 4.0, 4.0]);
        assert_eq!(pauses(true, 1.0), [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 120.0, 120.0, 120.0]);
        assert_eq!(pauses(true, 0.0), [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0, 60.0]);
    }

    #[test]
    fn a_failure_of_the_other_kind_begins_anew() {
        let mut failures = Failures::default();
        for (is_refusal, in_a_row) in [(false, 1), (false, 2), (true, 1), (true, 2), (true, 3), (false, 1), (true, 1)] {
            failures.count_one(is_refusal);
            assert_eq!((failures.in_a_row(), failures.are_refusals), (in_a_row, is_refusal));
        }
    }
}
