//! Our own writes, told to the caches that they concern.

use std::collections::HashMap;

use konverge_apply::{ObjectName, witness};
use konverge_runtime::{
    cache::{Store, Subscriber, Writing},
    object::{Object, ObjectKey},
};
use serde_json::Value;

/// The caches of one controller by API version and kind.
#[derive(Default)]
pub(crate) struct Stores(HashMap<(String, String), Box<dyn AnyStore>>);

impl Stores {
    /// Tells this store of our writes, but not its `subscriber`, who makes them.
    pub(crate) fn add<K: Object>(&mut self, kind: &K::DynamicType, store: Store<K>, subscriber: Subscriber) {
        let id = (K::api_version(kind).into_owned(), K::kind(kind).into_owned());
        self.0.insert(id, Box::new((store, subscriber)));
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

/// A write to a kind that no cache holds.
struct Unwatched;

impl witness::Writing for Unwatched {
    fn wrote(self: Box<Self>, _object: &Value) {}

    fn deleted(self: Box<Self>, _uid: Option<&str>) {}
}

impl witness::Witness for Stores {
    fn begin(&self, object: &ObjectName, api_version: &str) -> Box<dyn witness::Writing> {
        let key = ObjectKey { namespace: object.namespace.clone(), name: object.name.clone() };
        match self.0.get(&(api_version.to_owned(), object.kind.clone())) {
            Some(store) => store.begin(key),
            None => Box::new(Unwatched),
        }
    }
}
