//! Objects that the API server accepts and refuses by the definitions.

use konverge::kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, Patch, PatchParams, PostParams},
};
use konverge_manage::api::{
    definitions,
    v1::{OZGroup, OZResource, OZRoutingPeer},
    v1alpha1::NetworkResource,
};
use serde_json::{Value, from_value, json};

use crate::stage::Place;

/// The manifests that the documentation of openzro-operator shows, but for the workloads beside them.
const DOCUMENTED: &str = include_str!("documented.yaml");

/// The API of a kind of ours, in this namespace if it has namespaces.
fn api(client: &Client, kind: &str, namespace: &str) -> Api<DynamicObject> {
    let definition = definitions().into_iter().find(|crd| crd.spec.names.kind == kind).expect(kind);
    let spec = definition.spec;
    let resource = ApiResource {
        api_version: format!("{}/{}", spec.group, spec.versions[0].name),
        version: spec.versions[0].name.clone(),
        group: spec.group,
        kind: spec.names.kind,
        plural: spec.names.plural,
    };
    match spec.scope.as_str() {
        "Cluster" => Api::all_with(client.clone(), &resource),
        _ => Api::namespaced_with(client.clone(), namespace, &resource),
    }
}

/// Returns the API server's answer to an object, without keeping it. Unknown fields are an error.
async fn said(place: &Place, object: &Value) -> Result<(), String> {
    let api = api(&place.client, object["kind"].as_str().unwrap(), &place.namespace);
    let mut parameters = PatchParams::apply("user").validation_strict();
    parameters.dry_run = true;
    let answer = api.patch(object["metadata"]["name"].as_str().unwrap(), &parameters, &Patch::Apply(object)).await;
    answer.map(drop).map_err(|error| error.to_string())
}

fn object(kind: &str, spec: &Value) -> Value {
    let definition = definitions().into_iter().find(|crd| crd.spec.names.kind == kind).expect(kind);
    let api_version = format!("openzro.io/{}", definition.spec.versions[0].name);
    json!({ "apiVersion": api_version, "kind": kind, "metadata": { "name": "x" }, "spec": spec })
}

#[tokio::test(flavor = "multi_thread")]
async fn each_documented_manifest_is_accepted_as_it_stands() {
    let place = Place::new().await;
    let manifests: Vec<Value> = serde_saphyr::from_multiple(DOCUMENTED).unwrap();
    assert_eq!(manifests.len(), 16);
    for mut manifest in manifests {
        if let Some(metadata) = manifest["metadata"].as_object_mut() {
            // The tests have other namespaces.
            metadata.remove("namespace");
        }
        assert_eq!(said(&place, &manifest).await, Ok(()), "{manifest}");
    }
    // The documentation gives the policy a namespace, although the kind has none.
    let policy = json!({
        "apiVersion": "openzro.io/v1", "kind": "OZPolicy", "metadata": { "name": "documented", "namespace": "openzro" },
        "spec": { "name": "P" },
    });
    let policies = api(&place.client, "OZPolicy", &place.namespace);
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    policies.create(&dry_run, &from_value(policy).unwrap()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn each_field_is_checked_as_openzro_operator_checks_it() {
    let place = Place::new().await;
    let policy = |change: Value| with(json!({ "name": "P" }), change);
    let resource =
        |change: Value| with(json!({ "name": "R", "networkID": "n", "address": "10.0.0.1", "groups": ["G"] }), change);
    let key = |change: Value| with(json!({ "secretKeyRef": { "name": "s", "key": "k" } }), change);
    let managed = |change: Value| with(json!({ "name": "K" }), change);
    let setup_key = |change: Value| with(json!({ "name": "K", "ephemeral": true }), change);
    let network_resource = |change: Value| {
        with(json!({ "networkRouterRef": { "name": "r", "namespace": "n" }, "serviceRef": { "name": "s" } }), change)
    };
    let router = |change: Value| with(json!({ "dnsZoneRef": { "name": "z" } }), change);
    let profile = |change: Value| with(json!({ "setupKeyRef": { "name": "k" } }), change);
    let group = |reference: Value| setup_key(json!({ "autoGroups": [reference] }));
    let embedded = json!({
        "volumes": [{ "name": "v", "projected": { "sources": [] } }],
        "volumeMounts": [{ "name": "v", "mountPath": "/v", "subPathExpr": "$(A)" }],
    });
    let accepted = [
        ("OZGroup", json!({ "name": "G" })),
        ("OZPolicy", policy(json!({}))),
        (
            "OZPolicy",
            policy(json!({
                "description": "d", "sourceGroups": ["A"], "destinationGroups": ["B"], "protocols": ["tcp", "udp"], "ports": [0, 65535],
                "bidirectional": false,
            })),
        ),
        ("OZResource", resource(json!({}))),
        (
            "OZResource",
            resource(json!({
                "groups": [], "policyName": "a,b", "policySourceGroups": [""], "policyFriendlyName": { "a": "A" }, "tcpPorts": [70000],
                "udpPorts": [-1],
            })),
        ),
        ("OZRoutingPeer", json!({})),
        (
            "OZRoutingPeer",
            with(
                json!({
                    "replicas": 0, "resources": { "limits": { "cpu": 1, "memory": "1Gi" }, "claims": [{ "name": "c" }] },
                    "labels": { "a": "b" }, "annotations": { "a": "b" }, "nodeSelector": { "a": "b" },
                    "tolerations": [{ "operator": "Exists", "tolerationSeconds": 5 }], "privileged": true, "ephemeral": true,
                    "exemptFromAdmission": false,
                }),
                embedded.clone(),
            ),
        ),
        ("OZSetupKey", key(embedded)),
        (
            "OZSetupKey",
            key(json!({ "managementURL": "https://x", "secretKeyRef": { "name": "s", "key": "k", "optional": true } })),
        ),
        (
            "OZSetupKey",
            managed(json!({ "type": "one-off", "expiresIn": "1.5h30m", "usageLimit": 0, "allowExtraDNSLabels": true })),
        ),
        ("Group", json!({ "name": "G" })),
        ("SetupKey", setup_key(json!({ "duration": "1.5h30m", "allowExtraDNSLabels": true }))),
        ("SetupKey", group(json!({ "name": "G" }))),
        ("SetupKey", group(json!({ "id": "1" }))),
        ("SetupKey", group(json!({ "localRef": {} }))),
        (
            "NetworkRouter",
            router(json!({ "workloadOverride": {
                "labels": { "a": "b" }, "annotations": { "a": "b" }, "replicas": 1,
                "podTemplate": { "spec": { "containers": [{ "name": "openzro", "image": "i" }] } },
            } })),
        ),
        ("NetworkResource", network_resource(json!({ "groups": [{ "localRef": { "name": "g" } }] }))),
        ("NetworkResource", network_resource(json!({ "serviceRef": {} }))),
        (
            "SidecarProfile",
            profile(json!({
                "podSelector": { "matchExpressions": [{ "key": "a", "operator": "In", "values": ["b"] }], "matchLabels": { "a": "b" } },
                "injectionMode": "Container", "extraDNSLabels": ["a"],
                "containerOverride": {
                    "image": "i", "env": [{ "name": "A", "valueFrom": { "fieldRef": { "fieldPath": "status.podIP" } } }],
                    "securityContext": { "capabilities": { "add": ["SYS_ADMIN"] } },
                },
            })),
        ),
    ];
    for (kind, spec) in accepted {
        assert_eq!(said(&place, &object(kind, &spec)).await, Ok(()), "{kind} {spec}");
    }
    let refused = [
        ("OZGroup", json!({}), "spec.name"),
        ("OZGroup", json!({ "name": "" }), "spec.name"),
        ("OZPolicy", json!({}), "spec.name"),
        ("OZPolicy", policy(json!({ "sourceGroups": [""] })), "spec.sourceGroups[0]"),
        ("OZPolicy", policy(json!({ "destinationGroups": [""] })), "spec.destinationGroups[0]"),
        ("OZPolicy", policy(json!({ "protocols": ["icmp"] })), "spec.protocols[0]"),
        ("OZPolicy", policy(json!({ "ports": [65536] })), "spec.ports[0]"),
        ("OZPolicy", policy(json!({ "ports": [-1] })), "spec.ports[0]"),
        ("OZPolicy", policy(json!({ "ports": ["443"] })), "spec.ports"),
        ("OZPolicy", policy(json!({ "rules": [{}] })), "spec.rules[0].name"),
        ("OZPolicy", policy(json!({ "rules": [{ "name": "r", "protocol": "sctp" }] })), "spec.rules[0].protocol"),
        ("OZPolicy", policy(json!({ "rules": [{ "name": "r", "action": "reject" }] })), "spec.rules[0].action"),
        ("OZPolicy", policy(json!({ "unknown": 1 })), "unknown"),
        ("OZResource", resource(json!({ "name": "" })), "spec.name"),
        ("OZResource", resource(json!({ "address": "" })), "spec.address"),
        ("OZResource", resource(json!({ "groups": [""] })), "spec.groups[0]"),
        ("OZResource", resource(json!({ "type": "cloud" })), "spec.type"),
        ("OZResource", json!({ "name": "R", "address": "a" }), "spec.groups"),
        ("OZRoutingPeer", json!({ "replicas": "three" }), "spec.replicas"),
        ("OZRoutingPeer", json!({ "volumes": [{}] }), "spec.volumes[0].name"),
        ("OZRoutingPeer", json!({ "volumeMounts": [{ "name": "v" }] }), "spec.volumeMounts[0].mountPath"),
        ("OZRoutingPeer", json!({ "labels": { "a": 5 } }), "spec.labels"),
        ("OZSetupKey", json!({}), "give either secretKeyRef, to use a Secret that has a setup key, or name"),
        ("OZSetupKey", key(json!({ "name": "K" })), "give either secretKeyRef"),
        ("OZSetupKey", json!({ "secretKeyRef": { "key": "k" } }), "secret name needs to be set"),
        ("OZSetupKey", json!({ "secretKeyRef": { "name": "s" } }), "spec.secretKeyRef.key"),
        ("OZSetupKey", managed(json!({ "type": "two-off" })), "spec.type"),
        ("OZSetupKey", managed(json!({ "expiresIn": "30" })), "spec.expiresIn"),
        ("OZSetupKey", managed(json!({ "usageLimit": -1 })), "spec.usageLimit"),
        ("Group", json!({ "name": "" }), "spec.name"),
        ("SetupKey", json!({ "name": "K" }), "spec.ephemeral"),
        ("SetupKey", json!({ "ephemeral": true }), "spec.name"),
        ("SetupKey", setup_key(json!({ "duration": "1d" })), "spec.duration"),
        ("SetupKey", group(json!({})), "Exactly one of id, name, or localRef must be set"),
        ("SetupKey", group(json!({ "name": "G", "id": "1" })), "Exactly one of id, name, or localRef must be set"),
        ("NetworkRouter", json!({}), "spec.dnsZoneRef"),
        ("NetworkRouter", json!({ "dnsZoneRef": {} }), "spec.dnsZoneRef.name"),
        ("NetworkResource", json!({ "serviceRef": {} }), "spec.networkRouterRef"),
        (
            "NetworkResource",
            network_resource(json!({ "networkRouterRef": { "name": "r" } })),
            "spec.networkRouterRef.namespace",
        ),
        ("SidecarProfile", json!({}), "spec.setupKeyRef"),
        ("SidecarProfile", profile(json!({ "injectionMode": "Init" })), "spec.injectionMode"),
        (
            "SidecarProfile",
            profile(json!({ "containerOverride": { "env": [{}] } })),
            "spec.containerOverride.env[0].name",
        ),
    ];
    for (kind, spec, expected) in refused {
        let error = said(&place, &object(kind, &spec)).await.expect_err(&format!("{kind} {spec}"));
        assert!(error.contains(expected), "{kind} {spec}: {error}");
    }
    // The v1 kinds may lack a spec, the v1alpha1 kinds may not.
    for (kind, is_accepted) in [("OZGroup", true), ("OZRoutingPeer", true), ("Group", false), ("SidecarProfile", false)]
    {
        let mut bare = object(kind, &Value::Null);
        bare.as_object_mut().unwrap().remove("spec");
        assert_eq!(said(&place, &bare).await.is_ok(), is_accepted, "{kind}");
    }
}

/// `spec` with these fields.
fn with(mut spec: Value, change: Value) -> Value {
    let Value::Object(change) = change else { panic!("{change}") };
    spec.as_object_mut().unwrap().extend(change);
    spec
}

#[tokio::test(flavor = "multi_thread")]
async fn fields_that_cannot_change_do_not() {
    let place = Place::new().await;
    let managed = json!({ "name": "K", "type": "one-off", "expiresIn": "30d", "usageLimit": 5, "ephemeral": true });
    let network_resource =
        json!({ "networkRouterRef": { "name": "r", "namespace": "n" }, "serviceRef": { "name": "s" } });
    for (kind, spec, change) in [
        ("OZGroup", json!({ "name": "G" }), json!({ "name": "H" })),
        (
            "OZResource",
            json!({ "name": "R", "networkID": "n", "address": "a", "groups": [] }),
            json!({ "networkID": "m" }),
        ),
        ("SetupKey", json!({ "name": "K", "ephemeral": true, "duration": "1h" }), json!({ "ephemeral": false })),
        ("SetupKey", json!({ "name": "K", "ephemeral": true, "duration": "1h" }), json!({ "duration": "2h" })),
        ("NetworkResource", network_resource, json!({ "networkRouterRef": { "name": "q", "namespace": "n" } })),
        ("OZSetupKey", managed.clone(), json!({ "name": "L" })),
        ("OZSetupKey", managed.clone(), json!({ "type": "reusable" })),
        ("OZSetupKey", managed.clone(), json!({ "expiresIn": "1d" })),
        ("OZSetupKey", managed.clone(), json!({ "usageLimit": 6 })),
        ("OZSetupKey", managed, json!({ "ephemeral": false })),
    ] {
        let api = api(&place.client, kind, &place.namespace);
        let mut object = object(kind, &spec);
        object["metadata"] = json!({ "generateName": "fixed-" });
        let created = api.create(&PostParams::default(), &from_value(object).unwrap()).await.unwrap();
        let name = created.metadata.name.unwrap();
        let patch = json!({ "spec": change });
        let changed = api.patch(&name, &PatchParams::default(), &Patch::Merge(&patch)).await;
        assert!(changed.is_err(), "{kind} {change}");
        let other = json!({ "metadata": { "labels": { "a": "b" } } });
        api.patch(&name, &PatchParams::default(), &Patch::Merge(&other)).await.unwrap();
    }
    // Names of v1alpha1 kinds may change.
    let groups = api(&place.client, "Group", &place.namespace);
    groups
        .create(&PostParams::default(), &from_value(object("Group", &json!({ "name": "G" }))).unwrap())
        .await
        .unwrap();
    let renamed = json!({ "spec": { "name": "H" } });
    groups.patch("x", &PatchParams::default(), &Patch::Merge(&renamed)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_with_the_status_of_openzro_operator_are_kept_and_read() {
    let place = Place::new().await;
    let no_reason = json!([{ "type": "Ready", "status": "True", "lastProbeTime": "2026-01-02T03:04:05Z", "lastTransitionTime": null }]);
    let standard = json!([{
        "type": "Ready", "status": "False", "reason": "Dependency", "message": "", "lastTransitionTime": "2026-01-02T03:04:05Z",
        "observedGeneration": 1,
    }]);
    let network_resource =
        json!({ "networkRouterRef": { "name": "r", "namespace": "n" }, "serviceRef": { "name": "s" } });
    for (kind, spec, status) in [
        ("OZGroup", json!({ "name": "G" }), json!({ "groupID": "g", "conditions": no_reason })),
        (
            "OZResource",
            json!({ "name": "R", "networkID": "n", "address": "a", "groups": [] }),
            json!({
                "networkResourceID": "r", "policyName": "", "tcpPorts": null, "groups": ["g"], "policyNameMapping": {}, "conditions": no_reason,
            }),
        ),
        ("OZRoutingPeer", json!({}), json!({ "networkID": "n", "setupKeyID": "k", "routerID": "r", "conditions": [] })),
        (
            "OZPolicy",
            json!({ "name": "P" }),
            json!({ "tcpPolicyID": "p", "lastUpdatedAt": "2026-01-02T03:04:05Z", "managedServiceList": ["a/b"] }),
        ),
        ("OZSetupKey", json!({ "secretKeyRef": { "name": "s", "key": "k" } }), json!({ "conditions": no_reason })),
        (
            "NetworkResource",
            network_resource,
            json!({ "observedGeneration": 1, "resourceID": "r", "conditions": standard }),
        ),
    ] {
        let api = api(&place.client, kind, &place.namespace);
        let mut object = object(kind, &spec);
        object["metadata"]["name"] = json!(format!("kept-{}", place.namespace));
        let created = api.create(&PostParams::default(), &from_value(object).unwrap()).await.unwrap();
        let mut stored = created.clone();
        stored.data["status"] = status.clone();
        let name = created.metadata.name.unwrap();
        let stored = api.replace_status(&name, &PostParams::default(), &stored).await;
        let stored = stored.map_err(|error| format!("{kind} {status}: {error}")).unwrap();
        let fields =
            status.as_object().unwrap().iter().filter(|(name, value)| !value.is_null() && *name != "conditions");
        for (field, value) in fields {
            assert_eq!(stored.data["status"][field], *value, "{kind} {field}");
        }
    }
    let name = format!("kept-{}", place.namespace);
    let group = place.api::<OZGroup>().get(&name).await.unwrap();
    assert!(group.status.unwrap().standard.conditions.is_true("Ready"));
    let resource = place.api::<OZResource>().get(&name).await.unwrap();
    assert_eq!(resource.status.unwrap().network_resource_id.as_deref(), Some("r"));
    let resource = place.api::<NetworkResource>().get(&name).await.unwrap();
    assert_eq!(resource.status.unwrap().standard.conditions.get("Ready").unwrap().reason, "Dependency");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_routing_peer_without_a_spec_and_a_new_object_without_a_status_are_read() {
    let place = Place::new().await;
    let routers = api(&place.client, "OZRoutingPeer", &place.namespace);
    let bare = json!({ "apiVersion": "openzro.io/v1", "kind": "OZRoutingPeer", "metadata": { "name": "router" } });
    routers.create(&PostParams::default(), &from_value(bare).unwrap()).await.unwrap();
    let router = place.api::<OZRoutingPeer>().get("router").await.unwrap();
    assert_eq!((router.spec.replicas, router.status), (None, None));
    let spec = json!({ "networkRouterRef": { "name": "r", "namespace": "n" }, "serviceRef": { "name": "s" } });
    let resource = api(&place.client, "NetworkResource", &place.namespace);
    resource.create(&PostParams::default(), &from_value(object("NetworkResource", &spec)).unwrap()).await.unwrap();
    let resource = place.api::<NetworkResource>().get("x").await.unwrap();
    assert_eq!(resource.status.unwrap().standard.observed_generation, Some(-1));
}
