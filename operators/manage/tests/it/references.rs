//! F30: references in a circle, to nothing, across namespaces; creation and deletion in any order; two objects that want one item.

use std::{collections::BTreeMap, time::Duration};

use futures::future::join_all;
use konverge::kube::{
    Api, Resource, ResourceExt,
    api::{DeleteParams, ListParams, PostParams},
    core::{ApiResource, DynamicObject},
};
use konverge_manage::api::{
    v1::{OZGroup, OZPolicy, OZResource, OZRoutingPeer, OZSetupKey},
    v1alpha1::{Group, NetworkResource, NetworkRouter, SetupKey},
};
use konverge_openzro::Collection;
use konverge_testkit::eventually;
use serde_json::{Value, json};

use crate::stage::{Running, Stage};

/// Longer than so many objects take on a machine that builds at the same time.
const LIMIT: Duration = Duration::from_mins(5);

fn kind<K: Resource<DynamicType = ()>>() -> ApiResource {
    ApiResource::erase::<K>(&())
}

fn api(stage: &Stage, kind: &ApiResource, namespace: &str) -> Api<DynamicObject> {
    if kind.kind == "OZPolicy" {
        Api::all_with(stage.client.clone(), kind)
    } else {
        Api::namespaced_with(stage.client.clone(), namespace, kind)
    }
}

async fn create(api: &Api<DynamicObject>, kind: &ApiResource, name: &str, spec: Value) {
    let object = DynamicObject::new(name, kind).data(json!({ "spec": spec }));
    api.create(&PostParams::default(), &object).await.unwrap();
}

/// Whether a condition of the object's latest generation is true: its reason and its message.
fn says(object: &DynamicObject, condition: &str) -> Option<(String, String)> {
    let conditions = object.data["status"]["conditions"].as_array()?;
    let found = conditions.iter().find(|known| known["type"] == condition && known["status"] == "True")?;
    let is_current = found["observedGeneration"].as_i64() == object.metadata.generation;
    let text = |key: &str| found[key].as_str().unwrap_or_default().to_owned();
    is_current.then(|| (text("reason"), text("message")))
}

/// Waits until the object fits, and shows it if it never does.
async fn until(api: &Api<DynamicObject>, name: &str, what: &str, fits: impl Fn(Option<&DynamicObject>) -> bool) {
    let found = eventually(LIMIT, async || fits(api.get_opt(name).await.unwrap().as_ref()).then_some(())).await;
    assert!(found.is_ok(), "{name} is not {what}: {:#?}", api.get_opt(name).await.unwrap().map(|object| object.data));
}

/// Waits until two rounds of lists write neither on the server nor on an object. States that follow each other for ever never pass.
async fn at_rest(stage: &Stage, operator: &Running) -> BTreeMap<String, String> {
    let kinds = [
        kind::<OZGroup>(),
        kind::<OZPolicy>(),
        kind::<OZResource>(),
        kind::<OZRoutingPeer>(),
        kind::<OZSetupKey>(),
        kind::<Group>(),
        kind::<SetupKey>(),
        kind::<NetworkRouter>(),
        kind::<NetworkResource>(),
    ];
    let versions = async || {
        let mut versions = BTreeMap::new();
        for kind in &kinds {
            let api: Api<DynamicObject> = Api::all_with(stage.client.clone(), kind);
            for object in api.list(&ListParams::default()).await.unwrap() {
                let name = format!("{} {:?}/{}", kind.kind, object.namespace(), object.name_any());
                versions.insert(name, object.resource_version().unwrap());
            }
        }
        versions
    };
    let rest = eventually(LIMIT, async || {
        let (before, writes) = (versions().await, stage.writes());
        stage.settled(operator).await;
        (versions().await == before && stage.writes() == writes).then_some(before)
    });
    rest.await.unwrap_or_else(|_| panic!("there is no rest; the calls: {:#?}", stage.calls()))
}

/// An object of a circle. The policy leads to the resource, and the resource names the policy. Its network is that of the routing peer. The peers and
/// the sources of the policy are in the group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Group,
    Peer,
    Resource,
    Policy,
}

impl Part {
    const ALL: [Self; 4] = [Self::Group, Self::Peer, Self::Resource, Self::Policy];

    fn kind(self) -> ApiResource {
        match self {
            Self::Group => kind::<OZGroup>(),
            Self::Peer => kind::<OZRoutingPeer>(),
            Self::Resource => kind::<OZResource>(),
            Self::Policy => kind::<OZPolicy>(),
        }
    }

    fn name(self, namespace: &str) -> String {
        match self {
            Self::Group => "servers".to_owned(),
            Self::Peer => "router".to_owned(),
            Self::Resource => "db".to_owned(),
            Self::Policy => format!("access-{namespace}"),
        }
    }

    fn spec(self, namespace: &str) -> Value {
        let group = format!("servers {namespace}");
        match self {
            Self::Group => json!({ "name": group }),
            Self::Peer => json!({ "replicas": 1, "exemptFromAdmission": false, "groups": ["servers"] }),
            Self::Resource => {
                json!({ "name": format!("db {namespace}"), "networkRef": { "name": "router" }, "address": "10.0.0.1",
                "groups": ["All"], "policyName": Self::Policy.name(namespace), "policySourceGroups": ["All"], "tcpPorts": [80] })
            }
            Self::Policy => {
                json!({ "name": format!("access {namespace}"), "rules": [{ "name": "in", "protocol": "tcp", "ports": ["443"],
                "sources": [format!("{namespace}/servers")], "destinations": [format!("{namespace}/db")] }] })
            }
        }
    }

    /// Whether the object is as it stays. No pod runs in a test.
    fn is_settled(self, object: Option<&DynamicObject>) -> bool {
        object.is_some_and(|object| match self {
            Self::Peer => says(object, "Reconciling").is_some_and(|(reason, _)| reason == "WaitingForPods"),
            _ => says(object, "Ready").is_some(),
        })
    }
}

/// Every order of these.
fn orders(parts: &[Part]) -> Vec<Vec<Part>> {
    if parts.is_empty() {
        return vec![Vec::new()];
    }
    let begin_with = |first: Part| {
        let others: Vec<_> = parts.iter().copied().filter(|part| *part != first).collect();
        orders(&others).into_iter().map(move |order| [vec![first], order].concat())
    };
    parts.iter().copied().flat_map(begin_with).collect()
}

/// The items of all namespaces: for each, what it has in each collection, with names in place of ids.
async fn views(stage: &Stage, namespaces: &[String]) -> Vec<Value> {
    let list = async |collection: &Collection| {
        let listed = stage.dashboard.list(collection).await.unwrap();
        listed.iter().map(|item| Value::Object(item.raw().clone())).collect::<Vec<_>>()
    };
    let (groups, policies) = (list(&Collection::Groups).await, list(&Collection::Policies).await);
    let (keys, networks) = (list(&Collection::SetupKeys).await, list(&Collection::Networks).await);
    let resources = list(&Collection::AllResources).await;
    let name_of = |items: &[Value], id: &Value| {
        let found = items.iter().find(|item| item["id"] == *id);
        found.map_or(Value::Null, |item| item["name"].clone())
    };
    let groups_named = |ids: Vec<Value>| {
        let mut names: Vec<_> = ids.iter().map(|id| name_of(&groups, id).to_string()).collect();
        names.sort();
        names
    };
    let ids = |items: &Value| items.as_array().into_iter().flatten().map(|item| item["id"].clone()).collect::<Vec<_>>();
    let length = |items: &Value| items.as_array().map_or(0, Vec::len);
    let of = |namespace: &String, items: &[Value], show: &dyn Fn(&Value) -> Value| {
        let is_its = |item: &&Value| {
            let name = item["name"].as_str().unwrap_or_default();
            // Numbers end the names of namespaces.
            let mut places = name.match_indices(namespace.as_str());
            places.any(|(at, _)| !name[at + namespace.len()..].starts_with(|next: char| next.is_ascii_digit()))
        };
        let mut shown: Vec<_> =
            items.iter().filter(is_its).map(|item| show(item).to_string().replace(namespace.as_str(), "NS")).collect();
        shown.sort();
        shown
    };
    let view = |namespace: &String| {
        json!({
            "groups": of(namespace, &groups, &|group| group["name"].clone()),
            "policies": of(namespace, &policies, &|policy| {
                let rule = &policy["rules"][0];
                json!([policy["name"], groups_named(ids(&rule["sources"])), name_of(&resources, &rule["destinationResource"]["id"])])
            }),
            "keys": of(namespace, &keys, &|key| {
                let name = key["name"].as_str().unwrap().split(" konverge=").next();
                json!([name, groups_named(key["auto_groups"].as_array().unwrap().clone())])
            }),
            "networks": of(namespace, &networks, &|network| {
                json!([network["name"], length(&network["resources"]), length(&network["routers"])])
            }),
            "resources": of(namespace, &resources, &|resource| {
                json!([resource["name"], resource["address"], groups_named(ids(&resource["groups"]))])
            }),
        })
    };
    namespaces.iter().map(view).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn f30_references_in_a_circle_end_in_one_state_whatever_the_order_of_creation_and_deletion() {
    let stage = Stage::set().await;
    let arguments = ["--cluster-name=prod", "--namespaced-networks", "--allow-automatic-policy-creation"];
    let operator = stage.start(&arguments).await;
    let orders = orders(&Part::ALL);
    let mut namespaces = Vec::new();
    for _ in &orders {
        namespaces.push(stage.other_namespace().await);
    }
    let each = || orders.iter().zip(&namespaces);
    let empty = json!({ "groups": [], "policies": [], "keys": [], "networks": [], "resources": [] });

    // Each object is looked at before the next one comes.
    let created = each().map(async |(order, namespace)| {
        for part in order {
            let (kind, name) = (part.kind(), part.name(namespace));
            let api = api(&stage, &kind, namespace);
            create(&api, &kind, &name, part.spec(namespace)).await;
            let is_seen = |object: Option<&DynamicObject>| {
                object.is_some_and(|object| ["Ready", "Reconciling"].iter().any(|word| says(object, word).is_some()))
            };
            until(&api, &name, "looked at", is_seen).await;
        }
        for part in order {
            let api = api(&stage, &part.kind(), namespace);
            until(&api, &part.name(namespace), "settled", |object| part.is_settled(object)).await;
        }
    });
    join_all(created).await;
    at_rest(&stage, &operator).await;
    let expected = json!({
        "groups": [r#""prod-NS""#, r#""servers NS""#],
        "policies": [r#"["access NS in NS/db",["\"servers NS\""],"db NS"]"#],
        "keys": [r#"["prod-NS",["\"prod-NS\"","\"servers NS\""]]"#],
        "networks": [r#"["prod-NS",1,1]"#],
        "resources": [r#"["db NS","10.0.0.1/32",["\"All\""]]"#],
    });
    for (view, order) in views(&stage, &namespaces).await.into_iter().zip(&orders) {
        assert_eq!(view, expected, "created in the order {order:?}");
    }

    // Each is gone or says what it waits for before the next one is deleted.
    let deleted = each().map(async |(order, namespace)| {
        for part in order {
            let (api, name) = (api(&stage, &part.kind(), namespace), part.name(namespace));
            api.delete(&name, &DeleteParams::default()).await.unwrap();
            let is_seen = |object: Option<&DynamicObject>| {
                object.is_none_or(|object| says(object, "Reconciling").is_some_and(|(reason, _)| reason == "InUse"))
            };
            until(&api, &name, "gone or in use", is_seen).await;
        }
        for part in order.iter().filter(|part| **part != Part::Group) {
            let api = api(&stage, &part.kind(), namespace);
            until(&api, &part.name(namespace), "gone", |object| object.is_none()).await;
        }
        // The test cluster has no garbage collector, which deletes the groups of the routing peer and of the resource.
        let groups = api(&stage, &kind::<OZGroup>(), namespace);
        groups.delete_collection(&DeleteParams::default(), &ListParams::default()).await.unwrap();
        let is_empty = async || groups.list(&ListParams::default()).await.unwrap().items.is_empty().then_some(());
        assert!(eventually(LIMIT, is_empty).await.is_ok(), "the groups stay: {:#?}", stage.calls());
    });
    join_all(deleted).await;
    for (view, order) in views(&stage, &namespaces).await.into_iter().zip(&orders) {
        assert_eq!(view, empty, "deleted in the order {order:?}");
    }
    let left: Vec<_> = stage.on_server(&Collection::Groups).await.into_keys().collect();
    assert_eq!(left, ["All"]);
    assert!(stage.dashboard.list(&Collection::AllRouters).await.unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn f30_a_reference_to_nothing_is_named_stays_as_it_is_and_heals() {
    let stage = Stage::set().await;
    let operator = stage.start(&["--cluster-name=prod"]).await;
    let (namespace, other) = (stage.namespace.as_str(), stage.other_namespace().await);
    let all = stage.on_server(&Collection::Groups).await["All"]["id"].clone();
    let rule =
        json!({ "name": "r", "sources": ["All"], "destinations": ["nowhere/db"], "protocol": "tcp", "ports": ["1"] });
    let key = |reference: Value| json!({ "name": "k", "ephemeral": true, "autoGroups": [reference] });
    let resource = |name: &str, field: &str, network: Value| {
        let mut spec = json!({ "name": name, "address": "10.0.0.1", "groups": ["All"] });
        spec[field] = network;
        spec
    };
    let behind = |service: &str| json!({ "networkRouterRef": { "name": "edge", "namespace": other }, "serviceRef": { "name": service } });
    let (waits, depends) = ("WaitingForReference", "Dependency");
    let router = format!("NetworkRouter {other}/edge");
    let dangling = [
        (
            kind::<OZPolicy>(),
            "flat",
            json!({ "name": "flat", "sourceGroups": ["nobody"], "destinationGroups": ["All"], "ports": [80] }),
            waits,
            "nobody",
        ),
        (kind::<OZPolicy>(), "rules", json!({ "name": "rules", "rules": [rule] }), waits, "nowhere/db"),
        (
            kind::<OZResource>(),
            "by-name",
            resource("by-name", "networkRef", json!({ "name": "nowhere" })),
            depends,
            "OZRoutingPeer nowhere",
        ),
        (kind::<OZResource>(), "by-id", resource("by-id", "networkID", json!("nowhere")), depends, "network nowhere"),
        (kind::<OZRoutingPeer>(), "peers", json!({ "groups": ["nobody"] }), waits, "nobody"),
        (kind::<OZSetupKey>(), "key", json!({ "name": "key", "autoGroups": ["nobody"] }), waits, "nobody"),
        (kind::<SetupKey>(), "by-local", key(json!({ "localRef": { "name": "local" } })), depends, "local"),
        (kind::<SetupKey>(), "by-name", key(json!({ "name": "nobody" })), waits, "nobody"),
        (kind::<SetupKey>(), "by-id", key(json!({ "id": "nowhere" })), depends, "the id nowhere"),
        (kind::<NetworkResource>(), "serviceless", behind("missing"), depends, "missing"),
        (kind::<NetworkResource>(), "routerless", behind("web"), depends, router.as_str()),
    ];
    let service = json!({ "apiVersion": "v1", "kind": "Service", "metadata": { "name": "web" }, "spec": { "ports": [{ "port": 80 }] } });
    stage.create(&stage.api(), &serde_json::from_value::<k8s_openapi::api::core::v1::Service>(service).unwrap()).await;
    for (kind, name, spec, reason, named) in &dangling {
        let api = api(&stage, kind, namespace);
        create(&api, kind, name, spec.clone()).await;
        let is_told = |object: Option<&DynamicObject>| {
            let told = object.and_then(|object| says(object, "Reconciling"));
            told.is_some_and(|(why, message)| why == *reason && message.contains(named))
        };
        until(&api, name, &format!("{reason} {named}"), is_told).await;
    }
    // Others go on, and what waits stays as it is, also over a restart.
    let (groups, fine) = (api(&stage, &kind::<Group>(), namespace), "fine");
    create(&groups, &kind::<Group>(), fine, json!({ "name": "fine" })).await;
    let is_ready = |object: Option<&DynamicObject>| object.is_some_and(|object| says(object, "Ready").is_some());
    until(&groups, fine, "ready", is_ready).await;
    let before = at_rest(&stage, &operator).await;
    operator.stop().await;
    let operator = stage.start(&["--cluster-name=prod"]).await;
    assert_eq!(at_rest(&stage, &operator).await, before);

    // Each is as it should be once the missing one exists, in another namespace, too.
    stage.by_hand(&Collection::Groups, json!({ "name": "nobody" })).await;
    create(&groups, &kind::<Group>(), "local", json!({ "name": "of the object" })).await;
    let zone = json!({ "name": "prod", "domain": "prod.example", "enabled": true, "enable_search_domain": false,
        "distribution_groups": [all] });
    stage.by_hand(&Collection::Zones, zone).await;
    let routers = api(&stage, &kind::<NetworkRouter>(), &other);
    create(&routers, &kind::<NetworkRouter>(), "edge", json!({ "dnsZoneRef": { "name": "prod.example" } })).await;
    for (kind, name) in [
        (kind::<OZPolicy>(), "flat"),
        (kind::<OZSetupKey>(), "key"),
        (kind::<SetupKey>(), "by-local"),
        (kind::<SetupKey>(), "by-name"),
        (kind::<NetworkResource>(), "routerless"),
    ] {
        until(&api(&stage, &kind, namespace), name, "ready", is_ready).await;
    }
    let peers = api(&stage, &kind::<OZRoutingPeer>(), namespace);
    until(&peers, "peers", "settled", |object| Part::Peer.is_settled(object)).await;

    // An object that never had its reference can be deleted, and so can one that has it.
    for (kind, name, ..) in &dangling {
        let api = api(&stage, kind, namespace);
        api.delete(name, &DeleteParams::default()).await.unwrap();
        until(&api, name, "gone", |object| object.is_none()).await;
    }
    assert!(stage.on_server(&Collection::Policies).await.is_empty());
    assert!(stage.dashboard.list(&Collection::AllResources).await.unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn f30_of_two_objects_that_want_one_item_the_first_keeps_it_until_it_goes() {
    let stage = Stage::set().await;
    let operator = stage.start(&[]).await;
    let network = stage.by_hand(&Collection::Networks, json!({ "name": "n", "description": "" })).await;
    let kinds = [
        (kind::<Group>(), json!({ "name": "one" }), Collection::Groups),
        (
            kind::<OZResource>(),
            json!({ "name": "one", "networkID": network, "address": "10.0.0.1", "groups": ["All"] }),
            Collection::AllResources,
        ),
    ];
    let is_ready = |object: Option<&DynamicObject>| object.is_some_and(|object| says(object, "Ready").is_some());
    let is_refused = |object: Option<&DynamicObject>| {
        let told = object.and_then(|object| says(object, "Stalled"));
        told.is_some_and(|(why, message)| why == "Claimed" && message.contains("/first stands for"))
    };
    for (kind, spec, _) in &kinds {
        let api = api(&stage, kind, &stage.namespace);
        create(&api, kind, "first", spec.clone()).await;
        until(&api, "first", "ready", is_ready).await;
        create(&api, kind, "second", spec.clone()).await;
        until(&api, "second", "refused", is_refused).await;
    }
    let before = at_rest(&stage, &operator).await;
    operator.stop().await;
    let operator = stage.start(&[]).await;
    assert_eq!(at_rest(&stage, &operator).await, before, "the first keeps it, also after a restart");
    for (kind, _, collection) in &kinds {
        let api = api(&stage, kind, &stage.namespace);
        let id = stage.on_server(collection).await["one"]["id"].clone();
        api.delete("first", &DeleteParams::default()).await.unwrap();
        until(&api, "first", "gone", |object| object.is_none()).await;
        until(&api, "second", "ready", is_ready).await;
        let listed = stage.dashboard.list(collection).await.unwrap();
        let ids: Vec<_> =
            listed.iter().filter(|item| item.raw()["name"] == "one").map(konverge_openzro::Object::id).collect();
        assert!(ids.len() == 1 && json!(ids[0]) != id, "the second has made its own: {ids:?}");
    }
}
