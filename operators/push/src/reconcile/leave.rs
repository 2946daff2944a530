//! An object goes, or asks for nothing any more: what was written for it is cleared, then it is let go.

use std::{collections::BTreeMap, time::Duration};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Namespace;
use konverge_core::error::in_one_line;
use konverge_runtime::Action;
use konverge_vault::{Content, Location, VaultError};
use kube::Api;
use tokio::time::timeout;

use super::{PushError, Pusher, sources, vault_deletion};
use crate::{
    bindings::{Asking, Binding, Push},
    desired::{Target, desired},
    messages::Message,
    object::ObjectRef,
    orphans::Orphan,
    plan::Claim,
    record::{Record, Written},
    store::{Leaving, Unfinished},
};

/// What stays loses its mark, so that others can have it; this long is tried.
const UNMARK_WITHIN: Duration = Duration::from_secs(2);

impl Pusher {
    /// Clears what was written for the object and lets it go.
    pub(super) async fn leave(&self, key: &ObjectRef, binding: &Binding) -> Result<Action, PushError> {
        if !binding.finalizer && binding.record.is_none() {
            self.wake(self.bindings.remove(key));
            return Ok(Action::Done);
        }
        let record = match &binding.record {
            Some(record) => record.clone(),
            None => self.unrecorded(key, binding).await?,
        };
        let message = match self.clear_all(key, binding, &record).await {
            Ok(cleared) if cleared.is_empty() => None,
            Ok(cleared) => Some(Message::cleared(&cleared)),
            Err(error @ PushError::Vault(_)) if self.overdue(key, binding).await? => {
                Some(self.leave_behind(key, binding, &record, &error).await?)
            }
            Err(error) => return Err(error),
        };
        if let Some(message) = message {
            self.say(key, binding, vec![message]);
        }
        self.ledger.erase(key, &binding.uid).await?;
        self.journal.resolve(key);
        self.wake(self.bindings.remove(key));
        self.metrics.forget(key);
        Ok(Action::Done)
    }

    /// Where an object has the finalizer and no record, the original operator has written for it: to the paths that it asks for.
    async fn unrecorded(&self, key: &ObjectRef, binding: &Binding) -> Result<Record, PushError> {
        let mut record = binding.new_record(Timestamp::now());
        if let Asking::Push(push) = &binding.asking {
            let push = &*self.pinned(key, push).await?;
            record.deletion = push.asked.deletion.unwrap_or(self.policy.deletion);
            let prepared = self.prepare(key, push, &mut Vec::new()).await?;
            for location in prepared.iter().flat_map(|prepared| prepared.locations.values()) {
                record.paths.insert(location.to_string(), Written::intended(location));
            }
        }
        Ok(record)
    }

    /// Clears all paths. Gives those where something was deleted.
    async fn clear_all(&self, key: &ObjectRef, binding: &Binding, record: &Record) -> Result<Vec<String>, PushError> {
        let policy = match &binding.asking {
            Asking::Push(push) => push.asked.deletion.unwrap_or(self.policy.deletion),
            Asking::Invalid(_) | Asking::Nothing => record.deletion,
        };
        let owner = self.store.owner(key, &binding.uid);
        let Some(deletion) = vault_deletion(policy) else {
            let unmark = async {
                for (location, _) in record.locations() {
                    self.store.leave(&location, &owner).await?;
                }
                Ok::<_, VaultError>(())
            };
            if !matches!(timeout(UNMARK_WITHIN, unmark).await, Ok(Ok(()))) {
                tracing::warn!(object = %key, "what stays in Vault still carries its mark, because Vault does not serve");
            }
            return Ok(Vec::new());
        };
        let made = match &binding.asking {
            Asking::Push(push)
                if record.paths.values().any(|written| !written.written || !written.pending.is_empty()) =>
            {
                self.would_have_made(key, push).await?
            }
            _ => BTreeMap::new(),
        };
        let mut cleared = Vec::new();
        for (location, written) in record.locations() {
            let claim = self.claim(key, &location, written);
            let text = location.to_string();
            let unfinished = made.get(&text).filter(|_| !written.left).map_or(Unfinished::Unknown, Unfinished::Made);
            let leaving = Leaving { location: &location, owner: &owner, written, claim, unfinished, gone: false };
            if self.store.clear(&leaving, deletion).await? {
                tracing::info!(object = %key, path = text, "deleted");
                cleared.push(text);
            }
        }
        Ok(cleared)
    }

    /// What a write that was begun would have made.
    async fn would_have_made(&self, key: &ObjectRef, push: &Push) -> Result<BTreeMap<String, Content>, PushError> {
        let push = &*self.pinned(key, push).await?;
        let Some(prepared) = self.prepare(key, push, &mut Vec::new()).await? else { return Ok(BTreeMap::new()) };
        let sources = sources::read(&self.client, &self.bindings, &key.namespace, &push.wanted.names()).await?;
        let targets = desired(&push.wanted, &sources.data, push.asked.binary.unwrap_or(self.policy.binary));
        let located = |(beneath, target): (String, Target)| match target {
            Target::Content(made) => {
                prepared.locations.get(&beneath).map(Location::to_string).map(|text| (text, made.content))
            }
            Target::Keep(_) => None,
        };
        Ok(targets.into_iter().filter_map(located).collect())
    }

    /// Whether the object has waited for Vault as long as the platform lets it.
    async fn overdue(&self, key: &ObjectRef, binding: &Binding) -> Result<bool, PushError> {
        let Some(since) = binding.deleting else { return Ok(false) };
        let waited = Timestamp::now().duration_since(since).unsigned_abs();
        if waited >= self.policy.deadline {
            return Ok(true);
        }
        if waited < self.policy.namespace_deadline {
            return Ok(false);
        }
        let namespaces = Api::<Namespace>::all(self.client.clone());
        match namespaces.get_metadata_opt(&key.namespace).await {
            Ok(namespace) => Ok(namespace.is_none_or(|namespace| namespace.metadata.deletion_timestamp.is_some())),
            Err(error) => {
                tracing::debug!(namespace = key.namespace, "cannot look at the namespace: {}", in_one_line(&error));
                Ok(false)
            }
        }
    }

    /// Remembers what is left behind, so that it is cleared when Vault serves again.
    async fn leave_behind(
        &self,
        key: &ObjectRef,
        binding: &Binding,
        record: &Record,
        error: &PushError,
    ) -> Result<Message, PushError> {
        let mut record = Record { uid: binding.uid.clone(), ..record.clone() };
        for (location, written) in record.clone().locations() {
            let counts = self.claim(key, &location, written) == Claim::Written;
            record.paths.insert(location.to_string(), Written { written: counts, ..written.clone() });
        }
        let paths: Vec<String> = record.paths.keys().cloned().collect();
        match self.orphans.add(&Orphan::new(key, record)).await {
            // Nowhere to note it down, for good; what is left is in the log and in the event.
            Err(error) if error.is_final() => tracing::error!(object = %key, paths = ?paths, "{}", in_one_line(&error)),
            added => added?,
        }
        tracing::warn!(object = %key, paths = ?paths, "let go with something left in Vault: {}", in_one_line(error));
        Ok(Message::released(&paths, error, self.orphans.name()))
    }
}
