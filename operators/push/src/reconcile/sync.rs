//! One run that compares and writes all paths of an object.

use std::{collections::BTreeMap, time::Duration};

use jiff::Timestamp;
use konverge_apply::Statement;
use konverge_core::error::{Classify, ErrorClass};
use konverge_runtime::Action;
use tokio::time::Instant;

use super::{
    Pusher, Reported, SyncRun,
    dropped_paths::clear_dropped,
    owner,
    pace::{LOOK_AGAIN, look_again, next_look, pause},
    path_writer::{PathWriter, SyncOutcome},
    secret_reader::{SecretBatches, Targets},
    speculative_read::SpeculativeRead,
};
use crate::{
    bindings::{Binding, FailureCount, Push, Verified},
    content::Target,
    error::{FailedRun, PushError},
    messages,
    object::{Kind, ObjectRef},
    record::{PENDING, Record, Written},
    spec::UpdatePolicy,
};

impl Pusher {
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
        let owner = owner(&self.parts.store, key, &binding.uid).await?;
        let (binding, before) = (binding.clone(), binding.record.clone());
        let record = before.clone().unwrap_or_else(|| binding.new_record(Timestamp::now()));
        let mut outcome = SyncOutcome::new(record, statements, &prepared);
        let mut run = SyncRun { key, push, prepared: &prepared, owner, binding, before, verify };
        let mut batches = self.reader.batches(key, push);
        if !self.write_batches(&mut run, &mut batches, &mut outcome).await? {
            // The object is gone.
            return Ok((Ok(Action::Done), true));
        }
        self.parts.journal.resolve_others(key, &outcome.record);
        if !self.parts.store.leads() {
            return Err(PushError::LeadershipLost);
        }
        self.finish(&run, batches.versions(), outcome).await
    }

    /// Records and writes the paths batch by batch, then clears those that the object no longer names. Returns `false` if the object is gone.
    async fn write_batches(
        &self,
        run: &mut SyncRun<'_>,
        batches: &mut SecretBatches<'_>,
        outcome: &mut SyncOutcome,
    ) -> Result<bool, PushError> {
        let (first, mut read) = tokio::join!(batches.next(), SpeculativeRead::begin(&self.parts.store, run));
        let mut next = first?;
        while let Some(targets) = next {
            let seen = run.binding.version().to_owned();
            if !self.intend(run, &targets, &mut outcome.record).await? {
                return Ok(false);
            }
            if run.key.kind == Kind::Secret {
                batches.rename(&run.key.name, &seen, run.binding.version());
            }
            let writer = PathWriter { parts: &self.parts, claims: &self.claims, run, outcome };
            writer.write_all(targets, &mut read).await?;
            next = batches.next().await?;
            if next.is_some() {
                // The next batch adds to this record.
                run.binding.record = Some(outcome.record.clone());
            }
        }
        clear_dropped(self, run, outcome).await?;
        Ok(true)
    }

    /// Sets finalizer and record before the first write to any path, or has the journal keep the record, unless they name all paths already.
    /// Returns `false` if the object is gone.
    async fn intend(&self, run: &mut SyncRun<'_>, targets: &Targets, record: &mut Record) -> Result<bool, PushError> {
        let binding = &run.binding;
        let now = Timestamp::now();
        record.deletion = run.push.spec.deletion.unwrap_or(self.parts.policy.default_deletion_policy);
        for (target, location) in &run.prepared.locations {
            let written = record.paths.entry(location.to_string()).or_insert_with(|| Written::untried(location));
            match (targets.get(target), run.push.spec.update) {
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
            return Ok(true);
        }
        if record.generation != binding.generation {
            // The state in the record is about another generation.
            record.generation = binding.generation;
            record.say(PENDING, None, now);
        }
        if self.intentions.note(run, record, targets).await? {
            let intend = |now: &mut Binding| now.intend(binding, record.clone(), Vec::new());
            self.parts.bindings.on_object(run.key, &binding.uid, intend);
            return Ok(true);
        }
        let Some(written) = self.records.write(run.key, binding, record).await? else { return Ok(false) };
        run.binding = written;
        Ok(true)
    }

    /// Notes the results of the run on the binding, reports them, and decides about the next run.
    async fn finish(
        &self,
        run: &SyncRun<'_>,
        sources: BTreeMap<String, Option<String>>,
        mut outcome: SyncOutcome,
    ) -> Result<(Reported, bool), PushError> {
        let SyncRun { key, push, binding, verify, .. } = run;
        let bindings = &self.parts.bindings;
        if let Some(conflict) = outcome.refused.take_if(|error| error.is_conflict()) {
            // Not in this run: its Secrets may be older than the content of the other writer.
            bindings.settle(key, binding, |now| now.intend(binding, outcome.record, outcome.statements));
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
        bindings.settle(key, binding, |now| {
            now.failed(binding, failures);
            now.verify(binding, outcome.digests, verified);
            if let Some(changed) = now.pending.changed.take().filter(|_| outcome.wrote) {
                self.parts.metrics.ours.propagation.observe(changed.elapsed().as_secs_f64());
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
