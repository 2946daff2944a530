//! One object from what it asks for to what is in Vault: observe, plan, write, report.

mod intentions;
mod leave;
mod merging;
mod paths;
mod report;
mod sources;

use std::{borrow::Cow, collections::BTreeMap, sync::Arc, time::Duration};

use konverge_apply::events::EventSink;
use konverge_core::{
    backoff::Backoff,
    digest::DigestKey,
    error::{Classify, ErrorClass},
};
use konverge_runtime::{Action, Queue, Reconciler, Request};
use konverge_vault::{Location, VaultError};
use kube::Client;
use tokio::time::Instant;

use crate::{
    ahead::ReadAhead,
    asked::{BinaryPolicy, DeletionPolicy, ExistingPolicy, UpdatePolicy},
    bindings::{Asking, Binding, Bindings, Push, Verified},
    boundaries::Rule,
    desired::{Target, Wanted, desired},
    journal::{Journal, JournalError},
    ledger::{Ledger, LedgerError},
    messages::Message,
    metrics::Metrics,
    object::{Kind, ObjectRef, SecretRef},
    orphans::{Orphans, OrphansError},
    record::{PENDING, Record, Written},
    store::{ClearError, Store},
    watch::WAITED,
};
use intentions::NOTE_LATER;
use paths::{Done, Prepared, Run};
pub(crate) use paths::{cluster_prefix, vault_deletion};

/// After a refusal that nothing here can end, such as a path that belongs to somebody in another cluster.
const LOOK_AGAIN: Duration = Duration::from_mins(5);

/// The pauses while Vault or the API server does not do its part. Whoever waits is woken when Vault serves again.
const BACKOFF: Backoff = Backoff { base: Duration::from_secs(1), factor: 2.0, cap: Duration::from_mins(1) };

/// What an outage is told about on the objects only after it has lasted so many attempts: by then it is no passing one.
const TELL_AFTER: u32 = 2;

/// What the platform decides.
#[derive(Debug, Clone)]
pub struct Policy {
    /// The prefix of all paths is `clusters/<this>/`, if there is one.
    pub cluster: Option<String>,
    /// Which namespaces may write where; everywhere if there are none.
    pub rules: Vec<Rule>,
    /// How paths are cleared unless the object says.
    pub deletion: DeletionPolicy,
    /// What becomes of what was there before, unless the object says.
    pub existing: ExistingPolicy,
    /// What becomes of values that are no text, unless the object says.
    pub binary: BinaryPolicy,
    /// How long an object that is being deleted waits for Vault.
    pub deadline: Duration,
    /// The same in a namespace that is being deleted.
    pub namespace_deadline: Duration,
}

/// Brings one object in step.
pub struct Pusher {
    /// Reads Secrets and namespaces.
    pub client: Client,
    /// Reads Secrets where many are wanted.
    pub ahead: ReadAhead,
    /// Vault.
    pub store: Store,
    /// Writes on objects.
    pub ledger: Ledger,
    /// Stands in for records where many are written for the first time.
    pub journal: Journal,
    /// Remembers what had to be left behind.
    pub orphans: Orphans,
    /// Where events go.
    pub events: EventSink,
    /// What is known.
    pub bindings: Arc<Bindings>,
    /// Wakes others.
    pub queue: Queue<ObjectRef>,
    /// What is counted.
    pub metrics: Metrics,
    /// This process's own.
    pub digest_key: DigestKey,
    /// What the platform decides.
    pub policy: Policy,
}

/// A run that ended without doing what it should, and that said so.
#[derive(Debug, thiserror::Error)]
pub enum PushError {
    /// A Secret or a namespace could not be read.
    #[error("cannot read {what}: {source}")]
    Read {
        /// What.
        what: String,
        /// What the client said.
        source: Box<kube::Error>,
    },
    /// The object could not be written.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// What is left behind could not be remembered.
    #[error(transparent)]
    Orphans(#[from] OrphansError),
    /// Nothing more was written, because another replica may lead by now.
    #[error("nothing more is written: this process leads no more")]
    Deposed,
    /// What is about to be written could not be noted.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// Vault did not do its part.
    #[error(transparent)]
    Vault(#[from] VaultError),
}

impl From<ClearError> for PushError {
    fn from(error: ClearError) -> Self {
        match error {
            ClearError::Deposed => Self::Deposed,
            ClearError::Vault(error) => Self::Vault(error),
        }
    }
}

impl Classify for PushError {
    fn class(&self) -> ErrorClass {
        match self {
            Self::Read { .. } | Self::Orphans(_) | Self::Journal(_) | Self::Deposed => ErrorClass::Transient,
            Self::Ledger(error) => error.class(),
            Self::Vault(error) => error.class(),
        }
    }

    fn reason(&self) -> &'static str {
        match self {
            Self::Read { .. } => "ObjectUnreadable",
            Self::Orphans(_) => "OrphansNotRecorded",
            Self::Journal(_) => "IntentionNotRecorded",
            Self::Deposed => "NotLeader",
            Self::Ledger(error) => error.reason(),
            Self::Vault(error) => error.reason(),
        }
    }
}

impl PushError {
    /// Whether it is of the kind that mostly ends by itself.
    fn is_passing(&self) -> bool {
        self.class() == ErrorClass::Transient || matches!(self, Self::Vault(error) if error.is_outage())
    }

    /// Whether nothing was asked of Vault, because it did not serve a moment ago.
    fn is_pause(&self) -> bool {
        matches!(self, Self::Vault(VaultError::Paused { .. }))
    }
}

impl Reconciler for Pusher {
    type Key = ObjectRef;
    type Error = PushError;

    async fn reconcile(&self, request: Request<ObjectRef>) -> Result<Action, PushError> {
        let key = &request.key;
        self.recall().await?;
        let intentions = self.journal.about(key);
        let Some(binding) = self.bindings.get(key) else {
            // It asks for nothing any more: whoever queued it did so before the watch showed that.
            return if intentions.is_empty() { Ok(Action::Done) } else { self.abandon(key, &intentions).await };
        };
        let binding = self.take_over(key, binding, &intentions);
        let action = self.bring(key, &binding).await;
        if !self.journal.speaks_of(key) {
            return Ok(action);
        }
        if self.bindings.get(key).is_some_and(|now| now.bears_its_record()) {
            self.journal.resolve(key);
            return Ok(action);
        }
        // What the journal says of it is not forgotten, whoever takes the object out of the queue.
        Ok(if action == Action::Done { Action::After(LOOK_AGAIN) } else { action })
    }
}

impl Pusher {
    /// Does what the binding asks for. An error is told on the object, and says when to try again.
    async fn bring(&self, key: &ObjectRef, binding: &Binding) -> Action {
        let outcome = match &binding.asking {
            _ if binding.deleting.is_some() => self.leave(key, binding).await,
            Asking::Nothing => self.leave(key, binding).await,
            Asking::Invalid(invalid) => {
                self.metrics.parse_failed(key);
                self.conclude(key, binding, None, vec![Message::invalid(invalid)]).await.map(|()| Action::Done)
            }
            Asking::Push(push) => self.push(key, binding, push).await,
        };
        match outcome {
            Ok(action) => action,
            Err(error) => Action::After(self.failed(key, binding, &error).await),
        }
    }

    /// Brings in step what asks for a push.
    async fn push(&self, key: &ObjectRef, binding: &Binding, push: &Push) -> Result<Action, PushError> {
        if push.asked.paused {
            self.conclude(key, binding, None, vec![Message::paused(key.kind)]).await?;
            return Ok(Action::Done);
        }
        let due = is_due(push, binding);
        let current = binding.verified.as_ref().filter(|verified| {
            binding.failures == 0
                && verified.sync_now == push.asked.sync_now
                && binding.record.as_ref().is_some_and(|record| record.generation == binding.generation)
                && self.bindings.are_current(&key.namespace, &verified.sources)
                && self.bindings.uses_just(key, &verified.sources)
        });
        if current.is_some_and(|verified| self.can_wait(key, binding, verified)) {
            return Ok(Action::After(NOTE_LATER));
        }
        if let Some(verified) = current
            && (!due || self.is_still_there(key, binding, push).await?)
        {
            if let Some(record) = binding.unrecorded() {
                self.note(key, binding, record).await?;
                self.say(key, binding, binding.unsaid.clone());
            }
            return Ok(next_look(push, verified.looked));
        }
        let started = Instant::now();
        let outcome = match self.pinned(key, push).await {
            Ok(push) => self.bring_in_step(key, binding, &push, due).await,
            Err(error) => Err(error),
        };
        self.metrics.attempted(key, outcome.is_ok(), started.elapsed());
        outcome
    }

    /// The push of the Secrets that there are, where it asks for those that fit a selector. Its watch tells when these are others.
    async fn pinned<'a>(&self, key: &ObjectRef, push: &'a Push) -> Result<Cow<'a, Push>, PushError> {
        let Wanted::Composed(composition) = &push.wanted else { return Ok(Cow::Borrowed(push)) };
        let Some(selector) = composition.selector() else { return Ok(Cow::Borrowed(push)) };
        self.bindings.ask_selected(key);
        let names = sources::fitting(&self.client, &key.namespace, selector).await?;
        self.bindings.selected(key, names.clone());
        Ok(Cow::Owned(Push { asked: push.asked.clone(), wanted: Wanted::Composed(composition.of(names)) }))
    }

    async fn bring_in_step(
        &self,
        key: &ObjectRef,
        binding: &Binding,
        push: &Push,
        look: bool,
    ) -> Result<Action, PushError> {
        let mut messages: Vec<Message> = push.asked.notes.iter().map(|note| Message::adjusted(note)).collect();
        let Some(prepared) = self.prepare(key, push, &mut messages).await? else {
            self.conclude(key, binding, None, messages).await?;
            return Ok(Action::After(LOOK_AGAIN));
        };
        let mut sources =
            sources::read(&self.client, &self.ahead, &self.bindings, &key.namespace, &push.wanted.names()).await?;
        self.note_read(key, &sources);
        let targets = desired(&push.wanted, &sources.data, push.asked.binary.unwrap_or(self.policy.binary));
        drop(std::mem::take(&mut sources.data));
        let before = binding.record.clone();
        let as_read = &binding.version;
        let Some((record, binding)) = self.intend(key, binding, push, &prepared, &targets).await? else {
            return Ok(Action::Done);
        };
        if key.kind == Kind::Secret {
            sources.rename(&key.name, as_read, &binding.version);
        }
        let owner = self.owner(key, &binding.uid).await?;
        let run = Run { key, binding: &binding, push, prepared: &prepared, owner, before: before.as_ref(), look };
        let done = self.write_all(&run, targets, Done::new(record, messages)).await?;
        self.journal.resolve_others(key, &done.record);
        if !self.store.leads() {
            return Err(PushError::Deposed);
        }
        let verified = done.complete.then(|| Verified {
            sources: sources.versions,
            sync_now: push.asked.sync_now.clone(),
            looked: Instant::now(),
        });
        let looked = verified.as_ref().map(|verified| verified.looked);
        let begun = &binding;
        let failures = if done.refused.is_some() { binding.failures.saturating_add(1) } else { 0 };
        self.bindings.settle(key, &binding, |now| {
            now.failures = failures;
            now.verify(begun, done.digests, verified);
            if let Some(changed) = now.changed.take().filter(|_| done.wrote) {
                self.metrics.propagated(changed.elapsed());
            }
        });
        if looked.is_some() {
            self.conclude_in_step(key, &binding, done.record, done.messages);
        } else {
            self.conclude(key, &binding, Some(done.record), done.messages).await?;
        }
        Ok(match (done.refused, looked) {
            (Some(error), _) => Action::After(match error.class() {
                ErrorClass::Permanent => look_again(push),
                class => pause(class, failures),
            }),
            (None, Some(looked)) => next_look(push, looked),
            (None, None) => Action::After(look_again(push)),
        })
    }

    /// Sets finalizer and record before the first write to any path, if they do not say all of it yet, or has the journal say it. Nothing
    /// if the object is gone.
    async fn intend(
        &self,
        key: &ObjectRef,
        binding: &Binding,
        push: &Push,
        prepared: &Prepared,
        targets: &Targets,
    ) -> Result<Option<(Record, Binding)>, PushError> {
        let now = jiff::Timestamp::now();
        let mut record = binding.record.clone().unwrap_or_else(|| binding.new_record(now));
        record.deletion = push.asked.deletion.unwrap_or(self.policy.deletion);
        for (target, location) in &prepared.locations {
            let written = record.paths.entry(location.to_string()).or_insert_with(|| Written::intended(location));
            if let (UpdatePolicy::Merge, Some(Target::Content(made))) = (push.asked.update, targets.get(target)) {
                written.intend_keys(made.content.keys());
            }
        }
        let is_recorded = binding.record.as_ref().is_some_and(|before| {
            before.deletion == record.deletion && before.paths == record.paths && binding.bears(before)
        });
        if is_recorded && (binding.finalizer || record.paths.is_empty()) {
            return Ok(Some((record, binding.clone())));
        }
        if record.generation != binding.generation {
            // What it says was said about something else.
            record.generation = binding.generation;
            record.say(PENDING, None, now);
        }
        if self.note_in_journal(key, binding, &record, push, prepared, targets).await? {
            self.bindings.on_object(key, &binding.uid, |now| now.intend(binding, record.clone(), Vec::new()));
            return Ok(Some((record, binding.clone())));
        }
        let Some(binding) = self.note(key, binding, &record).await? else { return Ok(None) };
        Ok(Some((record, binding)))
    }

    /// Writes the record on the object. The binding as it is then; nothing if the object is gone.
    async fn note(&self, key: &ObjectRef, binding: &Binding, record: &Record) -> Result<Option<Binding>, PushError> {
        let mut expected = Expected::new(&self.bindings, key, &binding.uid, record);
        let Some(version) = self.ledger.write(key, binding, record).await? else { return Ok(None) };
        expected.is_written = true;
        if key.kind == Kind::Secret {
            let secret = SecretRef { namespace: key.namespace.clone(), name: key.name.clone() };
            self.bindings.renamed_version(&secret, &binding.version, &version);
        }
        let note = |binding: &mut Binding| {
            binding.finalizer |= record.needs_finalizer();
            binding.recorded(record.clone(), version.clone());
        };
        self.bindings.on_object(key, &binding.uid, note);
        let mut written = binding.clone();
        written.expect(record);
        note(&mut written);
        Ok(Some(written))
    }

    /// Whether something may be written now: the object may ask for something else by now, and with that the permission to write has
    /// gone, or another replica may have written since.
    fn may_write(&self, key: &ObjectRef, binding: &Binding) -> bool {
        self.store.leads() && self.bindings.is_current(key, binding)
    }

    /// Wakes those who waited for a location.
    fn wake(&self, waiting: Vec<ObjectRef>) {
        for key in waiting {
            self.queue.add(key, konverge_runtime::Priority::Normal, WAITED);
        }
    }
}

/// A record that is about to be written: a watch may show it before the answer comes. If none comes, or the run is broken off before, what a
/// watch shows is somebody else's.
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

/// How long to wait after a failure.
fn pause(class: ErrorClass, failures: u32) -> Duration {
    match class {
        ErrorClass::Transient => BACKOFF.delay(failures, rand::random()),
        ErrorClass::Permanent => LOOK_AGAIN,
        // Not all at once.
        ErrorClass::After(pause) => pause + pause.mul_f64(rand::random::<f64>() / 4.0),
    }
}

/// Whether it is time to look into Vault although nothing changed here.
fn is_due(push: &Push, binding: &Binding) -> bool {
    let Some(verified) = &binding.verified else { return true };
    push.asked.always || push.asked.every.is_some_and(|every| verified.looked.elapsed() >= every)
}

/// When to look again at what is in step.
fn next_look(push: &Push, looked: Instant) -> Action {
    match push.asked.every {
        // A little late, so that it is due when it comes.
        Some(every) => Action::After(every.saturating_sub(looked.elapsed()) + Duration::from_millis(10)),
        None => Action::Done,
    }
}

/// When to look again at what is not in step and cannot be brought there: its other paths are looked at as often as it asks.
fn look_again(push: &Push) -> Duration {
    push.asked.every.map_or(LOOK_AGAIN, |every| every.min(LOOK_AGAIN))
}

/// The locations of an object's paths, by what they are beneath its own path.
pub(crate) type Locations = BTreeMap<String, Location>;

/// What should be there, by the same.
pub(crate) type Targets = BTreeMap<String, Target>;
