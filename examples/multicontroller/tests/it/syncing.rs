//! From objects of both kinds to their copies, and back to nothing.

use std::time::Duration;

use k8s_openapi::api::{
    core::v1::{Secret, ServiceAccount},
    events::v1::Event,
};
use konverge_testkit::{AuditEntry, RoleUse, eventually};
use kube::{
    ResourceExt,
    api::{DeleteParams, ListParams},
};
use serde_json::json;

use crate::stage::{LIMIT, Stage, change, gone, says};

const STOPS_WITHIN: Duration = Duration::from_secs(40);

#[tokio::test(flavor = "multi_thread")]
async fn both_kinds_follow_their_objects_from_beginning_to_end() {
    let stage = Stage::set().await;
    let mut operator = stage.start("operator").await;
    let (secret_syncs, account_syncs) = (stage.secret_syncs(), stage.account_syncs());
    let (secrets, accounts) = (stage.api::<Secret>(&stage.target), stage.api::<ServiceAccount>(&stage.target));

    // Made, with status, label, finalizer and event.
    stage.create_secret("db", &[("username", "app"), ("password", "pw")]).await;
    stage.create_account("runner", &["regcred"]).await;
    stage.holds("ss-db", &[("username", "app"), ("password", "pw")]).await;
    let sync = says(&secret_syncs, "db", "Ready", Some("SecretSynced")).await;
    assert!(sync.status.as_ref().unwrap().ready);
    assert_eq!(sync.labels()["multicontroller.example.io/synced-to"], stage.target);
    assert_eq!(sync.finalizers(), ["multicontroller.example.io/secretsync-cleanup"]);
    let sync = says(&account_syncs, "runner", "Ready", Some("ServiceAccountSynced")).await;
    assert_eq!(sync.finalizers(), ["multicontroller.example.io/serviceaccountsync-cleanup"]);
    let secret = secrets.get("ss-db").await.unwrap();
    assert_eq!(secret.type_.as_deref(), Some("Opaque"));
    assert_eq!(secret.labels()["multicontroller.example.io/owner"], "db");
    let account = accounts.get("sas-runner").await.unwrap();
    assert_eq!(account.automount_service_account_token, Some(false));
    assert_eq!(account.image_pull_secrets.unwrap()[0].name, "regcred");
    let events = stage.api::<Event>(&stage.home);
    for reason in ["SecretCreated", "ServiceAccountCreated"] {
        let told = eventually(LIMIT, || async {
            let events = events.list(&ListParams::default()).await.unwrap().items;
            events.into_iter().find(|event| event.reason.as_deref() == Some(reason))
        });
        assert_eq!(told.await.unwrap().action.as_deref(), Some("Sync"));
    }

    // Row 21: a key that goes from the object goes from the Secret, and what somebody else added stays.
    change(&secrets, "ss-db", json!({"data": {"theirs": "eA=="}})).await;
    change(&secret_syncs, "db", json!({"spec": {"stringData": {"username": null, "host": "db"}}})).await;
    stage.holds("ss-db", &[("password", "pw"), ("host", "db"), ("theirs", "x")]).await;

    // Drift is corrected on both, also twice.
    for drift in ["d3Jvbmc=", "d29yc2U="] {
        change(&secrets, "ss-db", json!({"data": {"password": drift}})).await;
        stage.holds("ss-db", &[("password", "pw"), ("host", "db"), ("theirs", "x")]).await;
    }
    change(&accounts, "sas-runner", json!({"automountServiceAccountToken": true})).await;
    let mended = eventually(LIMIT, || async {
        let account = accounts.get("sas-runner").await.unwrap();
        (account.automount_service_account_token == Some(false)).then_some(())
    });
    mended.await.unwrap();
    secrets.delete("ss-db", &DeleteParams::default()).await.unwrap();
    stage.holds("ss-db", &[("password", "pw"), ("host", "db")]).await;

    // Deleted, with their copies.
    secret_syncs.delete("db", &DeleteParams::default()).await.unwrap();
    account_syncs.delete("runner", &DeleteParams::default()).await.unwrap();
    gone(&secret_syncs, "db").await;
    gone(&account_syncs, "runner").await;
    gone(&secrets, "ss-db").await;
    gone(&accounts, "sas-runner").await;

    operator.terminate(STOPS_WITHIN).await.unwrap();
    let rules = multicontroller_operator::operator().grant(&stage.home).rules();
    let requests = stage.requests(&stage.plane.audit_log().unwrap()).await;
    assert_eq!(RoleUse::of(&requests, &rules), RoleUse::default(), "no 403 and no verb unused");
}

#[tokio::test(flavor = "multi_thread")]
async fn at_rest_and_after_a_restart_nothing_is_written() {
    let stage = Stage::set().await;
    let mut operator = stage.start("first").await;
    for number in 0..10 {
        stage.create_secret(&format!("secret-{number}"), &[("number", &number.to_string())]).await;
        stage.create_account(&format!("account-{number}"), &["regcred", "other"]).await;
    }
    for number in 0..10 {
        says(&stage.secret_syncs(), &format!("secret-{number}"), "Ready", Some("SecretSynced")).await;
        says(&stage.account_syncs(), &format!("account-{number}"), "Ready", Some("ServiceAccountSynced")).await;
    }
    operator.terminate(STOPS_WITHIN).await.unwrap();
    let audit = stage.audit_from_now().await;
    let _again = stage.start("second").await;
    // The second operator reports everything that it finds before it follows these changes.
    stage.create_secret("last", &[("a", "b")]).await;
    stage.create_account("last", &[]).await;
    says(&stage.secret_syncs(), "last", "Ready", Some("SecretSynced")).await;
    says(&stage.account_syncs(), "last", "Ready", Some("ServiceAccountSynced")).await;
    let (events, writes) = written(stage.requests(&audit).await);
    assert!(writes.is_empty(), "{writes:#?}");
    assert!(events <= 2, "one about each of the last two, but {events}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_objects_of_the_readme_come_true() {
    let stage = Stage::set().await;
    let _operator = stage.start("operator").await;
    let objects = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/objects/production.yaml")).unwrap();
    // In namespaces of this test alone.
    let objects = objects
        .replace("production", &stage.target)
        .replace("namespace: default", &format!("namespace: {}", stage.home));
    stage.plane.apply(&objects).await.unwrap();
    stage.holds("ss-db-credentials", &[("username", "app"), ("password", "change-me")]).await;
    says(&stage.account_syncs(), "app-runner", "Ready", Some("ServiceAccountSynced")).await;
}

/// How many events were written, and all other writes but those of leases and of what is called "last".
fn written(requests: Vec<AuditEntry>) -> (usize, Vec<String>) {
    let (events, writes): (Vec<_>, Vec<_>) = requests
        .into_iter()
        .filter(AuditEntry::is_mutating)
        .filter(|entry| entry.object_ref.resource != "leases" && !entry.request_uri.contains("last"))
        .partition(|entry| entry.object_ref.resource == "events");
    (events.len(), writes.into_iter().map(|entry| entry.request_uri).collect())
}
