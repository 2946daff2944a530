//! Our own writes, told to the caches that they concern.

use std::collections::HashMap;

use konverge_apply::{ObjectName, witness};
use konverge_runtime::{
    cache::{Store, Subscriber, Writing},
    object::{Object, ObjectKey},
};
use serde_json::Value;

/// The caches of one controller by API version and kind. A kind has several where a controller owns objects of its own kind: one of the
/// objects that it works on, and one of those that it made.
#[derive(Default)]
pub(crate) struct Stores(HashMap<(String, String), Vec<Box<dyn AnyStore>>>);

impl Stores {
    /// Tells this store of our writes, but not its `subscriber`, who makes them.
    pub(crate) fn add<K: Object>(&mut self, kind: &K::DynamicType, store: Store<K>, subscriber: Subscriber) {
        let id = (K::api_version(kind).into_owned(), K::kind(kind).into_owned());
        self.0.entry(id).or_default().push(Box::new((store, subscriber)));
    }
}

trait AnyStore: Send + Sync {
    fn begin(&self, key: ObjectKey) -> Box<dyn witness::Writing>;
}

impl<K: Object> AnyStore for (Store<K>, Subscriber) {
    fn begin(&self, key: ObjectKey) -> Box<dyn witness::Writing> {
        Box::new(Guard(self.0.writing(key, Some(self.1))))
    }
}

struct Guard<K: Object>(Writing<K>);

impl<K: Object> witness::Writing for Guard<K> {
    fn wrote(self: Box<Self>, object: &Value) {
        // Not understood, it is dropped, and the watch is believed.
        if let Ok(object) = K::deserialize(object) {
            self.0.wrote(object);
        }
    }

    fn deleted(self: Box<Self>, uid: Option<&str>) {
        self.0.deleted(uid);
    }
}

/// A write to a kind that any number of caches hold.
struct All(Vec<Box<dyn witness::Writing>>);

impl witness::Writing for All {
    fn wrote(self: Box<Self>, object: &Value) {
        self.0.into_iter().for_each(|writing| writing.wrote(object));
    }

    fn deleted(self: Box<Self>, uid: Option<&str>) {
        self.0.into_iter().for_each(|writing| writing.deleted(uid));
    }
}

impl witness::Witness for Stores {
    fn begin(&self, object: &ObjectName, api_version: &str) -> Box<dyn witness::Writing> {
        let key = ObjectKey { namespace: object.namespace.clone(), name: object.name.clone() };
        let stores = self.0.get(&(api_version.to_owned(), object.kind.clone()));
        Box::new(All(stores.into_iter().flatten().map(|store| store.begin(key.clone())).collect()))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    };

    use k8s_openapi::api::core::v1::ConfigMap;
    use konverge_apply::witness::Witness;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_controller_that_owns_its_own_kind_sees_its_writes_in_both_caches_and_is_told_of_none() {
        let (objects, children) = (Store::<ConfigMap>::new("test"), Store::<ConfigMap>::new("test"));
        let told = Arc::new(AtomicUsize::new(0));
        let mut stores = Stores::default();
        for store in [&objects, &children] {
            let told = Arc::clone(&told);
            let subscriber = store.subscribe(move |_, _| {
                told.fetch_add(1, Ordering::Relaxed);
            });
            stores.add(&(), store.clone(), subscriber);
        }
        let name = ObjectName { kind: "ConfigMap".to_owned(), namespace: Some("a".to_owned()), name: "b".to_owned() };
        let metadata = json!({ "namespace": "a", "name": "b", "uid": "u", "resourceVersion": "7" });
        stores.begin(&name, "v1").wrote(&json!({ "metadata": metadata }));
        let key = ObjectKey::namespaced("a", "b");
        assert!(objects.get(&key).is_some() && children.get(&key).is_some());
        stores.begin(&name, "v1").deleted(None);
        assert!(objects.get(&key).is_none() && children.get(&key).is_none());
        assert_eq!(told.load(Ordering::Relaxed), 0);
    }
}
