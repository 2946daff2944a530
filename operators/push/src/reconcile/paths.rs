//! The paths of one object in Vault: which of them it may have, and whether they hold its content.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use konverge_apply::Statement;
use konverge_core::digest::{ContentDigest, DigestKey};
use konverge_runtime::{Priority, Queue};
use konverge_vault::{Location, Owner, Ownership, Secret, VaultError};

use crate::{
    bindings::{Bindings, Heritage, Push, Share, key_of},
    config::PushOptions,
    content::digest,
    error::PushError,
    merge::own,
    messages,
    metrics::Metrics,
    object::ObjectRef,
    plan::Claim,
    record::Written,
    spec::UpdatePolicy,
    store::{Cleared, HeirOwners, Store},
    watch::WAITED,
};

/// The locations of an object's paths, by target: the part of the path beneath the path of the object.
pub(crate) type Locations = BTreeMap<String, Location>;

/// The result of all checks that need no Secret.
pub(super) struct Prepared {
    /// The locations that the object may write.
    pub(super) locations: Locations,
    /// All locations that the object names, also refused ones.
    pub(super) named: BTreeSet<String>,
    /// Whether the object may write all that it names, and gets it. `false` if a path is forbidden or belongs to another object; its content
    /// stays.
    pub(super) is_complete: bool,
}

/// The paths that were cleared, and those whose content may be ours and stays.
#[derive(Default)]
pub(super) struct ClearedPaths {
    deleted: Vec<String>,
    unknown: Vec<String>,
}

impl ClearedPaths {
    pub(super) fn add(&mut self, path: String, cleared: Cleared) {
        match cleared {
            Cleared::Deleted => self.deleted.push(path),
            Cleared::Unknown => self.unknown.push(path),
            Cleared::Nothing => {}
        }
    }

    /// The statements about them. `deleted` makes that about the cleared ones.
    pub(super) fn statements(self, deleted: impl FnOnce(&[String]) -> Statement) -> impl Iterator<Item = Statement> {
        let deleted = (!self.deleted.is_empty()).then(|| deleted(&self.deleted));
        let unknown = (!self.unknown.is_empty()).then(|| messages::unknown(&self.unknown));
        deleted.into_iter().chain(unknown)
    }
}

/// Claims paths, and compares their content with Vault.
pub(crate) struct Paths {
    /// Reads and writes in Vault.
    pub(crate) store: Store,
    /// Knows which objects claim a path.
    pub(crate) bindings: Arc<Bindings>,
    /// Wakes the objects that waited for a path.
    pub(crate) queue: Queue<ObjectRef>,
    /// Counts.
    pub(crate) metrics: Metrics,
    /// The key of this process for digests of content.
    pub(crate) digest_key: DigestKey,
    /// The decisions of the platform.
    pub(crate) policy: Arc<PushOptions>,
}

impl Paths {
    /// The owner that the operator notes in the marks of an object's paths.
    pub(super) async fn owner(&self, key: &ObjectRef, uid: &str) -> Result<Owner, PushError> {
        self.store.owner(key, uid).await.map_err(PushError::unidentified)
    }

    /// Resolves the paths of a push to locations, and claims those that the object may have. Returns `None` if a path is invalid, which
    /// `statements` then tells.
    pub(super) async fn prepare(
        &self,
        key: &ObjectRef,
        push: &Push,
        statements: &mut Vec<Statement>,
    ) -> Result<Option<Prepared>, PushError> {
        let prefix = self.policy.prefix();
        let mut prepared = Prepared { locations: Locations::new(), named: BTreeSet::new(), is_complete: true };
        for target in push.wanted.targets() {
            let location = match self.store.locate(push, &prefix, target).await {
                Ok(location) => location,
                Err(VaultError::Path(error)) => {
                    statements.push(messages::invalid_path(&error));
                    // All paths have the same beginning.
                    return Ok(None);
                }
                Err(error) => return Err(error.into()),
            };
            let is_first = prepared.named.is_empty();
            if is_first && push.spec.engine.contradicts(&prefix, location.mount()) {
                statements.push(messages::other_engine(key.kind, location.mount()));
            }
            prepared.named.insert(location.to_string());
            match self.refusal(key, push, &location) {
                Some(refusal) => {
                    statements.push(refusal);
                    prepared.is_complete = false;
                }
                None => drop(prepared.locations.insert(target.to_owned(), location)),
            }
        }
        self.wake(self.bindings.release_unwanted(key, |location| prepared.named.contains(location)));
        self.metrics.discovered(key, push.wanted.targets().len());
        Ok(Some(prepared))
    }

    /// Claims a location for the object. Returns why the object does not get it.
    fn refusal(&self, key: &ObjectRef, push: &Push, location: &Location) -> Option<Statement> {
        let text = location.to_string();
        if !self.policy.allows(key, location) {
            return Some(messages::not_allowed(&key.namespace, &text));
        }
        let share = if push.spec.update == UpdatePolicy::Merge { Share::Keys } else { Share::Whole };
        let holder = self.bindings.claim(key, &text, share).err()?;
        self.metrics.ours.conflicts.inc();
        self.tell_of_heir(holder.clone(), &text);
        Some(messages::claimed(&text, &holder))
    }

    /// Wakes the holder of a location, or of keys of it, that another object has just requested. If the holder no longer requests it, it hands it over.
    pub(super) fn tell_of_heir(&self, holder: ObjectRef, location: &str) {
        if self.bindings.is_leaving(&holder, location) {
            self.wake([holder]);
        }
    }

    /// Returns how much the record of a location proves. It counts where the object may write and no other has the location. Elsewhere only
    /// the mark in Vault counts, because a user who may annotate an object may also have written the record.
    pub(super) fn claim(&self, key: &ObjectRef, location: &Location, written: &Written) -> Claim {
        let counts = (written.written || written.begun.is_some())
            && self.policy.allows(key, location)
            && self.bindings.claim(key, &location.to_string(), Share::of(written)).is_ok();
        if counts { Claim::recorded(written) } else { Claim::Intended }
    }

    /// Returns the owners to which the location, or keys of it, go when this object leaves it.
    pub(super) async fn heirs(
        &self,
        key: &ObjectRef,
        location: &Location,
        written: &Written,
    ) -> Result<HeirOwners, kube::Error> {
        self.store.heirs(&self.bindings.heirs(key, &location.to_string(), written)).await
    }

    /// Returns the objects that get all of a location if this one leaves it. `None` if something would be left.
    pub(super) fn heritage(&self, key: &ObjectRef, location: &str, written: &Written) -> Option<Heritage> {
        Some(self.bindings.heirs(key, location, written)).filter(|heritage| heritage.is_complete(written))
    }

    /// Gives up a location, with the object's keys there, and wakes the objects that waited for it.
    pub(super) fn release(&self, key: &ObjectRef, location: &str, written: &Written) {
        for name in written.keys.iter().flatten().chain(&written.pending) {
            self.release_key(key, location, name);
        }
        self.wake(self.bindings.release(key, location));
    }

    /// Gives up one key of a location, and wakes the objects that waited for it.
    pub(super) fn release_key(&self, key: &ObjectRef, location: &str, name: &str) {
        self.wake(self.bindings.release(key, &key_of(location, name)));
    }

    /// Wakes the objects that share a location if all of it was deleted: the object had the last keys, and the others may have added keys at
    /// that moment.
    pub(super) fn warn_sharers(&self, key: &ObjectRef, location: &str, written: &Written, cleared: Cleared) {
        if written.keys.is_some() && cleared == Cleared::Deleted {
            self.wake(self.bindings.doubt_sharers(key, location));
        }
    }

    /// Whether the content is unchanged and nobody else owns it.
    pub(super) fn is_unchanged(&self, secret: &Secret, owner: &Owner, written: &Written, known: ContentDigest) -> bool {
        let metadata = secret.version.as_ref().map(|version| &version.custom_metadata);
        let is_ours = metadata.is_none_or(|metadata| !matches!(owner.ownership(metadata), Ownership::Foreign(_)));
        is_ours && digest(&self.digest_key, own(&secret.content, written)) == Some(known)
    }

    /// Wakes the objects that waited for a location.
    pub(super) fn wake(&self, waiting: impl IntoIterator<Item = ObjectRef>) {
        self.queue.add_all(waiting, Priority::Normal, WAITED);
    }
}
