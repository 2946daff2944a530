//! The indexes of a store: those that a handle reads, and those that are named by the function that makes them.

use std::{hash::Hash, sync::Arc};

use kube::Resource;

use super::{index::Index, store::Store};
use crate::object::ObjectKey;

impl<K: Resource + Send + Sync + 'static> Store<K> {
    /// Finds objects by something else than their name. Made once, kept up to date from then on.
    pub fn index<V>(&self, values: impl Fn(&K) -> Vec<V> + Send + Sync + 'static) -> Index<K, V>
    where
        V: Clone + Eq + Hash + Send + Sync + 'static,
    {
        Index::new(self.clone(), self.add_entries(values))
    }

    /// Keeps an index by what `by` takes from an object, for [`find`](Self::find). Declaring one twice makes one.
    ///
    /// `by` is a function by name or a closure that captures nothing, which tells it from all others; anything else does not compile.
    pub fn declare_index<V, By>(&self, by: By)
    where
        V: Clone + Eq + Hash + Send + Sync + 'static,
        By: Fn(&K) -> Vec<V> + Copy + Send + Sync + 'static,
    {
        const {
            assert!(
                size_of::<By>() == 0,
                "an index is named by a function, not by a pointer or a closure that captures"
            );
        };
        if self.declared().get::<K, V, By>().is_none() {
            self.declared().insert::<K, V, By>(self.add_entries(by));
        }
    }

    /// The objects from which `by` takes this value, in no order. Costs a lookup where the index was
    /// [declared](Self::declare_index), and a look at every object where it was not.
    pub fn find<V, By>(&self, by: By, value: &V) -> Vec<Arc<K>>
    where
        V: Clone + Eq + Hash + Send + Sync + 'static,
        By: Fn(&K) -> Vec<V> + Copy + Send + Sync + 'static,
    {
        match self.declared().get::<K, V, By>() {
            Some(entries) => Index::new(self.clone(), entries).get(value),
            None => self.list().into_iter().filter(|object| by(object).contains(value)).collect(),
        }
    }

    /// The names of the objects that [`find`](Self::find) finds.
    pub fn find_keys<V, By>(&self, by: By, value: &V) -> Vec<ObjectKey>
    where
        V: Clone + Eq + Hash + Send + Sync + 'static,
        By: Fn(&K) -> Vec<V> + Copy + Send + Sync + 'static,
    {
        match self.declared().get::<K, V, By>() {
            Some(entries) => Index::new(self.clone(), entries).keys(value),
            None => self.find(by, value).iter().filter_map(|object| ObjectKey::of(&**object)).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::ResourceExt;

    use super::*;
    use crate::{cache::state::Seen, watch::Guarded};

    fn by_keys(config_map: &ConfigMap) -> Vec<String> {
        config_map.data.iter().flatten().map(|(key, _)| key.clone()).collect()
    }

    fn by_values(config_map: &ConfigMap) -> Vec<String> {
        config_map.data.iter().flatten().map(|(_, value)| value.clone()).collect()
    }

    fn seen(name: &str, version: &str, key: &str, value: &str) -> Seen<ConfigMap> {
        let mut object = ConfigMap::default();
        (object.metadata.name, object.metadata.resource_version) = (Some(name.to_owned()), Some(version.to_owned()));
        object.data = Some([(key.to_owned(), value.to_owned())].into());
        Seen::Applied { object: Guarded(Ok(object)), listed: false }
    }

    #[test]
    fn each_function_is_an_index_of_its_own_and_answers_without_one_too() {
        let store = Store::<ConfigMap>::new("test");
        store.see(seen("before", "1", "a", "b"));
        let find = |store: &Store<ConfigMap>| {
            let names = |found: Vec<Arc<ConfigMap>>| {
                let mut names: Vec<_> = found.iter().map(|object| object.name_any()).collect();
                names.sort();
                names
            };
            let (a, b) = ("a".to_owned(), "b".to_owned());
            [names(store.find(by_keys, &a)), names(store.find(by_values, &b)), names(store.find(by_values, &a))]
        };
        let without = find(&store);
        store.declare_index(by_keys);
        store.declare_index(by_keys);
        store.declare_index(by_values);
        assert_eq!(find(&store), without);
        store.see(seen("after", "2", "a", "c"));
        store.see(seen("before", "3", "d", "a"));
        assert_eq!(find(&store), [vec!["after"], vec![], vec!["before"]]);
        assert_eq!(store.find_keys(by_keys, &"a".to_owned()), [ObjectKey::cluster("after")]);
    }
}
