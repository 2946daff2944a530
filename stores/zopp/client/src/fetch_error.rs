//! Errors of reading an environment, by the remedy that helps.

use std::time::Duration;

use konverge_core::error::{Classify, ErrorClass};
use konverge_zopp_crypto::{EnvironmentName, Fingerprint, OpenError};
use tonic::Code;

use crate::{error::CallError, keys::KeyAccessError, manifest::ManifestFault, trust::PinMismatch};

/// How long to leave a server alone that has said no: short enough that a role granted meanwhile is soon noticed.
const REFUSED_RETRY: Duration = Duration::from_secs(30);

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
    /// Nothing pinned the workspace's key.
    #[error(
        "cannot read {environment}: nothing pins the key of workspace '{workspace}', and the server gives the key {offered}"
    )]
    Unpinned {
        /// The environment.
        environment: EnvironmentName,
        /// The workspace.
        workspace: String,
        /// The fingerprint of the key that the server gives.
        offered: Fingerprint,
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
            KeyAccessError::Unpinned { workspace, offered } => {
                Self::Unpinned { environment: environment_name, workspace, offered }
            }
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
            | Self::Unpinned { .. }
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
            Self::Unpinned { .. } => "WorkspaceKeyUnknown",
            Self::NotCurrent { .. } => "NotCurrent",
            Self::AmbiguousName { .. } => "AmbiguousName",
            Self::NoExchangeKey { .. } | Self::Key { .. } => "CredentialsInvalid",
        }
    }
}
