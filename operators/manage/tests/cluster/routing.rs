//! The Gateway API on a real API server, whose definitions come after the operator.

use k8s_openapi::api::core::v1::Service;
use konverge::{
    Operator,
    kube::{
        Api, ResourceExt,
        api::{ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams},
    },
};
use konverge_manage::{
    api::v1alpha1::{NetworkResource, NetworkRouter},
    expose::gateway::{CONTROLLER, GROUP, controllers},
};
use konverge_testkit::eventually;
use serde_json::{Value, from_value, json};

use crate::stage::{LIMIT, Place, control_plane};

fn kind(kind: &str, plural: &str) -> ApiResource {
    ApiResource {
        group: GROUP.to_owned(),
        version: "v1".to_owned(),
        api_version: format!("{GROUP}/v1"),
        kind: kind.to_owned(),
        plural: plural.to_owned(),
    }
}

/// A definition that checks nothing.
fn definition(kind: &str, plural: &str, scope: &str) -> String {
    let schema = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {
            "name": format!("{plural}.{GROUP}"),
            "annotations": { "api-approved.kubernetes.io": "unapproved, a test" },
        },
        "spec": {
            "group": GROUP, "scope": scope, "names": { "kind": kind, "plural": plural },
            "versions": [{
                "name": "v1", "served": true, "storage": true, "subresources": { "status": {} }, "schema": { "openAPIV3Schema": schema },
            }],
        },
    });
    definition.to_string()
}

/// Waits until a condition of an object has this status, and returns its message.
async fn says(api: &Api<DynamicObject>, name: &str, place: &str, condition: &str, status: &str) -> String {
    let said = eventually(LIMIT, async || {
        let object = api.get(name).await.unwrap();
        let conditions = object.data.pointer(place)?.as_array()?.clone();
        let found = conditions.into_iter().find(|found| found["type"] == condition && found["status"] == status)?;
        Some(found["message"].as_str().unwrap_or_default().to_owned())
    });
    if let Ok(message) = said.await {
        return message;
    }
    panic!("{name} says {:#}", api.get(name).await.unwrap().data["status"])
}

#[tokio::test(flavor = "multi_thread")]
async fn w18_routes_make_resources_of_services_and_every_deletion_completes() {
    let place = Place::new().await;
    let operator = Operator::new("openzro-operator", "0")
        .controller(controllers::gateway_classes())
        .controller(controllers::gateways())
        .controller(controllers::http_routes())
        .controller(controllers::tcp_routes());
    // Classes have no namespace.
    let running = place.run(operator, |options| options.namespaces.clear()).await;
    let definitions = [
        definition("GatewayClass", "gatewayclasses", "Cluster"),
        definition("Gateway", "gateways", "Namespaced"),
        definition("HTTPRoute", "httproutes", "Namespaced"),
    ];
    control_plane().await.apply(&definitions.join("\n---\n")).await.unwrap();

    let classes: Api<DynamicObject> = Api::all_with(place.client.clone(), &kind("GatewayClass", "gatewayclasses"));
    let gateways: Api<DynamicObject> =
        Api::namespaced_with(place.client.clone(), &place.namespace, &kind("Gateway", "gateways"));
    let routes: Api<DynamicObject> =
        Api::namespaced_with(place.client.clone(), &place.namespace, &kind("HTTPRoute", "httproutes"));
    let create = async |api: &Api<DynamicObject>, kind: &str, metadata: Value, spec: Value| {
        let object = json!({ "apiVersion": format!("{GROUP}/v1"), "kind": kind, "metadata": metadata, "spec": spec });
        api.create(&PostParams::default(), &from_value(object).unwrap()).await.unwrap()
    };
    let class = json!({ "name": "openzro-public", "finalizers": ["finalizers.openzro.io/gatewayclass"] });
    create(&classes, "GatewayClass", class, json!({ "controllerName": CONTROLLER })).await;
    says(&classes, "openzro-public", "/status/conditions", "Accepted", "True").await;
    let listener = json!({ "name": "prod", "port": 1, "protocol": "gateway.openzro.io/NetworkRouter" });
    let gateway = json!({ "gatewayClassName": "openzro-public", "listeners": [listener] });
    create(&gateways, "Gateway", json!({ "name": "public" }), gateway).await;
    let why = says(&gateways, "public", "/status/conditions", "Programmed", "False").await;
    assert!(why.contains("which the listener names, does not exist"), "{why}");

    let prod = json!({ "metadata": { "name": "prod" }, "spec": { "dnsZoneRef": { "name": "z" } } });
    let network_routers = place.api::<NetworkRouter>();
    network_routers.create(&PostParams::default(), &from_value(prod).unwrap()).await.unwrap();
    let ready = json!({ "status": { "conditions": [{
        "type": "Ready", "status": "True", "reason": "Reconciled", "message": "", "lastTransitionTime": "2026-01-02T03:04:05Z",
    }] } });
    network_routers.patch_status("prod", &PatchParams::default(), &Patch::Merge(ready)).await.unwrap();
    says(&gateways, "public", "/status/conditions", "Programmed", "True").await;

    let spec = json!({
        "parentRefs": [{ "name": "public" }], "hostnames": ["web.example.com"],
        "rules": [{ "backendRefs": [{ "name": "web", "port": 80 }] }],
    });
    create(&routes, "HTTPRoute", json!({ "name": "web" }), spec).await;
    let why = says(&routes, "web", "/status/parents/0/conditions", "Accepted", "False").await;
    assert!(why.contains("the namespace has no Service web"), "{why}");
    let service = json!({ "metadata": { "name": "web" }, "spec": { "ports": [{ "port": 80 }] } });
    place.api::<Service>().create(&PostParams::default(), &from_value(service).unwrap()).await.unwrap();
    says(&routes, "web", "/status/parents/0/conditions", "Accepted", "True").await;
    let resources = place.api::<NetworkResource>();
    let resource = resources.get("web").await.unwrap();
    assert_eq!((resource.spec.network_router_ref.name.as_str(), resource.owner_references().len()), ("prod", 2));
    assert_eq!(routes.get("web").await.unwrap().finalizers(), ["finalizers.openzro.io/httproute"]);

    // A Gateway that is gone takes nothing along.
    gateways.delete("public", &DeleteParams::default()).await.unwrap();
    eventually(LIMIT, async || gateways.get_opt("public").await.unwrap().is_none().then_some(())).await.unwrap();
    assert_eq!(resources.get("web").await.unwrap().uid(), resource.uid());
    routes.delete("web", &DeleteParams::default()).await.unwrap();
    eventually(LIMIT, async || routes.get_opt("web").await.unwrap().is_none().then_some(())).await.unwrap();
    eventually(LIMIT, async || resources.get_opt("web").await.unwrap().is_none().then_some(())).await.unwrap();
    classes.delete("openzro-public", &DeleteParams::default()).await.unwrap();
    eventually(LIMIT, async || classes.get_opt("openzro-public").await.unwrap().is_none().then_some(())).await.unwrap();
    running.end().await;
}
