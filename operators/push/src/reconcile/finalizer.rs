//! The finalizer of an object that is deleted or requests nothing any more: its paths are cleared, then it is released.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use jiff::Timestamp;
use konverge_apply::{Statement, ledger::deleting_for};
use konverge_core::error::in_one_line;
use konverge_runtime::Action;
use konverge_vault::{Content, Deletion, Location, Owner};
use kube::Client;
use tokio::time::timeout;

use super::{
    Parts, owner,
    path_claims::{Locations, PathClaims, Prepared},
    reporter::Reporter,
    secret_reader::{SecretBatches, SecretReader},
};
use crate::{
    bindings::{Binding, Bindings, ParsedSpec},
    content::Target,
    error::{Doing, PushError},
    journal::Journal,
    ledger::Ledger,
    messages,
    metrics::Metrics,
    object::ObjectRef,
    orphans::{Orphan, Orphans},
    plan::Claim,
    policy::Policy,
    record::{Record, Written},
    spec::DeletionPolicy,
    store::{Cleanup, ClearError, Cleared, Store, Unfinished},
};

/// Content that stays loses its mark, so that others can have the path. The run tries that for this long.
const UNMARK_WITHIN: Duration = Duration::from_secs(2);

/// Clears and releases objects.
pub(super) struct Finalizer {
    client: Client,
    reader: SecretReader,
    store: Store,
    ledger: Ledger,
    journal: Journal,
    orphans: Orphans,
    claims: PathClaims,
    reporter: Reporter,
    bindings: Arc<Bindings>,
    metrics: Metrics,
    policy: Arc<Policy>,
}

impl Finalizer {
    pub(super) fn new(parts: Parts, reader: SecretReader, claims: PathClaims, reporter: Reporter) -> Self {
        Self {
            reader,
            store: parts.store,
            ledger: Ledger::new(parts.client.clone()),
            client: parts.client,
            journal: parts.journal,
            orphans: parts.orphans,
            claims,
            reporter,
            bindings: parts.bindings,
            metrics: parts.metrics,
            policy: parts.policy,
        }
    }

    /// Clears the paths of the object and releases it.
    pub(super) async fn finalize(&self, key: &ObjectRef, binding: &Binding) -> Result<Action, PushError> {
        if !binding.finalizer && binding.record.is_none() {
            self.forget(key, binding);
            return Ok(Action::Done);
        }
        let recorded = match &binding.record {
            Some(record) => Ok(record.clone()),
            None => self.record_of_original(key, binding).await,
        };
        let (record, cleared) = match recorded {
            Ok(record) => {
                let cleared = self.clear_all(key, binding, &record).await;
                (record, cleared)
            }
            // Without an answer of Vault, the location of the path is unknown.
            Err(error) => (binding.new_record(Timestamp::now()), Err(error)),
        };
        let statements = match cleared.map_err(|error| error.when(Doing::Clear)) {
            Ok(statements) => statements,
            Err(error @ (PushError::Vault { .. } | PushError::Read { .. } | PushError::Slow { .. }))
                if self.is_overdue(key, binding).await =>
            {
                vec![self.leave_behind(key, binding, &record, &error).await?]
            }
            Err(error) => return Err(error),
        };
        if !statements.is_empty() {
            self.reporter.say(key, binding, None, statements);
        }
        self.ledger.erase(key, &binding.uid).await?;
        self.journal.resolve(key);
        self.forget(key, binding);
        Ok(Action::Done)
    }

    /// Forgets the object, and wakes the objects that waited for its paths or its name.
    fn forget(&self, key: &ObjectRef, binding: &Binding) {
        if let Some(waiting) = self.bindings.cleared(key, &binding.uid) {
            self.metrics.forget(key);
            self.claims.wake(waiting);
        }
    }

    /// Returns a record for an object that has the finalizer and no record: the original operator wrote it, to the paths that the object names.
    async fn record_of_original(&self, key: &ObjectRef, binding: &Binding) -> Result<Record, PushError> {
        let mut record = binding.new_record(Timestamp::now());
        if let ParsedSpec::Push(push) = &binding.spec {
            let push = &*self.reader.resolve(key, push).await?;
            record.deletion = push.spec.deletion.unwrap_or(self.policy.deletion);
            let prepared = self.claims.prepare(key, push, &mut Vec::new()).await?;
            for location in prepared.iter().flat_map(|prepared| prepared.locations.values()) {
                record.paths.insert(location.to_string(), Written::intended(location));
            }
        }
        Ok(record)
    }

    /// Clears all paths. Returns the statements about that.
    async fn clear_all(
        &self,
        key: &ObjectRef,
        binding: &Binding,
        record: &Record,
    ) -> Result<Vec<Statement>, PushError> {
        let owner = owner(&self.store, key, &binding.uid).await?;
        let deletion = self.deletion(binding, record).in_vault();
        if deletion.is_none() && binding.deleting.is_some() {
            self.unmark_all(key, binding, record, &owner).await?;
            return Ok(Vec::new());
        }
        let mut left = self.locate(record).await?;
        let is_unfinished = |written: &Written| !written.written || !written.pending.is_empty();
        let push = match &binding.spec {
            ParsedSpec::Push(push) if record.paths.values().any(is_unfinished) => {
                Some(self.reader.resolve(key, push).await?)
            }
            _ => None,
        };
        let mut unfinished = None;
        if let Some(push) = push.as_deref()
            && let Some(prepared) = self.claims.prepare(key, push, &mut Vec::new()).await?
        {
            unfinished = Some(UnfinishedWrites::new(self.reader.batches(key, push), prepared));
        }
        let (mut cleared, mut unknown) = (Vec::new(), Vec::new());
        while !left.is_empty() {
            let made = match &mut unfinished {
                Some(unfinished) => unfinished.next().await?,
                None => None,
            };
            // Paths that are in no batch come last.
            let is_next = |(location, _): &(Location, &Written)| {
                made.as_ref().is_none_or(|made| made.contains_key(&location.to_string()))
            };
            for (location, written) in left.extract_if(.., |path| is_next(path)) {
                let text = location.to_string();
                let content = made.as_ref().and_then(|made| made.get(&text)).filter(|_| !written.left);
                match self.clear_one(key, &location, written, (&owner, content, deletion)).await? {
                    Cleared::Deleted => cleared.push(text),
                    Cleared::Unknown => unknown.push(text),
                    Cleared::Nothing => {}
                }
            }
        }
        let cleared = (!cleared.is_empty()).then(|| messages::cleared(&cleared));
        let unknown = (!unknown.is_empty()).then(|| messages::unknown(&unknown));
        Ok(cleared.into_iter().chain(unknown).collect())
    }

    /// Resolves the locations of a record. A location that cannot hold a secret is left out, because nothing was ever written there.
    async fn locate<'a>(&self, record: &'a Record) -> Result<Vec<(Location, &'a Written)>, PushError> {
        let mut located = Vec::new();
        for (location, written) in record.locations() {
            let recorded = self.store.recorded(&location);
            let location = within(self.limit(), &location.to_string(), recorded).await??;
            located.extend(location.map(|location| (location, written)));
        }
        Ok(located)
    }

    /// Clears one path, whose unfinished write would have made this content.
    async fn clear_one(
        &self,
        key: &ObjectRef,
        location: &Location,
        written: &Written,
        (owner, content, deletion): (&Owner, Option<&Content>, Option<Deletion>),
    ) -> Result<Cleared, PushError> {
        let text = location.to_string();
        let claim = self.claims.claim(key, location, written);
        let unfinished = content.map_or(Unfinished::Unknown, Unfinished::Made);
        let cleanup = Cleanup { location, owner, written, claim, unfinished, gone: false };
        let cleared = within(self.limit(), &text, self.store.clear(&cleanup, deletion)).await??;
        self.claims.warn_sharers(key, &text, written, cleared);
        if cleared == Cleared::Deleted {
            tracing::info!(object = %key, path = text, "deleted");
        }
        Ok(cleared)
    }

    /// The longest time for one request.
    fn limit(&self) -> Duration {
        self.policy.deadline.shortest()
    }

    /// How the object's paths are cleared: as the object says, even if the rest of it is invalid. If it says nothing, as it said when the
    /// operator wrote the paths.
    fn deletion(&self, binding: &Binding, record: &Record) -> DeletionPolicy {
        match &binding.spec {
            ParsedSpec::Push(push) => push.spec.deletion.unwrap_or(self.policy.deletion),
            ParsedSpec::Invalid(_, said) | ParsedSpec::Nothing(said) => said.unwrap_or(record.deletion),
        }
    }

    /// Takes our marks away, so that others can have the paths. The object waits only a moment for that. A path that is still marked then
    /// loses its mark later.
    async fn unmark_all(
        &self,
        key: &ObjectRef,
        binding: &Binding,
        record: &Record,
        owner: &Owner,
    ) -> Result<(), PushError> {
        let unmark = async {
            for (location, written) in record.locations() {
                let Some(location) = self.store.recorded(&location).await? else { continue };
                let (claim, unfinished) = (Claim::Intended, Unfinished::Unknown);
                let cleanup = Cleanup { location: &location, owner, written, claim, unfinished, gone: false };
                self.store.clear(&cleanup, None).await?;
            }
            Ok::<_, ClearError>(())
        };
        match timeout(UNMARK_WITHIN, unmark).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(ClearError::LeadershipLost)) => Err(PushError::LeadershipLost),
            Ok(Err(ClearError::Vault(_))) | Err(_) => {
                tracing::warn!(object = %key, "what stays in Vault still carries its mark, because Vault does not serve");
                self.remember(key, binding, record).await.map(drop)
            }
        }
    }

    /// Whether the object has waited as long as the platform allows. A gone object waits for nothing if its paths can be listed as orphans, because
    /// another object may wait for its name.
    async fn is_overdue(&self, key: &ObjectRef, binding: &Binding) -> bool {
        let has_paths = binding.record.as_ref().is_some_and(|record| !record.paths.is_empty());
        if has_paths && self.bindings.has_escaped(key, &binding.uid) {
            return true;
        }
        let waited = deleting_for(binding.deleting, Timestamp::now());
        binding.deleting.is_some() && self.policy.deadline.is_over(&self.client, &key.namespace, waited).await
    }

    /// Remembers the paths that are left behind, so that the operator clears them when Vault serves again.
    async fn leave_behind(
        &self,
        key: &ObjectRef,
        binding: &Binding,
        record: &Record,
        error: &PushError,
    ) -> Result<Statement, PushError> {
        let (paths, remembered) = match &binding.spec {
            // As long as the engine is unknown, only the requested path is known.
            ParsedSpec::Push(push) if record.paths.is_empty() => {
                (vec![format!("{}{}", self.policy.prefix(), push.spec.path)], false)
            }
            _ => (record.paths.keys().cloned().collect(), self.remember(key, binding, record).await?),
        };
        tracing::warn!(object = %key, paths = ?paths, "content of the object stays in Vault, because clearing it failed: {}", in_one_line(error));
        let is_gone = self.bindings.has_escaped(key, &binding.uid);
        let how = if is_gone {
            "the API server deleted the object despite its finalizer"
        } else {
            "released after its deadline"
        };
        Ok(messages::released(how, &paths, error, remembered.then(|| self.orphans.name())))
    }

    /// Remembers the paths that are left behind. Returns `false` if that is impossible.
    async fn remember(&self, key: &ObjectRef, binding: &Binding, record: &Record) -> Result<bool, PushError> {
        let deletion = self.deletion(binding, record);
        let mut left = Record { uid: binding.uid.clone(), deletion, ..record.clone() };
        for (location, written) in record.locations() {
            let counts = self.claims.claim(key, &location, written) != Claim::Intended;
            let (written, begun) = (written.clone(), written.begun.filter(|_| counts));
            left.paths.insert(location.to_string(), Written { written: written.written && counts, begun, ..written });
        }
        match self.orphans.add(&Orphan::new(key, left)).await {
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

/// The content that unfinished writes would have made, batch by batch.
struct UnfinishedWrites<'a> {
    batches: SecretBatches<'a>,
    locations: Locations,
    is_first: bool,
}

impl<'a> UnfinishedWrites<'a> {
    fn new(batches: SecretBatches<'a>, prepared: Prepared) -> Self {
        Self { batches, locations: prepared.locations, is_first: true }
    }

    /// The content of the next paths. `None` after the last batch.
    async fn next(&mut self) -> Result<Option<BTreeMap<String, Content>>, PushError> {
        if self.batches.is_over() && !std::mem::take(&mut self.is_first) {
            return Ok(None);
        }
        self.is_first = false;
        let targets = self.batches.next().await?;
        let located = |(target, desired): (String, Target)| match desired {
            Target::Content(made) => Some((self.locations.get(&target)?.to_string(), made.content)),
            Target::Keep(_) => None,
        };
        Ok(Some(targets.into_iter().filter_map(located).collect()))
    }
}

/// Limits one request. Vault may take longer than a deletion may wait.
async fn within<T>(limit: Duration, location: &str, work: impl Future<Output = T>) -> Result<T, PushError> {
    let slow = |_| PushError::Slow { location: location.to_owned(), limit };
    timeout(limit, work).await.map_err(slow)
}
