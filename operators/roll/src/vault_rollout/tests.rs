use std::{sync::Arc, time::Duration};

use konverge_runtime::watch::Guarded;
use konverge_workload::WorkloadKind;
use serde_json::{Value, json};

use super::*;
use crate::{convert::watched, vault_sync_status::VaultSyncStatus};

const SETTINGS: Settings =
    Settings { every: Duration::from_mins(1), restart_on_first_seen: true, allow_path: Vec::new() };

/// The page that shows the conversion.
const PAGE: &str = include_str!("../../../../docs/migrate/vaultsyncstatus.md");
const EXAMPLE: &str = include_str!("../../../../deploy/vaultrollout-example.yaml");

fn object(spec: &Value) -> Value {
    json!({
        "apiVersion": "konverge.dev/v1alpha1", "kind": "VaultRollout",
        "metadata": { "namespace": "shop", "name": "web", "uid": "u", "generation": 1, "resourceVersion": "1" },
        "spec": spec,
    })
}

fn asked(spec: &Value) -> Result<Arc<TriggerSpec>, Arc<str>> {
    let object: Guarded<VaultRollout> = serde_json::from_value(object(spec)).unwrap();
    watched(object, &SETTINGS).unwrap().1.spec.map_err(|refusal| refusal.text)
}

fn sample() -> Value {
    json!({
        "vaultSecrets": [{ "mount": "secret", "path": "shop/web" }],
        "targets": [{ "kind": "Deployment", "name": "web" }],
    })
}

fn with(pointer: &str, value: Value) -> Value {
    let mut spec = sample();
    match pointer.rsplit_once('/') {
        Some(("", field)) => spec[field] = value,
        Some((parent, field)) => spec.pointer_mut(parent).unwrap()[field] = value,
        None => unreachable!("a pointer begins with a slash"),
    }
    spec
}

#[test]
fn r14_several_secrets_and_targets_and_labels() {
    use WorkloadKind::{CronJob, Deployment, StatefulSet};

    let spec = asked(&json!({
        "vaultSecrets": [
            { "mount": "secret", "path": "shop/web" },
            { "mount": "secret", "path": "shop/db", "mode": "Content", "keys": ["a"] },
            { "mount": "secret", "path": "shop/db", "mode": "Content", "keys": ["b"] },
            { "mount": "old", "path": "app", "engineVersion": 1 },
        ],
        "targets": [
            { "kind": "Deployment", "name": "web" },
            { "kind": "Rollout", "name": "api", "namespace": "other" },
            { "selector": { "matchLabels": { "app": "web" }, "matchExpressions": [{ "key": "tier", "operator": "Exists" }] } },
            { "kind": "CronJob", "selector": { "matchLabels": { "app": "job" } } },
        ],
        "interval": "90s",
        "suspend": true,
    }))
    .unwrap();
    let sources: Vec<_> = spec.sources.keys().map(ToString::to_string).collect();
    assert_eq!(sources, ["Vault/secret:shop/web", "VaultContent/secret:shop/db", "VaultV1/old:app"]);
    let keys = spec.sources.values().nth(1).unwrap();
    assert!(keys.contains("a") && keys.contains("b") && !keys.contains("c"));
    let targets: Vec<_> = spec.targets.iter().map(ToString::to_string).collect();
    assert_eq!(targets, ["Rollout other/api", "Deployment shop/web"]);
    assert_eq!((spec.every, spec.suspended, spec.before), (Duration::from_secs(90), true, Before::Adopted));
    let chooses = |kind, namespace: &str, labels: &[&str]| {
        let key = WorkloadRef { namespace: namespace.to_owned(), kind, name: "x".to_owned() };
        let labels = labels.iter().map(|label| label.split_once('=').unwrap());
        spec.chooses(&key, &labels.map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
    };
    assert!(chooses(StatefulSet, "shop", &["app=web", "tier=x"]) && chooses(CronJob, "shop", &["app=job"]));
    assert!(!chooses(StatefulSet, "shop", &["app=web"]), "one of two conditions");
    assert!(!chooses(Deployment, "shop", &["app=job"]), "another kind");
    assert!(!chooses(CronJob, "other", &["app=job"]), "another namespace");
}

#[test]
fn r18_what_is_wrong_is_named() {
    let secret = |field: &str, value| with(&format!("/vaultSecrets/0/{field}"), value);
    let target = |field: &str, value| with(&format!("/targets/0/{field}"), value);
    for (spec, part) in [
        (json!({}), "vaultSecrets"),
        (with("/vaultSecrets", json!([])), "spec.vaultSecrets is empty"),
        (with("/targets", json!([])), "spec.targets is empty"),
        (secret("path", json!("../../sys/raw")), "`..`"),
        (secret("mount", json!("sys")), "nothing beneath sys"),
        (secret("mount", json!("a:b")), "colon"),
        (secret("mode", json!("loud")), "spec.vaultSecrets[0].mode"),
        (secret("keys", json!(["a"])), "spec.vaultSecrets[0].keys"),
        (secret("engineVersion", json!(3)), "spec.vaultSecrets[0].engineVersion"),
        (target("kind", json!("Job")), "spec.targets[0].kind"),
        (target("kind", Value::Null), "spec.targets[0].kind is missing"),
        (target("name", json!("../web")), "spec.targets[0].name"),
        (target("name", Value::Null), "either a name or a selector"),
        (target("namespace", json!("a/b")), "spec.targets[0].namespace"),
        (target("selector", json!({ "matchLabels": { "a": "b" } })), "either a name or a selector"),
        (with("/targets", json!([{ "selector": {} }])), "it is empty"),
        (
            with("/targets", json!([{ "selector": { "matchExpressions": [{ "key": "a", "operator": "Like" }] } }])),
            "no operator",
        ),
        (with("/interval", json!("0s")), "spec.interval"),
    ] {
        let cause = asked(&spec).unwrap_err();
        assert!(cause.contains(part), "{spec}: {cause}");
    }
}

#[test]
fn a_status_that_came_along_with_a_copy_counts_for_nothing() {
    let mut object = object(&sample());
    object["status"] = json!({ "uid": "other", "inSyncWorkloads": 1 });
    let object: Guarded<VaultRollout> = serde_json::from_value(object).unwrap();
    assert_eq!(watched(object, &SETTINGS).unwrap().1.status.in_sync_workloads, None);
}

#[test]
fn the_examples_are_understood() {
    let documents: Vec<_> = EXAMPLE.split("\n---\n").collect();
    assert!(documents.len() > 1);
    for document in documents {
        let object: Guarded<VaultRollout> = serde_saphyr::from_str(document).unwrap();
        let (key, mut shown) = watched(with_uid(object), &SETTINGS).unwrap();
        assert!(shown.spec.is_ok() && !shown.deleting, "{key}: {:?}", shown.spec);
        shown.deleting = true;
        assert_eq!(shown.spec(), None, "it is going");
    }
}

/// A manifest has none before it is applied.
fn with_uid(object: Guarded<VaultRollout>) -> Guarded<VaultRollout> {
    let mut object = object.0.unwrap();
    object.metadata.uid = Some("u".to_owned());
    Guarded(Ok(object))
}

/// The page shows one declaration in both spellings, and both ask for the same.
#[test]
fn the_conversion_of_the_page_asks_for_the_same() {
    let section = PAGE.split("\n## From VaultSyncStatus to VaultRollout\n").nth(1).unwrap();
    let mut blocks = section.split("\n```yaml\n").skip(1).map(|rest| rest.split("\n```").next().unwrap());
    let (before, after) = (blocks.next().unwrap(), blocks.next().unwrap());
    let mut before: VaultSyncStatus = serde_saphyr::from_str(before).unwrap();
    before.metadata.uid = Some("u".to_owned());
    let before = watched(Guarded(Ok(before)), &SETTINGS).unwrap().1;
    let after: Guarded<VaultRollout> = serde_saphyr::from_str(after).unwrap();
    let after = watched(with_uid(after), &SETTINGS).unwrap().1;
    let (before, after) = (before.spec.unwrap(), after.spec.unwrap());
    // The first sight of the original's is up to the operator's settings, that of ours rolls nothing.
    assert_eq!(TriggerSpec { before: Before::Adopted, ..(*before).clone() }, *after);
}
