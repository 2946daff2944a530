//! The values of single flags.

use std::{str::FromStr, time::Duration};

use clap::{
    ValueEnum,
    builder::{PossibleValue, PossibleValuesParser, TypedValueParser},
};
use konverge_vault::{SecretPath, environment::AuthMethod};

use crate::{
    annotations::duration::{SpanError, parse},
    object::Kind,
};

/// The longest name of an installation: with what comes around it, it has to fit into 512 bytes of metadata in Vault.
const LONGEST_INSTANCE: usize = 128;

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
    /// What happens.
    Info,
    /// What may need somebody.
    Warn,
    /// What failed; the original's `error` and `panic`.
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
    pub(super) fn filter(self) -> String {
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

/// A login method by its name.
pub(super) fn auth_method() -> impl TypedValueParser<Value = AuthMethod> {
    let methods = AuthMethod::ALL.map(|method| PossibleValue::new(method.name()).help(method.about()));
    PossibleValuesParser::new(methods).try_map(|name| name.parse())
}

/// A span of time above zero, as Go writes it.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    let span = parse(text).map_err(|error: SpanError| error.to_string())?;
    span.duration().filter(|duration| !duration.is_zero()).ok_or_else(|| "it must be above zero".to_owned())
}

/// The same, or a number of seconds as Vault's programs take it.
pub(super) fn timeout(text: &str) -> Result<Duration, String> {
    match text.parse::<u32>() {
        Ok(seconds) if seconds > 0 => Ok(Duration::from_secs(seconds.into())),
        _ => duration(text),
    }
}

/// A name that can be a part of a path; an empty one is none.
pub(super) fn cluster(text: &str) -> Result<String, String> {
    if !text.is_empty() {
        SecretPath::parse(&format!("clusters/{text}/x")).map_err(|error| error.to_string())?;
    }
    Ok(text.to_owned())
}

/// A name that metadata in Vault can hold.
pub(super) fn instance(text: &str) -> Result<String, String> {
    if text.is_empty() || text.len() > LONGEST_INSTANCE || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(format!("write 1 to {LONGEST_INSTANCE} letters, digits and signs, without blanks"));
    }
    Ok(text.to_owned())
}

/// A kind by its name in addresses.
pub(super) fn kind(text: &str) -> Result<Kind, String> {
    Kind::ALL.into_iter().find(|kind| kind.plural() == text).ok_or_else(|| {
        let all: Vec<_> = Kind::ALL.into_iter().map(Kind::plural).collect();
        format!("write some of {}", all.join(","))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        for (text, seconds) in [("15m", Some(900.0)), ("1.5s", Some(1.5)), ("0s", None), ("-1s", None), ("5", None)] {
            assert_eq!(duration(text).ok(), seconds.map(Duration::from_secs_f64), "{text}");
        }
        for (text, seconds) in [("30", Some(30)), ("90s", Some(90)), ("0", None), ("-3", None), ("x", None)] {
            assert_eq!(timeout(text).ok(), seconds.map(Duration::from_secs), "{text}");
        }
    }

    #[test]
    fn names() {
        for (text, fine) in [("", true), ("one", true), ("eu/one", true), ("..", false), ("a//b", false), ("/a", false)]
        {
            assert_eq!(cluster(text).is_ok(), fine, "{text:?}");
        }
        let long = "x".repeat(LONGEST_INSTANCE + 1);
        for (text, fine) in [("", false), ("eu/one:2", true), ("a b", false), ("ü", false), (&long, false)] {
            assert_eq!(instance(text).is_ok(), fine, "{text:?}");
        }
        assert_eq!(kind("cronjobs"), Ok(Kind::CronJob));
        assert!(kind("CronJob").unwrap_err().contains("deployments,statefulsets"));
    }

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
