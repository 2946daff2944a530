//! Reporting a run: an event and a log line for news, and the record on the object.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use konverge_apply::events::{EventSink, Notice};
use konverge_core::error::{Classify, in_one_line};
use konverge_runtime::{Priority, Queue};
use kube::runtime::events::EventType;
use tokio::time::Instant;

use super::{Parts, pace::pause, record_writer::RecordWriter};
use crate::{
    bindings::{Binding, Bindings, ParsedSpec},
    error::PushError,
    messages::Message,
    metrics::Metrics,
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
#[derive(Clone)]
pub(super) struct Reporter {
    records: RecordWriter,
    events: EventSink,
    bindings: Arc<Bindings>,
    queue: Queue<ObjectRef>,
    metrics: Metrics,
    /// The longest pause after a failure of an object that is being deleted.
    longest_of_deletion: Duration,
}

impl Reporter {
    pub(super) fn new(parts: &Parts, records: RecordWriter) -> Self {
        Self {
            records,
            events: parts.events.clone(),
            bindings: Arc::clone(&parts.bindings),
            queue: parts.queue.clone(),
            metrics: parts.metrics.clone(),
            longest_of_deletion: parts.policy.namespace_deadline,
        }
    }

    /// Reports the messages, and writes the record unless the object bears it already. `record` is the record of this run, if it has one.
    pub(super) async fn report(
        &self,
        key: &ObjectRef,
        binding: &Binding,
        record: Option<Record>,
        messages: Vec<Message>,
    ) -> Result<(), PushError> {
        let known = || self.bindings.get(key).filter(|now| now.uid == binding.uid).and_then(|now| now.record);
        let record = record.or_else(known).or_else(|| binding.record.clone());
        let record = record.unwrap_or_else(|| binding.new_record(Timestamp::now()));
        let (record, messages) = stand(binding, record, messages);
        self.say(key, binding, Some(&record), messages);
        if binding.left_until().is_some() {
            self.bindings.settle(key, binding, |now| now.intend(binding, record, Vec::new()));
        } else if !binding.bears(&record) {
            self.records.write(key, binding, &record).await?;
        }
        Ok(())
    }

    /// Reports once an actor that keeps removing the record. Returns how soon the record is to be written again; `None` unless it is
    /// left alone for a while.
    pub(super) fn contest(&self, key: &ObjectRef) -> Option<Duration> {
        let binding = self.bindings.get(key)?;
        let until = binding.left_until()?;
        let mut is_new = false;
        self.bindings.on_object(key, &binding.uid, |now| is_new = now.tell_of_undoing());
        if is_new {
            self.announce(key, &binding.uid, &Message::record_taken(key.kind));
        }
        Some(until.saturating_duration_since(Instant::now()))
    }

    /// [`report`](Self::report)s on an object that is in sync at low priority, after all objects that are not.
    pub(super) fn report_later(&self, key: &ObjectRef, binding: &Binding, record: Record, messages: Vec<Message>) {
        let (record, messages) = stand(binding, record, messages);
        if binding.bears(&record) {
            self.say(key, binding, Some(&record), messages);
        } else {
            let word = summary(&messages).0;
            self.bindings.on_object(key, &binding.uid, |now| {
                self.metrics.said(key, word);
                now.intend(binding, record, messages);
            });
            self.queue.add(key.clone(), Priority::Low, RECORD);
        }
    }

    /// Announces each message once, until other messages replace it. `record` is the record that goes with them. The event of a refusal is
    /// renewed each time, so it stays current for as long as the refusal lasts; the log has it once.
    ///
    /// If the object bears that record already and this process has announced nothing about it, an earlier process has. Then only loud messages
    /// are announced again.
    pub(super) fn say(&self, key: &ObjectRef, binding: &Binding, record: Option<&Record>, messages: Vec<Message>) {
        let is_found = binding.announced.said.is_empty() && binding.announced.asks_as_found;
        let was_said = is_found && record.is_some_and(|record| binding.bears(record));
        let is_said = |message: &Message| was_said && !message.is_loud() || binding.announced.said.contains(message);
        let unsaid = binding.announced.unsaid.iter().filter(|message| !messages.contains(message));
        for message in unsaid.chain(&messages) {
            if !is_said(message) {
                self.announce(key, &binding.uid, message);
            } else if message.is_refusal {
                self.publish(key, &binding.uid, message);
            }
        }
        let word = summary(&messages).0;
        // An object that is gone by now is no longer counted.
        self.bindings.settle(key, binding, |binding| {
            self.metrics.said(key, word);
            binding.announced.said = messages;
            binding.announced.unsaid.clear();
        });
    }

    fn announce(&self, key: &ObjectRef, uid: &str, message: &Message) {
        if message.is_loud() {
            tracing::warn!(object = %key, reason = message.reason, "{}", message.text);
        } else {
            tracing::info!(object = %key, reason = message.reason, "{}", message.text);
        }
        self.publish(key, uid, message);
    }

    fn publish(&self, key: &ObjectRef, uid: &str, message: &Message) {
        self.events.send(Notice {
            regarding: key.reference(uid),
            kind: if message.is_loud() { EventType::Warning } else { EventType::Normal },
            reason: message.reason,
            action: ACTION,
            note: message.text.clone(),
        });
    }

    /// Reports a failure, unless it is likely to pass. Returns the pause before the next attempt.
    pub(super) async fn report_failure(&self, key: &ObjectRef, binding: &Binding, error: &PushError) -> Duration {
        let failures = binding.failures.after(error.is_refusal());
        self.bindings.settle(key, binding, |now| now.failed(binding, failures));
        // A paused endpoint says less than the cause of the pause, which was reported before.
        let is_told = binding.failures.in_a_row >= REPORT_AFTER && error.is_pause();
        if is_told || failures.in_a_row < REPORT_AFTER && error.is_passing() {
            tracing::debug!(object = %key, "{}", in_one_line(error));
        } else {
            // If the record cannot be written now, the next attempt writes it.
            if let Err(error) = self.report(key, binding, None, vec![error.message()]).await {
                tracing::debug!(object = %key, "{}", in_one_line(&error));
            }
        }
        let pause = pause(error.class(), failures);
        binding.deleting.map_or(pause, |_| pause.min(self.longest_of_deletion))
    }
}

/// The record with the state of the object, and all messages.
fn stand(binding: &Binding, mut record: Record, mut messages: Vec<Message>) -> (Record, Vec<Message>) {
    record.generation = binding.generation;
    let (state, text) = summary(&messages);
    if state == SYNCED {
        messages.push(Message::synced(&record.paths.keys().cloned().collect::<Vec<_>>()));
    }
    record.say(state, text, Timestamp::now());
    if let ParsedSpec::Push(push) = &binding.spec {
        record.answered.clone_from(&push.spec.sync_now);
    }
    (record, messages)
}

/// The state of the object in a word, and the problems.
fn summary(messages: &[Message]) -> (&'static str, Option<String>) {
    let problems: Vec<&Message> = messages.iter().filter(|message| message.is_problem()).collect();
    let Some(first) = problems.first() else {
        let paused = messages.iter().find(|message| message.reason == reasons::PAUSED);
        return paused.map_or((SYNCED, None), |message| (message.reason, Some(message.text.clone())));
    };
    let texts: Vec<&str> = problems.iter().map(|message| &*message.text).collect();
    let mut text = texts.join("; ");
    if text.len() > LONGEST {
        text.truncate(text.floor_char_boundary(LONGEST));
        text.push('…');
    }
    (first.reason, Some(text))
}
