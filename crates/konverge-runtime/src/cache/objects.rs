//! The objects of a cache by their names.
//!
//! Each is found by the name that it has itself: a map with keys of its own would hold every name twice, which is a good part of
//! what a small object takes.

use std::{
    hash::{BuildHasher, RandomState},
    sync::Arc,
};

use hashbrown::HashTable;
use kube::Resource;

use crate::object::ObjectKey;

/// Objects, each with a name of its own.
pub(super) struct Objects<K> {
    table: HashTable<Arc<K>>,
    hashes: RandomState,
}

/// As in [`ObjectKey`], without a copy.
type Name<'a> = (Option<&'a str>, &'a str);

impl<K> Default for Objects<K> {
    fn default() -> Self {
        Self { table: HashTable::new(), hashes: RandomState::new() }
    }
}

impl<K> Objects<K> {
    pub(super) fn len(&self) -> usize {
        self.table.len()
    }

    /// In no order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Arc<K>> {
        self.table.iter()
    }
}

impl<K: Resource> Objects<K> {
    pub(super) fn get(&self, key: &ObjectKey) -> Option<&Arc<K>> {
        let name = name_of_key(key);
        self.table.find(self.hashes.hash_one(name), |object| name_of(&**object) == name)
    }

    /// Returns the one that had its name before.
    pub(super) fn insert(&mut self, object: Arc<K>) -> Option<Arc<K>> {
        let name = name_of(&*object);
        let hash = self.hashes.hash_one(name);
        if let Some(known) = self.table.find_mut(hash, |known| name_of(&**known) == name) {
            return Some(std::mem::replace(known, object));
        }
        self.table.insert_unique(hash, object, |known| self.hashes.hash_one(name_of(&**known)));
        None
    }

    pub(super) fn remove(&mut self, key: &ObjectKey) -> Option<Arc<K>> {
        let name = name_of_key(key);
        let found = self.table.find_entry(self.hashes.hash_one(name), |object| name_of(&**object) == name);
        Some(found.ok()?.remove().0)
    }
}

fn name_of_key(key: &ObjectKey) -> Name<'_> {
    (key.namespace.as_deref(), &key.name)
}

fn name_of<K: Resource>(object: &K) -> Name<'_> {
    let meta = object.meta();
    (meta.namespace.as_deref(), meta.name.as_deref().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;

    use super::*;

    fn object(key: &ObjectKey, version: usize) -> Arc<ConfigMap> {
        let mut object = ConfigMap::default();
        object.metadata.namespace.clone_from(&key.namespace);
        object.metadata.name = Some(key.name.clone());
        object.metadata.resource_version = Some(version.to_string());
        Arc::new(object)
    }

    #[test]
    fn each_is_found_by_its_name_and_no_other_however_many_there_are() {
        let mut objects = Objects::default();
        let keys: Vec<ObjectKey> = (0..1000)
            .flat_map(|number| {
                let name = number.to_string();
                [ObjectKey::cluster(&name), ObjectKey::namespaced("a", &name), ObjectKey::namespaced("b", name)]
            })
            .collect();
        for (number, key) in keys.iter().enumerate() {
            assert!(objects.get(key).is_none());
            assert!(objects.insert(object(key, number)).is_none());
        }
        assert_eq!(objects.len(), keys.len());
        for (number, key) in keys.iter().enumerate() {
            assert_eq!(objects.get(key).and_then(|found| ObjectKey::of(&**found)).as_ref(), Some(key));
            let version = Some(number.to_string());
            assert_eq!(objects.insert(object(key, 0)).map(|old| old.metadata.resource_version.clone()), Some(version));
        }
        let (gone, left) = keys.split_at(1500);
        for key in gone {
            assert!(objects.remove(key).is_some() && objects.remove(key).is_none() && objects.get(key).is_none());
        }
        assert!(left.iter().all(|key| objects.get(key).is_some()));
        assert_eq!(objects.iter().count(), left.len());
    }
}
