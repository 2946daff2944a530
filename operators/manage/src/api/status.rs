//! The part of each status that all kinds share.

use k8s_openapi::{
    apimachinery::pkg::apis::meta::v1::{Condition, Time},
    jiff::Timestamp,
};
use konverge::Status;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// A condition as openzro-operator's v1 kinds store it: all but type and status may be missing or `null`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Stored {
    #[serde(rename = "type")]
    pub(crate) type_: String,
    #[serde(default)]
    pub(crate) status: Option<String>,
    #[serde(default)]
    pub(crate) reason: Option<String>,
    #[serde(default)]
    pub(crate) message: Option<String>,
    #[serde(default)]
    pub(crate) last_transition_time: Option<Time>,
    #[serde(default)]
    pub(crate) observed_generation: Option<i64>,
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

/// Returns the conditions of an object of any of our kinds, whichever program wrote them. It leaves out conditions that it cannot read.
pub(crate) fn conditions(object: &Value) -> Vec<Stored> {
    let stored = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
    stored.into_iter().filter_map(|condition| serde_json::from_value(condition).ok()).collect()
}

/// Reads the standard part of a status, whichever program wrote it.
pub(super) fn standard<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Status, D::Error> {
    let Standard { observed_generation, conditions } = Standard::deserialize(deserializer)?;
    let conditions: Vec<Condition> = conditions.unwrap_or_default().into_iter().map(Condition::from).collect();
    let mut status = Status::default();
    status.observed_generation = observed_generation;
    status.conditions = conditions.into();
    Ok(status)
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
