//! One object from its spec to Vault: observe, plan, write, report.

mod finalizer;
mod path_writer;
mod paths;
mod report;
mod secret_reader;

use std::{
    collections::{BTreeMap, BTreeSet},
    future::pending,
    sync::Arc,
    time::Duration,
};

use jiff::Timestamp;
use konverge_apply::{Statement, conditions::whole_second};
use konverge_core::{
    backoff::Backoff,
    error::{Classify, ErrorClass, in_one_line},
};
use konverge_runtime::{Action, Priority, Queue, Reconciler, Request, controller::Aborted};
use konverge_vault::{Found, KvVersion, Location, Secret};
use kube::Client;
use tokio::time::{Instant, sleep};

use crate::{
    bindings::{
        Binding, Bindings, FailureCount, Heritage, LOOK_AGAIN, ParsedSpec, Push, Verified, earlier, look_again,
    },
    config::PushOptions,
    content::Target,
    deletions::{Deletions, Held},
    desired::Wanted,
    error::{APPROVAL, Doing, FailedRun, PushError},
    journal::{Intention, Journal},
    messages,
    metrics::Metrics,
    object::{Kind, ObjectRef},
    orphans::{Heirs, Orphans},
    record::{PENDING, Record, Written},
    spec::{DeletionPolicy, UpdatePolicy},
    store::{Cleanup, ClearError, Cleared, Unfinished},
    watch::JOURNAL,
};
use finalizer::{Finalizer, abandon};
use path_writer::{PathWriter, SpeculativeRead, SyncOutcome, SyncRun};
use paths::ClearedPaths;
pub(crate) use paths::Paths;
pub(crate) use report::Reporter;
pub(crate) use secret_reader::SecretReader;
use secret_reader::{SecretBatches, Targets};

/// While at least this many objects run or wait, the journal is quicker than a record on each object.
const CROWD: usize = 8;

/// The pause before another look at that number.
const NOTE_LATER: Duration = Duration::from_millis(250);

/// This long after all content was in Vault, the object gets its record, however many objects run or wait.
const NOTE_BY: Duration = Duration::from_secs(10);

/// The pause after the record of an object was not written, because the object has changed since the watch showed it. The watch mostly shows the
/// change within milliseconds.
const OUTDATED_AGAIN: Duration = Duration::from_millis(250);

/// The pause before the next look whether deletions are counted. They are as soon as all objects are listed.
const COUNTED_AGAIN: Duration = Duration::from_secs(1);

/// If fewer Secrets match a selector than before, a second list after this delay must confirm it, because one bad list must not delete
/// data.
const FEWER_FOR: Duration = Duration::from_secs(5);

/// Reconciles one object.
pub struct Pusher {
    /// Reads Secrets.
    pub(crate) reader: SecretReader,
    /// Claims paths, and compares their content with Vault.
    pub(crate) paths: Paths,
    /// Reports on the object, and writes its record.
    pub(crate) reporter: Reporter,
    /// Takes the place of records where many paths are written for the first time.
    pub(crate) journal: Journal,
    /// Clears paths of objects that are gone.
    pub(crate) heirs: Heirs,
    /// Remembers paths that are left behind.
    pub(crate) orphans: Orphans,
    /// Knows all objects with a spec.
    pub(crate) bindings: Arc<Bindings>,
    /// Tells how many objects run or wait.
    pub(crate) queue: Queue<ObjectRef>,
    /// Counts.
    pub(crate) metrics: Metrics,
    /// Reads objects and namespaces that may be gone.
    pub(crate) client: Client,
    /// The decisions of the platform.
    pub(crate) policy: Arc<PushOptions>,
    /// Stops too many deletions.
    pub(crate) deletions: Deletions,
}

/// The end of a run that is reported on the object.
type Reported = Result<Action, FailedRun>;

impl Reconciler for Pusher {
    type Key = ObjectRef;
    type Error = FailedRun;

    async fn reconcile(&self, request: Request<ObjectRef>) -> Result<Action, FailedRun> {
        let key = &request.key;
        self.recall().await?;
        let intentions = self.journal.about(key);
        let Some(binding) = self.bindings.get(key) else {
            // The object requests nothing any more. The queue had it before the watch showed that.
            let is_done = intentions.is_empty();
            return if is_done { Ok(Action::Done) } else { Ok(abandon(self, key, &intentions).await?) };
        };
        let binding = self.take_over(key, binding, &intentions);
        let outcome = self.reconcile_binding(key, &binding).await;
        let outcome = match self.reporter.report_reverts(key) {
            Some(rest) => within(rest, outcome),
            None => outcome,
        };
        if self.intentions_are_over(key) {
            return outcome;
        }
        // The journal is read only once. So the object stays in the queue until its record has taken the journal's place.
        outcome.map(|action| if action == Action::Done { Action::After(LOOK_AGAIN) } else { action })
    }

    async fn on_abort(&self, key: &ObjectRef, why: &Aborted) {
        let Some(binding) = self.bindings.get(key) else { return };
        let why = match why {
            Aborted::TimedOut(limit) => format!("it took longer than {} s", limit.as_secs()),
            Aborted::Panicked(cause) => format!("that is a defect of this program, please report it: {cause}"),
        };
        self.reporter.report_failure(key, &binding, &PushError::GivenUp(why)).await;
    }
}

impl Pusher {
    /// Reads the journal when this process begins to lead, and never returns. All objects in the journal may be gone, so that no run would read it.
    pub(crate) async fn recall_at_start(self: Arc<Self>) {
        let mut failures = 0;
        while let Err(error) = self.recall().await {
            failures += 1;
            tracing::debug!("the journal is read again later: {}", in_one_line(&error));
            sleep(Backoff::default().delay(failures, rand::random())).await;
        }
        pending::<()>().await;
    }

    /// Queues all objects with an intention of an earlier process. No run does anything before these are known, and before the name is known
    /// under which the operator marks its paths.
    async fn recall(&self) -> Result<(), PushError> {
        self.paths.store.identify().await.map_err(PushError::unidentified)?;
        self.queue.add_all(self.journal.recall().await?, Priority::Normal, JOURNAL);
        Ok(())
    }

    /// Takes over the intentions of the object, and of earlier objects with its name, into its record, so a run writes or clears their paths.
    /// Returns the binding as it is then.
    fn take_over(&self, key: &ObjectRef, mut binding: Binding, intentions: &[Intention]) -> Binding {
        let is_recorded = binding.record.is_some();
        for intention in intentions {
            if !is_recorded || intention.record().uid != binding.uid {
                self.bindings.on_object(key, &binding.uid, |now| now.recall(intention.record()));
                binding.recall(intention.record());
            }
        }
        binding
    }

    /// Whether the object bears its record by now. Then its intentions have done their service and leave the journal.
    fn intentions_are_over(&self, key: &ObjectRef) -> bool {
        if !self.journal.speaks_of(key) {
            return true;
        }
        let is_recorded = self.bindings.get(key).is_some_and(|now| now.bears_its_record());
        if is_recorded {
            self.journal.resolve(key);
        }
        is_recorded
    }

    /// Reconciles one binding. Reports an error on the object and returns it with the pause before the next attempt.
    async fn reconcile_binding(&self, key: &ObjectRef, binding: &Binding) -> Reported {
        let finalizer = Finalizer { pusher: self, key, binding };
        let outcome = match &binding.spec {
            _ if binding.deleting.is_some() => finalizer.finalize().await.map(Ok),
            ParsedSpec::Nothing { .. } => finalizer.finalize().await.map(Ok),
            ParsedSpec::Invalid(invalid, _) => {
                self.metrics.parse_failed(key, invalid);
                self.metrics.attempted(key, false, Duration::ZERO);
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
            // The time of a pause does not count as propagation time.
            self.bindings.on_object(key, &binding.uid, |now| now.pending.changed = None);
            self.reporter.report(key, binding, None, vec![messages::paused(key.kind)]).await?;
            return Ok(Ok(Action::Done));
        }
        let outcome = self.reconcile_active(key, binding, push).await?;
        let record = self.bindings.get(key).and_then(|now| now.record);
        let rest = record.and_then(|record| record.until_due(self.grace(push), Timestamp::now()).min());
        // An overdue path waits for another reason, such as an outage, which has its own pause.
        Ok(match rest.filter(|rest| !rest.is_zero()) {
            Some(rest) => within(rest, outcome),
            None => outcome,
        })
    }

    async fn reconcile_active(&self, key: &ObjectRef, binding: &Binding, push: &Push) -> Result<Reported, PushError> {
        let has_overdue = binding.record.as_ref().is_some_and(|record| self.has_overdue(key, push, record));
        let is_due = binding.verified.as_ref().is_none_or(|verified| verified.is_due(key, &push.spec)) || has_overdue;
        let current = self.current(key, binding, push);
        if current.is_some_and(|verified| self.record_can_wait(key, verified)) && binding.unrecorded().is_some() {
            return Ok(Ok(Action::After(NOTE_LATER)));
        }
        if let Some(verified) = current
            && !has_overdue
            && (!is_due || verified.marked && self.passes_drift_check(key, binding, push).await?)
        {
            if let Some(record) = binding.unrecorded().filter(|_| binding.left_until().is_none()) {
                self.reporter.write_record(key, binding, record).await?;
                self.reporter.say(key, binding, None, binding.announced.unsaid.clone());
            }
            return Ok(Ok(verified.next_look(key, &push.spec)));
        }
        let started = Instant::now();
        let outcome = match self.reader.resolve(key, push).await {
            Ok(push) if self.is_doubtful(key, binding, &push) => return Ok(Ok(Action::After(FEWER_FOR))),
            Ok(push) => self.sync(key, binding, &push, is_due).await,
            Err(error) => Err(error),
        };
        let is_right = outcome.as_ref().is_ok_and(|(_, is_right)| *is_right);
        self.metrics.attempted(key, is_right, started.elapsed());
        outcome.map(|(reported, _)| reported)
    }

    /// Whether the object no longer requests a path whose grace period is over, or that another object gets.
    fn has_overdue(&self, key: &ObjectRef, push: &Push, record: &Record) -> bool {
        let (now, grace) = (Timestamp::now(), self.grace(push));
        record.paths.iter().any(|(path, written)| {
            let rest = written.until_due(grace, now);
            rest.is_some_and(|rest| rest.is_zero() || self.paths.heritage(key, path, written).is_some())
        })
    }

    /// The last verification, if it is still about this spec and these Secrets.
    fn current<'a>(&self, key: &ObjectRef, binding: &'a Binding, push: &Push) -> Option<&'a Verified> {
        binding.verified.as_ref().filter(|verified| {
            binding.failures.in_a_row == 0
                && verified.sync_now == push.spec.sync_now
                && binding.record.as_ref().is_some_and(|record| record.generation == binding.generation)
                && self.bindings.are_current(&key.namespace, &verified.sources)
                && self.bindings.uses_just(key, &verified.sources)
        })
    }

    /// Reads each location that no object has read within the object's interval. Returns whether all of them are unchanged.
    ///
    /// However many objects have keys at a location, one read per interval serves all of them, except objects that compare with Vault in every
    /// run. No Secret is read.
    ///
    /// Skips a location that another object reads at this moment: its result is known by the next run of this one.
    async fn passes_drift_check(&self, key: &ObjectRef, binding: &Binding, push: &Push) -> Result<bool, PushError> {
        let Self { paths, bindings, .. } = self;
        let owner = paths.owner(key, &binding.uid).await?;
        let Some(record) = &binding.record else { return Ok(false) };
        let (begun, is_expired) = (Instant::now(), binding.verified.as_ref().is_some_and(Verified::is_expired));
        let mut expires = None;
        let mut seen = BTreeMap::new();
        for (location, written) in record.locations() {
            let text = location.to_string();
            // The last run had no content for this location, and this one has none either: the operator leaves it as it is.
            let Some(&known) = binding.held.get(&text) else { continue };
            // In this order: an object that reads tells the others before it is done.
            let reading = bindings.begin_read(&text);
            let before = bindings.seen(key, &text);
            let is_young = |before: Instant| push.spec.every.is_some_and(|every| before.elapsed() < every);
            if reading.is_none() || !push.spec.always && !is_expired && before.is_some_and(is_young) {
                seen.extend(before.map(|before| (text.clone(), before)));
                continue;
            }
            let found = paths.store.look(&location).await;
            let found = found.map_err(|source| PushError::Vault { doing: Doing::Look, source })?;
            expires = earlier(expires, found.live_version().and_then(|version| version.deletion));
            let Found::Live(secret) = found else { return Ok(false) };
            if written.keys.is_some() {
                self.tell_sharers(key, &location, &secret, begun).await?;
            }
            if push.spec.update != UpdatePolicy::IfNotExists && !paths.is_unchanged(&secret, &owner, written, known) {
                return Ok(false);
            }
            seen.insert(text.clone(), begun);
        }
        bindings.update_if_current(key, binding, |now| {
            if let Some(verified) = &mut now.verified {
                verified.see(seen, begun);
                // For a location that was not read now, the earlier time counts.
                verified.expires = earlier(expires, verified.expires.filter(|_| !is_expired));
            }
        });
        Ok(true)
    }

    /// Compares the same response with the content of the other objects there. An object whose content differs reads for itself when its
    /// interval is over.
    async fn tell_sharers(
        &self,
        key: &ObjectRef,
        location: &Location,
        secret: &Secret,
        begun: Instant,
    ) -> Result<(), PushError> {
        let text = location.to_string();
        for sharer in self.bindings.sharers(key, &text) {
            let owner = self.paths.owner(&sharer.key, &sharer.uid).await?;
            if self.paths.is_unchanged(secret, &owner, &sharer.written, sharer.held) {
                self.bindings.saw(&sharer, &text, begun);
            }
        }
        Ok(())
    }

    /// Whether only an empty list of Secrets says that the object, which has content in Vault, wants none of it.
    fn is_doubtful(&self, key: &ObjectRef, binding: &Binding, push: &Push) -> bool {
        // A push that names its Secrets names at least one.
        matches!(push.wanted, Wanted::Composed(_))
            && push.wanted.names().is_empty()
            && binding.record.as_ref().is_some_and(|record| !record.paths.is_empty())
            && !self.fewer_is_confirmed(key, binding)
    }

    /// Whether fewer Secrets than before have matched the object's selector for [`FEWER_FOR`], so a second list has confirmed it.
    fn fewer_is_confirmed(&self, key: &ObjectRef, binding: &Binding) -> bool {
        let since = binding.pending.fewer.unwrap_or_else(Instant::now);
        let is_confirmed = since.elapsed() >= FEWER_FOR;
        self.bindings.update_if_current(key, binding, |now| now.pending.fewer = (!is_confirmed).then_some(since));
        if !is_confirmed {
            tracing::info!(object = %key, "fewer Secrets match its selector than are in Vault; a second list must confirm that");
        }
        is_confirmed
    }

    /// Whether the record of an object in sync can wait: the journal has had it for a short time, and many other objects run or wait.
    fn record_can_wait(&self, key: &ObjectRef, verified: &Verified) -> bool {
        self.journal.speaks_of(key) && verified.looked.elapsed() < NOTE_BY && self.queue.is_depth_at_least(CROWD)
    }

    /// Syncs all paths of an object. Returns how the run ended, and whether all paths are in sync.
    async fn sync(
        &self,
        key: &ObjectRef,
        binding: &Binding,
        push: &Push,
        verify: bool,
    ) -> Result<(Reported, bool), PushError> {
        let mut statements: Vec<Statement> = push.spec.notes.iter().map(|note| messages::adjusted(note)).collect();
        let Some(prepared) = self.paths.prepare(key, push, &mut statements).await? else {
            self.reporter.report(key, binding, None, statements).await?;
            return Ok((Ok(Action::After(LOOK_AGAIN)), false));
        };
        let owner = self.paths.owner(key, &binding.uid).await?;
        let record = binding.record.clone().unwrap_or_else(|| binding.new_record(Timestamp::now()));
        let mut outcome = SyncOutcome::new(record, statements, &prepared);
        let run = SyncRun { key, push, prepared: &prepared, owner, verify };
        let mut batches = self.reader.batches(key, push);
        let Some(binding) = self.write_batches(&run, binding, &mut batches, &mut outcome).await? else {
            // The object is gone.
            return Ok((Ok(Action::Done), true));
        };
        self.journal.resolve_others(key, &outcome.record);
        if !self.paths.store.is_leader() {
            return Err(PushError::LeadershipLost);
        }
        self.finish(&run, &binding, batches.versions(), outcome).await
    }

    /// Records and writes the paths batch by batch, then clears those that the object no longer names. Returns the binding as the last write of
    /// the record left it, or `None` if the object is gone.
    async fn write_batches(
        &self,
        run: &SyncRun<'_>,
        begun: &Binding,
        batches: &mut SecretBatches<'_>,
        outcome: &mut SyncOutcome,
    ) -> Result<Option<Binding>, PushError> {
        let (first, mut read) = tokio::join!(batches.next(), self.read_speculatively(run, begun));
        let (mut next, mut binding) = (first?, begun.clone());
        while let Some(targets) = next {
            let seen = binding.version().to_owned();
            let Some(recorded) = self.intend(run, binding, &targets, outcome).await? else {
                return Ok(None);
            };
            binding = recorded;
            if run.key.kind == Kind::Secret {
                batches.rename(&run.key.name, &seen, binding.version());
            }
            let before = begun.record.as_ref();
            let mut writer = PathWriter { paths: &self.paths, run, before, binding: &binding, outcome };
            writer.write_all(targets, &mut read).await?;
            next = batches.next().await?;
            if next.is_some() {
                // The next batch adds to this record.
                binding.record = Some(outcome.record.clone());
            }
        }
        self.clear_dropped(run, &binding, outcome).await?;
        Ok(Some(binding))
    }

    /// Reads the only location of an object while its Secret is on its way from the API server. It reads if the run needs that in any case, or
    /// probably, because a Secret of the object has just changed.
    async fn read_speculatively(&self, run: &SyncRun<'_>, binding: &Binding) -> Option<SpeculativeRead> {
        let SyncRun { push, prepared, verify, .. } = run;
        let mut locations = prepared.locations.values();
        let location = locations.next().filter(|_| locations.next().is_none())?;
        // In KV version 1, others may write between a read and a write. So the read comes last there.
        let is_checked = location.mount().version() == KvVersion::Two && push.spec.update == UpdatePolicy::Replace;
        // The first write to a path needs no read.
        let written = binding.record.as_ref().and_then(|record| record.paths.get(&location.to_string()));
        let was_written = written.is_some_and(|written| written.written);
        if !(is_checked && was_written && (*verify || binding.pending.changed.is_some())) {
            return None;
        }
        Some(SpeculativeRead { location: location.clone(), found: self.paths.store.look(location).await })
    }

    /// Sets finalizer and record before the first write to any path, or has the journal keep the record, unless they name all paths already.
    /// Returns the binding as it is then, or `None` if the object is gone.
    async fn intend(
        &self,
        run: &SyncRun<'_>,
        binding: Binding,
        targets: &Targets,
        outcome: &mut SyncOutcome,
    ) -> Result<Option<Binding>, PushError> {
        let (now, record) = (Timestamp::now(), &mut outcome.record);
        record.deletion = run.push.spec.deletion.unwrap_or(self.policy.default_deletion_policy);
        for (path, written) in &mut record.paths {
            if run.prepared.named.contains(path) {
                // The request has returned.
                written.unwanted = None;
            }
        }
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
            return Ok(Some(binding));
        }
        if record.generation != binding.generation {
            // The state in the record is about another generation.
            record.generation = binding.generation;
            record.say(PENDING, None, now);
        }
        if self.write_to_journal(run, &binding, record, targets).await? {
            let intend = |now: &mut Binding| now.intend(&binding, record.clone(), Vec::new());
            self.bindings.on_object(run.key, &binding.uid, intend);
            return Ok(Some(binding));
        }
        let (written, altered) = self.reporter.try_record(run.key, &binding, record).await?;
        if let Some(error) = altered {
            // While admission changes the record, changes reach Vault if the object bears the paths all the same.
            let is_borne = || self.bindings.get(run.key).is_some_and(|now| now.shows_its_record());
            if !record.was_written() && !is_borne() {
                return Err(error.into());
            }
            outcome.altered = Some(error.into());
        }
        Ok(written)
    }

    /// Writes to the journal what is about to be written for an object that bears no record, if that saves time. Returns `false` if it does
    /// not, or if the journal cannot be used.
    async fn write_to_journal(
        &self,
        run: &SyncRun<'_>,
        binding: &Binding,
        record: &Record,
        targets: &Targets,
    ) -> Result<bool, PushError> {
        let SyncRun { key, push, prepared, .. } = run;
        let is_new = binding.record.is_none() && !binding.finalizer;
        let saves_time = is_new && push.spec.update != UpdatePolicy::Merge && self.queue.is_depth_at_least(CROWD);
        let contents = prepared.locations.iter().filter_map(|(target, location)| match targets.get(target) {
            Some(Target::Content(made)) => Some((location, &made.content)),
            Some(Target::Keep(_)) | None => None,
        });
        Ok(self.journal.intend(key, record, contents, saves_time).await?)
    }

    /// Clears the locations that the record has and the object no longer names.
    ///
    /// Clears nothing while an error keeps all named paths out of Vault: the dropped paths may hold the only content.
    async fn clear_dropped(
        &self,
        run: &SyncRun<'_>,
        binding: &Binding,
        outcome: &mut SyncOutcome,
    ) -> Result<(), PushError> {
        let SyncRun { key, prepared, .. } = run;
        let is_dropped = |location: &Location| !prepared.named.contains(&location.to_string());
        let recorded = outcome.record.locations().map(|(location, written)| (location, written.clone()));
        let mut dropped: Vec<_> = recorded.filter(|(location, _)| is_dropped(location)).collect();
        // A request that has returned is no deletion any more.
        self.count_deletions(key, &outcome.record);
        if dropped.is_empty() {
            self.bindings.update_if_current(key, binding, |now| now.pending.fewer = None);
            return Ok(());
        }
        if outcome.digests.is_empty() && (!outcome.complete || outcome.statements.iter().any(Statement::is_problem)) {
            return Ok(());
        }
        let by_selector = matches!(&binding.spec, ParsedSpec::Push(push) if push.wanted.selector().is_some());
        if by_selector && !self.fewer_is_confirmed(key, binding) {
            outcome.look_soon(FEWER_FOR);
            return Ok(());
        }
        let (now, grace) = (Timestamp::now(), self.grace(run.push));
        for (location, written) in &mut dropped {
            written.unwanted.get_or_insert(now);
            outcome.record.paths.insert(location.to_string(), written.clone());
        }
        self.count_deletions(key, &outcome.record);
        let mut cleared_paths = ClearedPaths::default();
        let mut pending = BTreeMap::new();
        let mut held = None;
        for (location, written) in dropped {
            let text = location.to_string();
            let heritage = self.paths.heritage(key, &text, &written);
            if heritage.is_none() {
                if let Some(rest) = written.until_due(grace, now).filter(|rest| !rest.is_zero()) {
                    pending.insert(text, now.checked_add(rest).unwrap_or(Timestamp::MAX));
                    continue;
                }
                if let Err(now) = self.deletions.check(key, &binding.uid, &text, false) {
                    held = Some(now);
                    continue;
                }
            }
            match self.clear_one(run, &location, &written, (outcome.record.deletion, heritage)).await {
                Ok(cleared) => {
                    self.deletions.settle(key, &binding.uid, &text, cleared == Cleared::Deleted);
                    self.paths.warn_sharers(key, &text, &written, cleared);
                    outcome.record.paths.remove(&text);
                    self.paths.release(key, &text, &written);
                    cleared_paths.add(text, cleared);
                }
                Err(error @ (ClearError::LeadershipLost | ClearError::Unidentified(_))) => return Err(error.into()),
                Err(ClearError::Vault(error)) => outcome.unless_refused(key, &location, Doing::Clear, Err(error))?,
            }
        }
        outcome.statements.extend(cleared_paths.statements(messages::dropped));
        match held {
            Some(Held::Stopped(stopped)) => {
                outcome.statements.push(messages::drop_stopped(&stopped));
                outcome.look_soon(APPROVAL);
            }
            Some(Held::Uncounted) => outcome.look_soon(COUNTED_AGAIN),
            None => {}
        }
        if let Some(first) = pending.values().min() {
            let paths: Vec<_> = pending.keys().cloned().collect();
            outcome.statements.push(messages::drop_pending(&paths, whole_second(*first)));
        }
        // A recorded path that leads nowhere was not written by this operator.
        let leading: BTreeSet<String> = outcome.record.locations().map(|(location, _)| location.to_string()).collect();
        for (text, _) in outcome.record.paths.extract_if(.., |text, _| !leading.contains(text)) {
            self.deletions.settle(key, &binding.uid, &text, false);
        }
        Ok(())
    }

    /// Counts the paths of a record that are to be deleted.
    fn count_deletions(&self, key: &ObjectRef, record: &Record) {
        self.deletions.follow(key, record, |path, written| self.paths.heritage(key, path, written).is_some());
    }

    /// How long content stays that an object no longer requests, in case the request returns.
    fn grace(&self, push: &Push) -> Duration {
        push.spec.grace.unwrap_or(self.policy.deletion_grace)
    }

    /// Clears a location that the object no longer names, unless it leads to a named one. If other objects get all of it, only its mark changes.
    async fn clear_one(
        &self,
        run: &SyncRun<'_>,
        recorded: &Location,
        written: &Written,
        (deletion, heritage): (DeletionPolicy, Option<Heritage>),
    ) -> Result<Cleared, ClearError> {
        let SyncRun { key, owner, prepared, .. } = run;
        let Some(location) = self.paths.store.recorded(recorded).await? else { return Ok(Cleared::Nothing) };
        if prepared.named.contains(&location.to_string()) {
            return Ok(Cleared::Nothing);
        }
        let claim = self.paths.claim(key, &location, written);
        let unfinished = Unfinished::Unknown;
        let heirs = &match heritage {
            Some(heritage) => self.paths.store.heirs(&heritage).await?,
            None => self.paths.heirs(key, &location, written).await?,
        };
        let cleanup = Cleanup { location: &location, owner, written, claim, unfinished, gone: false, heirs };
        self.paths.store.clear(&cleanup, deletion.in_vault()).await
    }

    /// Notes the results of the run on the binding, reports them, and decides about the next run.
    async fn finish(
        &self,
        run: &SyncRun<'_>,
        binding: &Binding,
        sources: BTreeMap<String, Option<String>>,
        mut outcome: SyncOutcome,
    ) -> Result<(Reported, bool), PushError> {
        let SyncRun { key, push, verify, .. } = run;
        let bindings = &self.bindings;
        if let Some(conflict) = outcome.refused.take_if(|error| error.is_conflict()) {
            // Not in this run: its Secrets may be older than the content of the other writer.
            bindings.update_if_current(key, binding, |now| now.intend(binding, outcome.record, outcome.statements));
            return Err(conflict);
        }
        let expires_before = binding.verified.as_ref().and_then(|verified| verified.expires);
        let looked_before = binding.verified.as_ref().map(|verified| verified.looked);
        let verified = outcome.complete.then(|| Verified {
            sources,
            marked: outcome.marked,
            sync_now: push.spec.sync_now.clone(),
            // If nothing changed, the next drift check comes when the interval is over.
            expires: earlier(outcome.expires, expires_before.filter(|_| !verify)),
            looked: looked_before.filter(|_| !verify).unwrap_or_else(Instant::now),
            seen: BTreeMap::new(),
        });
        let next = verified.as_ref().map(|verified| verified.next_look(key, &push.spec));
        let failures = match outcome.refused.as_ref().or(outcome.altered.as_ref()) {
            Some(error) => binding.failures.after(error.is_refusal()),
            None => FailureCount::default(),
        };
        bindings.update_if_current(key, binding, |now| {
            now.failed(binding, failures);
            now.verify(binding, outcome.digests, verified);
            if let Some(changed) = now.pending.changed.take().filter(|_| outcome.wrote) {
                self.metrics.ours.propagation.observe(changed.at.elapsed().as_secs_f64());
            }
        });
        if let Some(error) = outcome.altered {
            // The report of the failure writes the record once more, and the next run tries again.
            bindings.update_if_current(key, binding, |now| now.intend(binding, outcome.record, outcome.statements));
            return Err(error);
        }
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
            (None, None) => Ok(Action::After(outcome.soon.unwrap_or_else(|| look_again(&push.spec)))),
        };
        Ok((reported, is_right))
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

/// The pause after a run in which one of the paths was refused. The object's interval limits it, because its other paths are compared in it.
fn pause_after_refusal(error: &PushError, push: &Push, failures: FailureCount) -> Duration {
    match error.class() {
        ErrorClass::Permanent => look_again(&push.spec),
        class => failures.pause(class).min(push.spec.every.unwrap_or(Duration::MAX)),
    }
}
