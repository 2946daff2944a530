//! From an object to its bucket, through bad days, and back to nothing.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use axum::http::{Method, StatusCode};
use cloudbucket_operator::{
    DeletionPolicy,
    cloud::{ObservedBucket, Phase, Settings},
};
use konverge::{
    kube::api::{Patch, PatchParams},
    serde_json::json,
};
use konverge_testkit::{NextCall, RoleUse};

use crate::stage::{LIMIT, SETTINGS, Stage};

/// The time that the cloud is away in a test: long enough for pauses that grow to exceed [`BACK_WITHIN`].
const AWAY: Duration = Duration::from_secs(12);
/// The time in which all buckets are in order once the cloud answers again.
const BACK_WITHIN: Duration = Duration::from_secs(5);

fn backups() -> ObservedBucket {
    ObservedBucket { id: "b-1".to_owned(), name: "backups".to_owned(), settings: SETTINGS, phase: Phase::Active }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bucket_follows_its_object_from_beginning_to_end() {
    let stage = Stage::set().await;
    let mut operator = stage.start().await;
    stage.create("backups", DeletionPolicy::Delete).await;
    let bucket = stage.says("backups", "Ready", "Reconciled").await;
    assert_eq!(bucket.status.unwrap().id.as_deref(), Some("b-1"));
    assert_eq!(stage.cloud.buckets(), BTreeMap::from([("backups".to_owned(), backups())]));
    assert!(stage.is_held("backups").await);
    stage.told("backups", "Created").await;

    // A change by hand in the cloud's console. The second event of its kind becomes a series.
    for _ in 0..2 {
        stage.cloud.edit("backups", Settings { versioning: false, ..SETTINGS });
        stage.until("the settings are corrected", async || stage.cloud.buckets()["backups"] == backups()).await;
    }
    stage.told("backups", "Updated").await;

    // A bucket cannot be renamed.
    let rename = |name: &str| Patch::Merge(json!({ "spec": { "bucketName": name } }));
    stage.buckets().patch("backups", &PatchParams::default(), &rename("other")).await.unwrap();
    stage.says("backups", "Stalled", "BucketRenamed").await;
    stage.buckets().patch("backups", &PatchParams::default(), &rename("backups")).await.unwrap();
    stage.says("backups", "Ready", "Reconciled").await;

    // The deletion takes as long as the cloud needs.
    stage.cloud.keep_deleting(true);
    stage.delete("backups").await;
    stage.says("backups", "Reconciling", "Deleting").await;
    assert_eq!(stage.cloud.buckets()["backups"].phase, Phase::Deleting);
    stage.cloud.keep_deleting(false);
    stage.gone("backups").await;
    assert_eq!(stage.cloud.server.calls(&Method::DELETE), 1, "what is being deleted is not deleted again");

    operator.terminate(LIMIT).await.unwrap();
    let rules = cloudbucket_operator::operator().grant("operator").everywhere;
    let requests = stage.requests().await;
    assert_eq!(RoleUse::of(&requests, &rules), RoleUse::default(), "no refusal, and no verb unused");
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_days_lose_no_bucket_and_make_no_second_one() {
    let stage = Stage::set().await;
    let operator = stage.start().await;

    // The cloud has created the bucket, and the reply is lost. The operator dies before it tries again.
    stage.cloud.server.fail(Method::POST, NextCall::LosesItsReply);
    stage.create("backups", DeletionPolicy::Delete).await;
    stage.until("the bucket is there", async || stage.cloud.buckets().contains_key("backups")).await;
    drop(operator);
    let _operator = stage.start().await;
    let bucket = stage.says("backups", "Ready", "Reconciled").await;
    assert_eq!(bucket.status.unwrap().id.as_deref(), Some("b-1"));
    assert_eq!(stage.cloud.server.calls(&Method::POST), 1);

    // The cloud is asked too often.
    stage.cloud.server.fail(Method::POST, NextCall::IsLimited(Duration::from_secs(3)));
    stage.create("logs", DeletionPolicy::Orphan).await;
    stage.says("logs", "Reconciling", "CloudBusy").await;
    stage.says("logs", "Ready", "Reconciled").await;

    // A bucket that is to stay.
    stage.delete("logs").await;
    stage.gone("logs").await;
    assert!(stage.cloud.buckets().contains_key("logs"));

    // A bucket that a person made is neither taken over nor deleted, and nothing holds the object.
    stage.cloud.create_by_hand("theirs", Settings { versioning: false, retention_days: None });
    stage.create("theirs", DeletionPolicy::Delete).await;
    stage.says("theirs", "Stalled", "NameTaken").await;
    stage.delete("theirs").await;
    stage.gone("theirs").await;
    assert!(stage.cloud.buckets().contains_key("theirs"));
}

#[tokio::test(flavor = "multi_thread")]
async fn after_an_outage_of_the_cloud_all_buckets_are_in_order_within_seconds() {
    let stage = Stage::set().await;
    let _operator = stage.start().await;
    let names: Vec<_> = (0..8).map(|number| format!("bucket-{number}")).collect();
    for name in &names {
        stage.create(name, DeletionPolicy::Orphan).await;
        stage.says(name, "Ready", "Reconciled").await;
    }

    stage.cloud.server.go_away(StatusCode::SERVICE_UNAVAILABLE, "");
    let began = Instant::now();
    let change = |versioning: bool| Patch::Merge(json!({ "spec": { "versioning": versioning } }));
    for name in &names[..3] {
        stage.buckets().patch(name, &PatchParams::default(), &change(!SETTINGS.versioning)).await.unwrap();
    }
    for name in &names {
        stage.says(name, "Reconciling", "CloudUnavailable").await;
    }
    tokio::time::sleep_until((began + AWAY).into()).await;
    stage.cloud.server.come_back();
    let back = Instant::now();
    for (index, name) in names.iter().enumerate() {
        stage.says(name, "Ready", "Reconciled").await;
        let versioning = if index < 3 { !SETTINGS.versioning } else { SETTINGS.versioning };
        assert_eq!(stage.cloud.buckets()[name].settings, Settings { versioning, ..SETTINGS }, "{name}");
    }
    assert!(back.elapsed() <= BACK_WITHIN, "{:?}", back.elapsed());
}
