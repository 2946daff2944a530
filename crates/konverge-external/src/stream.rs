//! Any stream as a source.

use std::pin::Pin;

use futures::{Stream, StreamExt};

use crate::{Change, Next, Polled, Source, SourceError};

/// A stream of changes as a source, for its health and metrics; see [`from_stream`].
pub struct StreamSource<T> {
    name: String,
    stream: Pin<Box<dyn Stream<Item = Result<Change<T>, SourceError>> + Send>>,
    started: bool,
}

/// Makes a source of a stream. The stream sets the pace; its errors are counted and waited after as those of a poll, and its end
/// is the end of the watch. Nothing is remembered across restarts.
///
/// A stream of something else becomes one of changes by `map`:
///
/// ```
/// use std::time::Duration;
///
/// use futures::{StreamExt, stream};
/// use konverge_external::{Change, Options, from_stream, watch};
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
/// let letters = stream::iter(["a", "b"]).map(|letter| Ok(Change::Added(letter)));
/// let (changes, _health) = watch(from_stream("letters", letters), Options::every(Duration::from_secs(1)));
/// let letters: Vec<_> = changes.map(Change::into_item).collect().await;
/// assert_eq!(letters, ["a", "b"]);
/// # });
/// ```
pub fn from_stream<T>(
    name: impl Into<String>,
    stream: impl Stream<Item = Result<Change<T>, SourceError>> + Send + 'static,
) -> StreamSource<T> {
    StreamSource { name: name.into(), stream: Box::pin(stream), started: false }
}

impl<T: Send + 'static> Source for StreamSource<T> {
    type Item = T;

    fn name(&self) -> &str {
        &self.name
    }

    async fn poll(&mut self) -> Result<Polled<T>, SourceError> {
        // It may have nothing to say for long, and is healthy from the start.
        if !std::mem::replace(&mut self.started, true) {
            return Ok(Polled::now(Vec::new()));
        }
        match self.stream.next().await {
            Some(change) => Ok(Polled::now(vec![change?])),
            None => Ok(Polled { changes: Vec::new(), next: Next::Never, failure: None }),
        }
    }
}
