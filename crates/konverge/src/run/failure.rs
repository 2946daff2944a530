//! Why a run failed, and what is said of it.

use std::time::Duration;

use konverge_apply::{ApplyError, conditions::Reason};
use konverge_core::{
    error::{Classify, ErrorClass, in_one_line},
    reasons,
};

use crate::{error::Error, report::Verdict};

/// Why a run failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RunError<E: std::error::Error + 'static> {
    /// In the author's code.
    #[error(transparent)]
    Author(E),
    /// In the author's code, tried again when the author says.
    #[error("{error}")]
    Delayed {
        #[source]
        error: E,
        pause: Duration,
    },
    /// Around it.
    #[error(transparent)]
    Engine(Error),
}

impl<E: std::error::Error + Classify + 'static> Classify for RunError<E> {
    fn class(&self) -> ErrorClass {
        match self {
            Self::Author(error) => error.class(),
            Self::Delayed { pause, .. } => ErrorClass::After(*pause),
            Self::Engine(error) => error.class(),
        }
    }

    fn reason(&self) -> &'static str {
        match self {
            Self::Author(error) | Self::Delayed { error, .. } => error.reason(),
            Self::Engine(error) => error.reason(),
        }
    }
}

impl<E: std::error::Error + 'static> From<ApplyError> for RunError<E> {
    fn from(error: ApplyError) -> Self {
        Self::Engine(error.into())
    }
}

impl<E: std::error::Error + 'static> From<Error> for RunError<E> {
    fn from(error: Error) -> Self {
        Self::Engine(error)
    }
}

/// The report of a failed run.
pub(super) struct Failure {
    pub(super) reason: &'static str,
    pub(super) message: String,
    pub(super) is_stalled: bool,
    /// Whether it is told again after each attempt, so that readers of the object's events see that it goes on.
    pub(super) is_told_again: bool,
}

impl Failure {
    pub(super) fn of<E: std::error::Error + Classify>(error: &E) -> Self {
        let class = error.class();
        let (is_stalled, is_told_again) = (class.needs_a_change(), class == ErrorClass::Refused);
        Self { reason: error.reason(), message: in_one_line(error), is_stalled, is_told_again }
    }

    /// Whether the next attempt mostly succeeds: the API server did not answer or asked to wait, or another writer was faster.
    pub(super) fn is_passing(&self) -> bool {
        matches!(self.reason, reasons::API_SERVER_BUSY | reasons::API_SERVER_UNREACHABLE | reasons::CONFLICT)
    }

    pub(super) fn verdict(&self) -> Verdict {
        let reason = Reason::parse(self.reason).unwrap_or(const { Reason::new(reasons::FAILED) });
        let message = self.message.clone();
        if self.is_stalled { Verdict::Stalled { reason, message } } else { Verdict::Retrying { reason, message } }
    }
}
