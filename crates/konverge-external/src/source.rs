//! A source of changes.

use crate::{Change, Entries, Remembered, SourceError};

/// Something outside that can be asked what changed since it was asked last.
///
/// The source decides what a change is; [`watch`](crate::watch) decides when to ask, and looks after pauses, health,
/// metrics and memory. A poll that is dropped half-way or fails must leave the source as it was: state is moved on with
/// the changes that are handed out, never before.
///
/// ```
/// use std::collections::BTreeSet;
///
/// use konverge_external::{Change, Polled, Source, SourceError};
///
/// /// The users that are logged in.
/// struct Users {
///     known: BTreeSet<String>,
/// }
///
/// impl Source for Users {
///     type Item = String;
///
///     fn name(&self) -> &str {
///         "users"
///     }
///
///     async fn poll(&mut self) -> Result<Polled<String>, SourceError> {
///         let now = list().await.map_err(|error| SourceError::transient("Unavailable", error))?;
///         let added = now.difference(&self.known).cloned().map(Change::Added);
///         let removed = self.known.difference(&now).cloned().map(Change::Removed);
///         let changes: Vec<_> = added.chain(removed).collect();
///         self.known = now;
///         Ok(changes.into())
///     }
/// }
/// # async fn list() -> Result<BTreeSet<String>, std::io::Error> { Ok(BTreeSet::new()) }
/// ```
pub trait Source: Send + 'static {
    /// The type of the items.
    type Item: Send + 'static;

    /// Labels metrics and logs; from a small fixed set, and without secrets.
    fn name(&self) -> &str;

    /// Asks what changed. It must end by itself: whatever it waits for has a timeout.
    fn poll(&mut self) -> impl Future<Output = Result<Polled<Self::Item>, SourceError>> + Send;

    /// Goes on from what [`Source::remembered`] returned before a restart. Called before the first poll, and again if another
    /// process has written the memory since: then its entries replace what this process knows.
    fn recall(&mut self, remembered: Remembered) {
        drop(remembered);
    }

    /// The state to remember: one entry for each known item. Asked for after changes have been taken by the consumer;
    /// nothing for a source that starts anew each time.
    fn remembered(&self) -> Option<Entries> {
        None
    }
}

/// The result of a poll. It gets no further field, so that a source can be written with a literal.
#[derive(Debug)]
pub struct Polled<T> {
    /// Delivered in this order.
    pub changes: Vec<Change<T>>,
    /// When to poll again.
    pub next: Next,
    /// A part that failed while the rest is good: it is counted and logged, and the changes are delivered. The next poll
    /// comes when `next` says so, or when the other side said so.
    pub failure: Option<SourceError>,
}

/// When to poll again after a poll that did not fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Next {
    /// After the usual interval.
    AfterInterval,
    /// At once: the other side sets the pace, or there is more.
    Now,
    /// Never: there will be no more changes.
    Never,
}

impl<T> Polled<T> {
    /// Changes, and the next poll at once.
    pub fn now(changes: Vec<Change<T>>) -> Self {
        Self { changes, next: Next::Now, failure: None }
    }
}

impl<T> From<Vec<Change<T>>> for Polled<T> {
    /// Changes, and the next poll after the usual interval.
    fn from(changes: Vec<Change<T>>) -> Self {
        Self { changes, next: Next::AfterInterval, failure: None }
    }
}
