//! The end of a hub at which an upstream tells what it learns.

use std::{sync::Arc, time::Duration};

use tokio::time::{Instant, sleep, sleep_until};

use super::{Failures, Fetcher, SHORTEST_PAUSE, Stated, Wake};
use crate::{
    metrics::Metrics,
    source::{Failure, Reference},
};

/// Polls come up to this part of the interval early, so that many contents are not polled at the same moment.
const POLL_JITTER: f64 = 0.2;

/// Tells the hub of one content what the store says of it. Clones are the same.
#[derive(Clone)]
pub struct Feed {
    pub(super) reference: Reference,
    pub(super) fetcher: Arc<Fetcher>,
    pub(super) poll_interval: Duration,
    pub(super) wake: Wake,
    pub(super) metrics: Metrics,
}

impl Feed {
    /// Returns the interval of polls, before they are [spread](poll_after).
    pub fn poll_interval(&self) -> Duration {
        self.poll_interval
    }

    /// Returns the metrics of the operator.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Returns the last statement of the store, as [`Hub::stated`](super::Hub::stated) does.
    pub fn stated(&self) -> Option<Stated> {
        self.fetcher.stated()
    }

    /// Returns the last failure, if no answer came after it.
    pub fn failure(&self) -> Option<Arc<Failure>> {
        self.fetcher.failure()
    }

    /// Waits for a fetch that fails.
    pub async fn failed(&self) {
        self.fetcher.failed.notified().await;
    }

    /// Waits for a request to ask again soon.
    pub async fn wanted(&self) {
        self.fetcher.wanted.notified().await;
    }

    /// Tells of a change to the version with this number. Wakes everybody.
    pub fn changed(&self, number: i64) {
        self.fetcher.changed(number);
        (self.wake)(&self.reference);
    }

    /// Tells that the content is read in another way from now on. Nothing that was stated holds. Wakes everybody.
    pub fn reconnected(&self) {
        self.fetcher.forget();
        (self.wake)(&self.reference);
    }

    /// Asks the store what there is, and wakes everybody if that is news. Returns the answer if there was one. An unchanged
    /// content is not fetched if the store can tell.
    ///
    /// The calls have memory of their own while they are under way. They take some kilobytes, and each content has a task that waits most of the
    /// time.
    pub async fn look(&self) -> Option<Stated> {
        if let Some(stated) = Box::pin(self.fetcher.confirm()).await {
            return Some(stated);
        }
        let (before, trouble_before) = (self.fetcher.stated(), self.fetcher.trouble());
        self.fetcher.outdate();
        let answer = Box::pin(self.fetcher.snapshot(None)).await;
        let after = self.fetcher.stated();
        let same = match (&before, &after) {
            (Some(before), Some(after)) => after.is_no_news_after(before),
            (before, after) => before.is_none() && after.is_none(),
        };
        // Another trouble than before is news too: a server that was away may now refuse.
        if !same || trouble_before != self.fetcher.trouble() {
            (self.wake)(&self.reference);
        }
        answer.ok().map(|snapshot| Stated::by(&snapshot))
    }

    /// Looks at each interval, and sooner after a failure. Never ends.
    pub async fn poll(&self, interval: Duration) {
        let mut failures = Failures::default();
        loop {
            self.look().await;
            let pause = match self.failure() {
                None => {
                    failures = Failures::default();
                    jittered(interval, rand::random())
                }
                Some(failure) => {
                    failures.count(Some(failure.cause));
                    failures.pause(rand::random())
                }
            };
            self.pause(pause).await;
        }
    }

    /// Waits before the next attempt. A Secret that changes meanwhile cuts the pause short, because its owner may have fixed the cause.
    pub async fn pause(&self, pause: Duration) {
        let began = Instant::now();
        tokio::select! {
            () = sleep(pause) => {}
            () = self.wanted() => sleep_until(began + pause.min(SHORTEST_PAUSE)).await,
        }
    }
}

/// When the next poll is due.
pub fn poll_after(interval: Duration) -> Instant {
    Instant::now() + jittered(interval, rand::random())
}

/// Until the next poll. `random` is in `0.0..1.0`.
fn jittered(interval: Duration, random: f64) -> Duration {
    interval.mul_f64(1.0 - POLL_JITTER * random)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn polls_come_up_to_a_fifth_early_and_never_late() {
        let interval = Duration::from_mins(1);
        for (random, seconds) in [(0.0, 60.0), (0.25, 57.0), (0.5, 54.0), (0.999_999, 48.0)] {
            let delay = jittered(interval, random);
            assert!((delay.as_secs_f64() - seconds).abs() < 0.001, "{random}: {delay:?}");
        }
    }

    #[test]
    fn hubs_that_begin_together_poll_at_different_times() {
        let mut polls: Vec<_> = (0..100).map(|_| poll_after(Duration::from_hours(1))).collect();
        polls.sort();
        let spread = polls[99] - polls[0];
        assert!(spread > Duration::from_mins(6), "{spread:?}");
    }
}
