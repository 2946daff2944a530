//! Which keys the queues of a standby have: its watches fill them, and no worker empties them.

use std::{collections::BTreeMap, time::Duration};

use futures::{future::pending, stream};
use jiff::SignedDuration;
use k8s_openapi::api::core::v1::Secret;
use konverge_apply::events::EventSink;
use konverge_runtime::{
    Metrics, Queue,
    queue::Completion,
    watch::{Event, Guarded, handle_events},
};
use konverge_workload::Keys;
use serde_json::{Value, json};

use super::*;
use crate::{
    breaker,
    budget::Limits,
    declarations::{ON_CHANGE, Others},
    status::Status,
    trigger::{Before, Leftovers, TriggerSpec},
    vault,
};

fn standby() -> Feed {
    let metrics = Metrics::new("vault-rollout-operator", "0");
    let settings =
        breaker::Settings { changes: 0, within: SignedDuration::from_mins(1), quiet: SignedDuration::from_mins(1) };
    let limits = Limits { per_minute: None, concurrent: Some(1), timeout: SignedDuration::from_mins(10) };
    Feed {
        index: Arc::new(Index::new(Others::default(), settings)),
        budget: Arc::new(Mutex::new(Budget::new(limits))),
        queues: Queues {
            workloads: Queue::new("roll", metrics.queues()),
            sources: Queue::new("roll-sources", metrics.queues()),
            triggers: Queue::new("roll-triggers", metrics.queues()),
        },
        announcer: messages::source_announcer(EventSink::dry_run(pending::<()>()).0),
    }
}

/// How many workloads, sources and objects that ask for rollouts are queued.
fn queued(feed: &Feed) -> [usize; 3] {
    [
        feed.queues.workloads.snapshot().len(),
        feed.queues.sources.snapshot().len(),
        feed.queues.triggers.snapshot().len(),
    ]
}

fn deployment(name: &str, annotations: &Value, secret: &str) -> Guarded<Workload> {
    let object = json!({
        "metadata": {
            "namespace": "shop", "name": name, "uid": format!("uid of {name}"), "resourceVersion": "1",
            "annotations": annotations,
        },
        "spec": { "template": { "spec": { "containers": [{ "envFrom": [{ "secretRef": { "name": secret } }] }] } } },
    });
    Guarded(Ok(serde_json::from_value(object).unwrap()))
}

fn all(name: &str) -> Guarded<Workload> {
    deployment(name, &json!({ ON_CHANGE: "true" }), &format!("of-{name}"))
}

fn secret(name: &str) -> PartialObjectMeta<Secret> {
    let metadata = json!({ "namespace": "shop", "name": name, "uid": "s", "resourceVersion": "7" });
    serde_json::from_value(json!({ "metadata": metadata })).unwrap()
}

async fn deployments(feed: &Feed, events: Vec<Event<Guarded<Workload>>>) {
    let mut handler = Workloads { feed: feed.clone(), kind: WorkloadKind::Deployment };
    handle_events(stream::iter(events), &mut handler).await;
}

/// An object that asks for rollouts of the Deployment of its name for a path of its own.
fn trigger(name: &str) -> (TriggerRef, WatchedTrigger) {
    let target = WorkloadRef { namespace: "shop".to_owned(), kind: WorkloadKind::Deployment, name: name.to_owned() };
    let spec = TriggerSpec {
        targets: [target].into(),
        choices: Vec::new(),
        sources: BTreeMap::from([(vault::source(SourceKind::Vault, "secret", name).unwrap(), Keys::All)]),
        every: Duration::from_mins(1),
        before: Before::Adopted,
        suspended: false,
        wait_for: None,
        notes: Vec::new(),
    };
    let shown = WatchedTrigger {
        uid: "t".to_owned(),
        version: "1".to_owned(),
        generation: Some(1),
        spec: Ok(Arc::new(spec)),
        deleting: false,
        leftovers: Leftovers::default(),
        status: Arc::new(Status::default()),
    };
    let key = TriggerRef { kind: TriggerKind::VaultRollout, namespace: "shop".to_owned(), name: name.to_owned() };
    (key, shown)
}

async fn triggers(feed: &Feed, events: Vec<Event<Secret>>) {
    let shown = |object: Secret| Some(trigger(&object.metadata.name?));
    let mut handler = Triggers { feed: feed.clone(), kind: TriggerKind::VaultRollout, shown };
    handle_events(stream::iter(events), &mut handler).await;
}

/// Stands for an object that asks; only its name counts here.
fn named(name: &str) -> Secret {
    let mut object = Secret::default();
    object.metadata.namespace = Some("shop".to_owned());
    object.metadata.name = Some(name.to_owned());
    object
}

#[tokio::test]
async fn the_queues_of_a_standby_forget_objects_that_are_gone() {
    let feed = standby();
    for number in 0..100 {
        let name = format!("passing-{number}");
        deployments(&feed, vec![Event::Apply(all(&name))]).await;
        let changed = stream::iter([Event::Apply(secret(&format!("of-{name}")))]);
        handle_events(changed, &mut Sources::new(feed.clone(), SourceKind::Secret)).await;
        triggers(&feed, vec![Event::Apply(named(&name))]).await;
        assert_eq!(queued(&feed), [1, 2, 1], "the Secret and the path in Vault are sources");
        // Whichever goes first.
        if number % 2 == 0 {
            triggers(&feed, vec![Event::Delete(named(&name))]).await;
            deployments(&feed, vec![Event::Delete(all(&name))]).await;
        } else {
            deployments(&feed, vec![Event::Delete(all(&name))]).await;
            triggers(&feed, vec![Event::Delete(named(&name))]).await;
        }
    }
    assert_eq!(queued(&feed), [0, 0, 0]);
}

#[tokio::test]
async fn the_queues_of_a_standby_forget_objects_that_a_list_does_not_show() {
    let feed = standby();
    deployments(&feed, vec![Event::Apply(all("gone")), Event::Apply(all("kept"))]).await;
    triggers(&feed, vec![Event::Apply(named("gone")), Event::Apply(named("kept"))]).await;
    assert_eq!(queued(&feed), [2, 4, 2]);
    deployments(&feed, vec![Event::Init, Event::InitApply(all("kept")), Event::InitDone]).await;
    triggers(&feed, vec![Event::Init, Event::InitApply(named("kept")), Event::InitDone]).await;
    assert_eq!(queued(&feed), [1, 2, 1]);
    // A path in Vault that no workload uses is not followed.
    feed.no_triggers(TriggerKind::VaultRollout);
    assert_eq!(queued(&feed), [1, 1, 0]);
    // A Secret that no workload uses any more need not be read.
    deployments(&feed, vec![Event::Apply(deployment("kept", &json!({ ON_CHANGE: "true" }), "other"))]).await;
    let sources: Vec<_> = feed.queues.sources.snapshot().into_iter().map(|queued| queued.key.name.name).collect();
    assert_eq!(sources, ["other"]);
}

#[tokio::test]
async fn a_leader_looks_once_more_at_what_is_gone() {
    let feed = standby();
    deployments(&feed, vec![Event::Apply(all("web"))]).await;
    triggers(&feed, vec![Event::Apply(named("web"))]).await;
    let (workload, trigger) = (feed.queues.workloads.next().await.unwrap(), feed.queues.triggers.next().await.unwrap());
    let (one, other) = (feed.queues.sources.next().await.unwrap(), feed.queues.sources.next().await.unwrap());
    deployments(&feed, vec![Event::Delete(all("web"))]).await;
    triggers(&feed, vec![Event::Delete(named("web"))]).await;
    // The run may have taken a place in the budget and ended with an error.
    feed.queues.workloads.complete(&workload.key, Completion::Retry(Duration::ZERO));
    feed.queues.triggers.complete(&trigger.key, Completion::Done);
    for source in [one, other] {
        feed.queues.sources.complete(&source.key, Completion::Done);
    }
    // The path in Vault is followed until a run ends that, and the teller remembers the object until a run forgets it.
    assert_eq!(queued(&feed), [1, 1, 1]);
}
