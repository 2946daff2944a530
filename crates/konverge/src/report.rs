//! How a run ended, in the status of its object.

use std::{any::Any, fmt};

use konverge_apply::{
    Conditions,
    conditions::{Moment, Reason},
};
use konverge_core::reasons;
use kube::core::object::HasStatus;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The status that every custom resource has. Use it as the status, or flatten it into a [`CustomStatus`] of your own.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Status {
    /// The generation of the object that this status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Ready, and while it is not: Reconciling or Stalled.
    #[serde(default)]
    pub conditions: Conditions,
}

/// A status that has the standard part in it.
///
/// ```
/// use konverge::prelude::*;
///
/// #[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
/// struct GreetingStatus {
///     greeted: u32,
///     #[serde(flatten)]
///     standard: Status,
/// }
///
/// impl CustomStatus for GreetingStatus {
///     fn standard(&self) -> &Status {
///         &self.standard
///     }
///
///     fn standard_mut(&mut self) -> &mut Status {
///         &mut self.standard
///     }
/// }
/// ```
pub trait CustomStatus: Default + Clone + Serialize + Send + 'static {
    /// The standard part.
    fn standard(&self) -> &Status;

    /// The standard part, to be written by the controller.
    fn standard_mut(&mut self) -> &mut Status;

    /// Called after each run with how it ended, for a status that says so in fields of its own.
    fn summarize(&mut self, ready: bool, message: &str) {
        let _ = (ready, message);
    }
}

impl CustomStatus for Status {
    fn standard(&self) -> &Status {
        self
    }

    fn standard_mut(&mut self) -> &mut Status {
        self
    }
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    Ready { reason: Reason, message: String },
    Progressing { reason: Reason, message: String },
    Retrying { reason: Reason, message: String },
    Stalled { reason: Reason, message: String },
}

impl Verdict {
    /// The message of a success for which the author gives none.
    pub(crate) fn success() -> Self {
        Self::Ready { reason: const { Reason::new(reasons::RECONCILED) }, message: "in sync".to_owned() }
    }

    fn message(&self) -> &str {
        let (Self::Ready { message, .. }
        | Self::Progressing { message, .. }
        | Self::Retrying { message, .. }
        | Self::Stalled { message, .. }) = self;
        message
    }

    /// Writes the verdict into a status.
    pub(crate) fn write_to(&self, status: &mut Status, moment: Moment) {
        status.observed_generation = moment.generation;
        let conditions = &mut status.conditions;
        match self {
            Self::Ready { reason, message } => conditions.ready(reason, message, moment),
            Self::Progressing { reason, message } | Self::Retrying { reason, message } => {
                conditions.reconciling(reason, message, moment);
            }
            Self::Stalled { reason, message } => conditions.stalled(reason, message, moment),
        }
    }
}

/// How the status of a kind is read and begun.
pub(crate) struct Report<K> {
    /// The standard part of what the object says now.
    pub(crate) standard: fn(&K) -> Option<&Status>,
    /// The whole of it, to be changed.
    pub(crate) begin: fn(&K) -> Box<dyn AnyStatus>,
}

impl<K: HasStatus<Status: CustomStatus>> Report<K> {
    pub(crate) fn new() -> Self {
        Self {
            standard: |object| object.status().map(CustomStatus::standard),
            begin: |object| Box::new(object.status().cloned().unwrap_or_default()),
        }
    }
}

/// A status of some type that has the standard part in it.
pub(crate) trait AnyStatus: Any + Send {
    /// Writes the result of a run.
    fn say(&mut self, verdict: &Verdict, moment: Moment);
    fn conditions(&mut self) -> &mut Conditions;
    fn json(&self) -> Result<Value, serde_json::Error>;
    fn as_any(&mut self) -> &mut dyn Any;
}

impl<S: CustomStatus> AnyStatus for S {
    fn say(&mut self, verdict: &Verdict, moment: Moment) {
        verdict.write_to(self.standard_mut(), moment);
        self.summarize(matches!(verdict, Verdict::Ready { .. }), verdict.message());
    }

    fn conditions(&mut self) -> &mut Conditions {
        &mut self.standard_mut().conditions
    }

    fn json(&self) -> Result<Value, serde_json::Error> {
        serde_json::to_value(self)
    }

    fn as_any(&mut self) -> &mut dyn Any {
        self
    }
}

impl fmt::Debug for dyn AnyStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AnyStatus")
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::jiff::Timestamp;

    use super::*;

    #[test]
    fn each_ending_is_one_state_for_kstatus() {
        let reason = || Reason::new("Test");
        let moment = Moment { generation: Some(7), now: Timestamp::UNIX_EPOCH };
        let table = [
            (Verdict::success(), ["True", "", ""]),
            (Verdict::Progressing { reason: reason(), message: String::new() }, ["False", "True", ""]),
            (Verdict::Retrying { reason: reason(), message: String::new() }, ["False", "True", ""]),
            (Verdict::Stalled { reason: reason(), message: String::new() }, ["False", "", "True"]),
        ];
        let mut status = Status::default();
        for (verdict, expected) in table {
            verdict.write_to(&mut status, moment);
            let said = ["Ready", "Reconciling", "Stalled"]
                .map(|name| status.conditions.get(name).map_or("", |condition| condition.status.as_str()));
            assert_eq!(said, expected, "{verdict:?}");
            assert_eq!(status.observed_generation, Some(7));
        }
    }
}
