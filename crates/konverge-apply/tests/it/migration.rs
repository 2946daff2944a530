//! Taking over keys that an older program wrote by merge patches.

use konverge_apply::{Outcome, SecretApplier, SecretMetadata, SecretTarget, field_ownership::data_keys};
use konverge_core::error::Classify;
use kube::{
    Api,
    api::{Patch, PatchParams, PostParams},
};

use super::*;

#[tokio::test]
async fn stale_keys_of_merge_patches_go_and_the_rest_stays() {
    let (client, namespace) = namespace().await;
    let api: Api<Secret> = Api::namespaced(client.clone(), &namespace);
    let typed = Secret { type_: Some("example.com/typed".to_owned()), ..secret("db", &[("theirs", "kept")]) };
    api.create(&PostParams::default(), &typed).await.unwrap();
    let old = PatchParams { field_manager: Some("operator".to_owned()), ..PatchParams::default() };
    let patch = serde_json::json!({
        "metadata": {"annotations": {"operator/last": "1"}},
        "data": {"old": "MQ==", "both": "MQ=="},
    });
    api.patch("db", &old, &Patch::Merge(&patch)).await.unwrap();

    let before = api.get_metadata("db").await.unwrap();
    assert_eq!(data_keys(before.managed_fields(), "operator").updated.len(), 2);
    let applier = SecretApplier::new(client, "operator");
    let (uid, seen) = (before.uid().unwrap(), before.resource_version().unwrap());
    let target = SecretTarget { namespace: &namespace, name: "db", uid: &uid, resource_version: Some(&seen) };
    assert!(matches!(applier.take_over(&before, "operator").await.unwrap(), Outcome::Changed { .. }));

    let after = api.get_metadata("db").await.unwrap();
    let keys = data_keys(after.managed_fields(), "operator");
    assert_eq!((keys.applied.len(), keys.updated.len()), (2, 0), "{:?}", after.managed_fields());
    assert_eq!(stored(&api, "db").await, pairs(&[("both", "1"), ("old", "1"), ("theirs", "kept")]));
    assert!(matches!(applier.take_over(&after, "operator").await.unwrap(), Outcome::Unchanged { .. }));

    let seen = after.resource_version();
    let target = SecretTarget { resource_version: seen.as_deref(), ..target };
    applier.apply(target, &SecretMetadata::default(), &values(&[("both", "2"), ("new", "3")])).await.unwrap();
    assert_eq!(stored(&api, "db").await, pairs(&[("both", "2"), ("new", "3"), ("theirs", "kept")]));
    let end = api.get("db").await.unwrap();
    assert_eq!(end.annotations().get("operator/last").map(String::as_str), Some("1"));
    assert_eq!(end.type_.as_deref(), Some("example.com/typed"));
}

#[tokio::test]
async fn an_out_of_date_view_is_a_conflict_and_a_deleted_object_is_gone() {
    let (client, namespace) = namespace().await;
    let api: Api<Secret> = Api::namespaced(client.clone(), &namespace);
    let old = PostParams { field_manager: Some("operator".to_owned()), ..PostParams::default() };
    api.create(&old, &secret("db", &[("old", "1")])).await.unwrap();
    let stale = api.get_metadata("db").await.unwrap();
    let patch = serde_json::json!({"data": {"theirs": "MQ=="}});
    api.patch("db", &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
    let applier = SecretApplier::new(client, "operator");
    let error = applier.take_over(&stale, "operator").await.expect_err("a conflict");
    assert_eq!(error.reason(), "Conflict");
    api.delete("db", &kube::api::DeleteParams::default()).await.unwrap();
    assert_eq!(applier.take_over(&stale, "operator").await.unwrap(), Outcome::Gone);
}
