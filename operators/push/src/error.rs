//! The errors of a run, and their statements for the owner of the object.

use std::{fmt, time::Duration};

use konverge_apply::{Severity, Statement, error::class_of, ledger::CLUSTER_NAMESPACE};
use konverge_core::error::{Classify, ErrorClass, in_one_line};
use konverge_vault::VaultError;

use crate::{
    deletions::Held, journal::JournalError, ledger::LedgerError, orphans::OrphansError, reasons, store::ClearError,
};

/// The pause before an object asks again whether its deletions are approved.
pub(crate) const APPROVAL: Duration = Duration::from_secs(30);

/// A failed run.
#[derive(Debug, thiserror::Error)]
pub enum PushError {
    /// A Secret or a namespace could not be read.
    #[error("cannot read {what}: {source}")]
    Read {
        /// The object or list.
        what: String,
        /// The error of the client.
        source: Box<kube::Error>,
    },
    /// The object could not be written.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// The paths that are left behind could not be remembered.
    #[error(transparent)]
    Orphans(#[from] OrphansError),
    /// Nothing more was written, because another replica may lead by now.
    #[error("nothing more is written: this process leads no more")]
    LeadershipLost,
    /// The journal could not be written.
    #[error("cannot note down in a Secret of the operator's namespace what is about to be written to Vault: {0}")]
    Journal(#[from] JournalError),
    /// A path could not be cleared in the time that a deletion has.
    #[error("{doing}: {location} is not cleared after {} s", limit.as_secs_f32(), doing = Doing::Clear)]
    Slow {
        /// Which one.
        location: String,
        /// How long that was tried.
        limit: Duration,
    },
    /// The guard holds a deletion.
    #[error(transparent)]
    Held(#[from] Held),
    /// The run was cancelled.
    #[error("a run was given up: {0}")]
    GivenUp(String),
    /// Vault failed or refused.
    #[error("{doing}: {source}")]
    Vault {
        /// The operation that failed.
        doing: Doing,
        /// The cause.
        source: VaultError,
    },
}

/// An operation in Vault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Doing {
    /// Write the desired content, or compare it for that.
    Write,
    /// Compare Vault with the last written content.
    Look,
    /// Delete content that nothing requests any more.
    Clear,
}

/// The words of the first are those of the original.
impl fmt::Display for Doing {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Write => "failed to write secret to vault",
            Self::Look => "failed to compare secret with vault",
            Self::Clear => "failed to delete secret from vault",
        })
    }
}

impl From<VaultError> for PushError {
    fn from(source: VaultError) -> Self {
        Self::Vault { doing: Doing::Write, source }
    }
}

impl From<ClearError> for PushError {
    fn from(error: ClearError) -> Self {
        match error {
            ClearError::LeadershipLost => Self::LeadershipLost,
            ClearError::Unidentified(source) => Self::unidentified(source),
            ClearError::Vault(source) => Self::Vault { doing: Doing::Clear, source },
        }
    }
}

impl Classify for PushError {
    fn class(&self) -> ErrorClass {
        match self {
            Self::LeadershipLost | Self::Slow { .. } | Self::GivenUp(_) | Self::Held(Held::Uncounted) => {
                ErrorClass::Transient
            }
            Self::Held(Held::Stopped(_)) => ErrorClass::After(APPROVAL),
            Self::Read { source, .. } => class_of(source),
            Self::Orphans(error) => error.class(),
            Self::Journal(JournalError(source)) => class_of(source),
            Self::Ledger(error) => error.class(),
            Self::Vault { source, .. } => source.class(),
        }
    }

    fn reason(&self) -> &'static str {
        match self {
            Self::Read { .. } => "ObjectUnreadable",
            Self::Orphans(_) => "OrphansNotRecorded",
            Self::Journal(_) => "IntentionNotRecorded",
            Self::LeadershipLost => "NotLeader",
            Self::Slow { .. } => "VaultTimeout",
            Self::GivenUp(_) => "GivenUp",
            Self::Held(_) => reasons::DELETIONS_STOPPED,
            Self::Ledger(error) => error.reason(),
            Self::Vault { source, .. } => source.reason(),
        }
    }
}

impl PushError {
    /// This could not be read.
    pub(crate) fn unreadable(what: String, source: kube::Error) -> Self {
        Self::Read { what, source: Box::new(source) }
    }

    /// The identity of this cluster could not be read.
    pub(crate) fn unidentified(source: kube::Error) -> Self {
        Self::unreadable(format!("the namespace {CLUSTER_NAMESPACE}"), source)
    }

    /// Returns the statement for the owner of the object.
    pub(crate) fn statement(&self) -> Statement {
        Statement {
            is_refusal: self.is_refusal(),
            ..Statement::new(Severity::Problem, self.reason(), in_one_line(self))
        }
    }

    /// Returns whether the failure mostly ends by itself. Refusals of the API server are among these, because an API server that has just started
    /// forbids everything until it has read the roles.
    pub(crate) fn is_passing(&self) -> bool {
        match self.class() {
            ErrorClass::Transient | ErrorClass::Unavailable(_) => true,
            ErrorClass::Refused => !matches!(self, Self::Vault { .. }),
            _ => self.is_outage(),
        }
    }

    /// Returns whether Vault itself fails, as opposed to the request.
    pub(crate) fn is_outage(&self) -> bool {
        matches!(self, Self::Vault { source, .. } if source.is_outage())
    }

    /// Returns whether Vault or the API server refuses something that an administrator may allow at any time.
    pub(crate) fn is_refusal(&self) -> bool {
        self.class() == ErrorClass::Refused || matches!(self, Self::Vault { source, .. } if source.is_refusal())
    }

    /// Returns whether another writer was faster in Vault.
    pub(crate) fn is_conflict(&self) -> bool {
        matches!(self, Self::Vault { source: VaultError::Conflict { .. }, .. })
    }

    /// Returns whether the object has changed since it was seen, so that its record was not written. The watch shows the change.
    pub(crate) fn is_outdated(&self) -> bool {
        matches!(self, Self::Ledger(error) if error.is_outdated())
    }

    /// Returns an error of Vault as one of another operation.
    pub(crate) fn when(self, doing: Doing) -> Self {
        if let Self::Vault { source, .. } = self { Self::Vault { doing, source } } else { self }
    }

    /// Returns whether no request was sent to Vault, because it did not serve a moment ago.
    pub(crate) fn is_pause(&self) -> bool {
        matches!(self, Self::Vault { source: VaultError::Paused { .. }, .. })
    }
}

/// A failed run, as the engine gets it: the error, and the pause that push has chosen for it. It was reported on the object before, unless the
/// failure is likely to pass.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct FailedRun {
    #[source]
    error: PushError,
    retry_after: Option<Duration>,
}

impl FailedRun {
    /// The next attempt comes after this pause.
    pub(crate) fn new(error: PushError, retry_after: Duration) -> Self {
        Self { error, retry_after: Some(retry_after) }
    }

    /// The next attempt comes no later than this.
    pub(crate) fn within(self, longest: Duration) -> Self {
        Self { retry_after: Some(self.retry_after.map_or(longest, |pause| pause.min(longest))), ..self }
    }
}

impl From<PushError> for FailedRun {
    /// The class of the error decides when the next attempt comes.
    fn from(error: PushError) -> Self {
        Self { error, retry_after: None }
    }
}

impl Classify for FailedRun {
    fn class(&self) -> ErrorClass {
        self.error.class()
    }

    fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }

    fn reason(&self) -> &'static str {
        self.error.reason()
    }
}
