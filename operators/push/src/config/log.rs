//! The log: our flag, and those of the original.

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
    #[arg(long, value_parser = level, value_name = "LEVEL")]
    pub zap_log_level: Option<&'static str>,
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

    /// The filter of log lines that the original's flag asks for, in the syntax of `RUST_LOG`; to be used unless that is set. The lines of libraries
    /// about each connection stay out, also at the lowest level.
    pub fn filter(&self) -> Option<String> {
        let libraries =
            "tower_http=off,kube_client::client::builder=off,hyper_util=warn,h2=warn,rustls=warn,reqwest=warn";
        self.zap_log_level.map(|level| format!("{level},{libraries}"))
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

/// The lowest level that is logged, by the original's word or number.
fn level(text: &str) -> Result<&'static str, String> {
    match text.to_ascii_lowercase().as_str() {
        "debug" => Ok("debug"),
        "info" => Ok("info"),
        "warn" => Ok("warn"),
        "error" | "panic" => Ok("error"),
        number if number.parse::<u8>().is_ok_and(|number| number > 0) => Ok("debug"),
        _ => Err("write debug, info, warn, error, or a number above 0".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels() {
        for (text, expected) in [
            ("debug", Some("debug")),
            ("5", Some("debug")),
            ("INFO", Some("info")),
            ("warn", Some("warn")),
            ("panic", Some("error")),
            ("0", None),
            ("loud", None),
        ] {
            assert_eq!(level(text).ok(), expected, "{text}");
        }
    }
}
