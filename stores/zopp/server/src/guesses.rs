//! How often one source may do something: an address a call that nobody signs, or guess a short code; a principal a call that reads.
//!
//! Each source has a budget that refills with time. A right guess costs nothing. Addresses of IPv6 count by their /64, which is what
//! one customer of a provider has.

use std::{
    collections::HashMap,
    hash::Hash,
    net::{IpAddr, Ipv6Addr},
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

/// Wrong guesses in a row.
pub(crate) const BURST: u32 = 10;
/// One more wrong guess after each of these.
const REFILL: Duration = Duration::from_secs(6);
/// Sources that are remembered. Further ones share one budget.
const CAPACITY: usize = 10_000;

/// The budgets of all sources.
#[derive(Debug)]
pub(crate) struct GuessLimit<S = IpAddr> {
    burst: u32,
    refill: Duration,
    /// The moment at which the budget of a source is full again. None stands for all sources for which there is no room, or that are unknown.
    full_at: Mutex<HashMap<Option<S>, Instant>>,
}

/// Leave to guess once. It counts as wrong until it is said to be right, so that many at once are counted too.
#[derive(Debug)]
pub(crate) struct Guess<'a, S: Copy + Eq + Hash = IpAddr> {
    limit: &'a GuessLimit<S>,
    source: Option<S>,
}

impl Default for GuessLimit {
    fn default() -> Self {
        Self::new(BURST, REFILL)
    }
}

impl GuessLimit {
    /// Lets an address guess, or says how long it has to wait.
    pub(crate) fn admit(&self, address: Option<IpAddr>) -> Result<Guess<'_>, Duration> {
        self.admit_source(address.map(network))
    }
}

impl<S: Copy + Eq + Hash> GuessLimit<S> {
    /// Allows `burst` in a row, and one more after each `refill`.
    pub(crate) fn new(burst: u32, refill: Duration) -> Self {
        Self { burst, refill, full_at: Mutex::default() }
    }

    /// Lets a source go on, or says how long it has to wait.
    pub(crate) fn admit_source(&self, source: Option<S>) -> Result<Guess<'_, S>, Duration> {
        let now = Instant::now();
        let mut full_at = self.full_at.lock().unwrap_or_else(PoisonError::into_inner);
        let known = full_at.contains_key(&source);
        if !known && full_at.len() >= CAPACITY {
            full_at.retain(|_, moment| *moment > now);
        }
        let source = if known || full_at.len() < CAPACITY { source } else { None };
        let debt = full_at.get(&source).map_or(Duration::ZERO, |moment| moment.saturating_duration_since(now));
        // The last guess of the budget is one refill below its end.
        match debt.checked_sub(self.refill * self.burst.saturating_sub(1)) {
            Some(wait) if !wait.is_zero() => Err(wait),
            _ => {
                full_at.insert(source, now + debt + self.refill);
                Ok(Guess { limit: self, source })
            }
        }
    }
}

impl<S: Copy + Eq + Hash> Guess<'_, S> {
    /// Gives the guess back to the budget.
    pub(crate) fn was_right(self) {
        let mut full_at = self.limit.full_at.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(moment) = full_at.get_mut(&self.source)
            && let Some(earlier) = moment.checked_sub(self.limit.refill)
        {
            *moment = earlier;
        }
    }
}

/// Returns the part of an address that counts as one client: for IPv6 the /64.
pub(crate) fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64)),
        address @ IpAddr::V4(_) => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[expect(clippy::unnecessary_wraps, reason = "as admit takes it")]
    fn address(last: u8) -> Option<IpAddr> {
        Some(IpAddr::from([192, 0, 2, last]))
    }

    #[tokio::test(start_paused = true)]
    async fn wrong_guesses_use_the_budget_up_and_time_gives_it_back() {
        let limit = GuessLimit::default();
        for _ in 0..BURST {
            limit.admit(address(1)).unwrap();
        }
        let wait = limit.admit(address(1)).unwrap_err();
        assert_eq!(wait, REFILL);
        limit.admit(address(2)).unwrap();
        tokio::time::advance(wait).await;
        limit.admit(address(1)).unwrap();
        limit.admit(address(1)).unwrap_err();
    }

    #[tokio::test(start_paused = true)]
    async fn a_right_guess_costs_nothing() {
        let limit = GuessLimit::default();
        for _ in 0..1000 {
            limit.admit(address(1)).unwrap().was_right();
        }
        assert_eq!(limit.full_at.lock().unwrap()[&address(1)], Instant::now());
    }

    #[tokio::test(start_paused = true)]
    async fn addresses_beyond_the_capacity_share_a_budget() {
        let limit = GuessLimit::default();
        for number in 0..CAPACITY {
            let address = IpAddr::V4(u32::try_from(number).unwrap().into());
            limit.admit(Some(address)).unwrap();
        }
        for last in 0..BURST {
            limit.admit(address(u8::try_from(last).unwrap())).unwrap();
        }
        limit.admit(address(100)).unwrap_err();
        assert!(limit.full_at.lock().unwrap().len() <= CAPACITY + 1);
        tokio::time::advance(REFILL * BURST).await;
        limit.admit(address(100)).unwrap();
        assert_eq!(limit.full_at.lock().unwrap().len(), 1, "addresses with a full budget are forgotten");
    }

    #[test]
    fn addresses_of_one_customer_are_one() {
        let of = |text: &str| network(text.parse().unwrap());
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:2"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("::ffff:192.0.2.1"), of("192.0.2.1"));
    }
}
