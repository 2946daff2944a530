//! The paths of one object: where they lead, whether it may have them, and what is done about each.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use konverge_core::{digest::ContentDigest, error::in_one_line};
use konverge_vault::{
    Deletion, Found, Location, Owner, VaultError,
    boundaries::{Place, is_allowed},
};
use tokio::time::Instant;

use super::{Doing, FEWER_FOR, Locations, PushError, Pusher, Targets, glance::Glance};
use crate::{
    asked::{DeletionPolicy, UpdatePolicy},
    bindings::{Asking, Binding, Push, Share, key_of},
    desired::{Lack, Made, Target},
    digest::digest,
    messages::Message,
    object::ObjectRef,
    plan::{Claim, Known, MARKED_WITHIN, Step, UNDISTURBED, plan, plan_once},
    record::{Record, Written},
    store::{ClearError, Cleared, Leaving, Unfinished},
};

/// What an object may write, after everything that can be said without its Secrets.
pub(super) struct Prepared {
    /// Its locations by what they are beneath its path.
    pub(super) locations: Locations,
    /// All that it names, these and those that are refused.
    named: BTreeSet<String>,
    /// Locations that it names but may not write or does not get. What is there stays.
    pub(super) refused: BTreeSet<String>,
}

/// One run for one object, as far as it is known before its Secrets are read.
pub(super) struct Run<'a> {
    pub(super) key: &'a ObjectRef,
    pub(super) binding: &'a Binding,
    pub(super) push: &'a Push,
    pub(super) prepared: &'a Prepared,
    /// As whom it marks what it writes.
    pub(super) owner: Owner,
    /// What was recorded before the run.
    pub(super) before: Option<&'a Record>,
    /// Whether Vault is looked at also where nothing changed here.
    pub(super) look: bool,
}

/// What became of all paths of an object.
pub(super) struct Done {
    pub(super) record: Record,
    pub(super) messages: Vec<Message>,
    pub(super) digests: BTreeMap<String, ContentDigest>,
    /// Whether all that was asked for is there.
    pub(super) complete: bool,
    /// Whether its owner is noted wherever that can be.
    pub(super) marked: bool,
    /// Whether anything was written.
    pub(super) wrote: bool,
    /// What Vault has against one of the paths, if it is no outage.
    pub(super) refused: Option<PushError>,
    /// How soon a path is looked at again, because another installation may be about to mark it or to have marked it, too.
    pub(super) soon: Option<Duration>,
}

impl Pusher {
    /// Finds out where the paths lead, and keeps those that the object may have. Nothing if there is none that could be.
    pub(super) async fn prepare(
        &self,
        key: &ObjectRef,
        push: &Push,
        messages: &mut Vec<Message>,
    ) -> Result<Option<Prepared>, PushError> {
        let prefix = cluster_prefix(self.policy.cluster.as_deref());
        let share = if push.asked.update == UpdatePolicy::Merge { Share::Keys } else { Share::Whole };
        let mut prepared = Prepared { locations: Locations::new(), named: BTreeSet::new(), refused: BTreeSet::new() };
        for target in push.wanted.targets() {
            let location = match push.path(&prefix, target) {
                Ok(path) => self.store.locate(&path, push.asked.mount.as_ref()).await,
                Err(error) => Err(VaultError::Path(error)),
            };
            let location = match location {
                Ok(location) => location,
                Err(VaultError::Path(error)) => {
                    messages.push(Message::invalid_path(&error));
                    // All of them begin alike.
                    return Ok(None);
                }
                Err(error) => return Err(error.into()),
            };
            let text = location.to_string();
            let is_first = prepared.named.is_empty();
            prepared.named.insert(text.clone());
            if is_first && push.asked.mount.as_ref().is_some_and(|claimed| claimed != location.mount()) {
                messages.push(Message::other_engine(key.kind, location.mount()));
            }
            let place = Place { namespace: &key.namespace, name: &key.name, cluster: self.policy.cluster.as_deref() };
            if !is_allowed(&self.policy.rules, &place, &location) {
                messages.push(Message::not_allowed(&key.namespace, &text));
                prepared.refused.insert(text);
            } else if let Err(holder) = self.bindings.claim(key, &text, share) {
                self.metrics.conflicted();
                messages.push(Message::claimed(&text, &holder));
                prepared.refused.insert(text);
            } else {
                prepared.locations.insert(target.to_owned(), location);
            }
        }
        self.wake(self.bindings.release_unwanted(key, |location| prepared.named.contains(location)));
        self.metrics.discovered(key, push.wanted.targets().len());
        Ok(Some(prepared))
    }

    /// What the record says counts where the object may write and no other has the location. Elsewhere the mark in Vault alone does: whoever
    /// may annotate an object may also have written the record.
    pub(super) fn claim(&self, key: &ObjectRef, location: &Location, written: &Written) -> Claim {
        let place = Place { namespace: &key.namespace, name: &key.name, cluster: self.policy.cluster.as_deref() };
        let share = if written.keys.is_some() { Share::Keys } else { Share::Whole };
        let counts = (written.written || written.begun.is_some())
            && is_allowed(&self.policy.rules, &place, location)
            && self.bindings.claim(key, &location.to_string(), share).is_ok();
        if counts { Claim::recorded(written) } else { Claim::Intended }
    }

    /// Brings each of these paths in step.
    pub(super) async fn write_all(
        &self,
        run: &Run<'_>,
        targets: Targets,
        glance: &mut Option<Glance>,
        done: &mut Done,
    ) -> Result<(), PushError> {
        for (beneath, target) in targets {
            let Some(location) = run.prepared.locations.get(&beneath) else { continue };
            match target {
                Target::Keep(lack) => self.lack(run.key, location, &lack, done),
                Target::Content(made) => {
                    let written = self.write_one(run, location, made, Glance::at(glance, location), done).await;
                    done.unless_refused(run.key, location, Doing::Write, written)?;
                }
            }
        }
        Ok(())
    }

    fn lack(&self, key: &ObjectRef, location: &Location, lack: &Lack, done: &mut Done) {
        match lack {
            Lack::Secret { name, optional: false } => self.metrics.secret_not_found(&key.namespace, name),
            Lack::Key { secret, key: missing, .. } => self.metrics.key_missing(&key.namespace, secret, missing),
            Lack::Secret { .. }
            | Lack::Empty
            | Lack::Binary { .. }
            | Lack::Large { .. }
            | Lack::LargeSecrets { .. } => {}
        }
        done.messages.push(Message::lacking(key.kind, &location.to_string(), lack));
    }

    async fn write_one(
        &self,
        run: &Run<'_>,
        location: &Location,
        made: Made,
        found: Option<Result<Found, VaultError>>,
        done: &mut Done,
    ) -> Result<(), VaultError> {
        let Run { key, binding, push, owner, before: recorded_before, look, .. } = run;
        let Made { content, encoded } = made;
        let text = location.to_string();
        let digest = digest(&self.digest_key, content.iter());
        let before = binding.held.get(&text).copied();
        let recorded = done.record.paths.get(&text).cloned().unwrap_or_else(|| Written::intended(location));
        if !encoded.is_empty() {
            done.messages.push(Message::encoded(&text, &encoded));
        }
        if !*look && (recorded.written || recorded.left) && digest.is_some() && before == digest {
            done.digests.extend(digest.map(|digest| (text, digest)));
            return Ok(());
        }
        let known = if before.is_some() && before == digest { Known::Same } else { Known::Changed };
        if push.asked.update == UpdatePolicy::Merge {
            return self.merge_one(run, location, &content, known, digest, done).await;
        }
        let known_before = recorded_before.and_then(|before| before.paths.get(&text));
        // What it never had is probably free. Vault tells if it is not.
        if push.asked.update == UpdatePolicy::Replace && known_before.is_none() && self.may_write(key, binding) {
            let started = Instant::now();
            let created = self.store.create(location, &content).await;
            done.not_begun_unless_unknown(&text, &created);
            if let Some(version) = created? {
                done.wrote = true;
                tracing::info!(object = %key, path = text, keys = content.len(), version, "written");
                let unmarked = Some((&Found::Absent, Some(started)));
                return self.written(run, location, Some(version), unmarked, digest, done).await;
            }
        }
        let found = match found {
            Some(found) => found?,
            None => self.store.look(location).await?,
        };
        let existing = push.asked.existing.unwrap_or(self.policy.existing);
        let claim = Claim::of(push.asked.update, known_before);
        let step = match push.asked.update {
            UpdatePolicy::IfNotExists => plan_once(&content, &found, owner, claim),
            UpdatePolicy::Replace | UpdatePolicy::Merge => plan(&content, &found, owner, claim, existing, known),
        };
        let step = match step {
            Ok(step) => step,
            Err(refusal) => {
                self.metrics.conflicted();
                done.messages.push(Message::refused(key.kind, &text, &refusal));
                done.not_begun(&text);
                done.complete = false;
                return Ok(());
            }
        };
        let mut version = found_version(&found);
        let mut started = None;
        let mark = match step {
            Step::Nothing => false,
            Step::Mark => true,
            Step::Wait(rest) => {
                done.messages.push(Message::awaited(&text));
                done.look_soon(rest);
                return Ok(());
            }
            Step::Leave { ours, mark } => {
                done.messages.push(Message::left_alone(&text, ours));
                if !ours {
                    done.record.paths.insert(text.clone(), Written { left: true, ..Written::intended(location) });
                    done.digests.extend(digest.map(|digest| (text, digest)));
                    return Ok(());
                }
                mark
            }
            Step::Write { expected, mark, adopted, drifted } => {
                if !self.may_write(key, binding) {
                    done.complete = false;
                    return Ok(());
                }
                started = Some(Instant::now());
                let written = self.store.write(location, &content, expected).await;
                done.not_begun_unless_unknown(&text, &written);
                version = written?;
                done.wrote = true;
                if adopted {
                    self.metrics.adopted();
                    done.messages.push(Message::adopted(&text, location.mount().version()));
                }
                if drifted {
                    self.metrics.drifted();
                    done.messages.push(Message::drifted(&text));
                }
                tracing::info!(object = %key, path = text, keys = content.len(), version, "written");
                mark && version.is_some()
            }
        };
        self.written(run, location, version, mark.then_some((&found, started)), digest, done).await
    }

    /// Notes that what was wanted is there, and as whose, where the mark of that is missing; with it comes when the write began.
    ///
    /// Vault lets one of several write the version that they all saw, and he marks it. The others wait so long for that before they take over
    /// what carries no mark. Who was slow, or has not written at all, looks again whether the mark is still his: of several the last one counts.
    async fn written(
        &self,
        run: &Run<'_>,
        location: &Location,
        version: Option<u64>,
        unmarked: Option<(&Found, Option<Instant>)>,
        digest: Option<ContentDigest>,
        done: &mut Done,
    ) -> Result<(), VaultError> {
        let text = location.to_string();
        done.record.paths.insert(text.clone(), Written { written: true, version, ..Written::intended(location) });
        if let Some((found, started)) = unmarked {
            match self.store.mark(location, &run.owner, found).await {
                Ok(()) if started.is_some_and(|started| started.elapsed() < MARKED_WITHIN) => {}
                Ok(()) => done.look_soon(UNDISTURBED),
                Err(error) if error.is_outage() => return Err(error),
                Err(error) => {
                    done.messages.push(Message::unmarked(&text, &error));
                    done.marked = false;
                }
            }
        }
        done.digests.extend(digest.map(|digest| (text, digest)));
        Ok(())
    }

    /// Whoever had the last keys of a path takes all of it away, with what others may have put there at that moment.
    pub(super) fn warn_sharers(&self, key: &ObjectRef, location: &str, written: &Written, cleared: Cleared) {
        if written.keys.is_some() && cleared == Cleared::Deleted {
            self.wake(self.bindings.doubt_sharers(key, location));
        }
    }

    /// Gives up a location, with its keys if it has only these, and wakes who waited for it.
    fn release(&self, key: &ObjectRef, location: &str, written: &Written) {
        for name in written.keys.iter().flatten().chain(&written.pending) {
            self.wake(self.bindings.release(key, &key_of(location, name)));
        }
        self.wake(self.bindings.release(key, location));
    }

    /// Clears the locations that are recorded and that the object does not name any more.
    ///
    /// Not while nothing of what it names is in Vault because of some trouble: what it had there may be all that there is.
    pub(super) async fn clear_dropped(&self, run: &Run<'_>, done: &mut Done) -> Result<(), PushError> {
        let Run { key, binding, prepared, .. } = run;
        let dropped: Vec<_> = done
            .record
            .locations()
            .map(|(location, written)| (location, written.clone()))
            .filter(|(location, _)| !prepared.named.contains(&location.to_string()))
            .collect();
        if dropped.is_empty() {
            self.bindings.settle(key, binding, |now| now.fewer = None);
            return Ok(());
        }
        if done.digests.is_empty() && (!done.complete || done.messages.iter().any(Message::is_problem)) {
            return Ok(());
        }
        let by_selector = matches!(&binding.asking, Asking::Push(asked) if asked.wanted.selector().is_some());
        if by_selector && !self.is_asked_twice(key, binding) {
            done.look_soon(FEWER_FOR);
            return Ok(());
        }
        let (mut cleared, mut unknown) = (Vec::new(), Vec::new());
        for (location, written) in dropped {
            let text = location.to_string();
            let deleted = self.clear_one(run, &location, &written, done.record.deletion).await;
            match deleted {
                Ok(deleted) => {
                    self.warn_sharers(key, &text, &written, deleted);
                    done.record.paths.remove(&text);
                    self.release(key, &text, &written);
                    match deleted {
                        Cleared::Deleted => cleared.push(text),
                        Cleared::Unknown => unknown.push(text),
                        Cleared::Nothing => {}
                    }
                }
                Err(ClearError::Deposed) => return Err(PushError::Deposed),
                Err(ClearError::Vault(error)) => done.unless_refused(key, &location, Doing::Clear, Err(error))?,
            }
        }
        if !cleared.is_empty() {
            done.messages.push(Message::dropped(&cleared));
        }
        if !unknown.is_empty() {
            done.messages.push(Message::unknown(&unknown));
        }
        // What is recorded and leads nowhere was not written by us.
        let leading: BTreeSet<String> = done.record.locations().map(|(location, _)| location.to_string()).collect();
        done.record.paths.retain(|text, _| leading.contains(text));
        Ok(())
    }

    /// Clears one of those, unless it leads to one that is named.
    async fn clear_one(
        &self,
        run: &Run<'_>,
        recorded: &Location,
        written: &Written,
        deletion: DeletionPolicy,
    ) -> Result<Cleared, ClearError> {
        let Run { key, owner, prepared, .. } = run;
        let Some(location) = self.store.recorded(recorded).await? else { return Ok(Cleared::Nothing) };
        let text = location.to_string();
        if prepared.named.contains(&text) {
            return Ok(Cleared::Nothing);
        }
        let claim = self.claim(key, &location, written);
        let unfinished = Unfinished::Unknown;
        let leaving = Leaving { location: &location, owner, written, claim, unfinished, gone: false };
        self.store.clear(&leaving, vault_deletion(deletion)).await
    }
}

impl Done {
    pub(super) fn new(record: Record, messages: Vec<Message>) -> Self {
        Self {
            record,
            messages,
            digests: BTreeMap::new(),
            complete: true,
            marked: true,
            wrote: false,
            refused: None,
            soon: None,
        }
    }

    /// All of it is looked at again after this.
    fn look_soon(&mut self, after: Duration) {
        self.complete = false;
        self.soon = self.soon.max(Some(after));
    }

    /// What is there was not begun by us.
    fn not_begun(&mut self, location: &str) {
        if let Some(written) = self.record.paths.get_mut(location) {
            written.begun = None;
        }
    }

    /// Where Vault has answered, it was not made, or it will be recorded that it was.
    fn not_begun_unless_unknown<T>(&mut self, location: &str, outcome: &Result<T, VaultError>) {
        if !outcome.as_ref().is_err_and(|error| error.is_ambiguous() || error.is_outage()) {
            self.not_begun(location);
        }
    }

    /// An outage concerns all paths and ends the run; a refusal concerns this one, and the others go on. That somebody was faster is told
    /// only by whoever finds it lasting.
    fn unless_refused(
        &mut self,
        key: &ObjectRef,
        location: &Location,
        doing: Doing,
        outcome: Result<(), VaultError>,
    ) -> Result<(), PushError> {
        let Err(source) = outcome else { return Ok(()) };
        let error = PushError::Vault { doing, source };
        if error.is_outage() {
            return Err(error);
        }
        tracing::debug!(object = %key, path = %location, "{}", in_one_line(&error));
        self.complete = false;
        if !error.is_conflict() {
            self.messages.push(Message::failed(&error));
        }
        // A conflict can be tried again at once, whatever else there is.
        if !self.refused.as_ref().is_some_and(PushError::is_conflict) {
            self.refused = Some(error);
        }
        Ok(())
    }
}

/// What stands before every path.
pub(crate) fn cluster_prefix(cluster: Option<&str>) -> String {
    cluster.map(|cluster| format!("clusters/{cluster}/")).unwrap_or_default()
}

/// How Vault is told to delete; nothing if what was written stays.
pub(crate) fn vault_deletion(policy: DeletionPolicy) -> Option<Deletion> {
    match policy {
        DeletionPolicy::Soft => Some(Deletion::Soft),
        DeletionPolicy::Destroy => Some(Deletion::Destroy),
        DeletionPolicy::Metadata => Some(Deletion::Metadata),
        DeletionPolicy::Keep => None,
    }
}

pub(super) fn found_version(found: &Found) -> Option<u64> {
    match found {
        Found::Live(secret) => secret.version.as_ref().map(|version| version.number),
        Found::Deleted(_) | Found::Absent => None,
    }
}
