//! `SetupKey` and `OZSetupKey`: the key, its Secret, and both after a crash.

use k8s_openapi::{ByteString, api::core::v1::Secret};
use konverge::kube::{Api, ResourceExt};
use konverge_manage::api::{
    v1::{OZSetupKey, OZSetupKeySpec},
    v1alpha1::{Group, GroupSpec, SetupKey, SetupKeySpec},
};
use konverge_openzro::Collection;
use konverge_testkit_stores::Fault;
use serde_json::{Value, json};

use crate::stage::Stage;

fn key(name: &str, spec: Value) -> SetupKey {
    SetupKey::new(name, serde_json::from_value::<SetupKeySpec>(spec).unwrap())
}

/// The first characters of the key in a Secret.
async fn stored(secrets: &Api<Secret>, name: &str, key: &str) -> Option<String> {
    let secret = secrets.get_opt(name).await.unwrap()?;
    let ByteString(value) = secret.data?.get(key)?.clone();
    Some(String::from_utf8(value).unwrap())
}

async fn has_one_key(stage: &Stage) -> bool {
    stage.dashboard.list(&Collection::SetupKeys).await.unwrap().len() == 1
}

async fn only_key(stage: &Stage) -> Value {
    let keys = stage.dashboard.list(&Collection::SetupKeys).await.unwrap();
    assert_eq!(keys.len(), 1, "{keys:?}");
    Value::Object(keys[0].raw().clone())
}

#[tokio::test(flavor = "multi_thread")]
async fn w32_a_setup_key_and_its_secret_live_together() {
    let stage = Stage::set().await;
    let operator = stage.start(&[]).await;
    let (keys, secrets) = (stage.api::<SetupKey>(), stage.api::<Secret>());
    let spec = json!({ "name": "pods", "ephemeral": true, "duration": "720h", "autoGroups": [{ "localRef": { "name": "g" } }] });
    stage.create(&keys, &key("pods", spec)).await;
    stage.says(&keys, "pods", "Reconciling", "Dependency").await;
    stage.create(&stage.api(), &Group::new("g", GroupSpec { name: "g".to_owned() })).await;
    let ready = stage.says(&keys, "pods", "Ready", "Reconciled").await;
    let on_server = only_key(&stage).await;
    assert_eq!(ready.status.unwrap().setup_key_id.as_deref(), on_server["id"].as_str());
    assert_eq!((&on_server["ephemeral"], &on_server["type"]), (&json!(true), &json!("reusable")));
    assert!(on_server["name"].as_str().unwrap().starts_with("pods konverge="));
    let groups = stage.on_server(&Collection::Groups).await;
    assert_eq!(on_server["auto_groups"], json!([groups["g"]["id"]]));
    let first = stored(&secrets, "setup-key-pods", "setup-key").await.unwrap();
    assert!(first.starts_with(on_server["key"].as_str().unwrap().trim_end_matches('*')));
    let owner = &secrets.get("setup-key-pods").await.unwrap().owner_references()[0].clone();
    assert_eq!((owner.kind.as_str(), owner.controller), ("SetupKey", Some(true)));

    // A revoked key is replaced, and the Secret has the new one.
    let place = Collection::SetupKeys.place(on_server["id"].as_str().unwrap());
    let revoke = |body: &mut konverge_openzro::Fields| {
        body.insert("revoked".to_owned(), json!(true));
    };
    stage.dashboard.modify(&place, revoke).await.unwrap();
    stage
        .until("the key is replaced", async || {
            stored(&secrets, "setup-key-pods", "setup-key").await != Some(first.clone())
        })
        .await;
    stage.says(&keys, "pods", "Ready", "Reconciled").await;
    stage.until("the former key is deleted", async || has_one_key(&stage).await).await;
    assert_eq!(only_key(&stage).await["state"], "valid");

    // A Secret that is lost is made again, with another key: the server tells a key once.
    operator.stop().await;
    stage.delete(&secrets, "setup-key-pods").await;
    let _operator = stage.start(&[]).await;
    stage.until("the Secret is back", async || stored(&secrets, "setup-key-pods", "setup-key").await.is_some()).await;
    stage.until("the former key is deleted", async || has_one_key(&stage).await).await;
    stage.says(&keys, "pods", "Ready", "Reconciled").await;
    only_key(&stage).await;

    // The group is in use as long as the key is there.
    stage.delete(&stage.api::<Group>(), "g").await;
    stage.says(&stage.api::<Group>(), "g", "Reconciling", "InUse").await;
    stage.delete(&keys, "pods").await;
    stage.gone(&keys, "pods").await;
    assert!(stage.dashboard.list(&Collection::SetupKeys).await.unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn w32_a_lost_reply_leaves_no_key_that_nobody_knows() {
    let stage = Stage::set().await;
    let operator = stage.start(&[]).await;
    let (keys, secrets) = (stage.api::<SetupKey>(), stage.api::<Secret>());
    stage.front.plan(|seen| (seen.method == "POST").then_some(Fault::DropReply));
    stage.create(&keys, &key("once", json!({ "name": "once", "ephemeral": false }))).await;
    let is_there = async || !stage.dashboard.list(&Collection::SetupKeys).await.unwrap().is_empty();
    stage.until("the key is on the server", is_there).await;
    operator.stop().await;
    stage.front.plan(|_| None);
    let _operator = stage.start(&[]).await;
    stage.says(&keys, "once", "Ready", "Reconciled").await;
    stage.until("the lost key is deleted", async || has_one_key(&stage).await).await;
    let (on_server, secret) = (only_key(&stage).await, stored(&secrets, "setup-key-once", "setup-key").await.unwrap());
    assert!(secret.starts_with(on_server["key"].as_str().unwrap().trim_end_matches('*')));
}

/// The Secret has a key of the server at all times: the former one until the new one is there.
#[tokio::test(flavor = "multi_thread")]
async fn w32_a_key_is_made_before_the_one_that_it_replaces_is_deleted() {
    let stage = Stage::set().await;
    let operator = stage.start(&[]).await;
    let (keys, secrets) = (stage.api::<SetupKey>(), stage.api::<Secret>());
    stage.create(&keys, &key("pods", json!({ "name": "pods", "ephemeral": false }))).await;
    let before = stage.says(&keys, "pods", "Ready", "Reconciled").await.status.unwrap().setup_key_id.unwrap();
    let former = stored(&secrets, "setup-key-pods", "setup-key").await.unwrap();

    // No new key can be made, so the former one stays. Only peers without extra labels can use it, but they can.
    stage.front.plan(|seen| (seen.method == "POST").then(Fault::html_404));
    stage.patch(&keys, "pods", json!({ "spec": { "allowExtraDNSLabels": true } })).await;
    stage.says(&keys, "pods", "Reconciling", "InvalidAnswer").await;
    assert_eq!(only_key(&stage).await["id"], *before);
    assert_eq!(stored(&secrets, "setup-key-pods", "setup-key").await.as_ref(), Some(&former));

    // The operator dies before it has deleted the former key, and its successor does.
    stage.front.plan(|seen| (seen.method == "DELETE").then_some(Fault::DropRequest));
    let is_new = async || stored(&secrets, "setup-key-pods", "setup-key").await.as_ref() != Some(&former);
    stage.until("the Secret has the new key", is_new).await;
    operator.stop().await;
    assert_eq!(stage.dashboard.list(&Collection::SetupKeys).await.unwrap().len(), 2);
    stage.front.plan(|_| None);
    let _operator = stage.start(&[]).await;
    stage.until("the former key is deleted", async || has_one_key(&stage).await).await;
    let after = stage.says(&keys, "pods", "Ready", "Reconciled").await.status.unwrap().setup_key_id.unwrap();
    let (on_server, secret) = (only_key(&stage).await, stored(&secrets, "setup-key-pods", "setup-key").await.unwrap());
    assert_eq!((&on_server["id"], &on_server["allow_extra_dns_labels"]), (&json!(after), &json!(true)));
    assert_ne!(before, after);
    assert!(secret.starts_with(on_server["key"].as_str().unwrap().trim_end_matches('*')));
    stage.delete(&keys, "pods").await;
    stage.gone(&keys, "pods").await;
    assert!(stage.dashboard.list(&Collection::SetupKeys).await.unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_oz_setup_key_checks_the_users_secret_or_has_a_key_created() {
    let stage = Stage::set().await;
    let _operator = stage.start(&[]).await;
    let (keys, secrets) = (stage.api::<OZSetupKey>(), stage.api::<Secret>());
    let oz_key =
        |name: &str, spec: Value| OZSetupKey::new(name, serde_json::from_value::<OZSetupKeySpec>(spec).unwrap());
    stage.create(&keys, &oz_key("given", json!({ "secretKeyRef": { "name": "mine", "key": "k" } }))).await;
    stage.says(&keys, "given", "Stalled", "SecretNotExists").await;
    let mut secret = Secret::default();
    secret.metadata.name = Some("mine".to_owned());
    secret.string_data = Some([("k".to_owned(), "A2C8E62B-38F5-4553-B31E-DD66C696CEBB".to_owned())].into());
    stage.create(&secrets, &secret).await;
    stage.patch(&keys, "given", json!({ "metadata": { "annotations": { "konverge.dev/reconcile-at": "1" } } })).await;
    stage.says(&keys, "given", "Ready", "Reconciled").await;
    assert_eq!(stage.writes(), 0);

    // The documented form.
    let spec = json!({ "name": "managed", "type": "one-off", "expiresIn": "30d", "usageLimit": 1, "ephemeral": true });
    stage.create(&keys, &oz_key("managed", spec)).await;
    stage.says(&keys, "managed", "Ready", "Reconciled").await;
    assert_eq!(only_key(&stage).await["type"], "one-off");
    assert!(stored(&secrets, "managed-key", "setupKey").await.is_some());
    stage.delete(&keys, "managed").await;
    stage.gone(&keys, "managed").await;
    assert!(stage.dashboard.list(&Collection::SetupKeys).await.unwrap().is_empty());
}
