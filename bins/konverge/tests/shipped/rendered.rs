//! The objects that the templates make of the values.

use std::{
    collections::{BTreeMap, BTreeSet},
    env, fs,
    path::Path,
};

use clap::Parser;
use konverge_jobs::Settings;
use konverge_testkit::{ControlPlane, Options};
use konverge_zopp_server::args::Arguments;
use serde_json::{Value, json};

use crate::{EVERYTHING, Objects, arguments, chart, container, object, objects, render, said};

/// Renders and writes the golden files if this is set.
const WRITE: &str = "KONVERGE_WRITE_GOLDEN";

#[test]
fn what_is_rendered_is_what_is_recorded() {
    let monitored =
        [&EVERYTHING[..], &["serviceMonitor.enabled=true", "podMonitor.enabled=true", "prometheusRule.enabled=true"]];
    for (name, text) in [
        ("default", render(&["crds.install=false"], &[]).unwrap()),
        ("everything", render(&[&monitored.concat()[..], &["crds.install=false"]].concat(), &[]).unwrap()),
    ] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/golden/{name}.yaml"));
        if env::var_os(WRITE).is_some() {
            fs::write(&path, &text).unwrap();
        }
        let recorded = fs::read_to_string(&path).unwrap();
        assert!(text == recorded, "{} differs; {WRITE}=1 writes it anew, and git diff shows how", path.display());
    }
}

#[test]
fn helm_finds_no_fault() {
    let chart = chart();
    for sets in [&[][..], &EVERYTHING] {
        let sets = sets.iter().flat_map(|set| ["--set", set]);
        let lint: Vec<_> = ["lint", "--strict", chart.to_str().unwrap()].into_iter().chain(sets).collect();
        said(&lint).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_api_server_takes_all_and_its_pods_meet_the_strictest_standard() {
    let plane = ControlPlane::start(Options::default()).await.unwrap();
    let text = render(&EVERYTHING, &[]).unwrap();
    plane.would_take(&text, "home").await.unwrap();
    plane.would_run_restricted(&text).await.unwrap();
}

#[test]
fn each_program_takes_the_arguments_of_its_container() {
    let objects = objects(&render(&EVERYTHING, &[]).unwrap());
    let of = |name: &str| arguments(container(&objects, name));
    let none = BTreeMap::new();
    let pull = konverge_pull::config::Config::of_container(&of("release-konverge-operator"), &none).unwrap();
    assert_eq!(
        (pull.server.address.as_str(), pull.leader_elect),
        ("http://release-konverge-server.home.svc:50051", true)
    );
    let push = konverge_push::config::Config::of_container(&of("release-konverge-push"), &none).unwrap();
    assert_eq!(
        (push.server.leader_elect, push.push.allow_path.len(), push.server.enable_metrics_auth),
        (true, 1, true)
    );
    let roll = konverge_roll::config::Config::of_container(&of("release-konverge-roll"), &none).unwrap();
    assert_eq!((roll.leader_elect, roll.vault.allow_path.len()), (true, 1));
    assert!(roll.vault.flags().is_some());
    let manage = of("release-konverge-manage");
    let manage = manage_config(&manage);
    assert_eq!(manage.openzro_api_key_file.as_deref(), Some(Path::new("/etc/openzro/OZ_API_KEY")));
    assert_eq!((manage.leader_elect, manage.enable_webhooks, manage.gateway_api_enabled), (true, true, false));
    assert!(manage.metrics.enable_metrics_auth);
    assert_eq!(manage.runtime_namespace.as_deref(), Some("home"));
    let server = of("release-konverge-server");
    Arguments::try_parse_from(["zopp-server"].into_iter().chain(server.iter().map(String::as_str))).unwrap();
}

fn manage_config(arguments: &[String]) -> konverge_manage::config::Config {
    let line = ["openzro-operator"].into_iter().chain(arguments.iter().map(String::as_str));
    konverge_manage::config::Config::try_parse_from(line).map_err(|error| error.to_string()).ok().unwrap()
}

#[test]
fn the_values_of_the_chart_openzro_operator_reach_manage() {
    let values = json!({ "manage": {
        "enabled": true, "managementURL": "https://openzro.example.com:8443", "routingClientImage": "registry/client:1",
        "openzroAPI": { "keyFromSecret": { "name": "token", "key": "pat" } },
        "cluster": { "name": "prod", "dns": "svc.prod.local" },
        "ingress": { "namespacedNetworks": true, "allowAutomaticPolicyCreation": true },
        "gatewayAPI": { "enabled": true }, "general": { "labels": { "team": "net", "tier": "infra" } },
        "webhook": { "enabled": false },
    } });
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), values.to_string()).unwrap();
    let objects = objects(&render(&[], &[file.path().to_str().unwrap()]).unwrap());
    let deployment = object(&objects, "Deployment", "release-konverge-manage");
    let config = manage_config(&arguments(container(&objects, "release-konverge-manage")));
    assert_eq!(config.openzro_management_url, "https://openzro.example.com:8443");
    assert_eq!((&*config.openzro_client_image, &*config.cluster_name), ("registry/client:1", "prod"));
    assert_eq!((&*config.cluster_dns, config.default_labels.len()), ("svc.prod.local", 2));
    assert!(config.namespaced_networks && config.allow_automatic_policy_creation && config.gateway_api_enabled);
    assert!(!config.enable_webhooks);
    assert_eq!(config.openzro_api_key_file.as_deref(), Some(Path::new("/etc/openzro/pat")));
    let pod = &deployment["spec"]["template"]["spec"];
    assert_eq!(pod["volumes"][0]["secret"]["secretName"], "token");
    let granted = grants(of_part(&objects, "manage"), "ClusterRole");
    let resources: BTreeSet<_> = granted.iter().map(|(_, resource, _, _)| resource.as_str()).collect();
    assert!(resources.contains("httproutes") && !resources.contains("mutatingwebhookconfigurations"), "{resources:?}");
    let policy = object(&objects, "NetworkPolicy", "release-konverge-manage")["spec"].to_string();
    assert!(policy.contains("8443") && !policy.contains("webhooks"), "{policy}");
    assert!(!objects.keys().any(|(kind, _)| kind.ends_with("WebhookConfiguration")), "{:?}", objects.keys());
}

#[test]
fn accounts_of_tenants_reach_manage_as_mounted_files() {
    let sets = [
        "manage.accounts[0].namespace=shop",
        "manage.accounts[0].secret=shop-token",
        "manage.accounts[1].namespace=pay",
        "manage.accounts[1].secret=pay-token",
        "manage.accounts[1].key=pat",
        "manage.accounts[1].managementURL=https://pay.example.com:9443",
    ];
    let objects = objects(&render(&[&EVERYTHING[..], &sets].concat(), &[]).unwrap());
    let settings = manage_config(&arguments(container(&objects, "release-konverge-manage"))).settings();
    assert_eq!(settings.url("shop"), "https://openzro.example.com");
    assert_eq!(settings.url("pay"), "https://pay.example.com:9443");
    let pod = &object(&objects, "Deployment", "release-konverge-manage")["spec"]["template"]["spec"];
    let arguments = pod["containers"][0]["args"].to_string();
    for (volume, secret, file) in [
        ("account-shop", "shop-token", "/etc/openzro-accounts/shop/OZ_API_KEY"),
        ("account-pay", "pay-token", "/etc/openzro-accounts/pay/pat"),
    ] {
        let found = pod["volumes"].as_array().unwrap().iter().find(|found| found["name"] == volume).unwrap();
        assert_eq!(found["secret"]["secretName"], secret);
        let mounts = pod["containers"][0]["volumeMounts"].as_array().unwrap();
        let mount = mounts.iter().find(|mount| mount["name"] == volume).unwrap();
        assert!(file.starts_with(mount["mountPath"].as_str().unwrap()) && arguments.contains(file), "{arguments}");
    }
    let policy = object(&objects, "NetworkPolicy", "release-konverge-manage")["spec"]["egress"].to_string();
    assert!(policy.contains("9443"), "{policy}");
    assert!(render(&[&EVERYTHING[..], &["manage.accounts[0].namespace=shop"]].concat(), &[]).is_err());
}

#[test]
fn the_webhooks_of_manage_answer_the_api_server_alone_where_its_authority_is_given() {
    let rendered = |sets: &[&str]| objects(&render(&[&EVERYTHING[..], sets].concat(), &[]).unwrap());
    let config = |objects: &_| manage_config(&arguments(container(objects, "release-konverge-manage")));
    assert_eq!(config(&rendered(&[])).webhook_client_ca, None);
    let rendered = rendered(&["manage.webhook.clientCASecret=front-proxy"]);
    let file = config(&rendered).webhook_client_ca.unwrap();
    let pod = &object(&rendered, "Deployment", "release-konverge-manage")["spec"]["template"]["spec"];
    let find =
        |list: &Value, name: &str| list.as_array().unwrap().iter().find(|one| one["name"] == name).cloned().unwrap();
    let mount = find(&pod["containers"][0]["volumeMounts"], "webhook-client");
    let volume = find(&pod["volumes"], "webhook-client");
    assert_eq!(volume["secret"]["secretName"], "front-proxy");
    let item = volume["secret"]["items"][0]["path"].as_str().unwrap();
    assert_eq!(file, std::path::Path::new(mount["mountPath"].as_str().unwrap()).join(item));
}

#[test]
fn the_webhooks_of_manage_lead_to_its_pods() {
    let rendered = objects(&render(&EVERYTHING, &[]).unwrap());
    let pod = &object(&rendered, "Deployment", "release-konverge-manage")["spec"]["template"];
    let service = object(&rendered, "Service", "openzro-operator");
    let selector = service["spec"]["selector"].as_object().unwrap();
    assert!(selector.iter().all(|(label, value)| pod["metadata"]["labels"][label] == *value), "{selector:?}");
    let ports = pod["spec"]["containers"][0]["ports"].as_array().unwrap();
    assert!(ports.iter().any(|port| port["containerPort"] == service["spec"]["ports"][0]["targetPort"]), "{ports:?}");
    let mut called = 0;
    for kind in ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"] {
        for webhook in object(&rendered, kind, "openzro-operator")["webhooks"].as_array().unwrap() {
            let target = &webhook["clientConfig"]["service"];
            assert_eq!(
                (&target["name"], &target["namespace"]),
                (&json!("openzro-operator"), &json!("home")),
                "{webhook}"
            );
            called += 1;
        }
    }
    assert_eq!(called, 7, "sidecars three times, with and without Pod Security, and groups");
    assert!(render(&["manage.enabled=true"], &[]).unwrap_err().contains("manage.managementURL is required"));
    let confined = [&EVERYTHING[..], &["rbac.clusterWide=false"]].concat();
    let confined =
        [&confined[..], &["pull.watchNamespace=a", "push.watchNamespace=a", "roll.watchNamespace=a"]].concat();
    assert!(render(&confined, &[]).unwrap_err().contains("manage works in all namespaces"));
    let draining = objects(&render(&[&EVERYTHING[..], &["manage.drain=true"]].concat(), &[]).unwrap());
    assert_eq!(object(&draining, "Deployment", "release-konverge-manage")["spec"]["replicas"], 0);
    let job = object(&draining, "Job", "release-konverge-manage-drain-1");
    let given = arguments(&job["spec"]["template"]["spec"]["containers"][0]);
    assert_eq!(manage_config(&given).task, konverge_manage::config::Task::Drain);
    assert!(!draining.keys().any(|(kind, _)| kind.ends_with("WebhookConfiguration")), "{:?}", draining.keys());
}

#[test]
fn pods_are_spread_limited_and_confined_without_any_value() {
    let objects = objects(&render(&EVERYTHING, &[]).unwrap());
    for part in ["operator", "push", "roll", "manage", "server"] {
        let name = format!("release-konverge-{part}");
        let pod = &object(&objects, "Deployment", &name)["spec"]["template"]["spec"];
        let container = &pod["containers"][0];
        assert_eq!(container["securityContext"]["readOnlyRootFilesystem"], true, "{name}");
        assert!(container["resources"]["limits"]["memory"].is_string(), "{name}");
        assert!(container["livenessProbe"].is_object() && container["readinessProbe"].is_object(), "{name}");
        assert_eq!(pod["topologySpreadConstraints"][0]["topologyKey"], "kubernetes.io/hostname", "{name}");
        assert!(pod["terminationGracePeriodSeconds"].as_u64() > Some(30), "a program ends by itself within 30 s");
        let policy = object(&objects, "NetworkPolicy", &name);
        assert_eq!(policy["spec"]["policyTypes"], json!(["Ingress", "Egress"]), "{name}");
        let has_budget = objects.contains_key(&("PodDisruptionBudget".to_owned(), name.clone()));
        assert_eq!(has_budget, part != "server", "a budget for one replica keeps its node from being drained");
    }
    let ports = object(&objects, "NetworkPolicy", "release-konverge-push")["spec"]["egress"][1]["ports"].clone();
    assert!(ports.as_array().unwrap().iter().any(|port| port["port"] == 8200), "Vault's: {ports}");
}

#[test]
fn a_policy_that_names_its_peers_lets_the_pod_of_helm_test_in() {
    let only = ["networkPolicy.from[0].namespaceSelector.matchLabels.team=monitoring"];
    let objects = objects(&render(&[&EVERYTHING[..], &only].concat(), &[]).unwrap());
    let labels = object(&objects, "Pod", "release-konverge-test")["metadata"]["labels"].as_object().unwrap();
    for part in ["operator", "push", "roll", "manage", "server"] {
        let policy = object(&objects, "NetworkPolicy", &format!("release-konverge-{part}"));
        let from = policy["spec"]["ingress"][0]["from"].as_array().unwrap();
        assert_eq!(from[0]["namespaceSelector"]["matchLabels"]["team"], "monitoring");
        let selected = from[1]["podSelector"]["matchLabels"].as_object().unwrap();
        assert!(selected.iter().all(|(label, value)| labels[label] == *value), "{part}: {selected:?} {labels:?}");
    }
}

#[test]
fn a_drain_stops_push_and_takes_its_finalizers_off() {
    let objects = objects(&render(&[&EVERYTHING[..], &["push.drain=true"]].concat(), &[]).unwrap());
    assert_eq!(object(&objects, "Deployment", "release-konverge-push")["spec"]["replicas"], 0);
    let pod = &object(&objects, "Job", "release-konverge-push-drain-1")["spec"]["template"]["spec"];
    assert_eq!(pod["serviceAccountName"], "release-konverge-push");
    let given = arguments(&pod["containers"][0]);
    let config = konverge_push::config::Config::of_container(&given, &BTreeMap::new()).unwrap();
    assert_eq!(config.task, konverge_push::config::Task::Drain);
    assert_eq!(config.vault.vault_addr, "https://vault.example.com:8200");
}

/// Group, resource, name and verb.
type Grant = (String, String, Option<String>, String);

/// The grants of all roles of this kind among some objects.
fn grants<'a>(objects: impl Iterator<Item = &'a Value>, kind: &str) -> BTreeSet<Grant> {
    let mut grants = BTreeSet::new();
    let texts = |value: &Value| serde_json::from_value::<Vec<String>>(value.clone()).unwrap_or_default();
    for role in objects.filter(|object| object["kind"] == kind) {
        for rule in role["rules"].as_array().unwrap() {
            let names: Vec<_> = texts(&rule["resourceNames"]).into_iter().map(Some).collect();
            let names = if names.is_empty() { vec![None] } else { names };
            for (group, name) in
                texts(&rule["apiGroups"]).iter().flat_map(|group| names.iter().map(move |name| (group, name)))
            {
                for resource in texts(&rule["resources"]) {
                    let verbs = texts(&rule["verbs"]).into_iter();
                    grants.extend(verbs.map(|verb| (group.clone(), resource.clone(), name.clone(), verb)));
                }
            }
        }
    }
    grants
}

fn of_part<'a>(objects: &'a Objects, part: &'a str) -> impl Iterator<Item = &'a Value> {
    objects.values().filter(move |object| {
        let labels = &object["metadata"]["labels"];
        labels["app.kubernetes.io/component"] == part
    })
}

#[test]
fn the_roles_are_those_that_the_tests_of_each_operator_run_under() {
    let objects = objects(&render(&EVERYTHING, &[]).unwrap());
    for (part, shipped) in [
        ("operator", include_str!("../../../../deploy/rbac/zopp-operator.yaml")),
        ("push", include_str!("../../../../deploy/rbac/vault-sync-operator.yaml")),
        ("roll", include_str!("../../../../deploy/rbac/vault-rollout-operator.yaml")),
        ("manage", include_str!("../../../../deploy/openzro/role.yaml")),
    ] {
        let shipped: Vec<Value> = serde_saphyr::from_multiple(shipped).unwrap();
        for kind in ["ClusterRole", "Role"] {
            let expected = grants(shipped.iter(), kind);
            assert_eq!(grants(of_part(&objects, part), kind), expected, "{kind} of {part}");
            assert!(!expected.is_empty());
        }
    }
}

/// The settings of a program, whether by flag or by variable, as it logs them at its start.
fn settings(part: &str, container: &Value) -> String {
    let variables = container["env"].as_array().into_iter().flatten();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut variables: BTreeMap<_, _> = variables.map(|one| (text(&one["name"]), text(&one["value"]))).collect();
    if part == "roll" {
        // The file has no Vault; this adds one, as its comment says.
        variables.insert("VAULT_ADDR".to_owned(), "https://vault.example.com:8200".to_owned());
    }
    let given = arguments(container);
    let settings = match part {
        "operator" => konverge_pull::config::Config::of_container(&given, &variables).unwrap().to_string(),
        "push" => konverge_push::config::Config::of_container(&given, &variables).unwrap().to_string(),
        "roll" => format!("{:?}", konverge_roll::config::Config::of_container(&given, &variables).unwrap()),
        _ => konverge_manage::config::Config::of_container(&given, &variables).unwrap().to_string(),
    };
    settings.replace("namespace=home ", "namespace=openzro ").replace("namespaces=home ", "namespaces=openzro ")
}

/// The files have the names of the originals, so that they take their place. All else in them is as the chart has it.
#[test]
fn the_deployments_of_the_files_are_set_and_hardened_as_those_of_the_chart() {
    let address = "pull.server.address=https://zopp.example.com";
    // Users of the files have monitors that scrape over HTTP, like those of the originals.
    let plain = "metricsTLS.selfSigned=false";
    let rendered = objects(&render(&[&EVERYTHING[..], &[address, plain]].concat(), &[]).unwrap());
    for (part, file) in [
        ("operator", include_str!("../../../../deploy/zopp-operator.yaml")),
        ("push", include_str!("../../../../deploy/vault-sync-operator.yaml")),
        ("roll", include_str!("../../../../deploy/vault-rollout-operator.yaml")),
        ("manage", include_str!("../../../../deploy/openzro-operator.yaml")),
    ] {
        let documents: Vec<Value> = serde_saphyr::from_multiple(file).unwrap();
        let shipped = documents.iter().find(|document| document["kind"] == "Deployment").unwrap();
        let chart = object(&rendered, "Deployment", &format!("release-konverge-{part}"));
        assert_eq!(shipped["spec"]["replicas"], chart["spec"]["replicas"], "{part}");
        let (shipped, chart) = (&shipped["spec"]["template"]["spec"], &chart["spec"]["template"]["spec"]);
        assert_eq!(shipped["terminationGracePeriodSeconds"], chart["terminationGracePeriodSeconds"], "{part}");
        for (field, value) in shipped["securityContext"].as_object().unwrap() {
            assert_eq!(value, &chart["securityContext"][field], "{part}: {field}");
        }
        let (shipped, chart) = (&shipped["containers"][0], &chart["containers"][0]);
        for field in ["securityContext", "resources"] {
            assert_eq!(shipped[field], chart[field], "{part}: {field}");
        }
        for probe in ["livenessProbe", "readinessProbe"] {
            assert_eq!(shipped[probe]["httpGet"]["path"], chart[probe]["httpGet"]["path"], "{part}: {probe}");
        }
        assert_eq!(settings(part, shipped), settings(part, chart), "{part}");
    }
}

#[test]
fn a_part_of_one_namespace_gets_no_role_of_the_cluster_but_for_what_has_no_namespace() {
    let confined =
        ["push.watchNamespace=shop", "pull.watchNamespace=shop", "roll.watchNamespace=shop", "manage.enabled=false"];
    let objects = objects(&render(&[&EVERYTHING[..], &confined, &["rbac.clusterWide=false"]].concat(), &[]).unwrap());
    let of = |part| {
        let grants = grants(of_part(&objects, part), "ClusterRole").into_iter();
        grants.map(|(_, resource, name, _)| (resource, name)).collect::<BTreeSet<_>>()
    };
    let named = |resource: &str, name: Option<&str>| (resource.to_owned(), name.map(str::to_owned));
    let reviews = BTreeSet::from([named("subjectaccessreviews", None), named("tokenreviews", None)]);
    for part in ["operator", "roll"] {
        assert_eq!(of(part), reviews, "{part}");
    }
    let of_namespaces = BTreeSet::from([named("namespaces", Some("kube-system")), named("namespaces", Some("shop"))]);
    assert_eq!(of("push"), &reviews | &of_namespaces);
    let role = object(&objects, "Role", "release-konverge-roll-watched");
    assert_eq!(role["metadata"]["namespace"], "shop");
}

#[test]
fn readers_of_metrics_have_a_role_of_the_name_that_the_docs_say() {
    let page = include_str!("../../../../docs/how-to/monitoring.md");
    let objects = objects(&render(&EVERYTHING, &[]).unwrap());
    for (part, program, shipped) in [
        ("operator", "zopp-operator", include_str!("../../../../deploy/rbac/zopp-operator.yaml")),
        ("push", "vault-sync-operator", include_str!("../../../../deploy/rbac/vault-sync-operator.yaml")),
        ("roll", "vault-rollout-operator", include_str!("../../../../deploy/rbac/vault-rollout-operator.yaml")),
        ("manage", "openzro-operator", include_str!("../../../../deploy/openzro/role.yaml")),
    ] {
        let role = of_part(&objects, part).find(|role| role["rules"][0]["nonResourceURLs"] == json!(["/metrics"]));
        let name = role.unwrap()["metadata"]["name"].as_str().unwrap();
        assert!(name.ends_with(&format!("-konverge-{part}-metrics-reader")), "{name}");
        assert!(page.contains(&format!("`konverge-system-konverge-{part}-metrics-reader`")), "{part}");
        let name = format!("{program}-metrics-reader");
        assert!(shipped.contains(&format!("name: {name}\n")) && page.contains(&format!("`{name}`")), "{name}");
        let container = of_part(&objects, part).find(|object| object["kind"] == "Deployment").unwrap();
        let arguments = &container["spec"]["template"]["spec"]["containers"][0]["args"];
        assert!(arguments.as_array().unwrap().contains(&json!("--enable-metrics-auth=true")), "{part}: {arguments}");
    }
}

#[test]
fn metrics_over_tls_have_a_port_of_their_own_that_the_monitors_verify() {
    let tls = ["metricsTLS.existingSecret=certificate", "serviceMonitor.enabled=true", "podMonitor.enabled=true"];
    let objects = objects(&render(&[&EVERYTHING[..], &tls].concat(), &[]).unwrap());
    let none = BTreeMap::new();
    let of = |part: &str| arguments(container(&objects, &format!("release-konverge-{part}")));
    let (pull, push) = (of("operator"), of("push"));
    let served = [
        konverge_pull::config::Config::of_container(&pull, &none).unwrap().metrics.options(),
        konverge_push::config::Config::of_container(&push, &none).unwrap().server.metrics(),
        konverge_roll::config::Config::of_container(&of("roll"), &none).unwrap().metrics.options(),
        manage_config(&of("manage")).metrics.options(),
    ];
    for (part, served) in ["operator", "push", "roll", "manage"].into_iter().zip(served) {
        let name = format!("release-konverge-{part}");
        let (certificate, key) = served.certificate.unwrap();
        assert!(served.address.unwrap().to_string().ends_with(":8443"), "{part}");
        let pod = &object(&objects, "Deployment", &name)["spec"]["template"]["spec"];
        let mounts = pod["containers"][0]["volumeMounts"].as_array().unwrap();
        let mount = mounts.iter().find(|mount| mount["name"] == "metrics-tls").unwrap();
        let folder = mount["mountPath"].as_str().unwrap();
        assert!(certificate.starts_with(folder) && key.starts_with(folder), "{certificate:?} {key:?}");
        let volumes = pod["volumes"].as_array().unwrap();
        let volume = volumes.iter().find(|volume| volume["name"] == "metrics-tls").unwrap();
        assert_eq!(volume["secret"]["secretName"], "certificate");
        let ports = &object(&objects, "NetworkPolicy", &name)["spec"]["ingress"][0]["ports"];
        assert!(ports.as_array().unwrap().contains(&json!({ "port": "metrics" })), "{ports}");
        for (kind, endpoints) in [("ServiceMonitor", "endpoints"), ("PodMonitor", "podMetricsEndpoints")] {
            let endpoint = &object(&objects, kind, &name)["spec"][endpoints][0];
            assert_eq!((&endpoint["port"], &endpoint["scheme"]), (&json!("metrics"), &json!("https")), "{kind} {part}");
            assert_eq!(endpoint["tlsConfig"]["serverName"], format!("{name}.home.svc"), "{kind} {part}");
        }
    }
    let of_zopp = &object(&objects, "ServiceMonitor", "release-konverge-server")["spec"]["endpoints"][0];
    assert_eq!((&of_zopp["port"], &of_zopp["scheme"]), (&json!("http"), &Value::Null), "the server has no such port");
}

#[test]
fn metrics_that_ask_for_a_token_are_served_over_tls_unless_the_values_say_otherwise() {
    let monitors = ["serviceMonitor.enabled=true"];
    for (sets, secure) in [
        (&[][..], true),
        (&["metricsTLS.selfSigned=false"][..], false),
        (&["pull", "push", "roll", "manage"].map(|job| &*format!("{job}.metricsAuth=false").leak())[..], false),
    ] {
        let objects = objects(&render(&[&EVERYTHING[..], &monitors, sets].concat(), &[]).unwrap());
        let none = BTreeMap::new();
        let of = |part: &str| arguments(container(&objects, &format!("release-konverge-{part}")));
        let served = [
            konverge_pull::config::Config::of_container(&of("operator"), &none).unwrap().metrics.options(),
            konverge_push::config::Config::of_container(&of("push"), &none).unwrap().server.metrics(),
            konverge_roll::config::Config::of_container(&of("roll"), &none).unwrap().metrics.options(),
            manage_config(&of("manage")).metrics.options(),
        ];
        for (part, served) in ["operator", "push", "roll", "manage"].into_iter().zip(served) {
            assert_eq!((served.tls, &served.certificate), (secure, &None), "{part} {sets:?}");
            assert!(!secure || served.address.unwrap().to_string().ends_with(":8443"), "{part} {sets:?}");
            let monitor = object(&objects, "ServiceMonitor", &format!("release-konverge-{part}"));
            let endpoint = &monitor["spec"]["endpoints"][0];
            assert_eq!(endpoint["scheme"] == "https", secure, "{part} {sets:?}: {endpoint}");
            assert_eq!(endpoint["tlsConfig"]["insecureSkipVerify"] == true, secure, "{part} {sets:?}: {endpoint}");
        }
    }
}

#[test]
fn alerts_have_a_runbook_url_only_if_the_docs_have_an_address() {
    let with = ["prometheusRule.enabled=true", "prometheusRule.runbookBaseUrl=https://docs.example.com/"];
    for (sets, expected) in [(&with[..1], false), (&with[..], true)] {
        let objects = objects(&render(&[&EVERYTHING[..], sets].concat(), &[]).unwrap());
        for (part, at_least) in [("operator", 10), ("push", 10), ("roll", 10), ("manage", 10), ("server", 8)] {
            let rules = object(&objects, "PrometheusRule", &format!("release-konverge-{part}"));
            let rules = rules["spec"]["groups"][0]["rules"].as_array().unwrap();
            assert!(rules.len() > at_least, "{rules:?}");
            for rule in rules {
                let url = rule["annotations"]["runbook_url"].as_str();
                let page = "https://docs.example.com/docs/reference/alerts.html#";
                assert_eq!(url.is_some_and(|url| url.starts_with(page)), expected, "{rule}");
                assert_eq!(url.is_some(), expected, "{rule}");
            }
        }
    }
}

#[test]
fn dashboards_are_config_maps_with_the_label_of_the_sidecar() {
    let objects = objects(&render(&[&EVERYTHING[..], &["dashboards.enabled=true"]].concat(), &[]).unwrap());
    for (part, job, own, at_least) in [
        ("operator", "pull", "konverge_pull_", 12),
        ("push", "push", "konverge_push_", 12),
        ("roll", "roll", "konverge_roll_", 12),
        ("manage", "manage", "openzro-operator", 12),
        ("server", "server", "zopp_server_", 7),
    ] {
        let map = object(&objects, "ConfigMap", &format!("release-konverge-{part}-dashboard"));
        assert_eq!(map["metadata"]["labels"]["grafana_dashboard"], "1");
        let dashboard: Value =
            serde_json::from_str(map["data"][format!("konverge-{job}.json")].as_str().unwrap()).unwrap();
        let panels = dashboard["panels"].as_array().unwrap();
        let text = panels.iter().map(ToString::to_string).collect::<String>();
        assert!(panels.len() > at_least && text.contains(own), "{text}");
    }
}

#[test]
fn a_kind_that_roll_does_not_watch_is_not_granted() {
    let objects = objects(&render(&["roll.kinds={deployments}"], &[]).unwrap());
    let granted = grants(of_part(&objects, "roll"), "ClusterRole");
    let resources: BTreeSet<_> = granted.iter().map(|(_, resource, _, _)| resource.as_str()).collect();
    assert!(resources.contains("deployments") && !resources.contains("statefulsets"), "{resources:?}");
    assert!(!resources.contains("vaultrollouts"), "roll runs without Vault: {resources:?}");
}
