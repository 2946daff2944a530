//! How many runs may begin.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

/// A token bucket: `burst` runs at once, and then one each `every`. It gets no further field, so that it can be written as a literal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// How many may begin at once after a quiet time; at least one.
    pub burst: u32,
    /// How long until one more may begin.
    pub every: Duration,
}

/// The bucket of a controller, written down as the moment at which it would be full again.
pub(super) struct RateLimit {
    rate: Rate,
    full_at: Mutex<Instant>,
}

impl RateLimit {
    pub(super) fn new(rate: Rate) -> Self {
        Self { rate, full_at: Mutex::new(Instant::now()) }
    }

    /// Takes a place, and waits until its time has come. Cancelled, it gives the place away for nothing.
    pub(super) async fn acquire(&self) {
        let now = Instant::now();
        let begins = {
            let mut full_at = self.full_at.lock().unwrap_or_else(PoisonError::into_inner);
            let (begins, next) = place(self.rate, *full_at, now);
            *full_at = next;
            begins
        };
        // A timer ends with a millisecond, so one that is due would still cost some time.
        if begins > now {
            tokio::time::sleep_until(begins).await;
        }
    }
}

/// When the next run may begin, and when the bucket is full again if it does.
fn place(rate: Rate, full_at: Instant, now: Instant) -> (Instant, Instant) {
    let next = full_at.max(now) + rate.every;
    let capacity = rate.every * rate.burst.max(1);
    let begins = next.checked_sub(capacity).map_or(now, |begins| begins.max(now));
    (begins, next)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn row_30_a_burst_begins_at_once_and_then_one_at_a_time() {
        let rate = Rate { burst: 3, every: Duration::from_secs(10) };
        let now = Instant::now() + Duration::from_secs(3600);
        let (mut full_at, mut begins) = (now, Vec::new());
        for _ in 0..5 {
            let (at, next) = place(rate, full_at, now);
            begins.push(at.duration_since(now).as_secs());
            full_at = next;
        }
        assert_eq!(begins, [0, 0, 0, 10, 20]);
        let rested = now + Duration::from_secs(600);
        assert_eq!(place(rate, full_at, rested).0, rested);
    }

    #[tokio::test(start_paused = true)]
    async fn a_place_is_waited_for() {
        let limit = RateLimit::new(Rate { burst: 1, every: Duration::from_secs(1) });
        let started = Instant::now();
        for _ in 0..3 {
            limit.acquire().await;
        }
        assert_eq!(started.elapsed().as_secs(), 2);
    }
}
