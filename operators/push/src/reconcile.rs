//! One object from what it asks for to what is in Vault: observe, plan, write, report.

mod error;
mod glance;
mod intentions;
mod leave;
mod looking;
mod merging;
mod pace;
mod paths;
mod report;
mod sources;

use std::{borrow::Cow, collections::BTreeMap, sync::Arc, time::Duration};

use konverge_apply::events::EventSink;
use konverge_core::{
    digest::DigestKey,
    error::{Classify, ErrorClass},
};
use konverge_runtime::{Action, Queue, Reconciler, Request, controller::Dropped};
use konverge_vault::{Location, boundaries::Rule};
use kube::Client;
use tokio::time::Instant;

use crate::{
    ahead::ReadAhead,
    asked::{BinaryPolicy, DeletionPolicy, ExistingPolicy, UpdatePolicy},
    bindings::{Asking, Binding, Bindings, Push, Verified},
    desired::{Target, Wanted},
    journal::Journal,
    ledger::Ledger,
    messages::Message,
    metrics::Metrics,
    object::{Kind, ObjectRef, SecretRef},
    orphans::Orphans,
    record::{PENDING, Record, Written},
    store::Store,
    watch::WAITED,
};
pub use error::{Doing, FailedRun, PushError};
use intentions::NOTE_LATER;
pub(crate) use pace::run_limit;
use pace::{LOOK_AGAIN, is_due, look_again, next_look, pause};
use paths::{Done, Prepared, Run};
pub(crate) use paths::{cluster_prefix, vault_deletion};
use sources::Portions;
pub use sources::Room;

/// That fewer Secrets fit a selector is believed of a second list, which is asked for so much later: one answer may be wrong, and would clear what
/// was written.
const FEWER_FOR: Duration = Duration::from_secs(5);

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
    /// Keeps within bounds how much is held at once.
    pub room: Room,
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

/// How a run ended that has told the object about it.
type Reported = Result<Action, FailedRun>;

/// The same end, with the next run no later than this.
fn within(longest: Duration, outcome: Reported) -> Reported {
    match outcome {
        Ok(Action::After(pause) | Action::AfterAtSamePriority(pause)) => Ok(Action::After(pause.min(longest))),
        Ok(_) => Ok(Action::After(longest)),
        Err(failed) => Err(failed.within(longest)),
    }
}

impl Reconciler for Pusher {
    type Key = ObjectRef;
    type Error = FailedRun;

    async fn reconcile(&self, request: Request<ObjectRef>) -> Result<Action, FailedRun> {
        let key = &request.key;
        self.recall().await?;
        let intentions = self.journal.about(key);
        let Some(binding) = self.bindings.get(key) else {
            // It asks for nothing any more: whoever queued it did so before the watch showed that.
            return if intentions.is_empty() { Ok(Action::Done) } else { Ok(self.abandon(key, &intentions).await?) };
        };
        let binding = self.take_over(key, binding, &intentions);
        let outcome = self.bring(key, &binding).await;
        let outcome = match self.contest(key) {
            Some(rest) => within(rest, outcome),
            None => outcome,
        };
        if !self.journal.speaks_of(key) {
            return outcome;
        }
        if self.bindings.get(key).is_some_and(|now| now.bears_its_record()) {
            self.journal.resolve(key);
            return outcome;
        }
        // What the journal says of it is not forgotten, whoever takes the object out of the queue.
        outcome.map(|action| if action == Action::Done { Action::After(LOOK_AGAIN) } else { action })
    }

    async fn dropped(&self, key: &ObjectRef, why: &Dropped) {
        let Some(binding) = self.bindings.get(key) else { return };
        let why = match why {
            Dropped::TimedOut(limit) => format!("it took longer than {} s", limit.as_secs()),
            Dropped::Panicked(cause) => format!("that is a defect of this program, please report it: {cause}"),
        };
        self.failed(key, &binding, &PushError::GivenUp(why)).await;
    }
}

impl Pusher {
    /// Reconciles one binding. Reports an error on the object and returns it with the pause before the next attempt.
    async fn bring(&self, key: &ObjectRef, binding: &Binding) -> Result<Action, FailedRun> {
        let outcome = match &binding.asking {
            _ if binding.deleting.is_some() => self.leave(key, binding).await.map(Ok),
            Asking::Nothing(_) => self.leave(key, binding).await.map(Ok),
            Asking::Invalid(invalid, _) => {
                self.metrics.parse_failed(key, invalid);
                self.metrics.attempted(key, false, Duration::ZERO);
                self.conclude(key, binding, None, vec![Message::invalid(invalid)]).await.map(|()| Ok(Action::Done))
            }
            Asking::Push(push) => self.push(key, binding, push).await,
        };
        match outcome {
            Ok(reported) => reported,
            Err(error) => {
                let pause = self.failed(key, binding, &error).await;
                Err(FailedRun::new(error, pause))
            }
        }
    }

    /// Brings in step what asks for a push.
    async fn push(&self, key: &ObjectRef, binding: &Binding, push: &Push) -> Result<Reported, PushError> {
        if push.asked.paused {
            self.conclude(key, binding, None, vec![Message::paused(key.kind)]).await?;
            return Ok(Ok(Action::Done));
        }
        let due = is_due(key, push, binding);
        let current = binding.verified.as_ref().filter(|verified| {
            binding.failures == 0
                && verified.sync_now == push.asked.sync_now
                && binding.record.as_ref().is_some_and(|record| record.generation == binding.generation)
                && self.bindings.are_current(&key.namespace, &verified.sources)
                && self.bindings.uses_just(key, &verified.sources)
        });
        if current.is_some_and(|verified| self.can_wait(key, binding, verified)) {
            return Ok(Ok(Action::After(NOTE_LATER)));
        }
        if let Some(verified) = current
            && (!due
                || verified.marked
                    && self.is_still_there(key, binding, push).await.map_err(|error| error.when(Doing::Look))?)
        {
            if let Some(record) = binding.unrecorded().filter(|_| binding.left_until().is_none()) {
                self.note(key, binding, record).await?;
                self.say(key, binding, None, binding.unsaid.clone());
            }
            return Ok(Ok(next_look(key, push, verified)));
        }
        let started = Instant::now();
        let outcome = match self.pinned(key, push).await {
            Ok(push) if self.is_doubtful(key, binding, &push) => return Ok(Ok(Action::After(FEWER_FOR))),
            Ok(push) => self.bring_in_step(key, binding, &push, due).await,
            Err(error) => Err(error),
        };
        let is_right = outcome.as_ref().is_ok_and(|(_, is_right)| *is_right);
        self.metrics.attempted(key, is_right, started.elapsed());
        outcome.map(|(reported, _)| reported)
    }

    /// The push of the Secrets that there are, where it asks for those that fit a selector. Its watch tells when these are others.
    async fn pinned<'a>(&self, key: &ObjectRef, push: &'a Push) -> Result<Cow<'a, Push>, PushError> {
        let Wanted::Composed(composition) = &push.wanted else { return Ok(Cow::Borrowed(push)) };
        let Some(selector) = composition.selector() else { return Ok(Cow::Borrowed(push)) };
        self.bindings.ask_selected(key);
        let names = self.fitting(&key.namespace, selector).await?;
        self.bindings.selected(key, names.clone());
        Ok(Cow::Owned(Push { asked: push.asked.clone(), wanted: Wanted::Composed(composition.of(names)) }))
    }

    /// Whether an empty list alone says that nothing is wanted any more of an object that has something in Vault.
    fn is_doubtful(&self, key: &ObjectRef, binding: &Binding, push: &Push) -> bool {
        // One that names its Secrets names at least one.
        matches!(push.wanted, Wanted::Composed(_))
            && push.wanted.names().is_empty()
            && binding.record.as_ref().is_some_and(|record| !record.paths.is_empty())
            && !self.is_asked_twice(key, binding)
    }

    /// Whether fewer Secrets than before have been found to fit its selector for so long that they were asked for twice.
    fn is_asked_twice(&self, key: &ObjectRef, binding: &Binding) -> bool {
        let since = binding.fewer.unwrap_or_else(Instant::now);
        let is_asked_twice = since.elapsed() >= FEWER_FOR;
        self.bindings.settle(key, binding, |now| now.fewer = (!is_asked_twice).then_some(since));
        if !is_asked_twice {
            tracing::info!(object = %key, "fewer Secrets fit its selector than are in Vault; that is asked again before anything is cleared");
        }
        is_asked_twice
    }

    /// How the run ended, and whether all is as it was asked for.
    async fn bring_in_step(
        &self,
        key: &ObjectRef,
        binding: &Binding,
        push: &Push,
        look: bool,
    ) -> Result<(Reported, bool), PushError> {
        let mut messages: Vec<Message> = push.asked.notes.iter().map(|note| Message::adjusted(note)).collect();
        let Some(prepared) = self.prepare(key, push, &mut messages).await? else {
            self.conclude(key, binding, None, messages).await?;
            return Ok((Ok(Action::After(LOOK_AGAIN)), false));
        };
        let mut portions = Portions::new(self, key, push);
        let (targets, mut glance) = tokio::join!(portions.next(), self.glance(binding, push, &prepared, look));
        let (mut targets, mut binding, before) = (targets?, binding.clone(), binding.record.clone());
        let record = before.clone().unwrap_or_else(|| binding.new_record(jiff::Timestamp::now()));
        let mut done = Done::new(record, messages);
        done.complete = prepared.refused.is_empty();
        loop {
            let Some((record, noted)) = self.intend(key, &binding, push, &prepared, &targets).await? else {
                // The object is gone.
                return Ok((Ok(Action::Done), true));
            };
            if key.kind == Kind::Secret {
                portions.rename(&key.name, &binding.version, &noted.version);
            }
            (done.record, binding) = (record, noted);
            let owner = self.owner(key, &binding.uid).await?;
            let before = before.as_ref();
            let run = Run { key, binding: &binding, push, prepared: &prepared, owner, before, look };
            self.write_all(&run, targets, &mut glance, &mut done).await?;
            if portions.is_over() {
                self.clear_dropped(&run, &mut done).await?;
                break;
            }
            binding.record = Some(done.record.clone());
            targets = portions.next().await?;
        }
        self.journal.resolve_others(key, &done.record);
        if !self.store.leads() {
            return Err(PushError::Deposed);
        }
        if let Some(conflict) = done.refused.take_if(|error| error.is_conflict()) {
            // Not in this run: what it has read of the Secrets may be older than what the other one has written.
            self.bindings.settle(key, &binding, |now| now.intend(&binding, done.record, done.messages));
            return Err(conflict);
        }
        let before_that = binding.verified.as_ref().map(|verified| verified.looked);
        let verified = done.complete.then(|| Verified {
            sources: portions.versions(),
            marked: done.marked,
            sync_now: push.asked.sync_now.clone(),
            // Where nothing changed, Vault is asked only when it is time to.
            looked: before_that.filter(|_| !look).unwrap_or_else(Instant::now),
            seen: BTreeMap::new(),
        });
        let next = verified.as_ref().map(|verified| next_look(key, push, verified));
        let begun = &binding;
        let failures = if done.refused.is_some() { binding.failures.saturating_add(1) } else { 0 };
        let is_refusal = done.refused.as_ref().is_some_and(PushError::is_refusal);
        let refusals = if is_refusal { binding.refusals.saturating_add(1) } else { 0 };
        self.bindings.settle(key, &binding, |now| {
            now.failures = failures;
            now.refused(begun, refusals);
            now.verify(begun, done.digests, verified);
            if let Some(changed) = now.changed.take().filter(|_| done.wrote) {
                self.metrics.propagated(changed.elapsed());
            }
        });
        let is_right = !done.messages.iter().any(Message::is_problem);
        if next.is_some() {
            self.conclude_in_step(key, &binding, done.record, done.messages);
        } else {
            self.conclude(key, &binding, Some(done.record), done.messages).await?;
        }
        let reported = match (done.refused, next) {
            (Some(error), _) => {
                let pause = match error.class() {
                    ErrorClass::Permanent => look_again(push),
                    // Its other paths are looked at as often as it asks.
                    class => pause(class, failures, refusals).min(push.asked.every.unwrap_or(Duration::MAX)),
                };
                Err(FailedRun::new(error, pause))
            }
            (None, Some(next)) => Ok(next),
            (None, None) => Ok(Action::After(done.soon.unwrap_or_else(|| look_again(push)))),
        };
        Ok((reported, is_right))
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
            let written = record.paths.entry(location.to_string()).or_insert_with(|| Written::untried(location));
            match (targets.get(target), push.asked.update) {
                (Some(Target::Content(made)), UpdatePolicy::Merge) => written.intend_keys(made.content.keys()),
                (Some(Target::Content(_)), _) => written.begin(now),
                (Some(Target::Keep(_)) | None, _) => {}
            }
        }
        let known = binding.record.as_ref();
        let known = known.filter(|before| before.deletion == record.deletion && before.paths == record.paths);
        let is_recorded = known.is_some_and(|before| binding.bears(before));
        let is_held = binding.finalizer || record.paths.is_empty();
        // What was on the object once is not put there for each write, if somebody takes it away for each.
        if is_recorded && is_held || known.is_some() && binding.left_until().is_some() {
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
        let record = &binding.dated(record, jiff::Timestamp::now());
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

/// The locations of an object's paths, by what they are beneath its own path.
pub(crate) type Locations = BTreeMap<String, Location>;

/// What should be there, by the same.
pub(crate) type Targets = BTreeMap<String, Target>;
