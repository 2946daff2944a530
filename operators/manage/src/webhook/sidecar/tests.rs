#![allow(clippy::needless_pass_by_value, reason = "the rows of tables are made in place")]

use proptest::{collection, option, prelude::*, sample};
use serde_json::from_value;

use super::*;

const NAMESPACE: &str = "shop";

fn settings() -> Settings {
    Settings {
        management_url: "https://openzro.example.com".to_owned(),
        client_image: "client:1".to_owned(),
        ..Settings::default()
    }
}

/// Objects of the namespace, by their kind.
fn neighbours(objects: &[Value]) -> Neighbours {
    let mut neighbours = Neighbours::default();
    for object in objects.iter().cloned() {
        match object["kind"].as_str().unwrap() {
            "OZSetupKey" => neighbours.annotated_keys.push(Arc::new(from_value(object).unwrap())),
            "SidecarProfile" => neighbours.profiles.push(Arc::new(from_value(object).unwrap())),
            "SetupKey" => neighbours.profile_keys.push(Arc::new(from_value(object).unwrap())),
            kind => panic!("{kind}"),
        }
    }
    neighbours
}

fn object(kind: &str, name: &str, spec: Value) -> Value {
    json!({ "kind": kind, "metadata": { "name": name, "namespace": NAMESPACE }, "spec": spec })
}

/// A setup key that the operator found to be in order.
fn ready_key(name: &str, spec: Value) -> Value {
    let mut key = object("OZSetupKey", name, spec);
    key["status"] = json!({ "conditions": [{ "type": "Ready", "status": "True" }] });
    key
}

fn key_of_secret() -> Value {
    ready_key("web", json!({ "secretKeyRef": { "name": "web-secret", "key": "token" } }))
}

fn pod(annotations: Value) -> Value {
    json!({
        "metadata": { "generateName": "web-", "labels": { "app": "web" }, "annotations": annotations },
        "spec": { "containers": [{ "name": "web", "image": "web:1", "newField": { "kept": true } }] },
    })
}

fn annotated(more: Value) -> Value {
    let mut annotations = json!({ SETUP_KEY: "web" });
    annotations.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    pod(annotations)
}

fn decide(pod: &Value, objects: &[Value]) -> Injection {
    inject(pod, NAMESPACE, &neighbours(objects), &settings())
}

fn profile(change: Value) -> Value {
    object("SidecarProfile", "p", json!({ "setupKeyRef": { "name": "k" }, "containerOverride": change }))
}

#[test]
fn what_changes_the_abilities_of_a_sidecar_is_for_the_namespaces_that_the_platform_names() {
    let decide = |privileged: Option<&str>, pod: &Value, objects: &[Value]| {
        let privileged = Some(privileged.into_iter().map(str::to_owned).collect());
        inject(pod, NAMESPACE, &neighbours(objects), &Settings { privileged, ..settings() })
    };
    let key = object("SetupKey", "k", json!({ "name": "K" }));
    let from_secret = json!({ "name": "X", "valueFrom": { "secretKeyRef": { "name": "s", "key": "k" } } });
    for change in [
        json!({ "image": "other:1" }),
        json!({ "securityContext": { "privileged": true } }),
        json!({ "env": [from_secret] }),
        json!({ "env": [{ "name": "OZ_MANAGEMENT_URL", "value": "https://elsewhere.example.com" }] }),
        json!({ "env": [{ "name": "OZ_SETUP_KEY", "value": "another" }] }),
        json!({ "env": [{ "name": "TZ", "value": "UTC" }, { "name": "NB_MANAGEMENT_URL", "value": "https://e.example.com" }] }),
        json!({ "env": [{ "name": "HTTPS_PROXY", "value": "http://e.example.com" }] }),
        json!({ "env": [{ "name": "LD_PRELOAD", "value": "/x.so" }] }),
        json!({ "env": [{ "name": "OZ_HOSTNAME", "valueFrom": { "secretKeyRef": { "name": "s", "key": "k" } } }] }),
    ] {
        let objects = [key.clone(), profile(change.clone())];
        let refused = decide(None, &pod(json!({})), &objects);
        assert_eq!(refused.pod, None, "{change}");
        assert!(refused.unserved.unwrap().why.contains("--privileged-namespace=shop"), "{change}");
        assert!(decide(Some("other"), &pod(json!({})), &objects).pod.is_none(), "{change}");
        assert!(decide(Some(NAMESPACE), &pod(json!({})), &objects).pod.is_some(), "{change}");
    }
    let harmless = profile(json!({ "env": [{ "name": "OZ_LOG_LEVEL", "value": "debug" }] }));
    assert!(decide(None, &pod(json!({})), &[key, harmless]).pod.is_some());

    let secret = json!({ "name": "web-secret", "key": "token" });
    let volumes = json!([{ "name": "host", "hostPath": { "path": "/" } }]);
    let with_volumes = ready_key("web", json!({ "secretKeyRef": secret, "volumes": volumes }));
    let refused = decide(None, &annotated(json!({})), std::slice::from_ref(&with_volumes)).unserved.unwrap();
    assert!(refused.is_requested && refused.why.contains("spec.volumes"), "{refused:?}");
    assert!(decide(Some(NAMESPACE), &annotated(json!({})), &[with_volumes]).pod.is_some());

    let to = |url: &str| ready_key("web", json!({ "secretKeyRef": secret, "managementURL": url }));
    let elsewhere = [to("https://elsewhere.example.com")];
    let refused = decide(None, &annotated(json!({})), &elsewhere).unserved.unwrap();
    assert!(refused.is_requested && refused.why.contains("spec.managementURL"), "{refused:?}");
    assert!(decide(Some(NAMESPACE), &annotated(json!({})), &elsewhere).pod.is_some());
    assert!(decide(None, &annotated(json!({})), &[to("https://openzro.example.com")]).pod.is_some());
}

#[test]
fn the_sidecar_of_a_pod_with_another_user_runs_as_root() {
    for (of_pod, expected) in [
        (json!({ "runAsUser": 1000 }), (json!(0), json!(false))),
        (json!({ "runAsNonRoot": true }), (json!(0), json!(false))),
        (json!({ "runAsUser": 0 }), (Value::Null, Value::Null)),
        (json!({}), (Value::Null, Value::Null)),
    ] {
        let mut pod = annotated(json!({}));
        pod["spec"]["securityContext"] = of_pod.clone();
        let injected = injected(&pod, &[key_of_secret()]);
        let security = &injected["spec"]["containers"][1]["securityContext"];
        assert_eq!((security["runAsUser"].clone(), security["runAsNonRoot"].clone()), expected, "{of_pod}");
        assert_eq!(injected["spec"]["securityContext"], of_pod, "the pod itself stays as it is");
    }
}

#[test]
fn where_pod_security_refuses_the_capability_there_is_no_sidecar_with_it() {
    let confined = |pod: &Value, objects: &[Value]| {
        let neighbours = Neighbours { is_confined: true, ..neighbours(objects) };
        inject(pod, NAMESPACE, &neighbours, &settings())
    };
    let why = |injection: Injection| {
        assert_eq!(injection.pod, None);
        let Unserved { why, is_requested } = injection.unserved.unwrap();
        assert!(why.contains("NET_ADMIN") && why.contains(ENFORCE) && why.contains(NAMESPACE), "{why}");
        is_requested
    };
    assert!(why(confined(&annotated(json!({})), &[key_of_secret()])), "the pod asks for it");
    let key = object("SetupKey", "k", json!({ "name": "K" }));
    assert!(!why(confined(&pod(json!({})), &[key.clone(), profile(json!({}))])), "the profile asks for it");
    let without = json!({ "securityContext": { "capabilities": { "add": null, "drop": ["ALL"] } } });
    let injection = confined(&pod(json!({})), &[key, profile(without)]);
    assert!(injection.pod.is_some() && injection.unserved.is_none(), "{injection:?}");
}

/// Pod Security `restricted` refuses root, and without the capability nothing needs it.
#[test]
fn a_sidecar_without_the_capability_keeps_the_user_of_its_pod() {
    let key = object("SetupKey", "k", json!({ "name": "K" }));
    let hardened = json!({ "runAsUser": 1000, "runAsNonRoot": true });
    let null = || Value::Null;
    for (change, expected) in [
        (json!({}), (json!(0), json!(false))),
        (json!({ "capabilities": { "add": null, "drop": ["ALL"] } }), (null(), null())),
        (json!({ "capabilities": { "add": ["NET_RAW"] } }), (null(), null())),
        (json!({ "runAsUser": 5 }), (json!(5), null())),
        (json!({ "runAsNonRoot": true, "runAsUser": 7 }), (json!(7), json!(true))),
    ] {
        let mut pod = pod(json!({}));
        pod["spec"]["securityContext"] = hardened.clone();
        let after = injected(&pod, &[key.clone(), profile(json!({ "securityContext": change }))]);
        let containers = ["containers", "initContainers"].map(|list| after["spec"][list].as_array().cloned());
        let sidecar = containers.into_iter().flatten().flatten().find(|container| container["name"] == "openzro");
        let security = &sidecar.unwrap()["securityContext"];
        assert_eq!((security["runAsUser"].clone(), security["runAsNonRoot"].clone()), expected, "{change}");
    }
}

/// The pod with its sidecar; the test fails if it gets none.
fn injected(pod: &Value, objects: &[Value]) -> Value {
    let injection = decide(pod, objects);
    assert_eq!((&injection.warnings[..], &injection.unserved), (&[][..], &None), "{pod}");
    injection.pod.expect("a pod with a sidecar")
}

fn sidecar(secret: Value) -> Value {
    json!({
        "name": "openzro",
        "image": "client:1",
        "env": [
            { "name": "OZ_SETUP_KEY", "valueFrom": { "secretKeyRef": secret } },
            { "name": "OZ_MANAGEMENT_URL", "value": "https://openzro.example.com" },
        ],
        "securityContext": { "capabilities": { "add": ["NET_ADMIN"] } },
    })
}

#[test]
fn w12_w28_an_annotated_pod_gets_a_container_with_one_capability_and_no_probe() {
    let pod = annotated(json!({}));
    let after = injected(&pod, &[key_of_secret()]);
    let expected = sidecar(json!({ "name": "web-secret", "key": "token" }));
    assert_eq!(after["spec"]["containers"], json!([pod["spec"]["containers"][0], expected]));
    assert_eq!((&after["metadata"], &after["spec"]["volumes"]), (&pod["metadata"], &Value::Null));
}

#[test]
fn an_annotated_pod_gets_what_its_setup_key_and_annotations_say() {
    let key = ready_key(
        "web",
        json!({
            "secretKeyRef": { "name": "s", "key": "k", "optional": true },
            "managementURL": "https://other.example.com",
            "volumes": [{ "name": "certificates", "configMap": { "name": "ca" } }, { "name": "shared", "emptyDir": {} }],
            "volumeMounts": [{ "name": "certificates", "mountPath": "/etc/ssl/certs" }],
        }),
    );
    let mut pod = annotated(json!({ INIT_SIDECAR: "true", EXTRA_DNS_LABELS: "web,shop" }));
    pod["spec"]["volumes"] = json!([{ "name": "shared", "emptyDir": {} }]);
    pod["spec"]["initContainers"] = json!([{ "name": "first", "image": "i" }]);
    let after = injected(&pod, &[key]);
    let mut expected = sidecar(json!({ "name": "s", "key": "k", "optional": true }));
    expected["env"][1]["value"] = json!("https://other.example.com");
    expected["env"].as_array_mut().unwrap().push(json!({ "name": "OZ_EXTRA_DNS_LABELS", "value": "web,shop" }));
    expected["volumeMounts"] = json!([{ "name": "certificates", "mountPath": "/etc/ssl/certs" }]);
    expected["restartPolicy"] = json!("Always");
    assert_eq!(after["spec"]["initContainers"], json!([{ "name": "first", "image": "i" }, expected]));
    assert_eq!(after["spec"]["containers"], pod["spec"]["containers"]);
    let volumes =
        json!([{ "name": "shared", "emptyDir": {} }, { "name": "certificates", "configMap": { "name": "ca" } }]);
    assert_eq!(after["spec"]["volumes"], volumes);
}

#[test]
fn a_setup_key_that_the_operator_creates_is_in_its_own_secret() {
    let after = injected(&annotated(json!({})), &[ready_key("web", json!({ "name": "Web" }))]);
    assert_eq!(after["spec"]["containers"][1], sidecar(json!({ "name": "web-key", "key": "setupKey" })));
}

#[test]
fn w29_an_annotated_pod_that_cannot_be_served_is_refused_with_the_cause() {
    let unready = |condition: Value| {
        let mut key = key_of_secret();
        key["status"] = json!({ "conditions": [condition] });
        key
    };
    let with = |field: &str, value: Value| {
        let mut key = key_of_secret();
        key["spec"][field] = value;
        key
    };
    let mut unseen = key_of_secret();
    unseen["status"] = Value::Null;
    let mut other_volume = annotated(json!({}));
    other_volume["spec"]["volumes"] = json!([{ "name": "v", "emptyDir": {} }]);
    for (pod, key, expected) in [
        (annotated(json!({})), None, "names OZSetupKey web, and namespace shop has none of that name; create it"),
        (annotated(json!({ SETUP_KEY: "other" })), Some(key_of_secret()), "names OZSetupKey other"),
        (
            annotated(json!({})),
            Some(unseen),
            "OZSetupKey shop/web is not ready (the operator has not looked at it yet)",
        ),
        (
            annotated(json!({})),
            Some(unready(
                json!({ "type": "Ready", "status": "False", "reason": "SecretNotExists", "message": "no Secret" }),
            )),
            "OZSetupKey shop/web is not ready (SecretNotExists: no Secret)",
        ),
        (annotated(json!({})), Some(unready(json!({ "type": "Ready", "status": "False" }))), "(it gives no reason)"),
        (annotated(json!({})), Some(unready(json!({ "type": "Other", "status": "True" }))), "not looked at it yet"),
        (annotated(json!({})), Some(with("volumeMounts", json!([{ "name": 5 }]))), "spec.volumeMounts is not valid"),
        (
            other_volume,
            Some(with("volumes", json!([{ "name": "v", "hostPath": {} }]))),
            "the pod has another one of that name",
        ),
    ] {
        let injection = decide(&pod, &key.into_iter().collect::<Vec<_>>());
        assert_eq!(injection.pod, None, "{expected}");
        let unserved = injection.unserved.expect(expected);
        assert!(unserved.is_requested, "{expected}");
        assert!(unserved.why.starts_with("Pod shop/web-* gets no sidecar: "), "{}", unserved.why);
        assert!(unserved.why.contains(expected), "{}", unserved.why);
    }
}

#[test]
fn strangers_get_no_names_but_those_of_their_question() {
    let condition = json!([{ "type": "Ready", "status": "False", "reason": "NotFound", "message": "no group hidden" }]);
    let unready = || {
        let mut key = key_of_secret();
        key["status"]["conditions"] = condition.clone();
        key
    };
    let profile = || {
        let spec = json!({ "setupKeyRef": { "name": "hidden" }, "podSelector": { "matchLabels": { "app": "web" } } });
        object("SidecarProfile", "hidden", spec)
    };
    let labelled = || {
        let mut profile = profile();
        profile["spec"]["extraDNSLabels"] = json!(["a"]);
        [profile, object("SetupKey", "hidden", json!({ "name": "hidden" }))]
    };
    for (pod, objects, expected) in [
        (
            annotated(json!({})),
            vec![],
            "Pod shop/web-* gets no sidecar: annotation openzro.io/setup-key names OZSetupKey web;",
        ),
        (
            annotated(json!({})),
            vec![unready()],
            "Pod shop/web-* gets no sidecar: annotation openzro.io/setup-key names OZSetupKey web;",
        ),
        (
            pod(json!({})),
            vec![profile()],
            "Pod shop/web-* gets no sidecar: check the SidecarProfiles of namespace shop",
        ),
        (pod(json!({})), labelled().into(), "the operator's log has a warning about the sidecar of pod shop/web-*"),
    ] {
        let known = decide(&pod, &objects);
        let hidden = known.clone().without_names(&pod, NAMESPACE);
        let texts = |injection: &Injection| {
            let unserved = injection.unserved.iter().map(|unserved| unserved.why.clone());
            injection.warnings.iter().cloned().chain(unserved).collect::<Vec<_>>().join("\n")
        };
        assert!(texts(&hidden).starts_with(expected) && !texts(&hidden).contains("hidden"), "{}", texts(&hidden));
        assert!(objects.is_empty() || texts(&known).contains("hidden"), "{}", texts(&known));
        assert_eq!(hidden.pod, known.pod);
        let is_requested = |injection: &Injection| injection.unserved.as_ref().map(|unserved| unserved.is_requested);
        assert_eq!(is_requested(&hidden), is_requested(&known));
    }
}

#[test]
fn w29_a_profile_applies_to_pods_without_annotations() {
    let objects = [
        object("SidecarProfile", "web", json!({ "setupKeyRef": { "name": "k" } })),
        object("SetupKey", "k", json!({ "name": "K", "ephemeral": true })),
    ];
    let mut expected = sidecar(json!({ "name": "setup-key-k", "key": "setup-key" }));
    expected["restartPolicy"] = json!("Always");
    for annotations in [Value::Null, json!({}), json!({ SETUP_KEY: "" }), json!({ SETUP_KEY: "  " })] {
        let after = injected(&pod(annotations.clone()), &objects);
        assert_eq!(after["spec"]["initContainers"], json!([expected]), "{annotations}");
        assert_eq!(after["metadata"]["annotations"][SIDECAR_PROFILE], "web", "{annotations}");
    }
    let mut bare = pod(Value::Null);
    bare["metadata"].as_object_mut().unwrap().remove("annotations");
    assert_eq!(injected(&bare, &objects)["metadata"]["annotations"], json!({ SIDECAR_PROFILE: "web" }));
}

#[test]
fn the_first_profile_by_name_that_selects_the_pod_counts() {
    let profile = |name: &str, selector: Value| {
        object("SidecarProfile", name, json!({ "setupKeyRef": { "name": "k" }, "podSelector": selector }))
    };
    let key = || object("SetupKey", "k", json!({ "name": "K", "ephemeral": true }));
    let app = |value: &str| json!({ "matchLabels": { "app": value } });
    let expression = |operator: &str, values: Value| json!({ "matchExpressions": [{ "key": "app", "operator": operator, "values": values }] });
    for (profiles, expected) in [
        (vec![], None),
        (vec![profile("a", app("other"))], None),
        (vec![profile("b", app("web")), profile("a", app("other"))], Some("b")),
        (vec![profile("b", app("web")), profile("a", json!({}))], Some("a")),
        (vec![profile("b", app("web")), profile("a", Value::Null)], Some("a")),
        (vec![profile("a", expression("In", json!(["web", "db"])))], Some("a")),
        (vec![profile("a", expression("NotIn", json!(["web"])))], None),
        (vec![profile("a", expression("Exists", Value::Null))], Some("a")),
        (vec![profile("a", expression("DoesNotExist", Value::Null))], None),
    ] {
        let names: Vec<_> = profiles.iter().map(|profile| profile["metadata"]["name"].to_string()).collect();
        let objects: Vec<_> = profiles.into_iter().chain([key()]).collect();
        let injection = decide(&pod(Value::Null), &objects);
        assert_eq!((&injection.warnings[..], &injection.unserved), (&[][..], &None));
        let found =
            injection.pod.map(|pod| pod["metadata"]["annotations"][SIDECAR_PROFILE].as_str().unwrap().to_owned());
        assert_eq!(found.as_deref(), expected, "{names:?}");
    }
}

#[test]
fn a_profile_that_cannot_be_applied_says_why_and_leaves_others_in_force() {
    let profile = |name: &str, spec: Value| object("SidecarProfile", name, spec);
    let key = || object("SetupKey", "k", json!({ "name": "K", "ephemeral": true }));
    let good = || profile("b", json!({ "setupKeyRef": { "name": "k" } }));
    let bad_selector = |expression: Value| {
        profile("a", json!({ "setupKeyRef": { "name": "k" }, "podSelector": { "matchExpressions": [expression] } }))
    };
    for (expression, expected) in [
        (json!({ "key": "app", "operator": "In" }), "In has no values"),
        (json!({ "key": "app", "operator": "Exists", "values": ["x"] }), "Exists cannot have values"),
        (json!({ "key": "app", "operator": "Like", "values": ["x"] }), "an operator that Kubernetes does not know"),
    ] {
        let injection = decide(&pod(Value::Null), &[bad_selector(expression.clone()), good(), key()]);
        assert_eq!(injection.pod.unwrap()["metadata"]["annotations"][SIDECAR_PROFILE], "b");
        assert!(injection.warnings[0].contains(expected), "{:?}", injection.warnings);
        let unserved = decide(&pod(Value::Null), &[bad_selector(expression), key()]).unserved.unwrap();
        assert!(!unserved.is_requested && unserved.why.contains(expected), "{}", unserved.why);
    }
    for (spec, expected) in [
        (json!({ "setupKeyRef": { "name": "gone" } }), "names SetupKey gone, and the namespace has none of that name"),
        (
            json!({ "setupKeyRef": { "name": "k" }, "containerOverride": { "env": [{ "name": "A", "value": 5 }] } }),
            "spec.containerOverride.env is not valid",
        ),
        (
            json!({ "setupKeyRef": { "name": "k" }, "containerOverride": { "securityContext": { "privileged": "yes" } } }),
            "spec.containerOverride.securityContext is not valid",
        ),
    ] {
        let injection = decide(&pod(Value::Null), &[profile("a", spec), key()]);
        let unserved = injection.unserved.expect(expected);
        assert!(injection.pod.is_none() && !unserved.is_requested);
        assert!(
            unserved.why.starts_with("Pod shop/web-* gets no sidecar of SidecarProfile shop/a: "),
            "{}",
            unserved.why
        );
        assert!(unserved.why.contains(expected), "{}", unserved.why);
    }
}

#[test]
fn a_profile_changes_the_container_as_a_strategic_merge_does() {
    let profile = object(
        "SidecarProfile",
        "p",
        json!({
            "setupKeyRef": { "name": "k" },
            "injectionMode": "Container",
            "containerOverride": {
                "image": "client:2",
                "env": [
                    { "name": "OZ_LOG_LEVEL", "value": "debug" },
                    { "name": "OZ_SETUP_KEY", "value": "in the clear" },
                ],
                "securityContext": { "runAsUser": 5, "capabilities": { "add": ["NET_ADMIN", "SYS_ADMIN"] }, "newField": 1 },
            },
        }),
    );
    let after =
        injected(&pod(Value::Null), &[profile, object("SetupKey", "k", json!({ "name": "K", "ephemeral": true }))]);
    assert_eq!(
        after["spec"]["containers"][1],
        json!({
            "name": "openzro",
            "image": "client:2",
            "env": [
                { "name": "OZ_SETUP_KEY", "value": "in the clear" },
                { "name": "OZ_MANAGEMENT_URL", "value": "https://openzro.example.com" },
                { "name": "OZ_LOG_LEVEL", "value": "debug" },
            ],
            "securityContext": { "capabilities": { "add": ["NET_ADMIN", "SYS_ADMIN"] }, "runAsUser": 5, "newField": 1 },
        })
    );
}

#[test]
fn w30_extra_dns_labels_reach_the_client_and_a_key_that_does_not_allow_them_is_told() {
    let profile =
        || object("SidecarProfile", "p", json!({ "setupKeyRef": { "name": "k" }, "extraDNSLabels": ["web", "shop"] }));
    let key = |allowed: Value| {
        object("SetupKey", "k", json!({ "name": "K", "ephemeral": true, "allowExtraDNSLabels": allowed }))
    };
    let own = |allowed: Value| ready_key("web", json!({ "name": "Web", "allowExtraDNSLabels": allowed }));
    let labelled = || annotated(json!({ EXTRA_DNS_LABELS: "web,shop" }));
    let profiled = || pod(Value::Null);
    let (profiled_place, annotated_place) = (("initContainers", 0), ("containers", 1));
    for (pod, objects, (list, index), warning) in [
        (profiled(), vec![profile(), key(json!(true))], profiled_place, None),
        (profiled(), vec![profile(), key(json!(false))], profiled_place, Some("SetupKey shop/k")),
        (profiled(), vec![profile(), key(Value::Null)], profiled_place, Some("SetupKey shop/k")),
        (labelled(), vec![own(json!(true))], annotated_place, None),
        (labelled(), vec![own(Value::Null)], annotated_place, Some("OZSetupKey shop/web")),
        // Only openZro knows what a key from elsewhere allows.
        (labelled(), vec![key_of_secret()], annotated_place, None),
    ] {
        let injection = decide(&pod, &objects);
        let container = &injection.pod.unwrap()["spec"][list][index];
        assert_eq!(container["env"][2], json!({ "name": "OZ_EXTRA_DNS_LABELS", "value": "web,shop" }));
        let warnings: Vec<_> = injection.warnings.iter().map(String::as_str).collect();
        assert_eq!(warnings.len(), usize::from(warning.is_some()), "{warnings:?}");
        assert!(warnings.iter().all(|told| told.contains(warning.unwrap_or_default())), "{warnings:?}");
    }
}

#[test]
fn w29_a_second_call_and_a_container_of_that_name_add_nothing() {
    let profile = object("SidecarProfile", "p", json!({ "setupKeyRef": { "name": "k" } }));
    let objects = [profile, object("SetupKey", "k", json!({ "name": "K", "ephemeral": true })), key_of_secret()];
    for pod in [pod(Value::Null), annotated(json!({})), annotated(json!({ INIT_SIDECAR: "true" }))] {
        let once = injected(&pod, &objects);
        assert_eq!(decide(&once, &objects), Injection::default(), "{once}");
    }
    let mut foreign = annotated(json!({}));
    foreign["spec"]["containers"][0]["name"] = json!("openzro");
    let injection = decide(&foreign, &objects);
    assert_eq!((injection.pod, injection.unserved), (None, None));
    assert!(injection.warnings[0].contains("a container openzro of its own"), "{:?}", injection.warnings);
    // A routing peer of the operator in a namespace with a profile for all pods.
    let mut router = pod(Value::Null);
    router["spec"]["containers"][0]["name"] = json!("openzro");
    assert_eq!(decide(&router, &objects), Injection::default());
}

#[test]
fn no_pod_panics() {
    let profile = object("SidecarProfile", "p", json!({ "setupKeyRef": { "name": "k" } }));
    let objects = [profile, object("SetupKey", "k", json!({ "name": "K", "ephemeral": true })), key_of_secret()];
    for pod in [
        Value::Null,
        json!("pod"),
        json!({}),
        json!({ "metadata": null, "spec": null }),
        json!({ "metadata": [], "spec": "x" }),
        json!({ "metadata": { "annotations": ["x"], "labels": 5 }, "spec": { "containers": {}, "initContainers": "x" } }),
        json!({ "metadata": { "annotations": { SETUP_KEY: 5 } }, "spec": { "volumes": 5 } }),
    ] {
        let injection = decide(&pod, &objects);
        assert_eq!(injection.pod.is_some(), pod.is_object(), "{pod}");
    }
}

/// Any JSON, with the names that matter more often than others.
fn any_json() -> impl Strategy<Value = Value> {
    let name = || {
        sample::select(vec![
            "name",
            "annotations",
            "labels",
            "containers",
            "initContainers",
            "volumes",
            "env",
            "app",
            SETUP_KEY,
            "other",
        ])
    };
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        sample::select(vec!["", "web", "openzro", "OZ_SETUP_KEY", "true"]).prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 5, move |inner| {
        let object = collection::btree_map(name().prop_map(str::to_owned), inner.clone(), 0..5);
        prop_oneof![
            collection::vec(inner, 0..4).prop_map(Value::from),
            object.prop_map(|entries| Value::Object(entries.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn any_pod_gets_at_most_one_sidecar_and_a_second_call_changes_nothing(
        metadata in option::of(any_json()),
        spec in option::of(any_json()),
        key in option::of(sample::select(vec!["web", "gone", ""])),
    ) {
        let mut pod = json!({ "metadata": metadata, "spec": spec });
        if let (Some(key), Some(metadata)) = (key, pod["metadata"].as_object_mut()) {
            metadata.insert("annotations".to_owned(), json!({ SETUP_KEY: key }));
        }
        let profile = object("SidecarProfile", "p", json!({ "setupKeyRef": { "name": "k" } }));
        let objects = [profile, object("SetupKey", "k", json!({ "name": "K", "ephemeral": true })), key_of_secret()];
        let sidecars = |pod: &Value| containers(pod).filter(|container| container["name"] == CONTAINER).count();
        let injection = decide(&pod, &objects);
        prop_assert!(injection.pod.is_none() || injection.unserved.is_none());
        if let Some(after) = injection.pod {
            prop_assert_eq!((sidecars(&pod), sidecars(&after)), (0, 1));
            prop_assert_eq!(decide(&after, &objects).pod, None);
        }
    }
}
