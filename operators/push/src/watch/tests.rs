//! Which keys the queue of a standby has: its watches fill the queue, and no worker empties it.

use futures::stream;
use konverge_runtime::{
    metrics::Metrics as ProcessMetrics,
    watch::{Event, handle_events},
};
use serde_json::{Value, json};

use super::*;
use crate::annotations::FINALIZER;

struct Standby {
    updater: BindingUpdater,
}

impl Standby {
    fn new() -> Self {
        let metrics = ProcessMetrics::new("vault-sync-operator", "0");
        let counts = metrics.register(Metrics::new);
        let queue = Queue::new("push", metrics.queues());
        Self { updater: BindingUpdater { bindings: Arc::default(), queue, metrics: counts, lost: Lost::default() } }
    }

    async fn deployments(&self, events: Vec<Event<Workload>>) {
        let mut handler = WorkloadHandler { updater: self.updater.clone(), kind: Kind::Deployment };
        handle_events(stream::iter(events), &mut handler).await;
    }

    /// Lets a worker take a key, as only a leader does.
    async fn lead(&self) {
        self.deployments(vec![Event::Apply(opted_in("first"))]).await;
        self.updater.queue.next().await.unwrap();
    }

    async fn secrets(&self, events: Vec<Event<PartialObjectMeta<Secret>>>) {
        handle_events(stream::iter(events), &mut SecretHandler::new(self.updater.clone(), true)).await;
    }

    /// The names of the queued objects, in order.
    fn queued(&self) -> Vec<String> {
        let mut names: Vec<_> = self.updater.queue.snapshot().into_iter().map(|queued| queued.key.name).collect();
        names.sort();
        names
    }
}

fn deployment(name: &str, metadata: &Value) -> Workload {
    let mut object = json!({
        "metadata": { "namespace": "shop", "name": name, "uid": format!("uid of {name}"), "resourceVersion": "1" },
        "spec": { "template": { "spec": { "containers": [{ "envFrom": [{ "secretRef": { "name": "db" } }] }] } } },
    });
    for (field, value) in metadata.as_object().unwrap() {
        object["metadata"][field] = value.clone();
    }
    serde_json::from_value(object).unwrap()
}

fn opted_in(name: &str) -> Workload {
    deployment(name, &json!({ "annotations": { "vault-sync.io/path": format!("secret/data/{name}") } }))
}

fn secret_of(name: &str, version: &str, annotations: &Value) -> PartialObjectMeta<Secret> {
    let metadata = json!({
        "namespace": "shop", "name": name, "uid": format!("uid of {name}"), "resourceVersion": version, "annotations": annotations,
    });
    serde_json::from_value(json!({ "metadata": metadata })).unwrap()
}

#[tokio::test]
async fn the_queue_of_a_standby_forgets_objects_that_are_gone() {
    let standby = Standby::new();
    // Objects come and go, as jobs do. A change of their Secret queues them once more.
    for number in 0..100 {
        let name = format!("passing-{number}");
        let path = json!({ "vault-sync.io/path": format!("secret/data/{name}") });
        standby.deployments(vec![Event::Apply(opted_in(&name))]).await;
        standby.secrets(vec![Event::Apply(secret_of("db", &number.to_string(), &json!({})))]).await;
        standby.secrets(vec![Event::Apply(secret_of(&name, "1", &path))]).await;
        assert_eq!(standby.queued(), [&*name, &*name], "the Deployment and the Secret");
        standby.deployments(vec![Event::Delete(opted_in(&name))]).await;
        standby.secrets(vec![Event::Delete(secret_of(&name, "1", &path))]).await;
    }
    assert_eq!(standby.queued(), [""; 0]);
    // An object that a list no longer shows is gone, too.
    standby.deployments(vec![Event::Apply(opted_in("missed")), Event::Apply(opted_in("kept"))]).await;
    standby.deployments(vec![Event::Init, Event::InitApply(opted_in("kept")), Event::InitDone]).await;
    assert_eq!(standby.queued(), ["kept"]);
    // And so is what has opted out.
    standby.deployments(vec![Event::Apply(deployment("kept", &json!({})))]).await;
    assert_eq!(standby.queued(), [""; 0]);
}

#[tokio::test]
async fn an_object_that_holds_something_in_vault_stays_queued_until_it_is_gone() {
    let standby = Standby::new();
    let held = json!({ "finalizers": [FINALIZER], "deletionTimestamp": "2026-01-01T00:00:00Z" });
    standby.deployments(vec![Event::Apply(deployment("held", &held))]).await;
    assert_eq!(standby.queued(), ["held"]);
    standby.deployments(vec![Event::Delete(deployment("held", &json!({})))]).await;
    assert_eq!(standby.queued(), [""; 0]);
}

#[tokio::test]
async fn a_leader_looks_once_more_at_an_object_that_is_gone() {
    let leader = Standby::new();
    leader.deployments(vec![Event::Apply(opted_in("first"))]).await;
    let request = leader.updater.queue.next().await.unwrap();
    // The run may have noted something for it in the journal, so the key is not dropped with the object.
    leader.deployments(vec![Event::Delete(opted_in("first"))]).await;
    leader.updater.queue.complete(&request.key, konverge_runtime::queue::Completion::Retry(std::time::Duration::ZERO));
    assert_eq!(leader.queued(), ["first"]);
}

fn held(name: &str) -> Workload {
    let path = json!({ "vault-sync.io/path": format!("secret/data/{name}") });
    deployment(name, &json!({ "annotations": path, "finalizers": [FINALIZER] }))
}

fn key_of(name: &str) -> ObjectRef {
    ObjectRef { kind: Kind::Deployment, namespace: "shop".to_owned(), name: name.to_owned() }
}

#[tokio::test]
async fn the_leader_alone_clears_what_was_written_for_an_object_that_went_past_its_finalizer() {
    for leads in [false, true] {
        let process = Standby::new();
        if leads {
            process.lead().await;
        }
        process.deployments(vec![Event::Apply(held("held")), Event::Delete(held("held"))]).await;
        assert_eq!(process.queued().contains(&"held".to_owned()), leads);
        let binding = process.updater.bindings.get(&key_of("held"));
        assert_eq!(binding.is_some_and(|binding| binding.deleting.is_some()), leads);
    }
}

#[tokio::test]
async fn an_object_that_only_a_list_lacks_is_forgotten_and_one_that_went_before_is_still_cleared() {
    let leader = Standby::new();
    leader.lead().await;
    leader.deployments(vec![Event::Apply(held("missed")), Event::Apply(held("seen"))]).await;
    leader.deployments(vec![Event::Delete(held("seen")), Event::Init, Event::InitDone]).await;
    assert!(!leader.updater.bindings.has(&key_of("missed")), "nobody knows how it went");
    assert!(leader.updater.bindings.has(&key_of("seen")));
}
