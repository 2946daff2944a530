//! Permissions of triggers, and the status of a refused request.

use http::Request;
use k8s_openapi::api::apps::v1::ReplicaSet;
use konverge_workload::WorkloadKind::Deployment;
use kube::api::ListParams;
use serde_json::{Value, json};

use super::world::{VaultWorld, shared_vault};
use crate::world::{World, new_control_plane, until};

#[tokio::test]
async fn a4_r2_r3_another_namespace_has_to_allow_it() {
    let control_plane = new_control_plane().await;
    let world = VaultWorld::on(World::on(&control_plane).await, shared_vault().await).await;
    world.write("app", "1").await;
    let other = control_plane.namespace("roll").await.unwrap();
    let labels = json!({ "app": "web" });
    let spec = json!({
        "selector": { "matchLabels": labels },
        "template": { "metadata": { "labels": labels }, "spec": { "containers": [{ "name": "main", "image": "x" }] } },
    });
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "web" }, "spec": spec,
    });
    let api: kube::Api<kube::core::DynamicObject> =
        kube::Api::namespaced_with(world.world.client.clone(), &other, &Deployment.resource());
    let apply = kube::api::PatchParams::apply("user").force();
    api.patch("web", &apply, &kube::api::Patch::Apply(&deployment)).await.unwrap();
    let mut asked = world.sample();
    asked["deployNamespace"] = other.as_str().into();
    world.vss("vss", &asked).await;
    // One of its own name in its own namespace is not meant.
    world.world.workload(Deployment, "web", &[], json!({})).await;

    let reach = world.reach(world.vault.address());
    let reach: Vec<_> = reach.iter().map(String::as_str).collect();
    let operator = world.world.operator_everywhere(&reach).await;
    let told = world.says("vss", "NotAllowed").await;
    assert!(told.contains(&format!("roll.konverge.dev/allow-from={}", world.world.namespace)), "{told}");
    world.is("vss", "Error").await;
    world.write("app", "2").await;
    world.settled(&operator).await;
    let sets: kube::Api<ReplicaSet> = kube::Api::namespaced(world.world.client.clone(), &other);
    let templates = async || sets.list_metadata(&ListParams::default()).await.unwrap().items.len();
    assert_eq!(templates().await, 1, "refused");

    let allow = json!({ "metadata": { "annotations": { "roll.konverge.dev/allow-from": world.world.namespace } } });
    api.patch("web", &kube::api::PatchParams::default(), &kube::api::Patch::Merge(allow)).await.unwrap();
    world.says("vss", "InSync").await;
    assert_eq!(templates().await, 1, "first sight");
    world.write("app", "3").await;
    until("it is rolled", async || match templates().await {
        2 => Ok(()),
        other => Err(other.to_string()),
    })
    .await;
    world.settled(&operator).await;
    assert_eq!(templates().await, 2, "once");
    assert_eq!(world.world.templates("web").await, 1);
}

#[tokio::test]
async fn a18_r22_what_cannot_be_followed_is_told_and_asks_vault_for_nothing() {
    let world = VaultWorld::new().await;
    world.world.workload(Deployment, "web", &[], json!({})).await;
    let with = |field: &str, value: Value| {
        let mut spec = world.sample();
        spec[field] = value;
        spec
    };
    let wrong = [
        ("empty", json!({}), "deployName is missing"),
        ("traversal", with("secretPath", json!("../../sys/health")), "`..`"),
        ("system", with("secretEngine", json!("sys")), "nothing beneath sys"),
        ("badname", with("deployName", json!("../web")), "deployName"),
    ];
    for (name, spec, _) in &wrong {
        world.vss(name, spec).await;
    }
    world.vss("nobody", &with("deployName", json!("nobody"))).await;
    let operator = world.operator(&[]).await;
    for (name, _, part) in wrong {
        let told = world.says(name, "InvalidSpec").await;
        assert!(told.contains(part), "{name}: {told}");
        world.world.event(name, "InvalidSpec").await;
        world.is(name, "Error").await;
    }
    world.says("nobody", "WorkloadMissing").await;
    assert!((operator.metric("konverge_roll_vault_questions_total", "").await - 0.0).abs() < 0.5, "Vault was asked");

    // A corrected trigger goes on, and a later object is found.
    world.write("app", "1").await;
    world.vss("traversal", &world.sample()).await;
    world.says("traversal", "InSync").await;
    world.world.workload(Deployment, "nobody", &[], json!({})).await;
    world.says("nobody", "InSync").await;
    let never = json!({ "metadata": { "annotations": { "roll.konverge.dev/on-change": "false" } } });
    world.world.merge(Deployment, "nobody", never).await;
    world.says("nobody", "WorkloadOptedOut").await;
    world.settled(&operator).await;
    for name in ["web", "nobody"] {
        assert_eq!(world.world.templates(name).await, 1, "{name}");
    }
}

#[tokio::test]
async fn a19_the_columns_are_those_of_the_original() {
    let world = VaultWorld::new().await;
    world.vss("vss", &world.sample()).await;
    let path = format!("/apis/stable.example.com/v1/namespaces/{}/vaultsyncstatus", world.world.namespace);
    let request = Request::get(path).header("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io");
    let table: Value = world.world.client.request(request.body(Vec::new()).unwrap()).await.unwrap();
    let columns = table["columnDefinitions"].as_array().unwrap().iter();
    let shown = columns.filter(|column| column["priority"] == 0).map(|column| column["name"].as_str().unwrap());
    let expected = ["Name", "Deployment_Name", "Deployment_Namespace", "Secret_Engine", "Secret_Path", "Sync_Status"];
    assert_eq!(shown.collect::<Vec<_>>(), expected);
}

/// Unknown fields are kept: a definition without them would remove what the original has written.
#[tokio::test]
async fn whatever_the_originals_definition_let_in_stays() {
    let world = VaultWorld::new().await;
    let mut spec = world.sample();
    spec["unheardOf"] = json!({ "a": [1] });
    world.vss("vss", &spec).await;
    assert_eq!(world.object("vss").await["spec"], spec);
    let bare =
        json!({ "apiVersion": "stable.example.com/v1", "kind": "VaultSyncStatus", "metadata": { "name": "bare" } });
    let apply = kube::api::PatchParams::apply("user");
    world.api().patch("bare", &apply, &kube::api::Patch::Apply(&bare)).await.unwrap();
}
