//! An error for operators that need no error type of their own.

use std::{error::Error as StdError, fmt, time::Duration};

use konverge_apply::{ApplyError, SetError, error::class_of};
use konverge_core::{
    error::{Classify, ErrorClass},
    reasons,
};
use kube::core::Status;

/// The error of a run: a sentence for people, a reason for machines, and when to try again.
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
    pub fn transient(reason: impl Into<&'static str>, message: impl Into<String>) -> Self {
        Self::new(ErrorClass::Transient, reason.into(), message)
    }

    /// It stays until somebody changes something: the object is reported as stalled, and looked at again when it changes.
    pub fn permanent(reason: impl Into<&'static str>, message: impl Into<String>) -> Self {
        Self::new(ErrorClass::Permanent, reason.into(), message)
    }

    /// Somebody else refuses it and may change that at any time: the object is reported as stalled, and the run is repeated, at last every one to
    /// two minutes.
    pub fn refused(reason: impl Into<&'static str>, message: impl Into<String>) -> Self {
        Self::new(ErrorClass::Refused, reason.into(), message)
    }

    /// This endpoint answers nobody: one object of the controller finds out when it answers again, and then all objects that failed so are tried.
    /// `endpoint` comes from a fixed list. Not for an endpoint of the object's own.
    pub fn unavailable(endpoint: &'static str, reason: impl Into<&'static str>, message: impl Into<String>) -> Self {
        Self::new(ErrorClass::Unavailable(endpoint), reason.into(), message)
    }

    /// It is worth another attempt after this long.
    pub fn after(pause: Duration, reason: impl Into<&'static str>, message: impl Into<String>) -> Self {
        Self::new(ErrorClass::After(pause), reason.into(), message)
    }

    /// Adds the error that caused it.
    #[must_use]
    pub fn caused_by(self, source: impl StdError + Send + Sync + 'static) -> Self {
        Self { source: Some(Box::new(source)), ..self }
    }

    pub(crate) fn new(class: ErrorClass, reason: &'static str, message: impl Into<String>) -> Self {
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
        Self::new(error.class(), error.reason(), "cannot bring the children in sync").caused_by(error)
    }
}

impl From<kube::Error> for Error {
    /// Converts the error of a request of the author's own to the API server. Its class is that of every answer of the API server.
    fn from(error: kube::Error) -> Self {
        // Another writer was faster. An object that exists already has the same code.
        let is_conflict = |status: &Status| status.code == 409 && status.reason == "Conflict";
        let reason = match &error {
            kube::Error::Api(status) if is_conflict(status) => reasons::CONFLICT,
            _ => reasons::REQUEST_FAILED,
        };
        Self::new(class_of(&error), reason, "a request to the API server failed").caused_by(error)
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
    use super::*;

    #[test]
    fn a_request_of_the_authors_own_has_the_class_of_every_answer_of_the_api_server() {
        let class = |code| Error::from(kube::Error::Api(Status { code, ..Status::default() }.boxed())).class();
        for code in [400, 401, 403, 404, 409, 422, 429, 500, 503] {
            assert_eq!(class(code), konverge_core::api_server::class(code, None), "{code}");
        }
    }

    #[test]
    fn a_lost_race_is_told_from_an_object_that_exists_already() {
        for (code, reason, expected) in [
            (409, "Conflict", "Conflict"),
            (409, "AlreadyExists", "RequestFailed"),
            (403, "Forbidden", "RequestFailed"),
        ] {
            let status = Status { code, reason: reason.to_owned(), ..Status::default() };
            assert_eq!(Error::from(kube::Error::Api(status.boxed())).reason(), expected, "{code} {reason}");
        }
    }
}
