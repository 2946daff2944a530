//! Errors of calls and of reading an environment, by the remedy that helps.

use std::{sync::Arc, time::Duration};

use konverge_core::error::{Classify, ErrorClass};
use konverge_zopp_crypto::{EnvironmentName, OpenError};
use tonic::{Code, Status};

use crate::{keys::KeyAccessError, manifest::ManifestFault, trust::PinMismatch};

/// How long to leave a server alone that has said no: short enough that a role granted meanwhile is soon noticed.
const REFUSED_RETRY: Duration = Duration::from_secs(30);

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

/// An environment could not be read. Names the environment and never a value.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// The server is away, slow, or the way to it is broken.
    #[error("cannot read {environment}: {source}")]
    Unreachable {
        /// The environment.
        environment: EnvironmentName,
        /// The call that failed.
        source: CallError,
    },
    /// The server does not accept the identity: unknown principal, wrong key, or clocks that differ.
    #[error("cannot read {environment}: the server does not accept this principal: {source}")]
    Unauthenticated {
        /// The environment.
        environment: EnvironmentName,
        /// The call that failed.
        source: CallError,
    },
    /// The principal lacks the READ role.
    #[error("cannot read {environment}: the principal may not; grant it READ: {source}")]
    PermissionDenied {
        /// The environment.
        environment: EnvironmentName,
        /// The call that failed.
        source: CallError,
    },
    /// Workspace, project or environment do not exist, or the principal was given no key to the workspace.
    #[error("cannot read {environment}: not found, or the principal has no access to its workspace: {source}")]
    NotFound {
        /// The environment.
        environment: EnvironmentName,
        /// The call that failed.
        source: CallError,
    },
    /// The answer cannot be understood.
    #[error("cannot read {environment}: {source}")]
    Garbage {
        /// The environment.
        environment: EnvironmentName,
        /// The call that failed.
        source: CallError,
    },
    /// Any other refusal by the server.
    #[error("cannot read {environment}: {source}")]
    Refused {
        /// The environment.
        environment: EnvironmentName,
        /// The call that failed.
        source: CallError,
    },
    /// The principal has no X25519 key, so that nothing can have been wrapped for it.
    #[error("cannot read {environment}: principal {principal:?} has no X25519 key, so no workspace key can be opened")]
    NoExchangeKey {
        /// The environment.
        environment: EnvironmentName,
        /// The principal's name.
        principal: String,
    },
    /// The encryption could take the environment for another one.
    #[error("cannot read {environment}: a workspace or project name with \":\" in it makes its encryption ambiguous")]
    AmbiguousName {
        /// The environment.
        environment: EnvironmentName,
    },
    /// The server gives another key of the workspace than the pinned one.
    #[error("cannot read {environment}: {source}")]
    OtherKey {
        /// The environment.
        environment: EnvironmentName,
        /// Which key was given, and which one is pinned.
        source: PinMismatch,
    },
    /// The signature over the workspace's key is false.
    #[error("cannot read {environment}: {source}")]
    ForgedKey {
        /// The environment.
        environment: EnvironmentName,
        /// The cause, with the expected signer.
        source: KeyAccessError,
    },
    /// The answer is not the current state of the environment, or cannot be shown to be.
    #[error("cannot read {environment}: {source}")]
    NotCurrent {
        /// The environment.
        environment: EnvironmentName,
        /// The fault.
        source: ManifestFault,
    },
    /// The workspace's or the environment's key cannot be opened.
    #[error("cannot read {environment}: the {what} cannot be opened by this principal's key: {source}")]
    Key {
        /// The environment.
        environment: EnvironmentName,
        /// Which key.
        what: &'static str,
        /// Why.
        source: OpenError,
    },
}

impl FetchError {
    pub(crate) fn from_call(environment: &EnvironmentName, source: CallError) -> Self {
        let environment = environment.clone();
        match (&source, source.code()) {
            (CallError::Unreachable { .. } | CallError::Deadline { .. }, _) => {
                Self::Unreachable { environment, source }
            }
            (CallError::Garbage { .. }, _) => Self::Garbage { environment, source },
            (_, Code::Unavailable | Code::DeadlineExceeded) => Self::Unreachable { environment, source },
            (_, Code::Unauthenticated) => Self::Unauthenticated { environment, source },
            (_, Code::PermissionDenied) => Self::PermissionDenied { environment, source },
            (_, Code::NotFound) => Self::NotFound { environment, source },
            _ => Self::Refused { environment, source },
        }
    }

    pub(crate) fn from_key_access(environment: &EnvironmentName, error: KeyAccessError) -> Self {
        let environment_name = environment.clone();
        match error {
            KeyAccessError::Call(source) => Self::from_call(environment, source),
            KeyAccessError::NoExchangeKey { principal } => {
                Self::NoExchangeKey { environment: environment_name, principal }
            }
            KeyAccessError::AmbiguousName { name } => Self::AmbiguousName { environment: name },
            KeyAccessError::OtherKey(source) => Self::OtherKey { environment: environment_name, source },
            source @ (KeyAccessError::BadSignature { .. }
            | KeyAccessError::Chain { .. }
            | KeyAccessError::Unvouched { .. }) => Self::ForgedKey { environment: environment_name, source },
            KeyAccessError::Open { what, source } => Self::Key { environment: environment_name, what, source },
        }
    }
}

impl Classify for FetchError {
    fn class(&self) -> ErrorClass {
        match self {
            Self::Unreachable { .. } | Self::Garbage { .. } | Self::Refused { .. } => ErrorClass::Transient,
            Self::Unauthenticated { .. }
            | Self::PermissionDenied { .. }
            | Self::NotFound { .. }
            | Self::OtherKey { .. }
            | Self::ForgedKey { .. }
            | Self::NotCurrent { .. }
            | Self::Key { .. } => ErrorClass::After(REFUSED_RETRY),
            Self::NoExchangeKey { .. } | Self::AmbiguousName { .. } => ErrorClass::Permanent,
        }
    }

    fn reason(&self) -> &'static str {
        match self {
            Self::Unreachable { .. } => "ServerUnreachable",
            Self::Unauthenticated { .. } => "Unauthenticated",
            Self::PermissionDenied { .. } => "PermissionDenied",
            Self::NotFound { .. } => "EnvironmentNotFound",
            Self::Garbage { .. } => "InvalidAnswer",
            Self::Refused { .. } => "ServerRefused",
            Self::OtherKey { .. } | Self::ForgedKey { .. } => "WorkspaceKeyChanged",
            Self::NotCurrent { .. } => "NotCurrent",
            Self::AmbiguousName { .. } => "AmbiguousName",
            Self::NoExchangeKey { .. } | Self::Key { .. } => "CredentialsInvalid",
        }
    }
}
