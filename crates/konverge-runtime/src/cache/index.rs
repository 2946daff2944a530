//! Finding objects by something else than their name.

use std::{hash::Hash, sync::Arc};

use kube::Resource;

use super::{entries::Entries, store::Store};
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
        self.entries.keys(value)
    }
}
