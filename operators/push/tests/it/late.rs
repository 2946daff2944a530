//! A record that arrives late never brings an older one back.

use konverge_push::object::Kind;
use konverge_testkit::{History, fault_proxy::Plan};
use kube::{core::DynamicObject, runtime::watcher};
use serde_json::json;

use crate::world::{World, until};

/// The version of the one path that the object says is written.
fn version(object: &DynamicObject) -> Option<u64> {
    let record = konverge_push::plugin::record_of(object)?;
    record.paths.values().next()?.version
}

/// An operator is stopped between the decision to note version 2 and the arrival of that note. Meanwhile its successor notes version 3.
async fn hold_up(kind: Kind, subresource: &str) {
    let world = World::new().await;
    let path = world.path("late");
    let records = History::of(world.api(kind), watcher::Config::default(), version);
    let proxy = world.proxy().await;
    let late = world.operator_by(proxy.kubeconfig(), &[]).await;
    world.secret("source", &[("k", "1")], json!({})).await;
    match kind {
        Kind::VaultPush => {
            world.vault_push("late", json!({ "secrets": { "names": ["source"] }, "path": path })).await;
        }
        _ => world.workload(kind, "late", &["source"], json!({ "vault-sync.io/path": path })).await,
    }
    let notes = async |number| {
        until(&format!("the record names version {number}"), async || {
            let found = world.api(kind).get("late").await.unwrap();
            if version(&found) == Some(number) { Ok(()) } else { Err(format!("{:?}", version(&found))) }
        })
        .await;
    };
    notes(1).await;
    world.says(kind, "late", "Synced").await;

    let resource = kind.resource();
    let held = format!("{}.{}{subresource}", resource.plural, resource.group);
    let rule = format!("{{ when: {{ verbs: [patch], resources: [{held}], times: 1 }}, then: {{ delay: 6s }} }}");
    proxy.set(Plan::parse(&format!("rules: [{rule}]")).unwrap()).unwrap();
    world.rotate("source", &[("k", "2")]).await;
    until("the record is held up", async || if proxy.fired() == [1] { Ok(()) } else { Err("not yet".to_owned()) })
        .await;
    world.rotate("source", &[("k", "3")]).await;
    let successor = world.operator(&[]).await;
    notes(3).await;
    until("the late record is refused", async || {
        let journal = proxy.journal();
        let refused = journal.iter().any(|entry| entry.code == Some(409) && entry.request.to_string().contains(&held));
        if refused { Ok(()) } else { Err(format!("{journal:?}")) }
    })
    .await;
    world.rotate("source", &[("k", "4")]).await;
    notes(4).await;
    late.stop().await;
    successor.stop().await;
    let versions = records.values();
    assert!(versions.is_sorted(), "an older record of a {} came back: {versions:?}", kind.name());
    let notes = world.notes("late").await;
    assert!(!notes.iter().any(|note| note.contains("onflict")), "a lost race is no failure: {notes:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_of_a_workload_that_was_held_up_does_not_undo_that_of_the_successor() {
    hold_up(Kind::Deployment, "").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_status_that_was_held_up_does_not_undo_that_of_the_successor() {
    hold_up(Kind::VaultPush, "/status").await;
}
