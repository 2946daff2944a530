//! The telemetry of the process: log lines, and spans for a collector.

mod filter;
mod trace;

use std::{error::Error, io::IsTerminal, process::ExitCode};

use konverge_core::error::in_one_line;
use tracing_subscriber::{Layer, Registry, fmt, layer::SubscriberExt, util::SubscriberInitExt};

pub use filter::{FilterError, LogFilter};
pub use trace::TraceIds;
pub(crate) use trace::note_trace;

/// The target of the span that says of which job of a process a log line is. It lasts as long as the process, so it is no part of a
/// trace.
pub const JOB: &str = "konverge_runtime::job";

/// The target of the span of each request to the API server, at a level that no log shows by default.
pub const REQUESTS: &str = "konverge_runtime::requests";

/// Form of the log lines, as a setting: `text` or `json`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
#[non_exhaustive]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// For machines: one JSON object a line.
    Json,
}

impl LogFormat {
    /// The setting as text.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Json => "json",
        }
    }
}

/// Logging could not be set up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TelemetryError {
    /// `RUST_LOG` is not a filter.
    #[error("cannot understand RUST_LOG")]
    Filter(#[source] FilterError),
    /// It is set up already.
    #[error("logging is set up already")]
    Again(#[source] tracing_subscriber::util::TryInitError),
}

/// A layer of [`init_with`].
pub type AnyLayer = Box<dyn Layer<Registry> + Send + Sync>;

/// Logs to standard error in the given format, filtered by `RUST_LOG`, or at level `info` where that is not set. The answer changes
/// the filter later; see [`Manager::log_filter`](crate::Manager::log_filter).
pub fn init(format: LogFormat) -> Result<LogFilter, TelemetryError> {
    init_with(format, Vec::new())
}

/// Like [`init`], with layers that get spans and log lines, too. Each needs a filter of its own: what the log leaves out does not
/// concern them, and one without a filter has every line of every library made.
pub fn init_with(format: LogFormat, mut layers: Vec<AnyLayer>) -> Result<LogFilter, TelemetryError> {
    let (filter, reloadable) = LogFilter::from_environment().map_err(TelemetryError::Filter)?;
    layers.push(match format {
        LogFormat::Text => {
            let layer = fmt::layer().with_writer(std::io::stderr);
            // A file or a collector of logs takes colours for text; in a terminal NO_COLOR turns them off.
            let plain = !std::io::stderr().is_terminal();
            (if plain { layer.with_ansi(false) } else { layer }).with_filter(reloadable).boxed()
        }
        LogFormat::Json => {
            fmt::layer().json().flatten_event(true).with_writer(std::io::stderr).with_filter(reloadable).boxed()
        }
    });
    tracing_subscriber::registry().with(layers).try_init().map_err(TelemetryError::Again)?;
    Ok(filter)
}

/// How a program ends: with status 1 after an error, which is told in one line: logged, or printed where there is no log.
pub fn exit_code<E: Error + 'static>(program: &str, ended: Result<(), E>) -> ExitCode {
    let Err(error) = ended else { return ExitCode::SUCCESS };
    if tracing::dispatcher::has_been_set() {
        tracing::error!("{}", in_one_line(&error));
    } else {
        eprintln!("{program}: {}", in_one_line(&error));
    }
    ExitCode::FAILURE
}
