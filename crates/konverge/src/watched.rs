//! The caches of what a controller watches besides its own kind, read as one.

use std::{
    any::{Any, TypeId},
    collections::BTreeMap,
    hash::Hash,
    sync::Arc,
};

use konverge_runtime::{
    cache::{Cache, Store},
    object::{Object, ObjectKey},
};

/// The cache of one declared watch, whatever its kind.
pub(crate) struct WatchedCache {
    id: TypeId,
    kind: Box<dyn Any + Send + Sync>,
    cache: Box<dyn Any + Send + Sync>,
}

impl WatchedCache {
    pub(crate) fn new<O: Object>(kind: O::DynamicType, cache: Cache<O>) -> Self {
        Self { id: TypeId::of::<O>(), kind: Box::new(kind), cache: Box::new(cache) }
    }

    fn store<O: Object>(&self, kind: &O::DynamicType) -> Option<&Store<O>> {
        let is_kind = self.id == TypeId::of::<O>() && self.kind.downcast_ref() == Some(kind);
        let cache: &Cache<O> = self.cache.downcast_ref().filter(|_| is_kind)?;
        Some(&cache.store)
    }
}

/// The objects of a kind that a controller [watches](crate::Controller::watches). Several watches of one kind are read as one, and an object
/// that several of them show is there once, in its newest version.
pub struct Watched<'a, O> {
    stores: Vec<&'a Store<O>>,
}

impl<'a, O: Object> Watched<'a, O> {
    /// Returns `None` if none of the watches is of this kind.
    pub(crate) fn among(caches: &'a [WatchedCache], kind: &O::DynamicType) -> Option<Self> {
        let stores: Vec<_> = caches.iter().filter_map(|cache| cache.store::<O>(kind)).collect();
        (!stores.is_empty()).then_some(Self { stores })
    }

    /// The object of that name, as far as it is known.
    pub fn get(&self, key: &ObjectKey) -> Option<Arc<O>> {
        self.stores.iter().filter_map(|store| store.get(key)).max_by_key(|object| version(&**object))
    }

    /// All objects, in no order.
    pub fn list(&self) -> Vec<Arc<O>> {
        self.merged(Store::list)
    }

    /// The names of all objects, in no order.
    pub fn keys(&self) -> Vec<ObjectKey> {
        match self.stores.as_slice() {
            [only] => only.keys(),
            _ => self.list().iter().filter_map(|object| ObjectKey::of(&**object)).collect(),
        }
    }

    /// The objects from which `by` takes this value; see [`Store::find`].
    pub fn find<V, By>(&self, by: By, value: &V) -> Vec<Arc<O>>
    where
        V: Clone + Eq + Hash + Send + Sync + 'static,
        By: Fn(&O) -> Vec<V> + Copy + Send + Sync + 'static,
    {
        self.merged(|store| store.find(by, value))
    }

    fn merged(&self, read: impl Fn(&Store<O>) -> Vec<Arc<O>>) -> Vec<Arc<O>> {
        if let [only] = self.stores.as_slice() {
            return read(only);
        }
        let mut objects: BTreeMap<ObjectKey, Arc<O>> = BTreeMap::new();
        for object in self.stores.iter().flat_map(|store| read(store)) {
            let Some(key) = ObjectKey::of(&*object) else { continue };
            let is_newest = objects.get(&key).is_none_or(|known| version(&**known) < version(&*object));
            if is_newest {
                objects.insert(key, object);
            }
        }
        objects.into_values().collect()
    }
}

/// Versions of one kind are numbers that grow (Kubernetes, "API concepts", resource versions).
fn version<O: Object>(object: &O) -> Option<u64> {
    object.meta().resource_version.as_ref()?.parse().ok()
}
