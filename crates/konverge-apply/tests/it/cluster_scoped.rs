//! Finalizers and status of an object without a namespace.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use konverge_apply::{Applier, ApplyError, StatusWriter};
use kube::{
    CustomResource, CustomResourceExt,
    api::{DeleteParams, PostParams},
    runtime::{conditions::is_crd_established, wait::await_condition},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::*;

const OURS: &str = "konverge.dev/test";

#[derive(CustomResource, Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "apply.konverge.dev",
    version = "v1",
    kind = "ClusterSample",
    status = "ClusterSampleStatus",
    derive = "PartialEq"
)]
struct ClusterSampleSpec {}

#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
struct ClusterSampleStatus {
    target: Option<String>,
}

#[tokio::test]
async fn an_object_without_a_namespace_has_a_finalizer_and_a_status() {
    let (client, namespace) = namespace().await;
    let notes = std::sync::Arc::new(Notes::default());
    let applier = Applier::new(client.clone(), "ours").with_write_observer(notes.clone());
    let definition = applier.apply(&ClusterSample::crd(), None).await.unwrap().object;
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    await_condition(definitions, &definition.name_any(), is_crd_established()).await.unwrap();
    let api: Api<ClusterSample> = Api::all(client);
    let name = format!("sample-of-{namespace}");
    let made = api.create(&PostParams::default(), &ClusterSample::new(&name, ClusterSampleSpec {})).await.unwrap();
    notes.taken();

    let held = applier.add_finalizer(&made, OURS).await.unwrap().unwrap();
    assert_eq!(held.finalizers(), [OURS]);
    assert_eq!(api.get(&name).await.unwrap(), held);
    assert!(applier.add_finalizer(&held, OURS).await.unwrap().is_none(), "it is there");

    let writer = StatusWriter::new(applier.clone());
    let status = ClusterSampleStatus { target: Some("shop".to_owned()) };
    let written = writer.update(&held, &status).await.unwrap().unwrap();
    assert_eq!(api.get(&name).await.unwrap(), written);
    assert_eq!(written.status.as_ref(), Some(&status));
    assert!(writer.update(&written, &status).await.unwrap().is_none(), "it says so already");
    // The finalizer and the status are of a version that this writer has not seen.
    let late = ClusterSampleStatus { target: Some("late".to_owned()) };
    let error = writer.update(&made, &late).await.expect_err("out of date");
    assert!(matches!(error, ApplyError::OutOfDate { .. }), "{error}");

    api.delete(&name, &DeleteParams::default()).await.unwrap();
    let terminating = api.get(&name).await.unwrap();
    assert!(applier.remove_finalizer(&terminating, OURS).await.unwrap().is_some());
    assert!(api.get_opt(&name).await.unwrap().is_none());
    let error = writer.update(&written, &late).await.expect_err("gone");
    assert!(error.to_string().starts_with(&format!("ClusterSample {name} was deleted")), "{error}");
    let taken = notes.taken();
    assert_eq!(taken.iter().filter(|note| note.starts_with("wrote")).count(), 2, "{taken:?}");
    assert!(taken.contains(&format!("deleted {:?}", made.uid().as_deref())), "{taken:?}");
}
