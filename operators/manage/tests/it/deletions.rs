//! The guard of deletions: one mistake in the cluster must not empty openZro.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use konverge::kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams},
};
use konverge_manage::{
    api::{
        v1::{OZPolicy, OZPolicySpec},
        v1alpha1::{Group, GroupSpec},
    },
    deletions::CONFIG_MAP,
};
use konverge_openzro::Collection;
use konverge_testkit::events_about;
use serde_json::json;

use crate::stage::{Running, Stage};

/// The tests of other files run without the guard.
const GUARD: &str = "--allow-deletes=false";

/// How many objects of twelve are deleted without approval.
const ALLOWED: usize = 5;

/// Twelve groups, each with its object. More than the allowed number are left, so that a restart stops their deletion again.
async fn twelve(stage: &Stage) -> Vec<String> {
    let groups = stage.api::<Group>();
    let names: Vec<_> = (0..12).map(|number| format!("g-{number}")).collect();
    for name in &names {
        stage.create(&groups, &Group::new(name, GroupSpec { name: name.clone() })).await;
    }
    for name in &names {
        stage.says(&groups, name, "Ready", "Reconciled").await;
    }
    names
}

/// The groups on the server, without the one that every account has.
async fn on_server(stage: &Stage) -> BTreeSet<String> {
    stage.on_server(&Collection::Groups).await.into_keys().filter(|name| name != "All").collect()
}

/// The objects that are left.
async fn left(stage: &Stage) -> BTreeSet<String> {
    let objects = stage.api::<Group>().list(&ListParams::default()).await.unwrap();
    objects.iter().map(ResourceExt::name_any).collect()
}

/// The annotation of the `ConfigMap` that says why deletions are stopped.
async fn stopped(stage: &Stage) -> Option<String> {
    let told = stage.at_home::<ConfigMap>().get_opt(CONFIG_MAP).await.unwrap()?;
    told.annotations().get("konverge.dev/deletions-stopped").cloned()
}

/// The series for the alert.
fn waiting(operator: &Running) -> String {
    let text = operator.scrape();
    text.lines()
        .find(|line| line.starts_with("openzro_deletions_stopped "))
        .unwrap_or_else(|| panic!("{text}"))
        .to_owned()
}

/// As `kubectl konverge approve` does.
async fn approve(stage: &Stage) {
    let approval = json!({ "metadata": { "annotations": { "konverge.dev/approve-deletions": "true" } } });
    stage.patch(&stage.at_home::<ConfigMap>(), CONFIG_MAP, approval).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_many_objects_that_are_deleted_at_once_openzro_keeps_the_items_until_approval() {
    let stage = Stage::set().await;
    let (operator, checks) = stage.begin(&[GUARD]).await;
    let names = twelve(&stage).await;
    assert_eq!((stopped(&stage).await, &*waiting(&operator)), (None, "openzro_deletions_stopped 0"));
    let of_kind = ListParams::default();
    stage.api::<Group>().delete_collection(&DeleteParams::default(), &of_kind).await.unwrap();
    stage.until("the operator tells that deletions are stopped", async || stopped(&stage).await.is_some()).await;
    stage.settled(&operator).await;

    // No more than the share are gone, the others wait, and openZro keeps what they stand for.
    let (kept, waits) = (on_server(&stage).await, left(&stage).await);
    assert!(kept.len() >= names.len() - ALLOWED && kept == waits, "{kept:?} {waits:?}");
    for name in &waits {
        let status = stage.says(&stage.api::<Group>(), name, "Reconciling", "DeletionsStopped").await.status.unwrap();
        let message = status.standard.conditions.get("Reconciling").unwrap().message.clone();
        assert!(
            message.contains("are allowed without approval") && message.contains("kubectl konverge approve"),
            "{message}"
        );
        assert_eq!(stage.finalizers(&stage.api::<Group>(), name).await.len(), 1, "{name}");
        stage.told(name, "DeletionsStopped").await;
    }
    let why = stopped(&stage).await.unwrap();
    assert!(why.contains("and 5 of 12 are allowed"), "{why}");
    assert_ne!(waiting(&operator), "openzro_deletions_stopped 0");
    assert!(checks.ready().passed && checks.ready().text.contains("kubectl konverge approve"));
    let home = stage.at_home::<ConfigMap>().get(CONFIG_MAP).await.unwrap().namespace().unwrap();
    let is_told = async || {
        let events = events_about(&stage.client, &home, CONFIG_MAP).await.unwrap();
        events.iter().any(|event| event.reason.as_deref() == Some("DeletionsStopped"))
    };
    stage.until("an event names the cause", is_told).await;

    // A restart lets none of them go, and leaves the approval to a person.
    operator.stop().await;
    let operator = stage.start(&[GUARD]).await;
    stage.until("the operator says so again", async || waiting(&operator) != "openzro_deletions_stopped 0").await;
    stage.settled(&operator).await;
    assert_eq!((on_server(&stage).await, left(&stage).await), (kept, waits.clone()));

    approve(&stage).await;
    for name in &waits {
        stage.gone(&stage.api::<Group>(), name).await;
    }
    assert_eq!(on_server(&stage).await, BTreeSet::new());
    stage.until("nothing is stopped any more", async || stopped(&stage).await.is_none()).await;
    assert_eq!(waiting(&operator), "openzro_deletions_stopped 0");
    let told = stage.at_home::<ConfigMap>().get(CONFIG_MAP).await.unwrap();
    assert!(!told.annotations().contains_key("konverge.dev/approve-deletions"), "an approval counts once");
}

#[tokio::test(flavor = "multi_thread")]
async fn deletions_that_a_person_takes_back_leave_the_items_in_openzro() {
    let stage = Stage::set().await;
    let operator = stage.start(&[GUARD]).await;
    twelve(&stage).await;
    stage.api::<Group>().delete_collection(&DeleteParams::default(), &ListParams::default()).await.unwrap();
    stage.until("the operator tells that deletions are stopped", async || stopped(&stage).await.is_some()).await;
    stage.settled(&operator).await;
    let (kept, waits) = (on_server(&stage).await, left(&stage).await);
    for name in &waits {
        let orphan = json!({ "metadata": { "annotations": { "konverge.dev/deletion": "orphan" } } });
        stage.patch(&stage.api::<Group>(), name, orphan).await;
    }
    for name in &waits {
        stage.gone(&stage.api::<Group>(), name).await;
    }
    assert_eq!(on_server(&stage).await, kept);
    stage.until("nothing is stopped any more", async || stopped(&stage).await.is_none()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_flag_lets_all_deletions_go_also_those_that_were_stopped() {
    let stage = Stage::set().await;
    let operator = stage.start(&[GUARD]).await;
    let names = twelve(&stage).await;
    stage.api::<Group>().delete_collection(&DeleteParams::default(), &ListParams::default()).await.unwrap();
    stage.until("the operator tells that deletions are stopped", async || stopped(&stage).await.is_some()).await;
    operator.stop().await;
    let operator = stage.start(&["--allow-deletes"]).await;
    for name in &names {
        stage.gone(&stage.api::<Group>(), name).await;
    }
    assert_eq!(on_server(&stage).await, BTreeSet::new());
    stage.until("nothing is stopped any more", async || stopped(&stage).await.is_none()).await;
    assert_eq!(waiting(&operator), "openzro_deletions_stopped 0");
}

/// The items of several kinds count together, and so do parts that objects lose.
#[tokio::test(flavor = "multi_thread")]
async fn policies_that_lose_their_parts_count_with_deleted_groups() {
    let stage = Stage::set().await;
    let operator = stage.start(&[GUARD]).await;
    let (groups, policies) = (stage.api::<Group>(), Api::<OZPolicy>::all(stage.client.clone()));
    let spec = json!({ "name": "p", "sourceGroups": ["All"], "destinationGroups": ["All"], "ports": [443], "protocols": ["tcp", "udp"] });
    // Policies are cluster-scoped, so at most two deletions of groups count for them.
    for number in 0..2 {
        let name = format!("g-{number}");
        stage.create(&groups, &Group::new(&name, GroupSpec { name: name.clone() })).await;
        stage.says(&groups, &name, "Ready", "Reconciled").await;
    }
    for number in 0..4 {
        let name = format!("p-{number}");
        let mut spec: OZPolicySpec = serde_json::from_value(spec.clone()).unwrap();
        spec.name.clone_from(&name);
        stage.create(&policies, &OZPolicy::new(&name, spec)).await;
        stage.says(&policies, &name, "Ready", "Reconciled").await;
    }
    assert_eq!(stage.on_server(&Collection::Policies).await.keys().filter(|name| name.starts_with("p-")).count(), 8);
    for number in 0..2 {
        stage.delete(&groups, &format!("g-{number}")).await;
        stage.gone(&groups, &format!("g-{number}")).await;
    }
    // A chart without one of its values.
    for number in 0..4 {
        let tcp = json!({ "spec": { "protocols": ["tcp"] } });
        stage.patch(&policies, &format!("p-{number}"), tcp).await;
    }
    stage.until("the operator tells that deletions are stopped", async || stopped(&stage).await.is_some()).await;
    stage.settled(&operator).await;
    let parts = stage.on_server(&Collection::Policies).await.into_keys().filter(|name| name.ends_with("UDP")).count();
    assert!(parts >= 1, "the sixth deletion waits");
    approve(&stage).await;
    stage
        .until("the parts are gone", async || {
            stage.on_server(&Collection::Policies).await.into_keys().all(|name| !name.ends_with("UDP"))
        })
        .await;
    for number in 0..4 {
        stage.says(&policies, &format!("p-{number}"), "Ready", "Reconciled").await;
    }
}

/// The namespace itself waits, but not for ever: see `unit/control/deadline.rs`.
#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_namespace_with_many_objects_waits_for_the_approval() {
    let stage = Stage::set().await;
    let operator = stage.start(&[GUARD, "--terminating-namespace-deadline=1"]).await;
    let names = twelve(&stage).await;
    let namespaces = Api::<Namespace>::all(stage.client.clone());
    namespaces.delete(&stage.namespace, &DeleteParams::default()).await.unwrap();
    // The test cluster has no namespace controller.
    stage.api::<Group>().delete_collection(&DeleteParams::default(), &ListParams::default()).await.unwrap();
    stage.until("the operator tells that deletions are stopped", async || stopped(&stage).await.is_some()).await;
    // This takes longer than the deadline.
    stage.settled(&operator).await;
    let waits = left(&stage).await;
    assert!(waits.len() >= names.len() - ALLOWED && on_server(&stage).await == waits, "{waits:?}");
    approve(&stage).await;
    for name in &waits {
        stage.gone(&stage.api::<Group>(), name).await;
    }
    assert_eq!(on_server(&stage).await, BTreeSet::new());
}
