//! An environment that is followed: stream first, poll as the net, a full look after every connection.

use std::{pin::pin, time::Duration};

use futures::{
    FutureExt, Stream, StreamExt,
    future::{Fuse, FusedFuture, OptionFuture},
};
use konverge_zopp_client::{EnvironmentReader, FetchError, WatchEvent};
use tokio::time::{Instant, sleep_until};
use tracing::{debug, info, warn};

use super::{cause, missed::Missed};
use crate::hub::{Failures, Feed, SHORTEST_PAUSE, Stated, poll_after};

/// A connection that lived this long was a good one: the next failure begins counting anew.
const HEALTHY: Duration = Duration::from_secs(30);

pub(super) struct Follow<'a> {
    pub(super) reader: &'a EnvironmentReader,
    pub(super) feed: Feed,
}

impl Follow<'_> {
    /// Never ends by itself; the task that spawned it cancels it.
    pub(super) async fn run(self) {
        let mut failures = Failures::default();
        loop {
            let began = Instant::now();
            let ended = Box::pin(self.connect()).await;
            if began.elapsed() >= HEALTHY {
                failures = Failures::default();
            }
            failures.count(ended.as_ref().err().map(cause));
            self.feed.metrics().stream_ends.inc();
            let environment = self.reader.name();
            match &ended {
                Ok(()) => info!(%environment, "stream ended, opening it again"),
                Err(error) => warn!(%environment, %error, "no stream"),
            }
            // A server that ends a good stream without an error wants it opened anew, and changes may be waiting.
            if failures.in_a_row() > 1 || ended.is_err() {
                let pause = failures.pause(rand::random());
                // An environment that can be read but not watched is polled as often as all others.
                let is_readable = self.feed.failure().is_none();
                self.feed.pause(if is_readable { pause.min(self.feed.poll_interval()) } else { pause }).await;
            }
        }
    }

    /// One connection, from its opening to its end.
    async fn connect(&self) -> Result<(), FetchError> {
        let known = self.feed.stated().map(|stated| stated.revision.number);
        let opened = Box::pin(self.reader.watch(known)).await;
        // Also without a stream the poll's question is asked: whether the environment can be read decides what is said.
        self.feed.look().await;
        let stream = opened?;
        let _open = self.feed.metrics().stream_opened();
        debug!(environment = %self.reader.name(), "stream open");
        Box::pin(self.listen(stream)).await
    }

    /// Reads the stream at every moment, also while a poll is under way: a change that both tell is no missed one.
    async fn listen(&self, stream: impl Stream<Item = Result<WatchEvent, FetchError>>) -> Result<(), FetchError> {
        let mut stream = pin!(stream);
        let mut poll = pin!(Fuse::terminated());
        let mut missed = Missed::default();
        let mut failures = Failures::default();
        let mut next_poll = poll_after(self.feed.poll_interval());
        loop {
            tokio::select! {
                // The stream before all others: what has arrived counts as told.
                biased;
                event = stream.next() => match event {
                    Some(Ok(WatchEvent::Changed { version, .. })) => {
                        missed.streamed(version);
                        self.feed.changed(version);
                    }
                    Some(Ok(WatchEvent::Resync { .. })) => {
                        self.feed.look().await;
                    }
                    Some(Err(error)) => return Err(error),
                    None => return Ok(()),
                },
                polled = &mut poll, if !poll.is_terminated() => match polled {
                    Polled::Nothing => {
                        failures.count(self.feed.failure().map(|failure| failure.cause));
                        next_poll = Instant::now() + failures.pause(rand::random());
                    }
                    Polled::Answer(change) => {
                        failures = Failures::default();
                        next_poll = poll_after(self.feed.poll_interval());
                        if let Some(change) = change {
                            let (before, found) = *change;
                            missed.polled(&before, &found, Instant::now());
                        }
                    }
                },
                () = sleep_until(next_poll), if poll.is_terminated() => poll.set(self.poll().fuse()),
                () = self.feed.failed() => {
                    let mut next = failures;
                    next.count(self.feed.failure().map(|failure| failure.cause));
                    next_poll = next_poll.min(Instant::now() + next.pause(rand::random()));
                }
                // A poll that is under way may miss what changed; the request waits until the poll has ended.
                () = self.feed.wanted(), if poll.is_terminated() => {
                    next_poll = next_poll.min(Instant::now() + SHORTEST_PAUSE);
                }
                Some(()) = OptionFuture::from(missed.due().map(sleep_until)) => {
                    missed.admit();
                    self.feed.metrics().missed_events.inc();
                    warn!(environment = %self.reader.name(), "the poll found a change that the stream did not tell");
                }
            }
        }
    }

    /// The net beneath the stream.
    async fn poll(&self) -> Polled {
        let before = self.feed.stated();
        let answer = self.feed.look().await;
        self.feed.metrics().polls.inc();
        match answer {
            None => Polled::Nothing,
            // Out of a trouble there is no telling since when the environment has been so.
            Some(found) => Polled::Answer(before.map(|before| Box::new((before, found)))),
        }
    }
}

/// The result of a poll.
enum Polled {
    /// No answer.
    Nothing,
    /// An answer: what was known when the poll began, if anything was, and what the server stated.
    Answer(Option<Box<(Stated, Stated)>>),
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The size of a future, which is what it takes while it waits.
    fn bytes<'a, F: Future>(_: impl FnOnce(&'a Follow<'a>) -> F) -> usize {
        size_of::<F>()
    }

    #[test]
    fn an_environment_in_which_nothing_happens_takes_little_memory() {
        let events = futures::stream::pending::<Result<WatchEvent, FetchError>>;
        let (connected, listening) = (bytes(Follow::connect), bytes(|follow| follow.listen(events())));
        assert!(connected + listening < 4 * 1024, "{connected} and {listening} bytes");
    }
}
