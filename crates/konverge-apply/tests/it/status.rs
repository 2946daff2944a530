//! Status and conditions of a custom resource.

use k8s_openapi::{apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition, jiff::Timestamp};
use konverge_apply::{
    Applier, ApplyError, Conditions, Moment, Reason, StatusWriter,
    conditions::{ConditionStatus, READY, STALLED},
};
use kube::{
    CustomResource, CustomResourceExt,
    api::{DeleteParams, Patch, PatchParams, PostParams},
    runtime::{conditions::is_crd_established, wait::await_condition},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::*;

#[derive(CustomResource, Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "apply.konverge.dev",
    version = "v1",
    kind = "Sample",
    namespaced,
    status = "SampleStatus",
    derive = "PartialEq"
)]
pub(super) struct SampleSpec {
    pub(super) text: String,
    pub(super) more: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct SampleStatus {
    pub(super) ready: Option<bool>,
    pub(super) target: Option<String>,
    #[serde(default)]
    pub(super) conditions: Conditions,
}

/// Installs the kind, once.
pub(super) async fn samples(client: &Client, namespace: &str) -> Api<Sample> {
    static INSTALLED: OnceCell<()> = OnceCell::const_new();
    let install = async || {
        let applier = Applier::new(client.clone(), "test");
        let definition = applier.apply(&Sample::crd(), None).await.unwrap().object;
        let api: Api<CustomResourceDefinition> = Api::all(client.clone());
        await_condition(api, &definition.name_any(), is_crd_established()).await.unwrap();
    };
    INSTALLED.get_or_init(install).await;
    Api::namespaced(client.clone(), namespace)
}

pub(super) fn sample(namespace: &str, name: &str) -> Sample {
    let mut sample = Sample::new(name, SampleSpec { text: "hello".to_owned(), more: None });
    sample.metadata.namespace = Some(namespace.to_owned());
    sample
}

fn at(generation: Option<i64>, second: i64) -> Moment {
    Moment { generation, now: Timestamp::from_second(second).unwrap() }
}

const SYNCED: Reason = Reason::new("Synced");

#[tokio::test]
async fn a_status_is_written_once_and_only_when_it_says_something_new() {
    let (client, namespace) = namespace().await;
    let api = samples(&client, &namespace).await;
    let object = api.create(&PostParams::default(), &sample(&namespace, "a")).await.unwrap();
    let writer = StatusWriter::new(Applier::new(client, "ours"));
    let mut status = SampleStatus { ready: Some(true), target: Some("shop".to_owned()), ..SampleStatus::default() };
    status.conditions.ready(&SYNCED, "all is well", at(object.metadata.generation, 100));
    assert!(writer.write(&object, &status).await.unwrap().is_some());
    let object = api.get("a").await.unwrap();
    assert_eq!(object.status.as_ref(), Some(&status));

    let mut later = status.clone();
    later.conditions = Conditions::default();
    later.conditions.ready(&SYNCED, "all is well", at(object.metadata.generation, 200));
    assert!(writer.write(&object, &later).await.unwrap().is_none());
    assert_eq!(api.get("a").await.unwrap(), object);

    later.target = None;
    later.conditions.stalled(&Reason::new("BadInput"), "change the text", at(object.metadata.generation, 300));
    assert!(writer.write(&object, &later).await.unwrap().is_some());
    let object = api.get("a").await.unwrap();
    assert_eq!(object.status.as_ref(), Some(&later), "the target is gone");
    assert_eq!(writes_in(&namespace, 3).await, 3);
}

#[tokio::test]
async fn row_18_failures_are_seen_in_the_status() {
    let (client, namespace) = namespace().await;
    let api = samples(&client, &namespace).await;
    let object = api.create(&PostParams::default(), &sample(&namespace, "a")).await.unwrap();
    let applier = Applier::new(client, "ours");
    let error = applier.apply(&Sample::new("a", object.spec.clone()), None).await.expect_err("no namespace");
    let mut status = SampleStatus::default();
    status.conditions.stalled(&Reason::of(&error), &error.to_string(), at(object.metadata.generation, 1));
    assert!(StatusWriter::new(applier).write(&object, &status).await.unwrap().is_some());
    let conditions = api.get("a").await.unwrap().status.unwrap().conditions;
    assert!(conditions.is_true(STALLED) && !conditions.is_true(READY));
    let ready = conditions.get(READY).unwrap();
    assert_eq!((&*ready.reason, ready.observed_generation), ("MissingField", Some(1)));
    assert!(ready.message.contains("metadata.namespace"), "{}", ready.message);
}

#[tokio::test]
async fn row_19_conditions_of_others_stay_and_bad_ones_are_refused() {
    let (client, namespace) = namespace().await;
    let api = samples(&client, &namespace).await;
    let object = api.create(&PostParams::default(), &sample(&namespace, "a")).await.unwrap();
    let say = async |manager: &str, condition_type: &str| {
        let mut status = SampleStatus::default();
        status.conditions.set(condition_type, ConditionStatus::True, &SYNCED, "", at(Some(1), 1));
        let seen = api.get("a").await.unwrap();
        StatusWriter::new(Applier::new(client.clone(), manager)).write(&seen, &status).await
    };
    assert!(say("one", "One").await.unwrap().is_some());
    assert!(say("two", "Two").await.unwrap().is_some());
    assert!(say("one", "One").await.unwrap().is_none(), "what the other says is no news");
    let conditions = api.get("a").await.unwrap().status.unwrap().conditions;
    assert!(conditions.is_true("One") && conditions.is_true("Two"));
    let bad = serde_json::json!({"status": {"conditions": [{
        "type": "Bad", "status": "Perhaps", "reason": "R", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"
    }]}});
    let refused = api.patch_status(&object.name_any(), &PatchParams::default(), &Patch::Merge(&bad)).await;
    assert!(refused.is_err_and(|error| error.to_string().contains("Perhaps")));
}

#[tokio::test]
async fn a_deleted_object_is_told_and_one_that_was_made_anew_is_too() {
    let (client, namespace) = namespace().await;
    let api = samples(&client, &namespace).await;
    let object = api.create(&PostParams::default(), &sample(&namespace, "a")).await.unwrap();
    let writer = StatusWriter::new(Applier::new(client, "ours"));
    let status = SampleStatus { ready: Some(true), ..SampleStatus::default() };
    api.delete("a", &DeleteParams::default()).await.unwrap();
    let error = writer.write(&object, &status).await.expect_err("gone");
    assert!(matches!(error, ApplyError::Gone { .. }), "{error}");
    api.create(&PostParams::default(), &sample(&namespace, "a")).await.unwrap();
    let error = writer.write(&object, &status).await.expect_err("gone");
    assert!(matches!(error, ApplyError::Gone { .. }), "{error}");
    let anew = api.get("a").await.unwrap();
    assert!(anew.status.is_none(), "the new object has the status of the old one: {anew:?}");
    assert!(
        writer.write(&anew, &SampleStatus { ready: Some(false), ..SampleStatus::default() }).await.unwrap().is_some()
    );
}

/// A write that was decided on earlier, and arrives after that of a successor, must not bring the older status back.
#[tokio::test]
async fn a_status_is_not_written_over_one_that_was_not_seen() {
    let (client, namespace) = namespace().await;
    let api = samples(&client, &namespace).await;
    api.create(&PostParams::default(), &sample(&namespace, "a")).await.unwrap();
    let writer = StatusWriter::new(Applier::new(client, "ours"));
    let status = |target: &str| SampleStatus { target: Some(target.to_owned()), ..SampleStatus::default() };
    for (late, successor) in [("one", "two"), ("three", "four")] {
        let seen = api.get("a").await.unwrap();
        writer.update(&seen, &status(successor)).await.unwrap().unwrap();
        let refusals = [
            writer.update(&seen, &status(late)).await.map(|_object| ()),
            writer.write(&seen, &status(late)).await.map(drop),
        ];
        for refusal in refusals {
            let error = refusal.expect_err("out of date");
            assert!(matches!(error, ApplyError::OutOfDate { .. }), "{error}");
        }
        assert_eq!(api.get("a").await.unwrap().status.unwrap().target.as_deref(), Some(successor));
        // A repetition of a write whose answer was lost finds its work done.
        assert!(writer.update(&seen, &status(successor)).await.unwrap().is_some());
    }
}

#[tokio::test]
async fn a_change_that_is_no_part_of_our_status_does_not_stop_its_write() {
    let (client, namespace) = namespace().await;
    let api = samples(&client, &namespace).await;
    api.create(&PostParams::default(), &sample(&namespace, "a")).await.unwrap();
    let writer = StatusWriter::new(Applier::new(client.clone(), "ours"));
    let theirs = StatusWriter::new(Applier::new(client, "theirs"));
    let mut sent = 1;
    for text in ["one", "two"] {
        let seen = api.get("a").await.unwrap();
        let labels = serde_json::json!({"metadata": {"labels": {"text": text}}, "spec": {"text": text}});
        api.patch("a", &PatchParams::default(), &Patch::Merge(&labels)).await.unwrap();
        let mut said = seen.status.clone().unwrap_or_default();
        said.conditions.set("Theirs", ConditionStatus::True, &Reason::new("Other"), text, at(Some(1), 1));
        theirs.update(&api.get("a").await.unwrap(), &said).await.unwrap().unwrap();
        let mut status = seen.status.clone().unwrap_or_default();
        status.conditions.ready(&SYNCED, text, at(Some(1), 100));
        let written = writer.update(&seen, &status).await.unwrap().unwrap();
        let conditions = written.status.unwrap().conditions;
        assert_eq!(
            (&*conditions.get(READY).unwrap().message, &*conditions.get("Theirs").unwrap().message),
            (text, text)
        );
        // Two changes, a refusal, a write.
        sent += 4;
        assert_eq!(writes_in(&namespace, sent).await, sent);
    }
}

#[tokio::test]
async fn a_custom_resource_with_nulls_is_in_sync_after_its_apply() {
    let (client, namespace) = namespace().await;
    let api = samples(&client, &namespace).await;
    let applier = Applier::new(client, "ours");
    let desired = sample(&namespace, "a");
    let made = applier.apply(&desired, None).await.unwrap().object;
    StatusWriter::new(applier.clone()).write(&made, &SampleStatus::default()).await.unwrap();
    let seen = api.get("a").await.unwrap();
    let again = Applier::new(applier.client().clone(), "ours").apply(&desired, Some(&seen)).await.unwrap();
    assert!(!again.outcome.is_change());
    assert_eq!(writes_in(&namespace, 2).await, 2);
}

#[tokio::test]
async fn a_field_that_the_definition_does_not_declare_is_left_out_and_the_rest_is_written() {
    let (client, namespace) = namespace().await;
    let api = samples(&client, &namespace).await;
    let object = api.create(&PostParams::default(), &sample(&namespace, "a")).await.unwrap();
    let writer = StatusWriter::new(Applier::new(client.clone(), "ours"));
    // The status of a newer release.
    let status =
        |ready: bool| serde_json::json!({"ready": ready, "phase": "Running", "usage": {"bytes": 7}, "conditions": []});
    assert!(writer.write(&object, &status(true)).await.unwrap().is_some());
    let object = api.get("a").await.unwrap();
    assert_eq!(object.status.as_ref().unwrap().ready, Some(true));
    // The creation, two refusals, a write.
    assert_eq!(writes_in(&namespace, 4).await, 4);
    assert!(writer.write(&object, &status(true)).await.unwrap().is_none());
    assert!(writer.update(&object, &status(true)).await.unwrap().is_none());
    assert_eq!(writes_in(&namespace, 4).await, 4, "what is known needs no request");
    let changed = writer.update(&object, &status(false)).await.unwrap().unwrap();
    assert_eq!(changed.status.unwrap().ready, Some(false));
    // A value of another type is no field that is not declared.
    let error = writer.write(&object, &serde_json::json!({"ready": "text"})).await.expect_err("refused");
    assert!(matches!(error, ApplyError::Refused { .. }), "{error}");
}

/// A kind whose definition does not merge conditions by type.
#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "apply.konverge.dev",
    version = "v1",
    kind = "Aged",
    plural = "ageds",
    namespaced,
    status = "AgedStatus"
)]
struct AgedSpec {}

#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
struct AgedStatus {
    #[serde(default)]
    #[schemars(schema_with = "plain_list")]
    conditions: Conditions,
}

fn plain_list(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
    let mut schema = konverge_apply::conditions::conditions_schema(generator);
    schema.remove("x-kubernetes-list-type");
    schema.remove("x-kubernetes-list-map-keys");
    schema
}

#[tokio::test]
async fn an_older_definition_without_a_merged_list_loses_no_condition_of_others() {
    let (client, namespace) = namespace().await;
    let applier = Applier::new(client.clone(), "ours");
    let definition = applier.apply(&Aged::crd(), None).await.unwrap().object;
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    await_condition(definitions, &definition.name_any(), is_crd_established()).await.unwrap();
    let api: Api<Aged> = Api::namespaced(client, &namespace);
    api.create(&PostParams::default(), &Aged::new("a", AgedSpec {})).await.unwrap();
    let theirs = async |text: &str| {
        let time = "2026-01-01T00:00:00Z";
        let foo = serde_json::json!({"type": "Foo", "status": text, "reason": "R", "message": "", "lastTransitionTime": time});
        let mut all: Vec<_> = api.get("a").await.unwrap().status.unwrap_or_default().conditions.into();
        all.retain(|condition| condition.type_ != "Foo");
        let mut all: Vec<_> = all.iter().map(|condition| serde_json::to_value(condition).unwrap()).collect();
        all.push(foo);
        let patch = serde_json::json!({"status": {"conditions": all}});
        api.patch_status("a", &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap()
    };
    let writer = StatusWriter::new(applier);
    let said = |seen: &Aged, message: &str| {
        let mut status = seen.status.clone().unwrap_or_default();
        status.conditions.ready(&SYNCED, message, at(Some(1), 100));
        status
    };
    // The first write finds out, the later ones know.
    for message in ["first", "second"] {
        let seen = theirs("True").await;
        let written = writer.update(&seen, &said(&seen, message)).await.unwrap().unwrap();
        let conditions = written.status.unwrap().conditions;
        assert!(conditions.is_true("Foo") && conditions.is_true(READY), "{conditions:?}");
    }
    // A copy that is out of date is refused instead of being written back.
    let seen = api.get("a").await.unwrap();
    theirs("False").await;
    let error = writer.update(&seen, &said(&seen, "third")).await.expect_err("out of date");
    assert_eq!(konverge_core::error::Classify::reason(&error), "Conflict", "{error}");
    assert!(!api.get("a").await.unwrap().status.unwrap().conditions.is_true("Foo"));
}
