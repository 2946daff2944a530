//! The cache's decisions: what is kept, and what is worth telling.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use kube::Resource;
use tokio::time::Instant;

use super::{
    change::Change,
    index::Indexer,
    objects::Objects,
    own_writes::{OwnWrites, Reading, is_older},
};
use crate::{
    object::ObjectKey,
    watch::{Guarded, Undecodable},
};

/// What a watch says of one object.
#[derive(Debug)]
pub(super) enum Seen<K> {
    /// It exists like this.
    Applied { object: Guarded<K>, listed: bool },
    /// It is gone.
    Deleted(Guarded<K>),
}

/// What is known.
pub(super) struct State<K> {
    pub(super) objects: Objects<K>,
    pub(super) undecodable: HashMap<ObjectKey, Undecodable>,
    /// Those of them that nobody was told of yet.
    pub(super) puzzling: Vec<ObjectKey>,
    pub(super) indexes: Vec<Arc<dyn Indexer<K>>>,
    own_writes: OwnWrites,
    /// Objects as they were before writes of ours that the watch has not shown yet.
    before: HashMap<ObjectKey, Arc<K>>,
    writing: HashMap<ObjectKey, Held<K>>,
}

/// What the watch said of an object while a write of ours to it is under way.
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
            puzzling: Vec::new(),
            indexes: Vec::new(),
            own_writes: OwnWrites::default(),
            before: HashMap::new(),
            writing: HashMap::new(),
        }
    }
}

impl<K: Resource> State<K> {
    /// Takes in what the watch says, or holds it until our write is over.
    pub(super) fn see(&mut self, seen: Seen<K>) -> Changes<K> {
        let (Seen::Applied { object, .. } | Seen::Deleted(object)) = &seen;
        let Some(key) = ObjectKey::of(object) else { return Vec::new() };
        if let Some(held) = self.writing.get_mut(&key) {
            held.seen.push(seen);
            return Vec::new();
        }
        let change = match seen {
            Seen::Applied { object: Guarded(Ok(object)), listed } => self.applied(&key, object, listed),
            Seen::Applied { object: Guarded(Err(undecodable)), .. } => {
                self.puzzle(&key, undecodable);
                None
            }
            Seen::Deleted(object) => self.gone(&key, object.meta().uid.as_deref()),
        };
        change.map(|change| (key, change)).into_iter().collect()
    }

    /// What is known of it stays: not to understand an object is no reason to take it for gone.
    fn puzzle(&mut self, key: &ObjectKey, undecodable: Undecodable) {
        if self.undecodable.get(key).is_none_or(|known| known.error != undecodable.error) {
            tracing::warn!(kind = std::any::type_name::<K>(), object = %key, error = undecodable.error, "cannot understand an object; leaving it alone until it is mended");
            self.puzzling.push(key.clone());
        }
        self.undecodable.insert(key.clone(), undecodable);
    }

    /// What is known in that namespace, or anywhere: of this, what a list that begins now does not have is gone.
    ///
    /// To remember what is listed would come to the same, and cost a name for each object when there is nothing to compare with.
    pub(super) fn known(&self, namespace: Option<&str>) -> HashSet<ObjectKey> {
        let is_there = |key: &ObjectKey| namespace.is_none() || key.namespace.as_deref() == namespace;
        self.keys().chain(self.undecodable.keys().cloned()).filter(is_there).collect()
    }

    /// A list has ended that these were not in.
    pub(super) fn missing(&mut self, missing: HashSet<ObjectKey>) -> Changes<K> {
        self.own_writes.sweep(Instant::now());
        self.forget_before();
        let mut changes = Vec::new();
        for key in missing {
            self.undecodable.remove(&key);
            // A list can be older than our write; what we are writing or have just written is not taken for gone.
            let uid = self.objects.get(&key).and_then(|object| object.meta().uid.clone());
            if self.writing.contains_key(&key) || self.own_writes.awaits(&key, uid.as_deref(), Instant::now()) {
                continue;
            }
            if let Some(old) = self.replace(&key, None) {
                changes.push((key, Change { old: Some(old), new: None, listed: true }));
            }
        }
        changes
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
        seen.into_iter().flat_map(|seen| self.see(seen)).collect()
    }

    /// Takes in the answer to a write. Returns what the write changed, and what was held meanwhile.
    pub(super) fn wrote(&mut self, key: &ObjectKey, object: K) -> (Changes<K>, Changes<K>) {
        let meta = object.meta();
        let (uid, version) = (meta.uid.clone(), meta.resource_version.clone().unwrap_or_default());
        let known = self.objects.get(key).map(|known| known.meta());
        let is_known = known.is_some_and(|known| {
            known.uid == uid
                && known.resource_version.as_deref().is_some_and(|known| known == version || is_older(&version, known))
        });
        let mut changes = Vec::new();
        if !is_known {
            self.own_writes.wrote(key, uid.as_deref(), &version, Instant::now());
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
        if self.objects.get(key).is_some_and(|known| known.meta().uid.as_deref() == uid) {
            self.own_writes.deleted(key, uid, Instant::now());
            let old = self.replace(key, None);
            changes.push((key.clone(), Change { old, new: None, listed: false }));
        }
        (changes, self.end_write(key))
    }

    fn applied(&mut self, key: &ObjectKey, object: K, listed: bool) -> Option<Change<K>> {
        let was_undecodable = self.undecodable.remove(key).is_some();
        let meta = object.meta();
        let version = meta.resource_version.as_deref().unwrap_or_default();
        let reading = self.own_writes.read_apply(key, meta.uid.as_deref(), version, Instant::now());
        let before = self.before.get(key).cloned();
        if !self.own_writes.awaits_any(key, Instant::now()) {
            self.before.remove(key);
        }
        match reading {
            Reading::Echo => None,
            // It happened before our write, which may have been made without knowing it.
            Reading::Overtaken => {
                let new = self.objects.get(key).cloned()?;
                Some(Change { old: before, new: Some(new), listed })
            }
            Reading::News => {
                let known = self.objects.get(key).map(|known| known.meta());
                let is_known = known.is_some_and(|known| {
                    known.uid == meta.uid && known.resource_version == meta.resource_version && !was_undecodable
                });
                if is_known {
                    return None;
                }
                let new = Arc::new(object);
                let old = self.replace(key, Some(&new));
                Some(Change { old, new: Some(new), listed })
            }
        }
    }

    fn gone(&mut self, key: &ObjectKey, uid: Option<&str>) -> Option<Change<K>> {
        self.undecodable.remove(key);
        let reading = self.own_writes.read_delete(key, uid, Instant::now());
        if !self.own_writes.awaits_any(key, Instant::now()) {
            self.before.remove(key);
        }
        let known = self.objects.get(key)?;
        if known.meta().uid.as_deref() != uid {
            // A predecessor. If it went before a write of ours made the object anew, that write may not have known.
            let new = Some(Arc::clone(known));
            let is_overtaken = self.own_writes.awaits_any(key, Instant::now());
            return is_overtaken.then_some(Change { old: None, new, listed: false });
        }
        let old = self.replace(key, None);
        (reading == Reading::News).then_some(Change { old, new: None, listed: false })
    }

    fn forget_before(&mut self) {
        let (own_writes, now) = (&mut self.own_writes, Instant::now());
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

#[cfg(test)]
mod tests;
