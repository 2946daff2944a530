//! The driver of a source: when it polls, and how it delivers the changes.

mod pause;
#[cfg(test)]
mod tests;

use std::{
    collections::VecDeque,
    panic::AssertUnwindSafe,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use futures::{FutureExt, Stream, StreamExt, stream};
use konverge_core::error::{Classify, ErrorClass, in_one_line};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::pause::Pauses;
use crate::{Change, Health, Memory, MemoryError, Metrics, Next, Polled, Source, SourceError};

/// How to watch a source.
pub struct Options {
    interval: Duration,
    jitter: f64,
    longest_pause: Option<Duration>,
    longest_retry_after: Duration,
    stale_after: Option<Duration>,
    memory: Option<Box<dyn Memory>>,
    metrics: Metrics,
    shutdown: CancellationToken,
    on_standbys: bool,
}

impl Options {
    /// Polls this often, at most every millisecond. Everything else is as the other methods say.
    pub fn every(interval: Duration) -> Self {
        Self {
            interval,
            jitter: 0.1,
            longest_pause: None,
            longest_retry_after: Duration::from_secs(3600),
            stale_after: None,
            memory: None,
            metrics: Metrics::default(),
            shutdown: CancellationToken::new(),
            on_standbys: false,
        }
    }

    /// The fraction by which an interval is lengthened or shortened at random, so that many processes do not poll at the same time. The default is
    /// 0.1, the maximum 1.
    #[must_use]
    pub fn jitter(mut self, part: f64) -> Self {
        self.jitter = part.clamp(0.0, 1.0);
        self
    }

    /// Pauses after failures never grow beyond this; 32 intervals unless set.
    #[must_use]
    pub fn longest_pause(mut self, pause: Duration) -> Self {
        self.longest_pause = Some(pause);
        self
    }

    /// The longest pause that the other side can ask for by `Retry-After`; an hour unless set.
    #[must_use]
    pub fn longest_retry_after(mut self, pause: Duration) -> Self {
        self.longest_retry_after = pause;
        self
    }

    /// Unready when polls fail and the last success is longer ago than this; the longest pause unless set.
    #[must_use]
    pub fn stale_after(mut self, age: Duration) -> Self {
        self.stale_after = Some(age);
        self
    }

    /// Remembers what was seen across restarts; without it, everything is added again after one.
    #[must_use]
    pub fn memory(mut self, memory: impl Memory) -> Self {
        self.memory = Some(Box::new(memory));
        self
    }

    /// Counts here; one registered [`Metrics`] serves all sources of a process.
    #[must_use]
    pub fn metrics(mut self, metrics: &Metrics) -> Self {
        self.metrics = metrics.clone();
        self
    }

    /// Asks on replicas that stand by, too, so that the stream is warm when one of them takes over. Without it, a controller asks
    /// only while its replica leads. Has no effect together with a [memory](Self::memory), which only the leader may write.
    #[must_use]
    pub fn on_standbys(mut self) -> Self {
        self.on_standbys = true;
        self
    }

    /// Whether standby replicas poll.
    pub fn polls_on_standbys(&self) -> bool {
        self.on_standbys && self.memory.is_none()
    }

    /// Ends the stream when it is cancelled, also in the middle of a poll or a pause.
    #[must_use]
    pub fn shutdown(mut self, token: CancellationToken) -> Self {
        self.shutdown = token;
        self
    }
}

/// The changes of a source. Dropping it ends the watch at once.
///
/// It works only while it is asked for the next change: a slow consumer delays the next poll, and what waits for it is
/// never more than what one poll found.
#[must_use = "nothing is polled unless the stream is"]
pub struct Changes<T>(Pin<Box<dyn Stream<Item = Change<T>> + Send>>);

impl<T> Stream for Changes<T> {
    type Item = Change<T>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Change<T>>> {
        self.0.poll_next_unpin(context)
    }
}

/// Watches a source: polls at once, and then once per interval.
///
/// Guarantees: no error and no panic of the source ends the stream. Pauses grow after failures, with full jitter, and
/// the first is no longer than the interval. Changes come in the order of the source. Each comes at least once, also
/// after a crash, if there is a memory. Starts no task of its own: the consumer drives the stream.
pub fn watch<S: Source>(source: S, options: Options) -> (Changes<S::Item>, Health) {
    let pauses = Pauses::new(options.interval, options.jitter, options.longest_pause, options.longest_retry_after);
    let health = Health::new(source.name(), options.stale_after.unwrap_or(pauses.longest()), options.metrics);
    let driver = Driver {
        source,
        memory: options.memory,
        recalled: false,
        unsaved: false,
        pauses,
        health: health.clone(),
        pending: VecDeque::new(),
        failures: 0,
        due: Some(Instant::now()),
    };
    let shutdown = options.shutdown;
    let changes = stream::unfold((driver, shutdown), |(mut driver, shutdown)| async move {
        let change = shutdown.run_until_cancelled(driver.next()).await.flatten()?;
        Some((change, (driver, shutdown)))
    });
    (Changes(changes.fuse().boxed()), health)
}

struct Driver<S: Source> {
    source: S,
    memory: Option<Box<dyn Memory>>,
    recalled: bool,
    /// Changes were handed out that the memory does not know.
    unsaved: bool,
    pauses: Pauses,
    health: Health,
    pending: VecDeque<Change<S::Item>>,
    /// In a row.
    failures: u32,
    /// Of the next poll; nothing when there will be none.
    due: Option<Instant>,
}

impl<S: Source> Driver<S> {
    async fn next(&mut self) -> Option<Change<S::Item>> {
        loop {
            if let Some(change) = self.pending.pop_front() {
                self.health.changed(change.kind());
                return Some(change);
            }
            // To ask for more is to have taken what there was.
            self.save().await;
            tokio::time::sleep_until(self.due?).await;
            let began = Instant::now();
            let outcome = self.round().await;
            self.settle(outcome, began);
        }
    }

    async fn round(&mut self) -> Result<Polled<S::Item>, SourceError> {
        if !self.recalled {
            if let Some(memory) = &mut self.memory {
                let remembered = memory.load().await.map_err(SourceError::new)?;
                self.source.recall(remembered);
            }
            self.recalled = true;
        }
        let poll = AssertUnwindSafe(async { self.source.poll().await });
        // The panic's own message describes the cause. Here it counts as one failed poll.
        poll.catch_unwind().await.unwrap_or_else(|_| Err(SourceError::transient("Panic", "the source panicked")))
    }

    fn settle(&mut self, outcome: Result<Polled<S::Item>, SourceError>, began: Instant) {
        let took = began.elapsed();
        let pause = match outcome {
            Ok(polled) => self.succeeded(polled, took),
            Err(error) => Some(self.failed(&error, took)),
        };
        self.due = pause.map(|pause| began + took + pause);
    }

    fn succeeded(&mut self, polled: Polled<S::Item>, took: Duration) -> Option<Duration> {
        if self.failures > 0 {
            tracing::info!(source = self.health.name(), failures = self.failures, "polls succeed again");
        }
        self.failures = 0;
        self.health.succeeded(took);
        self.unsaved |= !polled.changes.is_empty();
        self.pending = polled.changes.into();
        let interval = self.pauses.after_success(rand::random());
        if let Some(error) = polled.failure {
            let text = in_one_line(&error);
            tracing::warn!(source = self.health.name(), reason = error.reason(), "a part of a poll failed: {text}");
            self.health.partly_failed(error.reason(), text);
            if let class @ ErrorClass::After(_) = error.class() {
                return Some(self.pauses.after_failure(1, class, rand::random()));
            }
        }
        match polled.next {
            Next::AfterInterval => Some(interval),
            Next::Now => Some(Duration::ZERO),
            Next::Never => None,
        }
    }

    fn failed(&mut self, error: &SourceError, took: Duration) -> Duration {
        self.failures = self.failures.saturating_add(1);
        let pause = self.pauses.after_failure(self.failures, error.class(), rand::random());
        let text = in_one_line(error);
        let (source, reason, failures) = (self.health.name(), error.reason(), self.failures);
        tracing::warn!(source, reason, failures, ?pause, "poll failed: {text}");
        self.health.failed(reason, text, took);
        pause
    }

    /// A failed save is tried again after the next poll; until then a crash would repeat changes, not lose them.
    async fn save(&mut self) {
        let (true, Some(memory)) = (self.unsaved, &mut self.memory) else { return };
        if let Some(entries) = self.source.remembered()
            && let Err(error) = memory.save(&entries).await
        {
            tracing::warn!(
                source = self.health.name(),
                reason = error.reason(),
                "cannot remember: {}",
                in_one_line(&error)
            );
            self.health.not_saved(error.reason());
            // From now on, the memory of the other process counts.
            self.recalled &= !matches!(error, MemoryError::Changed { .. });
            return;
        }
        self.unsaved = false;
    }
}

impl<S: Source> Drop for Driver<S> {
    fn drop(&mut self) {
        self.health.ended();
    }
}
