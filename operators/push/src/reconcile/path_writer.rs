//! Writes the paths of one run: plan, write, mark. Collects the results.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use jiff::Timestamp;
use konverge_apply::Statement;
use konverge_core::{digest::ContentDigest, error::in_one_line};
use konverge_vault::{Content, Found, KvVersion, Location, Owner, VaultError, VersionState};
use tokio::time::Instant;

use super::{
    paths::{Paths, Prepared},
    secret_reader::Targets,
};
use crate::{
    bindings::{Binding, Push, Share, earlier, key_of},
    content::{Lack, Made, Target, digest},
    error::{Doing, PushError},
    merge::{Merge, Refusal, merge},
    messages,
    object::ObjectRef,
    plan::{Claim, Known, MARKED_WITHIN, Step, UNDISTURBED, plan, plan_once},
    record::{Record, Written},
    spec::{ExistingPolicy, UpdatePolicy},
    store::ATTEMPTS,
};

/// One run that compares and writes all paths of an object.
pub(super) struct SyncRun<'a> {
    pub(super) key: &'a ObjectRef,
    pub(super) push: &'a Push,
    pub(super) prepared: &'a Prepared,
    /// The owner in the marks of this run.
    pub(super) owner: Owner,
    /// Whether the run reads Vault also where nothing changed in the cluster.
    pub(super) verify: bool,
}

/// The results of a run for all paths of an object.
pub(super) struct SyncOutcome {
    pub(super) record: Record,
    pub(super) statements: Vec<Statement>,
    /// The content of each path in sync.
    pub(super) digests: BTreeMap<String, ContentDigest>,
    /// Whether all paths are in sync.
    pub(super) complete: bool,
    /// Whether each path that can bear a mark bears it.
    pub(super) marked: bool,
    /// Whether the run wrote anything.
    pub(super) wrote: bool,
    /// The error of the record's write before the paths, which admission changed.
    pub(super) altered: Option<PushError>,
    /// The refusal of one of the paths, if it is no outage.
    pub(super) refused: Option<PushError>,
    /// When the run wants to read a path again, because another installation may be about to mark it, or may have marked it, too.
    pub(super) soon: Option<Duration>,
    /// The time at which Vault deletes the first of the versions that were read or written.
    pub(super) expires: Option<Timestamp>,
}

/// The content of a location, read before the desired content was known.
pub(super) struct SpeculativeRead {
    pub(super) location: Location,
    pub(super) found: Result<Found, VaultError>,
}

/// A path and its desired content.
struct DesiredPath<'a> {
    location: &'a Location,
    text: String,
    content: Content,
    digest: Option<ContentDigest>,
    known: Known,
}

/// Writes the paths of one run.
pub(super) struct PathWriter<'a> {
    pub(super) paths: &'a Paths,
    pub(super) run: &'a SyncRun<'a>,
    /// The record before the run.
    pub(super) before: Option<&'a Record>,
    /// The binding as the run found it, or as the last write of the record left it; between batches with the record of the run.
    pub(super) binding: &'a Binding,
    pub(super) outcome: &'a mut SyncOutcome,
}

impl PathWriter<'_> {
    /// Writes each of these paths that is not in sync. One of them may have been read already.
    pub(super) async fn write_all(
        &mut self,
        targets: Targets,
        read: &mut Option<SpeculativeRead>,
    ) -> Result<(), PushError> {
        let SyncRun { key, prepared, .. } = self.run;
        for (target, desired) in targets {
            let Some(location) = prepared.locations.get(&target) else { continue };
            match desired {
                Target::Keep(lack) => self.lack(location, &lack),
                Target::Content(made) => {
                    let read = read.take_if(|read| read.location == *location).map(|read| read.found);
                    let written = self.write_one(location, made, read).await;
                    self.outcome.unless_refused(key, location, Doing::Write, written)?;
                }
            }
        }
        Ok(())
    }

    fn lack(&mut self, location: &Location, lack: &Lack) {
        let ObjectRef { kind, namespace, .. } = self.run.key;
        match lack {
            Lack::Secret { name, optional: false } => self.paths.metrics.secret_not_found(namespace, name),
            Lack::Key { secret, key, .. } => self.paths.metrics.key_missing(namespace, secret, key),
            Lack::Secret { optional: true, .. }
            | Lack::Empty
            | Lack::Binary { .. }
            | Lack::Large { .. }
            | Lack::LargeSecrets { .. } => {}
        }
        self.outcome.statements.push(messages::lacking(*kind, &location.to_string(), lack));
    }

    async fn write_one(
        &mut self,
        location: &Location,
        Made { content, encoded }: Made,
        read: Option<Result<Found, VaultError>>,
    ) -> Result<(), VaultError> {
        let run = self.run;
        let text = location.to_string();
        let digest = digest(&self.paths.digest_key, content.iter());
        let held = self.binding.held.get(&text).copied();
        let is_same = held.is_some() && held == digest;
        if !encoded.is_empty() {
            self.outcome.statements.push(messages::encoded(&text, &encoded));
        }
        let known = if is_same { Known::Same } else { Known::Changed };
        let path = DesiredPath { location, text, content, digest, known };
        let recorded = self.outcome.record.paths.get(&path.text);
        if !run.verify && is_same && recorded.is_some_and(|recorded| recorded.written || recorded.left) {
            self.outcome.note_held(&path);
            return Ok(());
        }
        let recorded = self.before.and_then(|before| before.paths.get(&path.text));
        match run.push.spec.update {
            UpdatePolicy::Merge => return self.merge(&path).await,
            // A path that the object never had is probably free. Vault tells if it is not.
            UpdatePolicy::Replace if recorded.is_none() && self.create(&path).await? => return Ok(()),
            UpdatePolicy::Replace | UpdatePolicy::IfNotExists => {}
        }
        let found = match read {
            Some(found) => found?,
            None => self.paths.store.look(location).await?,
        };
        self.outcome.expire(found.live_version());
        match self.plan(&path, &found, recorded) {
            Ok(step) => self.carry_out(&path, &found, step).await,
            Err(refusal) => {
                self.outcome.not_begun(&path.text);
                self.refuse(&path, &refusal);
                Ok(())
            }
        }
    }

    /// Writes a path that has never had a version. Returns `false` if it has had one.
    async fn create(&mut self, path: &DesiredPath<'_>) -> Result<bool, VaultError> {
        if !self.may_write() {
            return Ok(false);
        }
        let started = Instant::now();
        let created = self.paths.store.create(path.location, &path.content).await;
        self.outcome.not_begun_unless_unknown(&path.text, &created);
        let Some(version) = created? else { return Ok(false) };
        self.outcome.expire(Some(&version));
        let version = version.number;
        self.log_write(path, Some(version), "written");
        self.record_and_mark(path, Some(version), Some((&Found::Absent, Some(started)))).await?;
        Ok(true)
    }

    fn plan(&self, path: &DesiredPath<'_>, found: &Found, recorded: Option<&Written>) -> Result<Step, Refusal> {
        let SyncRun { push, owner, .. } = self.run;
        let claim = Claim::of(push.spec.update, recorded);
        if push.spec.update == UpdatePolicy::IfNotExists {
            return plan_once(&path.content, found, owner, claim);
        }
        plan(&path.content, found, owner, claim, self.existing(), path.known)
    }

    /// How existing content without an owner is treated.
    fn existing(&self) -> ExistingPolicy {
        self.run.push.spec.existing.unwrap_or(self.paths.policy.existing)
    }

    /// Writes our keys, and removes those of ours that are no longer desired: all of them or none.
    async fn merge(&mut self, path: &DesiredPath<'_>) -> Result<(), VaultError> {
        let recorded = self.outcome.record.paths.get(&path.text).cloned();
        let recorded = recorded.unwrap_or_else(|| Written::intended(path.location));
        if let Some(refusal) = self.merge_refusal(path) {
            self.outcome.statements.push(refusal);
            self.outcome.complete = false;
            return Ok(());
        }
        let Some((merge, version)) = self.write_merged(path, &recorded).await? else { return Ok(()) };
        if merge.content.is_some() {
            if !merge.adopted.is_empty() {
                self.adopted(messages::adopted_keys(&path.text, &merge.adopted));
            }
            if recorded.written && path.known == Known::Same {
                self.drifted(path);
            }
            self.log_write(path, version, "merged");
        }
        let keys: BTreeSet<_> = path.content.keys().map(str::to_owned).collect();
        for dropped in recorded.keys.iter().flatten().chain(&recorded.pending).filter(|name| !keys.contains(*name)) {
            self.paths.release_key(self.run.key, &path.text, dropped);
        }
        let written = Written { written: true, version, keys: Some(keys), ..Written::intended(path.location) };
        self.outcome.record.paths.insert(path.text.clone(), written);
        let marked = self.paths.store.annotate(path.location, &merge.marks).await;
        self.outcome.note_mark(path, marked)?;
        self.outcome.note_held(path);
        Ok(())
    }

    /// Claims our keys. Returns why the path cannot be merged.
    fn merge_refusal(&self, path: &DesiredPath<'_>) -> Option<Statement> {
        if path.location.mount().version() == KvVersion::One {
            return Some(messages::needs_version_two(&path.text));
        }
        let claim = |name: &str| self.paths.bindings.claim(self.run.key, &key_of(&path.text, name), Share::Whole);
        let (name, holder) = path.content.keys().find_map(|name| claim(name).err().map(|holder| (name, holder)))?;
        self.paths.metrics.ours.conflicts.inc();
        self.paths.tell_of_heir(holder.clone(), &path.text);
        Some(messages::claimed_key(&path.text, name, &holder.to_string()))
    }

    /// Reads, merges and writes the path, several times if others write it at the same time. Returns the merge and the version that holds it,
    /// or `None` if the merge is refused or the run may not write any more.
    async fn write_merged(
        &mut self,
        path: &DesiredPath<'_>,
        recorded: &Written,
    ) -> Result<Option<(Merge, Option<u64>)>, VaultError> {
        let mut attempt = 1;
        loop {
            let found = self.paths.store.look(path.location).await?;
            let found_version = found_version(&found);
            self.outcome.expire(found.live_version());
            let merge = match merge(&path.content, found, &self.run.owner, recorded, self.existing()) {
                Ok(merge) => merge,
                Err(refusal) => {
                    self.refuse(path, &refusal);
                    return Ok(None);
                }
            };
            let Some(content) = &merge.content else { return Ok(Some((merge, found_version))) };
            if !self.may_write() {
                self.outcome.complete = false;
                return Ok(None);
            }
            match self.paths.store.write(path.location, content, merge.expected).await {
                Err(VaultError::Conflict { .. }) if attempt < ATTEMPTS => attempt += 1,
                written => {
                    let version = written?;
                    self.outcome.expire(version.as_ref());
                    return Ok(Some((merge, version.map(|version| version.number))));
                }
            }
        }
    }

    async fn carry_out(&mut self, path: &DesiredPath<'_>, found: &Found, step: Step) -> Result<(), VaultError> {
        let mut version = found_version(found);
        let unmarked = match step {
            Step::Wait(rest) => {
                self.outcome.statements.push(messages::awaited(&path.text));
                self.outcome.look_soon(rest);
                return Ok(());
            }
            Step::Leave { ours: false, .. } => {
                self.outcome.statements.push(messages::left_alone(&path.text, false));
                let left = Written { left: true, ..Written::intended(path.location) };
                self.outcome.record.paths.insert(path.text.clone(), left);
                self.outcome.note_held(path);
                return Ok(());
            }
            Step::Leave { ours: true, mark } => {
                self.outcome.statements.push(messages::left_alone(&path.text, true));
                mark.then_some((found, None))
            }
            Step::Nothing => None,
            Step::Mark => Some((found, None)),
            Step::Write { .. } if !self.may_write() => {
                self.outcome.complete = false;
                return Ok(());
            }
            Step::Write { expected, mark, adopted, drifted } => {
                let started = Instant::now();
                let written = self.paths.store.write(path.location, &path.content, expected).await;
                self.outcome.not_begun_unless_unknown(&path.text, &written);
                let state = written?;
                self.outcome.expire(state.as_ref());
                version = state.map(|state| state.number);
                self.log_write(path, version, "written");
                if adopted {
                    self.adopted(messages::adopted(&path.text, path.location.mount().version()));
                }
                if drifted {
                    self.drifted(path);
                }
                (mark && version.is_some()).then_some((found, Some(started)))
            }
        };
        self.record_and_mark(path, version, unmarked).await
    }

    /// Records that the path holds the desired content, and marks it where the mark is missing. The time of an unmarked path is when the write
    /// began.
    ///
    /// If several installations write a version that all of them saw, Vault accepts one, and that one marks the path. The others wait that
    /// long before they take over content without a mark. An installation that was slow, or that has not written, reads the mark again: of
    /// several marks the last one counts.
    async fn record_and_mark(
        &mut self,
        path: &DesiredPath<'_>,
        version: Option<u64>,
        unmarked: Option<(&Found, Option<Instant>)>,
    ) -> Result<(), VaultError> {
        let written = Written { written: true, version, ..Written::intended(path.location) };
        self.outcome.record.paths.insert(path.text.clone(), written);
        if let Some((found, started)) = unmarked {
            let marked = self.paths.store.mark(path.location, &self.run.owner, found).await;
            let is_undisputed = started.is_some_and(|started| started.elapsed() < MARKED_WITHIN);
            if self.outcome.note_mark(path, marked)? && !is_undisputed {
                self.outcome.look_soon(UNDISTURBED);
            }
        }
        self.outcome.note_held(path);
        Ok(())
    }

    /// Whether the run may still write. The object may request something else by now, without the permission for this write, or another
    /// replica may have written since.
    fn may_write(&self) -> bool {
        self.paths.store.is_leader() && self.paths.bindings.is_current(self.run.key, self.binding)
    }

    fn log_write(&mut self, path: &DesiredPath<'_>, version: Option<u64>, how: &str) {
        self.outcome.wrote = true;
        tracing::info!(object = %self.run.key, path = path.text, keys = path.content.len(), version, "{how}");
    }

    fn refuse(&mut self, path: &DesiredPath<'_>, refusal: &Refusal) {
        self.paths.metrics.ours.conflicts.inc();
        self.outcome.statements.push(messages::refused(self.run.key.kind, &path.text, refusal));
        self.outcome.complete = false;
    }

    fn adopted(&mut self, statement: Statement) {
        self.paths.metrics.ours.adoptions.inc();
        self.outcome.statements.push(statement);
    }

    fn drifted(&mut self, path: &DesiredPath<'_>) {
        self.paths.metrics.ours.drift.inc();
        self.outcome.statements.push(messages::drifted(&path.text));
    }
}

impl SyncOutcome {
    /// No path is written yet. The outcome is incomplete from the start if the object does not get all its locations.
    pub(super) fn new(record: Record, statements: Vec<Statement>, prepared: &Prepared) -> Self {
        Self {
            record,
            statements,
            digests: BTreeMap::new(),
            complete: prepared.is_complete,
            marked: true,
            wrote: false,
            altered: None,
            refused: None,
            soon: None,
            expires: None,
        }
    }

    /// Records the time at which Vault deletes this version of a path, if it does.
    fn expire(&mut self, version: Option<&VersionState>) {
        self.expires = earlier(self.expires, version.and_then(|version| version.deletion));
    }

    /// Notes that the path holds the desired content.
    fn note_held(&mut self, path: &DesiredPath<'_>) {
        self.digests.extend(path.digest.map(|digest| (path.text.clone(), digest)));
    }

    /// Notes whether Vault took the mark of the path. Returns `true` if it did. Only an outage is an error.
    fn note_mark(&mut self, path: &DesiredPath<'_>, marked: Result<(), VaultError>) -> Result<bool, VaultError> {
        match marked {
            Ok(()) => return Ok(true),
            Err(error) if error.is_outage() => return Err(error),
            Err(error) => self.statements.push(messages::unmarked(&path.text, &error)),
        }
        self.marked = false;
        Ok(false)
    }

    /// The next run reads all paths after this pause.
    pub(super) fn look_soon(&mut self, after: Duration) {
        self.complete = false;
        self.soon = self.soon.max(Some(after));
    }

    /// This operator did not begin the content of the location.
    fn not_begun(&mut self, location: &str) {
        if let Some(written) = self.record.paths.get_mut(location) {
            written.begun = None;
        }
    }

    /// If Vault has answered, the write had no effect, or the record will say that it had.
    fn not_begun_unless_unknown<T>(&mut self, location: &str, result: &Result<T, VaultError>) {
        if !result.as_ref().is_err_and(|error| error.is_ambiguous() || error.is_outage()) {
            self.not_begun(location);
        }
    }

    /// An outage concerns all paths and ends the run. A refusal concerns one path, and the run goes on with the others. A conflict is
    /// reported only if it lasts.
    pub(super) fn unless_refused(
        &mut self,
        key: &ObjectRef,
        location: &Location,
        doing: Doing,
        result: Result<(), VaultError>,
    ) -> Result<(), PushError> {
        let Err(source) = result else { return Ok(()) };
        let error = PushError::Vault { doing, source };
        if error.is_outage() {
            return Err(error);
        }
        tracing::debug!(object = %key, path = %location, "{}", in_one_line(&error));
        self.complete = false;
        if !error.is_conflict() {
            self.statements.push(error.statement());
        }
        // A conflict can be retried at once, whatever the other errors are.
        if !self.refused.as_ref().is_some_and(PushError::is_conflict) {
            self.refused = Some(error);
        }
        Ok(())
    }
}

fn found_version(found: &Found) -> Option<u64> {
    found.live_version().map(|version| version.number)
}
