//! Why a program ended that nobody had told to.

use std::{borrow::Cow, time::Duration};

use crate::lease::LeaseLost;

/// Why [`Manager::run`](super::Manager::run) ended with an error.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The system gave no way to hear signals.
    #[error("cannot listen for signals")]
    Signals(#[source] std::io::Error),
    /// A task ended although nobody had told it to.
    #[error("task {name} ended unexpectedly")]
    TaskEnded {
        /// Which one.
        name: Cow<'static, str>,
    },
    /// A task panicked.
    #[error("task {name} panicked: {message}")]
    TaskPanicked {
        /// Which one.
        name: Cow<'static, str>,
        /// The message.
        message: String,
    },
    /// Objects that have to be known could not be listed within a limit.
    #[error(
        "not all objects were listed within {limit:?}: {missing}; check the permissions and that the definitions are installed"
    )]
    NotSynced {
        /// The limit.
        limit: Duration,
        /// The kinds that are missing, and why.
        missing: String,
    },
    /// Another replica may lead now, so the work was dropped where it was.
    #[error("no longer the leader")]
    LeaseLost(#[source] LeaseLost),
    /// Shutting down took longer than the grace period; what was left was dropped.
    #[error("shutdown did not end within {grace:?}; dropped what was left")]
    NotInTime {
        /// The grace period.
        grace: Duration,
    },
    /// One of several jobs failed, and so all were stopped.
    #[error("the job {name} failed")]
    Job {
        /// Which one.
        name: String,
        /// How it failed.
        #[source]
        source: Box<RunError>,
    },
    /// A second signal stopped the program at once.
    #[error("stopped at once by a signal")]
    Aborted,
}
