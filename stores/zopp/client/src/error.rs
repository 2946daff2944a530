//! Errors of calls, by the remedy that helps.

use std::{sync::Arc, time::Duration};

use tonic::{Code, Status};

/// How the HTTP/2 layer begins its complaint about a peer's bytes; a peer that merely goes away is reported otherwise.
const NOT_HTTP2: &str = "connection error detected";

/// The error of rustls for a peer whose first bytes are not TLS.
const NOT_TLS: &str = "InvalidContentType";

/// The message for a server that answers a TLS connection in plaintext.
pub const NO_TLS: &str = "does not use TLS";

/// A call that gave no usable answer. Its text names the call, the server and the gRPC code.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// No connection, or it broke before the answer was complete.
    #[error("{rpc}: server {server} cannot be reached (Unavailable): {reason}")]
    Unreachable {
        /// The call.
        rpc: &'static str,
        /// The server's address.
        server: Arc<str>,
        /// The innermost cause, such as "connection refused" or a certificate that is not trusted.
        reason: String,
        /// The error of the transport. Its text would repeat the reason between the names of layers.
        status: Box<Status>,
    },
    /// No answer in time.
    #[error("{rpc}: server {server} did not answer within {} s (DeadlineExceeded)", timeout.as_secs_f32())]
    Deadline {
        /// The call.
        rpc: &'static str,
        /// The server's address.
        server: Arc<str>,
        /// How long it had.
        timeout: Duration,
    },
    /// The program at this address does not speak zopp's protocol.
    #[error("{rpc}: {server} gave an answer that is not zopp's ({code:?}): {reason}")]
    Garbage {
        /// The call.
        rpc: &'static str,
        /// The server's address.
        server: Arc<str>,
        /// The code the answer amounts to.
        code: Code,
        /// The reason.
        reason: String,
    },
    /// The server answers like one of the first generation, which was not requested.
    #[error(
        "{rpc}: server {server} answers like zopp 0.1.1 (v1), whose signatures let everybody who sees one make any call for a minute; \
         nothing was signed. If it is meant to be one, say so with --generation v1 or ZOPP_GENERATION=v1"
    )]
    FirstGeneration {
        /// The call.
        rpc: &'static str,
        /// The server's address.
        server: Arc<str>,
    },
    /// The server understood and said no.
    #[error("{rpc}: refused by {server} ({:?}): {}", status.code(), status.message())]
    Refused {
        /// The call.
        rpc: &'static str,
        /// The server's address.
        server: Arc<str>,
        /// Its answer.
        status: Box<Status>,
    },
}

impl CallError {
    /// The gRPC code it amounts to.
    pub fn code(&self) -> Code {
        match self {
            Self::Unreachable { .. } => Code::Unavailable,
            Self::Deadline { .. } => Code::DeadlineExceeded,
            Self::Garbage { code, .. } => *code,
            Self::FirstGeneration { .. } => Code::FailedPrecondition,
            Self::Refused { status, .. } => status.code(),
        }
    }

    /// The server's own words, if it is the server that said no.
    pub fn server_message(&self) -> Option<&str> {
        match self {
            Self::Refused { status, .. } => Some(status.message()),
            _ => None,
        }
    }

    /// Sorts a failed answer: broken transport, foreign protocol, or a refusal.
    pub(crate) fn from_status(rpc: &'static str, server: &Arc<str>, status: Status) -> Self {
        let server = Arc::clone(server);
        if std::error::Error::source(&status).is_some() {
            let reason = innermost(&status);
            if reason.starts_with(NOT_HTTP2) {
                return Self::Garbage { rpc, server, code: Code::Internal, reason };
            }
            return Self::Unreachable { rpc, server, reason, status: Box::new(status) };
        }
        if is_foreign(&status) {
            return Self::Garbage { rpc, server, code: status.code(), reason: status.message().to_owned() };
        }
        Self::Refused { rpc, server, status: Box::new(status) }
    }
}

/// Statuses that tonic makes up itself, because the peer sent none or sent bytes that are no gRPC frame.
fn is_foreign(status: &Status) -> bool {
    const MADE_UP: [&str; 5] = [
        "grpc-status header missing",
        "protocol error:",
        "Unexpected EOF decoding stream",
        "Missing response message",
        "Error, decoded message length too large",
    ];
    MADE_UP.iter().any(|beginning| status.message().starts_with(beginning))
}

/// The same deadline is kept by tonic, which may notice a moment earlier.
pub(crate) fn is_deadline(status: &Status) -> bool {
    let mut error: Option<&dyn std::error::Error> = Some(status);
    while let Some(link) = error {
        if link.is::<tonic::TimeoutExpired>() {
            return true;
        }
        error = link.source();
    }
    false
}

/// The end of the chain of sources is what an operator can act on; the links before it only repeat the layer's name.
fn innermost(status: &Status) -> String {
    let mut error: &dyn std::error::Error = status;
    while let Some(source) = error.source() {
        error = source;
    }
    let text = error.to_string();
    if text.contains(NOT_TLS) { format!("the address begins with https://, and the server {NO_TLS}") } else { text }
}
