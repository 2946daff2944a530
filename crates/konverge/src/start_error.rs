//! Why a program could not start, or ended with an error.

use konverge_runtime::{client::ClientError, lease::TimingsError, manager::RunError, telemetry::TelemetryError};

use crate::schedule::ScheduleError;

/// A program could not start, or ended with an error.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// Logging could not be set up.
    #[error(transparent)]
    Telemetry(#[from] TelemetryError),
    /// Spans cannot be sent, whatever the collector does.
    #[cfg(feature = "otlp")]
    #[error(transparent)]
    Traces(#[from] konverge_otlp::OtlpError),
    /// The address for health and metrics is not available.
    #[cfg(feature = "serve")]
    #[error(transparent)]
    Bind(#[from] konverge_runtime::http_server::BindError),
    /// There is no usable configuration of the API server.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The lease's times contradict each other.
    #[error(transparent)]
    Lease(#[from] TimingsError),
    /// Children in other namespaces outlive their owner without a finalizer.
    #[error(
        "controller {controller} has children in any namespace and needs a finalizer to delete them; add .finalizer(\"…\")"
    )]
    NeedsFinalizer {
        /// Which one.
        controller: String,
    },
    /// A controller has a schedule that is not in cron syntax.
    #[error("controller {controller} cannot be scheduled")]
    Schedule {
        /// The name of the controller.
        controller: String,
        /// The reason why it is not usable.
        #[source]
        source: ScheduleError,
    },
    /// A part of the author's own could not be put in.
    #[error("cannot set up {part}")]
    Part {
        /// Which one.
        part: String,
        /// The underlying error.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// Flags of the author's own lack a value where no command line is read.
    #[cfg(feature = "cli")]
    #[error("the program's own flags have no values; give them with flag_values")]
    Flags(#[source] clap::Error),
    /// There is no runtime for it.
    #[error("cannot start threads")]
    Threads(#[source] std::io::Error),
    /// It ran and failed.
    #[error(transparent)]
    Run(#[from] RunError),
}
