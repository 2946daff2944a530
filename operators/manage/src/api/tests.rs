use konverge::kube::{CustomResourceExt, Resource};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use super::{
    definitions, embedded,
    v1::{OZGroup, OZPolicy, OZResource, OZRoutingPeer, OZSetupKey},
    v1alpha1::{Group, InjectionMode, NetworkResource, NetworkRouter, SetupKey, SidecarProfile},
};

/// Reads an object, and returns it as it is written again.
fn rewritten<K: DeserializeOwned + Serialize>(object: Value) -> Value {
    serde_json::to_value(serde_json::from_value::<K>(object).unwrap()).unwrap()
}

#[test]
fn kinds_have_the_names_and_scopes_of_openzro_operator() {
    let table: Vec<_> = definitions()
        .into_iter()
        .map(|definition| {
            let (spec, version) = (definition.spec.clone(), definition.spec.versions[0].clone());
            let columns = version.additional_printer_columns.unwrap_or_default();
            let columns: Vec<_> = columns.into_iter().map(|column| column.name).collect();
            let is_spec_required = version.schema.unwrap().open_api_v3_schema.unwrap().required.is_some();
            format!(
                "{} {} {} {} {} {is_spec_required} {}",
                definition.metadata.name.unwrap(),
                version.name,
                spec.names.kind,
                spec.names.singular.unwrap(),
                spec.scope,
                columns.join(",")
            )
        })
        .collect();
    assert_eq!(
        table,
        [
            "ozgroups.openzro.io v1 OZGroup ozgroup Namespaced false Ready,Status,ID,Age",
            "ozpolicies.openzro.io v1 OZPolicy ozpolicy Cluster false Ready,Status,Age",
            "ozresources.openzro.io v1 OZResource ozresource Namespaced false Ready,Status,Address,ID,Age",
            "ozroutingpeers.openzro.io v1 OZRoutingPeer ozroutingpeer Namespaced false Ready,Status,Network,Age",
            "ozsetupkeys.openzro.io v1 OZSetupKey ozsetupkey Namespaced false Ready,Status,Age",
            "groups.openzro.io v1alpha1 Group group Namespaced true Ready,Age",
            "networkresources.openzro.io v1alpha1 NetworkResource networkresource Namespaced true Ready,Age",
            "networkrouters.openzro.io v1alpha1 NetworkRouter networkrouter Namespaced true Ready,Age",
            "setupkeys.openzro.io v1alpha1 SetupKey setupkey Namespaced true Ready,Age",
            "sidecarprofiles.openzro.io v1alpha1 SidecarProfile sidecarprofile Namespaced true ",
        ]
    );
    assert_eq!(OZGroup::crd_name(), "ozgroups.openzro.io");
    assert_eq!(OZPolicy::url_path(&(), None), "/apis/openzro.io/v1/ozpolicies");
    assert_eq!(SetupKey::url_path(&(), Some("shop")), "/apis/openzro.io/v1alpha1/namespaces/shop/setupkeys");
}

#[test]
fn an_object_with_every_field_is_written_as_it_was_read() {
    let conditions = json!([{
        "type": "Ready", "status": "False", "reason": "ConfigError", "message": "why", "lastTransitionTime": "2026-01-02T03:04:05Z",
        "observedGeneration": 2,
    }]);
    let resource = json!({
        "apiVersion": "openzro.io/v1", "kind": "OZResource", "metadata": { "name": "db", "namespace": "shop" },
        "spec": {
            "name": "shop-db", "networkID": "n1", "networkRef": { "name": "router", "namespace": "openzro" }, "address": "db.shop.svc",
            "groups": ["Databases"], "description": "d", "type": "host", "policyName": "a,b", "policySourceGroups": ["Users"],
            "policyFriendlyName": { "a": "A" }, "tcpPorts": [5432], "udpPorts": [53],
        },
        "status": {
            "networkResourceID": "r1", "policyName": "a,b", "tcpPorts": [5432], "udpPorts": [53], "groups": ["g1"],
            "policySourceGroups": ["Users"], "policyFriendlyName": { "a": "A" }, "policyNameMapping": { "a": "a-shop-db" },
            "conditions": conditions, "observedGeneration": 2,
        },
    });
    assert_eq!(rewritten::<OZResource>(resource.clone()), resource);
    let policy = json!({
        "apiVersion": "openzro.io/v1", "kind": "OZPolicy", "metadata": { "name": "p" },
        "spec": {
            "name": "P", "description": "d", "sourceGroups": ["A"], "destinationGroups": ["B"], "protocols": ["tcp"], "ports": [443],
            "bidirectional": false, "enabled": true, "rules": [{
                "name": "ssh", "description": "d", "enabled": true, "sources": ["a"], "destinations": ["b"], "protocol": "tcp",
                "ports": ["22", 23, "8000-8010"], "action": "accept", "bidirectional": false,
            }],
        },
        "status": {
            "tcpPolicyID": "1", "udpPolicyID": "2", "rulePolicyIDs": { "ssh": "3" }, "lastUpdatedAt": "2026-01-02T03:04:05Z",
            "managedServiceList": ["shop/db"], "conditions": conditions, "observedGeneration": 2,
        },
    });
    assert_eq!(rewritten::<OZPolicy>(policy.clone()), policy);
    let router = json!({
        "apiVersion": "openzro.io/v1", "kind": "OZRoutingPeer", "metadata": { "name": "router" },
        "spec": {
            "replicas": 2, "resources": { "limits": { "cpu": "1" } }, "labels": { "a": "b" }, "annotations": { "c": "d" },
            "nodeSelector": { "e": "f" }, "tolerations": [{ "operator": "Exists" }], "volumes": [{ "name": "v", "emptyDir": {} }],
            "volumeMounts": [{ "name": "v", "mountPath": "/v" }], "privileged": true, "ephemeral": true, "exemptFromAdmission": false,
            "routes": ["10.0.0.0/8"], "groups": ["gateways"],
        },
        "status": {
            "networkID": "n1", "setupKeyID": "k1", "routerID": "r1", "routeResourceIDs": { "10.0.0.0/8": "x" }, "conditions": conditions,
            "observedGeneration": 2,
        },
    });
    assert_eq!(rewritten::<OZRoutingPeer>(router.clone()), router);
    let profile = json!({
        "apiVersion": "openzro.io/v1alpha1", "kind": "SidecarProfile", "metadata": { "name": "p" },
        "spec": {
            "setupKeyRef": { "name": "k" }, "podSelector": { "matchLabels": { "app": "web" } }, "injectionMode": "Container",
            "extraDNSLabels": ["web"], "containerOverride": {
                "image": "i", "env": [{ "name": "A", "value": "b" }], "securityContext": { "privileged": true },
            },
        },
        "status": { "conditions": conditions },
    });
    assert_eq!(rewritten::<SidecarProfile>(profile.clone()), profile);
}

#[test]
fn null_and_missing_fields_are_empty() {
    for object in [
        json!({ "metadata": { "name": "router" } }),
        json!({ "metadata": { "name": "router" }, "spec": null, "status": null }),
    ] {
        let router: OZRoutingPeer = serde_json::from_value(object).unwrap();
        assert_eq!((router.spec.replicas, router.spec.volumes.len(), router.status), (None, 0, None));
    }
    let policy: OZPolicy = serde_json::from_value(json!({
        "metadata": { "name": "p" },
        "spec": { "name": "P", "sourceGroups": null, "ports": null, "bidirectional": null, "rules": [{ "name": "r", "ports": null }] },
        "status": { "managedServiceList": null, "conditions": null },
    }))
    .unwrap();
    assert!(policy.spec.bidirectional && policy.spec.ports.is_empty() && policy.spec.rules[0].ports.is_empty());
    let profile: SidecarProfile = serde_json::from_value(json!({
        "metadata": { "name": "p" },
        "spec": { "setupKeyRef": { "name": "k" }, "injectionMode": null, "extraDNSLabels": null, "containerOverride": { "env": null } },
    }))
    .unwrap();
    assert_eq!(profile.spec.injection_mode, InjectionMode::Sidecar);
    let resource: NetworkResource =
        serde_json::from_value(json!({ "metadata": {}, "spec": { "networkRouterRef": null, "unknown": 1 } })).unwrap();
    assert_eq!(resource.spec.network_router_ref.name, "");
    let router: NetworkRouter =
        serde_json::from_value(json!({ "spec": { "workloadOverride": { "labels": null } } })).unwrap();
    assert!(router.spec.workload_override.unwrap().labels.is_empty());
}

#[test]
fn conditions_that_openzro_operator_wrote_are_read() {
    let group: OZGroup = serde_json::from_value(json!({
        "metadata": { "name": "g" }, "spec": { "name": "G" },
        "status": { "groupID": "g1", "conditions": [{ "type": "Ready", "status": "True", "lastProbeTime": null }] },
    }))
    .unwrap();
    let status = group.status.unwrap();
    assert_eq!((status.group_id.as_deref(), status.standard.conditions.is_true("Ready")), (Some("g1"), true));
    let key: SetupKey = serde_json::from_value(json!({ "status": { "observedGeneration": -1 } })).unwrap();
    assert_eq!(key.status.unwrap().standard.observed_generation, Some(-1));
    let group: Group = serde_json::from_value(json!({ "status": {
        "conditions": [{
            "type": "Ready", "status": "True", "reason": "Reconciled", "message": "m", "lastTransitionTime": "2026-01-02T03:04:05Z",
            "observedGeneration": 1,
        }],
    } }))
    .unwrap();
    let status = group.status.unwrap();
    let ready = status.standard.conditions.get("Ready").unwrap();
    assert_eq!((ready.reason.as_str(), ready.observed_generation), ("Reconciled", Some(1)));
    assert_eq!(ready.last_transition_time.0.as_second(), 1_767_323_045);
}

#[test]
fn a_schema_has_no_keyword_that_kubernetes_does_not_know() {
    // Unknown keywords vanish when a definition is read, and with them what they should check.
    for (definition, schema) in
        definitions().into_iter().zip([super::v1::schemas(), super::v1alpha1::schemas()].into_iter().flatten())
    {
        let name = definition.metadata.name.unwrap();
        let kept = definition.spec.versions[0].schema.clone().unwrap().open_api_v3_schema.unwrap();
        assert_eq!(serde_json::to_value(kept).unwrap(), schema, "{name}");
    }
}

#[test]
fn a_part_of_a_pod_that_is_not_valid_names_its_field() {
    type Mounts = Vec<k8s_openapi::api::core::v1::VolumeMount>;
    let mounts: Mounts = embedded("spec.volumeMounts", &json!([{ "name": "v", "mountPath": "/v" }])).unwrap();
    assert_eq!(mounts[0].mount_path, "/v");
    let error = embedded::<Mounts>("spec.volumeMounts", &json!([{ "name": 1 }])).unwrap_err().to_string();
    assert!(error.starts_with("spec.volumeMounts is not valid: "), "{error}");
}

#[test]
fn the_secret_of_a_setup_key_is_found_by_its_name() {
    let key: OZSetupKey =
        serde_json::from_value(json!({ "spec": { "secretKeyRef": { "name": "s", "key": "k" } } })).unwrap();
    let managed: OZSetupKey = serde_json::from_value(json!({ "spec": { "name": "CI" } })).unwrap();
    let of = |key: &OZSetupKey| {
        let secret = key.spec.secret("ci");
        (secret.name, secret.key)
    };
    assert_eq!(of(&key), ("s".to_owned(), "k".to_owned()));
    assert_eq!(of(&managed), ("ci-key".to_owned(), "setupKey".to_owned()));
    assert_eq!(SetupKey::secret_name("ci"), "setup-key-ci");
}
