//! Specs and the requests that they become, also of objects that no schema of ours accepted.

use serde_json::{Value, json};

use super::*;
use crate::{
    object::Kind,
    spec::{DeletionPolicy, ExistingPolicy, UpdatePolicy},
};

fn watched(spec: &Value) -> WatchedObject {
    let key = ObjectRef { kind: Kind::VaultPush, namespace: "shop".to_owned(), name: "all".to_owned() };
    let metadata = json!({ "name": "all", "namespace": "shop", "uid": "1", "resourceVersion": "7", "generation": 3 });
    let object =
        json!({ "apiVersion": "konverge.dev/v1alpha1", "kind": "VaultPush", "metadata": metadata, "spec": spec });
    watched_object(&key, serde_json::from_value(object).unwrap()).unwrap()
}

fn push_of(spec: &Value) -> Arc<Push> {
    match watched(spec).spec {
        ParsedSpec::Push(push) => push,
        other => panic!("{other:?}"),
    }
}

fn cause(spec: &Value) -> (&'static str, String) {
    match watched(spec).spec {
        ParsedSpec::Invalid(invalid, _) => (invalid.reason(), invalid.to_string()),
        other => panic!("{other:?}"),
    }
}

fn path(push: &Push, target: &str) -> String {
    push.path("clusters/one/", target).unwrap().to_string()
}

#[test]
fn the_least_that_can_be_said_is_said_as_an_annotation_would() {
    let push = push_of(&json!({ "secrets": { "names": ["db"] }, "mount": "secret", "path": "{namespace}/{name}" }));
    let asked = &push.spec;
    assert_eq!((asked.update, asked.deletion, asked.existing, asked.every), (UpdatePolicy::Replace, None, None, None));
    assert!(!asked.paused && asked.binary.is_none());
    assert_eq!(path(&push, ""), "clusters/one/secret/shop/all");
    assert_eq!(asked.engine, Engine::Beneath { mount: "secret".to_owned(), version: None });
    assert_eq!(push.wanted.targets(), [""].into());
    assert_eq!(push.wanted.names(), ["db"].into());
    assert!(push.wanted.selector().is_none());
}

#[test]
fn all_that_can_be_said() {
    let push = push_of(&json!({
        "secrets": { "selector": {
            "matchLabels": { "app": "shop" },
            "matchExpressions": [
                { "key": "tier", "operator": "In", "values": ["a", "b"] }, { "key": "old", "operator": "DoesNotExist" },
            ],
        } },
        "mount": "kv", "path": "{secret}/x", "keys": [{ "from": "a", "to": "b" }], "keyPrefix": "p_", "templates": { "t": "${a}" },
        "updatePolicy": "Merge", "deletionPolicy": "Keep", "existing": "Refuse", "interval": "1m30s", "suspend": true,
        "engineVersion": 1,
    }));
    let Wanted::Composed(composition) = &push.wanted else { panic!() };
    assert_eq!(composition.selector().unwrap().to_string(), "app=shop,tier in (a,b),!old");
    assert_eq!(path(&push, "db"), "clusters/one/kv/db/x");
    let asked = &push.spec;
    assert_eq!((asked.update, asked.deletion), (UpdatePolicy::Merge, Some(DeletionPolicy::Keep)));
    assert_eq!((asked.existing, asked.paused), (Some(ExistingPolicy::Refuse), true));
    assert_eq!(asked.every.unwrap().as_secs(), 90);
    assert_eq!(asked.engine, Engine::Beneath { mount: "kv".to_owned(), version: Some(KvVersion::One) });
    let found = composition.of(["db".to_owned(), "api".to_owned()].into());
    assert_eq!(found.targets(), ["api", "db"].into());
}

#[test]
fn what_cannot_be_followed_says_why() {
    let with = |change: &Value| {
        let mut spec = json!({ "secrets": { "names": ["db", "api"] }, "mount": "secret", "path": "x/{secret}" });
        spec.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        spec
    };
    for (change, reason, text) in [
        (json!({ "templates": { "t": "${other/a}" } }), "InvalidTemplate", "other is not one of secrets.names"),
        (json!({ "templates": { "t": "$a" } }), "InvalidTemplate", "write $$"),
        (json!({ "templates": { "t": "${a}" }, "path": "y" }), "InvalidTemplate", "${secret/a}"),
        (json!({ "secrets": {} }), "InvalidSpec", "either names or a selector"),
        (json!({ "secrets": { "selector": {} } }), "InvalidSpec", "selector is empty"),
        (json!({ "interval": "1s" }), "InvalidSpec", "below 30 s"),
        (json!({ "interval": "soon" }), "InvalidSpec", "interval"),
        (json!({ "mount": ".." }), "InvalidSpec", "mount"),
        (json!({ "updatePolicy": "Sometimes" }), "InvalidSpec", "Sometimes"),
        (json!({ "path": 7 }), "InvalidSpec", "string"),
    ] {
        let (found, cause) = cause(&with(&change));
        assert_eq!(found, reason, "{change}: {cause}");
        assert!(cause.contains(text), "{change}: {cause}");
    }
}

#[test]
fn a_status_that_came_along_with_a_copy_is_no_record() {
    let key = ObjectRef { kind: Kind::VaultPush, namespace: "shop".to_owned(), name: "all".to_owned() };
    let spec = json!({ "secrets": { "names": ["db"] }, "mount": "secret", "path": "x" });
    let record = |uid: &str| {
        let metadata = json!({ "name": "all", "namespace": "shop", "uid": "1", "generation": 3 });
        let status = json!({ "uid": uid, "observedGeneration": 3, "paths": [{ "location": "secret/data/x", "mount": "secret", "kv": 2 }] });
        let object = json!({ "metadata": metadata, "spec": spec, "status": status });
        watched_object(&key, serde_json::from_value(object).unwrap()).unwrap().record
    };
    assert!(record("1").is_some_and(|text| Record::read(&text, "1").is_some_and(|record| record.paths.len() == 1)));
    assert_eq!(record("2"), None);
}
