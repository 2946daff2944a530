#![allow(clippy::needless_pass_by_value, reason = "the rows of tables are made in place")]

use serde_json::{Value, from_value, json};

use super::*;

fn settings() -> Settings {
    Settings {
        cluster_name: "prod".to_owned(),
        cluster_dns: "svc.cluster.local".to_owned(),
        namespace: "openzro".to_owned(),
        ..Settings::default()
    }
}

/// A Service with ports 80 and 443 of TCP, 53 of both and 99 of SCTP.
fn service(annotations: Value) -> Service {
    from_value(json!({
        "metadata": { "name": "web", "namespace": "shop", "annotations": annotations },
        "spec": { "ports": [
            { "name": "https", "port": 443, "protocol": "TCP" },
            { "name": "http", "port": 80 },
            { "name": "dns", "port": 53, "protocol": "UDP" },
            { "name": "dns-tcp", "port": 53, "protocol": "TCP" },
        ] },
    }))
    .unwrap()
}

/// An exposed Service with these further annotations.
fn exposed_with(more: Value) -> Result<Exposed, String> {
    let mut annotations = json!({ EXPOSE: "true" });
    annotations.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    match exposure(&service(annotations), &settings()) {
        Ok(Exposure::Exposed(exposed)) => Ok(*exposed),
        Ok(other) => panic!("{other:?}"),
        Err(error) => Err(error.to_string()),
    }
}

#[test]
fn w7_a_service_is_exposed_by_its_annotation_unless_that_says_no() {
    for (value, expected) in [
        (None, false),
        (Some(""), true),
        (Some("true"), true),
        (Some("yes"), true),
        (Some("anything"), true),
        (Some("false"), false),
        (Some(" False "), false),
        (Some("no"), false),
        (Some("off"), false),
        (Some("0"), false),
    ] {
        let annotations = value.map_or_else(|| json!({}), |value| json!({ EXPOSE: value }));
        let exposure = exposure(&service(annotations), &settings()).unwrap();
        assert_eq!(matches!(exposure, Exposure::Exposed(_)), expected, "{value:?}");
        assert_eq!(exposure == Exposure::Hidden, !expected, "{value:?}");
    }
    let mut deleted = service(json!({ EXPOSE: "true" }));
    deleted.metadata.deletion_timestamp = Some(from_value(json!("2026-01-02T03:04:05Z")).unwrap());
    assert_eq!(exposure(&deleted, &settings()), Ok(Exposure::Hidden));
    let mut api_server = service(json!({ EXPOSE: "true" }));
    (api_server.metadata.name, api_server.metadata.namespace) =
        (Some("kubernetes".to_owned()), Some("default".to_owned()));
    assert_eq!(exposure(&api_server, &settings()), Ok(Exposure::Ignored));
}

#[test]
fn an_exposed_service_has_the_names_of_openzro_operator() {
    let exposed = exposed_with(json!({})).unwrap();
    let expected = OZResourceSpec {
        name: "shop-web".to_owned(),
        address: "web.shop.svc.cluster.local".to_owned(),
        groups: vec!["prod-shop-web".to_owned()],
        ..OZResourceSpec::default()
    };
    assert_eq!((exposed.spec, exposed.warnings.len()), (expected, 0));
    assert_eq!(exposed.router, ObjectKey::namespaced("openzro", "router"));
    let namespaced = Settings { namespaced_networks: true, ..settings() };
    let Ok(Exposure::Exposed(exposed)) = exposure(&service(json!({ EXPOSE: "" })), &namespaced) else { panic!() };
    assert_eq!(exposed.router, ObjectKey::namespaced("shop", "router"));
}

#[test]
fn where_rules_are_on_a_service_has_names_that_no_other_namespace_can_have() {
    for (rules, name, group) in [
        (vec!["*={namespace}/*"], "shop/web", "shop/web"),
        (vec!["*={namespace}/*", "shop=shop-web"], "shop-web", "shop/web"),
        (vec!["*={namespace}/*", "shop=prod-shop-web"], "shop/web", "prod-shop-web"),
        (vec!["*=*"], "shop-web", "prod-shop-web"),
    ] {
        let parsed = rules.iter().map(|rule| rule.parse().unwrap()).collect();
        let settings = Settings { rules: Some(parsed), ..settings() };
        let Ok(Exposure::Exposed(exposed)) = exposure(&service(json!({ EXPOSE: "" })), &settings) else { panic!() };
        assert_eq!((&*exposed.spec.name, &*exposed.spec.groups[0]), (name, group), "{rules:?}");
    }
}

#[test]
fn w7_the_ports_are_exactly_those_of_the_service_that_the_annotations_admit() {
    for (annotations, tcp, udp, warnings) in [
        (json!({}), &[53, 80, 443][..], &[53][..], 0),
        (json!({ POLICY_PROTOCOL: "tcp" }), &[53, 80, 443], &[], 0),
        (json!({ POLICY_PROTOCOL: " UDP " }), &[], &[53], 0),
        (json!({ POLICY_PORTS: "443" }), &[443], &[], 0),
        (json!({ POLICY_PORTS: " 53 , 80," }), &[53, 80], &[53], 0),
        (json!({ POLICY_PORTS: "53", POLICY_PROTOCOL: "udp" }), &[], &[53], 0),
        (json!({ POLICY_PORTS: "443,8080" }), &[443], &[], 1),
        // One for the port, and one since none is left.
        (json!({ POLICY_PORTS: "443", POLICY_PROTOCOL: "udp" }), &[], &[], 2),
    ] {
        let mut annotations = annotations;
        annotations[POLICIES] = json!("web");
        let exposed = exposed_with(annotations.clone()).unwrap();
        assert_eq!((&exposed.spec.tcp_ports[..], &exposed.spec.udp_ports[..]), (tcp, udp), "{annotations}");
        assert_eq!(exposed.warnings.len(), warnings, "{annotations} {:?}", exposed.warnings);
    }
    let mut with_sctp = service(json!({ EXPOSE: "", POLICIES: "web" }));
    let ports = with_sctp.spec.as_mut().unwrap().ports.as_mut().unwrap();
    ports.push(from_value(json!({ "port": 99, "protocol": "SCTP" })).unwrap());
    let Ok(Exposure::Exposed(exposed)) = exposure(&with_sctp, &settings()) else { panic!() };
    assert!(!exposed.spec.tcp_ports.contains(&99) && exposed.warnings[0].contains("no protocol sctp"));
}

#[test]
fn policies_groups_and_names_are_read_as_openzro_operator_reads_them() {
    let exposed = exposed_with(json!({
        EXPOSED_GROUPS: "Web Servers, dmz ,",
        RESOURCE_NAME: " Shop ",
        POLICIES: "web, admins",
        POLICY_SOURCE_GROUPS: "Users, Staff",
        POLICY_NAMES: "web:Web access, admins : Administration",
    }))
    .unwrap();
    let spec = exposed.spec;
    assert_eq!((spec.groups, spec.name), (vec!["Web Servers".to_owned(), "dmz".to_owned()], "Shop".to_owned()));
    assert_eq!(
        (spec.policy_name.as_str(), spec.policy_source_groups),
        ("web,admins", vec!["Users".to_owned(), "Staff".to_owned()])
    );
    let names = [("admins", "Administration"), ("web", "Web access")];
    assert_eq!(spec.policy_friendly_name, names.map(|(policy, name)| (policy.to_owned(), name.to_owned())).into());
    assert_eq!(exposed.warnings, [""; 0]);
}

#[test]
fn annotations_without_effect_are_told() {
    for (annotations, expected) in [
        (json!({ POLICY_PORTS: "80" }), "openzro.io/policy-ports has no effect without openzro.io/policy"),
        (json!({ POLICIES: "", POLICY_PROTOCOL: "tcp" }), "openzro.io/policy-protocol has no effect"),
        (json!({ POLICIES: "web", POLICY_NAMES: "web" }), "has \"web\", which is left out; write policy:Display name"),
        (json!({ POLICIES: "web", POLICY_NAMES: "web:a:b" }), "which is left out"),
        (json!({ POLICIES: "web", POLICY_NAMES: "web: " }), "which is left out"),
        (
            json!({ POLICIES: "web", POLICY_NAMES: "db:Databases" }),
            "a name for policy db, which annotation openzro.io/policy lacks",
        ),
    ] {
        let exposed = exposed_with(annotations.clone()).unwrap();
        assert_eq!(exposed.warnings.len(), 1, "{annotations} {:?}", exposed.warnings);
        assert!(exposed.warnings[0].contains(expected), "{:?}", exposed.warnings);
    }
}

#[test]
fn annotations_that_cannot_be_followed_name_the_cause_and_the_next_step() {
    for (annotations, expected) in [
        (json!({ RESOURCE_NAME: " " }), "annotation openzro.io/resource-name is empty; give a name"),
        (json!({ EXPOSED_GROUPS: " , " }), "annotation openzro.io/groups names no group; give display names"),
        (
            json!({ POLICIES: "Web Access" }),
            "annotation openzro.io/policy has \"Web Access\", which cannot be the name of an OZPolicy",
        ),
        (json!({ POLICIES: "web", POLICY_PORTS: "" }), "annotation openzro.io/policy-ports has no port"),
        (
            json!({ POLICIES: "web", POLICY_PORTS: "http" }),
            "has \"http\", which is no port; give numbers from 1 to 65535",
        ),
        (json!({ POLICIES: "web", POLICY_PORTS: "0" }), "has \"0\", which is no port"),
        (json!({ POLICIES: "web", POLICY_PORTS: "80,65536" }), "has \"65536\", which is no port"),
        (json!({ POLICIES: "web", POLICY_PORTS: "99999999999" }), "which is no port"),
        (
            json!({ POLICIES: "web", POLICY_PROTOCOL: "icmp" }),
            "annotation openzro.io/policy-protocol is \"icmp\"; write tcp or udp",
        ),
        (json!({ POLICIES: "web", POLICY_PROTOCOL: "" }), "write tcp or udp"),
    ] {
        let error = exposed_with(annotations.clone()).expect_err(expected);
        assert!(error.contains(expected), "{annotations}: {error}");
    }
}

#[test]
fn w6_only_a_resource_with_the_finalizer_and_the_address_is_openzro_operators() {
    let service = service(json!({ EXPOSE: "true" }));
    let resource = |finalizers: Value, address: &str| -> OZResource {
        from_value(json!({
            "metadata": { "name": "web", "namespace": "shop", "finalizers": finalizers },
            "spec": { "name": "shop-web", "networkID": "n", "groups": [], "address": address },
        }))
        .unwrap()
    };
    for (finalizers, address, expected) in [
        (json!(["openzro.io/cleanup"]), "web.shop.svc.cluster.local", true),
        (json!(["gateway.openzro.io/resource", "openzro.io/cleanup"]), "web.shop.svc.cluster.local", true),
        (json!(["gateway.openzro.io/resource"]), "web.shop.svc.cluster.local", false),
        (Value::Null, "web.shop.svc.cluster.local", false),
        (json!(["openzro.io/cleanup"]), "10.0.0.1", false),
    ] {
        assert_eq!(
            is_of_original(&resource(finalizers.clone(), address), &service, &settings()),
            expected,
            "{finalizers} {address}"
        );
    }
}
