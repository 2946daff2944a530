//! How long to wait before the next poll: pure, with randomness handed in.

use std::time::Duration;

use konverge_core::{backoff::Backoff, error::ErrorClass};

/// The longest pause is this many intervals unless it is set.
const LONGEST_PAUSE_IN_INTERVALS: u32 = 32;

/// The random addition to a pause that the other side requested, as a fraction of it. It keeps clients with the same pause from returning at once. Nothing is ever taken away.
const RETRY_AFTER_JITTER: f64 = 0.1;

/// The limits of all that users set: no hot loop, and no time that the clock cannot tell.
const SHORTEST: Duration = Duration::from_millis(1);
const FAR: Duration = Duration::from_secs(24 * 365 * 3600);

pub(super) struct Pauses {
    interval: Duration,
    jitter: f64,
    backoff: Backoff,
    longest_retry_after: Duration,
}

impl Pauses {
    pub(super) fn new(
        interval: Duration,
        jitter: f64,
        longest: Option<Duration>,
        longest_retry_after: Duration,
    ) -> Self {
        let interval = interval.clamp(SHORTEST, FAR);
        let cap = longest.unwrap_or(interval.saturating_mul(LONGEST_PAUSE_IN_INTERVALS)).clamp(SHORTEST, FAR);
        let backoff = Backoff { base: interval.min(cap), factor: 2.0, cap };
        Self { interval, jitter, backoff, longest_retry_after: longest_retry_after.min(FAR) }
    }

    /// Of those after failures, but for what the other side asks for.
    pub(super) fn longest(&self) -> Duration {
        self.backoff.cap
    }

    /// The interval, give or take; `random` is from 0 to 1.
    pub(super) fn after_success(&self, random: f64) -> Duration {
        self.interval.mul_f64(1.0 - self.jitter + 2.0 * self.jitter * random)
    }

    /// After so many failures in a row. An error that stays is asked about again as well: what mends it may be outside.
    pub(super) fn after_failure(&self, failures: u32, class: ErrorClass, random: f64) -> Duration {
        match class {
            ErrorClass::After(pause) => {
                let pause = pause.min(self.longest_retry_after).mul_f64(1.0 + RETRY_AFTER_JITTER * random);
                // "At once" would be a hot loop, since the answer may be the same again.
                pause.max(self.backoff.delay(1, 0.0))
            }
            _ => self.backoff.delay(failures, random),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const INTERVAL: Duration = Duration::from_secs(10);

    fn pauses() -> Pauses {
        Pauses::new(INTERVAL, 0.1, None, Duration::from_secs(3600))
    }

    #[test]
    fn pauses_by_class_and_number() {
        let transient = |failures| pauses().after_failure(failures, ErrorClass::Transient, 1.0).as_secs();
        assert_eq!([1, 2, 3, 5, 6, 7, 1000].map(transient), [10, 20, 40, 160, 320, 320, 320]);
        let after = |seconds, random| {
            pauses().after_failure(9, ErrorClass::After(Duration::from_secs(seconds)), random).as_secs()
        };
        assert_eq!([after(0, 1.0), after(60, 0.0), after(60, 1.0), after(1_000_000, 0.0)], [1, 60, 66, 3600]);
        let capped = Pauses::new(INTERVAL, 0.1, Some(Duration::from_secs(3)), Duration::from_secs(3600));
        assert_eq!(capped.after_failure(1, ErrorClass::Permanent, 1.0).as_secs(), 3);
    }

    #[test]
    fn no_setting_makes_a_hot_loop_or_a_panic() {
        for setting in [Duration::ZERO, Duration::MAX] {
            let pauses = Pauses::new(setting, 1.0, Some(setting), setting);
            assert!(pauses.after_success(1.0) >= SHORTEST && pauses.after_success(1.0) <= 2 * FAR);
            assert!(pauses.after_failure(u32::MAX, ErrorClass::Transient, 1.0) >= SHORTEST);
            assert!(pauses.after_failure(1, ErrorClass::After(Duration::MAX), 1.0) <= 2 * FAR);
            assert!(pauses.after_failure(1, ErrorClass::After(Duration::ZERO), 0.0) >= SHORTEST / 10);
        }
    }

    proptest! {
        #[test]
        fn the_first_failure_waits_at_most_the_interval(random in 0.0..=1.0_f64) {
            let pause = pauses().after_failure(1, ErrorClass::Transient, random);
            prop_assert!(pause <= INTERVAL && pause >= INTERVAL / 10);
        }

        #[test]
        fn an_interval_varies_by_its_jitter(random in 0.0..=1.0_f64) {
            let pause = pauses().after_success(random);
            prop_assert!(pause >= Duration::from_secs(9) && pause <= Duration::from_secs(11));
        }
    }
}
