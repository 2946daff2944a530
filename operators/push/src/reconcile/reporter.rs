//! Reporting a run: an event and a log line for news, and the record on the object.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use konverge_apply::{Announcer, Statement, statement_log};
use konverge_core::error::{Classify, in_one_line};
use konverge_runtime::Priority;
use tokio::time::Instant;

use super::{Parts, pace::pause, record_writer::RecordWriter};
use crate::{
    bindings::{Announced, Binding, ParsedSpec},
    error::PushError,
    messages,
    object::ObjectRef,
    reasons,
    record::{Record, SYNCED},
    watch::RECORD,
};

/// The `action` of every event of this operator.
const ACTION: &str = "Push";

/// The longest text of problems in a record, in bytes, so that it fits beside the paths.
const LONGEST: usize = 1024;

/// After this many failed attempts an outage is reported on the objects: it is no short one.
const REPORT_AFTER: u32 = 2;

/// Reports on objects.
pub(super) struct Reporter {
    parts: Arc<Parts>,
    records: RecordWriter,
    announcer: Announcer,
}

impl Reporter {
    pub(super) fn new(parts: &Arc<Parts>, records: &RecordWriter) -> Self {
        let announcer = Announcer::new(parts.events.clone(), ACTION, statement_log!(object));
        Self { parts: Arc::clone(parts), records: records.clone(), announcer }
    }

    /// Reports the statements, and writes the record unless the object bears it already. `record` is the record of this run, if it has one.
    pub(super) async fn report(
        &self,
        key: &ObjectRef,
        binding: &Binding,
        record: Option<Record>,
        statements: Vec<Statement>,
    ) -> Result<(), PushError> {
        let known = || self.parts.bindings.get(key).filter(|now| now.uid == binding.uid).and_then(|now| now.record);
        let record = record.or_else(known).or_else(|| binding.record.clone());
        let record = record.unwrap_or_else(|| binding.new_record(Timestamp::now()));
        let (record, statements) = stand(binding, record, statements);
        self.say(key, binding, Some(&record), statements);
        if binding.left_until().is_some() {
            self.parts.bindings.settle(key, binding, |now| now.intend(binding, record, Vec::new()));
        } else if !binding.bears(&record) {
            self.records.write(key, binding, &record).await?;
        }
        Ok(())
    }

    /// Reports once an actor that keeps removing the record. Returns how soon the record is to be written again; `None` unless it is
    /// left alone for a while.
    pub(super) fn contest(&self, key: &ObjectRef) -> Option<Duration> {
        let binding = self.parts.bindings.get(key)?;
        let until = binding.left_until()?;
        let mut is_new = false;
        self.parts.bindings.on_object(key, &binding.uid, |now| is_new = now.tell_of_undoing());
        if is_new {
            self.announcer.announce(key, key.reference(&binding.uid), &messages::record_taken(key.kind));
        }
        Some(until.saturating_duration_since(Instant::now()))
    }

    /// [`report`](Self::report)s on an object that is in sync at low priority, after all objects that are not.
    pub(super) fn report_later(&self, key: &ObjectRef, binding: &Binding, record: Record, statements: Vec<Statement>) {
        let (record, statements) = stand(binding, record, statements);
        if binding.bears(&record) {
            self.say(key, binding, Some(&record), statements);
        } else {
            let reason = summary(&statements).0;
            self.parts.bindings.on_object(key, &binding.uid, |now| {
                now.announced.reason = Some(reason);
                now.intend(binding, record, statements);
            });
            self.parts.queue.add(key.clone(), Priority::Low, RECORD);
        }
    }

    /// Announces each statement once, until other statements replace it. `record` is the record that goes with them.
    ///
    /// If the object bears that record already and this process has announced nothing about it, an earlier process has. Then only warnings
    /// are announced again.
    pub(super) fn say(&self, key: &ObjectRef, binding: &Binding, record: Option<&Record>, statements: Vec<Statement>) {
        let is_found = binding.announced.said.is_empty() && binding.announced.asks_as_found;
        let was_said = is_found && record.is_some_and(|record| binding.bears(record));
        let is_said = |statement: &Statement| {
            was_said && !statement.is_warning() || binding.announced.said.iter().any(|said| statement.repeats(said))
        };
        let unsaid = binding.announced.unsaid.iter().filter(|statement| !statements.contains(statement));
        self.announcer.announce_new(key, &key.reference(&binding.uid), unsaid.chain(&statements), is_said);
        let reason = summary(&statements).0;
        self.parts.bindings.settle(key, binding, |now| {
            now.announced = Announced { said: statements, unsaid: Vec::new(), reason: Some(reason), ..now.announced };
        });
    }

    /// Reports a failure, unless it is likely to pass. Returns the pause before the next attempt.
    pub(super) async fn report_failure(&self, key: &ObjectRef, binding: &Binding, error: &PushError) -> Duration {
        let failures = binding.failures.after(error.is_refusal());
        self.parts.bindings.settle(key, binding, |now| now.failed(binding, failures));
        // A paused endpoint says less than the cause of the pause, which was reported before.
        let is_told = binding.failures.in_a_row >= REPORT_AFTER && error.is_pause();
        if is_told || failures.in_a_row < REPORT_AFTER && error.is_passing() {
            tracing::debug!(object = %key, "{}", in_one_line(error));
        } else {
            // If the record cannot be written now, the next attempt writes it.
            if let Err(error) = self.report(key, binding, None, vec![error.statement()]).await {
                tracing::debug!(object = %key, "{}", in_one_line(&error));
            }
        }
        let pause = pause(error.class(), failures);
        binding.deleting.map_or(pause, |_| pause.min(self.parts.policy.terminating_namespace_deadline))
    }
}

/// The record with the state of the object, and all statements.
fn stand(binding: &Binding, mut record: Record, mut statements: Vec<Statement>) -> (Record, Vec<Statement>) {
    record.generation = binding.generation;
    let (state, text) = summary(&statements);
    if state == SYNCED {
        statements.push(messages::synced(&record.paths.keys().cloned().collect::<Vec<_>>()));
    }
    record.say(state, text, Timestamp::now());
    if let ParsedSpec::Push(push) = &binding.spec {
        record.answered.clone_from(&push.spec.sync_now);
    }
    (record, statements)
}

/// Returns the state of the object as a reason, and the text of all problems.
fn summary(statements: &[Statement]) -> (&'static str, Option<String>) {
    let problems: Vec<&Statement> = statements.iter().filter(|statement| statement.is_problem()).collect();
    let Some(first) = problems.first() else {
        let paused = statements.iter().find(|statement| statement.reason == reasons::PAUSED);
        return paused.map_or((SYNCED, None), |statement| (statement.reason, Some(statement.text.clone())));
    };
    let texts: Vec<&str> = problems.iter().map(|statement| &*statement.text).collect();
    let mut text = texts.join("; ");
    if text.len() > LONGEST {
        text.truncate(text.floor_char_boundary(LONGEST));
        text.push('…');
    }
    (first.reason, Some(text))
}
