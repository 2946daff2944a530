//! The cache's decisions: which objects it keeps, and which changes it reports.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use tokio::time::Instant;

use super::{
    change::Change,
    entries::Indexer,
    objects::Objects,
    unobserved_writes::{UnobservedWrites, is_in},
};
use crate::{
    object::ObjectKey,
    own_writes::{Freshness, OwnWrites},
    version::{is_older, number},
    watch::{Guarded, Undecodable},
};

/// A report of a watch or a list about one object.
#[derive(Debug)]
pub(super) enum Seen<K> {
    /// It exists like this.
    Applied { object: Guarded<K>, listed: bool },
    /// It is gone.
    Deleted(Guarded<K>),
    /// A list has ended.
    Listed { key: ObjectKey, end: ListEnd },
}

/// The consequence of the end of a list for one object.
#[derive(Debug, Clone, Copy)]
pub(super) struct ListEnd {
    /// The version of the list.
    version: Option<u64>,
    /// Whether the object was known before and is not in the list.
    is_missing: bool,
    /// Whether the list proves that the API server's store is older than what was seen before.
    went_back: bool,
}

/// The objects that are known.
pub(super) struct State<K> {
    pub(super) objects: Objects<K>,
    pub(super) undecodable: HashMap<ObjectKey, Undecodable>,
    /// Those of them that nobody was told of yet.
    pub(super) unreported_undecodable: Vec<ObjectKey>,
    pub(super) indexes: Vec<Arc<dyn Indexer<K>>>,
    own_writes: OwnWrites<ObjectKey>,
    unobserved: UnobservedWrites,
    /// Objects that a list shows as older than they are known, until the version of the list tells which of both is right.
    disputed: HashMap<ObjectKey, K>,
    /// By the namespace of the watch: the version up to which it has shown everything.
    progress: HashMap<Option<String>, u64>,
    /// Objects as they were before writes of ours that the watch has not shown yet.
    before: HashMap<ObjectKey, Arc<K>>,
    writing: HashMap<ObjectKey, Held<K>>,
}

/// The reports about an object that are held while a write of ours to it is under way.
struct Held<K> {
    writes: usize,
    seen: Vec<Seen<K>>,
}

/// Changes to tell.
pub(super) type Changes<K> = Vec<(ObjectKey, Change<K>)>;

impl<K> Default for State<K> {
    fn default() -> Self {
        Self {
            objects: Objects::default(),
            undecodable: HashMap::new(),
            unreported_undecodable: Vec::new(),
            indexes: Vec::new(),
            own_writes: OwnWrites::default(),
            unobserved: UnobservedWrites::default(),
            disputed: HashMap::new(),
            progress: HashMap::new(),
            before: HashMap::new(),
            writing: HashMap::new(),
        }
    }
}

impl<K: Resource> State<K> {
    /// Takes in what the watch says, or holds it until our write is over.
    pub(super) fn see(&mut self, seen: Seen<K>) -> Changes<K> {
        let key = match &seen {
            Seen::Applied { object, .. } | Seen::Deleted(object) => ObjectKey::of(object),
            Seen::Listed { key, .. } => Some(key.clone()),
        };
        let Some(key) = key else { return Vec::new() };
        if let Seen::Applied { object, listed: false } | Seen::Deleted(object) = &seen {
            self.advance(&key, version_of(object.meta()));
        }
        if let Some(held) = self.writing.get_mut(&key) {
            held.seen.push(seen);
            return Vec::new();
        }
        let change = match seen {
            Seen::Applied { object: Guarded(Ok(object)), listed } => self.applied(&key, object, listed),
            Seen::Applied { object: Guarded(Err(undecodable)), .. } => {
                self.mark_undecodable(&key, undecodable);
                None
            }
            Seen::Deleted(object) => self.gone(&key, object.meta()),
            Seen::Listed { end, .. } => self.list_ended(&key, end),
        };
        change.map(|change| (key, change)).into_iter().collect()
    }

    /// Keeps the known object: an object that cannot be decoded is not gone.
    fn mark_undecodable(&mut self, key: &ObjectKey, undecodable: Undecodable) {
        if self.is_overtaken(key, &undecodable.metadata) {
            return;
        }
        self.mark_observed(key, &undecodable.metadata);
        if self.undecodable.get(key).is_none_or(|known| known.error != undecodable.error) {
            tracing::warn!(kind = std::any::type_name::<K>(), object = %key, error = undecodable.error, "cannot understand an object; leaving it alone until it is mended");
            self.unreported_undecodable.push(key.clone());
        }
        self.undecodable.insert(key.clone(), undecodable);
    }

    /// Returns the objects known in that namespace, or anywhere, when a list begins. The objects among them that the
    /// list does not contain are gone.
    ///
    /// Remembering the listed objects instead would cost a name for each object of a first list, which has nothing to compare with.
    pub(super) fn begin_list(&mut self, namespace: Option<&str>) -> HashSet<ObjectKey> {
        self.disputed.retain(|key, _| !is_in(key, namespace));
        self.unobserved.begin_list(namespace);
        // An object that is being written may be known by the time the list ends, from the held reports.
        // The watch may never show the end of an object that this process deleted. The list then proves it.
        let others = self.undecodable.keys().chain(self.writing.keys()).chain(self.unobserved.keys()).cloned();
        self.keys().chain(others).filter(|key| is_in(key, namespace)).collect()
    }

    /// Ends the list of a namespace, or of everything, at this version; `missing` were known when it began and are not in it.
    ///
    /// The list is the state at its version. An object that it lacks is gone, unless we wrote it later. If it shows an object in another
    /// version than the known one, the list is right, unless we wrote later.
    pub(super) fn end_list(
        &mut self,
        namespace: Option<&str>,
        version: Option<u64>,
        missing: HashSet<ObjectKey>,
    ) -> Changes<K> {
        let went_back = version.is_some_and(|version| self.went_back(namespace, version, &missing));
        if went_back {
            tracing::warn!(
                kind = std::any::type_name::<K>(),
                version,
                "the API server's store is older than what was seen before, as after a restore of an older copy of etcd; taking its state and forgetting own writes"
            );
            self.unobserved.forget_all(namespace);
            self.own_writes.retain(|key| !is_in(key, namespace));
            self.before.retain(|key, _| !is_in(key, namespace));
        }
        // An object that is being written is looked at when that is over, and may be disputed only then.
        let open = self.disputed.keys().chain(self.writing.keys()).filter(|key| is_in(key, namespace));
        let open: HashSet<_> = open.filter(|key| !missing.contains(*key)).cloned().collect();
        let ended = missing.into_iter().map(|key| (key, true)).chain(open.into_iter().map(|key| (key, false)));
        let mut changes = Vec::new();
        for (key, is_missing) in ended {
            changes.extend(self.see(Seen::Listed { key, end: ListEnd { version, is_missing, went_back } }));
        }
        match version {
            Some(version) => changes.extend(self.passed(namespace, version)),
            None => self.forget_old(),
        }
        changes
    }

    /// Whether a list at this version contradicts what the watch has shown. Lists are never older than what was read before them, so the
    /// store must be another one.
    fn went_back(&self, namespace: Option<&str>, version: u64, missing: &HashSet<ObjectKey>) -> bool {
        let known = |key: &ObjectKey| self.objects.get(key).and_then(|known| version_of(known.meta()));
        let was_shown_later =
            |key: &ObjectKey| known(key).is_some_and(|known| known > version) && !self.unobserved.awaits(key);
        let contradicts = |key: &ObjectKey, object: &K| {
            was_shown_later(key)
                || known(key).is_some_and(|known| known <= version)
                || self.unobserved.is_contradicted(key, object.meta().uid.as_deref(), version)
        };
        self.progress.get(&namespace.map(ToOwned::to_owned)).is_some_and(|progress| *progress > version)
            || self.unobserved.is_newer_than_list(version, namespace)
            || missing.iter().any(was_shown_later)
            || self.disputed.iter().any(|(key, object)| is_in(key, namespace) && contradicts(key, object))
    }

    /// Takes in that the watch of a namespace, or of everything, has shown all up to this version.
    ///
    /// If it has not shown an object that we wrote by then, the watch does not select the object, such as one without the label.
    pub(super) fn passed(&mut self, namespace: Option<&str>, version: u64) -> Changes<K> {
        self.forget_old();
        self.progress.insert(namespace.map(ToOwned::to_owned), version);
        let passed = self.unobserved.passed(version, namespace);
        passed.into_iter().filter_map(|key| Some((key.clone(), self.drop_unobserved(&key)?))).collect()
    }

    /// Drops what we wrote and the watch did not show, unless a write is under way, with which it is looked at again.
    fn drop_unobserved(&mut self, key: &ObjectKey) -> Option<Change<K>> {
        if self.writing.contains_key(key) {
            return None;
        }
        self.forget_writes(key);
        let old = self.replace(key, None)?;
        Some(Change { old: Some(old), new: None, listed: true })
    }

    fn list_ended(&mut self, key: &ObjectKey, end: ListEnd) -> Option<Change<K>> {
        let disputed = self.disputed.remove(key);
        let known = self.objects.get(key).map(|known| (known.meta().uid.clone(), version_of(known.meta())));
        let is_of_this_world = !end.went_back || self.unobserved.awaits(key);
        let wrote_later = is_of_this_world
            && match (known, end.version) {
                (Some((_, Some(known))), Some(version)) => known > version,
                // Without an order, a list counts as older while the echo of our write is awaited.
                (Some((uid, _)), _) => self.own_writes.awaits(key, uid.as_deref(), Instant::now()),
                // Deleted by us, and the list may be from before.
                (None, _) => true,
            };
        if end.is_missing {
            self.undecodable.remove(key);
            if end.version.is_some_and(|version| self.unobserved.absent(key, version)) {
                self.forget_writes(key);
            }
        }
        if wrote_later {
            // The object that our write replaced was gone by then, which the write may not have known.
            let before = self.before.get(key).filter(|_| end.is_missing).cloned()?;
            return self.overtook(key, Some(before), true);
        }
        let new = disputed.filter(|_| end.version.is_some()).map(Arc::new);
        if new.is_none() && !end.is_missing {
            return None;
        }
        self.forget_writes(key);
        let old = self.replace(key, new.as_ref());
        (old.is_some() || new.is_some()).then_some(Change { old, new, listed: true })
    }

    fn forget_writes(&mut self, key: &ObjectKey) {
        self.unobserved.forget(key);
        self.own_writes.forget(key);
        self.before.remove(key);
    }

    /// The names of all objects, in no order.
    pub(super) fn keys(&self) -> impl Iterator<Item = ObjectKey> {
        self.objects.iter().filter_map(|object| ObjectKey::of(&**object))
    }

    /// Holds what the watch says of this object from now on.
    pub(super) fn begin_write(&mut self, key: &ObjectKey) {
        self.writing.entry(key.clone()).or_insert_with(|| Held { writes: 0, seen: Vec::new() }).writes += 1;
    }

    /// Looks at what was held. Returns what it changed.
    pub(super) fn end_write(&mut self, key: &ObjectKey) -> Changes<K> {
        let Some(held) = self.writing.get_mut(key) else { return Vec::new() };
        held.writes -= 1;
        if held.writes > 0 {
            return Vec::new();
        }
        let seen = self.writing.remove(key).map(|held| held.seen).unwrap_or_default();
        let mut changes: Changes<K> = seen.into_iter().flat_map(|seen| self.see(seen)).collect();
        let progress = self.progress_of(key);
        if progress.is_some_and(|progress| self.unobserved.is_passed(key, progress)) {
            changes.extend(self.drop_unobserved(key).map(|change| (key.clone(), change)));
        }
        changes
    }

    /// A watch shows events in their order, so this one proves that all before it were shown.
    fn advance(&mut self, key: &ObjectKey, version: Option<u64>) {
        let whole = !self.progress.contains_key(&key.namespace);
        let progress = self.progress.get_mut(if whole { &None } else { &key.namespace });
        if let (Some(progress), Some(version)) = (progress, version) {
            *progress = version.max(*progress);
        }
    }

    /// The version up to which the watch that is about this object has shown everything.
    fn progress_of(&self, key: &ObjectKey) -> Option<u64> {
        self.progress.get(&key.namespace).or_else(|| self.progress.get(&None)).copied()
    }

    /// Whether a list showed another store while the object was being written. The known object is from the store before, so the answer cannot be
    /// compared with it, and the list and the watch are believed.
    fn is_across_stores(&self, key: &ObjectKey) -> bool {
        let is_another = |seen: &Seen<K>| matches!(seen, Seen::Listed { end, .. } if end.went_back);
        self.writing.get(key).is_some_and(|held| held.seen.iter().any(is_another))
    }

    /// Takes in the answer to a write. Returns what the write changed, and what was held meanwhile.
    ///
    /// The answer to a write that changed nothing has the version of another client's change, whose event then counts as our echo. The two
    /// cannot be told apart here. Our entries in `managedFields` have their time in seconds, so a second change within a second leaves them
    /// as they are, as does a deletion that waits for finalizers. Entries that differ may come from an earlier write whose answer was lost.
    /// Only the sender can tell: it compares the values of its fields in what it read and in the answer. `konverge-apply` does so for an
    /// apply of a whole object, and drops the write without a word.
    pub(super) fn wrote(&mut self, key: &ObjectKey, object: K) -> (Changes<K>, Changes<K>) {
        if self.is_across_stores(key) {
            return (Vec::new(), self.end_write(key));
        }
        let meta = object.meta();
        let (uid, version) = (meta.uid.clone(), meta.resource_version.clone().unwrap_or_default());
        let known = self.objects.get(key).map(|known| known.meta());
        let is_known = known.is_some_and(|known| {
            known.uid == uid
                && known.resource_version.as_deref().is_some_and(|known| known == version || is_older(&version, known))
        });
        let number = number(&version);
        // The watch has been there and has shown nothing: it is not about this object.
        let is_passed = number.is_some_and(|number| self.progress_of(key).is_some_and(|progress| number <= progress))
            && self.writing.get(key).is_none_or(|held| held.seen.is_empty())
            && known.is_none();
        let mut changes = Vec::new();
        if !is_known && !is_passed && !self.is_overtaken(key, meta) {
            self.own_writes.wrote(key, uid.as_deref(), &version, Instant::now());
            if let Some(number) = number {
                self.unobserved.wrote(key, uid.as_deref(), number);
            }
            let new = Arc::new(object);
            let old = self.replace(key, Some(&new));
            if let Some(old) = &old {
                self.before.entry(key.clone()).or_insert_with(|| Arc::clone(old));
            }
            changes.push((key.clone(), Change { old, new: Some(new), listed: false }));
        }
        (changes, self.end_write(key))
    }

    /// Takes in the answer to a deletion. Returns what it changed, and what was held meanwhile.
    pub(super) fn deleted(&mut self, key: &ObjectKey, uid: Option<&str>) -> (Changes<K>, Changes<K>) {
        let mut changes = Vec::new();
        if self.is_across_stores(key) {
            return (changes, self.end_write(key));
        }
        let known = self.objects.get(key).filter(|known| known.meta().uid.as_deref() == uid);
        if let Some(version) = known.map(|known| version_of(known.meta())) {
            self.own_writes.deleted(key, uid, Instant::now());
            if let Some(version) = version {
                self.unobserved.deleted(key, uid, version);
            }
            let old = self.replace(key, None);
            changes.push((key.clone(), Change { old, new: None, listed: false }));
        }
        (changes, self.end_write(key))
    }

    fn applied(&mut self, key: &ObjectKey, object: K, listed: bool) -> Option<Change<K>> {
        let was_undecodable = self.undecodable.remove(key).is_some();
        let meta = object.meta();
        let version = meta.resource_version.as_deref().unwrap_or_default();
        let is_overtaken = self.is_overtaken(key, meta);
        let mut freshness = self.own_writes.classify(key, meta.uid.as_deref(), version, Instant::now());
        let known = self.objects.get(key).map(|known| known.meta());
        let is_known =
            known.is_some_and(|known| known.uid == meta.uid && known.resource_version == meta.resource_version);
        if freshness != Freshness::New && !is_overtaken && !is_known && version_of(meta).is_some() {
            // Newer than all that is known, so the awaited write is of the time before, as after a restore of an older store.
            self.own_writes.forget(key);
            freshness = Freshness::New;
        }
        // A list does not show what happened before our write, which may not have known it.
        let is_first_showing = listed && self.unobserved.awaits(key);
        self.mark_observed(key, meta);
        let before = self.before.get(key).cloned();
        if !self.own_writes.awaits_any(key, Instant::now()) {
            self.before.remove(key);
        }
        if is_overtaken {
            if listed {
                self.disputed.insert(key.clone(), object);
            }
            let is_echo = freshness == Freshness::Echo && !listed;
            return if is_echo { None } else { self.overtook(key, before, listed) };
        }
        match freshness {
            Freshness::Echo if is_first_showing => self.overtook(key, before, listed),
            Freshness::Echo => None,
            // It happened before our write, which may have been made without knowing it.
            Freshness::Stale => self.overtook(key, before, listed),
            Freshness::New => {
                if is_known && !was_undecodable {
                    return if is_first_showing { self.overtook(key, before, listed) } else { None };
                }
                let new = Arc::new(object);
                let old = self.replace(key, Some(&new));
                Some(Change { old, new: Some(new), listed })
            }
        }
    }

    /// Tells that something happened before our last write, which may not have known it.
    fn overtook(&self, key: &ObjectKey, before: Option<Arc<K>>, listed: bool) -> Option<Change<K>> {
        let new = self.objects.get(key).cloned()?;
        Some(Change { old: before, new: Some(new), listed })
    }

    /// Whether this is older than what is known of the object.
    fn is_overtaken(&self, key: &ObjectKey, meta: &ObjectMeta) -> bool {
        let Some(version) = version_of(meta) else { return false };
        let known = self.objects.get(key).and_then(|known| version_of(known.meta()));
        known.is_some_and(|known| version < known) || self.unobserved.is_overtaken(key, meta.uid.as_deref(), version)
    }

    fn mark_observed(&mut self, key: &ObjectKey, meta: &ObjectMeta) {
        if let Some(version) = version_of(meta) {
            self.unobserved.observed(key, meta.uid.as_deref(), version);
        }
    }

    fn gone(&mut self, key: &ObjectKey, meta: &ObjectMeta) -> Option<Change<K>> {
        let uid = meta.uid.as_deref();
        if version_of(meta).is_some_and(|end| self.unobserved.is_deleted_later(key, uid, end)) {
            // It left the selection before our deletion, whose own event is still to come.
            return None;
        }
        let known = self.objects.get(key).map(|known| known.meta());
        let came_back = known.is_some_and(|known| {
            known.uid.as_deref() == uid
                && matches!((version_of(meta), version_of(known)), (Some(end), Some(known)) if end < known)
        });
        if came_back {
            // It left the selection, and a later write of ours brought it back.
            let before = self.before.get(key).cloned();
            return self.overtook(key, before, false);
        }
        let was_undecodable = self.undecodable.remove(key).is_some();
        self.unobserved.ended(key, uid);
        let freshness = self.own_writes.classify_deletion(key, uid, Instant::now());
        if !self.own_writes.awaits_any(key, Instant::now()) {
            self.before.remove(key);
        }
        let known = self.objects.get(key)?;
        if known.meta().uid.as_deref() != uid {
            // A predecessor. If it went before a write of ours made the object anew, that write may not have known.
            let new = Some(Arc::clone(known));
            let is_overtaken = self.own_writes.awaits_any(key, Instant::now()) || self.unobserved.awaits(key);
            return is_overtaken.then_some(Change { old: None, new, listed: false });
        }
        let old = self.replace(key, None);
        // The last state of an object that could not be understood is not known, as after a list.
        (freshness == Freshness::New).then_some(Change { old, new: None, listed: was_undecodable })
    }

    fn forget_old(&mut self) {
        let (own_writes, now) = (&mut self.own_writes, Instant::now());
        own_writes.sweep(now);
        self.before.retain(|key, _| own_writes.awaits_any(key, now));
    }

    fn replace(&mut self, key: &ObjectKey, new: Option<&Arc<K>>) -> Option<Arc<K>> {
        let old = match new {
            Some(new) => self.objects.insert(Arc::clone(new)),
            None => self.objects.remove(key),
        };
        for index in &self.indexes {
            index.replace(key, old.as_deref(), new.map(AsRef::as_ref));
        }
        old
    }
}

fn version_of(meta: &ObjectMeta) -> Option<u64> {
    number(meta.resource_version.as_deref()?)
}

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;
