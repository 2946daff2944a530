//! One object from its spec to Vault: observe, plan, write, report.

mod drift_check;
mod dropped_paths;
mod finalizer;
mod intentions;
mod pace;
mod path_claims;
mod path_writer;
mod record_writer;
mod reporter;
mod secret_reader;
mod speculative_read;
mod sync;

use std::{sync::Arc, time::Duration};

use konverge_apply::events::EventSink;
use konverge_core::{digest::DigestKey, error::in_one_line};
use konverge_runtime::{Action, Queue, Reconciler, Request, controller::Dropped};
use konverge_vault::Owner;
use kube::Client;
use tokio::time::Instant;

use crate::{
    bindings::{Binding, Bindings, ParsedSpec, Push, Verified},
    config::PushOptions,
    error::{FailedRun, PushError},
    journal::Journal,
    messages,
    metrics::Metrics,
    object::ObjectRef,
    orphans::Orphans,
    prefetch::Prefetch,
    record::Record,
    store::Store,
};
use drift_check::passes_drift_check;
use finalizer::Finalizer;
use intentions::{Intentions, NOTE_LATER};
pub(crate) use pace::run_limit;
use pace::{LOOK_AGAIN, OUTDATED_AGAIN, is_due, next_look};
use path_claims::{PathClaims, Prepared};
use record_writer::RecordWriter;
use reporter::Reporter;
use secret_reader::{FEWER_FOR, SecretReader};

/// The parts of the process that a [`Pusher`] works with. Its components share them.
pub struct Parts {
    /// Reads and writes in the cluster.
    pub client: Client,
    /// Prefetches Secrets.
    pub prefetch: Prefetch,
    /// Reads and writes in Vault.
    pub store: Store,
    /// Takes the place of records where many paths are written for the first time.
    pub journal: Journal,
    /// Remembers paths that are left behind.
    pub orphans: Orphans,
    /// Publishes events.
    pub events: EventSink,
    /// Knows all objects with a spec.
    pub bindings: Arc<Bindings>,
    /// Wakes other objects.
    pub queue: Queue<ObjectRef>,
    /// Counts.
    pub metrics: Metrics,
    /// The key of this process for digests of content.
    pub digest_key: DigestKey,
    /// The decisions of the platform.
    pub policy: PushOptions,
}

/// Reconciles one object.
pub struct Pusher {
    parts: Arc<Parts>,
    reader: SecretReader,
    claims: PathClaims,
    records: RecordWriter,
    reporter: Reporter,
    intentions: Intentions,
}

/// One run that compares and writes all paths of an object.
struct SyncRun<'a> {
    key: &'a ObjectRef,
    push: &'a Push,
    prepared: &'a Prepared,
    /// The owner in the marks of this run.
    owner: Owner,
    /// The binding as the run found it, or as the last write of the record left it; between batches with the record of the run.
    binding: Binding,
    /// The record before the run.
    before: Option<Record>,
    /// Whether the run reads Vault also where nothing changed in the cluster.
    verify: bool,
}

/// The end of a run that is reported on the object.
type Reported = Result<Action, FailedRun>;

impl Reconciler for Pusher {
    type Key = ObjectRef;
    type Error = FailedRun;

    async fn reconcile(&self, request: Request<ObjectRef>) -> Result<Action, FailedRun> {
        let key = &request.key;
        self.intentions.recall().await?;
        let intentions = self.parts.journal.about(key);
        let Some(binding) = self.parts.bindings.get(key) else {
            // The object requests nothing any more. The queue had it before the watch showed that.
            let is_done = intentions.is_empty();
            return if is_done { Ok(Action::Done) } else { Ok(self.intentions.abandon(key, &intentions).await?) };
        };
        let binding = self.intentions.take_over(key, binding, &intentions);
        let outcome = self.reconcile_binding(key, &binding).await;
        let outcome = match self.reporter.contest(key) {
            Some(rest) => within(rest, outcome),
            None => outcome,
        };
        if self.intentions.are_over(key) {
            return outcome;
        }
        // The journal is read only once. So the object stays in the queue until its record has taken the journal's place.
        outcome.map(|action| if action == Action::Done { Action::After(LOOK_AGAIN) } else { action })
    }

    async fn dropped(&self, key: &ObjectRef, why: &Dropped) {
        let Some(binding) = self.parts.bindings.get(key) else { return };
        let why = match why {
            Dropped::TimedOut(limit) => format!("it took longer than {} s", limit.as_secs()),
            Dropped::Panicked(cause) => format!("that is a defect of this program, please report it: {cause}"),
        };
        self.reporter.report_failure(key, &binding, &PushError::GivenUp(why)).await;
    }
}

impl Pusher {
    /// Makes a reconciler of these parts.
    pub fn new(parts: Parts) -> Self {
        let parts = Arc::new(parts);
        let records = RecordWriter::new(&parts);
        Self {
            reader: SecretReader::new(&parts),
            claims: PathClaims::new(&parts),
            reporter: Reporter::new(&parts, &records),
            intentions: Intentions::new(&parts),
            records,
            parts,
        }
    }

    /// Reconciles one binding. Reports an error on the object and returns it with the pause before the next attempt.
    async fn reconcile_binding(&self, key: &ObjectRef, binding: &Binding) -> Reported {
        let finalizer = Finalizer { pusher: self, key, binding };
        let outcome = match &binding.spec {
            _ if binding.deleting.is_some() => finalizer.finalize().await.map(Ok),
            ParsedSpec::Nothing(_) => finalizer.finalize().await.map(Ok),
            ParsedSpec::Invalid(invalid, _) => {
                self.parts.metrics.parse_failed(key, invalid);
                self.parts.metrics.attempted(key, false, Duration::ZERO);
                let statements = vec![messages::invalid(invalid)];
                self.reporter.report(key, binding, None, statements).await.map(|()| Ok(Action::Done))
            }
            ParsedSpec::Push(push) => self.reconcile_push(key, binding, push).await,
        };
        match outcome {
            Ok(reported) => reported,
            // No failure: the next run decides with what the other writer has written.
            Err(error) if error.is_outdated() => {
                tracing::debug!(object = %key, "{}", in_one_line(&error));
                Ok(Action::AfterAtSamePriority(OUTDATED_AGAIN))
            }
            Err(error) => {
                let pause = self.reporter.report_failure(key, binding, &error).await;
                Err(FailedRun::new(error, pause))
            }
        }
    }

    async fn reconcile_push(&self, key: &ObjectRef, binding: &Binding, push: &Push) -> Result<Reported, PushError> {
        if push.spec.paused {
            self.reporter.report(key, binding, None, vec![messages::paused(key.kind)]).await?;
            return Ok(Ok(Action::Done));
        }
        let is_due = is_due(key, push, binding);
        let current = self.current(key, binding, push);
        if current.is_some_and(|verified| self.intentions.can_wait(key, binding, verified)) {
            return Ok(Ok(Action::After(NOTE_LATER)));
        }
        if let Some(verified) = current
            && (!is_due || verified.marked && passes_drift_check(&self.parts, key, binding, push).await?)
        {
            if let Some(record) = binding.unrecorded().filter(|_| binding.left_until().is_none()) {
                self.records.write(key, binding, record).await?;
                self.reporter.say(key, binding, None, binding.announced.unsaid.clone());
            }
            return Ok(Ok(next_look(key, push, verified)));
        }
        let started = Instant::now();
        let outcome = match self.reader.resolve(key, push).await {
            Ok(push) if self.reader.is_doubtful(key, binding, &push) => return Ok(Ok(Action::After(FEWER_FOR))),
            Ok(push) => self.sync(key, binding, &push, is_due).await,
            Err(error) => Err(error),
        };
        let is_right = outcome.as_ref().is_ok_and(|(_, is_right)| *is_right);
        self.parts.metrics.attempted(key, is_right, started.elapsed());
        outcome.map(|(reported, _)| reported)
    }

    /// The last verification, if it is still about this spec and these Secrets.
    fn current<'a>(&self, key: &ObjectRef, binding: &'a Binding, push: &Push) -> Option<&'a Verified> {
        binding.verified.as_ref().filter(|verified| {
            binding.failures.in_a_row == 0
                && verified.sync_now == push.spec.sync_now
                && binding.record.as_ref().is_some_and(|record| record.generation == binding.generation)
                && self.parts.bindings.are_current(&key.namespace, &verified.sources)
                && self.parts.bindings.uses_just(key, &verified.sources)
        })
    }
}

/// The same end of a run, with the next run no later than this.
fn within(longest: Duration, outcome: Reported) -> Reported {
    match outcome {
        Ok(Action::After(pause) | Action::AfterAtSamePriority(pause)) => Ok(Action::After(pause.min(longest))),
        Ok(_) => Ok(Action::After(longest)),
        Err(failed) => Err(failed.within(longest)),
    }
}

/// The owner that the operator notes in the marks of an object's paths.
async fn owner(store: &Store, key: &ObjectRef, uid: &str) -> Result<Owner, PushError> {
    store.owner(key, uid).await.map_err(PushError::unidentified)
}
