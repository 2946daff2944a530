//! The error of a failed poll.

use std::{error::Error, fmt, time::Duration};

use konverge_core::error::{Classify, ErrorClass};

/// A failed poll: what failed, and when another attempt makes sense.
///
/// Its text names the source, the cause and, where there is one, the next step. It never holds a token, a header's
/// value, or the query of an address.
#[derive(Debug)]
pub struct SourceError {
    class: ErrorClass,
    reason: &'static str,
    cause: Box<dyn Error + Send + Sync>,
}

impl SourceError {
    /// From an error that knows its own class.
    pub fn new(error: impl Classify + Error + Send + Sync + 'static) -> Self {
        Self { class: error.class(), reason: error.reason(), cause: Box::new(error) }
    }

    /// It may go away by itself. `reason` is a `CamelCase` word from a fixed list.
    pub fn transient(reason: &'static str, cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { class: ErrorClass::Transient, reason, cause: cause.into() }
    }

    /// It stays until somebody changes something; polled again all the same, since that change may be outside.
    pub fn permanent(reason: &'static str, cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { class: ErrorClass::Permanent, reason, cause: cause.into() }
    }

    /// The other side said when to come back.
    pub fn after(pause: Duration, reason: &'static str, cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { class: ErrorClass::After(pause), reason, cause: cause.into() }
    }
}

impl Classify for SourceError {
    fn class(&self) -> ErrorClass {
        self.class
    }

    fn reason(&self) -> &'static str {
        self.reason
    }
}

impl fmt::Display for SourceError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.cause.fmt(formatter)
    }
}

impl Error for SourceError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.cause.source()
    }
}
