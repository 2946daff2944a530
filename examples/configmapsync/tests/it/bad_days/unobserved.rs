//! Changes that begin and end before the operator sees them (F07; I2, I5, I6): the proxy holds its watches back meanwhile.

use konverge_testkit::eventually;
use kube::{
    ResourceExt,
    api::{DeleteParams, PostParams},
};
use serde_json::json;

use super::stage::{LIMIT, Stage, theirs};

const SYNCS: &str = "configmapsyncs.example.io";
const COPIES: &str = "configmaps";
const HOLD_SYNCS: &str =
    "- { when: { phase: body, verbs: [watch], resources: [configmapsyncs.example.io] }, then: hold }";
const HOLD_COPIES: &str = "- { when: { phase: body, verbs: [watch], resources: [configmaps] }, then: hold }";

#[tokio::test(flavor = "multi_thread")]
async fn what_was_changed_and_changed_back_is_not_written() {
    let stage = Stage::set("reverted").await;
    stage.proxy.hide_changes(&[SYNCS, COPIES]).unwrap();
    let begun = stage.proxy.mark();
    stage.change("app", "other").await;
    stage.change("app", "0").await;
    stage.merge_copy("cms-app", json!({ "data": { "value": "drift" } })).await;
    stage.merge_copy("cms-app", json!({ "data": { "value": "0" } })).await;
    stage.proxy.show_outcome(LIMIT).await.unwrap();
    stage.converges("app", "0").await;
    // The status is about a new generation. A patch from outside takes the key's ownership away, which one write takes back.
    let writes = stage.writes(begun);
    let copied = writes.iter().filter(|write| write.contains("cms-app")).count();
    assert!(copied <= 1 && writes.len() <= 3, "{writes:#?}");
    stage.end().await;
}

/// Events that come late but in order may be followed step by step, and no further.
#[tokio::test(flavor = "multi_thread")]
async fn what_comes_late_is_followed_in_its_order() {
    let stage = Stage::set("late").await;
    stage.befalls(&format!("{HOLD_SYNCS}\n{HOLD_COPIES}"));
    let begun = stage.proxy.mark();
    stage.change("app", "other").await;
    stage.change("app", "0").await;
    stage.proxy.release();
    stage.converges("app", "0").await;
    // Two for each of the contents.
    assert!(stage.writes(begun).len() <= 4, "{:#?}", stage.writes(begun));
    stage.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_that_somebody_else_made_anew_meanwhile_is_theirs() {
    let stage = Stage::set("recreated-copy").await;
    stage.befalls(HOLD_COPIES);
    stage.copies().delete("cms-app", &DeleteParams::default()).await.unwrap();
    let theirs = stage.copies().create(&PostParams::default(), &theirs("cms-app")).await.unwrap();
    // The operator writes what it believes to be its copy.
    let begun = stage.proxy.mark();
    stage.change("app", "1").await;
    let tried = eventually(LIMIT, || async {
        let asked = stage.proxy.requests_since(begun);
        asked.entries().iter().any(|entry| entry.request.name == "cms-app" && entry.code.is_some()).then_some(())
    });
    tried.await.unwrap();
    assert_eq!(stage.copies().get("cms-app").await.unwrap(), theirs);
    stage.proxy.release();
    stage.says("app", "Stalled", "NotOurs").await;
    assert_eq!(stage.copies().get("cms-app").await.unwrap(), theirs);
    // Nor does it go with the object.
    stage.syncs().delete("app", &DeleteParams::default()).await.unwrap();
    let gone = eventually(LIMIT, || async { stage.syncs().get_opt("app").await.unwrap().is_none().then_some(()) });
    gone.await.unwrap();
    assert_eq!(stage.copies().get("cms-app").await.unwrap(), theirs);
    stage.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_that_was_deleted_unseen_is_made_again() {
    let stage = Stage::set("deleted-copy").await;
    stage.befalls(HOLD_COPIES);
    stage.copies().delete("cms-app", &DeleteParams::default()).await.unwrap();
    let begun = stage.proxy.mark();
    stage.change("app", "1").await;
    stage.proxy.release();
    stage.converges("app", "1").await;
    assert!(stage.writes(begun).len() <= 5, "{:#?}", stage.writes(begun));
    stage.end().await;
}

/// The copy that the operator makes for the old one, as it hears of the copy's deletion first, is an orphan. In a cluster the garbage
/// collector takes it away, and here the test does.
#[tokio::test(flavor = "multi_thread")]
async fn an_object_that_was_forced_away_and_made_anew_is_a_new_one() {
    let stage = Stage::set("recreated").await;
    stage.proxy.hide_changes(&[SYNCS]).unwrap();
    let begun = stage.proxy.mark();
    // Somebody deletes it past its finalizer, and its copy by hand, and makes it anew with something else.
    stage.syncs().delete("app", &DeleteParams::default()).await.unwrap();
    stage.merge_sync("app", json!({ "metadata": { "finalizers": null } })).await;
    stage.copies().delete("cms-app", &DeleteParams::default()).await.unwrap();
    let orphan = stage.copy_of("app").await;
    let new = stage.create("app", "1").await;
    stage.proxy.show_outcome(LIMIT).await.unwrap();
    stage.says("app", "Reconciling", "OwnedByAnother").await;
    stage.copies().delete(&orphan.name_any(), &DeleteParams::default()).await.unwrap();
    stage.converges("app", "1").await;
    let sync = stage.syncs().get("app").await.unwrap();
    assert_eq!(sync.uid(), new.uid());
    assert_eq!(sync.finalizers(), ["configmapsync.example.io/cleanup"]);
    let copy = stage.copies().get("cms-app").await.unwrap();
    assert_eq!(Some(&copy.owner_references()[0].uid), new.uid().as_ref());
    // The orphan; then the finalizer, the label, the copy and the status, which tells of the orphan first.
    assert!(stage.writes(begun).len() <= 8, "{:#?}", stage.writes(begun));
    stage.end().await;
}

/// The same without force: the old one's deletion is seen, as its finalizer waits for that.
#[tokio::test(flavor = "multi_thread")]
async fn an_object_that_was_replaced_is_a_new_one() {
    let stage = Stage::set("replaced").await;
    let begun = stage.proxy.mark();
    let old = stage.copy_of("app").await;
    stage.syncs().delete("app", &DeleteParams::default()).await.unwrap();
    eventually(LIMIT, || async { stage.syncs().get_opt("app").await.unwrap().is_none().then_some(()) }).await.unwrap();
    stage.create("app", "1").await;
    stage.converges("app", "1").await;
    assert_ne!(stage.copy_of("app").await.uid(), old.uid());
    // The copy and the finalizer go; the finalizer, the copy, the label and the status come.
    assert!(stage.writes(begun).len() <= 6, "{:#?}", stage.writes(begun));
    stage.end().await;
}
