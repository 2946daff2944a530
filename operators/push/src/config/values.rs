//! The values of single flags.

use std::{path::PathBuf, time::Duration};

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use konverge_runtime::http_server::{Listen, ListenError};
use konverge_vault::{SecretPath, environment::AuthMethod};

use crate::{
    annotations::duration::{SpanError, parse},
    object::Kind,
};

/// The address of metrics that the original's library takes if it is given nothing.
const METRICS_ADDRESS: &str = ":8080";

/// The longest name of an installation: with what comes around it, it has to fit into 512 bytes of metadata in Vault.
const LONGEST_INSTANCE: usize = 128;

/// The address of metrics. An empty text is the default.
pub(super) fn metrics_address(text: &str) -> Result<Listen, ListenError> {
    if text.is_empty() { METRICS_ADDRESS } else { text }.parse()
}

/// The address of health. An empty text is none.
pub(super) fn health_address(text: &str) -> Result<Listen, ListenError> {
    if text.is_empty() { Ok(Listen::Nowhere) } else { text.parse() }
}

/// A login method by its name.
pub(super) fn auth_method() -> impl TypedValueParser<Value = AuthMethod> {
    let methods = AuthMethod::ALL.map(|method| PossibleValue::new(method.name()).help(method.about()));
    PossibleValuesParser::new(methods).try_map(|name| name.parse())
}

/// A span of time above zero, as Go writes it.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    let span = parse(text).map_err(|error: SpanError| error.to_string())?;
    Duration::try_from(span).ok().filter(|span| !span.is_zero()).ok_or_else(|| "it must be above zero".to_owned())
}

/// Parses a duration in Go's format, which may be zero.
pub(super) fn duration_or_none(text: &str) -> Result<Duration, String> {
    let span = parse(text).map_err(|error: SpanError| error.to_string())?;
    Duration::try_from(span).map_err(|_| "it must not be below zero".to_owned())
}

/// Parses a duration above zero, or a number of seconds as Vault's programs accept.
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

/// A file in the line that shows all settings.
pub(super) fn file(path: Option<&PathBuf>) -> String {
    path.map_or("default".to_owned(), |path| path.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_address_is_the_default_of_metrics_and_no_health() {
        assert_eq!((metrics_address(""), health_address("")), (METRICS_ADDRESS.parse(), Ok(Listen::Nowhere)));
        for text in [":9", "0", "127.0.0.1:0", "localhost:80", "[::1]:8080"] {
            assert_eq!((metrics_address(text), health_address(text)), (text.parse(), text.parse()), "{text}");
        }
        assert!(metrics_address("vault:8080").is_err() && health_address("8080").is_err());
    }

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
}
