//! Values of a plan that are checked while they are read, so that an error has its line.

use std::{fmt, time::Duration};

use jiff::{SignedDuration, fmt::friendly::SpanPrinter};
use serde::{Deserialize, Deserializer, Serialize, de};

/// A length of time: `200ms`, `5s`, `1m 30s`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Span(Duration);

impl Span {
    /// As the standard library has it.
    pub fn duration(self) -> Duration {
        self.0
    }
}

impl From<Duration> for Span {
    fn from(duration: Duration) -> Self {
        Self(duration)
    }
}

impl TryFrom<String> for Span {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let signed: SignedDuration = text.parse().map_err(|error| format!("{text} is no time: {error}"))?;
        Duration::try_from(signed).map(Self).map_err(|_| format!("{text} is negative"))
    }
}

impl From<Span> for String {
    fn from(span: Span) -> Self {
        SpanPrinter::new().unsigned_duration_to_string(&span.0)
    }
}

impl fmt::Display for Span {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&String::from(*self))
    }
}

/// Between 0, never, and 1, always.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "f64", into = "f64")]
pub struct Probability(f64);

impl TryFrom<f64> for Probability {
    type Error = String;

    fn try_from(value: f64) -> Result<Self, String> {
        if (0.0..=1.0).contains(&value) { Ok(Self(value)) } else { Err(format!("{value} is not between 0 and 1")) }
    }
}

impl From<Probability> for f64 {
    fn from(probability: Probability) -> Self {
        probability.0
    }
}

/// A status code that means failure.
pub(super) fn error_code<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u16, D::Error> {
    let code = u16::deserialize(deserializer)?;
    if (400..600).contains(&code) {
        Ok(code)
    } else {
        Err(de::Error::custom(format!("{code} is no error's status code; those are 400 to 599")))
    }
}
