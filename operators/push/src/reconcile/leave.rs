//! An object goes, or asks for nothing any more: what was written for it is cleared, then it is let go.

use std::{collections::BTreeMap, time::Duration};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Namespace;
use konverge_core::error::in_one_line;
use konverge_runtime::Action;
use konverge_vault::{Content, Location, Owner};
use kube::Api;
use tokio::time::timeout;

use super::{Doing, Locations, PushError, Pusher, cluster_prefix, paths::Prepared, sources::Portions, vault_deletion};
use crate::{
    asked::DeletionPolicy,
    bindings::{Asking, Binding, Push},
    desired::Target,
    messages::Message,
    object::ObjectRef,
    orphans::Orphan,
    plan::Claim,
    record::{Record, Written},
    store::{ClearError, Cleared, Leaving, Unfinished},
};

/// What stays loses its mark, so that others can have it; this long is tried.
const UNMARK_WITHIN: Duration = Duration::from_secs(2);

impl Pusher {
    /// Clears what was written for the object and lets it go.
    pub(super) async fn leave(&self, key: &ObjectRef, binding: &Binding) -> Result<Action, PushError> {
        if !binding.finalizer && binding.record.is_none() {
            self.remove(key);
            return Ok(Action::Done);
        }
        let recorded = match &binding.record {
            Some(record) => Ok(record.clone()),
            None => self.unrecorded(key, binding).await,
        };
        let (record, cleared) = match recorded {
            Ok(record) => {
                let cleared = self.clear_all(key, binding, &record).await;
                (record, cleared)
            }
            // Where its path leads can't be told.
            Err(error) => (binding.new_record(Timestamp::now()), Err(error)),
        };
        let messages = match cleared.map_err(|error| error.when(Doing::Clear)) {
            Ok(messages) => messages,
            Err(error @ (PushError::Vault { .. } | PushError::Read { .. } | PushError::Slow { .. }))
                if self.overdue(key, binding).await =>
            {
                vec![self.leave_behind(key, binding, &record, &error).await?]
            }
            Err(error) => return Err(error),
        };
        if !messages.is_empty() {
            self.say(key, binding, None, messages);
        }
        self.ledger.erase(key, &binding.uid).await?;
        self.journal.resolve(key);
        self.remove(key);
        Ok(Action::Done)
    }

    /// The object concerns us no more, and is not counted any more.
    fn remove(&self, key: &ObjectRef) {
        if let Some(waiting) = self.bindings.remove(key) {
            self.metrics.forget(key);
            self.wake(waiting);
        }
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

    /// Clears all paths. Gives what is to be said of that.
    async fn clear_all(&self, key: &ObjectRef, binding: &Binding, record: &Record) -> Result<Vec<Message>, PushError> {
        let owner = self.owner(key, &binding.uid).await?;
        let deletion = vault_deletion(self.deletion(binding, record));
        if deletion.is_none() && binding.deleting.is_some() {
            self.unmark_all(key, binding, record, &owner).await?;
            return Ok(Vec::new());
        }
        let limit = self.policy.deadline.min(self.policy.namespace_deadline);
        let mut left = Vec::new();
        for (location, written) in record.locations() {
            let recorded = self.store.recorded(&location);
            let location = within(limit, &location.to_string(), recorded).await??;
            left.extend(location.map(|location| (location, written)));
        }
        let is_unfinished = |written: &Written| !written.written || !written.pending.is_empty();
        let push = match &binding.asking {
            Asking::Push(push) if record.paths.values().any(is_unfinished) => Some(self.pinned(key, push).await?),
            _ => None,
        };
        let mut begun = match push.as_deref() {
            Some(push) => self.begun(key, push).await?,
            None => None,
        };
        let (mut cleared, mut unknown) = (Vec::new(), Vec::new());
        while !left.is_empty() {
            let made = match &mut begun {
                Some(begun) => begun.next().await?,
                None => None,
            };
            // What comes with no portion comes last.
            let of_this = |(location, _): &(Location, &Written)| {
                made.as_ref().is_none_or(|made| made.contains_key(&location.to_string()))
            };
            for (location, written) in left.extract_if(.., |path| of_this(path)) {
                let claim = self.claim(key, &location, written);
                let text = location.to_string();
                let content = made.as_ref().and_then(|made| made.get(&text)).filter(|_| !written.left);
                let unfinished = content.map_or(Unfinished::Unknown, Unfinished::Made);
                let leaving = Leaving { location: &location, owner: &owner, written, claim, unfinished, gone: false };
                let deleted = within(limit, &text, self.store.clear(&leaving, deletion)).await??;
                self.warn_sharers(key, &text, written, deleted);
                match deleted {
                    Cleared::Deleted => {
                        tracing::info!(object = %key, path = text, "deleted");
                        cleared.push(text);
                    }
                    Cleared::Unknown => unknown.push(text),
                    Cleared::Nothing => {}
                }
            }
        }
        let cleared = (!cleared.is_empty()).then(|| Message::cleared(&cleared));
        let unknown = (!unknown.is_empty()).then(|| Message::unknown(&unknown));
        Ok(cleared.into_iter().chain(unknown).collect())
    }

    /// How the object's paths are cleared. What stands on it counts, whether or not the rest of it asks for something; where it says nothing,
    /// what it said when something was written for it.
    fn deletion(&self, binding: &Binding, record: &Record) -> DeletionPolicy {
        match &binding.asking {
            Asking::Push(push) => push.asked.deletion.unwrap_or(self.policy.deletion),
            Asking::Invalid(_, said) | Asking::Nothing(said) => said.unwrap_or(record.deletion),
        }
    }

    /// Leaves what is there to others. The object waits a moment for that and no longer; what is still marked then loses its mark later.
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
                let leaving = Leaving { location: &location, owner, written, claim, unfinished, gone: false };
                self.store.clear(&leaving, None).await?;
            }
            Ok::<_, ClearError>(())
        };
        match timeout(UNMARK_WITHIN, unmark).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(ClearError::Deposed)) => Err(PushError::Deposed),
            Ok(Err(ClearError::Vault(_))) | Err(_) => {
                tracing::warn!(object = %key, "what stays in Vault still carries its mark, because Vault does not serve");
                self.remember(key, binding, record).await.map(drop)
            }
        }
    }

    /// What writes that were begun would have made; nothing if the paths cannot be ones.
    async fn begun<'a, 'b>(&'a self, key: &'b ObjectRef, push: &'b Push) -> Result<Option<Begun<'a, 'b>>, PushError> {
        let prepared = self.prepare(key, push, &mut Vec::new()).await?;
        let portions = Portions::new(self, key, push);
        Ok(prepared.map(|Prepared { locations, .. }| Begun { portions, locations, is_first: true }))
    }

    /// Whether the object has waited as long as the platform lets it.
    async fn overdue(&self, key: &ObjectRef, binding: &Binding) -> bool {
        let Some(since) = binding.deleting else { return false };
        let waited = waited(since, Timestamp::now());
        if waited >= self.policy.deadline {
            return true;
        }
        if waited < self.policy.namespace_deadline {
            return false;
        }
        let namespaces = Api::<Namespace>::all(self.client.clone());
        match namespaces.get_metadata_opt(&key.namespace).await {
            Ok(namespace) => namespace.is_none_or(|namespace| namespace.metadata.deletion_timestamp.is_some()),
            Err(error) => {
                tracing::debug!(namespace = key.namespace, "cannot look at the namespace: {}", in_one_line(&error));
                false
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
        let (paths, remembered) = match &binding.asking {
            // Without an engine there is nothing to remember but what it asked for.
            Asking::Push(push) if record.paths.is_empty() => {
                (vec![format!("{}{}", cluster_prefix(self.policy.cluster.as_deref()), push.asked.path)], false)
            }
            _ => (record.paths.keys().cloned().collect(), self.remember(key, binding, record).await?),
        };
        tracing::warn!(object = %key, paths = ?paths, "let go with something left in Vault: {}", in_one_line(error));
        Ok(Message::released(&paths, error, remembered.then(|| self.orphans.name())))
    }

    /// Has what is left behind cleared later. False is that it can't be remembered, now or ever.
    async fn remember(&self, key: &ObjectRef, binding: &Binding, record: &Record) -> Result<bool, PushError> {
        let deletion = self.deletion(binding, record);
        let mut left = Record { uid: binding.uid.clone(), deletion, ..record.clone() };
        for (location, written) in record.locations() {
            let counts = self.claim(key, &location, written) != Claim::Intended;
            let (written, begun) = (written.clone(), written.begun.filter(|_| counts));
            left.paths.insert(location.to_string(), Written { written: written.written && counts, begun, ..written });
        }
        match self.orphans.add(&Orphan::new(key, left)).await {
            // What is left is in the log and in the event.
            Err(error) if error.is_final() => {
                let paths: Vec<&String> = record.paths.keys().collect();
                tracing::error!(object = %key, paths = ?paths, "{}", in_one_line(&error));
                Ok(false)
            }
            added => Ok(added.map(|()| true)?),
        }
    }
}

/// What writes that were begun would have made, portion by portion.
struct Begun<'a, 'b> {
    portions: Portions<'a, 'b>,
    locations: Locations,
    is_first: bool,
}

impl Begun<'_, '_> {
    /// The content of the next paths; nothing if that was all.
    async fn next(&mut self) -> Result<Option<BTreeMap<String, Content>>, PushError> {
        if self.portions.is_over() && !std::mem::take(&mut self.is_first) {
            return Ok(None);
        }
        self.is_first = false;
        let targets = self.portions.next().await?;
        let located = |(beneath, target): (String, Target)| match target {
            Target::Content(made) => Some((self.locations.get(&beneath)?.to_string(), made.content)),
            Target::Keep(_) => None,
        };
        Ok(Some(targets.into_iter().filter_map(located).collect()))
    }
}

/// Vault may take longer for one request than a deletion may wait, and says nothing before.
async fn within<T>(limit: Duration, location: &str, work: impl Future<Output = T>) -> Result<T, PushError> {
    let slow = |_| PushError::Slow { location: location.to_owned(), limit };
    timeout(limit, work).await.map_err(slow)
}

/// How long something has gone on. By a clock that is behind the API server's it has not begun yet.
fn waited(since: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(now.duration_since(since)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_is_behind_lets_nothing_go_before_its_deadline() {
        let at = |second| Timestamp::from_second(second).unwrap();
        for (now, expected) in [(100, 0), (90, 0), (100 - 3600, 0), (101, 1), (1000, 900)] {
            assert_eq!(waited(at(100), at(now)), Duration::from_secs(expected), "{now}");
        }
    }
}
