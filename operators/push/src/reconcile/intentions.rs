//! What the journal says of an object that bears no record yet.

use std::time::Duration;

use konverge_core::error::in_one_line;
use konverge_runtime::{Action, Priority};
use konverge_vault::Owner;
use kube::{Api, ResourceExt, core::DynamicObject};

use super::{LOOK_AGAIN, PushError, Pusher, Targets, paths::Prepared, vault_deletion};
use crate::{
    annotations::{FINALIZER, PATH, STATUS},
    asked::UpdatePolicy,
    bindings::{Binding, Push, Share, Verified},
    cluster_identity,
    desired::Target,
    journal::Intention,
    messages::Message,
    object::{Kind, ObjectRef},
    plan::Claim,
    record::Record,
    store::{Cleared, Leaving, Unfinished},
    watch::JOURNAL,
};

/// From so many on that are at work or wait for it, the journal is quicker than a record on each object.
const CROWD: usize = 8;

/// When to look whether there are still so many.
pub(super) const NOTE_LATER: Duration = Duration::from_millis(250);

/// So long after all was in Vault it is noted on the object, however many are at work.
const NOTE_BY: Duration = Duration::from_secs(10);

impl Pusher {
    /// Has everything looked at that was begun before this process led. Nothing is done before that is known, and under which name what
    /// is written is marked.
    pub(super) async fn recall(&self) -> Result<(), PushError> {
        self.store.identify().await.map_err(unidentified)?;
        for key in self.journal.recall().await? {
            self.queue.add(key, Priority::Normal, JOURNAL);
        }
        Ok(())
    }

    /// Who keeps what is written for the object.
    pub(super) async fn owner(&self, key: &ObjectRef, uid: &str) -> Result<Owner, PushError> {
        self.store.owner(key, uid).await.map_err(unidentified)
    }

    /// Notes what is about to be written for an object that bears no record, if that is worth while. False is that it is not, or
    /// that the journal cannot be used.
    pub(super) async fn note_in_journal(
        &self,
        key: &ObjectRef,
        binding: &Binding,
        record: &Record,
        push: &Push,
        prepared: &Prepared,
        targets: &Targets,
    ) -> Result<bool, PushError> {
        let is_new = binding.record.is_none() && !binding.finalizer;
        let worth_while = is_new && push.asked.update != UpdatePolicy::Merge && self.queue.is_crowded(CROWD);
        let contents = prepared.locations.iter().filter_map(|(target, location)| match targets.get(target) {
            Some(Target::Content(made)) => Some((location, &made.content)),
            Some(Target::Keep(_)) | None => None,
        });
        Ok(self.journal.intend(key, record, contents, worth_while).await?)
    }

    /// Whether the record of an object that is in step can wait: it is in the journal, not for long, and many others are at work.
    pub(super) fn can_wait(&self, key: &ObjectRef, binding: &Binding, verified: &Verified) -> bool {
        self.journal.speaks_of(key)
            && verified.looked.elapsed() < NOTE_BY
            && self.queue.is_crowded(CROWD)
            && binding.unrecorded().is_some()
    }

    /// Takes over what was begun for the object, or for one that had its name before: as recorded, so that it is noted, used or cleared.
    /// Gives the binding as it is then.
    pub(super) fn take_over(&self, key: &ObjectRef, mut binding: Binding, intentions: &[Intention]) -> Binding {
        let is_recorded = binding.record.is_some();
        for intention in intentions {
            if !is_recorded || intention.record().uid != binding.uid {
                self.bindings.on_object(key, &binding.uid, |now| now.recall(intention.record()));
                binding.recall(intention.record());
            }
        }
        binding
    }

    /// Clears what was begun for objects that are gone or do not ask any more.
    pub(super) async fn abandon(&self, key: &ObjectRef, intentions: &[Intention]) -> Result<Action, PushError> {
        let asking = self.asking(key).await?;
        for intention in intentions {
            if asking.as_ref().is_some_and(|uid| *uid == intention.record().uid) {
                // A watch will show it, if this program looks after it.
                return Ok(Action::After(LOOK_AGAIN));
            }
        }
        for intention in intentions {
            self.clear_intended(key, intention).await?;
        }
        self.journal.resolve(key);
        Ok(Action::Done)
    }

    /// The uid of the object, if it is there and may ask for a push.
    async fn asking(&self, key: &ObjectRef) -> Result<Option<String>, PushError> {
        let api = Api::<DynamicObject>::namespaced_with(self.client.clone(), &key.namespace, &key.kind.resource());
        let found = api.get_metadata_opt(&key.name).await;
        let found = found.map_err(|source| PushError::Read { what: key.to_string(), source: Box::new(source) })?;
        Ok(found
            .filter(|object| {
                let annotations = object.annotations();
                key.kind == Kind::VaultPush
                    || annotations.contains_key(PATH)
                    || annotations.contains_key(STATUS)
                    || object.finalizers().iter().any(|known| known == FINALIZER)
            })
            .and_then(|object| object.uid()))
    }

    async fn clear_intended(&self, key: &ObjectRef, intention: &Intention) -> Result<(), PushError> {
        let record = intention.record();
        let owner = self.owner(key, &record.uid).await?;
        let deletion = vault_deletion(record.deletion);
        for (location, written) in record.locations() {
            let Some(location) = self.store.recorded(&location).await? else { continue };
            let path = location.to_string();
            let heir = self.bindings.claim(key, &path, Share::Whole).err();
            // Where somebody has it by now, the mark alone says what is not his.
            let (unfinished, claim) = match heir {
                Some(_) => (Unfinished::Unknown, Claim::Intended),
                None => (intention.unfinished(&path), Claim::recorded(written)),
            };
            let leaving = Leaving { location: &location, owner: &owner, written, claim, unfinished, gone: true };
            let cleared = self.store.clear(&leaving, deletion).await;
            // The mark may have been all that kept him from it.
            self.wake(self.bindings.release(key, &path).into_iter().chain(heir).collect());
            match cleared {
                Ok(Cleared::Deleted) => tracing::info!(object = %key, path, "cleared what was begun"),
                Ok(Cleared::Unknown) => {
                    tracing::warn!(object = %key, path, "{}", Message::unknown(std::slice::from_ref(&path)).text);
                }
                Ok(Cleared::Nothing) => {}
                Err(error) => {
                    tracing::debug!(object = %key, path, "what was begun is not cleared yet: {}", in_one_line(&error));
                    return Err(error.into());
                }
            }
        }
        Ok(())
    }
}

fn unidentified(source: kube::Error) -> PushError {
    PushError::Read { what: format!("the namespace {}", cluster_identity::NAMESPACE), source: Box::new(source) }
}
