//! The least role of the token for each feature, as docs/manage.md names them.

use konverge::kube::Api;
use konverge_manage::api::{
    v1::{
        OZGroup, OZGroupSpec, OZPolicy, OZPolicySpec, OZResource, OZResourceSpec, OZRoutingPeer, OZRoutingPeerSpec,
        OZSetupKey, OZSetupKeySpec,
    },
    v1alpha1::{Group, GroupSpec, NetworkRouter, NetworkRouterSpec, SetupKey, SetupKeySpec},
};
use konverge_openzro::Collection;
use serde_json::{from_value, json};

use crate::stage::Stage;

fn policy(ports: &[u16]) -> OZPolicySpec {
    let spec = json!({ "name": "web", "sourceGroups": ["All"], "destinationGroups": ["All"], "protocols": ["tcp"], "ports": ports });
    from_value(spec).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_network_admin_suffices_for_groups_policies_and_resources_and_for_no_setup_key() {
    let stage = Stage::set().await;
    let file = stage.write_token(stage.token("network_admin"));
    let _operator = stage.start(&["--allow=*=*", "--openzro-api-key-file", &file]).await;
    let (oz_groups, groups, resources) = (stage.api::<OZGroup>(), stage.api::<Group>(), stage.api::<OZResource>());
    let policies = Api::<OZPolicy>::all(stage.client.clone());
    let network = stage.by_hand(&Collection::Networks, json!({ "name": "n", "description": "" })).await;
    stage.create(&oz_groups, &OZGroup::new("devs", OZGroupSpec { name: "devs".to_owned() })).await;
    stage.create(&groups, &Group::new("ops", GroupSpec { name: "ops".to_owned() })).await;
    stage.create(&policies, &OZPolicy::new("web", policy(&[80]))).await;
    let spec = json!({ "name": "db", "networkID": network, "address": "10.0.0.1", "groups": ["devs"] });
    stage.create(&resources, &OZResource::new("db", from_value::<OZResourceSpec>(spec).unwrap())).await;
    stage.says(&oz_groups, "devs", "Ready", "Reconciled").await;
    stage.says(&groups, "ops", "Ready", "Reconciled").await;
    stage.says(&policies, "web", "Ready", "Reconciled").await;
    stage.says(&resources, "db", "Ready", "Reconciled").await;
    stage.patch(&groups, "ops", json!({ "spec": { "name": "sre" } })).await;
    stage.patch(&policies, "web", json!({ "spec": { "ports": [443] } })).await;
    stage.patch(&resources, "db", json!({ "spec": { "address": "10.0.0.2" } })).await;
    stage.says(&groups, "ops", "Ready", "Reconciled").await;
    stage.says(&policies, "web", "Ready", "Reconciled").await;
    stage.says(&resources, "db", "Ready", "Reconciled").await;

    // Setup keys, and routing peers, which need one, ask for an administrator.
    let (keys, oz_keys) = (stage.api::<SetupKey>(), stage.api::<OZSetupKey>());
    let (peers, routers) = (stage.api::<OZRoutingPeer>(), stage.api::<NetworkRouter>());
    let key = json!({ "name": "k", "ephemeral": true });
    stage.create(&keys, &SetupKey::new("k", from_value::<SetupKeySpec>(key).unwrap())).await;
    stage
        .create(&oz_keys, &OZSetupKey::new("oz", from_value::<OZSetupKeySpec>(json!({ "name": "oz" })).unwrap()))
        .await;
    let peer = from_value::<OZRoutingPeerSpec>(json!({ "replicas": 1 })).unwrap();
    stage.create(&peers, &OZRoutingPeer::new("router", peer)).await;
    let router = from_value::<NetworkRouterSpec>(json!({ "dnsZoneRef": { "name": "prod.example" } })).unwrap();
    stage.create(&routers, &NetworkRouter::new("edge", router)).await;
    stage.says(&keys, "k", "Stalled", "PermissionDenied").await;
    stage.says(&oz_keys, "oz", "Stalled", "PermissionDenied").await;
    let refused = stage.says(&peers, "router", "Stalled", "PermissionDenied").await.status.unwrap();
    let message = &refused.standard.conditions.get("Stalled").unwrap().message;
    assert!(message.contains("setup key"), "{message}");
    stage.says(&routers, "edge", "Reconciling", "Dependency").await;

    // All of them can be deleted by the same token.
    stage.delete(&resources, "db").await;
    stage.gone(&resources, "db").await;
    stage.delete(&policies, "web").await;
    stage.delete(&groups, "ops").await;
    stage.delete(&oz_groups, "devs").await;
    stage.delete(&keys, "k").await;
    stage.delete(&oz_keys, "oz").await;
    stage.delete(&peers, "router").await;
    stage.delete(&routers, "edge").await;
    stage.gone(&policies, "web").await;
    stage.gone(&groups, "ops").await;
    stage.gone(&oz_groups, "devs").await;
    stage.gone(&keys, "k").await;
    stage.gone(&oz_keys, "oz").await;
    stage.gone(&peers, "router").await;
    stage.gone(&routers, "edge").await;
    assert_eq!(stage.on_server(&Collection::Networks).await.into_keys().collect::<Vec<_>>(), ["n"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_suffices_for_a_dry_run() {
    let stage = Stage::set().await;
    let groups = stage.api::<Group>();
    stage.create(&groups, &Group::new("ops", GroupSpec { name: "ops".to_owned() })).await;
    let policies = Api::<OZPolicy>::all(stage.client.clone());
    stage.create(&policies, &OZPolicy::new("web", policy(&[80]))).await;
    let peer = from_value::<OZRoutingPeerSpec>(json!({ "replicas": 1 })).unwrap();
    stage.create(&stage.api(), &OZRoutingPeer::new("router", peer)).await;
    let file = stage.write_token(stage.token("user"));
    let operator = stage.start(&["--allow=*=*", "--openzro-api-key-file", &file, "--dry-run"]).await;
    stage.settled(&operator).await;
    let asked = |path: &str| stage.front.journal().iter().filter(|seen| seen.path.ends_with(path)).count();
    assert!(["/groups", "/policies", "/networks"].iter().all(|path| asked(path) > 1), "{:#?}", stage.calls());
    let journal = stage.front.journal();
    assert!(journal.iter().all(|seen| seen.method == "GET" && seen.status != Some(403)), "{:#?}", stage.calls());
}
