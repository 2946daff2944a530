//! Teams beside each other: rules for names, privileges, the Secret of a setup key, a namespace that is deleted, and replicas that others set.

use k8s_openapi::{
    api::{
        apps::v1::Deployment,
        core::v1::{Namespace, Secret},
        events::v1::Event,
    },
    apimachinery::pkg::apis::meta::v1::OwnerReference,
};
use konverge::{
    Status,
    kube::{
        Api, ResourceExt,
        api::{DeleteParams, ListParams, Patch, PatchParams},
    },
};
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
use serde_json::{Value, json};

use crate::stage::Stage;

fn group(name: &str, display: &str) -> OZGroup {
    OZGroup::new(name, OZGroupSpec { name: display.to_owned() })
}

fn key(name: &str, spec: Value) -> SetupKey {
    SetupKey::new(name, serde_json::from_value::<SetupKeySpec>(spec).unwrap())
}

fn peer(name: &str, spec: Value) -> OZRoutingPeer {
    OZRoutingPeer::new(name, serde_json::from_value::<OZRoutingPeerSpec>(spec).unwrap())
}

fn router(name: &str) -> NetworkRouter {
    let spec = json!({ "dnsZoneRef": { "name": "prod.example" } });
    NetworkRouter::new(name, serde_json::from_value::<NetworkRouterSpec>(spec).unwrap())
}

fn message(status: &Status) -> String {
    status.conditions.get("Stalled").unwrap().message.clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_uses_no_name_without_a_rule_and_nothing_is_written() {
    let stage = Stage::set().await;
    let id = stage.by_hand(&Collection::Groups, json!({ "name": "prod-ops" })).await;
    let operator = stage.start(&["--allow=*={namespace}/*"]).await;
    let namespace = stage.namespace.clone();

    // A group is neither adopted nor made, and no key joins peers to it: by name, by id, or through an object.
    let groups = stage.api::<OZGroup>();
    stage.create(&groups, &group("ops", "prod-ops")).await;
    let refused = message(&stage.says(&groups, "ops", "Stalled", "NotAllowed").await.status.unwrap().standard);
    assert!(refused.contains(&format!("--allow='{namespace}=prod-ops'")), "{refused}");
    stage.told("ops", "NotAllowed").await;
    let (own, other) = (format!("{namespace}/own"), format!("{namespace}/other"));
    let mut by_id = Group::new("by-id", GroupSpec { name: other });
    by_id.annotations_mut().insert("konverge.dev/adopt".to_owned(), id.clone());
    stage.create(&stage.api(), &by_id).await;
    stage.says(&stage.api::<Group>(), "by-id", "Stalled", "NotAllowed").await;
    let keys = stage.api::<SetupKey>();
    for (name, reference) in [("by-name", json!({ "name": "prod-ops" })), ("by-id", json!({ "id": id }))] {
        stage.create(&keys, &key(name, json!({ "name": "k", "ephemeral": true, "autoGroups": [reference] }))).await;
        stage.says(&keys, name, "Stalled", "NotAllowed").await;
    }
    let documented = json!({ "name": "k", "autoGroups": ["prod-ops"] });
    let documented = OZSetupKey::new("k", serde_json::from_value::<OZSetupKeySpec>(documented).unwrap());
    stage.create(&stage.api(), &documented).await;
    stage.says(&stage.api::<OZSetupKey>(), "k", "Stalled", "NotAllowed").await;

    // The network of the cluster is not one of the namespace either.
    stage.create(&stage.api(), &peer("router", json!({}))).await;
    stage.says(&stage.api::<OZRoutingPeer>(), "router", "Stalled", "NotAllowed").await;
    let network = stage.by_hand(&Collection::Networks, json!({ "name": "prod", "description": "" })).await;
    let name = format!("{namespace}/db");
    let spec = json!({ "name": name, "networkID": network, "address": "10.9.0.1", "groups": [own] });
    let resource = OZResource::new("db", serde_json::from_value::<OZResourceSpec>(spec).unwrap());
    stage.create(&stage.api(), &resource).await;
    stage.says(&stage.api::<OZResource>(), "db", "Stalled", "NotAllowed").await;
    stage.settled(&operator).await;
    assert_eq!(stage.writes(), 0, "{:#?}", stage.calls());

    // Own names are served, and a key has an expiry and a use limit.
    stage.create(&groups, &group("own", &own)).await;
    stage.says(&groups, "own", "Ready", "Reconciled").await;
    stage.create(&keys, &key("own", json!({ "name": "k", "ephemeral": true, "autoGroups": [{ "name": own }] }))).await;
    stage.says(&keys, "own", "Ready", "Reconciled").await;
    let made = stage.dashboard.list(&Collection::SetupKeys).await.unwrap();
    assert_eq!((made.len(), &made[0].raw()["usage_limit"]), (1, &json!(100)));
    let expires = made[0].raw()["expires"].as_str().unwrap_or_default().to_owned();
    assert!(!expires.starts_with("0001"), "the key never expires: {expires}");
}

/// A reference can lead out of the namespace of its object, so a rule must permit it, too.
#[tokio::test(flavor = "multi_thread")]
async fn references_need_a_rule_and_nothing_is_written_without_one() {
    let stage = Stage::set().await;
    let namespace = stage.namespace.clone();
    stage.by_hand(&Collection::Groups, json!({ "name": "prod-ops" })).await;
    let network = json!({ "name": format!("{namespace}/net"), "description": "" });
    let network = stage.by_hand(&Collection::Networks, network).await;
    let policies = Api::<OZPolicy>::all(stage.client.clone());
    for name in ["admins", &namespace] {
        let spec = json!({ "name": name, "sourceGroups": ["All"] });
        stage.create(&policies, &OZPolicy::new(name, serde_json::from_value::<OZPolicySpec>(spec).unwrap())).await;
    }
    let rules = "--allow=*={namespace},*={namespace}/*";
    let arguments = [rules, "--allow-automatic-policy-creation", "--namespaced-networks", "--cluster-name=prod"];
    let operator = stage.start(&arguments).await;
    stage.says(&policies, "admins", "Reconciling", "Incomplete").await;

    let resources = stage.api::<OZResource>();
    let resource = |name: &str, more: Value| {
        let mut spec = json!({ "name": format!("{namespace}/{name}"), "networkID": network, "address": "10.9.0.1", "groups": [format!("{namespace}/db")],
            "tcpPorts": [5432] });
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        OZResource::new(name, serde_json::from_value::<OZResourceSpec>(spec).unwrap())
    };
    let sources = json!({ "policyName": "new", "policySourceGroups": ["prod-ops"] });
    for (name, more, field) in [
        ("policy", json!({ "policyName": "admins" }), "spec.policyName"),
        ("sources", sources, "spec.policySourceGroups"),
    ] {
        stage.create(&resources, &resource(name, more)).await;
        let refused = message(&stage.says(&resources, name, "Stalled", "NotAllowed").await.status.unwrap().standard);
        assert!(refused.starts_with(field), "{refused}");
    }
    let services = stage.api::<NetworkResource>();
    let spec =
        json!({ "networkRouterRef": { "name": "edge", "namespace": "platform" }, "serviceRef": { "name": "web" } });
    let service = NetworkResource::new("web", serde_json::from_value::<NetworkResourceSpec>(spec).unwrap());
    stage.create(&services, &service).await;
    let refused = message(&stage.says(&services, "web", "Stalled", "NotAllowed").await.status.unwrap().standard);
    assert!(refused.starts_with("spec.networkRouterRef"), "{refused}");
    let peers = stage.api::<OZRoutingPeer>();
    stage.create(&peers, &peer("router", json!({ "groups": ["prod-ops"], "exemptFromAdmission": false }))).await;
    let refused = message(&stage.says(&peers, "router", "Stalled", "NotAllowed").await.status.unwrap().standard);
    assert!(refused.starts_with("spec.groups"), "{refused}");
    stage.settled(&operator).await;
    assert_eq!(stage.writes(), 0, "{:#?}", stage.calls());
    assert!(stage.api::<OZGroup>().list(&ListParams::default()).await.unwrap().items.is_empty());

    // Names that a rule permits are served.
    stage.create(&stage.api(), &group("own", &format!("{namespace}/own"))).await;
    stage.create(&resources, &resource("own", json!({ "policyName": namespace }))).await;
    stage.says(&resources, "own", "Ready", "Reconciled").await;
    let own = json!({ "spec": { "groups": [format!("{namespace}/own")] } });
    stage.patch(&peers, "router", own).await;
    stage.says(&peers, "router", "Reconciling", "WaitingForPods").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_forged_record_deletes_no_group_that_the_namespace_may_not_use() {
    let stage = Stage::set().await;
    let id = stage.by_hand(&Collection::Groups, json!({ "name": "prod-ops" })).await;
    let _operator = stage.start(&["--allow=*={namespace}/*", "--cluster-id=c"]).await;
    let groups = stage.api::<Group>();
    let own = format!("{}/a", stage.namespace);
    let made = stage.create(&groups, &Group::new("a", GroupSpec { name: own.clone() })).await;
    stage.says(&groups, "a", "Ready", "Reconciled").await;
    let entry = json!({ "origin": "made", "name": own, "id": id });
    let record = json!({ "cluster": "c", "uid": made.uid().unwrap(), "parts": { "group": entry } }).to_string();
    stage.patch(&groups, "a", json!({ "metadata": { "annotations": { "konverge.dev/remote": record } } })).await;
    stage.delete(&groups, "a").await;
    stage.gone(&groups, "a").await;
    assert!(stage.on_server(&Collection::Groups).await.contains_key("prod-ops"));
}

/// Every user can write an owner reference, also one to a router of another namespace.
#[tokio::test(flavor = "multi_thread")]
async fn a_forged_owner_reference_opens_no_group_of_a_router() {
    let stage = Stage::set().await;
    let operator = stage.start(&["--allow=*={namespace}/*", "--cluster-id=c"]).await;
    let theirs = stage.other_namespace().await;
    let routers = Api::<NetworkRouter>::namespaced(stage.client.clone(), &theirs);
    stage.create(&routers, &router("edge")).await;
    let edge = stage.says(&routers, "edge", "Reconciling", "WaitingForPods").await;
    let on_server = stage.on_server(&Collection::Groups).await;
    let (name, group) = on_server.iter().find(|(name, _)| name.starts_with("networkrouter-")).unwrap();
    let owner =
        json!({ "apiVersion": "openzro.io/v1alpha1", "kind": "NetworkRouter", "name": "edge", "uid": edge.uid() });
    let owner = vec![serde_json::from_value::<OwnerReference>(owner).unwrap()];
    stage.settled(&operator).await;
    let writes = stage.writes();

    let keys = stage.api::<SetupKey>();
    for (key_name, reference) in [("by-name", json!({ "name": name })), ("by-id", json!({ "id": group["id"] }))] {
        let mut forged = key(key_name, json!({ "name": "k", "ephemeral": true, "autoGroups": [reference] }));
        forged.metadata.owner_references = Some(owner.clone());
        stage.create(&keys, &forged).await;
        stage.says(&keys, key_name, "Stalled", "NotAllowed").await;
    }
    let groups = stage.api::<Group>();
    let mut forged = Group::new("forged", GroupSpec { name: name.clone() });
    forged.metadata.owner_references = Some(owner);
    forged.metadata.finalizers = Some(vec!["finalizers.openzro.io/group".to_owned()]);
    forged.annotations_mut().insert("konverge.dev/adopt".to_owned(), "true".to_owned());
    let forged = stage.create(&groups, &forged).await;
    stage.says(&groups, "forged", "Stalled", "NotAllowed").await;
    let entry = json!({ "origin": "made", "name": name, "id": group["id"] });
    let record = json!({ "cluster": "c", "uid": forged.uid(), "parts": { "group": entry } }).to_string();
    stage.patch(&groups, "forged", json!({ "metadata": { "annotations": { "konverge.dev/remote": record } } })).await;
    stage.delete(&groups, "forged").await;
    stage.gone(&groups, "forged").await;
    assert_eq!(stage.writes(), writes, "{:#?}", stage.calls());

    // The router itself takes its group and its key along.
    stage.delete(&routers, "edge").await;
    stage.gone(&routers, "edge").await;
    assert_eq!(stage.on_server(&Collection::Groups).await.into_keys().collect::<Vec<_>>(), ["All"]);
    assert!(stage.dashboard.list(&Collection::SetupKeys).await.unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn only_a_namespace_that_the_platform_names_has_privileged_pods_made() {
    let stage = Stage::set().await;
    let operator = stage.start(&["--allow=*=*"]).await;
    let peers = stage.api::<OZRoutingPeer>();
    let node = json!([{ "name": "node", "hostPath": { "path": "/" } }]);
    for (name, spec) in [("privileged", json!({ "privileged": true })), ("volumes", json!({ "volumes": node }))] {
        stage.create(&peers, &peer(name, spec)).await;
        stage.says(&peers, name, "Stalled", "PrivilegeNotAllowed").await;
    }
    stage.settled(&operator).await;
    assert_eq!(stage.writes(), 0, "{:#?}", stage.calls());
    assert!(stage.api::<Deployment>().list(&ListParams::default()).await.unwrap().items.is_empty());
    operator.stop().await;
    // The other one would share its network. The API server of the tests allows no privileged containers.
    stage.delete(&peers, "privileged").await;
    let named = format!("--privileged-namespace={}", stage.namespace);
    let _operator = stage.start(&["--allow=*=*", &named]).await;
    stage.says(&peers, "volumes", "Reconciling", "WaitingForPods").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_secret_of_a_setup_key_is_back_at_once_and_a_foreign_one_is_left_alone() {
    let stage = Stage::set().await;
    let operator = stage.start(&[]).await;
    let (keys, secrets) = (stage.api::<SetupKey>(), stage.api::<Secret>());
    stage.create(&keys, &key("k", json!({ "name": "k", "ephemeral": false }))).await;
    stage.says(&keys, "k", "Ready", "Reconciled").await;
    let before = secrets.get("setup-key-k").await.unwrap().uid();
    stage.delete(&secrets, "setup-key-k").await;
    let is_back = async || {
        secrets
            .get_opt("setup-key-k")
            .await
            .unwrap()
            .is_some_and(|secret| secret.uid() != before && secret.data.is_some())
    };
    stage.until("the Secret is back", is_back).await;
    stage.says(&keys, "k", "Ready", "Reconciled").await;

    let mut foreign = Secret::default();
    foreign.metadata.name = Some("setup-key-theirs".to_owned());
    foreign.string_data = Some([("setup-key".to_owned(), "theirs".to_owned())].into());
    stage.create(&secrets, &foreign).await;
    stage.settled(&operator).await;
    let writes = stage.writes();
    stage.create(&keys, &key("theirs", json!({ "name": "theirs", "ephemeral": false }))).await;
    let refused = message(&stage.says(&keys, "theirs", "Stalled", "NotOurs").await.status.unwrap().standard);
    assert!(refused.contains("setup-key-theirs"), "{refused}");
    assert_eq!(stage.writes(), writes, "{:#?}", stage.calls());
    let kept = secrets.get("setup-key-theirs").await.unwrap().data.unwrap();
    assert_eq!(kept["setup-key"].0, b"theirs");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_that_is_deleted_waits_no_longer_than_its_deadline() {
    let stage = Stage::set().await;
    let _operator = stage.start(&["--terminating-namespace-deadline=1"]).await;
    let groups = stage.api::<OZGroup>();
    stage.create(&groups, &group("devs", "Left")).await;
    let id = stage.says(&groups, "devs", "Ready", "Reconciled").await.status.unwrap().group_id.unwrap();
    let rule = json!({ "name": "r", "enabled": true, "action": "accept", "protocol": "all", "sources": [id], "destinations": [id],
        "bidirectional": true });
    stage.by_hand(&Collection::Policies, json!({ "name": "by hand", "enabled": true, "rules": [rule] })).await;
    let namespaces = Api::<Namespace>::all(stage.client.clone());
    namespaces.delete(&stage.namespace, &DeleteParams::default()).await.unwrap();
    stage.delete(&groups, "devs").await;
    stage.gone(&groups, "devs").await;
    assert!(stage.on_server(&Collection::Groups).await.contains_key("Left"));
    // A namespace that is being deleted accepts no events, so the event about it is in another one.
    let events = Api::<Event>::namespaced(stage.client.clone(), "default");
    let of_namespace = ListParams::default().fields(&format!("regarding.name={}", stage.namespace));
    let is_told = async || {
        let events = events.list(&of_namespace).await.unwrap().items;
        let mut notes = events.into_iter().filter(|event| event.reason.as_deref() == Some("LeftBehind"));
        let note = notes.next().and_then(|event| event.note).unwrap_or_default();
        note.contains("/devs is released after ") && note.contains("what openZro has of it stays")
    };
    stage.until("an event about the namespace names what stays", is_told).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn replicas_that_an_autoscaler_sets_stay() {
    let stage = Stage::set().await;
    let operator = stage.start(&["--namespaced-networks"]).await;
    let (peers, deployments) = (stage.api::<OZRoutingPeer>(), stage.api::<Deployment>());
    let scaled = async |replicas: i32| {
        let patch = Patch::Merge(json!({ "spec": { "replicas": replicas } }));
        deployments.patch_scale("r", &PatchParams::default(), &patch).await
    };
    stage.create(&peers, &peer("r", json!({}))).await;
    // As soon as the Deployment is there, when the operator's cache may not have it yet.
    stage.until("the Deployment is there", async || scaled(5).await.is_ok()).await;
    stage.settled(&operator).await;
    assert_eq!(deployments.get("r").await.unwrap().spec.unwrap().replicas, Some(5));
    scaled(7).await.unwrap();
    stage.settled(&operator).await;
    assert_eq!(deployments.get("r").await.unwrap().spec.unwrap().replicas, Some(7));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_routing_peer_with_a_long_name_is_served() {
    let stage = Stage::set().await;
    let _operator = stage.start(&["--namespaced-networks"]).await;
    let (peers, deployments) = (stage.api::<OZRoutingPeer>(), stage.api::<Deployment>());
    let name = format!("r{}", "x".repeat(70));
    stage.create(&peers, &peer(&name, json!({ "exemptFromAdmission": false }))).await;
    stage.says(&peers, &name, "Reconciling", "WaitingForPods").await;
    let made = deployments.get(&name).await.unwrap().spec.unwrap();
    assert_eq!(made.replicas, Some(3));
    assert_eq!(made.selector.match_labels.unwrap()["app.kubernetes.io/instance"].len(), 63);
}
