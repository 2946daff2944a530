//! The validation of the API server, and objects that come later.

use http::Request;
use konverge_roll::trigger::TriggerKind::{VaultRollout, VaultSyncStatus};
use konverge_workload::WorkloadKind::Deployment;
use serde_json::{Value, json};

use crate::{
    vault_sync_status::world::{VaultWorld, shared_vault},
    world::{OWN_DEFINITION, World, bare_control_plane},
};

#[tokio::test]
async fn r18_r22_the_api_server_refuses_what_cannot_be_followed_and_says_why() {
    let world = VaultWorld::new().await;
    let spec = |secret: Value, target: Value| json!({ "vaultSecrets": [secret], "targets": [target] });
    let web = || json!({ "kind": "Deployment", "name": "web" });
    let app = || json!({ "mount": "secret", "path": "app" });
    let of = |field: &str, value: Value| {
        let mut secret = app();
        secret[field] = value;
        spec(secret, web())
    };
    for (spec, part) in [
        (json!({ "vaultSecrets": [app()] }), "spec.targets: Required value"),
        (json!({ "vaultSecrets": [], "targets": [web()] }), "should have at least 1 items"),
        (of("path", json!("../../sys/raw")), "no segment may be empty, a dot or two dots"),
        (of("path", json!("a//b")), "no segment may be empty, a dot or two dots"),
        (of("path", json!("/app")), "write it without slashes around"),
        (of("mount", json!("a:b")), "a colon in its name is not understood"),
        (of("mode", json!("loud")), "supported values"),
        (of("keys", json!(["a"])), "which keys have changed is only known with mode Content"),
        (
            spec(json!({ "mount": "old", "path": "app", "engineVersion": 1, "mode": "Version" }), web()),
            "an engine of version 1 has no versions",
        ),
        (spec(app(), json!({ "name": "web" })), "a name needs a kind, such as Deployment"),
        (spec(app(), json!({ "kind": "Deployment" })), "give either a name or a selector"),
        (
            spec(app(), json!({ "kind": "Deployment", "name": "web", "selector": { "matchLabels": { "a": "b" } } })),
            "give either a name or a selector",
        ),
        (spec(app(), json!({ "kind": "Job", "name": "web" })), "supported values"),
        (spec(app(), json!({ "selector": {} })), "an empty selector would roll every workload of the namespace"),
        (spec(app(), json!({ "kind": "Deployment", "name": "Web" })), "spec.targets[0].name"),
    ] {
        let told = world.try_rollout("wrong", &spec).await.unwrap_err().to_string();
        assert!(told.contains(part), "{spec}: {told}");
    }
    world.rollout("right", &spec(app(), web())).await;
    let mut paused = spec(app(), web());
    paused["interval"] = "0s".into();
    let told = world.try_rollout("wrong", &paused).await.unwrap_err().to_string();
    assert!(told.contains("spec.interval") && told.contains("the shortest interval is 1s"), "{told}");
    let mut waits = spec(app(), web());
    waits["waitFor"] = json!({ "secret": "db", "timeout": "0.5s" });
    let told = world.try_rollout("wrong", &waits).await.unwrap_err().to_string();
    assert!(told.contains("spec.waitFor.timeout") && told.contains("the shortest timeout is 1s"), "{told}");
}

/// A rule that costs more than the API server allows would keep the whole definition out; here it takes what is largest.
#[tokio::test]
async fn r14_a_thousand_targets_and_thirty_two_secrets_are_let_in() {
    let world = VaultWorld::new().await;
    let secrets: Vec<_> = (0..32).map(|number| json!({ "mount": "secret", "path": format!("app/{number}") })).collect();
    let targets: Vec<_> =
        (0..1000).map(|number| json!({ "kind": "Deployment", "name": format!("web-{number}") })).collect();
    world.rollout("many", &json!({ "vaultSecrets": secrets, "targets": targets })).await;
}

#[tokio::test]
async fn what_is_shown_of_it_in_a_list() {
    let world = VaultWorld::new().await;
    world.ask(VaultRollout, "one").await;
    let path = format!("/apis/konverge.dev/v1alpha1/namespaces/{}/vaultrollouts", world.world.namespace);
    let request = Request::get(path).header("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io");
    let table: Value = world.world.client.request(request.body(Vec::new()).unwrap()).await.unwrap();
    let columns = table["columnDefinitions"].as_array().unwrap().iter();
    let shown = columns.filter(|column| column["priority"] == 0).map(|column| column["name"].as_str().unwrap());
    assert_eq!(shown.collect::<Vec<_>>(), ["Name", "Ready", "Reason", "In Sync", "Workloads", "Last Rollout", "Age"]);
}

#[tokio::test]
async fn its_definition_may_come_after_the_operator() {
    let control_plane = bare_control_plane().await;
    let world = VaultWorld::on(World::on(&control_plane).await, shared_vault().await).await;
    world.write("app", "1").await;
    world.world.workload(Deployment, "web", &[], json!({})).await;
    let _operator = world.operator(&[]).await;
    // It works on what is there.
    world.world.secret("db", "1").await;
    let all = json!({ "roll.konverge.dev/on-change": "true" });
    world.world.workload(Deployment, "other", &["db"], all).await;
    world.world.noted(Deployment, "other").await;
    control_plane.apply(OWN_DEFINITION).await.unwrap();
    world.ask(VaultRollout, "one").await;
    world.condition(VaultRollout, "one", "Ready", "InSync").await;
    world.write("app", "2").await;
    world.world.rolled("web", 1).await;
}

#[tokio::test]
async fn r3_the_platform_says_which_secrets_may_be_named() {
    let world = VaultWorld::new().await;
    world.write("app", "1").await;
    world.world.workload(Deployment, "web", &[], json!({})).await;
    world.ask(VaultRollout, "own").await;
    let foreign = json!({
        "vaultSecrets": [{ "mount": "secret", "path": world.path("app") }, { "mount": "secret", "path": "platform/root" }],
        "targets": [{ "kind": "Deployment", "name": "web" }],
    });
    world.rollout("foreign", &foreign).await;
    let elsewhere = json!({ "secretPath": "platform/root" });
    world.ask_with(VaultSyncStatus, "elsewhere", elsewhere).await;
    let _operator = world.operator(&["--allow-path", "*=secret/data/{namespace}/*"]).await;
    world.condition(VaultRollout, "own", "Ready", "InSync").await;
    for (kind, name) in [(VaultRollout, "foreign"), (VaultSyncStatus, "elsewhere")] {
        let told = world.condition(kind, name, "Ready", "PathNotAllowed").await;
        assert!(told.contains("secret/data/platform/root") && told.contains("--allow-path"), "{told}");
    }
    let record = world.world.noted(Deployment, "web").await.to_string();
    assert!(!record.contains("platform"), "Vault was not asked for it: {record}");
    world.write("app", "2").await;
    world.world.rolled("web", 1).await;
}
