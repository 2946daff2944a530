//! The hub's task: stream first, poll as the net, a full look after every connection.

use std::{pin::pin, sync::Arc, time::Duration};

use futures::{
    FutureExt, Stream, StreamExt,
    future::{Fuse, FusedFuture, OptionFuture},
};
use konverge_zopp_client::{FetchError, WatchEvent};
use tokio::time::{Instant, sleep, sleep_until};
use tracing::{debug, info, warn};

use super::{
    Fetcher, Stated, Wake,
    missed::Missed,
    pace::{Failures, SHORTEST_PAUSE},
};
use crate::metrics::Metrics;

/// A connection that lived this long was a good one: the next failure begins counting anew.
const HEALTHY: Duration = Duration::from_secs(30);

/// Polls come up to this part of the interval early, so that many environments do not poll at the same moment.
const POLL_JITTER: f64 = 0.2;

pub(super) struct Follow {
    pub(super) fetcher: Arc<Fetcher>,
    pub(super) poll_interval: Duration,
    pub(super) wake: Wake,
    pub(super) metrics: Metrics,
}

impl Follow {
    /// Never ends by itself; the task that spawned it cancels it.
    pub(super) async fn run(self) {
        let mut failures = Failures::default();
        loop {
            let began = Instant::now();
            let ended = Box::pin(self.connect()).await;
            if began.elapsed() >= HEALTHY {
                failures = Failures::default();
            }
            failures.count(ended.as_ref().err());
            self.metrics.stream_ends.inc();
            let environment = self.fetcher.reader.name();
            match &ended {
                Ok(()) => info!(%environment, "stream ended, opening it again"),
                Err(error) => warn!(%environment, %error, "no stream"),
            }
            // A server that ends a good stream without an error wants it opened anew, and changes may be waiting.
            if failures.in_a_row() > 1 || ended.is_err() {
                let pause = failures.pause(rand::random());
                // An environment that can be read but not watched is polled as often as all others.
                let is_readable = self.fetcher.failure().is_none();
                self.pause(if is_readable { pause.min(self.poll_interval) } else { pause }).await;
            }
        }
    }

    /// Waits before the next attempt. A Secret that changes meanwhile cuts the pause short, because its owner may have fixed the cause.
    async fn pause(&self, pause: Duration) {
        let began = Instant::now();
        tokio::select! {
            () = sleep(pause) => {}
            () = self.fetcher.wanted.notified() => sleep_until(began + pause.min(SHORTEST_PAUSE)).await,
        }
    }

    /// One connection, from its opening to its end.
    async fn connect(&self) -> Result<(), FetchError> {
        let known = self.fetcher.stated().map(|stated| stated.version);
        let opened = Box::pin(self.fetcher.reader.watch(known)).await;
        // Also without a stream the poll's question is asked: whether the environment can be read decides what is said.
        self.look().await;
        let stream = opened?;
        let _open = self.metrics.stream_opened();
        debug!(environment = %self.fetcher.reader.name(), "stream open");
        Box::pin(self.listen(stream)).await
    }

    /// Reads the stream at every moment, also while a poll is under way: a change that both tell is no missed one.
    async fn listen(&self, stream: impl Stream<Item = Result<WatchEvent, FetchError>>) -> Result<(), FetchError> {
        let mut stream = pin!(stream);
        let mut poll = pin!(Fuse::terminated());
        let mut missed = Missed::default();
        let mut failures = Failures::default();
        let mut next_poll = poll_after(self.poll_interval);
        loop {
            tokio::select! {
                // The stream before all others: what has arrived counts as told.
                biased;
                event = stream.next() => match event {
                    Some(Ok(WatchEvent::Changed { version, .. })) => {
                        missed.streamed(version);
                        self.fetcher.changed(version);
                        (self.wake)(self.fetcher.reader.name());
                    }
                    Some(Ok(WatchEvent::Resync { .. })) => {
                        self.look().await;
                    }
                    Some(Err(error)) => return Err(error),
                    None => return Ok(()),
                },
                polled = &mut poll, if !poll.is_terminated() => match polled {
                    Polled::Nothing => {
                        failures.count(self.fetcher.failure().as_deref());
                        next_poll = Instant::now() + failures.pause(rand::random());
                    }
                    Polled::Answer(change) => {
                        failures = Failures::default();
                        next_poll = poll_after(self.poll_interval);
                        if let Some((before, found)) = change {
                            missed.polled(&before, &found, Instant::now());
                        }
                    }
                },
                () = sleep_until(next_poll), if poll.is_terminated() => poll.set(self.poll().fuse()),
                () = self.fetcher.failed.notified() => {
                    let mut next = failures;
                    next.count(self.fetcher.failure().as_deref());
                    next_poll = next_poll.min(Instant::now() + next.pause(rand::random()));
                }
                // A poll that is under way may miss what changed; the request waits until the poll has ended.
                () = self.fetcher.wanted.notified(), if poll.is_terminated() => {
                    next_poll = next_poll.min(Instant::now() + SHORTEST_PAUSE);
                }
                Some(()) = OptionFuture::from(missed.due().map(sleep_until)) => {
                    missed.admit();
                    self.metrics.missed_events.inc();
                    warn!(environment = %self.fetcher.reader.name(), "the poll found a change that the stream did not tell");
                }
            }
        }
    }

    /// The net beneath the stream.
    async fn poll(&self) -> Polled {
        let before = self.fetcher.stated();
        let answer = self.look().await;
        self.metrics.polls.inc();
        match answer {
            None => Polled::Nothing,
            // Out of a trouble there is no telling since when the environment has been so.
            Some(found) => Polled::Answer(before.map(|before| (before, found))),
        }
    }

    /// Asks the server what there is, and wakes everybody if that is news. Returns the answer if there was one. An unchanged
    /// environment is neither listed nor decrypted.
    ///
    /// The calls have memory of their own while they are under way. They take some kilobytes, and each environment has a task that waits most of the
    /// time.
    async fn look(&self) -> Option<Stated> {
        if let Some(stated) = Box::pin(self.fetcher.confirm()).await {
            return Some(stated);
        }
        let (before, trouble_before) = (self.fetcher.stated(), self.fetcher.trouble());
        self.fetcher.outdate();
        let answer = Box::pin(self.fetcher.snapshot(None)).await;
        let after = self.fetcher.stated();
        let same = match (&before, &after) {
            // A first manifest changes no content, but it proves which environment this is.
            (Some(before), Some(after)) => before.agrees_with(after) && before.has_manifest == after.has_manifest,
            (before, after) => before.is_none() && after.is_none(),
        };
        // Another trouble than before is news too: a server that was away may now refuse.
        if !same || trouble_before != self.fetcher.trouble() {
            (self.wake)(self.fetcher.reader.name());
        }
        answer.ok().map(|snapshot| Stated::by(&snapshot))
    }
}

/// When the next poll is due.
fn poll_after(interval: Duration) -> Instant {
    Instant::now() + jittered(interval, rand::random())
}

/// Until the next poll. `random` is in `0.0..1.0`.
fn jittered(interval: Duration, random: f64) -> Duration {
    interval.mul_f64(1.0 - POLL_JITTER * random)
}

/// The result of a poll.
enum Polled {
    /// No answer.
    Nothing,
    /// An answer: what was known when the poll began, if anything was, and what the server stated.
    Answer(Option<(Stated, Stated)>),
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The size of a future, which is what it takes while it waits.
    fn bytes<'a, F: Future>(_: impl FnOnce(&'a Follow) -> F) -> usize {
        size_of::<F>()
    }

    #[test]
    fn an_environment_in_which_nothing_happens_takes_little_memory() {
        let events = futures::stream::pending::<Result<WatchEvent, FetchError>>;
        let (connected, listening) = (bytes(Follow::connect), bytes(|follow| follow.listen(events())));
        assert!(connected + listening < 4 * 1024, "{connected} and {listening} bytes");
    }

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
