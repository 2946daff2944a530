//! When a token is renewed, and when another one is needed. Pure.

use std::time::Duration;

/// A token is looked after when this part of its time has passed; a third is left for attempts that fail.
const DUE: f64 = 2.0 / 3.0;

/// Clients that logged in together come apart by up to this part, earlier and never later.
const SPREAD: f64 = 0.1;

/// The validity of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lifetime {
    /// Zero for one that does not expire.
    pub(crate) ttl: Duration,
    pub(crate) renewable: bool,
}

/// The next step for a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    Renew,
    LogIn,
}

impl Lifetime {
    /// Returns the next step and its delay after the grant, for a `jitter` from 0 to 1. `asked` is what the first grant gave: a renewal that
    /// gives less is near the end that Vault sets to all renewals.
    pub(crate) fn next(self, asked: Duration, jitter: f64) -> Option<(Duration, Step)> {
        if self.ttl.is_zero() {
            return None;
        }
        // Vault counts the life of a batch token from the beginning of the second in which it was made.
        let sure = self.ttl.saturating_sub(Duration::from_secs(1)).max(self.ttl / 2);
        let after = sure.mul_f64(DUE * (1.0 - SPREAD * jitter.clamp(0.0, 1.0)));
        // Vault counts whole seconds, so that a renewal may seem to give a second less.
        let shrunk = self.ttl + Duration::from_secs(1) < asked;
        let step = if self.renewable && !shrunk { Step::Renew } else { Step::LogIn };
        Some((after, step))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_token_may_live_a_second_less_than_vault_says() {
        for (ttl, expected) in [(2, 666), (3, 1333), (60, 39_333)] {
            let lifetime = Lifetime { ttl: Duration::from_secs(ttl), renewable: false };
            let after = lifetime.next(lifetime.ttl, 0.0).unwrap().0;
            assert_eq!(after.as_millis(), expected, "{ttl}");
        }
    }

    #[test]
    fn tokens_are_looked_after_at_two_thirds() {
        let hour = Duration::from_hours(1);
        let lifetime = |ttl, renewable| Lifetime { ttl, renewable };
        for (lifetime, asked, expected) in [
            (lifetime(hour, true), hour, Some(Step::Renew)),
            (lifetime(Duration::from_secs(3599), true), hour, Some(Step::Renew)),
            (lifetime(hour, false), hour, Some(Step::LogIn)),
            (lifetime(hour / 2, true), hour, Some(Step::LogIn)),
            (lifetime(Duration::ZERO, true), Duration::ZERO, None),
        ] {
            assert_eq!(lifetime.next(asked, 0.0).map(|(_, step)| step), expected, "{lifetime:?}");
        }
        let after = |jitter| lifetime(hour, true).next(hour, jitter).unwrap().0.as_secs();
        assert_eq!([after(0.0), after(1.0)], [2399, 2159]);
    }
}
