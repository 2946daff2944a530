//! Intentions: what the journal says of an object that bears no record yet.

use std::{sync::Arc, time::Duration};

use konverge_core::error::in_one_line;
use konverge_runtime::{Action, Priority};
use kube::{Api, ResourceExt, core::DynamicObject};

use super::{Parts, SyncRun, owner, pace::LOOK_AGAIN, secret_reader::Targets};
use crate::{
    annotations::{PATH, STATUS},
    bindings::{Binding, Verified},
    content::Target,
    error::PushError,
    journal::Intention,
    object::{Kind, ObjectRef, has_finalizer},
    orphans::{GonePath, Heirs},
    record::Record,
    spec::UpdatePolicy,
    watch::{JOURNAL, WAITED},
};

/// While at least this many objects run or wait, the journal is quicker than a record on each object.
const CROWD: usize = 8;

/// The pause before another look at that number.
pub(super) const NOTE_LATER: Duration = Duration::from_millis(250);

/// This long after all content was in Vault, the object gets its record, however many objects run or wait.
const NOTE_BY: Duration = Duration::from_secs(10);

/// Reads and writes the journal of intentions, and takes over those of earlier processes.
pub(super) struct Intentions {
    parts: Arc<Parts>,
    heirs: Heirs,
}

impl Intentions {
    pub(super) fn new(parts: &Arc<Parts>) -> Self {
        let heirs = Heirs::new(parts.store.clone(), Arc::clone(&parts.bindings), parts.queue.clone());
        Self { parts: Arc::clone(parts), heirs }
    }

    /// Queues all objects with an intention of an earlier process. No run does anything before these are known, and before the name is known
    /// under which the operator marks its paths.
    pub(super) async fn recall(&self) -> Result<(), PushError> {
        self.parts.store.identify().await.map_err(PushError::unidentified)?;
        self.parts.queue.add_all(self.parts.journal.recall().await?, Priority::Normal, JOURNAL);
        Ok(())
    }

    /// Writes to the journal what is about to be written for an object that bears no record, if that saves time. Returns `false` if it does
    /// not, or if the journal cannot be used.
    pub(super) async fn note(&self, run: &SyncRun<'_>, record: &Record, targets: &Targets) -> Result<bool, PushError> {
        let SyncRun { key, push, prepared, binding, .. } = run;
        let is_new = binding.record.is_none() && !binding.finalizer;
        let saves_time = is_new && push.spec.update != UpdatePolicy::Merge && self.parts.queue.is_crowded(CROWD);
        let contents = prepared.locations.iter().filter_map(|(target, location)| match targets.get(target) {
            Some(Target::Content(made)) => Some((location, &made.content)),
            Some(Target::Keep(_)) | None => None,
        });
        Ok(self.parts.journal.intend(key, record, contents, saves_time).await?)
    }

    /// Whether the record of an object in sync can wait: the journal has had it for a short time, and many other objects run or wait.
    pub(super) fn can_wait(&self, key: &ObjectRef, binding: &Binding, verified: &Verified) -> bool {
        self.parts.journal.speaks_of(key)
            && verified.looked.elapsed() < NOTE_BY
            && self.parts.queue.is_crowded(CROWD)
            && binding.unrecorded().is_some()
    }

    /// Takes over the intentions of the object, and of earlier objects with its name, into its record, so a run writes or clears their paths.
    /// Returns the binding as it is then.
    pub(super) fn take_over(&self, key: &ObjectRef, mut binding: Binding, intentions: &[Intention]) -> Binding {
        let is_recorded = binding.record.is_some();
        for intention in intentions {
            if !is_recorded || intention.record().uid != binding.uid {
                self.parts.bindings.on_object(key, &binding.uid, |now| now.recall(intention.record()));
                binding.recall(intention.record());
            }
        }
        binding
    }

    /// Clears the intentions of objects that are gone or request nothing any more.
    pub(super) async fn abandon(&self, key: &ObjectRef, intentions: &[Intention]) -> Result<Action, PushError> {
        let spec = self.uid_if_requesting(key).await?;
        for intention in intentions {
            if spec.as_ref().is_some_and(|uid| *uid == intention.record().uid) {
                // A watch will show the object, if this program watches it.
                return Ok(Action::After(LOOK_AGAIN));
            }
        }
        // The object may have gone while a run was claiming its paths. Nobody else would release them.
        if self.parts.bindings.get(key).is_none() {
            self.parts.queue.add_all(self.parts.bindings.release_unwanted(key, |_| false), Priority::Normal, WAITED);
        }
        for intention in intentions {
            self.clear_intended(key, intention).await?;
        }
        self.parts.journal.resolve(key);
        Ok(Action::Done)
    }

    /// The uid of the object, if it exists and may request a push.
    async fn uid_if_requesting(&self, key: &ObjectRef) -> Result<Option<String>, PushError> {
        let api =
            Api::<DynamicObject>::namespaced_with(self.parts.client.clone(), &key.namespace, &key.kind.resource());
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

    /// Whether the object bears its record by now. Then its intentions have done their service and leave the journal.
    pub(super) fn are_over(&self, key: &ObjectRef) -> bool {
        if !self.parts.journal.speaks_of(key) {
            return true;
        }
        let is_recorded = self.parts.bindings.get(key).is_some_and(|now| now.bears_its_record());
        if is_recorded {
            self.parts.journal.resolve(key);
        }
        is_recorded
    }

    async fn clear_intended(&self, key: &ObjectRef, intention: &Intention) -> Result<(), PushError> {
        let record = intention.record();
        let owner = owner(&self.parts.store, key, &record.uid).await?;
        let deletion = record.deletion.in_vault();
        for (location, written) in record.locations() {
            let path = location.to_string();
            let unfinished = intention.unfinished(&path);
            let gone =
                GonePath { key, owner: &owner, location: &location, written, unfinished, what: "what was begun" };
            if let Err(error) = self.heirs.clear(&gone, deletion).await {
                tracing::debug!(object = %key, path = %location, "what was begun is not cleared yet: {}", in_one_line(&error));
                return Err(error.into());
            }
        }
        Ok(())
    }
}
