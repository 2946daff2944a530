//! Changes that begin and end before the operator sees them (F07; I2, I5, I6).

use std::fmt::Debug;

use konverge_testkit::eventually;
use kube::{
    Api, Resource, ResourceExt,
    api::{DeleteParams, PostParams},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::json;

use super::stage::{BadDay, secret};
use crate::stage::{LIMIT, change, gone, says};

const SECRET_SYNCS: &str = "secretsyncs.example.io";
const ACCOUNT_SYNCS: &str = "serviceaccountsyncs.example.io";

/// F07: a Secret that somebody made anew with something else in it is theirs, whatever the operator believes; I2.
#[tokio::test(flavor = "multi_thread")]
async fn a_secret_that_somebody_else_made_anew_unseen_is_theirs() {
    let mut day = BadDay::begin("theirs").await;
    day.proxy.hide_changes(&["secrets"]).unwrap();
    day.secrets().delete("ss-app", &DeleteParams::default()).await.unwrap();
    let theirs = secret("ss-app", "theirs");
    let theirs = day.secrets().create(&PostParams::default(), &theirs).await.unwrap();
    let begun = day.proxy.mark();
    day.change_both("1").await;
    let tried = || async {
        let asked = day.proxy.requests_since(begun);
        asked.entries().iter().any(|entry| entry.request.name == "ss-app" && entry.client_code.is_some()).then_some(())
    };
    eventually(LIMIT, tried).await.unwrap();
    assert_eq!(day.secrets().get("ss-app").await.unwrap(), theirs);
    day.proxy.show_outcome(LIMIT).await.unwrap();
    says(&day.secret_syncs(), "app", "Stalled", Some("NotOurs")).await;
    // The other controller goes on.
    says(&day.account_syncs(), "app", "Ready", Some("ServiceAccountSynced")).await;
    day.secret_syncs().delete("app", &DeleteParams::default()).await.unwrap();
    gone(&day.secret_syncs(), "app").await;
    assert_eq!(day.secrets().get("ss-app").await.unwrap(), theirs);
    day.end().await;
}

/// F07: what was between is never written; I5, I6.
#[tokio::test(flavor = "multi_thread")]
async fn a_value_that_was_changed_and_changed_back_unseen_is_not_written() {
    let mut day = BadDay::begin("reverted").await;
    let before = day.secrets().get("ss-app").await.unwrap();
    day.proxy.hide_changes(&[SECRET_SYNCS]).unwrap();
    day.change_secret("other").await;
    day.change_secret("0").await;
    day.proxy.show_outcome(LIMIT).await.unwrap();
    says(&day.secret_syncs(), "app", "Ready", Some("SecretSynced")).await;
    assert_eq!(day.secrets().get("ss-app").await.unwrap().resource_version(), before.resource_version());
    day.end().await;
}

/// F07: objects that were deleted and replaced by others of their names are others, though nobody saw the old ones go, and whether they
/// want the same or not. The operator hears of the copies' deletion first, so the copies that it creates for the old objects are orphans. In a cluster
/// the garbage collector takes them away, and here the test does.
#[tokio::test(flavor = "multi_thread")]
async fn objects_that_were_replaced_unseen_are_new_ones() {
    let mut day = BadDay::begin("replaced").await;
    for value in ["0", "1"] {
        day.proxy.hide_changes(&[SECRET_SYNCS, ACCOUNT_SYNCS]).unwrap();
        let begun = day.proxy.mark();
        // Somebody deletes them past their finalizers, and their copies by hand, and makes them anew.
        replaces(&day.secret_syncs(), &day.secrets(), "ss-app").await;
        replaces(&day.account_syncs(), &day.accounts(), "sas-app").await;
        day.create_both(value).await;
        day.proxy.show_outcome(LIMIT).await.unwrap();
        says(&day.secret_syncs(), "app", "Reconciling", Some("OwnedByAnother")).await;
        says(&day.account_syncs(), "app", "Reconciling", Some("OwnedByAnother")).await;
        day.secrets().delete("ss-app", &DeleteParams::default()).await.unwrap();
        day.accounts().delete("sas-app", &DeleteParams::default()).await.unwrap();
        day.converges(value).await;
        let (sync, copy) = (day.secret_syncs().get("app").await.unwrap(), day.secrets().get("ss-app").await.unwrap());
        assert_eq!(Some(&copy.owner_references()[0].uid), sync.uid().as_ref());
        assert_eq!(sync.finalizers(), ["multicontroller.example.io/secretsync-cleanup"]);
        let (sync, copy) =
            (day.account_syncs().get("app").await.unwrap(), day.accounts().get("sas-app").await.unwrap());
        assert_eq!(Some(&copy.owner_references()[0].uid), sync.uid().as_ref());
        assert_eq!(sync.finalizers(), ["multicontroller.example.io/serviceaccountsync-cleanup"]);
        // Of each kind the orphan; then the finalizer, the copy, the label and the status, which tells of the orphan first.
        assert!(day.writes(begun).len() <= 16, "{value}: {:#?}", day.writes(begun));
    }
    day.end().await;
}

/// Returns when the operator has made the copy for the old object again.
async fn replaces<K, C>(syncs: &Api<K>, copies: &Api<C>, copy: &str)
where
    K: Resource + Clone + DeserializeOwned + Serialize + Debug,
    C: Resource + Clone + DeserializeOwned + Debug,
{
    syncs.delete("app", &DeleteParams::default()).await.unwrap();
    change(syncs, "app", json!({ "metadata": { "finalizers": null } })).await;
    copies.delete(copy, &DeleteParams::default()).await.unwrap();
    eventually(LIMIT, || async { copies.get_opt(copy).await.unwrap() }).await.unwrap();
}
