//! Two teams in one account. An object that the rules refuse to one team blocks no object of the other.

use std::time::Duration;

use konverge::kube::{Api, ResourceExt, api::PostParams};
use konverge_manage::api::{
    v1::{
        OZGroup, OZGroupSpec, OZPolicy, OZPolicySpec, OZResource, OZResourceSpec, OZRoutingPeer, OZRoutingPeerSpec,
        OZSetupKey, OZSetupKeySpec,
    },
    v1alpha1::{
        Group, GroupSpec, NetworkResource, NetworkResourceSpec, NetworkRouter, NetworkRouterSpec, SetupKey,
        SetupKeySpec,
    },
};
use konverge_openzro::Collection;
use serde_json::{Value, from_value, json};

use crate::stage::Stage;

/// Each namespace has names of its own and a network of its own.
const CONFINED: [&str; 3] = ["--allow=*={namespace},*={namespace}/*", "--namespaced-networks", "--cluster-name=prod"];

fn resource(name: &str, spec: Value) -> OZResource {
    OZResource::new(name, from_value::<OZResourceSpec>(spec).unwrap())
}

/// Until an object that is created now is younger than those before. Their age is in seconds.
async fn a_second_later() {
    tokio::time::sleep(Duration::from_millis(1100)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_objects_keep_no_name_and_no_group_from_another_namespace() {
    let stage = Stage::set().await;
    let (victim, rival) = (stage.namespace.clone(), stage.other_namespace().await);
    let theirs = |name: &str| format!("{victim}/{name}");
    let adopted = stage.by_hand(&Collection::Groups, json!({ "name": theirs("adopted") })).await;
    let network = json!({ "name": theirs("net"), "description": "" });
    let network = stage.by_hand(&Collection::Networks, network).await;
    let operator = stage.start(&CONFINED).await;

    // Older objects that claim and name what is the other's.
    let groups = Api::<OZGroup>::namespaced(stage.client.clone(), &rival);
    stage.create(&groups, &OZGroup::new("x", OZGroupSpec { name: theirs("web") })).await;
    stage.says(&groups, "x", "Stalled", "NotAllowed").await;
    let own_groups = Api::<Group>::namespaced(stage.client.clone(), &rival);
    let mut adopting = Group::new("x", GroupSpec { name: format!("{rival}/x") });
    adopting.annotations_mut().insert("konverge.dev/adopt".to_owned(), adopted.clone());
    stage.create(&own_groups, &adopting).await;
    stage.says(&own_groups, "x", "Stalled", "NotAllowed").await;
    let keys = Api::<SetupKey>::namespaced(stage.client.clone(), &rival);
    let spec = json!({ "name": "k", "ephemeral": false, "autoGroups": [{ "name": theirs("web") }] });
    stage.create(&keys, &SetupKey::new("x", from_value::<SetupKeySpec>(spec).unwrap())).await;
    stage.says(&keys, "x", "Stalled", "NotAllowed").await;
    let oz_keys = Api::<OZSetupKey>::namespaced(stage.client.clone(), &rival);
    let spec = json!({ "name": "k", "autoGroups": [theirs("web")] });
    stage.create(&oz_keys, &OZSetupKey::new("x", from_value::<OZSetupKeySpec>(spec).unwrap())).await;
    stage.says(&oz_keys, "x", "Stalled", "NotAllowed").await;
    let peers = Api::<OZRoutingPeer>::namespaced(stage.client.clone(), &rival);
    let spec = json!({ "groups": [theirs("web")] });
    stage.create(&peers, &OZRoutingPeer::new("x", from_value::<OZRoutingPeerSpec>(spec).unwrap())).await;
    stage.says(&peers, "x", "Stalled", "NotAllowed").await;
    let resources = Api::<OZResource>::namespaced(stage.client.clone(), &rival);
    let spec = json!({ "name": theirs("db"), "networkID": network, "address": "10.9.0.2", "groups": [theirs("web")] });
    stage.create(&resources, &resource("x", spec)).await;
    stage.says(&resources, "x", "Stalled", "NotAllowed").await;
    let services = Api::<NetworkResource>::namespaced(stage.client.clone(), &rival);
    let spec = json!({ "networkRouterRef": { "name": "edge", "namespace": victim }, "serviceRef": { "name": "web" },
        "groups": [{ "name": theirs("web") }] });
    stage.create(&services, &NetworkResource::new("x", from_value::<NetworkResourceSpec>(spec).unwrap())).await;
    stage.says(&services, "x", "Stalled", "NotAllowed").await;
    stage.settled(&operator).await;
    assert_eq!(stage.writes(), 0, "{:#?}", stage.calls());

    a_second_later().await;
    let groups = stage.api::<OZGroup>();
    stage.create(&groups, &OZGroup::new("web", OZGroupSpec { name: theirs("web") })).await;
    stage.says(&groups, "web", "Ready", "Reconciled").await;
    let mut adopting = Group::new("adopted", GroupSpec { name: theirs("adopted") });
    adopting.annotations_mut().insert("konverge.dev/adopt".to_owned(), adopted);
    stage.create(&stage.api(), &adopting).await;
    stage.says(&stage.api::<Group>(), "adopted", "Ready", "Reconciled").await;
    let resources = stage.api::<OZResource>();
    let spec = json!({ "name": theirs("db"), "networkID": network, "address": "10.9.0.1", "groups": [theirs("web")] });
    stage.create(&resources, &resource("db", spec)).await;
    stage.says(&resources, "db", "Ready", "Reconciled").await;

    // A deletion waits for none of the refused objects, and is one: the refused group has no share.
    stage.delete(&resources, "db").await;
    stage.gone(&resources, "db").await;
    stage.delete(&groups, "web").await;
    stage.gone(&groups, "web").await;
    assert!(!stage.on_server(&Collection::Groups).await.contains_key(&theirs("web")), "{:#?}", stage.calls());
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_resources_keep_no_network_of_another_namespace_alive() {
    let stage = Stage::set().await;
    let (victim, rival) = (stage.namespace.clone(), stage.other_namespace().await);
    let _operator = stage.start(&CONFINED).await;
    let (peers, routers) = (stage.api::<OZRoutingPeer>(), stage.api::<NetworkRouter>());
    stage.create(&peers, &OZRoutingPeer::new("r", from_value::<OZRoutingPeerSpec>(json!({})).unwrap())).await;
    let status = stage.says(&peers, "r", "Reconciling", "WaitingForPods").await.status.unwrap();
    let network = status.network_id.unwrap();
    let spec = from_value::<NetworkRouterSpec>(json!({ "dnsZoneRef": { "name": "none" } })).unwrap();
    stage.create(&routers, &NetworkRouter::new("edge", spec)).await;
    stage.says(&routers, "edge", "Reconciling", "WaitingForPods").await;

    let resources = Api::<OZResource>::namespaced(stage.client.clone(), &rival);
    let own = |name: &str| format!("{rival}/{name}");
    for (name, more) in [
        ("by-reference", json!({ "networkRef": { "name": "r", "namespace": victim } })),
        ("by-id", json!({ "networkID": network })),
    ] {
        let mut spec = json!({ "name": own(name), "address": "10.9.0.1", "groups": [own("g")] });
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        stage.create(&resources, &resource(name, spec)).await;
        stage.says(&resources, name, "Stalled", "NotAllowed").await;
    }
    let services = Api::<NetworkResource>::namespaced(stage.client.clone(), &rival);
    let spec = json!({ "networkRouterRef": { "name": "edge", "namespace": victim }, "serviceRef": { "name": "web" } });
    stage.create(&services, &NetworkResource::new("web", from_value::<NetworkResourceSpec>(spec).unwrap())).await;
    stage.says(&services, "web", "Stalled", "NotAllowed").await;

    stage.delete(&peers, "r").await;
    stage.gone(&peers, "r").await;
    stage.delete(&routers, "edge").await;
    stage.gone(&routers, "edge").await;
    assert!(stage.on_server(&Collection::Networks).await.is_empty(), "{:#?}", stage.calls());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_takes_no_name_that_another_one_needs() {
    let stage = Stage::set().await;
    let (victim, rival) = (stage.namespace.clone(), stage.other_namespace().await);
    let _operator = stage.start(&CONFINED).await;
    let resources = Api::<OZResource>::namespaced(stage.client.clone(), &rival);
    for (name, wanted) in [("plain", format!("{victim}-web")), ("own", format!("{victim}/web"))] {
        let spec = json!({ "name": wanted, "address": "10.9.0.1", "groups": [format!("{rival}/g")] });
        stage.create(&resources, &resource(name, spec)).await;
        let refused = stage.says(&resources, name, "Stalled", "NotAllowed").await.status.unwrap();
        let message = &refused.standard.conditions.get("Stalled").unwrap().message;
        assert!(
            message.starts_with("spec.name: ") && message.contains(&format!("--allow='{rival}={wanted}'")),
            "{message}"
        );
    }

    // The names of networks need not be unique in openZro, but routing peers adopt a network by its name.
    let routers = Api::<NetworkRouter>::namespaced(stage.client.clone(), &rival);
    let networks = ["kubernetes".to_owned(), format!("prod-{victim}")];
    for name in &networks {
        let spec = from_value::<NetworkRouterSpec>(json!({ "dnsZoneRef": { "name": "none" } })).unwrap();
        stage.create(&routers, &NetworkRouter::new(name, spec)).await;
        stage.says(&routers, name, "Reconciling", "WaitingForPods").await;
    }
    let made: Vec<_> = stage.on_server(&Collection::Networks).await.into_keys().collect();
    assert_eq!(made, networks.each_ref().map(|name| format!("{rival}/{name}")));
    let peers = stage.api::<OZRoutingPeer>();
    stage.create(&peers, &OZRoutingPeer::new("r", from_value::<OZRoutingPeerSpec>(json!({})).unwrap())).await;
    stage.says(&peers, "r", "Reconciling", "WaitingForPods").await;
    assert!(stage.on_server(&Collection::Networks).await.contains_key(&format!("prod-{victim}")));
    for name in &networks {
        stage.delete(&routers, name).await;
        stage.gone(&routers, name).await;
    }
    assert_eq!(stage.on_server(&Collection::Networks).await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_that_no_rule_permits_is_not_meant_by_a_policy() {
    let stage = Stage::set().await;
    let rival = stage.other_namespace().await;
    stage.by_hand(&Collection::Groups, json!({ "name": "prod-ops" })).await;
    let _operator = stage.start(&CONFINED).await;
    let groups = Api::<OZGroup>::namespaced(stage.client.clone(), &rival);
    stage.create(&groups, &OZGroup::new("web", OZGroupSpec { name: "prod-ops".to_owned() })).await;
    stage.says(&groups, "web", "Stalled", "NotAllowed").await;
    // The platform means the group of its own object, which it creates later.
    let policies = Api::<OZPolicy>::all(stage.client.clone());
    let rule = json!({ "name": "r", "sources": ["All"], "destinations": ["web"], "protocol": "tcp", "ports": ["443"] });
    let spec = from_value::<OZPolicySpec>(json!({ "name": "p", "rules": [rule] })).unwrap();
    stage.create(&policies, &OZPolicy::new("p", spec)).await;
    stage.says(&policies, "p", "Reconciling", "WaitingForReference").await;
    let home = stage.at_home::<OZGroup>();
    let web = OZGroup::new("web", OZGroupSpec { name: "Web".to_owned() });
    home.create(&PostParams::default(), &web).await.unwrap();
    stage.says(&home, "web", "Ready", "Reconciled").await;
    stage.says(&policies, "p", "Ready", "Reconciled").await;
    let made = &stage.on_server(&Collection::Policies).await["p r"];
    assert_eq!(made["rules"][0]["destinations"][0]["name"], "Web", "{made}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_confined_namespace_changes_no_setting_of_the_account() {
    let stage = Stage::set().await;
    let exempt = async || {
        let accounts = stage.dashboard.list(&Collection::Accounts).await.unwrap();
        accounts[0].raw()["settings"]["admission_exempt_groups"].as_array().map_or(0, Vec::len)
    };
    let peers = stage.api::<OZRoutingPeer>();
    let peer = |name: &str, spec: Value| OZRoutingPeer::new(name, from_value::<OZRoutingPeerSpec>(spec).unwrap());
    let operator = stage.start(&CONFINED).await;
    stage.create(&peers, &peer("r", json!({}))).await;
    stage.says(&peers, "r", "Reconciling", "WaitingForPods").await;
    assert_eq!(exempt().await, 0);
    stage.patch(&peers, "r", json!({ "spec": { "exemptFromAdmission": true } })).await;
    let refused = stage.says(&peers, "r", "Stalled", "PrivilegeNotAllowed").await.status.unwrap();
    let message = &refused.standard.conditions.get("Stalled").unwrap().message;
    assert!(message.contains(&format!("--privileged-namespace={}", stage.namespace)), "{message}");
    assert_eq!(exempt().await, 0);
    operator.stop().await;

    // The platform names the namespace, and the default is that of the original.
    let named = format!("--privileged-namespace={}", stage.namespace);
    let operator = stage.start(&[&CONFINED[..], &[&named]].concat()).await;
    stage.patch(&peers, "r", json!({ "spec": { "exemptFromAdmission": null } })).await;
    stage.says(&peers, "r", "Reconciling", "WaitingForPods").await;
    stage.until("the group is exempt", async || exempt().await == 1).await;
    operator.stop().await;
    // It is confined again, and so is its group.
    let _operator = stage.start(&CONFINED).await;
    stage.until("the group is not exempt", async || exempt().await == 0).await;
}
