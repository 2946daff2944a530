//! The lives of the objects of a namespace, step by step, and the items that each step ends with.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{Secret, Service};
use konverge_openzro::Collection;
use kube::{Api, api::PostParams};
use serde_json::{Value, json};

use crate::stage::{World, resource};

/// A life: its steps, and the state that each must reach.
pub(crate) trait Life: Copy {
    /// How many steps there are.
    const STEPS: usize;

    /// Takes a step.
    async fn change(self, world: &World, step: usize);

    /// Whether all that the step asks for has been done, by the objects and by the server.
    async fn is_converged(self, world: &World, step: usize) -> bool;
}

/// The items that people made before the operator came. Nothing may ever change in them.
pub(crate) async fn by_hand(world: &World) {
    let group = world.by_hand(&Collection::Groups, json!({ "name": "theirs" })).await;
    world.by_hand(&Collection::Networks, json!({ "name": "theirs", "description": "hand-made" })).await;
    let key = json!({ "name": "theirs", "type": "reusable", "expires_in": 0, "auto_groups": [group], "usage_limit": 0,
        "ephemeral": false, "allow_extra_dns_labels": false });
    world.by_hand(&Collection::SetupKeys, key).await;
    let rule = json!({ "name": "theirs", "description": "hand-made", "enabled": true, "action": "accept", "bidirectional": true,
        "protocol": "tcp", "ports": ["22"], "sources": [group], "destinations": [group] });
    let policy = json!({ "name": "theirs", "description": "hand-made", "enabled": true, "rules": [rule] });
    world.by_hand(&Collection::Policies, policy).await;
}

/// Everything of the account that is not by the operator: what was there before it came.
pub(crate) async fn of_people(world: &World) -> Vec<Value> {
    let mut found = Vec::new();
    for collection in [Collection::Groups, Collection::Networks, Collection::SetupKeys, Collection::Policies] {
        let items = world.items(&collection).await;
        found.extend(items.into_iter().filter(|item| ["theirs", "All"].contains(&name(item))));
    }
    found
}

fn name(item: &Value) -> &str {
    item["name"].as_str().unwrap_or_default()
}

/// The items of the operator in a collection, by name without the mark, in order. Two items with one mark are a duplicate. For a moment a setup
/// key and its successor have one name and different marks.
async fn made(world: &World, collection: &Collection) -> Vec<String> {
    let items = world.items(collection).await;
    let ours: Vec<_> = items.iter().map(name).filter(|name| !["theirs", "All"].contains(name)).collect();
    let distinct: BTreeSet<_> = ours.iter().collect();
    assert_eq!(distinct.len(), ours.len(), "two items of one name: {items:#?}");
    let mut names: Vec<_> =
        ours.iter().map(|name| name.split(" konverge=").next().unwrap_or_default().to_owned()).collect();
    names.sort();
    names
}

/// Names, in order.
fn names(names: &[&str]) -> Vec<String> {
    let mut names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
    names.sort();
    names
}

/// Whether the Secret has the setup key of this name: a key that was lost with a reply is of no use to anybody.
async fn has_key(world: &World, secret: &str, field: &str, key: &str) -> bool {
    let secrets = Api::<Secret>::namespaced(world.client(), &world.namespace);
    let Some(secret) = secrets.get_opt(secret).await.unwrap() else { return false };
    let stored = secret.data.and_then(|data| data.get(field).map(|value| value.0.clone())).unwrap_or_default();
    let items = world.items(&Collection::SetupKeys).await;
    let masked = items.iter().find(|item| name(item).starts_with(&format!("{key} "))).map(|item| item["key"].clone());
    let shown = masked.as_ref().and_then(Value::as_str).map(|masked| masked.trim_end_matches('*').to_owned());
    shown.is_some_and(|shown| !shown.is_empty() && stored.starts_with(shown.as_bytes()))
}

/// Groups of both versions, a setup key and policies: made, edited, one part of a policy withdrawn, and deleted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Items;

impl Items {
    fn policy(world: &World) -> String {
        format!("web-{}", world.namespace)
    }

    fn group(world: &World) -> String {
        world.namespace.clone()
    }
}

impl Life for Items {
    const STEPS: usize = 4;

    async fn change(self, world: &World, step: usize) {
        let (group, oz_group) = (resource("v1alpha1", "Group"), resource("v1", "OZGroup"));
        let (key, policy) = (resource("v1alpha1", "SetupKey"), resource("v1", "OZPolicy"));
        let name = Self::policy(world);
        match step {
            0 => {
                world.create(&group, "ops", json!({ "name": "ops" })).await;
                world.create(&oz_group, "devs", json!({ "name": Self::group(world) })).await;
                let auto_groups = json!([{ "name": "theirs" }]);
                world
                    .create(&key, "pods", json!({ "name": "pods", "ephemeral": true, "autoGroups": auto_groups }))
                    .await;
                let spec = json!({ "name": "web", "sourceGroups": ["theirs"], "destinationGroups": ["theirs"],
                    "protocols": ["tcp"], "ports": [443] });
                world.create(&policy, &name, spec).await;
            }
            1 => {
                world.edit(&group, "ops", json!({ "name": "SRE" })).await;
                world.edit(&policy, &name, json!({ "protocols": ["tcp", "udp"], "ports": [443, 8443] })).await;
            }
            2 => world.edit(&policy, &name, json!({ "protocols": ["udp"] })).await,
            _ => {
                for (resource, name) in [(&group, "ops"), (&oz_group, "devs"), (&key, "pods"), (&policy, name.as_str())]
                {
                    world.delete(resource, name).await;
                }
            }
        }
    }

    async fn is_converged(self, world: &World, step: usize) -> bool {
        let kinds = [("v1alpha1", "Group"), ("v1", "OZGroup"), ("v1alpha1", "SetupKey"), ("v1", "OZPolicy")];
        let kinds = kinds.map(|(version, kind)| resource(version, kind));
        let namespace = Self::group(world);
        let (groups, keys, policies): (&[&str], &[&str], &[&str]) = match step {
            0 => (&["ops", &namespace], &["pods"], &["web TCP"]),
            1 => (&["SRE", &namespace], &["pods"], &["web TCP", "web UDP"]),
            2 => (&["SRE", &namespace], &["pods"], &["web UDP"]),
            _ => (&[], &[], &[]),
        };
        let is_there = made(world, &Collection::Groups).await == names(groups)
            && made(world, &Collection::SetupKeys).await == names(keys)
            && made(world, &Collection::Policies).await == names(policies);
        if !is_there {
            return false;
        }
        if step == 3 {
            for kind in &kinds {
                if !world.has_none(kind).await {
                    return false;
                }
            }
            return true;
        }
        let policy = Self::policy(world);
        for (kind, name) in kinds.iter().zip(["ops", "devs", "pods", policy.as_str()]) {
            if !world.says(kind, name, "Ready", "Reconciled").await {
                return false;
            }
        }
        let ports = if step == 0 { json!(["443"]) } else { json!(["443", "8443"]) };
        let items = world.items(&Collection::Policies).await;
        let ours = items.iter().filter(|item| name(item).starts_with("web "));
        ours.map(|item| &item["rules"][0]["ports"]).all(|found| *found == ports)
            && has_key(world, "setup-key-pods", "setup-key", "pods").await
    }
}

/// A routing peer with its network, group, setup key, router and exemption, and a resource in the network: made and deleted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Routing;

impl Life for Routing {
    const STEPS: usize = 3;

    async fn change(self, world: &World, step: usize) {
        let (peer, in_it, group) =
            (resource("v1", "OZRoutingPeer"), resource("v1", "OZResource"), resource("v1", "OZGroup"));
        match step {
            0 => {
                world.create(&peer, "router", json!({ "replicas": 1 })).await;
                let spec = json!({ "name": world.namespace, "networkRef": { "name": "router" }, "address": "10.0.0.1",
                    "groups": [world.namespace] });
                world.create(&in_it, "db", spec).await;
            }
            1 => {
                world.delete(&in_it, "db").await;
                world.delete(&peer, "router").await;
            }
            // The test cluster has no garbage collector, which deletes the group's object after its owner.
            _ => world.delete(&group, "router").await,
        }
    }

    async fn is_converged(self, world: &World, step: usize) -> bool {
        let name = world.namespace.as_str();
        let kinds = ["OZRoutingPeer", "OZResource", "OZGroup"].map(|kind| resource("v1", kind));
        let [peers, resources, groups] = &kinds;
        let account = world.items(&Collection::Accounts).await;
        let exempt = account[0]["settings"]["admission_exempt_groups"].as_array().map_or(0, Vec::len);
        let is_group = made(world, &Collection::Groups).await == names(&[name]);
        let networks = world.items(&Collection::Networks).await;
        let ours: Vec<_> = networks.iter().filter(|network| network["name"] == name).collect();
        assert!(ours.len() <= 1, "two networks: {ours:#?}");
        let has = |field: &str, count: usize| {
            ours.first().is_some_and(|network| network[field].as_array().map_or(0, Vec::len) == count)
        };
        let keys = made(world, &Collection::SetupKeys).await;
        if step == 0 {
            return is_group
                && exempt == 1
                && keys == names(&[name])
                && has("routers", 1)
                && has("resources", 1)
                && has_key(world, "router", "setupKey", name).await
                && world.says(peers, "router", "Reconciling", "WaitingForPods").await
                && world.says(resources, "db", "Ready", "Reconciled").await
                && world.says(groups, "router", "Ready", "Reconciled").await;
        }
        let is_gone = ours.is_empty() && keys.is_empty() && exempt == 0;
        let is_released = world.has_none(peers).await && world.has_none(resources).await;
        let is_last = made(world, &Collection::Groups).await.is_empty() && world.has_none(groups).await;
        is_gone && is_released && if step == 1 { is_group } else { is_last }
    }
}

/// A Service in the network of a router, with its record: made, put into a group, and deleted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Served;

impl Served {
    /// The zone, which people have made.
    const ZONE: &str = "prod.example";

    async fn zone(world: &World) -> Option<Value> {
        world.items(&Collection::Zones).await.into_iter().find(|zone| zone["domain"] == Self::ZONE)
    }
}

impl Life for Served {
    const STEPS: usize = 3;

    async fn change(self, world: &World, step: usize) {
        let (router, served) = (resource("v1alpha1", "NetworkRouter"), resource("v1alpha1", "NetworkResource"));
        match step {
            0 => {
                let groups = world.items(&Collection::Groups).await;
                let all = groups.iter().find(|group| group["name"] == "All").unwrap();
                let zone = json!({ "name": Self::ZONE, "domain": Self::ZONE, "enabled": true, "enable_search_domain": false,
                    "distribution_groups": [all["id"]] });
                world.by_hand(&Collection::Zones, zone).await;
                let service = json!({ "metadata": { "name": "web" }, "spec": { "ports": [{ "port": 80 }] } });
                let services = Api::<Service>::namespaced(world.client(), &world.namespace);
                services.create(&PostParams::default(), &serde_json::from_value(service).unwrap()).await.unwrap();
                let spec = json!({ "dnsZoneRef": { "name": Self::ZONE }, "workloadOverride": { "replicas": 1 } });
                world.create(&router, "edge", spec).await;
                let of_router = json!({ "name": "edge", "namespace": world.namespace });
                let spec = json!({ "networkRouterRef": of_router, "serviceRef": { "name": "web" } });
                world.create(&served, "web", spec).await;
            }
            1 => world.edit(&served, "web", json!({ "groups": [{ "name": "theirs" }] })).await,
            // The router deletes its group and its setup key.
            _ => {
                world.delete(&served, "web").await;
                world.delete(&router, "edge").await;
            }
        }
    }

    async fn is_converged(self, world: &World, step: usize) -> bool {
        let kinds = ["NetworkRouter", "NetworkResource", "SetupKey", "Group"].map(|kind| resource("v1alpha1", kind));
        let [routers, served, keys, groups] = &kinds;
        let zone = Self::zone(world).await.unwrap();
        let records: Vec<_> = zone["records"].as_array().into_iter().flatten().collect();
        let networks = made(world, &Collection::Networks).await;
        let (of_keys, of_groups) = (made(world, &Collection::SetupKeys).await, made(world, &Collection::Groups).await);
        let resources = world.items(&Collection::AllResources).await;
        let in_routers = world.items(&Collection::AllRouters).await;
        assert!(
            records.len() <= 1 && resources.len() <= 1 && in_routers.len() <= 1,
            "a duplicate: {zone:#} {resources:#?}"
        );
        if step < 2 {
            let services = Api::<Service>::namespaced(world.client(), &world.namespace);
            let address = services.get("web").await.unwrap().spec.unwrap().cluster_ip.unwrap();
            let of_groups_of_resource = resources.first().and_then(|found| found["groups"].as_array().map(Vec::len));
            return networks == names(&["edge"])
                && of_keys == of_groups
                && of_keys.len() == 1
                && in_routers.len() == 1
                && records.first().is_some_and(|record| record["content"] == address)
                && of_groups_of_resource.unwrap_or_default() == step
                && has_key(world, "setup-key-networkrouter-edge", "setup-key", &of_keys[0]).await
                && world.says(routers, "edge", "Reconciling", "WaitingForPods").await
                && world.says(served, "web", "Ready", "Reconciled").await
                && world.says(keys, "networkrouter-edge", "Ready", "Reconciled").await
                && world.says(groups, "networkrouter-edge", "Ready", "Reconciled").await;
        }
        let is_empty = records.is_empty() && networks.is_empty() && resources.is_empty() && in_routers.is_empty();
        for kind in &kinds {
            if !world.has_none(kind).await {
                return false;
            }
        }
        is_empty && of_keys.is_empty() && of_groups.is_empty()
    }
}
