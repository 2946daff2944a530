//! Our own writes, told to the caches that they concern.

use std::{collections::HashMap, sync::Arc};

use konverge_apply::{ObjectName, write_observer};
use konverge_runtime::{
    cache::{Store, Subscriber, Writing},
    object::{Object, ObjectKey},
};
use serde_json::Value;

/// The caches of one controller by API version and kind. A kind has several where a controller owns objects of its own kind: one of the
/// objects that it works on, and one of those that it made.
#[derive(Clone, Default)]
pub(crate) struct Stores {
    by_kind: HashMap<(String, String), Vec<Arc<dyn AnyStore>>>,
    /// The kind of the objects that the controller works on. If it owns such objects too, the writes of one run are news for another object: a
    /// child has to be worked on, and its status concerns its owner. Then all subscribers hear of each write.
    worked_on: Option<(String, String)>,
}

impl Stores {
    /// The caches of a controller of this kind.
    pub(crate) fn of<K: Object>(kind: &K::DynamicType) -> Self {
        Self { by_kind: HashMap::new(), worked_on: Some(id::<K>(kind)) }
    }

    /// Tells this store of our writes, but not its `subscriber`, who makes them.
    pub(crate) fn add<K: Object>(&mut self, kind: &K::DynamicType, store: Store<K>, subscriber: Subscriber) {
        self.by_kind.entry(id::<K>(kind)).or_default().push(Arc::new((store, subscriber)));
    }
}

fn id<K: Object>(kind: &K::DynamicType) -> (String, String) {
    (K::api_version(kind).into_owned(), K::kind(kind).into_owned())
}

trait AnyStore: Send + Sync {
    /// Begins a write. The subscriber of the cache hears of it only if `is_told`.
    fn begin(&self, key: ObjectKey, is_told: bool) -> Box<dyn write_observer::Writing>;
}

impl<K: Object> AnyStore for (Store<K>, Subscriber) {
    fn begin(&self, key: ObjectKey, is_told: bool) -> Box<dyn write_observer::Writing> {
        Box::new(Guard(self.0.writing(key, Some(self.1).filter(|_| !is_told))))
    }
}

struct Guard<K: Object>(Writing<K>);

impl<K: Object> write_observer::Writing for Guard<K> {
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
struct All(Vec<Box<dyn write_observer::Writing>>);

impl write_observer::Writing for All {
    fn wrote(self: Box<Self>, object: &Value) {
        self.0.into_iter().for_each(|writing| writing.wrote(object));
    }

    fn deleted(self: Box<Self>, uid: Option<&str>) {
        self.0.into_iter().for_each(|writing| writing.deleted(uid));
    }
}

impl write_observer::WriteObserver for Stores {
    fn begin(&self, object: &ObjectName, api_version: &str) -> Box<dyn write_observer::Writing> {
        let key = ObjectKey { namespace: object.namespace.clone(), name: object.name.clone() };
        let id = (api_version.to_owned(), object.kind.clone());
        let stores = self.by_kind.get(&id).map_or(&[][..], Vec::as_slice);
        let is_told = stores.len() > 1 && self.worked_on == Some(id);
        Box::new(All(stores.iter().map(|store| store.begin(key.clone(), is_told)).collect()))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use k8s_openapi::api::core::v1::ConfigMap;
    use konverge_apply::write_observer::WriteObserver;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_write_is_seen_in_all_caches_of_its_kind_and_tells_none_of_those_who_made_it() {
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
