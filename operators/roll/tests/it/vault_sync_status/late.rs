//! A write on a trigger that arrives late never brings an older state back.

use jiff::Timestamp;
use konverge_roll::trigger::TriggerKind::VaultSyncStatus;
use konverge_testkit::{History, fault_proxy::Plan};
use konverge_workload::WorkloadKind::Deployment;
use kube::runtime::watcher;
use serde_json::{Value, json};

use super::world::VaultWorld;
use crate::world::until;

/// The version that a status says the pods of `web` run with.
fn baseline(object: &Value) -> Option<u64> {
    object["status"]["baseline"][0]["version"].as_u64()
}

fn spec_time(object: &Value) -> Option<Timestamp> {
    object["spec"]["timeStamp"].as_str()?.parse().ok()
}

/// An operator is stopped between the decision for version 2 and the arrival of its write on `held`. Meanwhile its successor writes for version 3.
async fn hold_up(world: &VaultWorld, held: &str, arguments: &[&str]) {
    world.write("app", "1").await;
    world.world.workload(Deployment, "web", &[], json!({})).await;
    world.ask(VaultSyncStatus, "late").await;
    let proxy = world.world.proxy().await;
    let reach = world.reach(world.vault.address());
    let mut all = vec!["--namespace", world.world.namespace.as_str()];
    all.extend(reach.iter().map(String::as_str).chain(arguments.iter().copied()));
    let late = world.world.operator_through(proxy.kubeconfig(), &all).await;
    let shows = async |version| {
        until(&format!("the status says version {version}"), async || {
            let object = world.object("late").await;
            if baseline(&object) == Some(version) { Ok(()) } else { Err(object["status"].to_string()) }
        })
        .await;
    };
    shows(1).await;
    world.world.ready("web").await;
    world.says("late", "InSync").await;

    let rule = format!("{{ when: {{ verbs: [patch], resources: [{held}], times: 1 }}, then: {{ delay: 8s }} }}");
    proxy.set(Plan::parse(&format!("rules: [{rule}]")).unwrap()).unwrap();
    world.write("app", "2").await;
    until("the write is held up", async || if proxy.fired() == [1] { Ok(()) } else { Err("not yet".to_owned()) }).await;
    world.write("app", "3").await;
    let successor = world.operator(arguments).await;
    shows(3).await;
    until("the late write is refused", async || {
        let journal = proxy.journal();
        let refused = journal.iter().any(|entry| entry.code == Some(409) && entry.request.to_string().contains(held));
        if refused { Ok(()) } else { Err(format!("{journal:?}")) }
    })
    .await;
    world.write("app", "4").await;
    shows(4).await;
    late.stop().await;
    successor.stop().await;
}

#[tokio::test]
async fn a_status_that_was_held_up_does_not_undo_that_of_the_successor() {
    let world = VaultWorld::new().await;
    let versions = History::of(world.api(), watcher::Config::default(), |late| baseline(&late.data));
    hold_up(&world, "vaultsyncstatus.stable.example.com/status", &[]).await;
    let versions = versions.values();
    assert!(versions.len() > 2 && versions.is_sorted(), "an older status came back: {versions:?}");
}

#[tokio::test]
async fn a_time_that_was_held_up_does_not_undo_that_of_the_successor() {
    let world = VaultWorld::new().await;
    let times = History::of(world.api(), watcher::Config::default(), |late| spec_time(&late.data));
    hold_up(&world, "vaultsyncstatus.stable.example.com", &["--write-spec-timestamp"]).await;
    let times = times.values();
    assert!(times.len() > 2 && times.is_sorted(), "an older time came back: {times:?}");
}
