//! The log: our flag, and those of the original.

use std::str::FromStr;

use clap::{ArgAction, Args, ValueEnum};
use konverge_runtime::telemetry::LogFormat;
use konverge_vault::environment::boolean;

/// The form of the log lines, and which ones there are.
#[derive(Debug, Clone, Args)]
pub struct LogOptions {
    /// Form of the log lines; how many there are is up to `RUST_LOG` [default: text, or as zap-encoder or zap-devel say]
    #[arg(long, env = "VAULT_SYNC_LOG_FORMAT", value_name = "FORMAT")]
    pub log_format: Option<LogFormat>,
    /// As with the original: json is --log-format=json
    #[arg(long, value_name = "ENCODER")]
    pub zap_encoder: Option<ZapEncoder>,
    /// As with the original: false is --log-format=json
    #[arg(long, value_parser = boolean, num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set, value_name = "BOOL")]
    pub zap_devel: Option<bool>,
    /// As with the original: the lowest level that is logged, unless `RUST_LOG` says
    #[arg(long, value_name = "LEVEL")]
    pub zap_log_level: Option<LogLevel>,
    /// Taken and without effect: there are no stack traces
    #[arg(long, value_name = "LEVEL", hide = true)]
    pub zap_stacktrace_level: Option<String>,
    /// Taken and without effect: times are those of RFC 3339
    #[arg(long, value_name = "ENCODING", hide = true)]
    pub zap_time_encoding: Option<String>,
}

impl LogOptions {
    /// The form of the log lines: the original's flags count where ours is not given.
    pub fn format(&self) -> LogFormat {
        self.log_format.unwrap_or(match (self.zap_encoder, self.zap_devel) {
            (Some(ZapEncoder::Json), _) | (None, Some(false)) => LogFormat::Json,
            _ => LogFormat::Text,
        })
    }

    /// The filter of log lines that the original's flag asks for; to be used unless `RUST_LOG` is set.
    pub fn filter(&self) -> Option<String> {
        self.zap_log_level.map(LogLevel::filter)
    }
}

/// The original's word for the form of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ZapEncoder {
    /// For machines.
    Json,
    /// For people.
    Console,
}

/// The lowest level that is logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogLevel {
    /// Everything; the original's `debug` and every number above zero.
    Debug,
    /// Normal operation.
    Info,
    /// Conditions that may need attention.
    Warn,
    /// Failures; the original's `error` and `panic`.
    Error,
}

impl FromStr for LogLevel {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.to_ascii_lowercase().as_str() {
            "debug" => Ok(Self::Debug),
            "info" => Ok(Self::Info),
            "warn" => Ok(Self::Warn),
            "error" | "panic" => Ok(Self::Error),
            number if number.parse::<u8>().is_ok_and(|number| number > 0) => Ok(Self::Debug),
            _ => Err("write debug, info, warn, error, or a number above 0".to_owned()),
        }
    }
}

impl LogLevel {
    /// As a filter in the syntax of `RUST_LOG`: what libraries say of each connection stays out, also at the lowest level.
    fn filter(self) -> String {
        let level = match self {
            Self::Debug => "debug",
            Self::Info => "info",
            Self::Warn => "warn",
            Self::Error => "error",
        };
        let libraries =
            "tower_http=off,kube_client::client::builder=off,hyper_util=warn,h2=warn,rustls=warn,reqwest=warn";
        format!("{level},{libraries}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels() {
        for (text, expected) in [
            ("debug", Some(LogLevel::Debug)),
            ("5", Some(LogLevel::Debug)),
            ("INFO", Some(LogLevel::Info)),
            ("warn", Some(LogLevel::Warn)),
            ("panic", Some(LogLevel::Error)),
            ("0", None),
            ("loud", None),
        ] {
            assert_eq!(text.parse().ok(), expected, "{text}");
        }
    }
}
