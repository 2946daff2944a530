//! One run that compares and writes all paths of an object.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use jiff::Timestamp;
use konverge_apply::Statement;
use konverge_core::error::{Classify, ErrorClass};
use konverge_runtime::Action;
use tokio::time::Instant;

use super::{
    Parts, Reported,
    dropped_paths::DroppedPaths,
    intentions::Intentions,
    owner,
    pace::{LOOK_AGAIN, look_again, next_look, pause},
    path_claims::{PathClaims, Prepared},
    path_writer::{PathWriter, SyncOutcome, SyncRun},
    record_writer::RecordWriter,
    reporter::Reporter,
    secret_reader::{SecretBatches, SecretReader, Targets},
    speculative_read::SpeculativeRead,
};
use crate::{
    bindings::{Binding, Bindings, FailureCount, Push, Verified},
    content::Target,
    error::{FailedRun, PushError},
    messages,
    metrics::Metrics,
    object::{Kind, ObjectRef},
    record::{PENDING, Record, Written},
    spec::{DeletionPolicy, UpdatePolicy},
    store::Store,
};

/// Syncs objects.
pub(super) struct ObjectSync {
    store: Store,
    bindings: Arc<Bindings>,
    metrics: Metrics,
    reader: SecretReader,
    claims: PathClaims,
    intentions: Intentions,
    records: RecordWriter,
    writer: PathWriter,
    dropped: DroppedPaths,
    reporter: Reporter,
    /// How paths are deleted unless the object says.
    deletion: DeletionPolicy,
}

/// The task of one run.
#[derive(Clone, Copy)]
struct Task<'a> {
    key: &'a ObjectRef,
    push: &'a Push,
    prepared: &'a Prepared,
    /// Whether the run reads Vault also where nothing changed in the cluster.
    verify: bool,
}

impl ObjectSync {
    pub(super) fn new(
        parts: &Parts,
        reader: SecretReader,
        claims: PathClaims,
        intentions: Intentions,
        records: RecordWriter,
        reporter: Reporter,
    ) -> Self {
        Self {
            store: parts.store.clone(),
            bindings: Arc::clone(&parts.bindings),
            metrics: parts.metrics.clone(),
            writer: PathWriter::new(parts, claims.clone()),
            dropped: DroppedPaths::new(parts, claims.clone(), reader.clone()),
            reader,
            claims,
            intentions,
            records,
            reporter,
            deletion: parts.policy.deletion,
        }
    }

    /// Syncs all paths of an object. Returns how the run ended, and whether all paths are in sync.
    pub(super) async fn sync(
        &self,
        key: &ObjectRef,
        binding: &Binding,
        push: &Push,
        verify: bool,
    ) -> Result<(Reported, bool), PushError> {
        let mut statements: Vec<Statement> = push.spec.notes.iter().map(|note| messages::adjusted(note)).collect();
        let Some(prepared) = self.claims.prepare(key, push, &mut statements).await? else {
            self.reporter.report(key, binding, None, statements).await?;
            return Ok((Ok(Action::After(LOOK_AGAIN)), false));
        };
        let task = Task { key, push, prepared: &prepared, verify };
        let mut batches = self.reader.batches(key, push);
        let Some((binding, outcome)) = self.write_batches(task, binding, &mut batches, statements).await? else {
            // The object is gone.
            return Ok((Ok(Action::Done), true));
        };
        self.intentions.resolve_others(key, &outcome.record);
        if !self.store.leads() {
            return Err(PushError::LeadershipLost);
        }
        self.finish(task, &binding, batches.versions(), outcome).await
    }

    /// Records and writes the paths batch by batch. Returns the binding with the last record, or `None` if the object is gone.
    async fn write_batches(
        &self,
        task: Task<'_>,
        binding: &Binding,
        batches: &mut SecretBatches<'_>,
        statements: Vec<Statement>,
    ) -> Result<Option<(Binding, SyncOutcome)>, PushError> {
        let Task { key, push, prepared, verify } = task;
        let read = SpeculativeRead::begin(&self.store, binding, push, prepared, verify);
        let (targets, mut read) = tokio::join!(batches.next(), read);
        let (mut targets, mut binding, before) = (targets?, binding.clone(), binding.record.clone());
        let record = before.clone().unwrap_or_else(|| binding.new_record(Timestamp::now()));
        let mut outcome = SyncOutcome::new(record, statements, prepared);
        loop {
            let Some((record, noted)) = self.intend(task, &binding, &targets).await? else { return Ok(None) };
            if key.kind == Kind::Secret {
                batches.rename(&key.name, binding.version(), noted.version());
            }
            (outcome.record, binding) = (record, noted);
            let owner = owner(&self.store, key, &binding.uid).await?;
            let run = SyncRun { key, binding: &binding, push, prepared, owner, before: before.as_ref(), verify };
            self.writer.write_all(&run, targets, &mut read, &mut outcome).await?;
            if batches.is_over() {
                self.dropped.clear(&run, &mut outcome).await?;
                return Ok(Some((binding, outcome)));
            }
            binding.record = Some(outcome.record.clone());
            targets = batches.next().await?;
        }
    }

    /// Sets finalizer and record before the first write to any path, or has the journal keep the record, unless they name all paths already.
    /// Returns `None` if the object is gone.
    async fn intend(
        &self,
        task: Task<'_>,
        binding: &Binding,
        targets: &Targets,
    ) -> Result<Option<(Record, Binding)>, PushError> {
        let Task { key, push, prepared, .. } = task;
        let now = Timestamp::now();
        let mut record = binding.record.clone().unwrap_or_else(|| binding.new_record(now));
        record.deletion = push.spec.deletion.unwrap_or(self.deletion);
        for (target, location) in &prepared.locations {
            let written = record.paths.entry(location.to_string()).or_insert_with(|| Written::untried(location));
            match (targets.get(target), push.spec.update) {
                (Some(Target::Content(made)), UpdatePolicy::Merge) => written.intend_keys(made.content.keys()),
                (Some(Target::Content(_)), _) => written.begin(now),
                (Some(Target::Keep(_)) | None, _) => {}
            }
        }
        let known = binding.record.as_ref();
        let known = known.filter(|before| before.deletion == record.deletion && before.paths == record.paths);
        let is_recorded = known.is_some_and(|before| binding.bears(before));
        let is_held = binding.finalizer || record.paths.is_empty();
        // While another actor keeps removing the record, the operator does not write it for each change.
        if is_recorded && is_held || known.is_some() && binding.left_until().is_some() {
            return Ok(Some((record, binding.clone())));
        }
        if record.generation != binding.generation {
            // The state in the record is about another generation.
            record.generation = binding.generation;
            record.say(PENDING, None, now);
        }
        if self.intentions.note(key, binding, &record, push, prepared, targets).await? {
            self.bindings.on_object(key, &binding.uid, |now| now.intend(binding, record.clone(), Vec::new()));
            return Ok(Some((record, binding.clone())));
        }
        let Some(binding) = self.records.write(key, binding, &record).await? else { return Ok(None) };
        Ok(Some((record, binding)))
    }

    /// Notes the results of the run on the binding, reports them, and decides about the next run.
    async fn finish(
        &self,
        task: Task<'_>,
        binding: &Binding,
        sources: BTreeMap<String, Option<String>>,
        mut outcome: SyncOutcome,
    ) -> Result<(Reported, bool), PushError> {
        let Task { key, push, verify, .. } = task;
        if let Some(conflict) = outcome.refused.take_if(|error| error.is_conflict()) {
            // Not in this run: its Secrets may be older than the content of the other writer.
            self.bindings.settle(key, binding, |now| now.intend(binding, outcome.record, outcome.statements));
            return Err(conflict);
        }
        let looked_before = binding.verified.as_ref().map(|verified| verified.looked);
        let verified = outcome.complete.then(|| Verified {
            sources,
            marked: outcome.marked,
            sync_now: push.spec.sync_now.clone(),
            // If nothing changed, the next drift check comes when the interval is over.
            looked: looked_before.filter(|_| !verify).unwrap_or_else(Instant::now),
            seen: BTreeMap::new(),
        });
        let next = verified.as_ref().map(|verified| next_look(key, push, verified));
        let failures = match &outcome.refused {
            Some(error) => binding.failures.after(error.is_refusal()),
            None => FailureCount::default(),
        };
        self.bindings.settle(key, binding, |now| {
            now.failed(binding, failures);
            now.verify(binding, outcome.digests, verified);
            if let Some(changed) = now.pending.changed.take().filter(|_| outcome.wrote) {
                self.metrics.propagated(changed.elapsed());
            }
        });
        let is_right = !outcome.statements.iter().any(Statement::is_problem);
        if next.is_some() {
            self.reporter.report_later(key, binding, outcome.record, outcome.statements);
        } else {
            self.reporter.report(key, binding, Some(outcome.record), outcome.statements).await?;
        }
        let reported = match (outcome.refused, next) {
            (Some(error), _) => {
                let pause = pause_after_refusal(&error, push, failures);
                Err(FailedRun::new(error, pause))
            }
            (None, Some(next)) => Ok(next),
            (None, None) => Ok(Action::After(outcome.soon.unwrap_or_else(|| look_again(push)))),
        };
        Ok((reported, is_right))
    }
}

/// The pause after a run in which one of the paths was refused. The object's interval limits it, because its other paths are compared in it.
fn pause_after_refusal(error: &PushError, push: &Push, failures: FailureCount) -> Duration {
    match error.class() {
        ErrorClass::Permanent => look_again(push),
        class => pause(class, failures).min(push.spec.every.unwrap_or(Duration::MAX)),
    }
}
