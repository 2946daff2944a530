//! The part of each status that all kinds share.

use k8s_openapi::{
    apimachinery::pkg::apis::meta::v1::{Condition, Time},
    jiff::Timestamp,
};
use konverge::Status;
use serde::{Deserialize, Deserializer};

/// A condition as openzro-operator's v1 kinds store it: all but type and status may be missing or `null`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Stored {
    #[serde(rename = "type")]
    type_: String,
    #[serde(default)]
    status: Option<String>,
    #[serde(default)]
    reason: Option<String>,
    #[serde(default)]
    message: Option<String>,
    #[serde(default)]
    last_transition_time: Option<Time>,
    #[serde(default)]
    observed_generation: Option<i64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Standard {
    #[serde(default)]
    observed_generation: Option<i64>,
    #[serde(default)]
    conditions: Option<Vec<Stored>>,
}

impl From<Stored> for Condition {
    fn from(stored: Stored) -> Self {
        Self {
            type_: stored.type_,
            status: stored.status.unwrap_or_default(),
            reason: stored.reason.unwrap_or_default(),
            message: stored.message.unwrap_or_default(),
            // Without a time the condition is older than any that has one.
            last_transition_time: stored.last_transition_time.unwrap_or(Time(Timestamp::UNIX_EPOCH)),
            observed_generation: stored.observed_generation,
        }
    }
}

/// Reads the standard part of a status, whichever program wrote it.
pub(super) fn standard<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Status, D::Error> {
    let Standard { observed_generation, conditions } = Standard::deserialize(deserializer)?;
    let conditions: Vec<Condition> = conditions.unwrap_or_default().into_iter().map(Condition::from).collect();
    Ok(Status { observed_generation, conditions: conditions.into() })
}

/// Lets the framework write the standard part of a status.
macro_rules! custom_status {
    ($($status:ident),+) => {$(
        impl ::konverge::CustomStatus for $status {
            fn standard(&self) -> &::konverge::Status {
                &self.standard
            }

            fn standard_mut(&mut self) -> &mut ::konverge::Status {
                &mut self.standard
            }
        }
    )+};
}

pub(super) use custom_status;
