//! An error for operators that need no error type of their own.

use std::{error::Error as StdError, fmt, time::Duration};

use konverge_apply::{ApplyError, SetError};
use konverge_core::{
    error::{Classify, ErrorClass},
    reasons,
};

/// What went wrong in a run: a sentence for people, a reason for machines, and when to try again.
///
/// The sentence ends up in the status and the events of the object, so it never holds a secret value.
#[derive(Debug)]
pub struct Error {
    message: String,
    reason: &'static str,
    class: ErrorClass,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

impl Error {
    /// It may go away by itself: the run is repeated with growing pauses.
    pub fn transient(reason: &'static str, message: impl Into<String>) -> Self {
        Self::new(ErrorClass::Transient, reason, message)
    }

    /// It stays until somebody changes something: the object is reported as stalled, and looked at again when it changes.
    pub fn permanent(reason: &'static str, message: impl Into<String>) -> Self {
        Self::new(ErrorClass::Permanent, reason, message)
    }

    /// It is worth another attempt after this long.
    pub fn after(pause: Duration, reason: &'static str, message: impl Into<String>) -> Self {
        Self::new(ErrorClass::After(pause), reason, message)
    }

    /// What caused it.
    #[must_use]
    pub fn caused_by(self, source: impl StdError + Send + Sync + 'static) -> Self {
        Self { source: Some(Box::new(source)), ..self }
    }

    fn new(class: ErrorClass, reason: &'static str, message: impl Into<String>) -> Self {
        Self { message: message.into(), reason, class, source: None }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source.as_deref().map(|source| source as &(dyn StdError + 'static))
    }
}

impl Classify for Error {
    fn class(&self) -> ErrorClass {
        self.class
    }

    fn reason(&self) -> &'static str {
        self.reason
    }
}

impl From<ApplyError> for Error {
    fn from(error: ApplyError) -> Self {
        Self::new(error.class(), error.reason(), "cannot write to the cluster").caused_by(error)
    }
}

impl From<SetError> for Error {
    fn from(error: SetError) -> Self {
        Self::new(error.class(), error.reason(), "cannot bring the children in step").caused_by(error)
    }
}

impl From<kube::Error> for Error {
    /// Asking the API server for something of the author's own. What it refuses today it may grant when a role was mended, so
    /// only what it calls invalid is permanent.
    fn from(error: kube::Error) -> Self {
        let class = match &error {
            kube::Error::Api(status) if status.code == 422 || status.code == 400 => ErrorClass::Permanent,
            _ => ErrorClass::Transient,
        };
        Self::new(class, reasons::REQUEST_FAILED, "a request to the API server failed").caused_by(error)
    }
}

impl From<serde_json::Error> for Error {
    fn from(error: serde_json::Error) -> Self {
        Self::permanent(reasons::INVALID_DATA, "cannot convert data").caused_by(error)
    }
}

impl From<std::io::Error> for Error {
    fn from(error: std::io::Error) -> Self {
        Self::transient(reasons::INPUT_OUTPUT, "input or output failed").caused_by(error)
    }
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    #[test]
    fn what_the_api_server_calls_invalid_is_permanent() {
        let class = |code| Error::from(kube::Error::Api(Status { code, ..Status::default() }.boxed())).class();
        assert_eq!([422, 400].map(class), [ErrorClass::Permanent; 2]);
        assert_eq!([403, 404, 409, 429, 500].map(class), [ErrorClass::Transient; 5]);
    }
}
