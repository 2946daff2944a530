//! Server-side apply of any kind.

use std::sync::Arc;

use k8s_openapi::{
    api::{
        apps::v1::Deployment,
        core::v1::{ConfigMap, Namespace, ResourceQuota, Secret},
    },
    apimachinery::pkg::api::resource::Quantity,
};
use konverge_apply::{Applier, ApplyError, ApplyOutcome};
use konverge_core::error::{Classify, ErrorClass};
use kube::{
    api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams},
    core::{ApiResource, GroupVersionKind, PartialObjectMetaExt},
};
use serde_json::json;

use super::*;

fn config_map(namespace: &str, name: &str, data: &[(&str, &str)]) -> ConfigMap {
    ConfigMap {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            namespace: Some(namespace.to_owned()),
            ..ObjectMeta::default()
        },
        data: Some(data.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()),
        ..ConfigMap::default()
    }
}

#[tokio::test]
async fn the_first_apply_creates_and_a_repetition_asks_nothing() {
    let (client, namespace) = namespace().await;
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), &namespace);
    let write_observer = Arc::new(Notes::default());
    let applier = Applier::new(client, "ours").with_write_observer(write_observer.clone());
    let desired = config_map(&namespace, "app", &[("a", "1"), ("b", "")]);
    let created = applier.apply(&desired, None).await.unwrap();
    assert_eq!(created.outcome, ApplyOutcome::Created);
    let seen = api.get("app").await.unwrap();
    assert_eq!(created.object, seen);
    let version = seen.resource_version().unwrap();
    assert_eq!(write_observer.taken(), [format!("v1 ConfigMap {namespace}/app: begin"), format!("wrote {version}")]);

    for applier in [applier.clone(), Applier::new(applier.client().clone(), "ours")] {
        let again = applier.apply(&desired, Some(&seen)).await.unwrap();
        assert_eq!((again.outcome, again.object), (ApplyOutcome::Unchanged, seen.clone()));
    }
    // Without the object at hand it has to be asked, and nothing changes.
    let asked = applier.apply(&desired, None).await.unwrap();
    assert_eq!(asked.object, seen);
    assert_eq!(writes_in(&namespace, 2).await, 2);
}

/// The API server does not store `stringData`: it stores the values under `data`.
#[tokio::test]
async fn string_data_of_a_secret_is_in_sync_once_it_is_written_and_drift_of_it_is_corrected() {
    let (client, namespace) = namespace().await;
    let api: Api<Secret> = Api::namespaced(client.clone(), &namespace);
    let applier = Applier::new(client.clone(), "ours");
    let desired = |text: &str| -> Secret {
        serde_json::from_value(json!({
            "metadata": { "namespace": namespace, "name": "app" },
            "data": { "both": "bG9zZXM=", "bytes": "/w==" }, "stringData": { "both": "wins", "text": text }
        }))
        .unwrap()
    };
    let created = applier.apply(&desired("grüße"), None).await.unwrap();
    assert_eq!(created.outcome, ApplyOutcome::Created);
    let seen = api.get("app").await.unwrap();
    let stored = |secret: &Secret, key: &str| secret.data.as_ref().unwrap()[key].0.clone();
    assert_eq!([stored(&seen, "both"), stored(&seen, "text")], [b"wins".to_vec(), "grüße".as_bytes().to_vec()]);
    assert_eq!(stored(&seen, "bytes"), [0xff]);
    // A new process decides by the object alone.
    for applier in [applier.clone(), Applier::new(client.clone(), "ours")] {
        assert_eq!(applier.apply(&desired("grüße"), Some(&seen)).await.unwrap().outcome, ApplyOutcome::Unchanged);
    }
    assert_eq!(writes_in(&namespace, 1).await, 1);

    let foreign = Patch::Merge(json!({ "stringData": { "text": "foreign" } }));
    let changed = api.patch("app", &PatchParams::default(), &foreign).await.unwrap();
    let healed = applier.apply(&desired("grüße"), Some(&changed)).await.unwrap();
    assert_eq!((healed.outcome, stored(&healed.object, "text")), (ApplyOutcome::Changed, "grüße".as_bytes().to_vec()));
}

/// Stands for an operator that was stopped in the middle of a write: it still has the object as it was before its successor wrote.
#[tokio::test]
async fn an_apply_that_arrives_late_does_not_undo_that_of_the_successor() {
    let (client, namespace) = namespace().await;
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), &namespace);
    let late = Applier::new(client.clone(), "ours");
    let successor = Applier::new(client, "ours");
    let desired = |text: &str| config_map(&namespace, "app", &[("text", text)]);
    let seen = late.apply(&desired("one"), None).await.unwrap().object;
    assert!(successor.apply(&desired("three"), Some(&seen)).await.unwrap().outcome.is_change());

    let error = late.apply(&desired("two"), Some(&seen)).await.unwrap_err();
    assert!(matches!(error, ApplyError::OutOfDate { .. }), "{error}");
    let stored = api.get("app").await.unwrap();
    assert_eq!(stored.data.as_ref().unwrap()["text"], "three");
    // If it wants the same as the successor, its work is done.
    let same = late.apply(&desired("three"), Some(&seen)).await.unwrap();
    assert_eq!((same.outcome, same.object), (ApplyOutcome::Changed, stored.clone()));
    assert_eq!(api.get("app").await.unwrap().resource_version(), stored.resource_version());
}

#[tokio::test]
async fn a_change_of_the_status_does_not_stop_an_apply() {
    let (client, namespace) = namespace().await;
    let api: Api<Deployment> = Api::namespaced(client.clone(), &namespace);
    let applier = Applier::new(client, "ours");
    let desired = |replicas: u32| -> Deployment {
        serde_json::from_value(json!({
            "metadata": {"name": "web", "namespace": namespace},
            "spec": {
                "replicas": replicas,
                "selector": {"matchLabels": {"app": "web"}},
                "template": {
                    "metadata": {"labels": {"app": "web"}},
                    "spec": {"containers": [{"name": "web", "image": "web"}]},
                },
            },
        }))
        .unwrap()
    };
    let seen = applier.apply(&desired(1), None).await.unwrap().object;
    let status = json!({"status": {"observedGeneration": 1, "replicas": 1}});
    api.patch_status("web", &PatchParams::default(), &Patch::Merge(&status)).await.unwrap();

    let scaled = applier.apply(&desired(2), Some(&seen)).await.unwrap();
    assert_eq!(scaled.outcome, ApplyOutcome::Changed);
    assert_eq!(scaled.object.spec.unwrap().replicas, Some(2));
    assert_eq!(scaled.object.status.unwrap().replicas, Some(1));
}

/// The look after a refusal asks for metadata only, too: a controller may list no more of the kind.
#[tokio::test]
async fn an_object_that_is_known_by_its_metadata_is_applied_although_others_changed_it() {
    let (client, namespace) = namespace().await;
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), &namespace);
    api.create(&PostParams::default(), &config_map(&namespace, "app", &[])).await.unwrap();
    let seen = api.get_metadata("app").await.unwrap();
    let foreign = Patch::Merge(json!({"metadata": {"labels": {"by": "another"}}}));
    api.patch("app", &PatchParams::default(), &foreign).await.unwrap();

    let labels = Some([("by-us".to_owned(), "1".to_owned())].into());
    let (name, namespace) = (seen.metadata.name.clone(), seen.metadata.namespace.clone());
    let wanted = ObjectMeta { name, namespace, labels, ..ObjectMeta::default() }.into_request_partial::<ConfigMap>();
    let applied = Applier::new(client, "ours").apply(&wanted, Some(&seen)).await.unwrap();
    assert_eq!(applied.object.metadata.labels.unwrap().len(), 2);
}

#[tokio::test]
async fn an_apply_for_the_version_seen_leaves_an_object_that_changed_since() {
    let (client, namespace) = namespace().await;
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), &namespace);
    let applier = Applier::new(client, "ours").for_the_version_seen();
    let old = config_map(&namespace, "app", &[("release", "1")]);
    let seen = applier.create(&old).await.unwrap().object;
    let newer = config_map(&namespace, "app", &[("release", "3")]);
    let now = applier.apply(&newer, Some(&seen)).await.unwrap().object;

    let late = config_map(&namespace, "app", &[("release", "2")]);
    let error = applier.apply(&late, Some(&seen)).await.unwrap_err();
    assert!(matches!(error, ApplyError::OutOfDate { .. }), "{error}");
    assert_eq!(error.class(), ErrorClass::Transient);
    assert_eq!(api.get("app").await.unwrap(), now);
    // Not even a label of somebody else may have come.
    let foreign = Patch::Merge(json!({"metadata": {"labels": {"by": "another"}}}));
    api.patch("app", &PatchParams::default(), &foreign).await.unwrap();
    let error = applier.apply(&late, Some(&now)).await.unwrap_err();
    assert!(matches!(error, ApplyError::OutOfDate { .. }), "{error}");
}

/// A cache that takes the version for an own write hides the other client's change from its controller.
#[tokio::test]
async fn an_apply_that_changes_nothing_claims_no_change_of_another_client() {
    let (client, namespace) = namespace().await;
    let api: Api<ResourceQuota> = Api::namespaced(client.clone(), &namespace);
    // The API server spells it 500m, so only a request tells whether it is in sync.
    let desired: ResourceQuota = serde_json::from_value(json!({
        "metadata": {"name": "quota", "namespace": namespace}, "spec": {"hard": {"cpu": "0.5"}},
    }))
    .unwrap();
    let seen = Applier::new(client.clone(), "ours").apply(&desired, None).await.unwrap().object;
    let foreign = Patch::Merge(json!({"metadata": {"annotations": {"by": "another client"}}}));
    let changed = api.patch("quota", &PatchParams::default(), &foreign).await.unwrap();

    let write_observer = Arc::new(Notes::default());
    let applier = Applier::new(client, "ours").with_write_observer(write_observer.clone());
    let same = applier.apply(&desired, Some(&seen)).await.unwrap().object;
    assert_eq!(same.resource_version(), changed.resource_version(), "the apply changed nothing");
    let begun = format!("v1 ResourceQuota {namespace}/quota: begin");
    // The first attempt named the version before that of the other client.
    assert_eq!(write_observer.taken(), [&*begun, &*begun]);

    let mut other = desired.clone();
    other.spec.as_mut().unwrap().hard.as_mut().unwrap().insert("memory".to_owned(), Quantity("1Gi".to_owned()));
    let version = applier.apply(&other, Some(&changed)).await.unwrap().object.resource_version().unwrap();
    assert_eq!(write_observer.taken(), [begun, format!("wrote {version}")]);
}

#[tokio::test]
async fn drift_is_mended_and_what_is_no_longer_wanted_goes() {
    let (client, namespace) = namespace().await;
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), &namespace);
    let applier = Applier::new(client, "ours");
    let desired = config_map(&namespace, "app", &[("a", "1"), ("b", "2")]);
    let first = applier.apply(&desired, None).await.unwrap().object;
    let by_hand = json!({"data": {"a": "drifted", "theirs": "kept"}});
    let drifted = api.patch("app", &PatchParams::default(), &Patch::Merge(&by_hand)).await.unwrap();
    let mended = applier.apply(&desired, Some(&drifted)).await.unwrap();
    assert_eq!(mended.outcome, ApplyOutcome::Changed);
    let less = config_map(&namespace, "app", &[("a", "1")]);
    let fewer = applier.apply(&less, Some(&mended.object)).await.unwrap();
    assert_eq!(fewer.outcome, ApplyOutcome::Changed);
    let data = api.get("app").await.unwrap().data.unwrap();
    assert_eq!(data, BTreeMap::from([("a", "1"), ("theirs", "kept")].map(|(k, v)| (k.to_owned(), v.to_owned()))));
    // An old view costs a request and does no harm.
    let late = applier.apply(&less, Some(&first)).await.unwrap();
    assert_eq!(late.object, api.get("app").await.unwrap());
}

#[tokio::test]
async fn what_is_deleted_or_made_anew_is_neither_made_again_nor_touched() {
    let (client, namespace) = namespace().await;
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), &namespace);
    let applier = Applier::new(client, "ours");
    let seen = applier.apply(&config_map(&namespace, "app", &[("a", "1")]), None).await.unwrap().object;
    let desired = config_map(&namespace, "app", &[("a", "2")]);
    api.delete("app", &DeleteParams::default()).await.unwrap();
    let error = applier.apply(&desired, Some(&seen)).await.expect_err("gone");
    assert!(matches!(error, ApplyError::Gone { .. }), "{error}");
    assert_eq!(error.class(), ErrorClass::Transient);
    assert!(api.get_opt("app").await.unwrap().is_none());
    let other = api.create(&PostParams::default(), &config_map(&namespace, "app", &[("new", "one")])).await.unwrap();
    let error = applier.apply(&desired, Some(&seen)).await.expect_err("gone");
    assert!(matches!(error, ApplyError::Gone { .. }), "{error}");
    assert_eq!(api.get("app").await.unwrap(), other);
}

#[tokio::test]
async fn without_force_the_managers_and_fields_are_named() {
    let (client, namespace) = namespace().await;
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), &namespace);
    let theirs = config_map(&namespace, "app", &[("a", "theirs"), ("b", "theirs")]);
    let parameters = PostParams { field_manager: Some("kubectl".to_owned()), ..PostParams::default() };
    let seen = api.create(&parameters, &theirs).await.unwrap();
    let desired = config_map(&namespace, "app", &[("a", "ours"), ("b", "theirs")]);
    let careful = Applier::new(client.clone(), "ours").without_force();
    let error = careful.apply(&desired, Some(&seen)).await.expect_err("a conflict");
    let ApplyError::Conflict { conflicts, .. } = &error else { panic!("{error}") };
    assert_eq!(conflicts.len(), 1, "{error}");
    assert!(conflicts[0].field == ".data.a" && conflicts[0].with.contains("kubectl"), "{error}");
    let taken = Applier::new(client, "ours").apply(&desired, Some(&seen)).await.unwrap();
    assert_eq!(taken.outcome, ApplyOutcome::Changed);
}

#[tokio::test]
async fn a_dry_run_tells_what_would_change_and_writes_nothing() {
    let (client, namespace) = namespace().await;
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), &namespace);
    let real = Applier::new(client.clone(), "ours");
    let write_observer = Arc::new(Notes::default());
    let dry = real.clone().with_dry_run(true).with_write_observer(write_observer.clone());
    let desired = config_map(&namespace, "app", &[("a", "1")]);
    assert_eq!(dry.apply(&desired, None).await.unwrap().outcome, ApplyOutcome::Created);
    assert!(api.get_opt("app").await.unwrap().is_none());
    let seen = real.apply(&desired, None).await.unwrap().object;
    let changed = dry.apply(&config_map(&namespace, "app", &[("a", "2")]), Some(&seen)).await.unwrap();
    assert_eq!(changed.outcome, ApplyOutcome::Changed);
    let lines: Vec<_> = changed.differences.iter().map(ToString::to_string).collect();
    assert_eq!(lines, [r#"~ .data.a: "1" -> "2""#]);
    assert_eq!(api.get("app").await.unwrap(), seen);
    assert!(write_observer.taken().is_empty(), "nothing was written");
    // Without our entry in the managed fields it has to be asked, and nothing would change.
    let mut bare = seen;
    bare.metadata.managed_fields = None;
    let applier = Applier::new(client.clone(), "ours").with_dry_run(true);
    assert_eq!(applier.apply(&desired, Some(&bare)).await.unwrap().outcome, ApplyOutcome::Unchanged);

    let mut secret = secret("db", &[("a", "hunter2")]);
    secret.metadata.namespace = Some(namespace.clone());
    let planned = applier.apply(&secret, None).await.unwrap();
    let text = format!("{:?}", planned.differences);
    assert!(text.contains("data") && text.contains("hidden") && !text.contains("aHVudGVyMg"), "{text}");
}

#[tokio::test]
async fn dynamic_and_cluster_scoped_objects_are_written_too() {
    let (client, namespace) = namespace().await;
    let applier = Applier::new(client.clone(), "ours");
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("apps", "v1", "Deployment"));
    let desired = DynamicObject::new("web", &kind).within(&namespace).data(json!({"spec": {
        "selector": {"matchLabels": {"app": "web"}},
        "template": {
            "metadata": {"labels": {"app": "web"}},
            "spec": {"containers": [{"name": "web", "image": "web", "ports": [{"containerPort": 80}]}]}
        }
    }}));
    let created = applier.apply_with(&desired, None, &kind).await.unwrap();
    assert_eq!(created.outcome, ApplyOutcome::Created);
    let again = applier.apply_with(&desired, Some(&created.object), &kind).await.unwrap();
    assert_eq!(again.outcome, ApplyOutcome::Unchanged);
    assert!(Api::<Deployment>::namespaced(client, &namespace).get("web").await.is_ok());
    let labelled: Namespace =
        serde_json::from_value(json!({"metadata": {"name": namespace, "labels": {"a": "b"}}})).unwrap();
    assert_eq!(applier.apply(&labelled, None).await.unwrap().object.labels().get("a").unwrap(), "b");
}
