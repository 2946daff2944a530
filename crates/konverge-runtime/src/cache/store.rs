//! The objects that a watch has shown, for reads without a request.

use std::{
    collections::{HashMap, HashSet},
    hash::Hash,
    sync::{
        Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard,
        atomic::{AtomicUsize, Ordering},
    },
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;

use super::{
    change::Change,
    entries::{Declared, Entries, Indexer},
    state::{Changes, Seen, State},
};
use crate::{object::ObjectKey, watch::Undecodable};

/// The objects of a cache. Clones are handles to the same ones.
///
/// A read costs a lock and a pointer. An object may be older than the API server's, but never older than a write of this
/// process through [`Store::writing`].
pub struct Store<K>(Arc<Shared<K>>);

struct Shared<K> {
    state: RwLock<State<K>>,
    subscribers: RwLock<Vec<(Subscriber, Listener<K>)>>,
    /// The field manager whose `managedFields` are kept.
    field_manager: String,
    transform: Option<Transform<K>>,
    declared: Declared,
    next_subscriber: AtomicUsize,
    undecodable_listeners: RwLock<Vec<UndecodableListener>>,
}

/// Removes the fields of an object that the program never reads.
pub(super) type Transform<K> = Arc<dyn Fn(&mut K) + Send + Sync>;

/// A listener for objects that cannot be decoded.
type UndecodableListener = Arc<dyn Fn(&ObjectKey) + Send + Sync>;

type Listener<K> = Arc<dyn Fn(&ObjectKey, &Change<K>) + Send + Sync>;

/// A subscription to changes. A write can leave its own subscription out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Subscriber(usize);

impl<K> Clone for Store<K> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<K: Resource + Send + Sync + 'static> Store<K> {
    /// An empty store that keeps the `managedFields` of this manager.
    pub fn new(field_manager: impl Into<String>) -> Self {
        Self::transforming(field_manager.into(), None)
    }

    /// An empty store that takes something from each object before it keeps it.
    pub(super) fn transforming(field_manager: String, transform: Option<Transform<K>>) -> Self {
        Self(Arc::new(Shared {
            state: RwLock::default(),
            subscribers: RwLock::default(),
            field_manager,
            transform,
            declared: Declared::default(),
            next_subscriber: AtomicUsize::new(0),
            undecodable_listeners: RwLock::default(),
        }))
    }

    /// Keeps the keys of the objects by values, from now on.
    pub(super) fn add_entries<V>(&self, values: impl Fn(&K) -> Vec<V> + Send + Sync + 'static) -> Arc<Entries<K, V>>
    where
        V: Clone + Eq + Hash + Send + Sync + 'static,
    {
        let entries = Arc::new(Entries::new(values));
        let mut state = self.write();
        for object in state.objects.iter() {
            if let Some(key) = ObjectKey::of(&**object) {
                entries.replace(&key, None, Some(object));
            }
        }
        state.indexes.push(Arc::clone(&entries) as Arc<dyn Indexer<K>>);
        drop(state);
        entries
    }

    pub(super) fn declared(&self) -> &Declared {
        &self.0.declared
    }

    /// The object of that name, as far as it is known.
    pub fn get(&self, key: &ObjectKey) -> Option<Arc<K>> {
        self.read().objects.get(key).cloned()
    }

    /// All objects, in no order.
    pub fn list(&self) -> Vec<Arc<K>> {
        self.read().objects.iter().cloned().collect()
    }

    /// The names of all objects, in no order.
    pub fn keys(&self) -> Vec<ObjectKey> {
        self.read().keys().collect()
    }

    /// How many objects there are.
    pub fn len(&self) -> usize {
        self.read().objects.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Objects that exist but are not what their kind says, and what is wrong with them.
    pub fn undecodable(&self) -> HashMap<ObjectKey, String> {
        self.read().undecodable.iter().map(|(key, undecodable)| (key.clone(), undecodable.error.clone())).collect()
    }

    /// How many of them there are.
    pub(super) fn undecodable_len(&self) -> usize {
        self.read().undecodable.len()
    }

    /// Returns why an object cannot be decoded, or `None` if it can or does not exist.
    pub fn why_undecodable(&self, key: &ObjectKey) -> Option<Undecodable> {
        self.read().undecodable.get(key).cloned()
    }

    /// Calls `listener` for each change from now on. The task of the watch calls it, so it must not wait.
    pub fn subscribe(&self, listener: impl Fn(&ObjectKey, &Change<K>) + Send + Sync + 'static) -> Subscriber {
        let id = Subscriber(self.0.next_subscriber.fetch_add(1, Ordering::Relaxed));
        self.0.subscribers.write().unwrap_or_else(PoisonError::into_inner).push((id, Arc::new(listener)));
        id
    }

    /// Calls `listener` from now on for each object that cannot be decoded, once for each new reason.
    /// [`undecodable`](Self::undecodable) has the reasons. The task of the watch calls it, so it must not wait.
    pub fn when_undecodable(&self, listener: impl Fn(&ObjectKey) + Send + Sync + 'static) {
        self.0.undecodable_listeners.write().unwrap_or_else(PoisonError::into_inner).push(Arc::new(listener));
    }

    /// Announces a write of this process, before its request is sent. Events of the object that the watch shows meanwhile are held until
    /// the write is over, because only then can an echo be told from a change of another client.
    ///
    /// Every subscription except `by` is notified of the write.
    pub fn writing(&self, key: ObjectKey, by: impl IntoIterator<Item = Subscriber>) -> Writing<K> {
        let mut state = self.write();
        state.begin_write(&key);
        let known_uid = state.objects.get(&key).and_then(|known| known.meta().uid.clone());
        drop(state);
        Writing { store: self.clone(), key, by: by.into_iter().collect(), known_uid, is_over: false }
    }

    /// Takes in what the watch says.
    pub(super) fn see(&self, seen: Seen<K>) {
        let changes = self.take_in(seen);
        self.notify(&changes, &[]);
        self.notify_undecodable();
    }

    /// Takes in what the first list says, and tells nobody until it is complete: [`filled`](Self::filled). Nobody works before, and
    /// what subscribers remember of each object would lie between the objects, as holes that stay when it is forgotten.
    pub(super) fn fill(&self, seen: Seen<K>) {
        self.take_in(seen);
    }

    /// Tells of each object in `namespace`, or everywhere, that it was listed.
    pub(super) fn filled(&self, namespace: Option<&str>) {
        let is_there = |object: &K| namespace.is_none() || object.meta().namespace.as_deref() == namespace;
        for object in self.list().into_iter().filter(|object| is_there(object)) {
            if let Some(key) = ObjectKey::of(&*object) {
                self.notify(&[(key, Change { old: None, new: Some(object), listed: true })], &[]);
            }
        }
        self.notify_undecodable();
    }

    fn take_in(&self, mut seen: Seen<K>) -> Changes<K> {
        if let Seen::Applied { object, .. } = &mut seen {
            self.reduce(object.meta_mut());
            if let Ok(object) = &mut object.0 {
                self.transform(object);
            }
        }
        self.write().see(seen)
    }

    /// Returns the objects known in `namespace`, or everywhere, when a list of it begins.
    pub(super) fn begin_list(&self, namespace: Option<&str>) -> HashSet<ObjectKey> {
        self.write().begin_list(namespace)
    }

    /// Ends a list of `namespace`, or of everything, at this version; `missing` were known when it began and were not in it.
    pub(super) fn end_list(&self, namespace: Option<&str>, version: Option<u64>, missing: HashSet<ObjectKey>) {
        let changes = self.write().end_list(namespace, version, missing);
        self.notify(&changes, &[]);
    }

    /// Takes in that the watch of `namespace`, or of everything, has shown all up to this version.
    pub(super) fn passed(&self, namespace: Option<&str>, version: u64) {
        let changes = self.write().passed(namespace, version);
        self.notify(&changes, &[]);
    }

    /// The entries of other managers are often larger than the object, and nobody here asks for them.
    fn reduce(&self, meta: &mut ObjectMeta) {
        if let Some(entries) = &mut meta.managed_fields {
            entries.retain(|entry| entry.manager.as_ref() == Some(&self.0.field_manager));
            entries.shrink_to_fit();
        }
    }

    /// Transforms an object, and keeps its identity and version, without which it could not be found again.
    fn transform(&self, object: &mut K) {
        let Some(transform) = &self.0.transform else { return };
        let meta = object.meta();
        let identity = (meta.name.clone(), meta.namespace.clone(), meta.uid.clone());
        let age = (meta.resource_version.clone(), meta.generation);
        transform(object);
        let meta = object.meta_mut();
        (meta.name, meta.namespace, meta.uid) = identity;
        (meta.resource_version, meta.generation) = age;
    }

    fn notify_undecodable(&self) {
        if self.read().unreported_undecodable.is_empty() {
            return;
        }
        let unreported_undecodable = std::mem::take(&mut self.write().unreported_undecodable);
        let listeners = self.0.undecodable_listeners.read().unwrap_or_else(PoisonError::into_inner).clone();
        for key in &unreported_undecodable {
            for listener in &listeners {
                listener(key);
            }
        }
    }

    fn notify(&self, changes: &[(ObjectKey, Change<K>)], except: &[Subscriber]) {
        if changes.is_empty() {
            return;
        }
        // Listeners may read this store, so no lock is held while they run.
        let subscribers = self.0.subscribers.read().unwrap_or_else(PoisonError::into_inner).clone();
        for (key, change) in changes {
            for (_, listener) in subscribers.iter().filter(|(id, _)| !except.contains(id)) {
                listener(key, change);
            }
        }
    }

    fn read(&self) -> RwLockReadGuard<'_, State<K>> {
        self.0.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, State<K>> {
        self.0.state.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A write under way. Dropped without a word, its outcome is unknown, and the watch is believed.
#[must_use = "tell it how the write ended"]
pub struct Writing<K: Resource + Send + Sync + 'static> {
    store: Store<K>,
    key: ObjectKey,
    by: Vec<Subscriber>,
    /// The uid that was known when the write began.
    known_uid: Option<String>,
    is_over: bool,
}

impl<K: Resource + Send + Sync + 'static> Writing<K> {
    /// The API server answered with the object as it is now.
    pub fn wrote(mut self, mut object: K) {
        self.is_over = true;
        self.store.reduce(object.meta_mut());
        self.store.transform(&mut object);
        let (own, seen) = self.store.write().wrote(&self.key, object);
        self.store.notify(&own, &self.by);
        self.store.notify(&seen, &[]);
        self.store.notify_undecodable();
    }

    /// The API server answered that the object with this uid is gone; `None` means that it has no object of the name. Then the one that
    /// was known when the write began is gone, because no other object ever has its uid.
    pub fn deleted(mut self, uid: Option<&str>) {
        self.is_over = true;
        let uid = uid.or(self.known_uid.as_deref());
        let (own, seen) = self.store.write().deleted(&self.key, uid);
        self.store.notify(&own, &self.by);
        self.store.notify(&seen, &[]);
        self.store.notify_undecodable();
    }
}

impl<K: Resource + Send + Sync + 'static> Drop for Writing<K> {
    fn drop(&mut self) {
        if !self.is_over {
            let seen = self.store.write().end_write(&self.key);
            self.store.notify(&seen, &[]);
            self.store.notify_undecodable();
        }
    }
}

#[cfg(test)]
mod tests;
