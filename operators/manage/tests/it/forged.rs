//! Records and statuses that a user of a namespace has written by hand. They lead to no item that the rules keep from the namespace.

use konverge::kube::{
    ResourceExt,
    api::{Patch, PatchParams},
};
use konverge_manage::api::{
    v1::{OZResource, OZResourceSpec, OZRoutingPeer, OZRoutingPeerSpec},
    v1alpha1::{
        Group, GroupSpec, NetworkResource, NetworkResourceSpec, NetworkRouter, NetworkRouterSpec, SetupKey,
        SetupKeySpec,
    },
};
use konverge_openzro::Collection;
use serde_json::{Value, from_value, json};

use crate::stage::Stage;

/// One item of each kind, made in the dashboard, by the name of the kind in records.
async fn items(stage: &Stage) -> Vec<(&'static str, Collection, String)> {
    let group = stage.by_hand(&Collection::Groups, json!({ "name": "prod-ops" })).await;
    let network = stage.by_hand(&Collection::Networks, json!({ "name": "prod-ops", "description": "" })).await;
    let router = json!({ "enabled": true, "masquerade": true, "metric": 9999, "peer": "", "peer_groups": [group] });
    let router = stage.by_hand(&Collection::Routers { network: network.clone() }, router).await;
    let resource =
        json!({ "name": "prod-ops", "description": "", "address": "10.9.0.1", "enabled": true, "groups": [] });
    let resource = stage.by_hand(&Collection::Resources { network: network.clone() }, resource).await;
    let key = json!({ "name": "prod-ops", "type": "reusable", "expires_in": 86_400, "auto_groups": [], "usage_limit": 0, "ephemeral": false });
    let key = stage.by_hand(&Collection::SetupKeys, key).await;
    vec![
        ("network resource", Collection::AllResources, resource),
        ("network router", Collection::AllRouters, router),
        ("setup key", Collection::SetupKeys, key),
        ("network", Collection::Networks, network),
        ("group", Collection::Groups, group),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_forged_record_deletes_no_item_of_others_whatever_its_kind_and_part() {
    let stage = Stage::set().await;
    let items = items(&stage).await;
    let _operator = stage.start(&["--allow=*={namespace}/*", "--cluster-id=c"]).await;
    let id = |kind: &str| items.iter().find(|(of, ..)| *of == kind).unwrap().2.clone();
    let forged = |uid: Option<String>, parts: &[(&str, &str)]| {
        let entry = |kind: &str| json!({ "origin": "made", "name": "prod-ops", "id": id(kind) });
        let parts: serde_json::Map<String, Value> =
            parts.iter().map(|(part, kind)| ((*part).to_owned(), entry(kind))).collect();
        let record = json!({ "cluster": "c", "uid": uid.unwrap(), "parts": parts }).to_string();
        json!({ "metadata": { "annotations": { "konverge.dev/remote": record } } })
    };
    let peers = stage.api::<OZRoutingPeer>();
    let mut peer = OZRoutingPeer::new("r", from_value::<OZRoutingPeerSpec>(json!({})).unwrap());
    peer.finalizers_mut().push("openzro.io/cleanup".to_owned());
    let peer = stage.create(&peers, &peer).await;
    let routers = stage.api::<NetworkRouter>();
    let spec = json!({ "dnsZoneRef": { "name": "none" } });
    let mut router = NetworkRouter::new("r", from_value::<NetworkRouterSpec>(spec).unwrap());
    router.finalizers_mut().push("finalizers.openzro.io/networkrouter".to_owned());
    let router = stage.create(&routers, &router).await;
    let resources = stage.api::<OZResource>();
    let spec = json!({ "name": "prod-ops", "address": "10.9.0.1" });
    let mut resource = OZResource::new("r", from_value::<OZResourceSpec>(spec).unwrap());
    resource.finalizers_mut().push("gateway.openzro.io/resource".to_owned());
    let resource = stage.create(&resources, &resource).await;
    let services = stage.api::<NetworkResource>();
    let spec = json!({ "networkRouterRef": { "name": "r", "namespace": "n" }, "serviceRef": { "name": "web" } });
    let mut service = NetworkResource::new("r", from_value::<NetworkResourceSpec>(spec).unwrap());
    service.finalizers_mut().push("finalizers.openzro.io/networkresource".to_owned());
    let service = stage.create(&services, &service).await;
    let keys = stage.api::<SetupKey>();
    let spec = json!({ "name": "prod-ops", "ephemeral": false, "autoGroups": [{ "name": "prod-ops" }] });
    let mut key = SetupKey::new("r", from_value::<SetupKeySpec>(spec).unwrap());
    key.finalizers_mut().push("finalizers.openzro.io/setupkey".to_owned());
    let key = stage.create(&keys, &key).await;

    let of_peer = [
        ("network resource/route-x", "network resource"),
        ("network resource", "network resource"),
        ("network router", "network router"),
        ("network", "network"),
        ("setup key", "setup key"),
        ("setup key/next", "setup key"),
    ];
    stage.patch(&peers, "r", forged(peer.uid(), &of_peer)).await;
    let of_router = [("network router", "network router"), ("network", "network")];
    stage.patch(&routers, "r", forged(router.uid(), &of_router)).await;
    stage.patch(&resources, "r", forged(resource.uid(), &[("network resource", "network resource")])).await;
    stage.patch(&services, "r", forged(service.uid(), &[("network resource", "network resource")])).await;
    let of_key = [("setup key", "setup key"), ("setup key/next", "setup key")];
    stage.patch(&keys, "r", forged(key.uid(), &of_key)).await;
    stage.delete(&services, "r").await;
    stage.gone(&services, "r").await;
    stage.delete(&resources, "r").await;
    stage.gone(&resources, "r").await;
    stage.delete(&peers, "r").await;
    stage.gone(&peers, "r").await;
    stage.delete(&routers, "r").await;
    stage.gone(&routers, "r").await;
    stage.delete(&keys, "r").await;
    stage.gone(&keys, "r").await;
    for (kind, collection, id) in &items {
        let there = stage.dashboard.list(collection).await.unwrap();
        assert!(there.iter().any(|item| item.id() == id), "the {kind} is gone: {:#?}", stage.calls());
    }
}

/// The operator leaves a paused object alone, so its status stays as the user has written it.
#[tokio::test(flavor = "multi_thread")]
async fn a_forged_status_leads_to_no_group_that_the_namespace_may_not_use() {
    let stage = Stage::set().await;
    let id = stage.by_hand(&Collection::Groups, json!({ "name": "prod-ops" })).await;
    let operator = stage.start(&["--allow=*={namespace}/*"]).await;
    let groups = stage.api::<Group>();
    let mut group = Group::new("own", GroupSpec { name: format!("{}/own", stage.namespace) });
    group.annotations_mut().insert("konverge.dev/paused".to_owned(), "true".to_owned());
    stage.create(&groups, &group).await;
    let status = Patch::Merge(json!({ "status": { "groupID": id } }));
    groups.patch_status("own", &PatchParams::default(), &status).await.unwrap();
    let keys = stage.api::<SetupKey>();
    let spec = json!({ "name": "k", "ephemeral": false, "autoGroups": [{ "localRef": { "name": "own" } }] });
    stage.create(&keys, &SetupKey::new("k", from_value::<SetupKeySpec>(spec).unwrap())).await;
    stage.says(&keys, "k", "Stalled", "NotAllowed").await;
    stage.settled(&operator).await;
    assert_eq!(stage.writes(), 0, "{:#?}", stage.calls());
}
