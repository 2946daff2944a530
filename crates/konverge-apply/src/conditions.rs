//! The conditions of an object: what is true of it, since when, and why.

mod reason;
mod schema;

use std::fmt;

use k8s_openapi::{
    apimachinery::pkg::apis::meta::v1::{Condition, Time},
    jiff::Timestamp,
};
use serde::{Deserialize, Serialize};

use crate::object::shortened;

pub use self::{
    reason::{InvalidReason, Reason},
    schema::conditions_schema,
};

/// The object is as it is wanted.
pub const READY: &str = "Ready";
/// Work on the object is going on. Present only while it is.
pub const RECONCILING: &str = "Reconciling";
/// Work on the object cannot go on before somebody changes something. Present only while that is so.
pub const STALLED: &str = "Stalled";

/// The API server's limit for a message. It counts characters; bytes are never fewer.
const MESSAGE_LIMIT: usize = 32_768;

/// Whether something is true. Kubernetes has these three values and no others, so that a match on it can be exhaustive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ConditionStatus {
    /// It is.
    True,
    /// It is not.
    False,
    /// It cannot be told.
    Unknown,
}

impl fmt::Display for ConditionStatus {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        })
    }
}

impl From<bool> for ConditionStatus {
    fn from(is_true: bool) -> Self {
        if is_true { Self::True } else { Self::False }
    }
}

/// When, and about which generation of the object, something is said. The clock is handed in, so that tests have their own.
/// It gets no further field, so that it can be written as a literal.
#[derive(Debug, Clone, Copy)]
pub struct Moment {
    /// `metadata.generation` of the object that was looked at.
    pub generation: Option<i64>,
    /// Now.
    pub now: Timestamp,
}

/// The list of conditions in a status, one per type, sorted as they were first set. As a field of a custom resource's status it
/// brings the schema that lets several managers have conditions in one list.
///
/// [`ready`](Self::ready), [`reconciling`](Self::reconciling) and [`stalled`](Self::stalled) keep the three conditions that tools
/// such as `kubectl wait` and kstatus read, so that exactly one of them tells the state.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Conditions(Vec<Condition>);

impl Conditions {
    /// Sets a condition. The time changes only with the status; a message that is too long is cut.
    pub fn set(
        &mut self,
        condition_type: &str,
        status: ConditionStatus,
        reason: &Reason,
        message: &str,
        moment: Moment,
    ) {
        let status = status.to_string();
        let known = self.0.iter_mut().find(|known| known.type_ == condition_type);
        let since =
            known.as_deref().filter(|known| known.status == status).map(|known| known.last_transition_time.clone());
        let condition = Condition {
            // The API keeps whole seconds; a fraction would never compare as equal to what was written.
            last_transition_time: since.unwrap_or_else(|| Time(whole_second(moment.now))),
            message: shortened(message, MESSAGE_LIMIT).into_owned(),
            observed_generation: moment.generation,
            reason: reason.to_string(),
            status,
            type_: condition_type.to_owned(),
        };
        match known {
            Some(known) => *known = condition,
            None => self.0.push(condition),
        }
    }

    /// Removes a condition.
    pub fn remove(&mut self, condition_type: &str) {
        self.0.retain(|condition| condition.type_ != condition_type);
    }

    /// The message.
    pub fn get(&self, condition_type: &str) -> Option<&Condition> {
        self.0.iter().find(|condition| condition.type_ == condition_type)
    }

    /// Whether it is said to be true.
    pub fn is_true(&self, condition_type: &str) -> bool {
        self.get(condition_type).is_some_and(|condition| condition.status == "True")
    }

    /// All conditions.
    pub fn iter(&self) -> impl Iterator<Item = &Condition> {
        self.0.iter()
    }

    /// The object is as it is wanted: `Ready` is true, and nothing is going on.
    pub fn ready(&mut self, reason: &Reason, message: &str, moment: Moment) {
        self.set(READY, ConditionStatus::True, reason, message, moment);
        self.remove(RECONCILING);
        self.remove(STALLED);
    }

    /// Work is going on and is not done, or will be tried again: `Ready` is false, `Reconciling` true.
    pub fn reconciling(&mut self, reason: &Reason, message: &str, moment: Moment) {
        self.set(READY, ConditionStatus::False, reason, message, moment);
        self.set(RECONCILING, ConditionStatus::True, reason, message, moment);
        self.remove(STALLED);
    }

    /// Nothing more will be tried before somebody changes something: `Ready` is false, `Stalled` true.
    pub fn stalled(&mut self, reason: &Reason, message: &str, moment: Moment) {
        self.set(READY, ConditionStatus::False, reason, message, moment);
        self.set(STALLED, ConditionStatus::True, reason, message, moment);
        self.remove(RECONCILING);
    }
}

impl From<Vec<Condition>> for Conditions {
    fn from(conditions: Vec<Condition>) -> Self {
        Self(conditions)
    }
}

impl From<Conditions> for Vec<Condition> {
    fn from(conditions: Conditions) -> Self {
        conditions.0
    }
}

/// The time as the API keeps it in conditions: in whole seconds.
pub fn whole_second(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}

#[cfg(test)]
mod tests;
