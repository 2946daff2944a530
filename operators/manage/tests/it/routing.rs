//! `OZRoutingPeer`, `NetworkRouter`, and the resources in their networks.

use std::collections::BTreeSet;

use k8s_openapi::{
    api::{apps::v1::Deployment, core::v1::Service, policy::v1::PodDisruptionBudget},
    apimachinery::pkg::apis::meta::v1::Condition,
};
use konverge::kube::{
    Api,
    api::{ListParams, Patch, PatchParams},
};
use konverge_manage::api::{
    v1::{OZGroup, OZPolicy, OZResource, OZResourceSpec, OZRoutingPeer, OZRoutingPeerSpec},
    v1alpha1::{Group, NetworkResource, NetworkResourceSpec, NetworkRouter, NetworkRouterSpec},
};
use konverge_openzro::Collection;
use konverge_testkit::eventually;
use konverge_testkit_stores::Fault;
use serde_json::{Value, json};

use crate::stage::{LIMIT, Stage};

fn peer(name: &str, spec: Value) -> OZRoutingPeer {
    OZRoutingPeer::new(name, serde_json::from_value::<OZRoutingPeerSpec>(spec).unwrap())
}

fn resource(name: &str, spec: Value) -> OZResource {
    OZResource::new(name, serde_json::from_value::<OZResourceSpec>(spec).unwrap())
}

/// Says of a Deployment what its controller would, which no test cluster has.
async fn roll_out(stage: &Stage, name: &str) {
    let deployments = stage.api::<Deployment>();
    let deployment = deployments.get(name).await.unwrap();
    let replicas = deployment.spec.unwrap().replicas;
    let status = json!({ "status": { "observedGeneration": deployment.metadata.generation, "replicas": replicas,
        "readyReplicas": replicas, "availableReplicas": replicas, "updatedReplicas": replicas } });
    deployments.patch_status(name, &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
}

/// The settings of the account: the groups that are exempt from admission checks, and all others.
async fn settings(stage: &Stage) -> (Value, Value) {
    let accounts = stage.dashboard.list(&Collection::Accounts).await.unwrap();
    let mut others = accounts[0].raw()["settings"].clone();
    let exempt = others.as_object_mut().unwrap().remove("admission_exempt_groups").unwrap_or_default();
    (exempt, others)
}

#[tokio::test(flavor = "multi_thread")]
async fn w5_w9_w15_a_routing_peer_has_all_its_parts_and_takes_them_along() {
    let stage = Stage::set().await;
    // An administrator has changed a setting, which a client that writes only what it knows would set back.
    let place = stage.dashboard.list(&Collection::Accounts).await.unwrap()[0].place();
    let change = |account: &mut konverge_openzro::Fields| {
        account["settings"]["peer_login_expiration"] = json!(7200);
        account["settings"]["regular_users_view_blocked"] = json!(true);
    };
    stage.dashboard.modify(&place, change).await.unwrap();
    let (_, before) = settings(&stage).await;
    assert_eq!(before["peer_login_expiration"], json!(7200));
    let _operator = stage.start(&["--cluster-name=prod"]).await;
    let peers = stage.api::<OZRoutingPeer>();
    stage.create(&peers, &peer("router", json!({ "replicas": 2, "ephemeral": true }))).await;
    stage.says(&peers, "router", "Reconciling", "WaitingForPods").await;
    roll_out(&stage, "router").await;
    let status = stage.says(&peers, "router", "Ready", "Reconciled").await.status.unwrap();

    let network = &stage.on_server(&Collection::Networks).await["prod"];
    assert_eq!(status.network_id.as_deref(), network["id"].as_str());
    assert!(network["description"].as_str().unwrap().starts_with("Created by openzro-operator konverge="), "{network}");
    assert_eq!(network["routers"], json!([status.router_id]));
    let group = stage.on_server(&Collection::Groups).await["prod"]["id"].clone();
    let key = stage.dashboard.list(&Collection::SetupKeys).await.unwrap()[0].raw().clone();
    assert_eq!((&key["auto_groups"], &key["ephemeral"]), (&json!([group]), &json!(true)));
    let router = stage.dashboard.list(&Collection::AllRouters).await.unwrap()[0].raw().clone();
    assert_eq!((&router["peer_groups"], &router["metric"]), (&json!([group]), &json!(9999)));
    let deployment = stage.api::<Deployment>().get("router").await.unwrap();
    assert_eq!(deployment.spec.unwrap().replicas, Some(2));
    assert!(stage.api::<PodDisruptionBudget>().get("router").await.is_ok());
    // W9: the group is exempt, and all other settings are as before.
    assert_eq!(settings(&stage).await, (json!([group]), before.clone()));

    // W15: a resource of this network keeps it, and one of another network does not.
    let other = stage.by_hand(&Collection::Networks, json!({ "name": "other", "description": "" })).await;
    let resources = stage.api::<OZResource>();
    let spec = |name: &str, network: &Value| json!({ "name": name, "networkID": network, "address": "10.1.0.0/16", "groups": ["prod"] });
    stage.create(&resources, &resource("here", spec("here", &network["id"]))).await;
    stage.create(&resources, &resource("there", spec("there", &json!(other)))).await;
    stage.says(&resources, "here", "Ready", "Reconciled").await;
    stage.says(&resources, "there", "Ready", "Reconciled").await;
    stage.delete(&peers, "router").await;
    let waits = stage.says(&peers, "router", "Reconciling", "InUse").await.status.unwrap();
    let message = waits.standard.conditions.get("Reconciling").unwrap().message.clone();
    assert!(message.contains("/here") && !message.contains("/there"), "{message}");
    stage.delete(&resources, "here").await;
    stage.gone(&peers, "router").await;
    assert_eq!(stage.on_server(&Collection::Networks).await.into_keys().collect::<Vec<_>>(), ["other"]);
    assert!(stage.dashboard.list(&Collection::SetupKeys).await.unwrap().is_empty());
    let (exempt, others) = settings(&stage).await;
    assert!(exempt.as_array().is_none_or(Vec::is_empty) && others == before, "{exempt} {others}");
    // The test cluster has no garbage collector, which deletes the group's object after its owner.
    stage.delete(&resources, "there").await;
    stage.gone(&resources, "there").await;
    stage.delete(&stage.api::<OZGroup>(), "router").await;
    stage.gone(&stage.api::<OZGroup>(), "router").await;
    assert_eq!(stage.on_server(&Collection::Groups).await.into_keys().collect::<Vec<_>>(), ["All"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn w8_w20_networks_and_resources_of_others_survive() {
    let stage = Stage::set().await;
    let _operator = stage.start(&["--cluster-name=prod"]).await;
    let (peers, resources) = (stage.api::<OZRoutingPeer>(), stage.api::<OZResource>());
    let theirs = stage.by_hand(&Collection::Networks, json!({ "name": "prod", "description": "hand-made" })).await;
    let in_theirs = Collection::Resources { network: theirs.clone() };
    let fields =
        json!({ "name": "db", "description": "hand-made", "address": "10.9.0.1", "enabled": true, "groups": [] });
    let db = stage.by_hand(&in_theirs, fields).await;

    stage.create(&peers, &peer("router", json!({ "exemptFromAdmission": false }))).await;
    let adopted = stage.says(&peers, "router", "Reconciling", "WaitingForPods").await.status.unwrap();
    assert_eq!(adopted.network_id.as_deref(), Some(&*theirs));
    stage.told("router", "Adopted").await;

    // W20: a resource of the name is not taken over without a request.
    let spec = json!({ "name": "db", "networkRef": { "name": "router" }, "address": "10.9.0.1", "groups": ["prod"] });
    stage.create(&resources, &resource("db", spec)).await;
    stage.says(&resources, "db", "Stalled", "NameTaken").await;
    stage.patch(&resources, "db", json!({ "metadata": { "annotations": { "konverge.dev/adopt": "true" } } })).await;
    let ready = stage.says(&resources, "db", "Ready", "Reconciled").await.status.unwrap();
    assert_eq!(ready.network_resource_id.as_deref(), Some(&*db));
    let marked = stage.on_server(&in_theirs).await["db"]["description"].clone();
    assert!(marked.as_str().unwrap().ends_with(";stays"), "nothing but its record would keep it: {marked}");
    stage.delete(&resources, "db").await;
    stage.gone(&resources, "db").await;
    stage.delete(&peers, "router").await;
    stage.gone(&peers, "router").await;
    let network = &stage.on_server(&Collection::Networks).await["prod"];
    assert_eq!((&network["id"], &network["description"]), (&json!(theirs), &json!("hand-made")));
    assert!(stage.on_server(&in_theirs).await.contains_key("db"));
}

#[tokio::test(flavor = "multi_thread")]
async fn w4_w16_a_network_that_vanished_is_made_anew_and_its_resources_follow() {
    let stage = Stage::set().await;
    let operator = stage.start(&["--cluster-name=prod", "--allow-automatic-policy-creation"]).await;
    let (peers, resources) = (stage.api::<OZRoutingPeer>(), stage.api::<OZResource>());
    stage.create(&peers, &peer("router", json!({ "exemptFromAdmission": false }))).await;
    let before =
        stage.says(&peers, "router", "Reconciling", "WaitingForPods").await.status.unwrap().network_id.unwrap();
    stage.by_hand(&Collection::Groups, json!({ "name": "devs" })).await;
    // Its group does not exist yet, and neither does its policy.
    let spec = json!({ "name": "web", "networkID": before, "address": "10.0.0.1", "groups": ["Web Servers"], "policyName": "web",
        "policySourceGroups": ["devs"], "tcpPorts": [80] });
    stage.create(&resources, &resource("web", spec)).await;
    let status = stage.says(&resources, "web", "Ready", "Reconciled").await.status.unwrap();
    let generated = format!("web-{}-web", stage.namespace);
    assert_eq!(status.policy_name_mapping["web"], generated);
    assert_eq!(stage.api::<OZGroup>().get("web-servers").await.unwrap().spec.name, "Web Servers");
    let policies = Api::<OZPolicy>::all(stage.client.clone());
    stage.says(&policies, &generated, "Ready", "Reconciled").await;
    let writes = stage.writes();
    stage.settled(&operator).await;
    assert_eq!(stage.writes(), writes, "an address in another form is no difference: {:#?}", stage.calls());

    stage.dashboard.delete(&Collection::Networks.place(before.clone())).await.unwrap();
    let is_back = async || {
        let all = stage.dashboard.list(&Collection::AllResources).await.unwrap();
        all.iter().any(|resource| resource.raw()["name"] == "web")
    };
    stage.until("the resource is back", is_back).await;
    let after = peers.get("router").await.unwrap().status.unwrap().network_id.unwrap();
    assert_ne!(before, after);
    let network = &stage.on_server(&Collection::Networks).await["prod"];
    assert_eq!((&network["id"], network["resources"].as_array().unwrap().len()), (&json!(after), 1));

    // W22: the generated policy goes with its resource.
    stage.delete(&resources, "web").await;
    stage.gone(&resources, "web").await;
    stage.gone(&policies, &generated).await;
    assert!(stage.on_server(&Collection::Policies).await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn w10_w27_w31_a_network_router_serves_a_service_with_a_record() {
    let stage = Stage::set().await;
    let _operator = stage.start(&[]).await;
    let (routers, resources) = (stage.api::<NetworkRouter>(), stage.api::<NetworkResource>());
    let all = stage.on_server(&Collection::Groups).await["All"]["id"].clone();
    let zone = json!({ "name": "Production", "domain": "prod.example", "enabled": true, "enable_search_domain": false,
        "distribution_groups": [all] });
    let zone = stage.by_hand(&Collection::Zones, zone).await;
    let spec = json!({ "dnsZoneRef": { "name": "prod.example" }, "workloadOverride": { "replicas": 1, "labels": { "a": "b" } } });
    let router = NetworkRouter::new("edge", serde_json::from_value::<NetworkRouterSpec>(spec.clone()).unwrap());
    stage.create(&routers, &router).await;
    stage.says(&routers, "edge", "Reconciling", "WaitingForPods").await;
    roll_out(&stage, "networkrouter-edge").await;
    let ready = stage.says(&routers, "edge", "Ready", "Reconciled").await;
    assert_eq!(serde_json::to_value(&ready.spec).unwrap(), spec, "W31: the spec is the user's");

    let mut service = Service::default();
    service.metadata.name = Some("web".to_owned());
    service.spec = serde_json::from_value(json!({ "ports": [{ "port": 80 }] })).unwrap();
    let reference = json!({ "name": "edge", "namespace": stage.namespace });
    let spec = json!({ "networkRouterRef": reference, "serviceRef": { "name": "web" }, "groups": [{ "localRef": { "name": "networkrouter-edge" } }] });
    let object = NetworkResource::new("web", serde_json::from_value::<NetworkResourceSpec>(spec).unwrap());
    stage.create(&resources, &object).await;
    stage.says(&resources, "web", "Reconciling", "Dependency").await;
    let service = stage.create(&stage.api::<Service>(), &service).await;
    let address = service.spec.unwrap().cluster_ip.unwrap();
    let status = stage.says(&resources, "web", "Ready", "Reconciled").await.status.unwrap();
    let records = stage.on_server(&Collection::Records { zone: zone.clone() }).await;
    let record = &records[&format!("web.{}.prod.example", stage.namespace)];
    assert_eq!((&record["type"], &record["content"], &record["ttl"]), (&json!("A"), &json!(address), &json!(300)));
    assert_eq!(status.dns_record_id.as_deref(), record["id"].as_str());

    // W27: a person changes the resource and the record, and both are corrected.
    let network = Collection::Resources { network: status.network_id.unwrap() };
    let resource = network.place(status.resource_id.unwrap());
    stage.dashboard.modify(&resource, |body| body["address"] = json!("10.99.0.1")).await.unwrap();
    let zone = Collection::Records { zone };
    let record = zone.place(status.dns_record_id.unwrap());
    stage.dashboard.modify(&record, |body| body["content"] = json!("10.99.0.2")).await.unwrap();
    let is_corrected = async || {
        let records = stage.on_server(&zone).await;
        let is_record = records.len() == 1 && records.values().all(|record| record["content"] == json!(address));
        is_record && addresses(&stage).await == [format!("{address}/32")].into()
    };
    stage.until("the drift is corrected", is_corrected).await;

    stage.delete(&routers, "edge").await;
    stage.says(&routers, "edge", "Reconciling", "InUse").await;
    stage.delete(&resources, "web").await;
    stage.gone(&resources, "web").await;
    stage.gone(&routers, "edge").await;
    assert!(stage.on_server(&Collection::Networks).await.is_empty());
    assert!(stage.dashboard.list(&Collection::AllResources).await.unwrap().is_empty());
    // Its Group and its SetupKey have gone before it.
    assert!(stage.api::<Group>().get_opt("networkrouter-edge").await.unwrap().is_none());
    assert!(stage.dashboard.list(&Collection::SetupKeys).await.unwrap().is_empty());
}

/// As on a server of an older version.
#[tokio::test(flavor = "multi_thread")]
async fn w34_on_a_server_without_zones_a_network_resource_says_so_and_deletions_complete() {
    let stage = Stage::set().await;
    let operator = stage.start(&[]).await;
    let (routers, resources) = (stage.api::<NetworkRouter>(), stage.api::<NetworkResource>());
    let all = stage.on_server(&Collection::Groups).await["All"]["id"].clone();
    let zone = json!({ "name": "prod.example", "domain": "prod.example", "enabled": true, "enable_search_domain": false,
        "distribution_groups": [all] });
    stage.by_hand(&Collection::Zones, zone).await;
    let spec = json!({ "dnsZoneRef": { "name": "prod.example" }, "workloadOverride": { "replicas": 1 } });
    stage.create(&routers, &NetworkRouter::new("edge", serde_json::from_value(spec).unwrap())).await;
    let mut service = Service::default();
    service.metadata.name = Some("web".to_owned());
    service.spec = serde_json::from_value(json!({ "ports": [{ "port": 80 }] })).unwrap();
    stage.create(&stage.api::<Service>(), &service).await;
    let reference = json!({ "name": "edge", "namespace": stage.namespace });
    let spec = json!({ "networkRouterRef": reference, "serviceRef": { "name": "web" } });
    let object = |name: &str| NetworkResource::new(name, serde_json::from_value(spec.clone()).unwrap());
    stage.create(&resources, &object("old")).await;
    stage.says(&resources, "old", "Ready", "Reconciled").await;
    operator.stop().await;

    stage.front.plan(|seen| {
        seen.path.starts_with("/api/dns/zones").then(|| Fault::Answer {
            status: 404,
            headers: vec![("content-type", "text/plain; charset=utf-8".to_owned())],
            body: "404 page not found\n".to_owned(),
        })
    });
    let _operator = stage.start(&[]).await;
    stage.create(&resources, &object("new")).await;
    for name in ["old", "new"] {
        stage.says(&resources, name, "Stalled", "Unsupported").await;
    }
    // Others go on.
    let group = Group::new("fine", serde_json::from_value(json!({ "name": "fine" })).unwrap());
    stage.create(&stage.api::<Group>(), &group).await;
    stage.says(&stage.api::<Group>(), "fine", "Ready", "Reconciled").await;
    for name in ["old", "new"] {
        stage.delete(&resources, name).await;
        stage.gone(&resources, name).await;
    }
    assert!(stage.dashboard.list(&Collection::AllResources).await.unwrap().is_empty());
    stage.delete(&routers, "edge").await;
    stage.gone(&routers, "edge").await;
}

/// The addresses of all resources of the account.
async fn addresses(stage: &Stage) -> BTreeSet<String> {
    let resources = stage.dashboard.list(&Collection::AllResources).await.unwrap();
    resources.iter().map(|resource| resource.raw()["address"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_routes_of_a_routing_peer_are_resources_that_follow_its_spec() {
    let stage = Stage::set().await;
    let operator = stage.start(&["--cluster-name=prod"]).await;
    let peers = stage.api::<OZRoutingPeer>();
    let spec = json!({ "exemptFromAdmission": false, "routes": ["10.0.0.0/8", "192.168.1.1"] });
    stage.create(&peers, &peer("router", spec)).await;
    let status = stage.says(&peers, "router", "Reconciling", "WaitingForPods").await.status.unwrap();
    assert_eq!(status.route_resource_ids.keys().collect::<Vec<_>>(), ["10.0.0.0/8", "192.168.1.1/32"]);
    let both: BTreeSet<String> = ["10.0.0.0/8", "192.168.1.1/32"].map(str::to_owned).into();
    assert_eq!(addresses(&stage).await, both);
    let network = Collection::Resources { network: status.network_id.unwrap() };
    let name = format!("prod {}/router 10.0.0.0/8", stage.namespace);
    let resource = &stage.on_server(&network).await[&name];
    assert_eq!(resource["groups"][0]["name"], "prod", "a policy with the group of the peers leads there");

    let routes = async |routes: Value| stage.patch(&peers, "router", json!({ "spec": { "routes": routes } })).await;
    routes(json!(["10.0.0.0/8", "nonsense"])).await;
    let stalled = stage.says(&peers, "router", "Stalled", "InvalidSpec").await.status.unwrap();
    assert!(stalled.standard.conditions.get("Stalled").unwrap().message.contains("\"nonsense\""));
    assert_eq!(addresses(&stage).await, both, "a route that cannot be read deletes none");
    routes(json!(["10.1.0.0/16"])).await;
    stage.says(&peers, "router", "Reconciling", "WaitingForPods").await;
    let one: BTreeSet<String> = ["10.1.0.0/16".to_owned()].into();
    assert_eq!(addresses(&stage).await, one);
    let writes = stage.writes();
    stage.settled(&operator).await;
    assert_eq!(stage.writes(), writes, "{:#?}", stage.calls());

    stage.delete(&peers, "router").await;
    stage.gone(&peers, "router").await;
    assert!(addresses(&stage).await.is_empty() && stage.on_server(&Collection::Networks).await.is_empty());
}

/// The operator validates routes and pods before it creates anything.
#[tokio::test(flavor = "multi_thread")]
async fn an_invalid_spec_makes_nothing() {
    let stage = Stage::set().await;
    let _operator = stage.start(&["--cluster-name=prod"]).await;
    let peers = stage.api::<OZRoutingPeer>();
    for (name, spec, expected) in [
        ("route", json!({ "routes": ["10.0.0.0/8", "nonsense"] }), "\"nonsense\""),
        ("volume", json!({ "volumes": [{ "name": "v", "hostPath": "nowhere" }] }), "no Deployment can have"),
    ] {
        stage.create(&peers, &peer(name, spec)).await;
        let stalled = stage.says(&peers, name, "Stalled", "InvalidSpec").await.status.unwrap();
        let message = &stalled.standard.conditions.get("Stalled").unwrap().message;
        assert!(message.contains(expected), "{message}");
    }
    let routers = stage.api::<NetworkRouter>();
    let pods = json!({ "spec": { "containers": "nonsense" } });
    let spec = json!({ "dnsZoneRef": { "name": "prod.example" }, "workloadOverride": { "podTemplate": pods } });
    stage.create(&routers, &NetworkRouter::new("edge", serde_json::from_value(spec).unwrap())).await;
    stage.says(&routers, "edge", "Stalled", "InvalidSpec").await;
    assert_eq!(stage.writes(), 0, "{:#?}", stage.calls());
    let all = ListParams::default();
    assert!(stage.api::<OZGroup>().list(&all).await.unwrap().items.is_empty());
    assert!(stage.api::<Group>().list(&all).await.unwrap().items.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn routing_peers_share_a_network_which_goes_with_the_last_of_them() {
    let stage = Stage::set().await;
    let _operator = stage.start(&["--cluster-name=prod"]).await;
    let (peers, resources) = (stage.api::<OZRoutingPeer>(), stage.api::<OZResource>());
    let spec = || json!({ "exemptFromAdmission": false });
    stage.create(&peers, &peer("a", spec())).await;
    let first = stage.says(&peers, "a", "Reconciling", "WaitingForPods").await.status.unwrap();
    stage.create(&peers, &peer("b", spec())).await;
    let second = stage.says(&peers, "b", "Reconciling", "WaitingForPods").await;
    let uid = second.metadata.uid.unwrap();
    assert_eq!(second.status.unwrap().network_id, first.network_id);
    assert_eq!(stage.dashboard.list(&Collection::Networks).await.unwrap().len(), 1);
    // A resource that names no network is in that of the routing peers.
    stage
        .create(&resources, &resource("web", json!({ "name": "web", "address": "10.0.0.1", "groups": ["prod"] })))
        .await;
    stage.says(&resources, "web", "Ready", "Reconciled").await;

    stage.delete(&peers, "a").await;
    stage.gone(&peers, "a").await;
    let is_taken_over = async || {
        let network = &stage.on_server(&Collection::Networks).await["prod"];
        network["description"].as_str().unwrap().contains(&uid) && network["id"].as_str() == first.network_id.as_deref()
    };
    stage.until("the network is that of b", is_taken_over).await;
    let has_router = async || {
        let routers = stage.dashboard.list(&Collection::AllRouters).await.unwrap();
        let own = peers.get("b").await.unwrap().status.unwrap().router_id;
        routers.len() == 1 && Some(routers[0].id()) == own.as_deref()
    };
    stage.until("b has a router", has_router).await;
    assert_eq!(stage.dashboard.list(&Collection::SetupKeys).await.unwrap().len(), 1);
    assert_eq!(addresses(&stage).await.len(), 1, "the resource stays");

    stage.delete(&peers, "b").await;
    stage.says(&peers, "b", "Reconciling", "InUse").await;
    stage.delete(&resources, "web").await;
    stage.gone(&peers, "b").await;
    assert!(stage.on_server(&Collection::Networks).await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_network_of_others_survives_all_routing_peers_that_share_it() {
    let stage = Stage::set().await;
    let _operator = stage.start(&["--cluster-name=prod"]).await;
    let peers = stage.api::<OZRoutingPeer>();
    let theirs = stage.by_hand(&Collection::Networks, json!({ "name": "prod", "description": "hand-made" })).await;
    for name in ["a", "b"] {
        stage.create(&peers, &peer(name, json!({ "exemptFromAdmission": false }))).await;
        let status = stage.says(&peers, name, "Reconciling", "WaitingForPods").await.status.unwrap();
        assert_eq!(status.network_id.as_deref(), Some(&*theirs), "{name}");
    }
    for name in ["a", "b"] {
        stage.delete(&peers, name).await;
        stage.gone(&peers, name).await;
    }
    let network = &stage.on_server(&Collection::Networks).await["prod"];
    assert_eq!((&network["id"], &network["description"]), (&json!(theirs), &json!("hand-made")));
}

#[tokio::test(flavor = "multi_thread")]
async fn w4_a_resource_keeps_its_groups_while_the_groups_cannot_be_read() {
    let stage = Stage::set().await;
    let mut operator = stage.start(&[]).await;
    let resources = stage.api::<OZResource>();
    let network = stage.by_hand(&Collection::Networks, json!({ "name": "n", "description": "" })).await;
    for name in ["devs", "ops"] {
        stage.by_hand(&Collection::Groups, json!({ "name": name })).await;
    }
    let spec = json!({ "name": "db", "networkID": network, "address": "10.0.0.1", "groups": ["devs"] });
    stage.create(&resources, &resource("db", spec)).await;
    stage.says(&resources, "db", "Ready", "Reconciled").await;
    let on_server = async || stage.on_server(&Collection::AllResources).await["db"].clone();
    let before = on_server().await;
    let writes = stage.writes();

    let error = |status, body: &str| Fault::Answer {
        status,
        headers: vec![("content-type", "application/json".to_owned())],
        body: body.to_owned(),
    };
    let faults = [
        error(500, r#"{"message":"internal","code":500}"#),
        error(404, r#"{"message":"not found","code":404}"#),
        Fault::html_404(),
        Fault::Truncate(9),
        Fault::DropReply,
    ];
    for (number, fault) in faults.into_iter().enumerate() {
        // A new process knows no groups from an earlier list.
        operator.stop().await;
        stage.front.plan(move |seen| (seen.method == "GET" && seen.path.ends_with("/groups")).then(|| fault.clone()));
        let patch = json!({ "spec": { "address": format!("10.0.1.{number}"), "groups": ["devs", "ops"] } });
        stage.patch(&resources, "db", patch).await;
        operator = stage.start(&[]).await;
        let told = eventually(LIMIT, async || {
            let object = resources.get("db").await.unwrap();
            let status = object.status.unwrap_or_default();
            let ready = status.standard.conditions.get("Ready");
            let is_current = |ready: &&Condition| ready.observed_generation == object.metadata.generation;
            ready.filter(|ready| ready.status == "False").filter(is_current).cloned()
        });
        assert!(told.await.is_ok(), "{number}: {:#?}", resources.get("db").await.unwrap().status);
        assert_eq!((on_server().await, stage.writes()), (before.clone(), writes), "{:#?}", stage.calls());
    }
    stage.front.plan(|_| None);
    stage.says(&resources, "db", "Ready", "Reconciled").await;
    let groups = on_server().await["groups"].as_array().unwrap().len();
    assert_eq!((on_server().await["address"].clone(), groups), (json!("10.0.1.4/32"), 2));
}
