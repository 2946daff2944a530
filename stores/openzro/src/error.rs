//! Errors, and whether the request took effect.

use std::{sync::Arc, time::Duration};

use konverge_core::error::{Classify, ErrorClass};
use konverge_endpoint::Unusable;

use crate::place::InvalidId;

/// How long to leave alone what was refused: short enough that a role or a policy changed meanwhile is soon noticed.
const REFUSED_RETRY: Duration = Duration::from_secs(30);

/// Whether a request that ended in an error took effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// It had no effect.
    None,
    /// It may have taken effect. Reading tells.
    Unknown,
}

/// A call without the result that was requested. The text names the request, the cause and the next step, and never a token or a key.
#[derive(Debug, thiserror::Error)]
#[error("cannot {what}: {cause}")]
pub struct OpenZroError {
    /// The request in words, such as `create network web`.
    pub what: String,
    /// Whether it took effect.
    pub effect: Effect,
    /// The cause.
    #[source]
    pub cause: Cause,
}

/// The cause of an [`OpenZroError`].
///
/// `message` is the server's own, in one line.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Cause {
    /// The id cannot be a part of an address.
    #[error(transparent)]
    InvalidId(#[from] InvalidId),
    /// The token or a certificate cannot be used.
    #[error(transparent)]
    Unusable(#[from] Unusable),
    /// Not sent, because the server did not serve a moment ago.
    #[error("it was not sent, because openZro at {address} does not serve ({cause}); the next attempt is in {} s", after.as_secs())]
    Paused {
        /// The server's address.
        address: Arc<str>,
        /// The last failure.
        cause: Arc<str>,
        /// How long until a request may be sent.
        after: Duration,
    },
    /// No answer in time, including the wait for our own limits.
    #[error("openZro at {address} gave no complete answer within {} s; check the server's load and the network", limit.as_secs_f32())]
    Timeout {
        /// The server's address.
        address: Arc<str>,
        /// The deadline.
        limit: Duration,
    },
    /// No connection, or it broke before the answer was complete.
    #[error("openZro at {address} cannot be reached: {cause}; check the address, the network and the server")]
    Unreachable {
        /// The server's address.
        address: Arc<str>,
        /// The innermost cause.
        cause: String,
    },
    /// The server refuses the token.
    #[error(
        "openZro refuses the token (401: {message}); replace it by a valid personal access token, which takes effect at once"
    )]
    Unauthenticated {
        /// The server's message.
        message: String,
    },
    /// The token's user may not do this.
    #[error("openZro denies it (403: {message}); use the token of a user with a sufficient role")]
    Forbidden {
        /// The server's message.
        message: String,
    },
    /// The API itself says that the object is absent.
    #[error("openZro says that it does not exist ({message})")]
    Absent {
        /// The server's message.
        message: String,
    },
    /// The object cannot be deleted while another one refers to it.
    #[error("openZro keeps it while it is linked to {kind} {name}; remove that link")]
    Linked {
        /// The kind of the other object, such as `policy`.
        kind: String,
        /// Its name or id.
        name: String,
    },
    /// An object with this name exists.
    #[error("openZro has one already (409: {message})")]
    Exists {
        /// The server's message.
        message: String,
    },
    /// The request is not valid.
    #[error("openZro does not accept it ({status}: {message}); correct the named value")]
    Invalid {
        /// 400, 405, 412 or 422.
        status: u16,
        /// The server's message.
        message: String,
    },
    /// Not sent, because it would remove source groups that the server has and does not show.
    #[error(
        "openZro shows a source group only in the first rule that names it, so writing back a policy with several rules would remove \
         groups; set the sources of all rules"
    )]
    HiddenGroups,
    /// Too many requests.
    #[error("the rate limit of openZro or of a proxy before it is reached (429); lower the rate of requests")]
    Limited {
        /// When to come back, if it said so.
        retry_after: Option<Duration>,
    },
    /// The server failed.
    #[error(
        "openZro failed ({status}: {message}); it answers so for invalid addresses of network resources, too; otherwise see its log"
    )]
    Failed {
        /// The status.
        status: u16,
        /// The server's message.
        message: String,
    },
    /// The server has no such route: it is older or newer than this client.
    #[error("this openZro server has no {route}; it needs another version of the server")]
    Unsupported {
        /// The route without ids.
        route: &'static str,
    },
    /// The answer is not the API's: a proxy, another server, or a broken answer.
    #[error(
        "{address} gave an answer that is not the one of the openZro API ({status}: {why}); check the address and the proxies before it"
    )]
    Foreign {
        /// The server's address.
        address: Arc<str>,
        /// The status.
        status: u16,
        /// The reason.
        why: String,
        /// When to come back, if it said so.
        retry_after: Option<Duration>,
    },
    /// An object of an answer has another form than this client knows.
    #[error("openZro sent it in a form that this client does not know: {0}; check the server's version")]
    Unreadable(#[source] serde_json::Error),
}

impl OpenZroError {
    /// Whether the request took effect.
    pub fn effect(&self) -> Effect {
        self.effect
    }

    /// Whether the API itself says that the object of the request is absent.
    pub fn is_absent(&self) -> bool {
        matches!(self.cause, Cause::Absent { .. })
    }

    /// Whether every request fails like this at the moment, so that it says nothing about the object.
    pub fn concerns_every_request(&self) -> bool {
        matches!(
            self.cause,
            Cause::Unusable(_)
                | Cause::Paused { .. }
                | Cause::Timeout { .. }
                | Cause::Unreachable { .. }
                | Cause::Unauthenticated { .. }
                | Cause::Limited { .. }
                | Cause::Foreign { .. }
        )
    }
}

impl Classify for OpenZroError {
    fn class(&self) -> ErrorClass {
        match &self.cause {
            Cause::Paused { after, .. } => ErrorClass::After(*after),
            Cause::Limited { retry_after: Some(pause) } | Cause::Foreign { retry_after: Some(pause), .. } => {
                ErrorClass::After(*pause)
            }
            Cause::Unauthenticated { .. }
            | Cause::Forbidden { .. }
            | Cause::Linked { .. }
            | Cause::Unsupported { .. } => ErrorClass::After(REFUSED_RETRY),
            Cause::InvalidId(_)
            | Cause::HiddenGroups
            | Cause::Absent { .. }
            | Cause::Exists { .. }
            | Cause::Invalid { .. } => ErrorClass::Permanent,
            Cause::Unusable(_)
            | Cause::Timeout { .. }
            | Cause::Unreachable { .. }
            | Cause::Limited { .. }
            | Cause::Failed { .. }
            | Cause::Foreign { .. }
            | Cause::Unreadable(_) => ErrorClass::Transient,
        }
    }

    fn reason(&self) -> &'static str {
        match &self.cause {
            Cause::InvalidId(_) => "InvalidId",
            Cause::Unusable(_) => "CredentialUnusable",
            Cause::Paused { .. } => "OpenZroPaused",
            Cause::Timeout { .. } => "OpenZroTimeout",
            Cause::Unreachable { .. } => "OpenZroUnreachable",
            Cause::Unauthenticated { .. } => "TokenRefused",
            Cause::Forbidden { .. } => "PermissionDenied",
            Cause::Absent { .. } => "NotFound",
            Cause::Linked { .. } => "InUse",
            Cause::Exists { .. } => "AlreadyExists",
            Cause::Invalid { .. } => "Rejected",
            Cause::HiddenGroups => "HiddenGroups",
            Cause::Limited { .. } => "RateLimited",
            Cause::Failed { .. } => "OpenZroFailed",
            Cause::Unsupported { .. } => "Unsupported",
            Cause::Foreign { .. } | Cause::Unreadable(_) => "InvalidAnswer",
        }
    }
}
