//! Objects at rest: how much they cost, whatever their number, and that nothing is written about them again.

use std::{collections::BTreeSet, time::Duration};

use futures::{StreamExt, stream};
use konverge::kube::{Api, ResourceExt, api::ListParams};
use konverge_manage::api::{
    v1::{OZGroup, OZGroupSpec, OZPolicy, OZPolicySpec},
    v1alpha1::{Group, GroupSpec},
};
use konverge_openzro::Collection;
use konverge_testkit::eventually;
use serde_json::{from_value, json};
use tokio::time::Instant;

use crate::stage::Stage;

/// The number of objects of the specification.
const MANY: usize = 500;
/// Longer than so many objects take on a machine that builds at the same time.
const FOR_MANY: Duration = Duration::from_mins(5);
/// The requests of four rounds of all lists.
const ROUNDS: usize = 32;

/// The calls after the first `from`: lists alone, of these paths. Panics on any other call.
fn lists(stage: &Stage, from: usize) -> Vec<String> {
    let calls = stage.front.journal().split_off(from);
    let paths = calls.into_iter().map(|seen| {
        assert_eq!(seen.method, "GET", "a write at rest: {}", seen.path);
        seen.path
    });
    paths.collect()
}

/// The number of lists that some seconds may cost: one for each of the eight collections in each interval of a second, and those under way.
fn budget(elapsed: Duration) -> usize {
    8 * (usize::try_from(elapsed.as_secs()).unwrap() + 2)
}

#[tokio::test(flavor = "multi_thread")]
async fn w24_five_hundred_objects_at_rest_cost_one_list_for_each_collection_and_interval() {
    let stage = Stage::set().await;
    let operator = stage.start(&[]).await;
    let groups = stage.api::<Group>();
    let create = async |number: usize| {
        let name = format!("group-{number}");
        stage.create(&groups, &Group::new(&name, GroupSpec { name: name.clone() })).await;
    };
    stream::iter(0..MANY).for_each_concurrent(16, create).await;
    let are_ready = async || {
        let all = groups.list(&ListParams::default()).await.unwrap().items;
        let ready = all.iter().filter(|group| {
            let ready = group.status.as_ref().and_then(|status| status.standard.conditions.get("Ready"));
            ready.is_some_and(|ready| ready.status == "True")
        });
        (ready.count() == MANY).then_some(())
    };
    assert!(eventually(FOR_MANY, are_ready).await.is_ok(), "not all are ready: {} writes", stage.writes());
    assert_eq!(stage.writes(), MANY, "one call for each group");
    assert_eq!(stage.on_server(&Collection::Groups).await.len(), MANY + 1);
    let versions = async || {
        let all = groups.list_metadata(&ListParams::default()).await.unwrap().items;
        all.iter().map(|group| (group.name_any(), group.resource_version())).collect::<BTreeSet<_>>()
    };
    let before = versions().await;

    let (from, begun) = (stage.front.journal().len(), Instant::now());
    let is_read_again = |from: usize| stage.front.journal().len() > from + ROUNDS;
    stage.until("some rounds of lists are read", async || is_read_again(from)).await;
    stage.settled(&operator).await;
    let at_rest = lists(&stage, from);
    assert!(at_rest.len() <= budget(begun.elapsed()), "{}", at_rest.len());
    let paths: BTreeSet<_> = at_rest.iter().collect();
    assert!(!paths.is_empty() && paths.len() <= 8, "{paths:?}");

    // A restart costs the same.
    operator.stop().await;
    let (from, begun) = (stage.front.journal().len(), Instant::now());
    let operator = stage.start(&[]).await;
    stage.until("some rounds of lists are read", async || is_read_again(from)).await;
    stage.settled(&operator).await;
    let of_restart = lists(&stage, from);
    assert!(of_restart.len() <= budget(begun.elapsed()), "{}", of_restart.len());
    assert_eq!(versions().await, before, "an object at rest was written");
}

#[tokio::test(flavor = "multi_thread")]
async fn w23_a_status_that_says_the_same_is_not_written_again() {
    let stage = Stage::set().await;
    let operator = stage.start(&[]).await;
    let (oz_groups, groups) = (stage.api::<OZGroup>(), stage.api::<Group>());
    let policies = Api::<OZPolicy>::all(stage.client.clone());
    stage.by_hand(&Collection::Groups, json!({ "name": "taken" })).await;
    stage.create(&oz_groups, &OZGroup::new("ready", OZGroupSpec { name: "ready".to_owned() })).await;
    stage.create(&groups, &Group::new("stalled", GroupSpec { name: "taken".to_owned() })).await;
    let spec = json!({ "name": "waiting", "sourceGroups": ["nobody"], "destinationGroups": ["All"], "ports": [80] });
    stage.create(&policies, &OZPolicy::new("waiting", from_value::<OZPolicySpec>(spec).unwrap())).await;
    let versions = async || {
        let ready = stage.says(&oz_groups, "ready", "Ready", "Reconciled").await.resource_version();
        let stalled = stage.says(&groups, "stalled", "Stalled", "NameTaken").await.resource_version();
        let waiting = stage.says(&policies, "waiting", "Reconciling", "WaitingForReference").await.resource_version();
        (ready, stalled, waiting)
    };
    versions().await;
    stage.settled(&operator).await;
    let before = versions().await;
    stage.settled(&operator).await;
    assert_eq!(versions().await, before);
    // Each start works on every object once.
    operator.stop().await;
    let operator = stage.start(&[]).await;
    stage.settled(&operator).await;
    assert_eq!(versions().await, before);
}
