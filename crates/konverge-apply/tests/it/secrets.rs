//! Server-side apply of exactly the wanted keys.

use std::collections::BTreeMap;

use konverge_apply::{
    ApplyError, CreatedSecret, Outcome, SecretApplier, SecretMetadata, SecretTarget, field_ownership::data_keys,
};
use konverge_core::error::{Classify, ErrorClass};
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};

use super::*;

fn changed(outcome: Outcome) -> String {
    match outcome {
        Outcome::Changed { resource_version } => resource_version,
        other => panic!("not changed: {other:?}"),
    }
}

#[tokio::test]
async fn keys_are_exact_and_those_of_others_stay() {
    let (client, namespace) = namespace().await;
    let api: Api<Secret> = Api::namespaced(client.clone(), &namespace);
    let object = api.create(&PostParams::default(), &secret("db", &[("theirs", "kept")])).await.unwrap();
    let applier = SecretApplier::new(client, "ours");
    let (uid, first) = (object.uid().unwrap(), version(&object));
    let target = |seen| SecretTarget { namespace: &namespace, name: "db", uid: &uid, resource_version: Some(seen) };

    let annotations = BTreeMap::from([(
        "konverge.dev/version".to_owned(),
        "\"7\"\n\u{7f}\u{85}\u{a0}\u{2028}\u{feff}\u{ffff}ä\u{1f512}".to_owned(),
    )]);
    let annotated = SecretMetadata { annotations: annotations.clone(), ..SecretMetadata::default() };
    let second = changed(
        applier.apply(target(&first), &annotated, &values(&[("a", "1"), ("b", ""), ("c", "\u{0}")])).await.unwrap(),
    );
    assert_eq!(stored(&api, "db").await, pairs(&[("a", "1"), ("b", ""), ("c", "\u{0}"), ("theirs", "kept")]));
    assert_eq!(api.get("db").await.unwrap().annotations(), &annotations);

    let again = applier.apply(target(&second), &annotated, &values(&[("a", "1"), ("b", ""), ("c", "\u{0}")])).await;
    assert_eq!(again.unwrap(), Outcome::Unchanged { resource_version: second.clone() });

    let third =
        changed(applier.apply(target(&second), &SecretMetadata::default(), &values(&[("a", "2")])).await.unwrap());
    assert_eq!(stored(&api, "db").await, pairs(&[("a", "2"), ("theirs", "kept")]));
    assert!(api.get("db").await.unwrap().annotations().is_empty());

    let taken = values(&[("theirs", "ours now")]);
    let fourth = changed(applier.apply(target(&third), &SecretMetadata::default(), &taken).await.unwrap());
    assert_eq!(stored(&api, "db").await, pairs(&[("theirs", "ours now")]));

    changed(applier.apply(target(&fourth), &SecretMetadata::default(), &values(&[])).await.unwrap());
    assert_eq!(stored(&api, "db").await, pairs(&[]));
}

#[tokio::test]
async fn a_secret_is_created_once_and_keeps_only_what_is_applied_later() {
    let (client, namespace) = namespace().await;
    let api: Api<Secret> = Api::namespaced(client.clone(), &namespace);
    let applier = SecretApplier::new(client, "ours");
    let metadata = SecretMetadata {
        labels: [("team".to_owned(), "a".to_owned())].into(),
        secret_type: Some("example.com/typed".to_owned()),
        ..SecretMetadata::default()
    };
    let data = values(&[("a", "1"), ("b", "2")]);
    let created = applier.create(&namespace, "made", &metadata, &data).await.unwrap();
    let found = api.get("made").await.unwrap();
    assert_eq!(
        (found.uid(), found.resource_version()),
        (Some(created.uid.clone()), Some(created.resource_version.clone()))
    );
    assert_eq!((found.type_.as_deref(), found.labels().len()), (Some("example.com/typed"), 1));
    assert_eq!(data_keys(found.managed_fields(), "ours").applied.len(), 2);

    let again = applier.create(&namespace, "made", &metadata, &values(&[("a", "3")])).await;
    assert!(matches!(again, Err(ApplyError::OutOfDate { .. })), "{again:?}");
    let CreatedSecret { uid, resource_version, .. } = created;
    let target =
        SecretTarget { namespace: &namespace, name: "made", uid: &uid, resource_version: Some(&resource_version) };
    let bare = SecretMetadata { labels: BTreeMap::new(), ..metadata };
    changed(applier.apply(target, &bare, &values(&[("a", "1")])).await.unwrap());
    assert_eq!(stored(&api, "made").await, pairs(&[("a", "1")]));
    assert!(api.get("made").await.unwrap().labels().is_empty());
}

#[tokio::test]
async fn drift_is_mended() {
    let (client, namespace) = namespace().await;
    let api: Api<Secret> = Api::namespaced(client.clone(), &namespace);
    let object = api.create(&PostParams::default(), &secret("db", &[])).await.unwrap();
    let applier = SecretApplier::new(client, "ours");
    let (uid, seen) = (object.uid().unwrap(), version(&object));
    let target = SecretTarget { namespace: &namespace, name: "db", uid: &uid, resource_version: Some(&seen) };
    changed(applier.apply(target, &SecretMetadata::default(), &values(&[("a", "1")])).await.unwrap());
    let by_hand = serde_json::json!({"data": {"a": "Mg=="}});
    let edited = api.patch("db", &PatchParams::apply("kubectl-edit"), &Patch::Merge(&by_hand)).await.unwrap();
    assert_eq!(stored(&api, "db").await, pairs(&[("a", "2")]));
    let edited = version(&edited);
    let target = SecretTarget { resource_version: Some(&edited), ..target };
    changed(applier.apply(target, &SecretMetadata::default(), &values(&[("a", "1")])).await.unwrap());
    assert_eq!(stored(&api, "db").await, pairs(&[("a", "1")]));
}

#[tokio::test]
async fn a_write_decided_for_an_older_version_is_refused() {
    let (client, namespace) = namespace().await;
    let api: Api<Secret> = Api::namespaced(client.clone(), &namespace);
    let object = api.create(&PostParams::default(), &secret("db", &[])).await.unwrap();
    let applier = SecretApplier::new(client, "ours");
    let (uid, seen) = (object.uid().unwrap(), version(&object));
    let target = SecretTarget { namespace: &namespace, name: "db", uid: &uid, resource_version: Some(&seen) };
    changed(applier.apply(target, &SecretMetadata::default(), &values(&[("a", "191")])).await.unwrap());
    let late =
        applier.apply(target, &SecretMetadata::default(), &values(&[("a", "190")])).await.expect_err("a late write");
    assert!(matches!(late, ApplyError::OutOfDate { .. }), "{late}");
    assert_eq!(stored(&api, "db").await, pairs(&[("a", "191")]));
}

#[tokio::test]
async fn what_is_deleted_or_made_anew_is_gone_and_not_touched() {
    let (client, namespace) = namespace().await;
    let api: Api<Secret> = Api::namespaced(client.clone(), &namespace);
    let object = api.create(&PostParams::default(), &secret("db", &[])).await.unwrap();
    let applier = SecretApplier::new(client, "ours");
    let (uid, seen) = (object.uid().unwrap(), version(&object));
    let target = SecretTarget { namespace: &namespace, name: "db", uid: &uid, resource_version: Some(&seen) };

    api.delete("db", &DeleteParams::default()).await.unwrap();
    assert_eq!(applier.apply(target, &SecretMetadata::default(), &values(&[("a", "1")])).await.unwrap(), Outcome::Gone);
    assert!(api.get_opt("db").await.unwrap().is_none(), "it must not be created");

    api.create(&PostParams::default(), &secret("db", &[("new", "one")])).await.unwrap();
    assert_eq!(applier.apply(target, &SecretMetadata::default(), &values(&[("a", "1")])).await.unwrap(), Outcome::Gone);
    assert_eq!(stored(&api, "db").await, pairs(&[("new", "one")]));
}

#[tokio::test]
async fn refusals_are_permanent_and_named() {
    let (client, namespace) = namespace().await;
    let api: Api<Secret> = Api::namespaced(client.clone(), &namespace);
    let frozen = Secret { immutable: Some(true), ..secret("frozen", &[("a", "1")]) };
    let frozen = api.create(&PostParams::default(), &frozen).await.unwrap();
    let open = api.create(&PostParams::default(), &secret("open", &[])).await.unwrap();
    let applier = SecretApplier::new(client, "ours");
    let refused = async |object: &Secret, data: &[(&str, &str)]| {
        let (name, uid) = (object.name_any(), object.uid().unwrap());
        let target = SecretTarget { namespace: &namespace, name: &name, uid: &uid, resource_version: None };
        let error = applier.apply(target, &SecretMetadata::default(), &values(data)).await.expect_err("a refusal");
        assert_eq!(error.class(), ErrorClass::Refused, "{error}");
        assert!(error.to_string().contains(&format!("{namespace}/{name}")), "{error}");
        assert!(!error.to_string().contains("hunter2") && !format!("{error:?}").contains("hunter2"), "{error:?}");
        error
    };
    let error = refused(&frozen, &[("a", "hunter2")]).await;
    assert!(error.is_immutable(), "{error}");
    assert_eq!(refused(&open, &[("not a key", "hunter2")]).await.reason(), "SecretRejected");
    let large = "hunter2".repeat(200_000);
    let error = refused(&open, &[("a", &large)]).await;
    assert!(matches!(error, ApplyError::Refused { .. }), "{error}");
}

#[tokio::test]
async fn what_may_not_be_written_is_said() {
    let (admin, namespace) = namespace().await;
    let api: Api<Secret> = Api::namespaced(admin, &namespace);
    let object = api.create(&PostParams::default(), &secret("db", &[])).await.unwrap();
    let kubeconfig = control_plane().await.service_account_kubeconfig(&namespace, "nobody").await.unwrap();
    let nobody = konverge_testkit::client_for(&kubeconfig).await.unwrap();
    let uid = object.uid().unwrap();
    let target = SecretTarget { namespace: &namespace, name: "db", uid: &uid, resource_version: None };
    let applied =
        SecretApplier::new(nobody, "ours").apply(target, &SecretMetadata::default(), &values(&[("a", "1")])).await;
    let error = applied.expect_err("no permission");
    assert_eq!((error.reason(), error.class()), ("Forbidden", ErrorClass::Refused), "{error}");
}
