//! Telling the owner: an event and a log line when there is something new to say, and the record on the object.

use std::time::Duration;

use jiff::Timestamp;
use konverge_apply::events::Notice;
use konverge_core::error::{Classify, in_one_line};
use konverge_runtime::Priority;
use kube::runtime::events::EventType;
use tokio::time::Instant;

use super::{PushError, Pusher, TELL_AFTER, pause};
use crate::{
    bindings::{Asking, Binding},
    messages::Message,
    object::ObjectRef,
    reasons,
    record::{Record, SYNCED},
    watch::RECORD,
};

/// The `action` of every event of this operator.
const ACTION: &str = "Push";

/// What a record says of troubles is cut to this, so that it fits beside its paths.
const LONGEST: usize = 1024;

impl Pusher {
    /// Says what is to be said, and notes it on the object if it is not what stands there. `record` is what the run has made of it.
    pub(super) async fn conclude(
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
            self.note(key, binding, &record).await?;
        }
        Ok(())
    }

    /// Tells once of an actor that takes the record away again and again. Returns how soon the record is to be written again; `None` unless it is
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

    /// [`conclude`](Self::conclude) for what is in step: it is noted on the object, and said, when all those have had their turn that are not.
    pub(super) fn conclude_in_step(&self, key: &ObjectRef, binding: &Binding, record: Record, messages: Vec<Message>) {
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

    /// Says each of these once, until something else is said. `record` is what the object is to bear with that. The event of a refusal is renewed
    /// each time, so that it stays current for as long as the refusal lasts; the log has it once.
    ///
    /// If it bears that already, and this process has not said anything of it, another life of it has: then only what is loud is said again.
    pub(super) fn say(&self, key: &ObjectRef, binding: &Binding, record: Option<&Record>, messages: Vec<Message>) {
        let is_found = binding.said.is_empty() && binding.asks_as_found;
        let was_said = is_found && record.is_some_and(|record| binding.bears(record));
        let is_said = |message: &Message| was_said && !message.is_loud() || binding.said.contains(message);
        let unsaid = binding.unsaid.iter().filter(|message| !messages.contains(message));
        for message in unsaid.chain(&messages) {
            if !is_said(message) {
                self.announce(key, &binding.uid, message);
            } else if message.is_refusal {
                self.publish(key, &binding.uid, message);
            }
        }
        let word = summary(&messages).0;
        // One that went meanwhile is counted no more.
        self.bindings.settle(key, binding, |binding| {
            self.metrics.said(key, word);
            binding.said = messages;
            binding.unsaid.clear();
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

    /// Tells of a failure, if it is no passing one, and how long to wait before the next attempt.
    pub(super) async fn failed(&self, key: &ObjectRef, binding: &Binding, error: &PushError) -> Duration {
        let failures = binding.failures.saturating_add(1);
        let refusals = if error.is_refusal() { binding.refusals.saturating_add(1) } else { 0 };
        self.bindings.settle(key, binding, |now| {
            now.failures = failures;
            now.refused(binding, refusals);
        });
        // That Vault is left alone for a moment says less than why, which was told already.
        let is_told = binding.failures >= TELL_AFTER && error.is_pause();
        if is_told || failures < TELL_AFTER && error.is_passing() {
            tracing::debug!(object = %key, "{}", in_one_line(error));
        } else {
            // What cannot be noted now is noted with the next attempt.
            if let Err(error) = self.conclude(key, binding, None, vec![Message::failed(error)]).await {
                tracing::debug!(object = %key, "{}", in_one_line(&error));
            }
        }
        let pause = pause(error.class(), failures, refusals);
        binding.deleting.map_or(pause, |_| pause.min(self.policy.namespace_deadline))
    }
}

/// The record that says how it stands, and all that is to be said.
fn stand(binding: &Binding, mut record: Record, mut messages: Vec<Message>) -> (Record, Vec<Message>) {
    record.generation = binding.generation;
    let (state, text) = summary(&messages);
    if state == SYNCED {
        messages.push(Message::synced(&record.paths.keys().cloned().collect::<Vec<_>>()));
    }
    record.say(state, text, Timestamp::now());
    if let Asking::Push(push) = &binding.asking {
        record.answered.clone_from(&push.asked.sync_now);
    }
    (record, messages)
}

/// How it stands, in a word, and why if something is wrong.
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
