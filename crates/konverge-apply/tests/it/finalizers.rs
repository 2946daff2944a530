//! Finalizers, of ours and of others.

use k8s_openapi::api::core::v1::ConfigMap;
use konverge_apply::{Applier, ApplyError};
use konverge_core::error::{Classify, ErrorClass};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::json;

use super::*;

const OURS: &str = "konverge.dev/test";
const THEIRS: &str = "example.com/theirs";

async fn made(namespace: &str, client: &Client, finalizers: &[&str]) -> (Api<ConfigMap>, ConfigMap) {
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let object = json!({"metadata": {"name": "app", "namespace": namespace, "finalizers": finalizers}});
    let object = api.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
    (api, object)
}

#[tokio::test]
async fn row_07_finalizers_of_others_are_never_touched() {
    let (client, namespace) = namespace().await;
    let (api, object) = made(&namespace, &client, &[THEIRS]).await;
    let write_observer = std::sync::Arc::new(Notes::default());
    let applier = Applier::new(client, "ours").with_write_observer(write_observer.clone());
    let object = applier.add_finalizer(&object, OURS).await.unwrap().unwrap();
    assert_eq!(object.finalizers(), [THEIRS, OURS]);
    assert_eq!(api.get("app").await.unwrap(), object);
    assert!(applier.add_finalizer(&object, OURS).await.unwrap().is_none());
    api.delete("app", &DeleteParams::default()).await.unwrap();
    let object = api.get("app").await.unwrap();
    let left = applier.remove_finalizer(&object, OURS).await.unwrap().unwrap();
    assert_eq!(left.finalizers(), [THEIRS]);
    assert_eq!(api.get("app").await.unwrap(), left);
    assert!(applier.remove_finalizer(&left, OURS).await.unwrap().is_none());
    let error = applier.add_finalizer(&left, OURS).await.expect_err("too late");
    assert!(matches!(error, ApplyError::Terminating { .. }), "{error}");
    assert_eq!(writes_in(&namespace, 4).await, 4);
    assert!(write_observer.taken().iter().filter(|note| note.starts_with("wrote")).count() == 2);
}

#[tokio::test]
async fn row_08_concurrent_changes_of_the_list_are_not_lost() {
    let (client, namespace) = namespace().await;
    let (api, old) = made(&namespace, &client, &[]).await;
    let applier = Applier::new(client, "ours");
    let patch = json!({"metadata": {"finalizers": [THEIRS]}});
    let now = api.patch("app", &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
    let error = applier.add_finalizer(&old, OURS).await.expect_err("out of date");
    assert!(matches!(error, ApplyError::OutOfDate { .. }), "{error}");
    assert_eq!(error.class(), ErrorClass::Transient);
    let both = applier.add_finalizer(&now, OURS).await.unwrap().unwrap();
    assert_eq!(both.finalizers(), [THEIRS, OURS]);
    // Somebody takes theirs away, so ours is elsewhere in the list than we think.
    let patch = json!({"metadata": {"finalizers": [OURS]}});
    let now = api.patch("app", &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
    let error = applier.remove_finalizer(&both, OURS).await.expect_err("out of date");
    assert!(matches!(error, ApplyError::OutOfDate { .. }), "{error}");
    assert_eq!(api.get("app").await.unwrap(), now);
    let none = applier.remove_finalizer(&now, OURS).await.unwrap().unwrap();
    assert!(none.finalizers().is_empty());
    // Other changes than those of the list do no harm.
    let patch = json!({"data": {"a": "1"}});
    api.patch("app", &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
    assert!(applier.add_finalizer(&none, OURS).await.unwrap().is_some());
}

#[tokio::test]
async fn what_is_gone_or_made_anew_is_told() {
    let (client, namespace) = namespace().await;
    let (api, object) = made(&namespace, &client, &[OURS]).await;
    let write_observer = std::sync::Arc::new(Notes::default());
    let applier = Applier::new(client.clone(), "ours").with_write_observer(write_observer.clone());
    api.delete("app", &DeleteParams::default()).await.unwrap();
    let terminating = api.get("app").await.unwrap();
    assert!(applier.remove_finalizer(&terminating, OURS).await.unwrap().is_some());
    assert!(api.get_opt("app").await.unwrap().is_none());
    let deleted = format!("deleted {:?}", object.uid().as_deref());
    assert_eq!(write_observer.taken()[1], deleted);
    assert!(applier.remove_finalizer(&terminating, OURS).await.unwrap().is_none(), "gone is as good as removed");
    let mut bare = object.clone();
    bare.metadata.finalizers = None;
    let error = applier.add_finalizer(&bare, OURS).await.expect_err("gone");
    assert!(matches!(error, ApplyError::Gone { .. }), "{error}");
    let (_, anew) = made(&namespace, &client, &[]).await;
    let error = applier.add_finalizer(&bare, OURS).await.expect_err("another object");
    assert!(matches!(error, ApplyError::OutOfDate { .. }), "{error}");
    assert_eq!(api.get("app").await.unwrap(), anew);
}
