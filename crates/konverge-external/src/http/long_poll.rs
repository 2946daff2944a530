//! Long polls: the other side holds the answer back until there is something new.

use std::time::Duration;

/// How a server is asked to wait, and how it is told what is known.
///
/// With nothing but a duration, the conditional headers tell what is known, and the server is expected to wait by itself.
#[derive(Debug, Clone)]
pub struct LongPoll {
    pub(super) wait: Duration,
    pub(super) parameters: Vec<(String, String)>,
    pub(super) cursor: Option<Cursor>,
}

#[derive(Debug, Clone)]
pub(super) struct Cursor {
    pub(super) header: http::HeaderName,
    pub(super) parameter: String,
}

impl LongPoll {
    /// The server holds an answer back for at most this long; the request may take that much longer.
    pub fn new(wait: Duration) -> Self {
        Self { wait, parameters: Vec::new(), cursor: None }
    }

    /// Adds a query parameter to each request, for example `wait=60s`.
    #[must_use]
    pub fn parameter(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.parameters.push((name.into(), value.into()));
        self
    }

    /// An answer names its state in this header, and the next request hands it back in this query parameter. It is taken as it is, also
    /// when it goes back, and given up after any answer that is not a document.
    #[must_use]
    pub fn cursor(mut self, header: http::HeaderName, parameter: impl Into<String>) -> Self {
        self.cursor = Some(Cursor { header, parameter: parameter.into() });
        self
    }

    /// The query of the next request.
    pub(super) fn query(&self, cursor: Option<&str>) -> Vec<(String, String)> {
        let mut query = self.parameters.clone();
        if let (Some(names), Some(cursor)) = (&self.cursor, cursor) {
            query.push((names.parameter.clone(), cursor.to_owned()));
        }
        query
    }

    /// Whether "nothing new" came after a wait, and not at once as from a server that does not know this game. Half the time, because servers
    /// take something off at random.
    pub(super) fn waited(&self, took: Duration) -> bool {
        took >= self.wait / 2
    }
}
