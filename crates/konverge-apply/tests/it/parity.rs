//! The small things: labels, namespaces, lists, waiting.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use konverge_apply::{
    Applier, ApplyError, ApplyOutcome, Deletion, Metadata, MetadataChange,
    read::{Name, WaitError, exists, list_all, list_names, pick, wait_for, wait_for_any},
};
use kube::{
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
    core::PartialObjectMeta,
};
use serde_json::json;

use super::*;

async fn named(api: &Api<ConfigMap>, name: &str) -> ConfigMap {
    let metadata = Metadata::named(name).label("app", "shop").build();
    api.create(&PostParams::default(), &ConfigMap { metadata, ..ConfigMap::default() }).await.unwrap()
}

#[tokio::test]
async fn row_17_labels_that_are_there_cost_no_request() {
    let (client, namespace) = namespace().await;
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), &namespace);
    let object = named(&api, "app").await;
    let write_observer = Arc::new(Notes::default());
    let applier = Applier::new(client, "ours").with_write_observer(write_observer.clone());
    let change = MetadataChange::new().label("synced-to", "till").without_label("absent").annotation("a", "1");
    let changed = applier.change_metadata(&object, &change).await.unwrap().unwrap();
    assert_eq!(changed, api.get("app").await.unwrap());
    assert_eq!((changed.labels().len(), changed.annotations().len()), (2, 1));
    assert!(applier.change_metadata(&changed, &change).await.unwrap().is_none());
    let back = MetadataChange::new().without_label("synced-to").without_annotation("a");
    let back = applier.change_metadata(&changed, &back).await.unwrap().unwrap();
    assert_eq!((back.labels(), back.annotations()), (object.labels(), object.annotations()));
    assert_eq!(writes_in(&namespace, 3).await, 3);
    assert_eq!(write_observer.taken().len(), 4);

    api.delete("app", &DeleteParams::default()).await.unwrap();
    named(&api, "app").await;
    let error = applier.change_metadata(&back, &change).await.expect_err("another object");
    assert!(matches!(error, ApplyError::Gone { .. }), "{error}");
}

/// Stands for an operator that was stopped in the middle of a write, while its successor wrote.
#[tokio::test]
async fn a_label_that_arrives_late_does_not_undo_that_of_the_successor() {
    let (client, namespace) = namespace().await;
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), &namespace);
    named(&api, "app").await;
    let seen = api.get_metadata("app").await.unwrap();
    let applier = Applier::new(client, "ours");
    let change = |value: &str| MetadataChange::new().label("synced-to", value).annotation("a", "1");
    // A change of something else stops nothing.
    let foreign = Patch::Merge(json!({"metadata": {"labels": {"by": "another"}}, "data": {"a": "1"}}));
    api.patch("app", &PatchParams::default(), &foreign).await.unwrap();
    let changed = applier.change_metadata(&seen, &change("three")).await.unwrap().unwrap();
    assert_eq!((&*changed.labels()["by"], &*changed.labels()["synced-to"]), ("another", "three"));

    let error = applier.change_metadata(&seen, &change("two")).await.expect_err("out of date");
    assert!(matches!(error, ApplyError::OutOfDate { .. }), "{error}");
    // A writer that wants the same finds its work done.
    let same = applier.change_metadata(&seen, &change("three")).await.unwrap().unwrap();
    assert_eq!(same.metadata, changed.metadata);
    assert_eq!(api.get("app").await.unwrap().labels()["synced-to"], "three");
}

#[tokio::test]
async fn what_is_known_by_its_metadata_only_is_written_without_seeing_more() {
    let (client, namespace) = namespace().await;
    let api: Api<Secret> = Api::namespaced(client.clone(), &namespace);
    api.create(&PostParams::default(), &secret("db", &[("a", "1")])).await.unwrap();
    let seen = api.get_metadata("db").await.unwrap();
    let applier = Applier::new(client, "ours");
    let held = applier.add_finalizer(&seen, "konverge.dev/test").await.unwrap().unwrap();
    assert_eq!(held.types.as_ref().map(|types| &*types.kind), Some("PartialObjectMetadata"));
    let change = MetadataChange::new().annotation("a", "1");
    let changed = applier.change_metadata(&held, &change).await.unwrap().unwrap();
    assert_eq!(applier.delete(&changed).await.unwrap(), Deletion::Terminating);
    let going = api.get_metadata("db").await.unwrap();
    assert_eq!(going.annotations()["a"], "1");
    assert!(applier.remove_finalizer(&going, "konverge.dev/test").await.unwrap().is_some());
    assert!(api.get_opt("db").await.unwrap().is_none());
}

#[tokio::test]
async fn a_namespace_is_made_once_and_left_alone() {
    let (client, namespace) = namespace().await;
    let name = format!("{namespace}-ensured");
    let applier = Applier::new(client.clone(), "ours");
    let api: Api<Namespace> = Api::all(client);
    assert!(applier.ensure_namespace(&name).await.unwrap());
    let made = api.get(&name).await.unwrap();
    assert!(!applier.ensure_namespace(&name).await.unwrap());
    assert_eq!(api.get(&name).await.unwrap(), made);
    assert!(exists(&api, &name).await.unwrap());
    assert!(!exists(&api, "there-is-none").await.unwrap());
}

#[tokio::test]
async fn row_22_names_keep_their_namespaces_and_lists_are_paged() {
    let (client, namespace) = namespace().await;
    let other = control_plane().await.namespace("other").await.unwrap();
    for space in [&namespace, &other] {
        let api = Api::namespaced(client.clone(), space);
        for name in ["a", "b", "c"] {
            named(&api, name).await;
        }
    }
    let everywhere: Api<ConfigMap> = Api::all(client.clone());
    let two_a_page = ListParams::default().labels("app=shop").limit(2);
    let names = list_names(&everywhere, &two_a_page).await.unwrap();
    for space in [&namespace, &other] {
        for name in ["a", "b", "c"] {
            assert!(names.contains(&Name { namespace: Some(space.clone()), name: name.to_owned() }), "{names:?}");
        }
    }
    let here: Api<ConfigMap> = Api::namespaced(client, &namespace);
    let objects = list_all(&here, &two_a_page).await.unwrap();
    assert_eq!(objects.iter().map(ResourceExt::name_any).collect::<Vec<_>>(), ["a", "b", "c"]);
    let but_b = |object: PartialObjectMeta<ConfigMap>| Some(object.name_any()).filter(|name| name != "b");
    assert_eq!(pick(&here, &two_a_page, but_b).await.unwrap(), ["a", "c"]);
}

#[tokio::test]
async fn row_20_waiting_ends() {
    let (client, namespace) = namespace().await;
    let api: Api<ConfigMap> = Api::namespaced(client, &namespace);
    let is_there = |object: Option<&ConfigMap>| object.is_some();
    let never = std::future::pending::<()>;
    let late = wait_for(&api, "app", "made", is_there, Duration::from_millis(300), never()).await;
    let error = late.expect_err("nobody makes it");
    assert!(matches!(error, WaitError::NotInTime { last: None, .. }), "{error}");
    assert!(error.to_string().contains("ConfigMap \"app\" was not made within"), "{error}");
    let cancelled = wait_for(&api, "app", "made", is_there, Duration::from_secs(60), std::future::ready(())).await;
    assert!(matches!(cancelled, Err(WaitError::Cancelled { .. })));
    let (found, made) =
        tokio::join!(wait_for(&api, "app", "made", is_there, Duration::from_secs(20), never()), async {
            named(&api, "app").await
        });
    assert_eq!(found.unwrap(), Some(made));
    let nobody = control_plane().await.service_account_kubeconfig(&namespace, "blind").await.unwrap();
    let blind: Api<ConfigMap> = Api::namespaced(konverge_testkit::client_for(&nobody).await.unwrap(), &namespace);
    let error =
        wait_for(&blind, "app", "made", is_there, Duration::from_millis(500), never()).await.expect_err("forbidden");
    assert!(error.to_string().contains("last seen") && error.to_string().contains("forbidden"), "{error}");
}

#[tokio::test]
async fn row_20_waiting_for_any_object_ends_with_the_first_that_will_do() {
    let (client, namespace) = namespace().await;
    let api: Api<ConfigMap> = Api::namespaced(client, &namespace);
    let shop = ListParams::default().labels("app=shop");
    let is_second = |object: &ConfigMap| object.name_any() == "second";
    let never = std::future::pending::<()>;
    named(&api, "first").await;
    let late = wait_for_any(&api, &shop, "the second", is_second, Duration::from_millis(300), never()).await;
    let error = late.expect_err("there is another only");
    assert!(error.to_string().starts_with("any ConfigMap was not the second within"), "{error}");
    let limit = Duration::from_secs(20);
    let (found, made) = tokio::join!(wait_for_any(&api, &shop, "the second", is_second, limit, never()), async {
        named(&api, "second").await
    });
    assert_eq!(found.unwrap(), made);
    // Existing children are found too; objects labelled by others are not.
    let any = wait_for_any(&api, &shop, "there", |_| true, limit, never()).await.unwrap();
    assert!(["first", "second"].contains(&any.name_any().as_str()));
    let others = ListParams::default().labels("app=other");
    let cancelled = wait_for_any(&api, &others, "there", |_: &ConfigMap| true, limit, std::future::ready(())).await;
    assert!(matches!(cancelled, Err(WaitError::Cancelled { .. })));
}

#[tokio::test]
async fn deleting_means_the_object_that_was_seen() {
    let (client, namespace) = namespace().await;
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), &namespace);
    let object = named(&api, "app").await;
    let write_observer = Arc::new(Notes::default());
    let applier = Applier::new(client, "ours").with_write_observer(write_observer.clone());
    assert_eq!(applier.delete(&object).await.unwrap(), Deletion::Deleted);
    assert_eq!(write_observer.taken()[1], format!("deleted {:?}", object.uid().as_deref()));
    assert_eq!(applier.delete(&object).await.unwrap(), Deletion::Absent);
    let anew = named(&api, "app").await;
    let error = applier.delete(&object).await.expect_err("another object");
    assert!(matches!(error, ApplyError::OutOfDate { .. }), "{error}");
    let held = applier.add_finalizer(&anew, "konverge.dev/test").await.unwrap().unwrap();
    assert_eq!(applier.delete(&held).await.unwrap(), Deletion::Terminating);
}

#[tokio::test]
async fn row_21_drift_in_the_data_of_a_secret_is_seen_and_removed_keys_go() {
    let (client, namespace) = namespace().await;
    let api: Api<Secret> = Api::namespaced(client.clone(), &namespace);
    let applier = Applier::new(client, "ours");
    let wanted = |data: &[(&str, &str)]| {
        let mut secret = secret("db", data);
        secret.metadata.namespace = Some(namespace.clone());
        secret
    };
    let made = applier.apply(&wanted(&[("a", "1"), ("b", "2")]), None).await.unwrap().object;
    let mut drifted = made.clone();
    drifted.data = secret("db", &[("a", "x"), ("b", "2")]).data;
    let drifted = api.replace("db", &PostParams::default(), &drifted).await.unwrap();
    let mended = applier.apply(&wanted(&[("a", "1")]), Some(&drifted)).await.unwrap();
    assert_eq!(mended.outcome, ApplyOutcome::Changed);
    assert_eq!(stored(&api, "db").await, pairs(&[("a", "1")]));
}
