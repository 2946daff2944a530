//! The end of an object. If it is deleted or requests nothing any more, its paths are cleared, then it is released. If it went before its
//! record was written, the paths in the journal are cleared.

use std::{collections::BTreeMap, time::Duration};

use jiff::Timestamp;
use konverge_apply::{Statement, conditions::whole_second, ledger::deleting_for};
use konverge_core::error::in_one_line;
use konverge_runtime::Action;
use konverge_vault::{Content, Deletion, Location, Owner};
use kube::{Api, Client, ResourceExt, core::DynamicObject};
use tokio::time::timeout;

use super::{
    COUNTED_AGAIN, Pusher,
    paths::{ClearedPaths, Locations},
    secret_reader::Targets,
};
use crate::{
    annotations::{PATH, STATUS},
    bindings::{Binding, LOOK_AGAIN, ParsedSpec},
    content::Target,
    deletions::Held,
    error::{APPROVAL, Doing, PushError},
    journal::Intention,
    messages,
    object::{Kind, ObjectRef, has_finalizer},
    orphans::{CONFIG_MAP, GonePath, Orphan},
    plan::Claim,
    record::{Record, Written},
    spec::DeletionPolicy,
    store::{Cleanup, ClearError, Cleared, Unfinished},
};

/// Content that stays loses its mark, so that others can have the path. The run tries that for this long.
const UNMARK_WITHIN: Duration = Duration::from_secs(2);

/// The postponement of the clearing.
enum PutOff {
    /// The clearing is not postponed.
    No,
    /// The object keeps its record. The next run decides.
    Until(Action),
    /// The object can go, because its paths are in the list of orphans.
    Remembered(Statement),
}

/// Clears and releases one object.
pub(super) struct Finalizer<'a> {
    pub(super) pusher: &'a Pusher,
    pub(super) key: &'a ObjectRef,
    pub(super) binding: &'a Binding,
}

impl Finalizer<'_> {
    /// Clears the paths of the object and releases it.
    pub(super) async fn finalize(&self) -> Result<Action, PushError> {
        let Self { pusher, key, binding } = self;
        if !binding.finalizer && binding.record.is_none() {
            self.forget();
            return Ok(Action::Done);
        }
        let recorded = match &binding.record {
            Some(record) => Ok(record.clone()),
            None => self.record_of_original().await,
        };
        let (record, cleared) = match recorded {
            Ok(record) => {
                let record = self.hand_over(record).await?;
                let cleared = match self.put_off(&record).await {
                    Ok(PutOff::Until(next)) => return Ok(next),
                    Ok(PutOff::Remembered(statement)) => Ok(vec![statement]),
                    Ok(PutOff::No) => self.clear_all(&record).await,
                    Err(error) => Err(error),
                };
                (record, cleared)
            }
            // Without an answer of Vault, the location of the path is unknown.
            Err(error) => (binding.new_record(Timestamp::now()), Err(error)),
        };
        let statements = match cleared.map_err(|error| error.when(Doing::Clear)) {
            Ok(statements) => statements,
            Err(
                error
                @ (PushError::Vault { .. } | PushError::Read { .. } | PushError::Slow { .. } | PushError::Held(_)),
            ) if self.is_overdue().await => {
                vec![self.leave_behind(&record, &error).await?]
            }
            Err(error) => return Err(error),
        };
        if !statements.is_empty() {
            pusher.reporter.say(key, binding, None, statements);
        }
        pusher.reporter.erase(key, &binding.uid).await?;
        pusher.journal.resolve(key);
        self.forget();
        Ok(Action::Done)
    }

    /// Postpones the clearing for the grace period.
    ///
    /// The record of an existing object holds the time of the last request. The paths of a deleted object go to the list of orphans, so that
    /// neither the object nor its namespace nor its successor waits.
    async fn put_off(&self, record: &Record) -> Result<PutOff, PushError> {
        let Self { pusher, key, binding } = self;
        if record.paths.is_empty() || self.deletion(record).in_vault().is_none() {
            return Ok(PutOff::No);
        }
        let now = Timestamp::now();
        let mut record = record.clone();
        record.leave(now);
        let grace = self.grace();
        pusher.count_deletions(key, &Record { deletion: self.deletion(&record), ..record.clone() });
        // Of a deleted object the period begins now, because its successor does not come before.
        let rest = match binding.deleting {
            Some(_) => grace,
            None => record.until_due(grace, now).max().unwrap_or_default(),
        };
        if rest.is_zero() {
            match self.check_all(&record) {
                Ok(()) => return Ok(PutOff::No),
                Err(Held::Uncounted) if binding.deleting.is_none() => {
                    return Ok(PutOff::Until(Action::After(COUNTED_AGAIN)));
                }
                Err(held) if binding.deleting.is_none() => return Err(held.into()),
                // The orphan waits, and nothing waits for the orphan.
                Err(_) => {}
            }
        }
        let due = now.checked_add(rest).unwrap_or(Timestamp::MAX);
        let paths: Vec<_> = record.paths.keys().cloned().collect();
        if binding.deleting.is_none() {
            let statement = messages::deletion_pending(&paths, whole_second(due));
            pusher.reporter.report(key, binding, Some(record), vec![statement]).await?;
            return Ok(PutOff::Until(Action::After(rest)));
        }
        // The orphan lacks the content of an unfinished write, so that content is cleared now.
        let is_unclear = |written: &Written| {
            !written.written && !written.left && written.version != Some(0) || !written.pending.is_empty()
        };
        if record.paths.values().any(is_unclear) || !self.remember(&record, Some(due)).await? {
            // Without a place in the list, the object itself waits for the approval, until its deadline.
            self.check_all(&record)?;
            return Ok(PutOff::No);
        }
        Ok(PutOff::Remembered(messages::deletion_awaits_heir(&paths, whole_second(due))))
    }

    /// Whether all paths of a record may be deleted now that no other object gets.
    fn check_all(&self, record: &Record) -> Result<(), Held> {
        let Self { pusher, key, .. } = self;
        let mut deleted =
            record.paths.iter().filter(|(path, written)| pusher.paths.heritage(key, path, written).is_none());
        deleted.try_for_each(|(path, _)| pusher.deletions.check(key, &record.uid, path, false))
    }

    /// Hands the paths of an object that stays over to the objects that request them. Returns the record of the other paths. The list of orphans hands
    /// over what a deleted object leaves.
    async fn hand_over(&self, mut record: Record) -> Result<Record, PushError> {
        let Self { pusher, key, binding } = self;
        if binding.deleting.is_some() {
            return Ok(record);
        }
        for (recorded, written) in record.clone().locations() {
            let text = recorded.to_string();
            let Some(heritage) = pusher.paths.heritage(key, &text, written) else { continue };
            if let Some(location) = self.within_limit(&recorded, pusher.paths.store.recorded(&recorded)).await?? {
                let owner = &pusher.paths.owner(key, &binding.uid).await?;
                let heirs = &pusher.paths.store.heirs(&heritage).await.map_err(PushError::unidentified)?;
                let claim = pusher.paths.claim(key, &location, written);
                let unfinished = Unfinished::Unknown;
                let cleanup = Cleanup { location: &location, owner, written, claim, unfinished, gone: false, heirs };
                let deletion = self.deletion(&record).in_vault();
                self.within_limit(&location, pusher.paths.store.clear(&cleanup, deletion)).await??;
            }
            record.paths.remove(&text);
            pusher.deletions.settle(key, &binding.uid, &text, false);
            // A watch may show the object again before its record is written.
            pusher.bindings.on_object(key, &binding.uid, |now| {
                if let Some(record) = &mut now.record {
                    record.paths.remove(&text);
                }
            });
            pusher.paths.release(key, &text, written);
        }
        Ok(record)
    }

    /// How long the paths stay that the object does not request, in case the request returns.
    fn grace(&self) -> Duration {
        let policy = &self.pusher.policy;
        let stated = match &self.binding.spec {
            ParsedSpec::Nothing { grace, .. } => *grace,
            ParsedSpec::Push(push) => push.spec.grace,
            ParsedSpec::Invalid(..) => None,
        };
        match self.binding.deleting {
            Some(_) => stated.unwrap_or(Duration::MAX).min(policy.grace_of_deleted()),
            None => stated.unwrap_or(policy.deletion_grace),
        }
    }

    /// Forgets the object, and wakes the objects that waited for its paths or its name.
    fn forget(&self) {
        if let Some(waiting) = self.pusher.bindings.cleared(self.key, &self.binding.uid) {
            self.pusher.metrics.forget(self.key);
            self.pusher.paths.wake(waiting);
        }
    }

    /// Returns a record for an object that has the finalizer and no record: the original operator wrote it, to the paths that the object names.
    async fn record_of_original(&self) -> Result<Record, PushError> {
        let Self { pusher, key, binding } = self;
        let mut record = binding.new_record(Timestamp::now());
        if let ParsedSpec::Push(push) = &binding.spec {
            let push = &*pusher.reader.resolve(key, push).await?;
            record.deletion = self.deletion(&record);
            let prepared = pusher.paths.prepare(key, push, &mut Vec::new()).await?;
            for location in prepared.iter().flat_map(|prepared| prepared.locations.values()) {
                record.paths.insert(location.to_string(), Written::intended(location));
            }
        }
        Ok(record)
    }

    /// Clears all paths. Returns the statements about that.
    async fn clear_all(&self, record: &Record) -> Result<Vec<Statement>, PushError> {
        let Self { pusher, key, binding } = self;
        let owner = pusher.paths.owner(key, &binding.uid).await?;
        let deletion = self.deletion(record).in_vault();
        if deletion.is_none() && binding.deleting.is_some() {
            self.unmark_all(record, &owner).await?;
            return Ok(Vec::new());
        }
        let mut left = self.locate(record).await?;
        let is_unfinished = |written: &Written| !written.written || !written.pending.is_empty();
        let push = match &binding.spec {
            ParsedSpec::Push(push) if record.paths.values().any(is_unfinished) => {
                Some(pusher.reader.resolve(key, push).await?)
            }
            _ => None,
        };
        // The content that unfinished writes would have made comes batch by batch.
        let mut unfinished = None;
        if let Some(push) = push.as_deref()
            && let Some(prepared) = pusher.paths.prepare(key, push, &mut Vec::new()).await?
        {
            unfinished = Some((pusher.reader.batches(key, push), prepared.locations));
        }
        let mut paths = ClearedPaths::default();
        while !left.is_empty() {
            let made = match &mut unfinished {
                Some((batches, locations)) => batches.next().await?.map(|targets| contents(targets, locations)),
                None => None,
            };
            // Paths that are in no batch come last.
            let is_next = |(location, _): &(Location, &Written)| {
                made.as_ref().is_none_or(|made| made.contains_key(&location.to_string()))
            };
            for (location, written) in left.extract_if(.., |path| is_next(path)) {
                let text = location.to_string();
                let content = made.as_ref().and_then(|made| made.get(&text)).filter(|_| !written.left);
                let cleared = self.clear_one(&location, written, (&owner, content, deletion)).await?;
                pusher.deletions.settle(key, &binding.uid, &text, cleared == Cleared::Deleted);
                paths.add(text, cleared);
            }
        }
        Ok(paths.statements(messages::cleared).collect())
    }

    /// Resolves the locations of a record. A location that cannot hold a secret is left out, because nothing was ever written there.
    async fn locate<'a>(&self, record: &'a Record) -> Result<Vec<(Location, &'a Written)>, PushError> {
        let mut located = Vec::new();
        for (location, written) in record.locations() {
            let recorded = self.pusher.paths.store.recorded(&location);
            let location = self.within_limit(&location, recorded).await??;
            located.extend(location.map(|location| (location, written)));
        }
        Ok(located)
    }

    /// Clears one path, whose unfinished write would have made this content.
    async fn clear_one(
        &self,
        location: &Location,
        written: &Written,
        (owner, content, deletion): (&Owner, Option<&Content>, Option<Deletion>),
    ) -> Result<Cleared, PushError> {
        let Self { pusher, key, .. } = self;
        let claim = pusher.paths.claim(key, location, written);
        let unfinished = content.map_or(Unfinished::Unknown, Unfinished::Made);
        let heirs = &pusher.paths.heirs(key, location, written).await.map_err(PushError::unidentified)?;
        let cleanup = Cleanup { location, owner, written, claim, unfinished, gone: false, heirs };
        let cleared = self.within_limit(location, self.pusher.paths.store.clear(&cleanup, deletion)).await??;
        let text = location.to_string();
        pusher.paths.warn_sharers(key, &text, written, cleared);
        if cleared == Cleared::Deleted {
            tracing::info!(object = %key, path = text, "deleted");
        }
        Ok(cleared)
    }

    /// Limits one request about a location. Vault may take longer than a deletion may wait.
    async fn within_limit<T>(&self, location: &Location, work: impl Future<Output = T>) -> Result<T, PushError> {
        let limit = self.pusher.policy.deadline().shortest();
        timeout(limit, work).await.map_err(|_| PushError::Slow { location: location.to_string(), limit })
    }

    /// How the object's paths are cleared: as the object says, even if the rest of it is invalid. If it says nothing, as it said when the
    /// operator wrote the paths.
    fn deletion(&self, record: &Record) -> DeletionPolicy {
        match &self.binding.spec {
            ParsedSpec::Push(push) => push.spec.deletion.unwrap_or(self.pusher.policy.default_deletion_policy),
            ParsedSpec::Invalid(_, said) | ParsedSpec::Nothing { deletion: said, .. } => {
                said.unwrap_or(record.deletion)
            }
        }
    }

    /// Takes our marks away, so that others can have the paths. The object waits only a moment for that. A path that is still marked then
    /// loses its mark later.
    async fn unmark_all(&self, record: &Record, owner: &Owner) -> Result<(), PushError> {
        let store = &self.pusher.paths.store;
        let unmark = async {
            for (location, written) in record.locations() {
                let Some(location) = store.recorded(&location).await? else { continue };
                let (claim, unfinished) = (Claim::Intended, Unfinished::Unknown);
                let heirs = &self.pusher.paths.heirs(self.key, &location, written).await?;
                let cleanup = Cleanup { location: &location, owner, written, claim, unfinished, gone: false, heirs };
                store.clear(&cleanup, None).await?;
            }
            Ok::<_, ClearError>(())
        };
        match timeout(UNMARK_WITHIN, unmark).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(ClearError::LeadershipLost)) => Err(PushError::LeadershipLost),
            Ok(Err(ClearError::Unidentified(_) | ClearError::Vault(_))) | Err(_) => {
                tracing::warn!(object = %self.key, "content that stays in Vault still carries its mark, because Vault does not serve");
                self.remember(record, None).await.map(drop)
            }
        }
    }

    /// Whether the object has waited as long as the platform allows. A gone object waits for nothing if its paths can be listed as orphans, because
    /// another object may wait for its name.
    async fn is_overdue(&self) -> bool {
        let Self { key, binding, .. } = self;
        let has_paths = binding.record.as_ref().is_some_and(|record| !record.paths.is_empty());
        if has_paths && self.pusher.bindings.has_escaped(key, &binding.uid) {
            return true;
        }
        let waited = deleting_for(binding.deleting, Timestamp::now());
        let deadline = self.pusher.policy.deadline();
        binding.deleting.is_some() && deadline.is_over(&self.pusher.client, &key.namespace, waited).await
    }

    /// Remembers the paths that are left behind, so that the operator clears them when it can.
    async fn leave_behind(&self, record: &Record, error: &PushError) -> Result<Statement, PushError> {
        let Self { key, binding, .. } = self;
        let (paths, remembered) = match &binding.spec {
            // As long as the engine is unknown, only the requested path is known.
            ParsedSpec::Push(push) if record.paths.is_empty() => {
                (vec![format!("{}{}", self.pusher.policy.prefix(), push.spec.path)], false)
            }
            _ => (record.paths.keys().cloned().collect(), self.remember(record, None).await?),
        };
        tracing::warn!(object = %key, paths = ?paths, "content of the object stays in Vault: {}", in_one_line(error));
        if !remembered && matches!(error, PushError::Held(_)) {
            // Nobody will delete them. They count as if they were deleted, so that the rest of a mass is held as before.
            for path in &paths {
                self.pusher.deletions.settle(key, &binding.uid, path, true);
            }
        }
        let is_gone = self.pusher.bindings.has_escaped(key, &binding.uid);
        let how = if is_gone {
            "the API server deleted the object despite its finalizer"
        } else {
            "released after its deadline"
        };
        Ok(messages::released(how, &paths, error, remembered.then_some(CONFIG_MAP)))
    }

    /// Adds the paths, and the time until which they stay, to the list of orphans. Returns `false` if that is impossible.
    async fn remember(&self, record: &Record, due: Option<Timestamp>) -> Result<bool, PushError> {
        let Self { pusher, key, binding } = self;
        let mut left = Record { uid: binding.uid.clone(), deletion: self.deletion(record), ..record.clone() };
        for (location, written) in record.locations() {
            let counts = pusher.paths.claim(key, &location, written) != Claim::Intended;
            let (written, begun) = (written.clone(), written.begun.filter(|_| counts));
            left.paths.insert(location.to_string(), Written { written: written.written && counts, begun, ..written });
        }
        match self.pusher.orphans.add(&Orphan::new(key, left).with_due(due)).await {
            // The log and the event name the paths.
            Err(error) if error.is_final() => {
                let paths: Vec<&String> = record.paths.keys().collect();
                tracing::error!(object = %key, paths = ?paths, "{}", in_one_line(&error));
                Ok(false)
            }
            added => Ok(added.map(|()| true)?),
        }
    }
}

/// Clears the intentions of objects that are gone or request nothing any more.
pub(super) async fn abandon(pusher: &Pusher, key: &ObjectRef, intentions: &[Intention]) -> Result<Action, PushError> {
    let spec = uid_if_requesting(&pusher.client, key).await?;
    for intention in intentions {
        let uid = &intention.record().uid;
        if spec.as_ref() == Some(uid) {
            pusher.deletions.resume(uid);
            // A watch will show the object, if this program watches it.
            return Ok(Action::After(LOOK_AGAIN));
        }
    }
    // The object may have gone while a run was claiming its paths. Nobody else would release them.
    if pusher.bindings.get(key).is_none() {
        pusher.paths.wake(pusher.bindings.release_unwanted(key, |_| false));
    }
    for intention in intentions {
        match clear_intended(pusher, key, intention).await {
            // The list of orphans shows that deletions are stopped, because there is no object to report on.
            Err(PushError::Held(Held::Stopped(_))) => return Ok(Action::After(APPROVAL)),
            Err(PushError::Held(Held::Uncounted)) => return Ok(Action::After(COUNTED_AGAIN)),
            cleared => cleared?,
        }
    }
    pusher.journal.resolve(key);
    Ok(Action::Done)
}

/// The uid of the object, if it exists and may request a push.
async fn uid_if_requesting(client: &Client, key: &ObjectRef) -> Result<Option<String>, PushError> {
    let api = Api::<DynamicObject>::namespaced_with(client.clone(), &key.namespace, &key.kind.resource());
    let found = api.get_metadata_opt(&key.name).await;
    let found = found.map_err(|source| PushError::unreadable(key.to_string(), source))?;
    Ok(found
        .filter(|object| {
            let annotations = object.annotations();
            key.kind == Kind::VaultPush
                || annotations.contains_key(PATH)
                || annotations.contains_key(STATUS)
                || has_finalizer(&object.metadata)
        })
        .and_then(|object| object.uid()))
}

/// Clears what was begun for an object, if the guard allows the deletion of all of it.
async fn clear_intended(pusher: &Pusher, key: &ObjectRef, intention: &Intention) -> Result<(), PushError> {
    let record = intention.record();
    let owner = pusher.paths.owner(key, &record.uid).await?;
    let deletion = record.deletion.in_vault();
    let is_inherited = |path: &str, written: &Written| pusher.heirs.is_inherited(key, path, written);
    pusher.deletions.abandon(key, record, is_inherited);
    let mut deleted = record.paths.iter().filter(|(path, written)| deletion.is_some() && !is_inherited(path, written));
    deleted.try_for_each(|(path, _)| pusher.deletions.check(key, &record.uid, path, true))?;
    for (location, written) in record.locations() {
        let path = location.to_string();
        let unfinished = intention.unfinished(&path);
        let (heritage, what) = (None, "what was begun");
        let gone = GonePath { key, owner: &owner, location: &location, written, unfinished, heritage, what };
        match pusher.heirs.clear(gone, deletion).await {
            Ok(cleared) => pusher.deletions.settle(key, &record.uid, &path, cleared == Cleared::Deleted),
            Err(error) => {
                tracing::debug!(object = %key, path, "what was begun is not cleared yet: {}", in_one_line(&error));
                return Err(error.into());
            }
        }
    }
    pusher.deletions.resume(&record.uid);
    Ok(())
}

/// The content of each location.
fn contents(targets: Targets, locations: &Locations) -> BTreeMap<String, Content> {
    let located = |(target, desired): (String, Target)| match desired {
        Target::Content(made) => Some((locations.get(&target)?.to_string(), made.content)),
        Target::Keep(_) => None,
    };
    targets.into_iter().filter_map(located).collect()
}
