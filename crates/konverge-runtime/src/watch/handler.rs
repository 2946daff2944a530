//! Event handlers: a watch drives what a program knows of one kind.

use std::{collections::HashSet, hash::Hash, pin::pin};

use futures::{Stream, StreamExt};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;

use super::{Event, Guarded, Undecodable};

/// Where a watch has seen an object. No variant will be added, so that a match on it can be exhaustive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// In a list of everything that exists. It is the state of the API server even where a newer version was seen before: then the store
    /// was restored from a backup.
    List,
    /// In an event of its own.
    Watch,
}

/// Keeps what a program knows of the objects of kind `K` as a watch shows them. [`handle_events`] calls it.
///
/// # Guarantees
/// - Calls come one after the other, in the order of the events.
/// - [`replace`](Self::replace) is called for complete lists alone. A list that breaks off removes nothing.
/// - An object that cannot be decoded exists: it is in the list, and no handler is told that it is deleted before it is.
///
/// The methods are synchronous and hold up the watch. They note down and queue; requests belong to the workers of the queue.
pub trait EventHandler<K> {
    /// Names one object among those of this watch.
    type Key: Eq + Hash;

    /// Returns the key of an object. The driver skips objects for which it returns `None`.
    fn key(&self, metadata: &ObjectMeta) -> Option<Self::Key>;

    /// A list begins. A list that began before and was not completed is void.
    fn begin_list(&mut self) {}

    /// The object exists, as `object` shows it. Returns whether the handler keeps anything of it: only then, a list notes its key.
    fn apply(&mut self, key: &Self::Key, object: K, origin: Origin) -> bool;

    /// The object exists and cannot be decoded. By default the log tells that, and what was known of it stays.
    fn undecodable(&mut self, _key: &Self::Key, object: Undecodable, _origin: Origin) {
        let (namespace, name) = (object.metadata.namespace.as_deref(), object.metadata.name.as_deref());
        tracing::warn!(namespace, name, error = object.error, "cannot decode an object; it is left as it is");
    }

    /// The object was deleted, or left the selection of the watch.
    fn delete(&mut self, key: &Self::Key);

    /// The list is complete. Of the objects that the handler keeps, only those in `listed` exist.
    fn replace(&mut self, listed: &HashSet<Self::Key>);
}

/// Drives a watch into a handler, as long as there are events: those of [`events`](super::events) never end.
///
/// `E` is what the watch decodes: `K`, or [`Guarded<K>`](Guarded) where one malformed object must not end the watch of all others.
pub async fn handle_events<K, E, H>(events: impl Stream<Item = Event<E>>, handler: &mut H)
where
    K: Resource,
    E: Into<Guarded<K>>,
    H: EventHandler<K>,
{
    let mut events = pin!(events);
    let mut listed = HashSet::new();
    while let Some(event) = events.next().await {
        match event {
            Event::Init => {
                listed.clear();
                handler.begin_list();
            }
            Event::InitApply(object) => listed.extend(apply(handler, object.into(), Origin::List)),
            Event::InitDone => handler.replace(&std::mem::take(&mut listed)),
            Event::Apply(object) => drop(apply(handler, object.into(), Origin::Watch)),
            Event::Delete(object) => {
                if let Some(key) = handler.key(object.into().meta()) {
                    handler.delete(&key);
                }
            }
        }
    }
}

/// Returns the key of the object if the handler keeps anything of it.
fn apply<K: Resource, H: EventHandler<K>>(handler: &mut H, object: Guarded<K>, origin: Origin) -> Option<H::Key> {
    let key = handler.key(object.meta())?;
    let is_kept = match object.0 {
        Ok(object) => handler.apply(&key, object, origin),
        Err(undecodable) => {
            handler.undecodable(&key, undecodable, origin);
            true
        }
    };
    is_kept.then_some(key)
}

impl<K> From<K> for Guarded<K> {
    fn from(object: K) -> Self {
        Self(Ok(object))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use Event::{Apply, Delete, Init, InitApply, InitDone};
    use futures::stream;
    use k8s_openapi::api::core::v1::ConfigMap;
    use serde_json::{Value, json};

    use super::*;

    /// Knows the `data.value` of each object, and what it was told.
    #[derive(Default)]
    struct Values {
        values: BTreeMap<String, String>,
        told: Vec<String>,
    }

    impl EventHandler<ConfigMap> for Values {
        type Key = String;

        fn key(&self, metadata: &ObjectMeta) -> Option<String> {
            metadata.name.clone()
        }

        fn begin_list(&mut self) {
            self.told.push("list".to_owned());
        }

        fn apply(&mut self, key: &String, object: ConfigMap, origin: Origin) -> bool {
            self.told.push(format!("{key} {origin:?}"));
            let value = object.data.unwrap_or_default().remove("value");
            match value {
                Some(value) => drop(self.values.insert(key.clone(), value)),
                None => drop(self.values.remove(key)),
            }
            self.values.contains_key(key)
        }

        fn delete(&mut self, key: &String) {
            self.told.push(format!("{key} deleted"));
            self.values.remove(key);
        }

        fn replace(&mut self, listed: &HashSet<String>) {
            self.told.push(format!("complete with {}", listed.len()));
            self.values.retain(|key, _| listed.contains(key));
        }
    }

    fn object(metadata: &Value, data: &Value) -> Guarded<ConfigMap> {
        serde_json::from_value(json!({ "metadata": metadata, "data": data })).unwrap()
    }

    fn with(name: &str, value: &str) -> Guarded<ConfigMap> {
        object(&json!({ "name": name }), &json!({ "value": value }))
    }

    fn malformed(name: &str) -> Guarded<ConfigMap> {
        object(&json!({ "name": name }), &json!(7))
    }

    async fn handle(handler: &mut Values, events: Vec<Event<Guarded<ConfigMap>>>) {
        handle_events(stream::iter(events), handler).await;
    }

    fn known(handler: &Values) -> Vec<(&str, &str)> {
        handler.values.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect()
    }

    #[tokio::test]
    async fn a_handler_knows_what_the_lists_and_the_events_show() {
        let mut values = Values::default();
        handle(&mut values, vec![Init, InitApply(with("a", "1")), InitApply(with("b", "1")), InitDone]).await;
        handle(&mut values, vec![Apply(with("b", "2")), Apply(with("c", "1")), Delete(with("a", "1"))]).await;
        assert_eq!(known(&values), [("b", "2"), ("c", "1")]);
        handle(&mut values, vec![Init, InitApply(with("c", "3")), InitApply(with("d", "1")), InitDone]).await;
        assert_eq!(known(&values), [("c", "3"), ("d", "1")]);
        let told = [
            &["list", "a List", "b List", "complete with 2"][..],
            &["b Watch", "c Watch", "a deleted"],
            &["list", "c List", "d List", "complete with 2"],
        ];
        assert_eq!(values.told, told.concat());
    }

    #[tokio::test]
    async fn a_list_notes_the_keys_of_kept_objects_alone() {
        let mut values = Values::default();
        let ignored = object(&json!({ "name": "b" }), &json!({}));
        handle(&mut values, vec![Init, InitApply(with("a", "1")), InitApply(ignored), InitDone]).await;
        assert_eq!(values.told.last().unwrap(), "complete with 1");
    }

    #[tokio::test]
    async fn a_list_that_breaks_off_deletes_nothing_and_the_next_one_counts_alone() {
        let mut values = Values::default();
        handle(&mut values, vec![Init, InitApply(with("a", "1")), InitApply(with("b", "1")), InitDone]).await;
        let broken = vec![Init, InitApply(with("a", "2")), InitApply(with("c", "2"))];
        handle(&mut values, broken.clone()).await;
        assert_eq!(known(&values), [("a", "2"), ("b", "1"), ("c", "2")]);
        handle(&mut values, broken.into_iter().chain([Init, InitApply(with("b", "3")), InitDone]).collect()).await;
        assert_eq!(known(&values), [("b", "3")]);
    }

    #[tokio::test]
    async fn an_object_that_cannot_be_decoded_exists_as_it_was_known() {
        let mut values = Values::default();
        handle(&mut values, vec![Init, InitApply(with("a", "1")), InitApply(with("b", "1")), InitDone]).await;
        handle(&mut values, vec![Apply(malformed("a"))]).await;
        handle(&mut values, vec![Init, InitApply(malformed("a")), InitApply(malformed("new")), InitDone]).await;
        assert_eq!(known(&values), [("a", "1")]);
        handle(&mut values, vec![Delete(malformed("a"))]).await;
        assert_eq!(known(&values), []);
    }

    #[tokio::test]
    async fn an_object_without_a_key_is_skipped() {
        let mut values = Values::default();
        let nameless = || object(&json!({}), &json!({ "value": "1" }));
        let events = vec![Init, InitApply(nameless()), InitDone, Apply(nameless()), Delete(nameless())];
        handle(&mut values, events).await;
        assert_eq!(known(&values), []);
        assert_eq!(values.told, ["list", "complete with 0"]);
    }

    #[tokio::test]
    async fn a_watch_that_decodes_strictly_drives_the_same_handler() {
        let mut values = Values::default();
        let whole = |name, value| with(name, value).0.unwrap();
        let events = vec![Init, InitApply(whole("a", "1")), InitDone, Apply(whole("a", "2"))];
        handle_events(stream::iter(events), &mut values).await;
        assert_eq!(known(&values), [("a", "2")]);
    }
}
