//! Reporting a run: an event and a log line for news, and the record on the object, together with its binding.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use konverge_apply::{Announcer, Statement, events::EventSink, statement_log};
use konverge_core::error::{Classify, in_one_line};
use konverge_runtime::{Priority, Queue};
use kube::Client;
use tokio::time::Instant;

use crate::{
    bindings::{Announced, Binding, Bindings},
    error::PushError,
    ledger::{Ledger, LedgerError},
    messages,
    object::{Kind, ObjectRef},
    record::Record,
    watch::RECORD,
};

/// The `action` of every event of this operator.
const ACTION: &str = "Push";

/// After this many failed attempts an outage is reported on the objects: it is no short one.
const REPORT_AFTER: u32 = 2;

/// Reports on objects, and writes their records.
pub(crate) struct Reporter {
    ledger: Ledger,
    announcer: Announcer,
    bindings: Arc<Bindings>,
    queue: Queue<ObjectRef>,
    /// An object that is being deleted is tried again within this time, because its namespace may be, too.
    deletion_retry: Duration,
}

impl Reporter {
    pub(crate) fn new(
        client: Client,
        events: EventSink,
        bindings: Arc<Bindings>,
        queue: Queue<ObjectRef>,
        deletion_retry: Duration,
    ) -> Self {
        let announcer = Announcer::new(events, ACTION, statement_log!(object));
        Self { ledger: Ledger::new(client), announcer, bindings, queue, deletion_retry }
    }

    /// Reports the statements, and writes the record unless the object bears it already. `record` is the record of this run, if it has one.
    pub(super) async fn report(
        &self,
        key: &ObjectRef,
        binding: &Binding,
        record: Option<Record>,
        statements: Vec<Statement>,
    ) -> Result<(), PushError> {
        let known = || self.bindings.get(key).filter(|now| now.uid == binding.uid).and_then(|now| now.record);
        let record = record.or_else(known).or_else(|| binding.record.clone());
        let record = record.unwrap_or_else(|| binding.new_record(Timestamp::now()));
        let (record, statements) = binding.with_state(record, statements);
        self.say(key, binding, Some(&record), statements);
        if binding.left_until().is_some() {
            self.bindings.update_if_current(key, binding, |now| now.intend(binding, record, Vec::new()));
        } else if !binding.bears(&record) {
            self.write_record(key, binding, &record).await?;
        }
        Ok(())
    }

    /// Reports once that another actor keeps removing the record. Returns the pause before the operator writes the record again, or `None` if no
    /// pause is under way.
    pub(super) fn report_reverts(&self, key: &ObjectRef) -> Option<Duration> {
        let binding = self.bindings.get(key)?;
        let until = binding.left_until()?;
        let mut is_new = false;
        self.bindings.on_object(key, &binding.uid, |now| is_new = now.must_report_reverts());
        if is_new {
            self.announcer.announce(key, key.reference(&binding.uid), &messages::record_taken(key.kind));
        }
        Some(until.saturating_duration_since(Instant::now()))
    }

    /// [`report`](Self::report)s on an object that is in sync at low priority, after all objects that are not.
    pub(super) fn report_later(&self, key: &ObjectRef, binding: &Binding, record: Record, statements: Vec<Statement>) {
        let (record, statements) = binding.with_state(record, statements);
        if binding.bears(&record) {
            self.say(key, binding, Some(&record), statements);
        } else {
            let reason = messages::summary(&statements).0;
            self.bindings.on_object(key, &binding.uid, |now| {
                now.announced.reason = Some(reason);
                now.intend(binding, record, statements);
            });
            self.queue.add(key.clone(), Priority::Low, RECORD);
        }
    }

    /// Announces each statement once, until other statements replace it. `record` is the record that goes with them.
    ///
    /// If the object bears that record already and this process has announced nothing about it, an earlier process has. Then only warnings
    /// are announced again.
    pub(super) fn say(&self, key: &ObjectRef, binding: &Binding, record: Option<&Record>, statements: Vec<Statement>) {
        let is_found = binding.announced.said.is_empty() && binding.announced.has_first_spec;
        let was_said = is_found && record.is_some_and(|record| binding.bears(record));
        let is_said = |statement: &Statement| {
            was_said && !statement.is_warning() || binding.announced.said.iter().any(|said| statement.repeats(said))
        };
        let unsaid = binding.announced.unsaid.iter().filter(|statement| !statements.contains(statement));
        self.announcer.announce_new(key, &key.reference(&binding.uid), unsaid.chain(&statements), is_said);
        let reason = messages::summary(&statements).0;
        self.bindings.update_if_current(key, binding, |now| {
            now.announced = Announced { said: statements, unsaid: Vec::new(), reason: Some(reason), ..now.announced };
        });
    }

    /// Reports a failure, unless it is likely to pass. Returns the pause before the next attempt.
    pub(super) async fn report_failure(&self, key: &ObjectRef, binding: &Binding, error: &PushError) -> Duration {
        let failures = binding.failures.after(error.is_refusal());
        self.bindings.update_if_current(key, binding, |now| now.failed(binding, failures));
        // A paused endpoint says less than the cause of the pause, which was reported before.
        let is_reported = binding.failures.in_a_row >= REPORT_AFTER && error.is_pause();
        if is_reported || failures.in_a_row < REPORT_AFTER && error.is_passing() {
            tracing::debug!(object = %key, "{}", in_one_line(error));
        } else {
            // If the record cannot be written now, the next attempt writes it.
            if let Err(error) = self.report(key, binding, None, vec![error.statement()]).await {
                tracing::debug!(object = %key, "{}", in_one_line(&error));
            }
        }
        let pause = failures.pause(error.class());
        binding.deleting.map_or(pause, |_| pause.min(self.deletion_retry))
    }

    /// Writes the record on the object. Returns the binding as it is after the write, or `None` if the object is gone.
    pub(super) async fn write_record(
        &self,
        key: &ObjectRef,
        binding: &Binding,
        record: &Record,
    ) -> Result<Option<Binding>, PushError> {
        let (written, altered) = self.try_record(key, binding, record).await?;
        altered.map_or(Ok(written), |error| Err(error.into()))
    }

    /// Like [`write_record`](Self::write_record), but a change by admission is no error: returns it beside the binding.
    pub(super) async fn try_record(
        &self,
        key: &ObjectRef,
        binding: &Binding,
        record: &Record,
    ) -> Result<(Option<Binding>, Option<LedgerError>), PushError> {
        let bindings = &self.bindings;
        let record = &binding.dated(record, Timestamp::now());
        let mut expected = Expected::new(bindings, key, &binding.uid, record);
        let written = self.ledger.write(key, binding, record).await;
        let altered_version = written.as_ref().err().and_then(LedgerError::altered_version).map(str::to_owned);
        let (version, altered) = match (written, altered_version) {
            (Err(error), Some(version)) => (version, Some(error)),
            (written, _) => match written? {
                Some(version) => (version, None),
                None => return Ok((None, None)),
            },
        };
        expected.is_written = true;
        if key.kind == Kind::Secret {
            bindings.renamed_version(&key.secret(&key.name), binding.version(), &version);
        }
        let note = |binding: &mut Binding| {
            if altered.is_some() {
                return binding.altered(record.clone(), version.clone());
            }
            binding.finalizer |= record.needs_finalizer();
            binding.recorded(record.clone(), version.clone());
        };
        bindings.on_object(key, &binding.uid, note);
        let mut written = binding.clone();
        written.expect(record);
        note(&mut written);
        Ok((Some(written), altered))
    }

    /// Removes the record and the finalizer from the object.
    pub(super) async fn erase(&self, key: &ObjectRef, uid: &str) -> Result<(), PushError> {
        Ok(self.ledger.erase(key, uid).await?)
    }
}

/// A record that is about to be written. A watch may show it before the response arrives. Without a response, and when the run is cancelled
/// before, the binding expects it no more, and a record that a watch shows is another actor's.
struct Expected<'a> {
    bindings: &'a Bindings,
    key: &'a ObjectRef,
    uid: &'a str,
    record: &'a Record,
    is_written: bool,
}

impl<'a> Expected<'a> {
    fn new(bindings: &'a Bindings, key: &'a ObjectRef, uid: &'a str, record: &'a Record) -> Self {
        bindings.on_object(key, uid, |now| now.expect(record));
        Self { bindings, key, uid, record, is_written: false }
    }
}

impl Drop for Expected<'_> {
    fn drop(&mut self) {
        if !self.is_written {
            self.bindings.on_object(self.key, self.uid, |now| now.expect_no_more(self.record));
        }
    }
}
