//! The keys of objects by values that are taken from the objects.

use std::{
    any::{Any, TypeId},
    collections::{HashMap, HashSet, hash_map::Entry},
    hash::Hash,
    sync::{Arc, PoisonError, RwLock},
};

use crate::object::ObjectKey;

/// Keeps up with the store it belongs to.
pub(super) trait Indexer<K>: Send + Sync {
    fn replace(&self, key: &ObjectKey, old: Option<&K>, new: Option<&K>);
}

type Values<K, V> = dyn Fn(&K) -> Vec<V> + Send + Sync;

/// The keys of objects by value.
pub(super) struct Entries<K, V> {
    values: Box<Values<K, V>>,
    keys: RwLock<HashMap<V, Keys>>,
}

/// The objects that have one value. Mostly it is one object, such as for a uid, and a set of one costs more than its element.
enum Keys {
    One(ObjectKey),
    Many(HashSet<ObjectKey>),
}

impl Keys {
    fn to_vec(&self) -> Vec<ObjectKey> {
        match self {
            Self::One(key) => vec![key.clone()],
            Self::Many(keys) => keys.iter().cloned().collect(),
        }
    }

    fn insert(&mut self, key: ObjectKey) {
        match self {
            Self::One(one) if *one == key => {}
            Self::One(one) => *self = Self::Many(HashSet::from([one.clone(), key])),
            Self::Many(keys) => {
                keys.insert(key);
            }
        }
    }

    /// Whether none is left.
    fn remove(&mut self, key: &ObjectKey) -> bool {
        match self {
            Self::One(one) => one == key,
            Self::Many(keys) => {
                keys.remove(key);
                keys.is_empty()
            }
        }
    }
}

impl<K, V> Entries<K, V> {
    pub(super) fn new(values: impl Fn(&K) -> Vec<V> + Send + Sync + 'static) -> Self {
        Self { values: Box::new(values), keys: RwLock::default() }
    }
}

impl<K, V: Eq + Hash> Entries<K, V> {
    /// The keys of the objects that have this value, in no order.
    pub(super) fn keys(&self, value: &V) -> Vec<ObjectKey> {
        let keys = self.keys.read().unwrap_or_else(PoisonError::into_inner);
        keys.get(value).map(Keys::to_vec).unwrap_or_default()
    }
}

/// Entries by the type of the function that takes the values.
#[derive(Default)]
pub(super) struct Declared(RwLock<HashMap<TypeId, Box<dyn Any + Send + Sync>>>);

impl Declared {
    pub(super) fn get<K: 'static, V: 'static, By: 'static>(&self) -> Option<Arc<Entries<K, V>>> {
        let entries = self.0.read().unwrap_or_else(PoisonError::into_inner);
        entries.get(&TypeId::of::<By>())?.downcast_ref().cloned()
    }

    pub(super) fn insert<K: 'static, V, By: 'static>(&self, entries: Arc<Entries<K, V>>)
    where
        V: Send + Sync + 'static,
    {
        self.0.write().unwrap_or_else(PoisonError::into_inner).insert(TypeId::of::<By>(), Box::new(entries));
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
            if keys.get_mut(&value).is_some_and(|with_value| with_value.remove(key)) {
                keys.remove(&value);
            }
        }
        for value in after {
            match keys.entry(value) {
                Entry::Occupied(mut with_value) => with_value.get_mut().insert(key.clone()),
                Entry::Vacant(none) => {
                    none.insert(Keys::One(key.clone()));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;

    use super::*;

    fn labelled(value: &str) -> ConfigMap {
        let mut object = ConfigMap::default();
        object.metadata.labels = Some([("group".to_owned(), value.to_owned())].into());
        object
    }

    /// The names of objects with this value, sorted.
    fn with(entries: &Entries<ConfigMap, String>, value: &str) -> Vec<String> {
        let keys = entries.keys.read().unwrap();
        let mut names: Vec<String> =
            keys.get(value).map(Keys::to_vec).unwrap_or_default().into_iter().map(|key| key.name).collect();
        names.sort();
        names
    }

    #[test]
    fn values_come_and_go_with_one_object_and_with_many() {
        let entries = Entries::new(|object: &ConfigMap| {
            object.metadata.labels.iter().flat_map(|labels| labels.values().cloned()).collect()
        });
        let key = |name: &str| ObjectKey { namespace: None, name: name.to_owned() };
        let (red, blue) = (labelled("red"), labelled("blue"));
        entries.replace(&key("a"), None, Some(&red));
        assert_eq!(with(&entries, "red"), ["a"]);
        entries.replace(&key("b"), None, Some(&red));
        entries.replace(&key("c"), None, Some(&red));
        assert_eq!(with(&entries, "red"), ["a", "b", "c"]);
        entries.replace(&key("b"), Some(&red), Some(&blue));
        assert_eq!((with(&entries, "red"), with(&entries, "blue")), (vec!["a".into(), "c".into()], vec!["b".into()]));
        // Another object than the only one that has it changes nothing.
        entries.replace(&key("a"), Some(&blue), Some(&blue));
        entries.replace(&key("z"), Some(&blue), None);
        assert_eq!(with(&entries, "blue"), ["b"]);
        for name in ["a", "c"] {
            entries.replace(&key(name), Some(&red), None);
        }
        entries.replace(&key("b"), Some(&blue), None);
        assert!(entries.keys.read().unwrap().is_empty());
    }
}
