//! Nothing is made in openZro before the API server would accept every object of the cluster that belongs to it.

use k8s_openapi::api::core::v1::Secret;
use konverge::kube::{
    Api,
    api::{DynamicObject, PostParams},
    core::{ApiResource, GroupVersionKind},
};
use konverge_manage::api::{
    v1::{OZResource, OZResourceSpec, OZRoutingPeer, OZRoutingPeerSpec},
    v1alpha1::{NetworkRouter, NetworkRouterSpec},
};
use konverge_openzro::Collection;
use konverge_testkit::DenyingPolicy;
use serde_json::{from_value, json};

use crate::stage::Stage;

/// Waits until the API server refuses the object, which it does a moment after the policy was made.
async fn is_heeded(stage: &Stage, (api_version, kind, plural): (&str, &str, &str), name: &str) {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let resource = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural);
    let objects = Api::<DynamicObject>::namespaced_with(stage.client.clone(), &stage.namespace, &resource);
    let spec = json!({ "name": "n", "ephemeral": false });
    let object =
        DynamicObject::new(name, &resource).data(if group.is_empty() { json!({}) } else { json!({ "spec": spec }) });
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    stage
        .until("the policy is heeded", async || {
            objects.create(&dry_run, &object).await.is_err_and(|error| error.to_string().contains("not this one"))
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_child_that_the_api_server_refuses_makes_nothing_in_openzro() {
    let (group, key) = (("openzro.io/v1alpha1", "Group", "groups"), ("openzro.io/v1alpha1", "SetupKey", "setupkeys"));
    let secret = ("v1", "Secret", "secrets");
    for (kind, refused, name) in [
        ("OZRoutingPeer", ("openzro.io/v1", "OZGroup", "ozgroups"), "r"),
        ("OZRoutingPeer", secret, "r"),
        ("NetworkRouter", group, "networkrouter-r"),
        ("NetworkRouter", key, "networkrouter-r"),
        ("NetworkRouter", secret, "setup-key-networkrouter-r"),
    ] {
        let stage = Stage::set().await;
        let operator = stage.start(&[]).await;
        let denied = DenyingPolicy::create(&stage.client, &stage.namespace, &[(refused.2, name)]).await.unwrap();
        is_heeded(&stage, refused, name).await;
        let (peers, routers) = (stage.api::<OZRoutingPeer>(), stage.api::<NetworkRouter>());
        if kind == "OZRoutingPeer" {
            let spec = from_value::<OZRoutingPeerSpec>(json!({})).unwrap();
            stage.create(&peers, &OZRoutingPeer::new("r", spec)).await;
        } else {
            let spec = from_value::<NetworkRouterSpec>(json!({ "dnsZoneRef": { "name": "none" } })).unwrap();
            stage.create(&routers, &NetworkRouter::new("r", spec)).await;
        }
        let is_told = async || {
            let peer = peers.get_opt("r").await.unwrap().and_then(|peer| peer.status).map(|status| status.standard);
            let router = routers.get_opt("r").await.unwrap().and_then(|router| router.status);
            let conditions = peer.or(router.map(|status| status.standard)).unwrap_or_default().conditions;
            conditions.get("Stalled").is_some_and(|stalled| stalled.message.contains("not this one"))
        };
        stage.until("the object says which child is refused", is_told).await;
        stage.settled(&operator).await;
        assert_eq!(stage.writes(), 0, "{kind} {refused:?}: {:#?}", stage.calls());

        denied.lift().await.unwrap();
        let again = json!({ "metadata": { "annotations": { "konverge.dev/reconcile-at": "1" } } });
        if kind == "OZRoutingPeer" {
            stage.patch(&peers, "r", again).await;
            stage.says(&peers, "r", "Reconciling", "WaitingForPods").await;
        } else {
            stage.patch(&routers, "r", again).await;
            stage.says(&routers, "r", "Reconciling", "WaitingForPods").await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_foreign_secret_makes_no_network_in_openzro() {
    let stage = Stage::set().await;
    let operator = stage.start(&[]).await;
    for name in ["r", "setup-key-networkrouter-r"] {
        let mut foreign = Secret::default();
        foreign.metadata.name = Some(name.to_owned());
        stage.create(&stage.api::<Secret>(), &foreign).await;
    }
    let spec = from_value::<OZRoutingPeerSpec>(json!({})).unwrap();
    stage.create(&stage.api(), &OZRoutingPeer::new("r", spec)).await;
    stage.says(&stage.api::<OZRoutingPeer>(), "r", "Stalled", "NotOurs").await;
    let spec = from_value::<NetworkRouterSpec>(json!({ "dnsZoneRef": { "name": "none" } })).unwrap();
    stage.create(&stage.api(), &NetworkRouter::new("r", spec)).await;
    stage.says(&stage.api::<NetworkRouter>(), "r", "Stalled", "NotOurs").await;
    stage.settled(&operator).await;
    assert_eq!(stage.writes(), 0, "{:#?}", stage.calls());
}

/// A policy has no namespace, so the refused one is known by its name alone.
#[tokio::test(flavor = "multi_thread")]
async fn a_generated_policy_that_the_api_server_refuses_makes_no_resource_in_openzro() {
    let stage = Stage::set().await;
    let network = stage.by_hand(&Collection::Networks, json!({ "name": "n", "description": "" })).await;
    stage.by_hand(&Collection::Groups, json!({ "name": "devs" })).await;
    let operator = stage.start(&["--allow-automatic-policy-creation"]).await;
    // No object can have a longer name.
    let name = "x".repeat(250);
    let spec = json!({ "name": "db", "networkID": network, "address": "10.9.0.1", "groups": ["Databases"],
        "policyName": "web", "policySourceGroups": ["devs"], "tcpPorts": [5432] });
    let resources = stage.api::<OZResource>();
    stage.create(&resources, &OZResource::new(&name, from_value::<OZResourceSpec>(spec).unwrap())).await;
    let is_told = async || {
        let status = resources.get(&name).await.unwrap().status.unwrap_or_default();
        status.standard.conditions.get("Stalled").is_some_and(|stalled| stalled.message.contains("metadata.name"))
    };
    stage.until("the API server refuses the policy", is_told).await;
    stage.settled(&operator).await;
    assert_eq!(stage.writes(), 0, "{:#?}", stage.calls());
}
