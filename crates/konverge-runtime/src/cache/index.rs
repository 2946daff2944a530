//! Finding objects by something else than their name.

use std::{
    collections::{HashMap, HashSet},
    hash::Hash,
    sync::{Arc, PoisonError, RwLock},
};

use kube::Resource;

use super::store::Store;
use crate::object::ObjectKey;

/// The objects of a store by values that are taken from them. Clones are handles to the same index.
pub struct Index<K, V> {
    store: Store<K>,
    entries: Arc<Entries<K, V>>,
}

impl<K, V> Clone for Index<K, V> {
    fn clone(&self) -> Self {
        Self { store: self.store.clone(), entries: Arc::clone(&self.entries) }
    }
}

impl<K: Resource + Send + Sync + 'static, V: Clone + Eq + Hash> Index<K, V> {
    pub(super) fn new(store: Store<K>, entries: Arc<Entries<K, V>>) -> Self {
        Self { store, entries }
    }

    /// The objects that have this value, in no order.
    pub fn get(&self, value: &V) -> Vec<Arc<K>> {
        self.keys(value).iter().filter_map(|key| self.store.get(key)).collect()
    }

    /// The names of the objects that have this value, in no order.
    pub fn keys(&self, value: &V) -> Vec<ObjectKey> {
        let keys = self.entries.keys.read().unwrap_or_else(PoisonError::into_inner);
        keys.get(value).map(|keys| keys.iter().cloned().collect()).unwrap_or_default()
    }
}

/// Keeps up with the store it belongs to.
pub(super) trait Indexer<K>: Send + Sync {
    fn replace(&self, key: &ObjectKey, old: Option<&K>, new: Option<&K>);
}

type Values<K, V> = dyn Fn(&K) -> Vec<V> + Send + Sync;

/// The keys of objects by value.
pub(super) struct Entries<K, V> {
    values: Box<Values<K, V>>,
    keys: RwLock<HashMap<V, HashSet<ObjectKey>>>,
}

impl<K, V> Entries<K, V> {
    pub(super) fn new(values: impl Fn(&K) -> Vec<V> + Send + Sync + 'static) -> Self {
        Self { values: Box::new(values), keys: RwLock::default() }
    }
}

impl<K, V> Indexer<K> for Entries<K, V>
where
    K: Send + Sync,
    V: Clone + Eq + Hash + Send + Sync,
{
    fn replace(&self, key: &ObjectKey, old: Option<&K>, new: Option<&K>) {
        let values = |object: Option<&K>| object.map(|object| (self.values)(object)).unwrap_or_default();
        let (before, after) = (values(old), values(new));
        if before == after {
            return;
        }
        let mut keys = self.keys.write().unwrap_or_else(PoisonError::into_inner);
        for value in before {
            if let Some(with_value) = keys.get_mut(&value) {
                with_value.remove(key);
                if with_value.is_empty() {
                    keys.remove(&value);
                }
            }
        }
        for value in after {
            keys.entry(value).or_default().insert(key.clone());
        }
    }
}
