//! Which keys the queues of a standby have: its watches fill them, and no worker empties them.

use std::{sync::Mutex, time::Duration};

use futures::{future::pending, stream};
use jiff::SignedDuration;
use k8s_openapi::api::core::v1::Secret;
use konverge_apply::events::EventSink;
use konverge_runtime::{
    Metrics, Queue,
    queue::Completion,
    watch::{Event, handle_events},
};
use serde_json::{Value, json};

use super::*;
use crate::{
    annotations::{ON_CHANGE, Others, RECORD, STAMP},
    breaker,
    budget::{Budget, Limits},
    digest_key::Key,
    index::Index,
    messages, metrics,
    parts::Queues,
    trigger::TriggerKind,
    vault_rollout::VaultRollout,
};

fn standby() -> Arc<Parts> {
    let timeout = SignedDuration::from_mins(10);
    parts_with(Limits { per_minute: None, concurrent: Some(1), per_namespace: None, timeout })
}

fn parts_with(limits: Limits) -> Arc<Parts> {
    let metrics = Metrics::new("vault-rollout-operator", "0");
    let settings =
        breaker::Settings { changes: 0, within: SignedDuration::from_mins(1), quiet: SignedDuration::from_mins(1) };
    let events = EventSink::dry_run(pending::<()>()).0;
    Arc::new(Parts {
        index: Index::new(Others::default(), settings),
        budget: Mutex::new(Budget::new(limits)),
        key: Key::default(),
        queues: Queues {
            workloads: Queue::new("roll", metrics.queues()),
            sources: Queue::new("roll-sources", metrics.queues()),
            triggers: Queue::new("roll-triggers", metrics.queues()),
        },
        metrics: metrics.register(metrics::Metrics::new),
        announcer: messages::announcer(events.clone()),
        source_announcer: messages::source_announcer(events),
    })
}

/// How many workloads, sources and triggers are queued.
fn queued(parts: &Arc<Parts>) -> [usize; 3] {
    [
        parts.queues.workloads.snapshot().len(),
        parts.queues.sources.snapshot().len(),
        parts.queues.triggers.snapshot().len(),
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

async fn deployments(parts: &Arc<Parts>, events: Vec<Event<Guarded<Workload>>>) {
    let mut handler = Workloads { parts: Arc::clone(parts), kind: WorkloadKind::Deployment };
    handle_events(stream::iter(events), &mut handler).await;
}

/// An object that asks for rollouts of the Deployment of its name for a path of its own.
fn vault_rollout(name: &str) -> Guarded<VaultRollout> {
    let object = json!({
        "apiVersion": "konverge.dev/v1alpha1", "kind": "VaultRollout",
        "metadata": { "namespace": "shop", "name": name, "uid": "t", "generation": 1, "resourceVersion": "1" },
        "spec": {
            "vaultSecrets": [{ "mount": "secret", "path": name }], "targets": [{ "kind": "Deployment", "name": name }],
        },
    });
    serde_json::from_value(object).unwrap()
}

async fn triggers(parts: &Arc<Parts>, events: Vec<Event<Guarded<VaultRollout>>>) {
    let settings = Settings { every: Duration::from_mins(1), restart_on_first_seen: false, allow_path: Vec::new() };
    let mut handler = Triggers { parts: Arc::clone(parts), settings: Arc::new(settings) };
    handle_events::<Guarded<VaultRollout>, _, _>(stream::iter(events), &mut handler).await;
}

#[tokio::test]
async fn records_that_a_user_writes_again_and_again_use_up_no_budget_of_others() {
    let (per_minute, concurrent, per_namespace) = (Some(100), Some(25), Some(20));
    let parts = parts_with(Limits { per_minute, concurrent, per_namespace, timeout: SignedDuration::from_mins(10) });
    let now = Time::now();
    for number in 0..200 {
        let rolled = now.later(SignedDuration::from_millis(-100 * number)).wall();
        let record = json!({ "tag": "any", "content": {}, "rolled": rolled.to_string() }).to_string();
        let object = json!({
            "metadata": {
                "namespace": "shop", "name": "web", "uid": "w", "resourceVersion": number.to_string(),
                "annotations": { RECORD: record },
            },
            "spec": { "template": { "metadata": { "annotations": { STAMP: "stamp" } }, "spec": { "containers": [] } } },
            "status": { "observedGeneration": 1, "replicas": 1 },
        });
        deployments(&parts, vec![Event::Apply(Guarded(Ok(serde_json::from_value(object).unwrap())))]).await;
    }
    let key = |name: usize| WorkloadRef {
        namespace: "shop".to_owned(),
        kind: WorkloadKind::Deployment,
        name: name.to_string(),
    };
    let begun = (0..100).filter(|name| {
        let taken = parts.budget().take(&key(*name), "stamp", now).is_ok();
        drop(parts.budget().done(&key(*name), now));
        taken
    });
    assert_eq!(begun.count(), 79, "one of the 80 of its namespace");
}

#[tokio::test]
async fn the_queues_of_a_standby_forget_objects_that_are_gone() {
    let parts = standby();
    for number in 0..100 {
        let name = format!("passing-{number}");
        deployments(&parts, vec![Event::Apply(all(&name))]).await;
        let changed = stream::iter([Event::Apply(secret(&format!("of-{name}")))]);
        handle_events(changed, &mut Sources::new(Arc::clone(&parts), SourceKind::Secret)).await;
        triggers(&parts, vec![Event::Apply(vault_rollout(&name))]).await;
        assert_eq!(queued(&parts), [1, 2, 1], "the Secret and the path in Vault are sources");
        // Whichever goes first.
        if number % 2 == 0 {
            triggers(&parts, vec![Event::Delete(vault_rollout(&name))]).await;
            deployments(&parts, vec![Event::Delete(all(&name))]).await;
        } else {
            deployments(&parts, vec![Event::Delete(all(&name))]).await;
            triggers(&parts, vec![Event::Delete(vault_rollout(&name))]).await;
        }
    }
    assert_eq!(queued(&parts), [0, 0, 0]);
}

#[tokio::test]
async fn the_queues_of_a_standby_forget_objects_that_a_list_does_not_show() {
    let parts = standby();
    deployments(&parts, vec![Event::Apply(all("gone")), Event::Apply(all("kept"))]).await;
    triggers(&parts, vec![Event::Apply(vault_rollout("gone")), Event::Apply(vault_rollout("kept"))]).await;
    assert_eq!(queued(&parts), [2, 4, 2]);
    deployments(&parts, vec![Event::Init, Event::InitApply(all("kept")), Event::InitDone]).await;
    triggers(&parts, vec![Event::Init, Event::InitApply(vault_rollout("kept")), Event::InitDone]).await;
    assert_eq!(queued(&parts), [1, 2, 1]);
    // A path in Vault that no workload uses is not followed.
    parts.no_triggers(TriggerKind::VaultRollout);
    assert_eq!(queued(&parts), [1, 1, 0]);
    // A Secret that no workload uses any more need not be read.
    deployments(&parts, vec![Event::Apply(deployment("kept", &json!({ ON_CHANGE: "true" }), "other"))]).await;
    let sources: Vec<_> = parts.queues.sources.snapshot().into_iter().map(|queued| queued.key.name.name).collect();
    assert_eq!(sources, ["other"]);
}

#[tokio::test]
async fn a_leader_looks_once_more_at_what_is_gone() {
    let parts = standby();
    deployments(&parts, vec![Event::Apply(all("web"))]).await;
    triggers(&parts, vec![Event::Apply(vault_rollout("web"))]).await;
    let (workload, trigger) =
        (parts.queues.workloads.next().await.unwrap(), parts.queues.triggers.next().await.unwrap());
    let (one, other) = (parts.queues.sources.next().await.unwrap(), parts.queues.sources.next().await.unwrap());
    deployments(&parts, vec![Event::Delete(all("web"))]).await;
    triggers(&parts, vec![Event::Delete(vault_rollout("web"))]).await;
    // The run may have taken a place in the budget and ended with an error.
    parts.queues.workloads.complete(&workload.key, Completion::Retry(Duration::ZERO));
    parts.queues.triggers.complete(&trigger.key, Completion::Done);
    for source in [one, other] {
        parts.queues.sources.complete(&source.key, Completion::Done);
    }
    // The path in Vault is followed until a run ends that, and the teller remembers the object until a run forgets it.
    assert_eq!(queued(&parts), [1, 1, 1]);
}
