//! Objects that no longer match the selector of their controller, and still have its finalizer.
//!
//! The watch of a selection shows such an object as deleted, and shows nothing of it afterwards. Without more, its later deletion would wait
//! for the finalizer for ever. So while this process leads, it looks once at each object that leaves the cache with the finalizer. At its
//! start and each hour, it also lists the metadata of the kind for objects that left while no process looked.
//!
//! The selection has two parts. An object that no longer matches the author's selector no longer concerns the program, and is released. An object
//! that matches it and not `--selector` belongs to another shard. That process may have made things outside with settings of its own, so this one
//! never cleans up for it.
//!
//! A new release with a mistake in its selector must not clean up everything. So if a list finds many such objects that nobody deleted, they
//! are left alone.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use konverge_apply::{
    DeleteBudget,
    events::{EventSink, Notice},
    read,
};
use konverge_core::{error::in_one_line, reasons};
use konverge_runtime::{
    Priority, Queue,
    cache::{Change, Selection, Store},
    object::{Object, ObjectKey, Scope},
};
use kube::{Api, Client, Resource, api::ListParams, core::PartialObjectMeta, runtime::events::EventType};

use crate::{error::Error, finalizers::Finalizers, leading::Leading};

/// How long an object of another shard may take to be cleaned up before an event says that perhaps no shard selects it.
const PATIENCE: SignedDuration = SignedDuration::from_mins(10);

/// Between two attempts to list the objects.
const RETRY: Duration = Duration::from_secs(60);

/// The longest time between two lists.
const LONGEST: Duration = Duration::from_secs(3600);

/// The objects of a controller that left its selection with its finalizer.
pub(crate) struct Deselected<K: Object> {
    pub(crate) kind: K::DynamicType,
    pub(crate) store: Store<K>,
    pub(crate) queue: Queue<ObjectKey>,
    pub(crate) finalizers: Finalizers,
    /// Without `--selector`.
    pub(crate) of_the_author: Selection,
    pub(crate) client: Client,
    pub(crate) events: EventSink,
    pub(crate) leading: Leading,
    /// The objects to look at, with their uid once they are known.
    pub(crate) keys: Mutex<HashMap<ObjectKey, Option<String>>>,
}

/// An object of a name that the cache does not have.
pub(crate) enum Found<K> {
    /// There is none, as far as anybody asked.
    Nothing,
    /// It is no business of this process. The uid tells which object it is.
    Other(Option<String>),
    /// It is to be cleaned up and released.
    ToRelease(K),
}

/// The decision about an object that is not in the cache and has the finalizer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReleaseDecision {
    /// It is cleaned up and released.
    Release,
    /// Another shard has it, or the cache has yet to show it.
    Leave,
    /// As [`Leave`](Self::Leave), but its deletion takes so long that perhaps no shard selects it.
    Report,
}

fn decide_release(matches_the_author: bool, deleted_at: Option<Timestamp>, now: Timestamp) -> ReleaseDecision {
    match deleted_at {
        _ if !matches_the_author => ReleaseDecision::Release,
        Some(deleted_at) if now.duration_since(deleted_at) > PATIENCE => ReleaseDecision::Report,
        _ => ReleaseDecision::Leave,
    }
}

impl<K: Object> Deselected<K> {
    /// Takes in that an object left the cache. Requests a run if it had the finalizer and this process leads.
    pub(crate) fn left(&self, key: &ObjectKey, change: &Change<K>) {
        let Change { old: Some(old), new: None, .. } = change else { return };
        if self.leading.has_begun() && self.finalizers.hold(&**old) {
            self.request(key.clone());
        }
    }

    fn request(&self, key: ObjectKey) {
        self.lock().entry(key.clone()).or_default();
        self.queue.add(key, Priority::Normal, "deselected");
    }

    /// Whether an object is to be looked at although the cache does not have it.
    pub(crate) fn has(&self, key: &ObjectKey) -> bool {
        self.lock().contains_key(key)
    }

    /// The object with this uid.
    pub(crate) fn with_uid(&self, uid: &str) -> Option<ObjectKey> {
        self.lock().iter().find(|(_, known)| known.as_deref() == Some(uid)).map(|(key, _)| key.clone())
    }

    pub(crate) fn forget(&self, key: &ObjectKey) {
        self.lock().remove(key);
    }

    /// Looks for the object of this name. Sends nothing unless it [left](Self::left), or `must_look`.
    pub(crate) async fn find(&self, key: &ObjectKey, must_look: bool) -> Result<Found<K>, Error> {
        if !must_look && !self.has(key) {
            return Ok(Found::Nothing);
        }
        let api = self.api(key.namespace.as_deref());
        let name = format!("metadata.name={}", key.name);
        let mut found = api.list(&ListParams::default().fields(&name)).await?.items;
        let Some(object) = found.pop() else {
            self.forget(key);
            return Ok(Found::Nothing);
        };
        let uid = object.meta().uid.clone();
        if !self.finalizers.hold(&object) {
            self.forget(key);
            return Ok(Found::Other(uid));
        }
        let matching = self.matching(Some(&name));
        let matches = match &matching {
            Some(parameters) => !api.list_metadata(parameters).await?.items.is_empty(),
            None => true,
        };
        if matches {
            self.forget(key);
            return Ok(Found::Other(uid));
        }
        self.lock().insert(key.clone(), uid);
        Ok(Found::ToRelease(object))
    }

    /// Looks for objects that left the selection while no process saw it, at once and after each `period`, which is an hour at most. Never
    /// ends.
    pub(crate) async fn search(self: Arc<Self>, period: Duration) {
        self.leading.begun().await;
        loop {
            let pause = match self.list().await {
                Ok(()) => period.clamp(RETRY, LONGEST),
                Err(error) => {
                    let kind = K::plural(&self.kind);
                    tracing::warn!(error = %in_one_line(&error), %kind, retry_after = ?RETRY, "cannot look for objects that left the selection");
                    RETRY
                }
            };
            tokio::time::sleep(pause).await;
        }
    }

    async fn list(&self) -> Result<(), kube::Error> {
        let namespaces = match self.of_the_author.namespaces.as_slice() {
            namespaces if K::Scope::IS_NAMESPACED && !namespaces.is_empty() => {
                namespaces.iter().map(|namespace| Some(namespace.as_str())).collect()
            }
            _ => vec![None],
        };
        let (mut releasable, mut live) = (Vec::new(), Vec::new());
        for namespace in namespaces {
            let api = self.api(namespace);
            let all = ListParams::default();
            let picked = |object: PartialObjectMeta<K>| {
                let key = ObjectKey::of(&object)?;
                (self.finalizers.hold(&object) && !exists(&self.store, &key)).then_some((key, object))
            };
            let held = read::pick(&api, &all, picked).await?;
            let matching = match self.matching(None) {
                Some(parameters) if !held.is_empty() => {
                    let names: HashSet<_> = held.iter().map(|(key, _)| key).collect();
                    let picked =
                        |object: PartialObjectMeta<K>| ObjectKey::of(&object).filter(|key| names.contains(key));
                    Some(read::pick(&api, &parameters, picked).await?.into_iter().collect::<HashSet<_>>())
                }
                _ => None,
            };
            for (key, object) in held {
                let matches = matching.as_ref().is_none_or(|matching| matching.contains(&key));
                let deleted_at = object.metadata.deletion_timestamp.as_ref().map(|time| time.0);
                match decide_release(matches, deleted_at, Timestamp::now()) {
                    ReleaseDecision::Release if deleted_at.is_some() => releasable.push(key),
                    ReleaseDecision::Release => live.push(key),
                    ReleaseDecision::Report => self.report(&object),
                    ReleaseDecision::Leave => {}
                }
            }
        }
        if live.len() > DeleteBudget::default().allowed(self.store.len() + live.len()) {
            tracing::warn!(
                kind = %K::plural(&self.kind),
                objects = live.len(),
                "more objects than expected have the finalizer {} and do not match the selector of the controller; they are left alone. \
                 Correct the selector, or delete the objects that the operator should let go",
                self.finalizers.name
            );
        } else {
            releasable.append(&mut live);
        }
        for key in releasable {
            self.request(key);
        }
        // A run may wait for children of which no cache tells any more.
        let waiting: Vec<_> = self.lock().keys().cloned().collect();
        for key in waiting {
            self.request(key);
        }
        Ok(())
    }

    fn report(&self, object: &PartialObjectMeta<K>) {
        let name = self.finalizers.name;
        let note = format!(
            "the object is being deleted and has the finalizer {name}, but does not match the --selector of this process. If no \
             process of this program selects the object, change its labels so that one does, or it is never deleted"
        );
        let regarding = object.object_ref(&self.kind);
        let (kind, reason, action) = (EventType::Warning, reasons::NOT_SELECTED, "Release");
        self.events.send(Notice { regarding, kind, reason, action, note });
    }

    /// How to list what matches the author's selector; `None` if everything does.
    fn matching(&self, name: Option<&str>) -> Option<ListParams> {
        let Selection { label_selector, field_selector, .. } = &self.of_the_author;
        if label_selector.is_none() && field_selector.is_none() {
            return None;
        }
        let fields: Vec<_> = name.into_iter().chain(field_selector.as_deref()).collect();
        let fields = (!fields.is_empty()).then(|| fields.join(","));
        Some(ListParams { label_selector: label_selector.clone(), field_selector: fields, ..ListParams::default() })
    }

    fn api(&self, namespace: Option<&str>) -> Api<K> {
        K::Scope::api::<K>(self.client.clone(), &self.kind, namespace)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ObjectKey, Option<String>>> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether the API server has the object, as far as the cache knows, be it understood or not.
pub(crate) fn exists<K: Object>(store: &Store<K>, key: &ObjectKey) -> bool {
    store.get(key).is_some() || store.why_undecodable(key).is_some()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use konverge_runtime::Metrics;
    use konverge_testkit::double::{Answer, ApiDouble, RequestMatcher};
    use serde_json::{Value, json};

    use super::*;

    /// The metadata of an object with our finalizer, whose deletion began some minutes ago.
    fn being_deleted(name: &str, minutes: i64) -> Value {
        let deleted_at = Timestamp::now() - SignedDuration::from_mins(minutes);
        let metadata = json!({
            "namespace": "shop", "name": name, "uid": name, "resourceVersion": "1", "finalizers": ["test/held"],
            "deletionTimestamp": deleted_at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        });
        json!({ "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": metadata })
    }

    #[tokio::test]
    async fn an_object_that_no_process_seems_to_select_is_named_by_an_event() {
        let server = ApiDouble::default();
        let listed = [being_deleted("young", 9), being_deleted("stuck", 11)];
        let list = Answer::list("meta.k8s.io/v1", "PartialObjectMetadataList", "2", &listed);
        let maps = RequestMatcher::list("/api/v1/configmaps");
        server.expect(maps.clone().without_query("labelSelector").answer(list.clone()));
        server.expect(maps.query("labelSelector", "team=ours").answer(list));
        let event = json!({ "reason": "NotSelected", "type": "Warning", "regarding": { "name": "stuck" } });
        server.expect(
            RequestMatcher::create("/apis/events.k8s.io/v1/namespaces/shop/events")
                .body(event.clone())
                .answer(Answer::created(&event)),
        );
        let mut of_the_author = Selection::default();
        of_the_author.label_selector = Some("team=ours".to_owned());
        let (events, writing) = EventSink::new(server.client(), "test", std::future::pending::<()>());
        let deselected = Deselected::<ConfigMap> {
            kind: (),
            store: Store::new("test"),
            queue: Queue::new("test", Metrics::new("test", "0").queues()),
            finalizers: Finalizers { name: "test/held", is_on_demand: false, former: Vec::new() },
            of_the_author,
            client: server.client(),
            events,
            leading: Leading::default(),
            keys: Mutex::default(),
        };
        deselected.list().await.unwrap();
        assert!(deselected.lock().is_empty(), "neither is released");
        // The task ends once the last sink is gone and its events are written.
        drop(deselected);
        writing.await;
        server.finish().unwrap();
    }

    #[test]
    fn an_object_is_released_only_if_no_shard_can_have_it() {
        let now = Timestamp::UNIX_EPOCH + SignedDuration::from_hours(1);
        let minutes_ago = |minutes| Some(now - SignedDuration::from_mins(minutes));
        for (matches_the_author, deleted_at, expected) in [
            (false, None, ReleaseDecision::Release),
            (false, minutes_ago(0), ReleaseDecision::Release),
            (false, minutes_ago(59), ReleaseDecision::Release),
            (true, None, ReleaseDecision::Leave),
            (true, minutes_ago(10), ReleaseDecision::Leave),
            (true, minutes_ago(11), ReleaseDecision::Report),
            // The clock of the API server may be ahead.
            (true, minutes_ago(-5), ReleaseDecision::Leave),
        ] {
            assert_eq!(
                decide_release(matches_the_author, deleted_at, now),
                expected,
                "{matches_the_author} {deleted_at:?}"
            );
        }
    }
}
