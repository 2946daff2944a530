//! Namespaces with an account of their own.

use std::collections::BTreeSet;

use konverge::{
    Status,
    kube::{Api, api::ListParams},
};
use konverge_manage::api::{
    v1::{OZGroup, OZGroupSpec, OZPolicy, OZPolicySpec, OZResource, OZResourceSpec, OZRoutingPeer, OZRoutingPeerSpec},
    v1alpha1::{Group, GroupSpec, NetworkResource, NetworkResourceSpec, SetupKey, SetupKeySpec},
};
use konverge_openzro::{Collection, OpenZro};
use serde_json::{Value, json};

use crate::stage::Stage;

/// The names of the objects of a collection of an account, without marks.
async fn names(account: &OpenZro, collection: &Collection) -> BTreeSet<String> {
    let objects = account.list(collection).await.unwrap();
    let name = |object: &konverge_openzro::Object| object.raw()["name"].as_str().unwrap_or_default().to_owned();
    objects.iter().map(name).map(|name| name.split(" konverge=").next().unwrap_or_default().to_owned()).collect()
}

fn set<const N: usize>(names: [&str; N]) -> BTreeSet<String> {
    names.map(str::to_owned).into()
}

/// Why the object is stalled.
fn message(status: &Status) -> &str {
    &status.conditions.get("Stalled").unwrap().message
}

fn group(name: &str, display: &str) -> OZGroup {
    OZGroup::new(name, OZGroupSpec { name: display.to_owned() })
}

#[tokio::test(flavor = "multi_thread")]
async fn the_objects_of_a_tenant_are_in_its_account_and_in_no_other() {
    let stage = Stage::set().await;
    let (token, account) = stage.other_account().await;
    let namespace = stage.other_namespace().await;
    let tenant = format!("--account={namespace}={}", stage.write_token(&token));
    let operator = stage.start(&["--cluster-name=prod", &tenant]).await;
    let (groups, theirs) = (stage.api::<OZGroup>(), Api::<OZGroup>::namespaced(stage.client.clone(), &namespace));

    // The same display name in both accounts: two groups, and neither is shared or adopted.
    stage.create(&groups, &group("web", "Web")).await;
    stage.create(&theirs, &group("web", "Web")).await;
    stage.create(&theirs, &group("devs", "Developers")).await;
    let ours = stage.says(&groups, "web", "Ready", "Reconciled").await.status.unwrap().group_id;
    let other = stage.says(&theirs, "web", "Ready", "Reconciled").await.status.unwrap().group_id;
    stage.says(&theirs, "devs", "Ready", "Reconciled").await;
    assert_ne!(ours, other);
    assert_eq!(names(&stage.dashboard, &Collection::Groups).await, set(["All", "Web"]));
    assert_eq!(names(&account, &Collection::Groups).await, set(["All", "Web", "Developers"]));

    // Groups of another account cannot be referred to by id.
    let keys = Api::<SetupKey>::namespaced(stage.client.clone(), &namespace);
    let spec = |id: &Option<String>| json!({ "name": "key", "ephemeral": true, "autoGroups": [{ "id": id }] });
    let key = |name: &str, spec: Value| SetupKey::new(name, serde_json::from_value::<SetupKeySpec>(spec).unwrap());
    stage.create(&keys, &key("foreign", spec(&ours))).await;
    stage.says(&keys, "foreign", "Reconciling", "Dependency").await;
    stage.create(&keys, &key("own", spec(&other))).await;
    stage.says(&keys, "own", "Ready", "Reconciled").await;
    assert!(names(&stage.dashboard, &Collection::SetupKeys).await.is_empty());
    assert_eq!(account.list(&Collection::SetupKeys).await.unwrap().len(), 1);

    // A tenant has a network of its own, and its resources are there by default.
    let peers = Api::<OZRoutingPeer>::namespaced(stage.client.clone(), &namespace);
    let spec = json!({ "exemptFromAdmission": false, "routes": ["10.0.0.0/8"] });
    let peer = OZRoutingPeer::new("router", serde_json::from_value::<OZRoutingPeerSpec>(spec).unwrap());
    stage.create(&peers, &peer).await;
    stage.says(&peers, "router", "Reconciling", "WaitingForPods").await;
    let resources = Api::<OZResource>::namespaced(stage.client.clone(), &namespace);
    let spec =
        json!({ "name": "db", "address": "10.9.0.1", "groups": ["Web"], "policyName": "db", "tcpPorts": [5432] });
    let resource = OZResource::new("db", serde_json::from_value::<OZResourceSpec>(spec).unwrap());
    stage.create(&resources, &resource).await;
    stage.says(&resources, "db", "Ready", "Reconciled").await;
    assert_eq!(names(&account, &Collection::Networks).await, set([&format!("prod-{namespace}")]));
    assert!(names(&stage.dashboard, &Collection::Networks).await.is_empty());

    // A policy is for the account that its annotation names, and has no groups of resources of another one.
    let policies = Api::<OZPolicy>::all(stage.client.clone());
    let spec = json!({ "name": "db", "sourceGroups": ["Developers"] });
    let mut policy = OZPolicy::new("db", serde_json::from_value::<OZPolicySpec>(spec).unwrap());
    policy.spec.ports = vec![80];
    stage.create(&policies, &policy).await;
    stage.says(&policies, "db", "Reconciling", "Incomplete").await;
    let refused = stage.says(&resources, "db", "Stalled", "InvalidSpec").await.status.unwrap();
    assert!(message(&refused.standard).contains("OZPolicy db is for another account"));
    let annotation = json!({ "metadata": { "annotations": { "konverge.dev/account": namespace } } });
    stage.patch(&policies, "db", annotation).await;
    stage.says(&policies, "db", "Ready", "Reconciled").await;
    stage.says(&resources, "db", "Ready", "Reconciled").await;
    assert_eq!(names(&account, &Collection::Policies).await, set(["db TCP", "db UDP"]));
    assert!(names(&stage.dashboard, &Collection::Policies).await.iter().all(|name| !name.starts_with("db")));

    // A deletion here leaves the group of the same name there.
    stage.delete(&groups, "web").await;
    stage.gone(&groups, "web").await;
    assert_eq!(names(&stage.dashboard, &Collection::Groups).await, set(["All"]));
    assert!(names(&account, &Collection::Groups).await.contains("Web"));
    operator.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn references_to_another_account_are_refused_and_block_nothing_there() {
    let stage = Stage::set().await;
    let (token, account) = stage.other_account().await;
    let tenant = stage.other_namespace().await;
    let flag = format!("--account={tenant}={}", stage.write_token(&token));
    let _operator = stage.start(&["--cluster-name=prod", &flag]).await;
    let peers = stage.api::<OZRoutingPeer>();
    let spec = json!({ "exemptFromAdmission": false });
    let peer = OZRoutingPeer::new("router", serde_json::from_value::<OZRoutingPeerSpec>(spec).unwrap());
    stage.create(&peers, &peer).await;
    stage.says(&peers, "router", "Reconciling", "WaitingForPods").await;

    let resources = Api::<OZResource>::namespaced(stage.client.clone(), &tenant);
    let to_router = json!({ "name": "router", "namespace": stage.namespace });
    let spec = json!({ "name": "db", "networkRef": to_router, "address": "10.9.0.1", "groups": ["All"] });
    let resource = OZResource::new("db", serde_json::from_value::<OZResourceSpec>(spec).unwrap());
    stage.create(&resources, &resource).await;
    let refused = stage.says(&resources, "db", "Stalled", "InvalidSpec").await.status.unwrap();
    let expected = format!("OZRoutingPeer {}/router is in another account", stage.namespace);
    assert!(message(&refused.standard).contains(&expected), "{}", message(&refused.standard));

    let services = Api::<NetworkResource>::namespaced(stage.client.clone(), &tenant);
    let spec = json!({ "networkRouterRef": to_router, "serviceRef": { "name": "web" } });
    let resource = NetworkResource::new("web", serde_json::from_value::<NetworkResourceSpec>(spec).unwrap());
    stage.create(&services, &resource).await;
    let refused = stage.says(&services, "web", "Stalled", "InvalidSpec").await.status.unwrap();
    let expected = format!("NetworkRouter {}/router is in another account", stage.namespace);
    assert!(message(&refused.standard).contains(&expected), "{}", message(&refused.standard));

    let groups = Api::<OZGroup>::namespaced(stage.client.clone(), &tenant);
    stage.create(&groups, &group("web", "Web")).await;
    stage.says(&groups, "web", "Ready", "Reconciled").await;
    let policies = Api::<OZPolicy>::all(stage.client.clone());
    let name = format!("{tenant}/web");
    let rule = json!({ "name": "r", "sources": ["All"], "destinations": [name], "protocol": "tcp", "ports": ["443"] });
    let spec = serde_json::from_value::<OZPolicySpec>(json!({ "name": "p", "rules": [rule] })).unwrap();
    stage.create(&policies, &OZPolicy::new("p", spec)).await;
    let refused = stage.says(&policies, "p", "Stalled", "InvalidSpec").await.status.unwrap();
    assert!(message(&refused.standard).contains(&format!("OZGroup {name} is in another account")));
    assert!(!names(&stage.dashboard, &Collection::Policies).await.contains("p r"));

    // Neither of them keeps the network in use, and nothing of it reached the account of the tenant.
    stage.delete(&peers, "router").await;
    stage.gone(&peers, "router").await;
    assert!(names(&stage.dashboard, &Collection::Networks).await.is_empty());
    assert!(names(&account, &Collection::AllResources).await.is_empty());
    stage.delete(&resources, "db").await;
    stage.gone(&resources, "db").await;
    let annotation = json!({ "metadata": { "annotations": { "konverge.dev/account": tenant } } });
    stage.patch(&policies, "p", annotation).await;
    stage.says(&policies, "p", "Ready", "Reconciled").await;
    assert!(names(&account, &Collection::Policies).await.contains("p r"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_resource_whose_policy_is_for_another_account_is_refused_before_anything_is_written() {
    let stage = Stage::set().await;
    let (token, account) = stage.other_account().await;
    let tenant = stage.other_namespace().await;
    let flag = format!("--account={tenant}={}", stage.write_token(&token));
    let _operator = stage.start(&[&flag]).await;
    let policies = Api::<OZPolicy>::all(stage.client.clone());
    let spec = json!({ "name": "db", "sourceGroups": ["All"] });
    stage.create(&policies, &OZPolicy::new("db", serde_json::from_value::<OZPolicySpec>(spec).unwrap())).await;
    stage.says(&policies, "db", "Reconciling", "Incomplete").await;

    let network = json!({ "name": "n", "description": "" }).as_object().unwrap().clone();
    let network = account.create(&Collection::Networks, &network).await.unwrap().object.id().to_owned();
    let resources = Api::<OZResource>::namespaced(stage.client.clone(), &tenant);
    let spec = json!({ "name": "db", "networkID": network, "address": "10.9.0.1", "groups": ["Databases"],
        "policyName": "db", "tcpPorts": [5432] });
    let resource = OZResource::new("db", serde_json::from_value::<OZResourceSpec>(spec).unwrap());
    stage.create(&resources, &resource).await;
    let refused = stage.says(&resources, "db", "Stalled", "InvalidSpec").await.status.unwrap();
    let expected = format!(
        "OZPolicy db is for another account; name a policy whose annotation konverge.dev/account is {tenant:?}"
    );
    assert!(message(&refused.standard).contains(&expected), "{}", message(&refused.standard));
    assert_eq!(stage.writes(), 0, "{:#?}", stage.calls());
    assert!(stage.finalizers(&resources, "db").await.is_empty());
    let groups = Api::<OZGroup>::namespaced(stage.client.clone(), &tenant);
    assert!(groups.list(&ListParams::default()).await.unwrap().items.is_empty());

    // The policy gets the account of the tenant, and everything is made.
    let annotation = json!({ "metadata": { "annotations": { "konverge.dev/account": tenant } } });
    stage.patch(&policies, "db", annotation).await;
    stage.says(&resources, "db", "Ready", "Reconciled").await;
    stage.says(&policies, "db", "Ready", "Reconciled").await;
    assert_eq!(names(&account, &Collection::Groups).await, set(["All", "Databases"]));
    assert_eq!(names(&account, &Collection::Policies).await, set(["db TCP"]));
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_token_of_a_tenant_nothing_of_it_reaches_another_account() {
    let stage = Stage::set().await;
    let namespace = stage.other_namespace().await;
    let tenant = format!("--account={namespace}=/nowhere/token");
    let _operator = stage.start(&[&tenant]).await;
    let theirs = Api::<Group>::namespaced(stage.client.clone(), &namespace);
    stage.create(&theirs, &Group::new("secret", GroupSpec { name: "Secret".to_owned() })).await;
    // The objects of the operator's own account go on.
    let groups = stage.api::<OZGroup>();
    stage.create(&groups, &group("web", "Web")).await;
    stage.says(&groups, "web", "Ready", "Reconciled").await;
    let has_failed = async || {
        let object = theirs.get("secret").await.unwrap();
        object
            .status
            .is_some_and(|status| status.standard.conditions.get("Ready").is_some_and(|it| it.status == "False"))
    };
    stage.until("the tenant's object says that it is not ready", has_failed).await;
    assert_eq!(names(&stage.dashboard, &Collection::Groups).await, set(["All", "Web"]));
}
