//! Announcing: a statement about an object becomes an event and a log line, once until it changes.
//!
//! A controller finds the same in each of its runs: all is well, or the same cause still keeps the object out of sync. It states what it found as
//! [`Statement`]s, remembers those of the last run, and leaves it to an [`Announcer`] to tell what is new. A [`ReasonGauge`] counts the objects by
//! the reason of their last statement.

use std::fmt;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::runtime::events::EventType;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{family::Family, gauge::Gauge},
    registry::Registry,
};
#[doc(hidden)]
pub use tracing;

use crate::events::{EventSink, Notice};

/// How bad something is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Severity {
    /// The object is in sync.
    Good,
    /// Worth knowing. The object is in sync for all that.
    Notice,
    /// Somebody should look, because something may be missed later. The object is in sync for all that.
    Warning,
    /// The object is not in sync.
    Problem,
}

/// A statement about an object: its cause and the next step, for people. Never a secret value.
/// It gets no further field, so that it can be written as a literal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Statement {
    /// `CamelCase`, from a fixed list: the reason of the event, and the label of metrics.
    pub reason: &'static str,
    /// One or two sentences.
    pub text: String,
    /// How bad it is.
    pub severity: Severity,
    /// Whether a server refuses something. No event tells when that is over, so each attempt renews the event of the refusal.
    pub is_refusal: bool,
    /// Whether it can end although the object does not change. Its text may differ from attempt to attempt, which is no news.
    pub is_passing: bool,
}

impl Statement {
    /// A statement that is neither a refusal nor passing.
    pub fn new(severity: Severity, reason: &'static str, text: impl Into<String>) -> Self {
        Self { reason, text: text.into(), severity, is_refusal: false, is_passing: false }
    }

    /// Returns whether the event is a warning.
    pub fn is_warning(&self) -> bool {
        self.severity >= Severity::Warning
    }

    /// Returns whether the object is not in sync.
    pub fn is_problem(&self) -> bool {
        self.severity == Severity::Problem
    }

    /// Returns whether it is no news after `before`: the same statement, or a [passing](Self::is_passing) one for the same reason.
    pub fn repeats(&self, before: &Self) -> bool {
        self == before || (self.is_passing && self.reason == before.reason)
    }
}

/// Writes the log line of a statement. The flag tells whether the log has the statement already. [`statement_log!`](crate::statement_log) makes
/// one.
pub type StatementLog = fn(&dyn fmt::Display, &Statement, bool);

/// Makes a [`StatementLog`] that logs as the module in which it is called, with the object in the field that is named: warnings at level `warn`,
/// others at `info`, and repetitions at `debug`.
#[macro_export]
macro_rules! statement_log {
    ($object:ident) => {
        |object: &dyn ::core::fmt::Display, statement: &$crate::announce::Statement, is_repeated: bool| {
            let (reason, text) = (statement.reason, &statement.text);
            match (is_repeated, statement.is_warning()) {
                (true, _) => $crate::announce::tracing::debug!($object = %object, reason, "{text}"),
                (false, false) => $crate::announce::tracing::info!($object = %object, reason, "{text}"),
                (false, true) => $crate::announce::tracing::warn!($object = %object, reason, "{text}"),
            }
        }
    };
}

/// Announces statements as one operator. Clones are handles to the same event sink.
#[derive(Clone)]
pub struct Announcer {
    events: EventSink,
    action: &'static str,
    log: StatementLog,
}

impl Announcer {
    /// An announcer that leaves events at `events`. `action` is the `CamelCase` action of all its events.
    pub fn new(events: EventSink, action: &'static str, log: StatementLog) -> Self {
        Self { events, action, log }
    }

    /// Announces a statement: a log line and an event.
    pub fn announce(&self, object: &dyn fmt::Display, regarding: ObjectReference, statement: &Statement) {
        self.log(object, statement);
        self.publish(regarding, statement);
    }

    /// Writes the log line of a statement, without an event.
    pub fn log(&self, object: &dyn fmt::Display, statement: &Statement) {
        (self.log)(object, statement, false);
    }

    /// Announces those of the statements that were not said before, and renews the events of refusals that were. The log has a
    /// repetition at level `debug` alone.
    ///
    /// `is_said` tells whether a statement was said before, [`Statement::repeats`] in most cases.
    pub fn announce_new<'a>(
        &self,
        object: &dyn fmt::Display,
        regarding: &ObjectReference,
        statements: impl IntoIterator<Item = &'a Statement>,
        is_said: impl Fn(&Statement) -> bool,
    ) {
        for statement in statements {
            let is_repeated = is_said(statement);
            if !is_repeated || statement.is_refusal {
                (self.log)(object, statement, is_repeated);
                self.publish(regarding.clone(), statement);
            }
        }
    }

    /// Leaves the event of a statement, without a log line.
    pub fn publish(&self, regarding: ObjectReference, statement: &Statement) {
        self.events.send(Notice {
            regarding,
            kind: if statement.is_warning() { EventType::Warning } else { EventType::Normal },
            reason: statement.reason,
            action: self.action,
            note: statement.text.clone(),
        });
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabel {
    reason: &'static str,
}

/// Counts objects by the reason of the last statement about them. Clones count into the same series.
#[derive(Debug, Clone, Default)]
pub struct ReasonGauge(Family<ReasonLabel, Gauge>);

impl ReasonGauge {
    /// Adds the series `name{reason}`.
    pub fn register(&self, registry: &mut Registry, name: &str, help: &str) {
        registry.register(name, help, self.0.clone());
    }

    /// The reason of one object's last statement changed. `None` is before the first statement and after the last.
    pub fn moved(&self, from: Option<&'static str>, to: Option<&'static str>) {
        if from == to {
            return;
        }
        if let Some(reason) = from {
            self.0.get_or_create(&ReasonLabel { reason }).dec();
        }
        if let Some(reason) = to {
            self.0.get_or_create(&ReasonLabel { reason }).inc();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    fn problem(text: &str) -> Statement {
        Statement::new(Severity::Problem, "Broken", text)
    }

    #[test]
    fn a_statement_is_no_news_after_itself_and_a_passing_one_not_after_its_reason() {
        let passing = |text: &str| Statement { is_passing: true, ..problem(text) };
        let other = Statement { reason: "Other", ..passing("a") };
        for (statement, before, expected) in [
            (problem("a"), problem("a"), true),
            (problem("a"), problem("b"), false),
            (passing("a"), passing("b"), true),
            (passing("a"), other, false),
            (Statement { severity: Severity::Notice, ..problem("a") }, problem("a"), false),
        ] {
            assert_eq!(statement.repeats(&before), expected, "{statement:?} after {before:?}");
        }
    }

    #[test]
    fn what_was_said_is_not_said_again_but_the_event_of_a_refusal_is_renewed() {
        static LOG: Mutex<Vec<String>> = Mutex::new(Vec::new());
        let (events, mut sent) = EventSink::captured();
        let announcer = Announcer::new(events, "Test", |object, statement, is_repeated| {
            LOG.lock().unwrap().push(format!("{object} {} {is_repeated}", statement.text));
        });
        let refusal = Statement { is_refusal: true, ..problem("refused") };
        let good = Statement::new(Severity::Good, "Synced", "in sync");
        let loud = Statement::new(Severity::Warning, "Loud", "loud");
        let said = [refusal.clone(), problem("said")];
        let all = [good, loud, problem("new"), problem("said"), refusal];
        let regarding = ObjectReference { name: Some("web".to_owned()), ..ObjectReference::default() };
        announcer.announce_new(&"shop/web", &regarding, &all, |statement| said.contains(statement));
        let mut notices = Vec::new();
        while let Ok(Notice { regarding, kind, reason, action, note }) = sent.try_recv() {
            assert_eq!((regarding.name.as_deref(), action), (Some("web"), "Test"));
            notices.push((kind, reason, note));
        }
        let expected = [
            (EventType::Normal, "Synced", "in sync"),
            (EventType::Warning, "Loud", "loud"),
            (EventType::Warning, "Broken", "new"),
            (EventType::Warning, "Broken", "refused"),
        ];
        assert_eq!(notices, expected.map(|(kind, reason, note)| (kind, reason, note.to_owned())));
        let lines = ["in sync false", "loud false", "new false", "refused true"];
        assert_eq!(*LOG.lock().unwrap(), lines.map(|line| format!("shop/web {line}")));
    }

    #[test]
    fn the_gauge_counts_each_object_under_its_last_reason() {
        let (gauge, mut registry) = (ReasonGauge::default(), Registry::default());
        gauge.register(&mut registry, "objects", "Objects by reason");
        for (from, to) in [
            (None, Some("Synced")),
            (None, Some("Synced")),
            (None, Some("Broken")),
            (Some("Synced"), Some("Broken")),
            (Some("Broken"), Some("Broken")),
            (Some("Synced"), None),
        ] {
            gauge.moved(from, to);
        }
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        assert!(text.contains("objects{reason=\"Synced\"} 0\n"), "{text}");
        assert!(text.contains("objects{reason=\"Broken\"} 2\n"), "{text}");
    }
}
