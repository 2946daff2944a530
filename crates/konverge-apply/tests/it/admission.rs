//! Writes that admission changes, and objects that other clients create first.

use std::sync::atomic::{AtomicUsize, Ordering};

use k8s_openapi::api::core::v1::ConfigMap;
use konverge_apply::{
    Applier, ApplyError, ApplyOutcome, DesiredSet, Outcome, Owner, SecretApplier, SecretMetadata, SecretTarget,
    SetError, StatusWriter,
};
use konverge_core::error::{Classify, ErrorClass};
use konverge_testkit::{Replaced, ReplacingPolicy};
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use serde_json::json;

use super::status::{SampleStatus, sample, samples};
use super::*;

fn config_map(namespace: &str, name: &str, data: &[(&str, &str)]) -> ConfigMap {
    serde_json::from_value(json!({
        "metadata": {"namespace": namespace, "name": name}, "data": data.iter().copied().collect::<BTreeMap<_, _>>()
    }))
    .unwrap()
}

/// A policy that replaces the value under `replaced`.
async fn replacing(client: &Client, namespace: &str, resource: &str, value: &str) -> ReplacingPolicy {
    ReplacingPolicy::create(client, namespace, resource, "replaced", value).await.unwrap()
}

/// Applies until the answer is as expected: the API server heeds policies a little after they are there.
async fn until<T, F: Future<Output = Result<T, ApplyError>>>(
    attempt: impl Fn() -> F,
    is_expected: impl Fn(&Result<T, ApplyError>) -> bool,
) -> Result<T, ApplyError> {
    let (attempt, is_expected) = (&attempt, &is_expected);
    let found = eventually(Duration::from_secs(30), move || async move { Some(attempt().await).filter(is_expected) });
    found.await.unwrap_or_else(|_| panic!("the policy has no effect, or does not end"))
}

fn is_altered<T>(result: &Result<T, ApplyError>) -> bool {
    matches!(result, Err(ApplyError::Altered { .. }))
}

#[tokio::test]
async fn a_value_that_a_policy_replaces_is_not_in_sync_and_heals_once_the_policy_is_gone() {
    let (client, namespace) = namespace().await;
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), &namespace);
    let applier = Applier::new(client.clone(), "ours");
    let policy = replacing(&client, &namespace, "configmaps", "by policy").await;
    let wanted = config_map(&namespace, "app", &[("kept", "1"), ("replaced", "ours")]);
    let error = until(|| applier.apply(&wanted, None), is_altered).await.expect_err("altered");
    let ApplyError::Altered { fields, resource_version, .. } = &error else { panic!("{error}") };
    assert_eq!(fields.iter().map(ToString::to_string).collect::<Vec<_>>(), [".data.replaced"]);
    let stored = api.get("app").await.unwrap();
    assert_eq!(stored.resource_version().as_ref(), Some(resource_version));
    let text = error.to_string();
    assert!(text.contains(&format!("ConfigMap {namespace}/app")) && !text.contains("by policy"), "{text}");
    assert_eq!((error.reason(), error.class()), ("AlteredByAdmission", ErrorClass::Refused));
    // Neither what was remembered nor what is seen makes it in sync, and repeating changes nothing.
    let again = applier.apply(&wanted, Some(&stored)).await.expect_err("altered again");
    assert!(matches!(again, ApplyError::Altered { .. }), "{again}");
    assert_eq!(api.get("app").await.unwrap().resource_version(), stored.resource_version());

    policy.lift().await.unwrap();
    let healed = until(|| applier.apply(&wanted, Some(&stored)), Result::is_ok).await.unwrap();
    assert_eq!(healed.outcome, ApplyOutcome::Changed);
    assert_eq!(api.get("app").await.unwrap().data, wanted.data);
}

#[tokio::test]
async fn a_child_that_admission_changes_is_reported_and_keeps_nothing_from_being_pruned() {
    let (client, namespace) = namespace().await;
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), &namespace);
    let owners = samples(&client, &namespace).await;
    let owner = owners.create(&PostParams::default(), &sample(&namespace, "owner")).await.unwrap();
    let applier = Applier::new(client.clone(), "ours");
    let set = || DesiredSet::new(Owner::of(&owner).unwrap());
    assert!(set().add(config_map(&namespace, "old", &[])).apply(&applier).await.unwrap().is_change());
    let _policy = replacing(&client, &namespace, "configmaps", "by policy").await;
    let probe = config_map(&namespace, "probe", &[("replaced", "x")]);
    let _ = until(|| applier.apply(&probe, None), is_altered).await;
    let old = api.get("old").await.unwrap();
    let wanted = config_map(&namespace, "app", &[("replaced", "ours")]);
    let error = set().observe([&old]).add(wanted).apply(&applier).await.expect_err("altered");
    let SetError::Children { failed, done } = &error else { panic!("{error}") };
    assert!(matches!(&failed[..], [ApplyError::Altered { .. }]), "{error}");
    assert_eq!((done.children.len(), done.pruned.len()), (1, 1));
    assert!(api.get_opt("old").await.unwrap().is_none());
}

#[tokio::test]
async fn a_value_of_a_secret_that_a_policy_replaces_is_named_and_never_shown() {
    let (client, namespace) = namespace().await;
    let api: Api<Secret> = Api::namespaced(client.clone(), &namespace);
    let object = api.create(&PostParams::default(), &secret("db", &[])).await.unwrap();
    let policy = replacing(&client, &namespace, "secrets", "cG9saWN5").await;
    let applier = SecretApplier::new(client, "ours");
    let uid = object.uid().unwrap();
    let target = SecretTarget { namespace: &namespace, name: "db", uid: &uid, resource_version: None };
    let (metadata, data) = (SecretMetadata::default(), values(&[("kept", "1"), ("replaced", "hunter2")]));
    let error = until(|| applier.apply(target, &metadata, &data), is_altered).await.expect_err("altered");
    let text = format!("{error} {error:?}");
    assert!(text.contains(".data.replaced") && !text.contains(".data.kept"), "{text}");
    assert!(!text.contains("hunter2") && !text.contains("policy\"") && !text.contains("cG9saWN5"), "{text}");
    policy.lift().await.unwrap();
    let healed = until(|| applier.apply(target, &metadata, &data), Result::is_ok).await.unwrap();
    assert!(matches!(healed, Outcome::Changed { .. }));
    assert_eq!(stored(&api, "db").await, pairs(&[("kept", "1"), ("replaced", "hunter2")]));
}

#[tokio::test]
async fn a_status_that_a_policy_changes_is_reported_with_its_fields_and_heals_once_the_policy_is_gone() {
    let (client, namespace) = namespace().await;
    let api = samples(&client, &namespace).await;
    api.create(&PostParams::default(), &sample(&namespace, "a")).await.unwrap();
    let target = Replaced {
        group: "apply.konverge.dev",
        version: "v1",
        resource: "samples/status",
        path: "/status/target",
        condition: "has(object.status) && has(object.status.target)",
    };
    let policy = ReplacingPolicy::create_for(&client, &namespace, target, "by policy").await.unwrap();
    let writer = StatusWriter::new(Applier::new(client, "ours"));
    let wanting = |target: &str| SampleStatus { target: Some(target.to_owned()), ..SampleStatus::default() };
    // A status that is as wanted is not sent again.
    let count = AtomicUsize::new(0);
    let attempt = async || {
        let wanted = wanting(&format!("ours {}", count.fetch_add(1, Ordering::Relaxed)));
        writer.write(&api.get("a").await.unwrap(), &wanted).await
    };
    let error = until(attempt, is_altered).await.expect_err("altered");
    let wanted = wanting("ours");
    let ApplyError::Altered { fields, resource_version, .. } = &error else { panic!("{error}") };
    assert_eq!(fields.iter().map(ToString::to_string).collect::<Vec<_>>(), [".status.target"]);
    assert_eq!((error.reason(), error.class()), ("AlteredByAdmission", ErrorClass::Refused));
    let stored = api.get("a").await.unwrap();
    assert_eq!(stored.resource_version().as_ref(), Some(resource_version));
    assert_eq!(stored.status.as_ref().unwrap().target.as_deref(), Some("by policy"));
    let again = writer.update(&stored, &wanted).await.expect_err("altered again");
    assert!(matches!(again, ApplyError::Altered { .. }), "{again}");
    assert_eq!(api.get("a").await.unwrap().resource_version(), stored.resource_version(), "repeating changes nothing");

    policy.lift().await.unwrap();
    let written = until(
        async || writer.write(&api.get("a").await.unwrap(), &wanted).await,
        |result| result.as_ref().is_ok_and(Option::is_some),
    );
    assert_eq!(written.await.unwrap().unwrap().status, Some(wanted));
}

#[tokio::test]
async fn creating_never_touches_an_object_that_another_client_has_made() {
    let (client, namespace) = namespace().await;
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), &namespace);
    let applier = Applier::new(client.clone(), "ours");
    let wanted = config_map(&namespace, "app", &[("a", "1")]);
    // Also one that nobody disagrees about.
    let theirs = api.create(&PostParams::default(), &config_map(&namespace, "app", &[])).await.unwrap();
    let error = applier.create(&wanted).await.expect_err("another was quicker");
    assert!(matches!(error, ApplyError::OutOfDate { .. }), "{error}");
    assert_eq!(error.class(), ErrorClass::Transient);
    assert_eq!(api.get("app").await.unwrap(), theirs);

    let made = applier.create(&config_map(&namespace, "new", &[("a", "1")])).await.unwrap();
    assert_eq!(made.outcome, ApplyOutcome::Created);
    // A created object counts as applied: a repetition sends nothing, and a field that is no longer desired is removed.
    let fewer = applier.apply(&config_map(&namespace, "new", &[]), Some(&made.object)).await.unwrap();
    assert!(fewer.object.data.unwrap_or_default().is_empty());

    let owners = samples(&client, &namespace).await;
    let owner = owners.create(&PostParams::default(), &sample(&namespace, "owner")).await.unwrap();
    let set = DesiredSet::new(Owner::of(&owner).unwrap()).add_new(wanted);
    let error = set.apply(&applier).await.expect_err("another was quicker");
    assert_eq!(error.reason(), "Conflict", "{error}");
    assert_eq!(api.get("app").await.unwrap(), theirs);
    // A custom resource is created in the same way.
    let made = applier.create(&sample(&namespace, "other")).await.unwrap();
    assert_eq!(made.outcome, ApplyOutcome::Created);
    assert!(applier.create(&sample(&namespace, "other")).await.is_err());
    let by_hand = json!({"metadata": {"labels": {"a": "b"}}});
    owners.patch("other", &PatchParams::default(), &Patch::Merge(&by_hand)).await.unwrap();
    assert_eq!(owners.list(&ListParams::default()).await.unwrap().items.len(), 2);
}
