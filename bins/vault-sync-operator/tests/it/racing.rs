//! Somebody else writes to a path in Vault between the operator's look and its write.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use futures::FutureExt;
use k8s_openapi::api::events::v1::Event;
use kube::{
    Api,
    api::{ListParams, Patch, PatchParams},
};
use serde_json::json;

use crate::{
    front::{self, FrontAction, FrontRequest},
    stage::{Stage, View, until},
};

/// A way to Vault on which somebody writes to the path before as many of the operator's writes there as are left.
async fn raced(stage: &Stage, view: &Arc<View>, path: &str, left: &Arc<AtomicUsize>) -> String {
    let (rival, left, raced) = (Arc::clone(view), Arc::clone(left), path.to_owned());
    let decide = move |asked: FrontRequest| {
        let (rival, left, raced) = (Arc::clone(&rival), Arc::clone(&left), raced.clone());
        async move {
            let is_raced = asked.is_write()
                && asked.path == raced
                && left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok();
            if is_raced {
                rival.write(&raced, "by", "hand").await.unwrap();
            }
            FrontAction::Passes
        }
        .boxed()
    };
    front::serve(&stage.server, Box::new(decide)).await.unwrap()
}

/// Whether an event in the namespace tells of a conflict.
async fn is_conflict_told(view: &View, namespace: &str) -> bool {
    let events = Api::<Event>::namespaced(view.client.clone(), namespace);
    let said = events.list(&ListParams::default()).await.unwrap().items;
    said.iter().any(|event| event.reason.as_deref() == Some("VersionConflict"))
}

#[tokio::test(flavor = "multi_thread")]
async fn who_was_faster_once_is_replaced_and_nothing_is_said_of_a_conflict() {
    let stage = Stage::shared().await;
    let namespace = stage.plane.namespace("racing").await.unwrap();
    let view = Arc::new(stage.view(&namespace).await);
    let path = view.path("db");
    // How many of the operator's next writes find that somebody was faster.
    let faster = Arc::new(AtomicUsize::new(0));
    let vault = raced(stage, &view, &path, &faster).await;
    let _operator = stage.start_at(&namespace, &vault, |spec| spec).await;
    view.secret("db", &[("n", "1")], Some(&path)).await.unwrap();
    until("it is in sync", async || view.is_synced("Secret", "db", &[&path]).await).await;
    faster.store(1, Ordering::SeqCst);
    let log = stage.plane.audit_log().unwrap();
    log.catch_up(&view.client).await.unwrap();
    let log = log.from_now().unwrap();
    view.secret("db", &[("n", "2")], Some(&path)).await.unwrap();
    until("the new value is there and noted", async || {
        let noted = view.record("Secret", "db").await?.is_some_and(|record| record["paths"][&path]["version"] == 3);
        Ok(noted && view.holds(&path, "n", "2").await?)
    })
    .await;
    assert_eq!(faster.load(Ordering::SeqCst), 0, "somebody was faster");
    assert_eq!(view.versions(&path).await.unwrap(), (3, true));
    log.catch_up(&view.client).await.unwrap();
    let entries = log.entries_of(&stage.account()).unwrap();
    let written = entries.iter().filter(|entry| {
        entry.is_mutating() && entry.object_ref.namespace == namespace && entry.object_ref.resource == "secrets"
    });
    assert_eq!(written.count(), 1, "the record is written once, when it is in sync");
    assert!(!is_conflict_told(&view, &namespace).await);
    // Somebody who is always faster is told of.
    faster.store(usize::MAX, Ordering::SeqCst);
    view.secret("db", &[("n", "3")], Some(&path)).await.unwrap();
    until("the conflict is told", async || {
        Ok(view.record("Secret", "db").await?.is_some_and(|record| record["state"] == "VersionConflict"))
    })
    .await;
    faster.store(0, Ordering::SeqCst);
    until("the newest value is there", async || view.holds(&path, "n", "3").await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_merge_is_tried_eight_times_in_one_go_before_its_secret_is_read_again() {
    let stage = Stage::shared().await;
    let namespace = stage.plane.namespace("merging").await.unwrap();
    let view = Arc::new(stage.view(&namespace).await);
    let path = view.path("shared");
    let faster = Arc::new(AtomicUsize::new(0));
    let vault = raced(stage, &view, &path, &faster).await;
    let _operator = stage.start_at(&namespace, &vault, |spec| spec).await;
    view.secret("db", &[("n", "0")], None).await.unwrap();
    let spec = json!({ "secrets": { "names": ["db"] }, "mount": "secret", "path": path.strip_prefix("secret/data/"), "updatePolicy": "Merge" });
    let object = json!({
        "apiVersion": "konverge.dev/v1alpha1", "kind": "VaultPush", "metadata": { "name": "push" }, "spec": spec,
    });
    let parameters = PatchParams::apply("user").force();
    view.api("VaultPush").patch("push", &parameters, &Patch::Apply(&object)).await.unwrap();
    until("it is in sync", async || view.is_synced("VaultPush", "push", &[&path]).await).await;
    let log = stage.plane.audit_log().unwrap();
    for (value, rivals, runs) in [("1", 7, 1), ("2", 8, 2)] {
        log.catch_up(&view.client).await.unwrap();
        let log = log.from_now().unwrap();
        faster.store(rivals, Ordering::SeqCst);
        view.secret("db", &[("n", value)], None).await.unwrap();
        until("the new value is there beside that of the others", async || {
            let held = view.read(&path).await?;
            Ok(held.is_some_and(|held| held.get("n").is_some_and(|n| n == value) && held.contains_key("by")))
        })
        .await;
        assert_eq!(faster.load(Ordering::SeqCst), 0, "they were faster");
        until("it is in sync", async || view.is_synced("VaultPush", "push", &[&path]).await).await;
        log.catch_up(&view.client).await.unwrap();
        let entries = log.entries_of(&stage.account()).unwrap();
        let reads = entries.iter().filter(|entry| {
            entry.verb == "get" && entry.object_ref.namespace == namespace && entry.object_ref.resource == "secrets"
        });
        assert_eq!(reads.count(), runs, "with {rivals} that were faster");
    }
    assert!(!is_conflict_told(&view, &namespace).await);
}
