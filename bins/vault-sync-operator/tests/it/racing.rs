//! Somebody else writes to a path in Vault between the operator's look and its write.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use futures::FutureExt;
use k8s_openapi::api::events::v1::Event;
use kube::{Api, api::ListParams};

use crate::{
    front::{self, Asked, Fate},
    stage::{Stage, until},
};

#[tokio::test(flavor = "multi_thread")]
async fn who_was_faster_once_is_replaced_and_nothing_is_said_of_a_conflict() {
    let stage = Stage::shared().await;
    let namespace = stage.plane.namespace("racing").await.unwrap();
    let view = Arc::new(stage.view(&namespace).await);
    let path = view.path("db");
    // How many of the operator's next writes find that somebody was faster.
    let faster = Arc::new(AtomicUsize::new(0));
    let (rival, runs, raced) = (Arc::clone(&view), Arc::clone(&faster), path.clone());
    let decide = move |asked: Asked| {
        let (rival, runs, raced) = (Arc::clone(&rival), Arc::clone(&runs), raced.clone());
        async move {
            let is_raced = asked.is_write()
                && asked.path == raced
                && runs.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok();
            if is_raced {
                rival.write(&raced, "by", "hand").await.unwrap();
            }
            Fate::Passes
        }
        .boxed()
    };
    let vault = front::serve(&stage.server, Box::new(decide)).await.unwrap();
    let _operator = stage.start_at(&namespace, &vault, |spec| spec).await;
    view.secret("db", &[("n", "1")], Some(&path)).await.unwrap();
    until("it is in step", async || view.is_synced("Secret", "db", &[&path]).await).await;
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
    assert_eq!(written.count(), 1, "the record is written once, when it is in step");
    let said = Api::<Event>::namespaced(view.client.clone(), &namespace).list(&ListParams::default()).await.unwrap();
    assert!(said.items.iter().all(|event| event.reason.as_deref() != Some("VersionConflict")), "{said:?}");
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
