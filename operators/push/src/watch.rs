//! Informer event handlers: from watches to bindings, and from bindings to work.
//!
//! Every workload and every Secret of the cluster passes through here, a Secret as metadata alone. Objects that have not opted in leave no trace.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use konverge_runtime::{
    Priority, Queue,
    watch::{EventHandler, Guarded, Origin, Undecodable},
};
use konverge_workload::Workload;
use kube::core::{ObjectMeta, PartialObjectMeta};

use crate::{
    annotations::{STATUS, deletion_grace, deletion_policy, parse_spec},
    bindings::{Bindings, ParsedSpec, Push, WatchedObject},
    desired::Wanted,
    metrics::Metrics,
    object::{Kind, ObjectRef, SecretRef, has_finalizer},
    record::Record,
    search::Lost,
    spec::PushSpec,
    vault_push::{self, VaultPush},
};

/// The reason of a run: the object changed.
pub const OBJECT: &str = "object";
/// A Secret that it names changed.
pub const SECRET: &str = "secret";
/// A path that it wants has become free.
pub const WAITED: &str = "path-released";
/// It is in sync, and its record does not say so yet.
pub const RECORD: &str = "record";
/// Something was begun for it before this process led.
pub const JOURNAL: &str = "journal";
/// The API server deleted it despite our finalizer.
pub const ESCAPED: &str = "escaped";
/// Vault serves again.
pub const RECOVERED: &str = "vault-recovered";

const PAST_FINALIZER: &str =
    "the API server deleted the object despite its finalizer; the operator clears its paths in Vault";

const MISSING: &str = "the object is gone, and the operator did not see its deletion; its content in Vault is cleared after the grace period";

/// Updates the bindings from the watches.
#[derive(Clone)]
pub struct BindingUpdater {
    /// The bindings to update.
    pub bindings: Arc<Bindings>,
    /// The work queue.
    pub queue: Queue<ObjectRef>,
    /// The metrics, from which the series of an object go with it.
    pub metrics: Metrics,
    /// The objects that were lost and may have left content in Vault.
    pub lost: Lost,
}

impl BindingUpdater {
    /// Takes in what a watch shows of an object. Returns whether the object concerns us.
    fn apply(&self, key: &ObjectRef, object: Option<WatchedObject>) -> bool {
        let Some(object) = object else {
            self.remove(key);
            return false;
        };
        self.note_loss(key, Some(&object.uid));
        if self.bindings.apply(object) {
            self.queue.add(key.clone(), Priority::Normal, OBJECT);
        }
        true
    }

    /// Forgets the objects that a list lacks. A list does not show why an object is missing, so its content stays for the whole grace period.
    fn remove_missing(&self, kind: Kind, listed: &HashSet<ObjectRef>) {
        for key in self.bindings.missing(kind, listed) {
            self.note_loss(&key, None);
            self.remove(&key);
        }
    }

    /// Records that an object is deleted, or has a successor of the same name. The leader later clears its content, if the operator missed the
    /// deletion and our finalizer held it.
    fn note_loss(&self, key: &ObjectRef, successor: Option<&str>) {
        if self.queue.has_begun()
            && let Some(record) = self.bindings.lost(key, successor)
        {
            tracing::warn!(object = %key, "{MISSING}");
            self.lost.add(key, record);
        }
    }

    /// The watch shows that an object was deleted. The leader clears what was written for it if it went past our finalizer.
    fn delete(&self, key: &ObjectRef) {
        if self.queue.has_begun() && self.bindings.escape(key, Timestamp::now()) {
            tracing::warn!(object = %key, "{PAST_FINALIZER}");
            self.queue.add(key.clone(), Priority::Normal, ESCAPED);
        } else {
            self.remove(key);
        }
    }

    /// Forgets an object that is gone or does not ask any more, and wakes the objects that waited for its paths.
    fn remove(&self, key: &ObjectRef) {
        if let Some(waiting) = self.bindings.remove(key) {
            self.metrics.forget(key);
            self.drop_if_gone(key);
            self.wake(waiting, WAITED);
        }
    }

    /// Queues objects before all others, because a change waits for them.
    fn wake(&self, keys: Vec<ObjectRef>, reason: &'static str) {
        for key in keys {
            self.queue.add(key.clone(), Priority::High, reason);
            // The watch of another kind may have removed it meanwhile.
            self.drop_if_gone(&key);
        }
    }

    /// On a standby, drops the key of an object that is gone. The next leader finds in the journal and in the list of orphans what it has to
    /// clear for such objects. A leader keeps the key, because a run may have noted something for the object meanwhile.
    fn drop_if_gone(&self, key: &ObjectRef) {
        self.queue.remove_on_standby(key, || self.bindings.has(key));
    }
}

/// Handles the events of the workloads of one kind.
pub struct WorkloadHandler {
    /// Updates the bindings.
    pub updater: BindingUpdater,
    /// The kind.
    pub kind: Kind,
}

impl EventHandler<Workload> for WorkloadHandler {
    type Key = ObjectRef;

    fn key(&self, metadata: &ObjectMeta) -> Option<ObjectRef> {
        ObjectRef::of(self.kind, metadata)
    }

    fn apply(&mut self, key: &ObjectRef, object: Workload, _: Origin) -> bool {
        let Workload { metadata, references, .. } = object;
        let object = watched_object(key, &self.updater.bindings, metadata, |spec| {
            Wanted::of_workload(&spec.selection, &references)
        });
        self.updater.apply(key, object)
    }

    fn delete(&mut self, key: &ObjectRef) {
        self.updater.delete(key);
    }

    fn replace(&mut self, listed: &HashSet<ObjectRef>) {
        self.updater.remove_missing(self.kind, listed);
    }
}

/// Handles the events of the objects of kind `VaultPush`. The status of an undecodable one says so.
pub struct VaultPushHandler {
    /// Updates the bindings.
    pub updater: BindingUpdater,
}

impl EventHandler<VaultPush> for VaultPushHandler {
    type Key = ObjectRef;

    fn key(&self, metadata: &ObjectMeta) -> Option<ObjectRef> {
        ObjectRef::of(Kind::VaultPush, metadata)
    }

    fn apply(&mut self, key: &ObjectRef, object: VaultPush, _: Origin) -> bool {
        self.updater.apply(key, vault_push::watched_object(key, Guarded(Ok(object))))
    }

    fn undecodable(&mut self, key: &ObjectRef, object: Undecodable, _: Origin) {
        self.updater.apply(key, vault_push::watched_object(key, Guarded(Err(object))));
    }

    fn delete(&mut self, key: &ObjectRef) {
        self.updater.delete(key);
    }

    fn replace(&mut self, listed: &HashSet<ObjectRef>) {
        self.updater.remove_missing(Kind::VaultPush, listed);
    }
}

/// Handles the events of the Secrets.
pub struct SecretHandler {
    updater: BindingUpdater,
    can_opt_in: bool,
    /// The Secrets of the list that is being read that some object uses. Of all others, not even the name is kept.
    used: HashSet<SecretRef>,
    /// How many Secrets of the list that is being read are in each namespace.
    counts: HashMap<String, usize>,
}

impl SecretHandler {
    /// Handles the Secrets. Unless they can opt in, they matter only to the workloads that use them.
    pub fn new(updater: BindingUpdater, can_opt_in: bool) -> Self {
        Self { updater, can_opt_in, used: HashSet::new(), counts: HashMap::new() }
    }
}

impl EventHandler<PartialObjectMeta<Secret>> for SecretHandler {
    type Key = ObjectRef;

    fn key(&self, metadata: &ObjectMeta) -> Option<ObjectRef> {
        ObjectRef::of(Kind::Secret, metadata)
    }

    fn begin_list(&mut self) {
        self.used.clear();
        self.counts.clear();
    }

    fn apply(&mut self, key: &ObjectRef, object: PartialObjectMeta<Secret>, origin: Origin) -> bool {
        let (secret, metadata) = (key.secret(&key.name), object.metadata);
        if origin == Origin::List {
            *self.counts.entry(secret.namespace.clone()).or_default() += 1;
        }
        let (version, labels) = (metadata.resource_version.clone(), metadata.labels.clone().unwrap_or_default());
        let wanted = |spec: &PushSpec| Wanted::of_secret(&spec.selection, &key.name);
        let is_kept =
            self.can_opt_in && self.updater.apply(key, watched_object(key, &self.updater.bindings, metadata, wanted));
        self.updater.wake(self.updater.bindings.secret_is(&secret, version.as_deref(), &labels), SECRET);
        if origin == Origin::List && self.updater.bindings.is_used(&secret) {
            self.used.insert(secret);
        }
        is_kept
    }

    fn delete(&mut self, key: &ObjectRef) {
        self.updater.delete(key);
        self.updater.wake(self.updater.bindings.secret_is(&key.secret(&key.name), None, &BTreeMap::new()), SECRET);
    }

    fn replace(&mut self, listed: &HashSet<ObjectRef>) {
        self.updater.bindings.secrets_listed(std::mem::take(&mut self.counts));
        self.updater.remove_missing(Kind::Secret, listed);
        self.updater.wake(self.updater.bindings.secrets_are(&std::mem::take(&mut self.used)), SECRET);
    }
}

/// Returns the object as the bindings take it. `None` if it has not opted in.
fn watched_object(
    key: &ObjectRef,
    bindings: &Bindings,
    mut metadata: ObjectMeta,
    wanted: impl FnOnce(&PushSpec) -> Wanted,
) -> Option<WatchedObject> {
    let annotations = metadata.annotations.take().unwrap_or_default();
    let uid = metadata.uid.as_deref()?;
    let spec = match parse_spec(&annotations) {
        None => ParsedSpec::Nothing { deletion: deletion_policy(&annotations), grace: deletion_grace(&annotations) },
        Some(Err(invalid)) => ParsedSpec::Invalid(Arc::new(invalid), deletion_policy(&annotations)),
        Some(Ok(spec)) => {
            let wanted = wanted(&spec);
            ParsedSpec::Push(Arc::new(Push { spec, wanted }))
        }
    };
    // That of a copy is another object's.
    let record = annotations.get(STATUS).filter(|text| Record::read(text, uid).is_some()).cloned();
    // Another client may have removed everything, while the content is in Vault.
    let is_left = matches!(spec, ParsedSpec::Nothing { .. }) && !has_finalizer(&metadata) && record.is_none();
    if is_left && !bindings.has_content(key, uid) {
        return None;
    }
    WatchedObject::of(key, metadata, spec, record)
}

#[cfg(test)]
mod tests;
