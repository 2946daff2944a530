//! What the process says about itself while it works.

use std::io::IsTerminal;

use tracing_subscriber::{EnvFilter, fmt, layer::SubscriberExt, util::SubscriberInitExt};

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object per line, for machines.
    Json,
}

impl std::str::FromStr for LogFormat {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        match name {
            "text" => Ok(Self::Text),
            "json" => Ok(Self::Json),
            other => Err(format!("log format {other:?} is neither \"text\" nor \"json\"")),
        }
    }
}

/// Logging could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// `RUST_LOG` is not a filter.
    #[error("cannot understand RUST_LOG; give a level such as \"info\" or \"warn,konverge_pull=debug\"")]
    Filter(#[source] tracing_subscriber::filter::FromEnvError),
    /// It is set up already.
    #[error("logging is set up already")]
    Again(#[source] tracing_subscriber::util::TryInitError),
}

/// Logs to standard error in the given format, filtered by `RUST_LOG`, or at level `info` where that is not set.
pub fn init(format: LogFormat) -> Result<(), TelemetryError> {
    let filter = match std::env::var_os(EnvFilter::DEFAULT_ENV) {
        Some(text) if !text.is_empty() => EnvFilter::try_from_default_env().map_err(TelemetryError::Filter)?,
        // kube logs each failed attempt of its own as an error, before anybody knows whether another attempt succeeds.
        _ => EnvFilter::new("info,tower_http=off,kube_client::client::builder=off"),
    };
    let registry = tracing_subscriber::registry().with(filter);
    match format {
        LogFormat::Text => {
            let layer = fmt::layer().with_writer(std::io::stderr);
            // A file or a collector of logs takes colours for text; in a terminal NO_COLOR turns them off.
            let plain = !std::io::stderr().is_terminal();
            registry.with(if plain { layer.with_ansi(false) } else { layer }).try_init()
        }
        LogFormat::Json => {
            registry.with(fmt::layer().json().flatten_event(true).with_writer(std::io::stderr)).try_init()
        }
    }
    .map_err(TelemetryError::Again)
}
