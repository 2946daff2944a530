//! What happens and ends before the operator hears of it (F07): the proxy holds its watches back meanwhile.

use kube::api::{DeleteParams, PostParams};
use serde_json::json;

use super::stage::{Stage, theirs};

const HOLD_SYNCS: &str =
    "- { when: { phase: body, verbs: [watch], resources: [configmapsyncs.example.io] }, then: hold }";
const HOLD_COPIES: &str = "- { when: { phase: body, verbs: [watch], resources: [configmaps] }, then: hold }";

#[tokio::test(flavor = "multi_thread")]
async fn what_was_changed_and_changed_back_is_not_written() {
    let stage = Stage::set("reverted").await;
    stage.befalls(&format!("{HOLD_SYNCS}\n{HOLD_COPIES}"));
    let begun = stage.now();
    stage.change("app", "other").await;
    stage.change("app", "0").await;
    stage.merge_copy("cms-app", json!({ "data": { "value": "drift" } })).await;
    stage.merge_copy("cms-app", json!({ "data": { "value": "0" } })).await;
    stage.proxy.release();
    stage.converges("app", "0").await;
    // Only the status has news: the generation that it is about.
    let copied = stage.writes(begun).iter().filter(|write| write.contains("cms-app")).count();
    // A patch from outside takes the key's ownership away, which one write takes back.
    assert!(copied <= 1 && stage.writes(begun).len() <= 4, "{:#?}", stage.writes(begun));
    stage.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_that_somebody_else_made_anew_meanwhile_is_theirs() {
    let stage = Stage::set("recreated-copy").await;
    stage.befalls(HOLD_COPIES);
    stage.copies().delete("cms-app", &DeleteParams::default()).await.unwrap();
    let theirs = stage.copies().create(&PostParams::default(), &theirs("cms-app")).await.unwrap();
    // The operator writes what it believes to be its copy.
    let begun = stage.now();
    stage.change("app", "1").await;
    let tried = konverge_testkit::eventually(super::stage::LIMIT, || async {
        let journal = stage.asked(begun);
        journal.iter().any(|entry| entry.asks.name == "cms-app" && entry.code.is_some()).then_some(())
    });
    tried.await.unwrap();
    assert_eq!(stage.copies().get("cms-app").await.unwrap(), theirs);
    stage.proxy.release();
    stage.says("app", "Stalled", "NotOurs").await;
    assert_eq!(stage.copies().get("cms-app").await.unwrap(), theirs);
    // Nor does it go with the object.
    stage.syncs().delete("app", &DeleteParams::default()).await.unwrap();
    let gone = konverge_testkit::eventually(super::stage::LIMIT, || async {
        stage.syncs().get_opt("app").await.unwrap().is_none().then_some(())
    });
    gone.await.unwrap();
    assert_eq!(stage.copies().get("cms-app").await.unwrap(), theirs);
    stage.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_that_was_deleted_unseen_is_made_again() {
    let stage = Stage::set("deleted-copy").await;
    stage.befalls(HOLD_COPIES);
    stage.copies().delete("cms-app", &DeleteParams::default()).await.unwrap();
    let begun = stage.now();
    stage.change("app", "1").await;
    stage.proxy.release();
    stage.converges("app", "1").await;
    assert!(stage.writes(begun).len() <= 5, "{:#?}", stage.writes(begun));
    stage.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_that_was_forced_away_and_made_anew_is_a_new_one() {
    let stage = Stage::set("recreated").await;
    stage.befalls(HOLD_SYNCS);
    let begun = stage.now();
    // Somebody deletes it past its finalizer, and its copy by hand, and makes both anew with something else.
    stage.syncs().delete("app", &DeleteParams::default()).await.unwrap();
    stage.merge_sync("app", json!({ "metadata": { "finalizers": null } })).await;
    stage.copies().delete("cms-app", &DeleteParams::default()).await.unwrap();
    let new = stage.create("app", "1").await;
    // The operator believes in the old one and makes a copy again, if it hears of the deletion of the copy in time.
    stage.proxy.release();
    stage.converges("app", "1").await;
    let sync = stage.syncs().get("app").await.unwrap();
    assert_eq!(sync.metadata.uid, new.metadata.uid);
    assert_eq!(sync.metadata.finalizers.as_deref(), Some(&["configmapsync.example.io/cleanup".to_owned()][..]));
    assert!(stage.writes(begun).len() <= 12, "{:#?}", stage.writes(begun));
    stage.end().await;
}
