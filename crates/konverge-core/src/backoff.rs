//! How long to wait before the next attempt.

use std::time::Duration;

/// Exponential growth with full jitter: a uniformly random part of a limit that grows with each attempt.
///
/// Full jitter spreads the callers that failed together best ("Exponential Backoff And Jitter", AWS Architecture Blog, 2015).
///
/// It gets no further field, so that constants can be written as literals.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Backoff {
    /// The limit for the first repetition.
    pub base: Duration,
    /// The factor by which the limit grows with each further failure; at least 1.
    pub factor: f64,
    /// The limit never exceeds this.
    pub cap: Duration,
}

impl Default for Backoff {
    /// One second, doubled up to five minutes: what a person who mends the cause will wait for.
    fn default() -> Self {
        Self { base: Duration::from_secs(1), factor: 2.0, cap: Duration::from_secs(300) }
    }
}

impl Backoff {
    /// A tenth of the limit is always waited, so that no run of small random numbers makes a hot loop.
    const FLOOR: f64 = 0.1;

    /// The pause after failed attempt number `attempt` (the first is 1), for a `jitter` drawn from 0 to 1.
    ///
    /// Never above [`Backoff::cap`], and never below a tenth of the limit. A `jitter` outside 0 to 1 is clamped.
    pub fn delay(&self, attempt: u32, jitter: f64) -> Duration {
        let limit = self.limit(attempt);
        let part = Self::FLOOR + (1.0 - Self::FLOOR) * jitter.clamp(0.0, 1.0);
        Duration::try_from_secs_f64(limit.as_secs_f64() * part).map_or(self.cap, |delay| delay.min(self.cap))
    }

    /// The pause after failed attempt number `attempt`, from the upper half of the limit: for callers that should come seldom rather than
    /// spread widely.
    pub fn late_delay(&self, attempt: u32, jitter: f64) -> Duration {
        let part = 0.5 + 0.5 * jitter.clamp(0.0, 1.0);
        Duration::try_from_secs_f64(self.limit(attempt).as_secs_f64() * part)
            .map_or(self.cap, |delay| delay.min(self.cap))
    }

    fn limit(&self, attempt: u32) -> Duration {
        let growth = self.factor.max(1.0).powf(f64::from(attempt.saturating_sub(1)));
        let seconds = self.base.as_secs_f64() * growth;
        Duration::try_from_secs_f64(seconds).map_or(self.cap, |limit| limit.min(self.cap))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_limit_doubles_up_to_the_cap() {
        let seconds = |attempt| Backoff::default().delay(attempt, 1.0).as_secs();
        assert_eq!([1, 2, 3, 9, 10, 1000, u32::MAX].map(seconds), [1, 2, 4, 256, 300, 300, 300]);
        let for_ever = Backoff { cap: Duration::MAX, ..Backoff::default() };
        assert_eq!(for_ever.delay(u32::MAX, 1.0), Duration::MAX, "no overflow");
    }

    #[test]
    fn a_late_delay_is_in_the_upper_half() {
        let backoff = Backoff { cap: Duration::from_secs(120), ..Backoff::default() };
        for (attempt, jitter, seconds) in
            [(1, 0.0, 0.5), (1, 1.0, 1.0), (3, 0.5, 3.0), (50, 0.0, 60.0), (50, 1.0, 120.0)]
        {
            assert_eq!(backoff.late_delay(attempt, jitter), Duration::from_secs_f64(seconds), "{attempt} {jitter}");
        }
    }

    proptest! {
        #[test]
        fn a_delay_is_within_its_limits(attempt: u32, jitter in 0.0..1.0_f64) {
            let backoff = Backoff::default();
            let delay = backoff.delay(attempt, jitter);
            prop_assert!(delay <= backoff.cap);
            prop_assert!(delay >= backoff.base.mul_f64(Backoff::FLOOR));
        }
    }
}
