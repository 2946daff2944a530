//! Writing the paths of one object: compare, plan, write, mark.

mod merge;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use konverge_apply::Statement;
use konverge_core::{
    digest::{ContentDigest, DigestKey},
    error::in_one_line,
};
use konverge_vault::{Content, Expected, Found, Location, Owner, VaultError};
use tokio::time::Instant;

use super::{
    Parts,
    path_claims::{PathClaims, Prepared},
    secret_reader::Targets,
    speculative_read::SpeculativeRead,
};
use crate::{
    bindings::{Binding, Bindings, Push},
    content::{Lack, Made, Target},
    digest::digest,
    error::{Doing, PushError},
    messages,
    metrics::Metrics,
    object::ObjectRef,
    plan::{Claim, Known, MARKED_WITHIN, Step, UNDISTURBED, plan, plan_once},
    record::{Record, Written},
    refusal::Refusal,
    spec::{ExistingPolicy, UpdatePolicy},
    store::Store,
};

/// One run for one object, as far as it is known before its Secrets are read.
pub(super) struct SyncRun<'a> {
    pub(super) key: &'a ObjectRef,
    pub(super) binding: &'a Binding,
    pub(super) push: &'a Push,
    pub(super) prepared: &'a Prepared,
    /// The owner in the marks of this run.
    pub(super) owner: Owner,
    /// The record before the run.
    pub(super) before: Option<&'a Record>,
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
    /// The refusal of one of the paths, if it is no outage.
    pub(super) refused: Option<PushError>,
    /// When the run wants to read a path again, because another installation may be about to mark it, or may have marked it, too.
    pub(super) soon: Option<Duration>,
}

/// A path and its desired content.
struct DesiredPath<'a> {
    location: &'a Location,
    text: String,
    content: Content,
    digest: Option<ContentDigest>,
    known: Known,
}

/// Writes paths.
pub(super) struct PathWriter {
    store: Store,
    claims: PathClaims,
    bindings: Arc<Bindings>,
    metrics: Metrics,
    digest_key: Arc<DigestKey>,
    /// How existing content without an owner is treated unless the object says.
    existing: ExistingPolicy,
}

impl PathWriter {
    pub(super) fn new(parts: &Parts, claims: PathClaims) -> Self {
        Self {
            store: parts.store.clone(),
            claims,
            bindings: Arc::clone(&parts.bindings),
            metrics: parts.metrics.clone(),
            digest_key: Arc::clone(&parts.digest_key),
            existing: parts.policy.existing,
        }
    }

    /// Writes each of these paths that is not in sync.
    pub(super) async fn write_all(
        &self,
        run: &SyncRun<'_>,
        targets: Targets,
        read: &mut Option<SpeculativeRead>,
        outcome: &mut SyncOutcome,
    ) -> Result<(), PushError> {
        for (target, desired) in targets {
            let Some(location) = run.prepared.locations.get(&target) else { continue };
            match desired {
                Target::Keep(lack) => self.lack(run.key, location, &lack, outcome),
                Target::Content(made) => {
                    let read = SpeculativeRead::take(read, location);
                    let written = self.write_one(run, location, made, read, outcome).await;
                    outcome.unless_refused(run.key, location, Doing::Write, written)?;
                }
            }
        }
        Ok(())
    }

    fn lack(&self, key: &ObjectRef, location: &Location, lack: &Lack, outcome: &mut SyncOutcome) {
        match lack {
            Lack::Secret { name, optional: false } => self.metrics.secret_not_found(&key.namespace, name),
            Lack::Key { secret, key: missing, .. } => self.metrics.key_missing(&key.namespace, secret, missing),
            Lack::Secret { .. }
            | Lack::Empty
            | Lack::Binary { .. }
            | Lack::Large { .. }
            | Lack::LargeSecrets { .. } => {}
        }
        outcome.statements.push(messages::lacking(key.kind, &location.to_string(), lack));
    }

    async fn write_one(
        &self,
        run: &SyncRun<'_>,
        location: &Location,
        made: Made,
        read: Option<Result<Found, VaultError>>,
        outcome: &mut SyncOutcome,
    ) -> Result<(), VaultError> {
        let Made { content, encoded } = made;
        let text = location.to_string();
        let digest = digest(&self.digest_key, content.iter());
        let held = run.binding.held.get(&text).copied();
        let is_same = held.is_some() && held == digest;
        if !encoded.is_empty() {
            outcome.statements.push(messages::encoded(&text, &encoded));
        }
        let recorded = outcome.record.paths.get(&text);
        if !run.verify && is_same && recorded.is_some_and(|recorded| recorded.written || recorded.left) {
            outcome.digests.extend(digest.map(|digest| (text, digest)));
            return Ok(());
        }
        let known = if is_same { Known::Same } else { Known::Changed };
        let path = DesiredPath { location, text, content, digest, known };
        let recorded = run.before.and_then(|before| before.paths.get(&path.text));
        match run.push.spec.update {
            UpdatePolicy::Merge => return self.merge(run, &path, outcome).await,
            // A path that the object never had is probably free. Vault tells if it is not.
            UpdatePolicy::Replace if recorded.is_none() && self.create(run, &path, outcome).await? => return Ok(()),
            UpdatePolicy::Replace | UpdatePolicy::IfNotExists => {}
        }
        let found = match read {
            Some(found) => found?,
            None => self.store.look(location).await?,
        };
        match self.plan(run, &path, &found, recorded) {
            Ok(step) => self.carry_out(run, &path, &found, step, outcome).await,
            Err(refusal) => {
                self.metrics.conflicted();
                outcome.statements.push(messages::refused(run.key.kind, &path.text, &refusal));
                outcome.not_begun(&path.text);
                outcome.complete = false;
                Ok(())
            }
        }
    }

    /// Writes a path that has never had a version. Returns `false` if it has had one.
    async fn create(
        &self,
        run: &SyncRun<'_>,
        path: &DesiredPath<'_>,
        outcome: &mut SyncOutcome,
    ) -> Result<bool, VaultError> {
        if !self.may_write(run) {
            return Ok(false);
        }
        let started = Instant::now();
        let created = self.store.create(path.location, &path.content).await;
        outcome.not_begun_unless_unknown(&path.text, &created);
        let Some(version) = created? else { return Ok(false) };
        outcome.wrote = true;
        tracing::info!(object = %run.key, path = path.text, keys = path.content.len(), version, "written");
        self.written(run, path, Some(version), Some((&Found::Absent, Some(started))), outcome).await?;
        Ok(true)
    }

    fn plan(
        &self,
        run: &SyncRun<'_>,
        path: &DesiredPath<'_>,
        found: &Found,
        recorded: Option<&Written>,
    ) -> Result<Step, Refusal> {
        let update = run.push.spec.update;
        let claim = Claim::of(update, recorded);
        if update == UpdatePolicy::IfNotExists {
            return plan_once(&path.content, found, &run.owner, claim);
        }
        let existing = run.push.spec.existing.unwrap_or(self.existing);
        plan(&path.content, found, &run.owner, claim, existing, path.known)
    }

    async fn carry_out(
        &self,
        run: &SyncRun<'_>,
        path: &DesiredPath<'_>,
        found: &Found,
        step: Step,
        outcome: &mut SyncOutcome,
    ) -> Result<(), VaultError> {
        let mut version = found_version(found);
        let unmarked = match step {
            Step::Wait(rest) => {
                outcome.statements.push(messages::awaited(&path.text));
                outcome.look_soon(rest);
                return Ok(());
            }
            Step::Leave { ours: false, .. } => {
                outcome.statements.push(messages::left_alone(&path.text, false));
                let left = Written { left: true, ..Written::intended(path.location) };
                outcome.record.paths.insert(path.text.clone(), left);
                outcome.digests.extend(path.digest.map(|digest| (path.text.clone(), digest)));
                return Ok(());
            }
            Step::Leave { ours: true, mark } => {
                outcome.statements.push(messages::left_alone(&path.text, true));
                mark.then_some((found, None))
            }
            Step::Nothing => None,
            Step::Mark => Some((found, None)),
            Step::Write { .. } if !self.may_write(run) => {
                outcome.complete = false;
                return Ok(());
            }
            Step::Write { expected, mark, adopted, drifted } => {
                let started = Instant::now();
                version = self.write(run, path, expected, outcome).await?;
                if adopted {
                    self.metrics.adopted();
                    outcome.statements.push(messages::adopted(&path.text, path.location.mount().version()));
                }
                if drifted {
                    self.metrics.drifted();
                    outcome.statements.push(messages::drifted(&path.text));
                }
                (mark && version.is_some()).then_some((found, Some(started)))
            }
        };
        self.written(run, path, version, unmarked, outcome).await
    }

    async fn write(
        &self,
        run: &SyncRun<'_>,
        path: &DesiredPath<'_>,
        expected: Expected,
        outcome: &mut SyncOutcome,
    ) -> Result<Option<u64>, VaultError> {
        let written = self.store.write(path.location, &path.content, expected).await;
        outcome.not_begun_unless_unknown(&path.text, &written);
        let version = written?;
        outcome.wrote = true;
        tracing::info!(object = %run.key, path = path.text, keys = path.content.len(), version, "written");
        Ok(version)
    }

    /// Records that the path holds the desired content, and marks it where the mark is missing. The time of an unmarked path is when the write
    /// began.
    ///
    /// If several installations write a version that all of them saw, Vault accepts one, and that one marks the path. The others wait that
    /// long before they take over content without a mark. An installation that was slow, or that has not written, reads the mark again: of
    /// several marks the last one counts.
    async fn written(
        &self,
        run: &SyncRun<'_>,
        path: &DesiredPath<'_>,
        version: Option<u64>,
        unmarked: Option<(&Found, Option<Instant>)>,
        outcome: &mut SyncOutcome,
    ) -> Result<(), VaultError> {
        let written = Written { written: true, version, ..Written::intended(path.location) };
        outcome.record.paths.insert(path.text.clone(), written);
        if let Some((found, started)) = unmarked {
            match self.store.mark(path.location, &run.owner, found).await {
                Ok(()) if started.is_some_and(|started| started.elapsed() < MARKED_WITHIN) => {}
                Ok(()) => outcome.look_soon(UNDISTURBED),
                Err(error) if error.is_outage() => return Err(error),
                Err(error) => {
                    outcome.statements.push(messages::unmarked(&path.text, &error));
                    outcome.marked = false;
                }
            }
        }
        outcome.digests.extend(path.digest.map(|digest| (path.text.clone(), digest)));
        Ok(())
    }

    /// Whether the run may still write. The object may request something else by now, without the permission for this write, or another
    /// replica may have written since.
    fn may_write(&self, run: &SyncRun<'_>) -> bool {
        self.store.leads() && self.bindings.is_current(run.key, run.binding)
    }
}

impl SyncOutcome {
    /// No path is written yet. The outcome is incomplete from the start if the object does not get all its locations.
    pub(super) fn new(record: Record, statements: Vec<Statement>, prepared: &Prepared) -> Self {
        Self {
            record,
            statements,
            digests: BTreeMap::new(),
            complete: prepared.refused.is_empty(),
            marked: true,
            wrote: false,
            refused: None,
            soon: None,
        }
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
    match found {
        Found::Live(secret) => secret.version.as_ref().map(|version| version.number),
        Found::Deleted(_) | Found::Absent => None,
    }
}
