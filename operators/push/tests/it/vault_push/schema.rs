//! The specs that the API server refuses, and those that it takes.

use konverge_push::object::Kind::VaultPush;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use crate::world::World;

/// The answer of the API server, which keeps nothing.
async fn said(world: &World, spec: &Value) -> Result<(), String> {
    let object = json!({ "apiVersion": "konverge.dev/v1alpha1", "kind": "VaultPush", "metadata": { "name": "x" }, "spec": spec });
    let mut parameters = PatchParams::apply("user").validation_strict();
    parameters.dry_run = true;
    let answer = world.api(VaultPush).patch("x", &parameters, &Patch::Apply(&object)).await;
    answer.map(drop).map_err(|error| error.to_string())
}

#[tokio::test]
async fn every_rule_refuses_what_breaks_it_and_says_what_to_do() {
    let world = World::new().await;
    let selector = || json!({ "selector": { "matchLabels": { "a": "b" } } });
    let spec = |change: Value| {
        let mut spec = json!({ "secrets": { "names": ["db"] }, "mount": "secret", "path": "x" });
        spec.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        spec
    };
    let several = || json!({ "names": ["db", "api"] });
    let expression = |expression: Value| json!({ "path": "x/{secret}", "secrets": { "selector": { "matchExpressions": [expression] } } });
    for (change, expected) in [
        (json!({ "secrets": {} }), "give either names or a selector"),
        (
            json!({ "secrets": { "names": ["a"], "selector": { "matchLabels": { "a": "b" } } }, "path": "x/{secret}" }),
            "give either names or a selector",
        ),
        (json!({ "secrets": { "names": [] } }), "spec.secrets.names"),
        (json!({ "secrets": { "names": ["db", "db"] } }), "uplicate"),
        (json!({ "secrets": { "names": ["../x"] } }), "spec.secrets.names[0]"),
        (json!({ "secrets": { "selector": {} }, "path": "x/{secret}" }), "an empty selector would push every Secret"),
        (json!({ "secrets": { "selector": { "matchLabels": {} } }, "path": "x/{secret}" }), "matchLabels"),
        (expression(json!({ "key": "a", "operator": "In" })), "In and NotIn need values"),
        (expression(json!({ "key": "a", "operator": "Exists", "values": ["b"] })), "Exists and DoesNotExist have none"),
        (expression(json!({ "key": "a", "operator": "Like", "values": ["b"] })), "operator"),
        (json!({ "secrets": selector() }), "with a selector the path must contain {secret}"),
        (json!({ "secrets": several() }), "with several names the path must contain {secret}"),
        (json!({ "secrets": several(), "keys": [{ "from": "a" }] }), "each entry of keys must name its secret"),
        (json!({ "keys": [{ "secret": "other", "from": "a" }] }), "a secret in keys must be one of secrets.names"),
        (
            json!({ "secrets": selector(), "path": "x/{secret}", "keys": [{ "secret": "a", "from": "a" }] }),
            "must be one of secrets.names",
        ),
        (json!({ "keys": [] }), "spec.keys"),
        (json!({ "keys": [{ "from": "a/b" }] }), "spec.keys[0].from"),
        (json!({ "path": "" }), "spec.path"),
        (json!({ "path": "secret/{cluster}" }), "spec.path"),
        (json!({ "path": "secret/{name" }), "spec.path"),
        (json!({ "templates": { "t": "$a" } }), "spec.templates"),
        (json!({ "templates": { "t": "${a" } }), "spec.templates"),
        (json!({ "templates": {} }), "spec.templates"),
        (json!({ "updatePolicy": "Sometimes" }), "spec.updatePolicy"),
        (json!({ "deletionPolicy": "soft" }), "spec.deletionPolicy"),
        (json!({ "existing": "overwrite" }), "spec.existing"),
        (json!({ "binary": "hex" }), "spec.binary"),
        (json!({ "updatePolicy": "Merge", "deletionPolicy": "Destroy" }), "older versions hold keys of others"),
        (json!({ "updatePolicy": "Merge", "engineVersion": 1 }), "needs an engine of version 2"),
        (
            json!({ "updatePolicy": "IfNotExists", "existing": "Adopt" }),
            "existing says nothing with updatePolicy IfNotExists",
        ),
        (json!({ "interval": "29s" }), "the shortest interval is 30s"),
        (json!({ "interval": "1d" }), "spec.interval"),
        (json!({ "engineVersion": 3 }), "spec.engineVersion"),
        (json!({ "mount": "/secret" }), "spec.mount"),
        (json!({ "mount": null }), "spec.mount"),
        (json!({ "path": "/x" }), "spec.path"),
        (json!({ "unknown": 1 }), "unknown"),
    ] {
        let error = said(&world, &spec(change.clone())).await.expect_err(&change.to_string());
        assert!(error.contains(expected), "{change}: {error}");
    }
    for change in [
        json!({}),
        json!({ "interval": "30s", "suspend": true, "keyPrefix": "", "binary": "Refuse", "existing": "Refuse" }),
        json!({ "secrets": several(), "path": "x/{namespace}/{name}/{secret}", "keys": [{ "from": "a" }, { "secret": "db", "from": "b", "to": "c d" }] }),
        json!({ "secrets": several(), "templates": { "t": "${db/a}$$${api/b.c_d-e}" } }),
        json!({ "secrets": selector(), "path": "x/{secret}", "updatePolicy": "Merge", "deletionPolicy": "Keep" }),
        expression(json!({ "key": "a", "operator": "DoesNotExist" })),
        json!({ "updatePolicy": "IfNotExists", "deletionPolicy": "Destroy", "mount": "a/b", "engineVersion": 1 }),
        json!({ "path": "data/x" }),
        json!({ "path": "data/x", "engineVersion": 1 }),
    ] {
        assert_eq!(said(&world, &spec(change.clone())).await, Ok(()), "{change}");
    }
}
