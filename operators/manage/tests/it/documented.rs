//! The manifests that the documentation of openzro-operator shows, applied as they stand: each does what its page says.

use std::collections::BTreeMap;

use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{Secret, Service},
};
use konverge::kube::{
    Api,
    api::{DynamicObject, PostParams},
    core::ApiResource,
};
use konverge_manage::api::{
    definitions,
    v1::{OZGroup, OZPolicy, OZResource, OZRoutingPeer, OZSetupKey},
    v1alpha1::{Group, NetworkResource, NetworkRouter, SetupKey},
};
use konverge_openzro::Collection;
use serde_json::{Value, from_value, json};

use crate::stage::Stage;

const DOCUMENTED: &str = include_str!("../cluster/documented.yaml");

/// Creates all of them in one namespace, with what their pages take for given: groups, zones, a Service and a Secret.
async fn apply(stage: &Stage) {
    let all = stage.on_server(&Collection::Groups).await["All"]["id"].clone();
    for name in ["ci-runners", "prod-bastions"] {
        stage.by_hand(&Collection::Groups, json!({ "name": name })).await;
    }
    for domain in ["prod.company.internal", "cluster.local"] {
        let zone = json!({ "name": domain, "domain": domain, "enabled": true, "enable_search_domain": false,
            "distribution_groups": [all] });
        stage.by_hand(&Collection::Zones, zone).await;
    }
    let mut service = Service::default();
    service.metadata.name = Some("nginx".to_owned());
    service.spec = from_value(json!({ "ports": [{ "port": 80 }] })).unwrap();
    stage.create(&stage.api::<Service>(), &service).await;
    let mut secret = Secret::default();
    secret.metadata.name = Some("setup-key".to_owned());
    secret.string_data = Some([("key".to_owned(), "A2C8E62B-38F5-4553-B31E-DD66C696CEBB".to_owned())].into());
    stage.create(&stage.api::<Secret>(), &secret).await;

    for mut manifest in serde_saphyr::from_multiple::<Value>(DOCUMENTED).unwrap() {
        manifest["metadata"].as_object_mut().unwrap().remove("namespace");
        if manifest["kind"] == "NetworkResource" {
            manifest["spec"]["networkRouterRef"]["namespace"] = stage.namespace.clone().into();
        }
        let definition =
            definitions().into_iter().find(|known| manifest["kind"] == *known.spec.names.kind).unwrap().spec;
        let resource = ApiResource {
            api_version: manifest["apiVersion"].as_str().unwrap().to_owned(),
            version: definition.versions[0].name.clone(),
            group: definition.group,
            kind: definition.names.kind,
            plural: definition.names.plural,
        };
        let api = match definition.scope.as_str() {
            "Cluster" => Api::<DynamicObject>::all_with(stage.client.clone(), &resource),
            _ => Api::namespaced_with(stage.client.clone(), &stage.namespace, &resource),
        };
        api.create(&PostParams::default(), &from_value(manifest).unwrap()).await.unwrap();
    }
}

/// The only item whose name begins so.
fn beginning<'a>(items: &'a BTreeMap<String, Value>, beginning: &str) -> &'a Value {
    let found: Vec<_> = items.iter().filter(|(name, _)| name.starts_with(beginning)).collect();
    assert_eq!(found.len(), 1, "{beginning}: {items:#?}");
    found[0].1
}

/// The ids of references.
fn ids(references: &Value) -> Vec<&str> {
    references.as_array().into_iter().flatten().filter_map(|reference| reference["id"].as_str()).collect()
}

async fn stored(stage: &Stage, secret: &str, key: &str) -> String {
    let secret = stage.api::<Secret>().get(secret).await.unwrap();
    String::from_utf8(secret.data.unwrap()[key].0.clone()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn each_documented_manifest_does_what_its_page_says() {
    let stage = Stage::set().await;
    let _operator = stage.start(&["--cluster-name=prod-cluster"]).await;
    apply(&stage).await;
    for group in ["backend-team", "gateways"] {
        stage.says(&stage.api::<OZGroup>(), group, "Ready", "Reconciled").await;
    }
    for peer in ["us-east-gateway", "prod-gateway"] {
        // No pod runs in a test.
        stage.says(&stage.api::<OZRoutingPeer>(), peer, "Reconciling", "WaitingForPods").await;
    }
    for resource in ["postgres-prod", "prod-bastion"] {
        stage.says(&stage.api::<OZResource>(), resource, "Ready", "Reconciled").await;
    }
    for key in ["ci-runners-key", "from-a-secret"] {
        stage.says(&stage.api::<OZSetupKey>(), key, "Ready", "Reconciled").await;
    }
    let policies = Api::<OZPolicy>::all(stage.client.clone());
    for policy in ["dev-to-prod", "backend-can-ssh-bastion"] {
        stage.says(&policies, policy, "Ready", "Reconciled").await;
    }
    for router in ["prod", "openzro"] {
        stage.says(&stage.api::<NetworkRouter>(), router, "Reconciling", "WaitingForPods").await;
    }
    stage.says(&stage.api::<Group>(), "sidecars", "Ready", "Reconciled").await;
    stage.says(&stage.api::<SetupKey>(), "sidecar", "Ready", "Reconciled").await;
    let nginx = stage.says(&stage.api::<NetworkResource>(), "nginx", "Ready", "Reconciled").await.status.unwrap();

    // Groups: those of the objects, and the one that a resource needs.
    let groups = stage.on_server(&Collection::Groups).await;
    let id = |name: &str| groups[name]["id"].as_str().unwrap();
    for name in ["Backend Team", "Gateways", "sidecars", "dbs", "prod-cluster"] {
        assert!(groups.contains_key(name), "{name}: {groups:#?}");
    }

    // Policies: the rule names groups by their objects, and a resource.
    let on_server = stage.on_server(&Collection::Policies).await;
    let ssh = &beginning(&on_server, "Developers can SSH into prod")["rules"][0];
    assert_eq!((&ssh["protocol"], &ssh["ports"], &ssh["action"]), (&json!("tcp"), &json!(["22"]), &json!("accept")));
    assert_eq!((&ssh["bidirectional"], &ssh["enabled"]), (&json!(false), &json!(true)));
    assert_eq!(
        (ids(&ssh["sources"]), ids(&ssh["destinations"])),
        (vec![id("Backend Team")], vec![id("prod-bastions")])
    );
    assert!(ssh["description"].as_str().unwrap().starts_with("TCP/22 from devs to prod hosts"), "{ssh}");
    let resources = stage.on_server(&Collection::AllResources).await;
    let bastion = &beginning(&on_server, "Backend → Prod Bastion (SSH)")["rules"][0];
    assert_eq!(bastion["destinationResource"]["id"], resources["Prod Bastion"]["id"]);
    assert_eq!(ids(&bastion["sources"]), [id("Backend Team")]);

    // Setup keys, each in its Secret.
    let keys = stage.on_server(&Collection::SetupKeys).await;
    let runners = beginning(&keys, "CI runners enrollment");
    assert_eq!((&runners["type"], &runners["usage_limit"]), (&json!("reusable"), &json!(100)));
    assert_eq!((&runners["ephemeral"], &runners["auto_groups"]), (&json!(true), &json!([id("ci-runners")])));
    let expires: k8s_openapi::jiff::Timestamp = runners["expires"].as_str().unwrap().parse().unwrap();
    let days = (expires.as_second() - k8s_openapi::jiff::Timestamp::now().as_second()) / 86_400;
    assert!((29..=30).contains(&days), "it expires in {days} days");
    let sidecar = beginning(&keys, "sidecar ");
    assert_eq!((&sidecar["type"], &sidecar["ephemeral"]), (&json!("reusable"), &json!(true)));
    for (key, secret, field) in
        [(runners, "ci-runners-key-key", "setupKey"), (sidecar, "setup-key-sidecar", "setup-key")]
    {
        let masked = key["key"].as_str().unwrap().trim_end_matches('*');
        assert!(stored(&stage, secret, field).await.starts_with(masked), "{secret}");
    }

    // Routing peers: pods as wanted, routes, and the groups of the peers.
    let deployment = stage.api::<Deployment>().get("us-east-gateway").await.unwrap().spec.unwrap();
    let pod = serde_json::to_value(&deployment.template.spec).unwrap();
    assert_eq!(
        (deployment.replicas, &pod["nodeSelector"]),
        (Some(2), &json!({ "topology.kubernetes.io/region": "us-east-1" }))
    );
    assert_eq!(pod["containers"][0]["resources"]["limits"], json!({ "cpu": "500m", "memory": "512Mi" }));
    let routes = |peer: &str| {
        let of_peer = resources.iter().filter(|(name, _)| name.contains(&format!("/{peer} ")));
        of_peer.map(|(_, route)| route["address"].as_str().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(routes("us-east-gateway"), ["10.10.0.0/16", "192.168.50.0/24"]);
    assert_eq!(routes("prod-gateway"), ["10.10.0.0/16"]);
    let of_peers: Vec<_> = keys.iter().filter(|(name, _)| name.starts_with("prod-cluster ")).collect();
    assert_eq!(of_peers.len(), 2);
    for (_, key) in of_peers {
        let groups = key["auto_groups"].as_array().unwrap();
        assert!(groups.contains(&json!(id("Gateways"))) && groups.contains(&json!(id("prod-cluster"))), "{key}");
    }

    // Resources, in the network of the routing peers.
    let postgres = &resources["Production PostgreSQL"];
    assert_eq!((&postgres["address"], &postgres["type"]), (&json!("10.10.5.10/32"), &json!("host")));
    assert!(postgres["description"].as_str().unwrap().starts_with("Primary DB for prod workloads"), "{postgres}");
    assert_eq!(
        (ids(&postgres["groups"]), ids(&resources["Prod Bastion"]["groups"])),
        (vec![id("dbs")], vec![id("Gateways")])
    );
    let networks = stage.on_server(&Collection::Networks).await;
    let inside = networks["prod-cluster"]["resources"].as_array().unwrap();
    assert!(inside.contains(&postgres["id"]) && inside.len() == 5, "{inside:?}");

    // A Service in the network of a NetworkRouter, by its name in the zone.
    assert!(networks.contains_key("prod") && networks.contains_key("openzro"), "{networks:#?}");
    assert_eq!(nginx.network_id.as_deref(), networks["prod"]["id"].as_str());
    let address = stage.api::<Service>().get("nginx").await.unwrap().spec.unwrap().cluster_ip.unwrap();
    let records = stage.on_server(&Collection::Records { zone: nginx.dns_zone_id.unwrap() }).await;
    let record = &records[&format!("nginx.{}.prod.company.internal", stage.namespace)];
    assert_eq!((&record["type"], &record["content"]), (&json!("A"), &json!(address)));
    for router in ["networkrouter-prod", "networkrouter-openzro"] {
        assert!(stage.api::<Deployment>().get_opt(router).await.unwrap().is_some(), "{router}");
    }
}
