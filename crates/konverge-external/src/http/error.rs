//! Why a document could not be had.

use std::time::Duration;

use konverge_core::{
    error::{Classify, ErrorClass},
    http_status,
};

use super::{ClientError, token::TokenError};

/// A request that did not give what was asked for. Addresses are shown without user, password and query.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HttpError {
    /// There is no client to ask with.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// There is no token to ask with.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// No connection, or it broke.
    #[error("cannot get {url}: {cause}")]
    Transport {
        /// The address of the request.
        url: String,
        /// The error of the HTTP client.
        cause: String,
    },
    /// It took too long.
    #[error("cannot get {url}: no complete answer within {} s", limit.as_secs_f32())]
    Timeout {
        /// The address of the request.
        url: String,
        /// For how long it was waited.
        limit: Duration,
    },
    /// It answered, but not with a document.
    #[error("{url} answered {status}")]
    Status {
        /// The address of the request.
        url: String,
        /// The status.
        status: http::StatusCode,
        /// When to come back, if it said so.
        retry_after: Option<Duration>,
    },
    /// It leads elsewhere, and that is not followed.
    #[error("{url} redirects to {to}, which is not followed: {why}")]
    Redirect {
        /// The address of the request.
        url: String,
        /// Where it leads.
        to: String,
        /// Why not.
        why: &'static str,
    },
    /// The document is too large.
    #[error("{url} is larger than the {limit} bytes that are allowed; raise the limit if that is meant")]
    TooLarge {
        /// The address of the request.
        url: String,
        /// Bytes.
        limit: usize,
    },
    /// The document is empty.
    #[error("{url} answered {status} with an empty document, which is taken for a fault; allow it if it is meant")]
    Empty {
        /// The address of the request.
        url: String,
        /// The status.
        status: http::StatusCode,
    },
    /// The document is of another kind than expected.
    #[error("{url} answered with a document of type {found:?}, where {expected} is expected")]
    ContentType {
        /// The address of the request.
        url: String,
        /// The received value.
        found: String,
        /// The expected value.
        expected: String,
    },
    /// The stream of events ended, as it may at any time.
    #[error("the event stream of {url} ended: {cause}")]
    StreamEnded {
        /// The address of the request.
        url: String,
        /// How.
        cause: String,
        /// When to come back, if it said so.
        retry_after: Option<Duration>,
    },
    /// An event of a stream is too large; the stream goes on.
    #[error(
        "an event of {url} is larger than the {limit} bytes that are allowed and is skipped; raise EventStream::event_limit to \
         receive such events"
    )]
    EventTooLarge {
        /// The stream.
        url: String,
        /// Bytes.
        limit: usize,
    },
    /// The system has no randomness for a key.
    #[error("cannot make a key for fingerprints: {0}")]
    Key(#[from] getrandom::Error),
}

impl Classify for HttpError {
    fn class(&self) -> ErrorClass {
        match self {
            Self::Status { status, retry_after, .. } => http_status::class(status.as_u16(), *retry_after, None),
            Self::StreamEnded { retry_after: Some(pause), .. } => ErrorClass::After(*pause),
            Self::Redirect { .. } | Self::TooLarge { .. } | Self::EventTooLarge { .. } => ErrorClass::Permanent,
            Self::Client(_)
            | Self::Token(_)
            | Self::Transport { .. }
            | Self::Timeout { .. }
            | Self::Empty { .. }
            | Self::ContentType { .. }
            | Self::StreamEnded { .. }
            | Self::Key(_) => ErrorClass::Transient,
        }
    }

    fn reason(&self) -> &'static str {
        match self {
            Self::Client(_) | Self::Key(_) => "ClientUnavailable",
            Self::Token(_) => "TokenUnavailable",
            Self::Transport { .. } => "ConnectionFailed",
            Self::Timeout { .. } => "Timeout",
            Self::Status { status, .. } => match status.as_u16() {
                401 => "Unauthorized",
                403 => "Forbidden",
                404 | 410 => "NotFound",
                429 => "TooManyRequests",
                500..=599 => "ServerError",
                _ => "UnexpectedStatus",
            },
            Self::Redirect { .. } => "RedirectRefused",
            Self::TooLarge { .. } => "TooLarge",
            Self::Empty { .. } => "EmptyDocument",
            Self::ContentType { .. } => "UnexpectedContentType",
            Self::StreamEnded { .. } => "StreamEnded",
            Self::EventTooLarge { .. } => "EventTooLarge",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_has_the_class_of_every_http_answer() {
        let seconds = Duration::from_secs;
        for (code, retry_after, expected) in [
            (400, None, ErrorClass::Refused),
            (401, None, ErrorClass::Transient),
            (403, None, ErrorClass::Refused),
            (404, None, ErrorClass::Transient),
            (429, None, ErrorClass::Transient),
            (503, None, ErrorClass::Transient),
            (503, Some(7), ErrorClass::After(seconds(7))),
            // The driver of a source has a limit of its own.
            (429, Some(86_400), ErrorClass::After(seconds(86_400))),
        ] {
            let status = http::StatusCode::from_u16(code).expect("a status code");
            let retry_after = retry_after.map(seconds);
            let error = HttpError::Status { url: "https://example.com".to_owned(), status, retry_after };
            assert_eq!(error.class(), expected, "{code} {retry_after:?}");
        }
    }
}
