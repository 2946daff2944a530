#![allow(clippy::needless_pass_by_value, reason = "the rows of tables are made in place")]

use std::sync::Arc;

use konverge::testing::{TestRun, Write};
use serde_json::{from_value, json};

use super::*;
use crate::api::v1alpha1::NetworkResource;

fn object(kind: &str, namespace: &str, name: &str, spec: Value) -> DynamicObject {
    from_value(json!({
        "apiVersion": format!("{GROUP}/v1"),
        "kind": kind,
        "metadata": { "name": name, "namespace": namespace, "uid": format!("route-{name}") },
        "spec": spec,
    }))
    .unwrap()
}

#[test]
fn a_class_is_ours_by_its_controller_and_accepted_by_its_name() {
    for (name, spec, expected) in [
        ("openzro-public", json!({ "controllerName": CONTROLLER }), Ok(true)),
        ("openzro-private", json!({ "controllerName": CONTROLLER }), Ok(true)),
        ("openzro-public", json!({ "controllerName": "example.com/other" }), Ok(false)),
        (
            "other",
            json!({ "controllerName": CONTROLLER }),
            Err("the name other is not one of openzro-private and openzro-public"),
        ),
        (
            "openzro-public",
            json!({ "controllerName": CONTROLLER, "parametersRef": { "name": "x" } }),
            Err("spec.parametersRef"),
        ),
    ] {
        let is = match class(&object("GatewayClass", "", name, spec.clone())) {
            Class::Accepted => Ok(true),
            Class::NotOurs => Ok(false),
            Class::Invalid(why) => Err(why),
        };
        match (is, expected) {
            (Err(why), Err(part)) => assert!(why.contains(part), "{why}"),
            (is, expected) => assert_eq!(is.ok(), expected.ok(), "{name} {spec}"),
        }
    }
}

/// Without the version, a process that was stopped before its write brought older conditions back.
#[tokio::test]
async fn conditions_are_written_for_the_version_seen_and_a_lost_race_is_no_event() {
    let class = || {
        let spec = json!({ "controllerName": CONTROLLER });
        let mut class = object("GatewayClass", "", "openzro-public", spec);
        class.metadata.namespace = None;
        class
    };
    let run = || TestRun::dynamic(controllers::class_kind(), class());
    let ran = run().apply(controllers::gateway_classes()).await.unwrap();
    let write = ran.writes().iter().find(|write| write.subresource.as_deref() == Some("status")).unwrap();
    assert!(write.body["metadata"]["resourceVersion"].is_string() && write.code == 200, "{write:?}");

    let is_status = |write: &Write| (write.subresource.as_deref() == Some("status")).then_some(409);
    let lost = run().refusing(is_status).apply(controllers::gateway_classes()).await.unwrap();
    assert_eq!(lost.error().map(|error| error.reason), Some("Conflict"));
    assert!(lost.events().is_empty(), "{:?}", lost.events());
    let again = run().attempt(2).refusing(is_status).apply(controllers::gateway_classes()).await.unwrap();
    assert_eq!(again.events().len(), 1, "a race that is lost again and again is told");
}

#[test]
fn w34_a_gateway_is_programmed_once_its_router_is_ready() {
    let listener = |name: &str| json!({ "name": name, "protocol": ROUTER_PROTOCOL, "port": 1 });
    let router = |condition: Value| -> NetworkRouter {
        from_value(json!({ "metadata": { "name": "prod" }, "status": { "conditions": [condition] } })).unwrap()
    };
    let ready = || router(json!({ "type": "Ready", "status": "True" }));
    let unready =
        || router(json!({ "type": "Ready", "status": "False", "reason": "WaitingForPods", "message": "0 of 3 pods" }));
    let mut going = ready();
    going.metadata.deletion_timestamp = Some(from_value(json!("2026-01-02T03:04:05Z")).unwrap());
    let accepted = Some(Class::Accepted);
    let invalid = Some(Class::Invalid("bad name".to_owned()));
    for (class, listeners, found, expected) in [
        (accepted.clone(), json!([listener("prod")]), Some(ready()), "Programmed"),
        (
            accepted.clone(),
            json!([listener("prod")]),
            Some(unready()),
            "NetworkRouter openzro/prod is not ready: 0 of 3 pods",
        ),
        (accepted.clone(), json!([listener("prod")]), Some(NetworkRouter::default()), "has not looked at it yet"),
        (accepted.clone(), json!([listener("prod")]), Some(going), "it is being deleted"),
        (
            accepted.clone(),
            json!([listener("prod")]),
            None,
            "NetworkRouter openzro/prod, which the listener names, does not exist",
        ),
        (accepted.clone(), json!([]), Some(ready()), "spec.listeners has 0 listeners"),
        (accepted.clone(), json!([listener("prod"), listener("b")]), Some(ready()), "spec.listeners has 2 listeners"),
        (
            accepted,
            json!([{ "name": "prod", "protocol": "HTTP" }]),
            Some(ready()),
            "the protocol of the listener is \"HTTP\"",
        ),
        (invalid, json!([listener("prod")]), Some(ready()), "GatewayClass openzro-public is not accepted: bad name"),
        (Some(Class::NotOurs), json!([listener("prod")]), Some(ready()), "NotOurs"),
        (None, json!([listener("prod")]), Some(ready()), "Missing"),
    ] {
        let spec = json!({ "gatewayClassName": "openzro-public", "listeners": listeners });
        let found = found.map(Arc::new);
        let find = |key: &ObjectKey| found.clone().filter(|_| *key == ObjectKey::namespaced("openzro", "prod"));
        let state = gateway(&object("Gateway", "openzro", "public", spec), class.as_ref(), find);
        assert!(format!("{state:?}").replace("\\\"", "\"").contains(expected), "{state:?} {expected}");
    }
}

fn route(spec: Value) -> DynamicObject {
    object("HTTPRoute", "shop", "web", spec)
}

fn prod() -> ObjectKey {
    ObjectKey::namespaced("openzro", "prod")
}

/// Gateways `public` and `private` of two routers, `waiting`, which is not ready, and any other, which is not ours.
fn gateways(key: &ObjectKey) -> Gateway {
    match (key.namespace.as_deref(), key.name.as_str()) {
        (Some("openzro"), "public") => Gateway::Programmed(prod()),
        (Some("openzro"), "private") => Gateway::Programmed(ObjectKey::namespaced("openzro", "other")),
        (Some("openzro"), "waiting") => Gateway::Waiting("0 of 3 pods".to_owned()),
        (Some("openzro"), "gone") => Gateway::Missing,
        _ => Gateway::NotOurs,
    }
}

fn services(name: &str) -> Option<String> {
    ["web", "api"].contains(&name).then(|| format!("uid-of-{name}"))
}

#[test]
fn each_service_behind_a_route_becomes_a_resource_of_the_gateways_router() {
    let parent = |name: &str| json!({ "name": name, "namespace": "openzro" });
    let rules = |names: &[&str]| {
        let backends: Vec<_> = names.iter().map(|name| json!({ "name": name, "port": 80 })).collect();
        json!([{ "backendRefs": backends }])
    };
    let accepted = || ParentState::Accepted(prod());
    for (parents, rules, targets, expected) in [
        (json!([parent("public")]), rules(&["web", "api", "web"]), &["api", "web"][..], vec![Ok(accepted())]),
        (json!([parent("public")]), rules(&[]), &[], vec![Ok(accepted())]),
        (
            json!([parent("waiting")]),
            rules(&["web"]),
            &[],
            vec![Err("Gateway openzro/waiting is not ready: 0 of 3 pods")],
        ),
        (json!([parent("public")]), rules(&["web", "gone"]), &["web"], vec![Err("the namespace has no Service gone")]),
        (json!([parent("elsewhere")]), rules(&["web"]), &[], vec![]),
        (json!([{ "name": "public" }]), rules(&["web"]), &[], vec![]),
        (json!([{ "name": "web", "kind": "Service", "group": "" }]), rules(&["web"]), &[], vec![]),
        (json!([parent("public"), parent("public")]), rules(&["web"]), &["web"], vec![Ok(accepted()), Ok(accepted())]),
        (
            json!([parent("public"), parent("private")]),
            rules(&["web"]),
            &["web"],
            vec![Ok(accepted()), Err("is a resource of NetworkRouter openzro/prod already")],
        ),
        (
            json!([parent("public")]),
            json!([{ "backendRefs": [{ "name": "web", "namespace": "other" }] }]),
            &[],
            vec![Err("backend web is in namespace other")],
        ),
        (
            json!([parent("public")]),
            json!([{ "backendRefs": [{ "name": "b", "kind": "Bucket", "group": "example.com" }] }]),
            &[],
            vec![Err("backend b is a Bucket of group \"example.com\"")],
        ),
    ] {
        let lowered = lower(&route(json!({ "parentRefs": parents, "rules": rules })), gateways, services);
        assert_eq!(lowered.targets.keys().collect::<Vec<_>>(), targets, "{parents} {rules}");
        assert!(lowered.targets.iter().all(|(name, target)| target.service_uid == format!("uid-of-{name}")));
        let states: Vec<_> = lowered.parents.into_values().collect();
        assert_eq!(states.len(), expected.len(), "{parents}");
        for (is, expected) in states.into_iter().zip(expected) {
            match (is, expected) {
                (ParentState::Waiting(why) | ParentState::Refused(why), Err(part)) => {
                    assert!(why.contains(part), "{why}");
                }
                (is, expected) => assert_eq!(Ok(is), expected.map_err(str::to_owned)),
            }
        }
    }
}

#[test]
fn resources_stay_while_a_parent_waits_or_is_missing() {
    for (parents, expected) in [
        (&["public"][..], true),
        (&["elsewhere"], true),
        (&[], true),
        (&["waiting"], false),
        (&["public", "waiting"], false),
        (&["gone"], false),
        (&["public", "gone"], false),
    ] {
        let parents: Vec<_> = parents.iter().map(|name| json!({ "name": name, "namespace": "openzro" })).collect();
        let lowered = lower(&route(json!({ "parentRefs": parents })), gateways, services);
        assert_eq!(lowered.is_complete(), expected, "{parents:?}");
    }
}

#[test]
fn parts_of_a_route_without_effect_are_told() {
    let all_paths = json!([{ "path": { "type": "PathPrefix", "value": "/" } }]);
    for (spec, expected) in [
        (json!({ "rules": [{ "backendRefs": [], "matches": all_paths }] }), vec![]),
        (json!({ "hostnames": ["web.example.com"] }), vec!["spec.hostnames"]),
        (json!({ "rules": [{ "filters": [{}] }] }), vec!["spec.rules.filters"]),
        (
            json!({ "rules": [{ "matches": [{ "path": { "type": "PathPrefix", "value": "/api" } }] }] }),
            vec!["spec.rules.matches"],
        ),
        (
            json!({ "rules": [{ "matches": [{ "path": { "type": "Exact", "value": "/" } }] }] }),
            vec!["spec.rules.matches"],
        ),
        (json!({ "rules": [{ "matches": [{ "method": "GET" }] }] }), vec!["spec.rules.matches"]),
    ] {
        let told = lower(&route(spec.clone()), gateways, services).unsupported;
        assert_eq!(told.len(), expected.len(), "{spec} {told:?}");
        assert!(told.iter().zip(expected).all(|(told, field)| told.starts_with(field)), "{told:?}");
    }
}

fn target() -> Target {
    Target { router: prod(), service_uid: "uid-of-web".to_owned() }
}

fn taken() -> NetworkResource {
    take(&route(json!({})), "web", &target(), None).unwrap().unwrap()
}

#[test]
fn a_resource_is_owned_by_its_service_and_by_each_route() {
    let resource = taken();
    assert_eq!(
        serde_json::to_value(&resource).unwrap(),
        json!({
            "apiVersion": "openzro.io/v1alpha1",
            "kind": "NetworkResource",
            "metadata": {
                "name": "web",
                "namespace": "shop",
                "ownerReferences": [
                    { "apiVersion": "v1", "kind": "Service", "name": "web", "uid": "uid-of-web", "controller": true },
                    { "apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute", "name": "web", "uid": "route-web" },
                ],
            },
            "spec": { "networkRouterRef": { "name": "prod", "namespace": "openzro" }, "serviceRef": { "name": "web" } },
        })
    );
}

#[test]
fn w18_a_route_releases_its_resources_without_asking_the_server() {
    let first = object("HTTPRoute", "shop", "first", json!({}));
    let second = object("TCPRoute", "shop", "second", json!({}));
    let resource = take(&first, "web", &target(), None).unwrap().unwrap();
    assert_eq!(take(&first, "web", &target(), Some(&resource)), Ok(None));
    let shared = take(&second, "web", &target(), Some(&resource)).unwrap().unwrap();
    assert_eq!(shared.owner_references().len(), 3);
    assert_eq!(release("route-first", &resource), Some(Release::Delete));
    let Some(Release::Keep(kept)) = release("route-first", &shared) else { panic!() };
    assert!(kept.owner_references().iter().all(|owner| owner.uid != "route-first"));
    assert_eq!(release("route-second", &kept), Some(Release::Delete));
    assert_eq!(release("route-third", &shared), None);
    let mut going = resource;
    going.metadata.deletion_timestamp = Some(from_value(json!("2026-01-02T03:04:05Z")).unwrap());
    assert_eq!(release("route-first", &going), None);
}

#[test]
fn a_resource_of_somebody_else_or_of_another_router_is_not_taken() {
    let route = object("HTTPRoute", "shop", "first", json!({}));
    let mut foreign = take(&route, "web", &target(), None).unwrap().unwrap();
    foreign.metadata.owner_references = None;
    let why = take(&route, "web", &target(), Some(&foreign)).unwrap_err();
    assert!(why.starts_with("somebody else made NetworkResource shop/web"), "{why}");
    let existing = take(&route, "web", &target(), None).unwrap().unwrap();
    let other = Target { router: ObjectKey::namespaced("openzro", "other"), ..target() };
    let why = take(&route, "web", &other, Some(&existing)).unwrap_err();
    assert!(why.contains("belongs to NetworkRouter openzro/prod by another route"), "{why}");
    // A Service that was deleted and made again.
    let again = Target { service_uid: "uid-2".to_owned(), ..target() };
    let after = take(&route, "web", &again, Some(&existing)).unwrap().unwrap();
    let services: Vec<_> = after.owner_references().iter().filter(|owner| owner.kind == "Service").collect();
    assert_eq!((services.len(), services[0].uid.as_str()), (1, "uid-2"));
}
