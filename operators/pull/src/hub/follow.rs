//! The hub's task: stream first, poll as the net, a full look after every connection.

use std::{pin::pin, sync::Arc, time::Duration};

use futures::{Stream, StreamExt};
use konverge_core::backoff::Backoff;
use konverge_zopp_client::{FetchError, WatchEvent};
use tokio::time::{Instant, sleep, sleep_until};
use tracing::{debug, info, warn};

use super::{Wake, fetch::Fetcher};
use crate::metrics::Metrics;

/// From a second, so that a restarted server is found again at once, to half a minute, twice as often as the poll.
const RECONNECT: Backoff = Backoff { base: Duration::from_secs(1), factor: 2.0, cap: Duration::from_secs(30) };

/// A connection that lived this long was a good one: the next failure begins counting anew.
const HEALTHY: Duration = Duration::from_secs(30);

/// Polls come up to this part of the interval early, so that many environments do not poll in step.
const POLL_JITTER: f64 = 0.2;

pub(super) struct Follow {
    pub(super) fetcher: Arc<Fetcher>,
    pub(super) poll_interval: Duration,
    pub(super) wake: Wake,
    pub(super) metrics: Metrics,
}

impl Follow {
    /// Never ends by itself; whoever spawned it cancels it.
    pub(super) async fn run(self) {
        let mut attempt = 0;
        loop {
            let began = Instant::now();
            let ended = self.connect().await;
            if began.elapsed() >= HEALTHY {
                attempt = 0;
            }
            self.metrics.stream_ended();
            let environment = self.fetcher.reader().name();
            match &ended {
                Ok(()) => info!(%environment, "stream ended, opening it again"),
                Err(error) => warn!(%environment, %error, "no stream"),
            }
            // A server that ends a good stream without an error wants it opened anew, and changes may be waiting.
            if attempt > 0 || ended.is_err() {
                sleep(RECONNECT.delay(attempt + 1, rand::random())).await;
            }
            attempt += 1;
        }
    }

    /// One connection, from its opening to its end.
    async fn connect(&self) -> Result<(), FetchError> {
        let known = self.fetcher.stated().map(|stated| stated.version);
        let opened = self.fetcher.reader().watch(known).await;
        // Also without a stream the poll's question is asked: whether the environment can be read decides what is said.
        self.look(Look::Connected).await;
        let stream = opened?;
        let _open = self.metrics.stream_opened();
        debug!(environment = %self.fetcher.reader().name(), "stream open");
        self.listen(stream).await
    }

    async fn listen(&self, stream: impl Stream<Item = Result<WatchEvent, FetchError>>) -> Result<(), FetchError> {
        let mut stream = pin!(stream);
        let mut failures = 0;
        let mut next_look = self.next_poll();
        loop {
            tokio::select! {
                event = stream.next() => match event {
                    Some(Ok(WatchEvent::Changed { version, .. })) => {
                        self.fetcher.changed(version);
                        (self.wake)(self.fetcher.reader().name());
                    }
                    Some(Ok(WatchEvent::Resync { .. })) => {
                        self.look(Look::Connected).await;
                    }
                    Some(Err(error)) => return Err(error),
                    None => return Ok(()),
                },
                () = sleep_until(next_look) => {
                    if self.look(Look::Poll).await {
                        failures = 0;
                        next_look = self.next_poll();
                    } else {
                        failures += 1;
                        next_look = Instant::now() + RECONNECT.delay(failures, rand::random());
                    }
                }
                () = self.fetcher.failed.notified() => {
                    next_look = next_look.min(Instant::now() + RECONNECT.delay(failures + 1, rand::random()));
                }
            }
        }
    }

    /// Asks the server what there is, and wakes everybody if that is news. Returns whether there was an answer.
    async fn look(&self, why: Look) -> bool {
        let (before, trouble_before) = (self.fetcher.stated(), self.fetcher.trouble());
        self.fetcher.outdate();
        let answer = self.fetcher.snapshot().await;
        let after = self.fetcher.stated();
        let same = match (&before, &after) {
            (Some(before), Some(after)) => before.agrees_with(after),
            (before, after) => before.is_none() && after.is_none(),
        };
        if matches!(why, Look::Poll) {
            self.metrics.polled();
            if before.is_some() && after.is_some() && !same {
                self.metrics.missed_event();
                warn!(environment = %self.fetcher.reader().name(), "the poll found a change that the stream did not tell");
            }
        }
        // Another trouble than before is news too: a server that was away may now refuse.
        if !same || trouble_before != self.fetcher.trouble() {
            (self.wake)(self.fetcher.reader().name());
        }
        answer.is_ok()
    }

    fn next_poll(&self) -> Instant {
        Instant::now() + self.poll_interval.mul_f64(1.0 - POLL_JITTER * rand::random::<f64>())
    }
}

/// Why the environment is looked at.
#[derive(Clone, Copy)]
enum Look {
    /// The stream was opened, or the server asked for it: changes may have been missed, as is expected then.
    Connected,
    /// The net beneath the stream.
    Poll,
}
