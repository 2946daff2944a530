//! Changed content rolls exactly once, and unchanged content never.

use k8s_openapi::api::{apps::v1::ControllerRevision, batch::v1::Job};
use konverge_workload::WorkloadKind::{self, Deployment};
use kube::{Api, ResourceExt, api::ListParams};
use serde_json::json;

use crate::world::{ALL, NO_REST, World, until};

#[tokio::test]
async fn a_change_rolls_once_in_two_requests_and_the_same_value_again_rolls_nothing() {
    let world = World::new().await;
    world.secret("db", "one").await;
    world.workload(Deployment, "web", &["db"], json!({ ALL: "true" })).await;
    let operator = world.operator(&NO_REST).await;
    world.noted(Deployment, "web").await;
    world.ready("web").await;
    assert_eq!(world.stamp(Deployment, "web").await, None, "first sight rolls nothing");
    world.settled(&operator).await;

    let asked = world.requests_during(async {
        world.secret("db", "two").await;
        world.rolled("web", 1).await;
        world.ready("web").await;
        world.settled(&operator).await;
    });
    let asked = asked.await;
    let verbs: Vec<_> = asked.iter().map(|entry| entry.verb.as_str()).collect();
    assert_eq!(verbs, ["get", "patch"], "{asked:?}");
    let told = world.event("web", "RolledOut").await;
    assert_eq!(told, "rolled: Secret/db changed (roll.konverge.dev/on-change)");
    world.event("db", "RolloutTriggered").await;

    let asked = world.requests_during(async {
        world.secret_with("db", &json!({ "k": "two" }), &json!({ "example.com/touched": "true" })).await;
        world.settled(&operator).await;
    });
    let asked = asked.await;
    assert_eq!(asked.iter().map(|entry| entry.verb.as_str()).collect::<Vec<_>>(), ["get"], "{asked:?}");
    assert_eq!(world.templates("web").await, 2);
}

#[tokio::test]
async fn a_restart_rolls_nothing_and_what_changed_meanwhile_is_rolled_once() {
    let world = World::new().await;
    world.secret("db", "one").await;
    world.workload(Deployment, "web", &["db"], json!({ ALL: "true" })).await;
    let operator = world.operator(&NO_REST).await;
    world.noted(Deployment, "web").await;
    world.secret("db", "two").await;
    world.rolled("web", 1).await;
    world.ready("web").await;
    operator.stop().await;

    let asked = world.requests_during(async {
        for _ in 0..3 {
            let operator = world.operator(&NO_REST).await;
            world.settled(&operator).await;
            operator.stop().await;
        }
    });
    let asked = Box::pin(asked).await;
    assert!(asked.iter().all(|entry| !entry.is_mutating()), "{asked:?}");
    assert!(asked.iter().any(|entry| entry.verb == "get" && entry.object_ref.name == "db"), "nobody looked: {asked:?}");
    assert_eq!(world.templates("web").await, 2);

    world.secret("db", "three").await;
    let operator = world.operator(&NO_REST).await;
    world.rolled("web", 2).await;
    world.ready("web").await;
    operator.stop().await;

    world.secret("db", "four").await;
    world.secret("db", "three").await;
    let operator = world.operator(&NO_REST).await;
    world.settled(&operator).await;
    assert_eq!(world.templates("web").await, 3, "changed and reverted is no change");
}

#[tokio::test]
async fn two_leaders_roll_once() {
    let world = World::new().await;
    world.secret("db", "one").await;
    world.workload(Deployment, "web", &["db"], json!({ ALL: "true" })).await;
    let (one, two) = (world.operator(&NO_REST).await, world.operator(&NO_REST).await);
    world.noted(Deployment, "web").await;
    for (times, value) in ["two", "three", "four"].into_iter().enumerate() {
        world.ready("web").await;
        world.secret("db", value).await;
        world.rolled("web", times + 1).await;
    }
    for operator in [&one, &two] {
        world.settled(operator).await;
    }
    assert_eq!(world.templates("web").await, 4);
}

#[tokio::test]
async fn every_kind_is_rolled_and_a_cron_job_with_its_next_run() {
    let world = World::new().await;
    world.secret("db", "one").await;
    let kinds = [Deployment, WorkloadKind::StatefulSet, WorkloadKind::DaemonSet, WorkloadKind::CronJob];
    for kind in kinds {
        world.workload(kind, "app", &["db"], json!({ ALL: "true" })).await;
    }
    let operator = world.operator(&NO_REST).await;
    let mut generations = Vec::new();
    for kind in kinds {
        world.noted(kind, "app").await;
        generations.push(world.api(kind).get_metadata("app").await.unwrap().metadata.generation.unwrap());
    }
    world.secret("db", "two").await;
    for kind in kinds {
        until(&format!("{kind:?} is rolled"), async || world.stamp(kind, "app").await.ok_or_else(String::new)).await;
    }
    world.settled(&operator).await;
    for (kind, before) in kinds.into_iter().zip(generations) {
        let now = world.api(kind).get_metadata("app").await.unwrap().metadata.generation.unwrap();
        assert_eq!(now, before + 1, "{kind:?}");
    }
    // The results of the controllers: a revision for each template, and the next Job.
    let revisions = Api::<ControllerRevision>::namespaced(world.client.clone(), &world.namespace);
    for kind in ["StatefulSet", "DaemonSet"] {
        until(&format!("{kind} has two revisions"), async || {
            let all = revisions.list(&ListParams::default()).await.unwrap();
            let is_owned =
                |revision: &&ControllerRevision| revision.owner_references().iter().any(|owner| owner.kind == kind);
            match all.iter().filter(is_owned).count() {
                2 => Ok(()),
                other => Err(other.to_string()),
            }
        })
        .await;
    }
    let due = json!({ "spec": { "schedule": "* * * * *", "suspend": false } });
    world.merge(WorkloadKind::CronJob, "app", due).await;
    let stamp = world.stamp(WorkloadKind::CronJob, "app").await.unwrap();
    let jobs = Api::<Job>::namespaced(world.client.clone(), &world.namespace);
    let job = until("its next run is made", async || {
        jobs.list(&ListParams::default()).await.unwrap().items.pop().ok_or("there is no Job")
    });
    let template = job.await.spec.unwrap().template.metadata.unwrap();
    assert_eq!(template.annotations.unwrap().get("roll.konverge.dev/content"), Some(&stamp));
}

#[tokio::test]
async fn one_that_is_deleted_and_made_again_rolls_only_with_another_value() {
    let world = World::new().await;
    world.secret("db", "one").await;
    world.workload(Deployment, "web", &["db"], json!({ ALL: "true" })).await;
    let operator = world.operator(&NO_REST).await;
    world.noted(Deployment, "web").await;
    world.delete_secret("db").await;
    world.settled(&operator).await;
    world.secret("db", "one").await;
    world.settled(&operator).await;
    assert_eq!(world.templates("web").await, 1);
    world.delete_secret("db").await;
    world.secret("db", "two").await;
    world.rolled("web", 1).await;
}

#[tokio::test]
async fn a_template_that_is_set_back_stays_so() {
    let world = World::new().await;
    world.secret("db", "one").await;
    world.workload(Deployment, "web", &["db"], json!({ ALL: "true" })).await;
    let operator = world.operator(&NO_REST).await;
    world.noted(Deployment, "web").await;
    world.secret("db", "two").await;
    world.rolled("web", 1).await;
    world.ready("web").await;
    // Somebody who knows no other annotations than their own writes the whole map, as some do from a repository.
    let bare = json!({ "spec": { "template": { "metadata": { "annotations": null } } } });
    world.merge(Deployment, "web", bare).await;
    world.ready("web").await;
    world.settled(&operator).await;
    assert_eq!(world.stamp(Deployment, "web").await, None);
    world.secret("db", "three").await;
    // Without a stamp it was the first template, so this is the third.
    world.rolled("web", 2).await;
}
