//! Obstacles to the replacement of pods (F27): a strategy that leaves it to people, a budget of disruptions, and a pod template that stands
//! somewhere else.

use k8s_openapi::api::{core::v1::Pod, policy::v1::PodDisruptionBudget};
use konverge_testkit::{ARGO_ROLLOUTS, eventually};
use konverge_workload::WorkloadKind::{Deployment, Rollout, StatefulSet};
use kube::{
    Api,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::json;

use crate::world::{ALL, NO_REST, SOON, World, control_plane, until};

const STAMP: &str = "roll.konverge.dev/content";

/// The uid of its only pod and the stamp that this was made with.
async fn pod(world: &World, name: &str) -> (String, Option<String>) {
    let pods: Api<Pod> = Api::namespaced(world.client.clone(), &world.namespace);
    let found = until("there is one pod that is ready", async || {
        let pods = pods.list(&ListParams::default().labels(&format!("app={name}"))).await.unwrap().items;
        let is_ready = |pod: &Pod| {
            let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
            conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
        };
        match <[Pod; 1]>::try_from(pods) {
            Ok([pod]) if is_ready(&pod) && pod.metadata.deletion_timestamp.is_none() => Ok(pod),
            Ok([pod]) => Err(format!("{:?}", pod.status)),
            Err(pods) => Err(format!("{} pods", pods.len())),
        }
    })
    .await;
    let stamp = found.metadata.annotations.unwrap_or_default().remove(STAMP);
    (found.metadata.uid.unwrap(), stamp)
}

/// Its pods are replaced by who deletes them. That is not waited for, nor is it done for them.
#[tokio::test]
async fn f27_on_delete_is_stamped_once_for_each_change_and_its_pods_are_left_alone() {
    let world = World::new().await;
    world.secret("db", "1").await;
    world.workload(StatefulSet, "db", &["db"], json!({ ALL: "true" })).await;
    world
        .merge(
            StatefulSet,
            "db",
            json!({ "spec": { "updateStrategy": { "type": "OnDelete", "rollingUpdate": null } } }),
        )
        .await;
    let operator = world.operator(&NO_REST).await;
    world.noted(StatefulSet, "db").await;
    let first = pod(&world, "db").await;
    let mut stamp = None;
    for value in ["2", "3"] {
        let rolled = world.requests_during(async {
            world.secret("db", value).await;
            stamp = until("there is another stamp", async || match world.stamp(StatefulSet, "db").await {
                now if now.is_some() && now != stamp => Ok(now),
                same => Err(format!("{same:?}")),
            })
            .await;
            world.settled(&operator).await;
        });
        let writes = rolled.await.into_iter().filter(|asked| !["get", "list"].contains(&&*asked.verb)).count();
        assert_eq!(writes, 1, "one write for {value}");
        assert_eq!(pod(&world, "db").await, first, "its pod is left alone");
    }
    let pods: Api<Pod> = Api::namespaced(world.client.clone(), &world.namespace);
    pods.delete("db-0", &DeleteParams::default().grace_period(0)).await.unwrap();
    until("another pod is there", async || match pod(&world, "db").await {
        now if now.0 != first.0 => Ok(now.1),
        same => Err(format!("{same:?}")),
    })
    .await;
    assert_eq!(pod(&world, "db").await.1, stamp, "it has what it was rolled for");
}

/// A budget keeps pods from being evicted, and a rollout evicts none: how many are away at a time is up to the workload's own strategy.
#[tokio::test]
async fn f27_a_pod_disruption_budget_that_allows_none_keeps_no_rollout_back() {
    let (world, operator) = World::with_web().await;
    let budgets: Api<PodDisruptionBudget> = Api::namespaced(world.client.clone(), &world.namespace);
    let spec = json!({ "maxUnavailable": 0, "selector": { "matchLabels": { "app": "web" } } });
    let budget = json!({ "metadata": { "name": "web" }, "spec": spec });
    budgets.create(&PostParams::default(), &serde_json::from_value(budget).unwrap()).await.unwrap();
    until("the budget counts", async || {
        let status = budgets.get("web").await.unwrap().status.unwrap_or_default();
        if (status.expected_pods, status.disruptions_allowed) == (Some(1), Some(0)) {
            Ok(())
        } else {
            Err(format!("{status:?}"))
        }
    })
    .await;
    for (times, value) in [(1, "2"), (2, "3")] {
        world.secret("db", value).await;
        world.rolled("web", times).await;
        world.ready("web").await;
    }
    world.settled(&operator).await;
    assert_eq!(world.templates("web").await, 3);
}

/// Argo itself is not here. It takes the pods of a Deployment over, which has none of its own then, and makes new ones when that one's template changes.
#[tokio::test]
async fn f27_a_rollout_of_anothers_template_is_left_alone_and_that_template_is_rolled() {
    let world = World::new().await;
    control_plane().await.apply(ARGO_ROLLOUTS).await.unwrap();
    let rollouts = world.api(Rollout);
    eventually(SOON, async || rollouts.list(&ListParams::default()).await.ok()).await.unwrap();
    world.secret("db", "1").await;
    for name in ["web", "idle"] {
        world.workload(Deployment, name, &["db"], json!({ ALL: "true" })).await;
        // Its status says that there are no pods before the first one, too.
        world.ready(name).await;
        world.merge(Deployment, name, json!({ "spec": { "replicas": 0 } })).await;
    }
    let named = json!({ "apiVersion": "apps/v1", "kind": "Deployment", "name": "web" });
    let object = json!({
        "apiVersion": "argoproj.io/v1alpha1", "kind": "Rollout",
        "metadata": { "name": "canary", "annotations": { ALL: "true" } }, "spec": { "replicas": 1, "workloadRef": named },
    });
    rollouts.patch("canary", &PatchParams::apply("user"), &Patch::Apply(&object)).await.unwrap();
    until("its status says that it has no pods", async || {
        let object = world.api(Deployment).get("idle").await.unwrap();
        let status = &object.data["status"];
        let is_seen = status["observedGeneration"].as_i64() == object.metadata.generation;
        if is_seen && status["replicas"].as_i64().unwrap_or_default() == 0 { Ok(()) } else { Err(status.to_string()) }
    })
    .await;
    let operator = world.operator(&NO_REST).await;
    for name in ["web", "idle"] {
        world.noted(Deployment, name).await;
    }
    let told = world.event("canary", "TemplateElsewhere").await;
    assert!(told.contains("Deployment web"), "{told}");
    world.secret("db", "2").await;
    world.rolled("web", 1).await;
    world.settled(&operator).await;
    assert_eq!(world.templates("idle").await, 1, "it has no pods, and nobody runs them for it");
    let rollout = rollouts.get("canary").await.unwrap();
    assert_eq!(rollout.data["spec"], object["spec"], "nothing was added that Argo would refuse");
    assert_eq!(world.record(Rollout, "canary").await, None);
}
