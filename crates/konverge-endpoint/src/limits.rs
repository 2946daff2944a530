//! How much of an endpoint one client uses.

use std::{
    num::{NonZeroU32, NonZeroUsize},
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

/// The limits of one client, over all its callers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// Requests a second in the long run; none is no limit.
    pub rate: Option<NonZeroU32>,
    /// How many may come at once before the rate counts.
    pub burst: NonZeroU32,
    /// Requests under way at the same time.
    pub concurrency: NonZeroUsize,
    /// For one call, from the asking to the end of the answer: waiting for the other limits, for a login and a repetition included.
    pub deadline: Duration,
    /// For making a connection, TLS included.
    pub connect: Duration,
    /// The largest answer, in bytes.
    pub answer: usize,
}

impl Default for Limits {
    /// 100 requests a second, bursts of 200, 16 at a time, 30 s for each, 5 s for a connection. An answer of 8 MiB holds the largest
    /// secret that Vault stores (1 MiB) whatever is escaped in it.
    fn default() -> Self {
        Self {
            rate: NonZeroU32::new(100),
            burst: NonZeroU32::new(200).unwrap_or(NonZeroU32::MIN),
            concurrency: NonZeroUsize::new(16).unwrap_or(NonZeroUsize::MIN),
            deadline: Duration::from_secs(30),
            connect: Duration::from_secs(5),
            answer: 8 * 1024 * 1024,
        }
    }
}

konverge_core::with!(Limits);

/// Spreads requests over time: the generic cell rate algorithm, which keeps one point in time and no counter.
pub struct Pace {
    /// Between two requests in the long run.
    interval: Duration,
    /// How far ahead of its time a request may come.
    ahead: Duration,
    /// When the next request would be due if all came evenly.
    due: Mutex<Option<Instant>>,
}

impl Pace {
    /// A pace of these limits.
    pub fn new(limits: &Limits) -> Self {
        let interval = limits.rate.map_or(Duration::ZERO, |rate| Duration::from_secs(1) / rate.get());
        Self { interval, ahead: interval * (limits.burst.get() - 1), due: Mutex::new(None) }
    }

    /// Takes a place, and says when it is due.
    pub fn reserve(&self, now: Instant) -> Instant {
        let mut due = self.due.lock().unwrap_or_else(PoisonError::into_inner);
        let even = due.map_or(now, |due| due.max(now));
        *due = Some(even + self.interval);
        even.checked_sub(self.ahead).map_or(now, |start| start.max(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_burst_passes_and_the_rest_comes_evenly() {
        let limits = Limits { rate: NonZeroU32::new(10), burst: NonZeroU32::new(3).unwrap(), ..Limits::default() };
        let pace = Pace::new(&limits);
        let start = Instant::now();
        let waits: Vec<_> = (0..6).map(|_| (pace.reserve(start) - start).as_millis()).collect();
        assert_eq!(waits, [0, 0, 0, 100, 200, 300]);
        let later = start + Duration::from_secs(10);
        assert_eq!([pace.reserve(later), pace.reserve(later), pace.reserve(later)], [later; 3]);
        assert!(pace.reserve(later) > later);
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_rate_nobody_waits() {
        let pace = Pace::new(&Limits { rate: None, ..Limits::default() });
        let now = Instant::now();
        assert!((0..1000).all(|_| pace.reserve(now) == now));
    }
}
