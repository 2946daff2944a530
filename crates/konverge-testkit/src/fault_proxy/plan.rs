//! The plan of a run's faults: a small file with a seed.

use std::{collections::BTreeMap, fmt, fs, io, num::NonZeroU64, path::Path};

use serde::{Deserialize, Serialize};

use super::values::{Probability, Span};
use crate::{api_request::Verb, pattern::Pattern};

/// The faults, and the requests that they hit. The same plan and the same requests give the same faults.
///
/// ```
/// let plan = konverge_testkit::fault_proxy::Plan::parse(
///     "
/// seed: 7
/// rules:
/// - when: { phase: after, verbs: [create, patch], resources: [configmaps, '*.apps'], nth: 3 }
///   then: drop
/// - when: { verbs: [get, list], probability: 0.1 }
///   then: { status: { code: 429, retry_after: 1 } }
/// - when: { phase: body, verbs: [watch], namespace: shop-*, events: [DELETED] }
///   then: hold
/// ",
/// )?;
/// assert_eq!(plan.rules.len(), 3);
/// # Ok::<(), konverge_testkit::fault_proxy::PlanError>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Plan {
    /// The seed of the random numbers.
    #[serde(default)]
    pub seed: u64,
    /// All rules are looked at for each request, in this order.
    #[serde(default)]
    pub rules: Vec<Rule>,
}

/// A fault and its trigger. An action that makes no sense where its trigger puts it cannot be stated.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "UncheckedRule")]
pub struct Rule {
    when: Trigger,
    then: Action,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct UncheckedRule {
    #[serde(default)]
    when: Trigger,
    then: Action,
}

/// Which requests, and which of those. A field that is not set matches anything.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct Trigger {
    /// Where on its way the request is.
    pub phase: Phase,
    /// Any of these verbs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub verbs: Vec<Verb>,
    /// Whether it changes what is stored, if it succeeds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mutating: Option<bool>,
    /// Any of these kinds: `configmaps`, `deployments.apps`, `pods/status`, with `*` for any characters but `/`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<Pattern>,
    /// None of these kinds.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub except: Vec<Pattern>,
    /// The object's namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<Pattern>,
    /// The object's name. That of a creation is read from its body, that of a watch event from the event.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<Pattern>,
    /// Parameters of the query that are there, with their decoded values: `query: { continue: '*' }`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub query: BTreeMap<String, Pattern>,
    /// Any of these watch events.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<EventKind>,
    /// Of all that fit only this one, counted from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nth: Option<NonZeroU64>,
    /// Of all that fit every such one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub every: Option<NonZeroU64>,
    /// Of all that fit this share, drawn from the seed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub probability: Option<Probability>,
    /// At most so often.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub times: Option<NonZeroU64>,
}

impl Trigger {
    /// These settings with a change.
    #[must_use]
    pub fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }
}

/// Where on its way a request is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Phase {
    /// It has arrived and the API server does not know of it.
    #[default]
    Before,
    /// The API server has answered with success, so what it changes is committed; the client does not know.
    After,
    /// The answer's body is on its way: for a watch each event, else the body as a whole.
    Body,
}

/// The kind of a watch event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
#[non_exhaustive]
pub enum EventKind {
    /// The object is new to the watch.
    Added,
    /// The object changed.
    Modified,
    /// The object is gone.
    Deleted,
    /// The watch is complete up to a resource version.
    Bookmark,
    /// The watch has failed.
    Error,
}

/// The fault.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Action {
    /// It takes so much longer, and goes on: `delay: 200ms`. A client that gives up before it is forwarded takes it back.
    Delay(Span),
    /// A delay up to this, drawn from the seed.
    Jitter(Span),
    /// The connection ends without the rest; over HTTP/2 only the request's stream. After commit this is a lost reply.
    Drop,
    /// The client is told this instead.
    Status(StatusAnswer),
    /// A list has nothing in it.
    Empty,
    /// The body ends with the connection in the middle of a line.
    Truncate,
    /// Nothing more comes, and the connection stays open, as if the other end had lost power. A release ends the connection.
    Freeze,
    /// This watch event and all later ones of its stream wait until they are released, and then come in their order.
    Hold,
    /// The watch gets an `ERROR` event with this code and ends: `error_event: 410`.
    ErrorEvent(u16),
    /// The watch event is left out. The bookmark that ends the initial events of a streaming list always gets through.
    Suppress,
    /// The watch event comes twice.
    Duplicate,
    /// SIGKILL for the process of this name, and no answer: `kill: operator`.
    Kill(String),
    /// For so long no connection is served, and open ones end: `down: 5s`.
    Down(Span),
}

/// An answer that the API server did not give.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct StatusAnswer {
    /// HTTP status code.
    #[serde(deserialize_with = "super::values::error_code")]
    pub code: u16,
    /// The reason, for example `Conflict`. The default is the API server's reason for the code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Seconds of a `Retry-After` header.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after: Option<u32>,
}

/// A plan cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// The text is no plan. The message has the line.
    #[error("invalid plan: {0}")]
    Invalid(String),
    /// The file cannot be read or written.
    #[error("cannot use plan file {path}: {source}")]
    File {
        /// The file.
        path: String,
        /// The error of the operating system.
        source: io::Error,
    },
    /// It kills a process that the proxy does not know.
    #[error("rule {rule} kills {process:?}, which is not registered with FaultProxy::on_kill; registered: {known:?}")]
    UnknownProcess {
        /// The rule's number, from 1.
        rule: usize,
        /// The name in the rule.
        process: String,
        /// The names that would do.
        known: Vec<String>,
    },
}

impl Plan {
    /// These settings with a change.
    #[must_use]
    pub fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    /// Reads YAML, or JSON, which is YAML too.
    pub fn parse(text: &str) -> Result<Self, PlanError> {
        serde_saphyr::from_str(text).map_err(|error| PlanError::Invalid(error.to_string()))
    }

    /// Reads a file.
    pub fn read(path: &Path) -> Result<Self, PlanError> {
        let text = fs::read_to_string(path).map_err(|source| file_error(path, source))?;
        Self::parse(&text).map_err(|error| file_error(path, io::Error::other(error)))
    }

    /// Writes a file that reads as this plan.
    pub fn write(&self, path: &Path) -> Result<(), PlanError> {
        let text = serde_saphyr::to_string(self).map_err(io::Error::other);
        text.and_then(|text| fs::write(path, text)).map_err(|source| file_error(path, source))
    }
}

impl Rule {
    /// Joins a trigger and an action; fails when the action makes no sense there.
    pub fn new(when: Trigger, then: Action) -> Result<Self, PlanError> {
        Self::check(when, then).map_err(PlanError::Invalid)
    }

    /// When.
    pub fn when(&self) -> &Trigger {
        &self.when
    }

    /// The fault.
    pub fn then(&self) -> &Action {
        &self.then
    }

    fn check(when: Trigger, then: Action) -> Result<Self, String> {
        let counts = [when.nth.is_some(), when.every.is_some(), when.probability.is_some()];
        if counts.iter().filter(|stated| **stated).count() > 1 {
            return Err("state only one of nth, every and probability".to_owned());
        }
        let only_watches = when.verbs == [Verb::Watch];
        if !when.events.is_empty() && (when.phase != Phase::Body || !only_watches) {
            return Err("events need phase: body and verbs: [watch]".to_owned());
        }
        let (phases, watches): (&[Phase], bool) = match then {
            Action::Delay(_)
            | Action::Jitter(_)
            | Action::Drop
            | Action::Freeze
            | Action::Kill(_)
            | Action::Down(_) => (&[Phase::Before, Phase::After, Phase::Body], false),
            Action::Status(_) => (&[Phase::Before, Phase::After], false),
            Action::Empty => (&[Phase::Before], false),
            Action::Truncate => (&[Phase::Body], false),
            Action::Hold | Action::Suppress | Action::Duplicate => (&[Phase::Body], true),
            Action::ErrorEvent(_) => (&[Phase::Before, Phase::Body], true),
        };
        if !phases.contains(&when.phase) {
            return Err(format!("{then} cannot happen in phase {}; it can in {phases:?}", when.phase));
        }
        if watches && !only_watches {
            return Err(format!("{then} needs verbs: [watch]"));
        }
        if then == Action::Empty && when.verbs != [Verb::List] {
            return Err(format!("{then} needs verbs: [list]"));
        }
        Ok(Self { when, then })
    }
}

impl TryFrom<UncheckedRule> for Rule {
    type Error = String;

    fn try_from(rule: UncheckedRule) -> Result<Self, String> {
        Self::check(rule.when, rule.then)
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Before => "before",
            Self::After => "after",
            Self::Body => "body",
        })
    }
}

impl fmt::Display for Action {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Delay(span) => write!(formatter, "delay {span}"),
            Self::Jitter(span) => write!(formatter, "jitter {span}"),
            Self::Drop => formatter.write_str("drop"),
            Self::Status(answer) => write!(formatter, "status {}", answer.code),
            Self::Empty => formatter.write_str("empty"),
            Self::Truncate => formatter.write_str("truncate"),
            Self::Freeze => formatter.write_str("freeze"),
            Self::Hold => formatter.write_str("hold"),
            Self::ErrorEvent(code) => write!(formatter, "error_event {code}"),
            Self::Suppress => formatter.write_str("suppress"),
            Self::Duplicate => formatter.write_str("duplicate"),
            Self::Kill(process) => write!(formatter, "kill {process}"),
            Self::Down(span) => write!(formatter, "down {span}"),
        }
    }
}

fn file_error(path: &Path, source: io::Error) -> PlanError {
    PlanError::File { path: path.display().to_string(), source }
}

#[cfg(test)]
mod tests;
