//! The deletion of an object removes neither the content that people put into its items nor the items that the object leaves behind.

use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use konverge::kube::{
    Api,
    api::{DeleteParams, ListParams},
};
use konverge_manage::api::{
    v1::{OZGroup, OZRoutingPeer, OZRoutingPeerSpec},
    v1alpha1::{Group, GroupSpec, NetworkRouter, NetworkRouterSpec, SetupKey},
};
use konverge_openzro::Collection;
use konverge_testkit_stores::Fault;
use serde_json::{Value, from_value, json};

use crate::stage::Stage;

fn peer(spec: Value) -> OZRoutingPeer {
    OZRoutingPeer::new("router", from_value::<OZRoutingPeerSpec>(spec).unwrap())
}

fn router(annotations: Value) -> NetworkRouter {
    let spec = json!({ "dnsZoneRef": { "name": "prod.example" }, "workloadOverride": { "replicas": 1 } });
    let mut router = NetworkRouter::new("edge", from_value::<NetworkRouterSpec>(spec).unwrap());
    router.metadata.annotations = from_value(annotations).unwrap();
    router
}

/// The names of the items of each collection.
async fn account(stage: &Stage) -> Vec<String> {
    let mut names = Vec::new();
    for collection in [Collection::Groups, Collection::Networks, Collection::SetupKeys, Collection::AllRouters] {
        let listed = stage.dashboard.list(&collection).await.unwrap();
        names.extend(listed.iter().map(|item| format!("{collection:?} {}", item.id())));
    }
    names.sort();
    names
}

/// No peer can join in a test, so the proxy shows one in the group as soon as somebody asks for the group alone.
#[tokio::test(flavor = "multi_thread")]
async fn a_peer_that_joined_after_the_last_list_keeps_the_group() {
    let stage = Stage::set().await;
    // Nobody reads the list again during the test.
    let _operator = stage.start(&["--interval=3600"]).await;
    let groups = stage.api::<Group>();
    stage.create(&groups, &Group::new("made", GroupSpec { name: "made".to_owned() })).await;
    let status = stage.says(&groups, "made", "Ready", "Reconciled").await.status.unwrap();
    let id = status.group_id.unwrap();
    let mut shown = stage.on_server(&Collection::Groups).await["made"].clone();
    shown["peers"] = json!([{ "id": "peer1", "name": "laptop" }]);
    shown["peers_count"] = json!(1);
    stage.front.plan(move |seen| {
        let is_asked = seen.method == "GET" && seen.path.ends_with(&format!("/groups/{id}"));
        let headers = vec![("content-type", "application/json".to_owned())];
        is_asked.then(|| Fault::Answer { status: 200, headers, body: shown.to_string() })
    });
    stage.delete(&groups, "made").await;
    stage.gone(&groups, "made").await;
    stage.told("made", "LeftBehind").await;
    assert!(stage.on_server(&Collection::Groups).await.contains_key("made"), "{:#?}", stage.calls());
    assert!(stage.front.journal().iter().all(|seen| seen.method != "DELETE"), "{:#?}", stage.calls());
}

/// The cluster forgets the events about these groups within an hour, and keeps the list.
#[tokio::test(flavor = "multi_thread")]
async fn items_that_are_left_behind_are_listed_in_the_cluster() {
    let stage = Stage::set().await;
    let _operator = stage.start(&["--terminating-namespace-deadline=1"]).await;
    let groups = stage.api::<Group>();
    for name in ["joined", "used"] {
        stage.create(&groups, &Group::new(name, GroupSpec { name: name.to_owned() })).await;
    }
    let mut ids = Vec::new();
    for name in ["joined", "used"] {
        ids.extend(stage.says(&groups, name, "Ready", "Reconciled").await.status.unwrap().group_id);
    }
    shows_a_peer(&stage, &ids[0]).await;
    stage.delete(&groups, "joined").await;
    stage.gone(&groups, "joined").await;
    stage
        .until("the group with a peer is listed", async || {
            listed(&stage).await.contains("left behind the group joined")
        })
        .await;

    let rule = json!({ "name": "r", "enabled": true, "action": "accept", "protocol": "all", "sources": [ids[1]],
        "destinations": [ids[1]], "bidirectional": true });
    stage.by_hand(&Collection::Policies, json!({ "name": "by hand", "enabled": true, "rules": [rule] })).await;
    let namespaces = Api::<Namespace>::all(stage.client.clone());
    namespaces.delete(&stage.namespace, &DeleteParams::default()).await.unwrap();
    stage.delete(&groups, "used").await;
    stage.gone(&groups, "used").await;
    let of_used = format!("Group {}/used is released after ", stage.namespace);
    assert!(
        listed(&stage).await.contains(&of_used),
        "it is listed before the finalizer goes: {}",
        listed(&stage).await
    );
}

/// Has openZro show a peer in a group.
async fn shows_a_peer(stage: &Stage, id: &str) {
    let groups = stage.on_server(&Collection::Groups).await;
    let mut shown = groups.into_values().find(|group| group["id"] == id).unwrap();
    shown["peers"] = json!([{ "id": "peer1", "name": "laptop" }]);
    shown["peers_count"] = json!(1);
    let path = format!("/groups/{id}");
    stage.front.plan(move |seen| {
        let is_asked = seen.method == "GET" && seen.path.ends_with(&path);
        let headers = vec![("content-type", "application/json".to_owned())];
        is_asked.then(|| Fault::Answer { status: 200, headers, body: shown.to_string() })
    });
}

/// The entries about objects of the namespace.
async fn listed(stage: &Stage) -> String {
    let lists = Api::<ConfigMap>::all(stage.client.clone());
    let parameters = ListParams::default().fields("metadata.name=openzro-operator-deletions");
    let lists = lists.list(&parameters).await.unwrap().items;
    let entries = lists.into_iter().flat_map(|list| list.data.unwrap_or_default().into_values());
    let of_namespace = format!("\"namespace\":\"{}\"", stage.namespace);
    entries.filter(|entry| entry.contains(&of_namespace)).collect::<Vec<_>>().join("\n")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_network_stays_while_others_have_a_router_in_it() {
    let stage = Stage::set().await;
    let _operator = stage.start(&["--cluster-name=prod"]).await;
    let (peers, routers) = (stage.api::<OZRoutingPeer>(), stage.api::<NetworkRouter>());
    stage.create(&peers, &peer(json!({ "exemptFromAdmission": false }))).await;
    stage.create(&routers, &router(json!({}))).await;
    let of_peer = stage.says(&peers, "router", "Reconciling", "WaitingForPods").await.status.unwrap();
    let of_router = stage.says(&routers, "edge", "Reconciling", "WaitingForPods").await.status.unwrap();
    let all = stage.on_server(&Collection::Groups).await["All"]["id"].clone();
    let mut theirs = Vec::new();
    for network in [of_peer.network_id.unwrap(), of_router.network_id.unwrap()] {
        let collection = Collection::Routers { network };
        // As the dashboard makes them, which is as the operator makes them, too.
        let fields = json!({ "peer": "", "peer_groups": [all], "metric": 9999, "masquerade": true, "enabled": true });
        let id = stage.by_hand(&collection, fields).await;
        theirs.push(collection.place(id));
    }
    let deletions = stage.front.journal().len();
    stage.delete(&peers, "router").await;
    stage.delete(&routers, "edge").await;
    let waits = stage.says(&peers, "router", "Reconciling", "InUse").await.status.unwrap();
    let message = waits.standard.conditions.get("Reconciling").unwrap().message.clone();
    assert!(message.contains("the network prod has 1 router that others made"), "{message}");
    stage.says(&routers, "edge", "Reconciling", "InUse").await;
    let networks = stage.on_server(&Collection::Networks).await;
    assert!(networks.contains_key("prod") && networks.contains_key("edge"), "{networks:#?}");
    assert!(stage.front.journal()[deletions..].iter().all(|seen| seen.method == "GET"), "{:#?}", stage.calls());

    for router in theirs {
        stage.dashboard.delete(&router).await.unwrap();
    }
    let again = json!({ "metadata": { "annotations": { "konverge.dev/reconcile-at": "1" } } });
    stage.patch(&peers, "router", again.clone()).await;
    stage.patch(&routers, "edge", again).await;
    stage.gone(&peers, "router").await;
    stage.gone(&routers, "edge").await;
    assert!(stage.on_server(&Collection::Networks).await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_network_is_deleted_with_its_own_router_although_the_status_is_lost() {
    let stage = Stage::set().await;
    let operator = stage.start(&["--cluster-name=prod"]).await;
    let peers = stage.api::<OZRoutingPeer>();
    stage.create(&peers, &peer(json!({ "exemptFromAdmission": false }))).await;
    stage.says(&peers, "router", "Reconciling", "WaitingForPods").await;
    operator.stop().await;
    let lost = konverge::kube::api::Patch::Merge(json!({ "status": null }));
    peers.patch_status("router", &konverge::kube::api::PatchParams::default(), &lost).await.unwrap();
    stage.delete(&peers, "router").await;
    let _operator = stage.start(&["--cluster-name=prod"]).await;
    stage.gone(&peers, "router").await;
    assert!(stage.on_server(&Collection::Networks).await.is_empty(), "{:#?}", stage.calls());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_object_leaves_behind_its_children_leave_behind_too() {
    let stage = Stage::set().await;
    let _operator = stage.start(&["--cluster-name=prod"]).await;
    let (peers, routers) = (stage.api::<OZRoutingPeer>(), stage.api::<NetworkRouter>());
    stage.create(&peers, &peer(json!({ "exemptFromAdmission": false }))).await;
    stage.create(&routers, &router(json!({}))).await;
    stage.says(&peers, "router", "Reconciling", "WaitingForPods").await;
    stage.says(&routers, "edge", "Reconciling", "WaitingForPods").await;
    let before = account(&stage).await;
    let orphan = json!({ "metadata": { "annotations": { "konverge.dev/deletion": "orphan" } } });
    stage.patch(&peers, "router", orphan.clone()).await;
    stage.patch(&routers, "edge", orphan).await;
    stage.delete(&peers, "router").await;
    stage.delete(&routers, "edge").await;
    stage.gone(&peers, "router").await;
    stage.gone(&routers, "edge").await;
    // The test cluster has no garbage collector, which deletes the children after their owners.
    let (oz_groups, groups, keys) = (stage.api::<OZGroup>(), stage.api::<Group>(), stage.api::<SetupKey>());
    stage.delete(&oz_groups, "router").await;
    stage.delete(&groups, "networkrouter-edge").await;
    stage.delete(&keys, "networkrouter-edge").await;
    stage.gone(&oz_groups, "router").await;
    stage.gone(&groups, "networkrouter-edge").await;
    stage.gone(&keys, "networkrouter-edge").await;
    assert_eq!(account(&stage).await, before);
}
