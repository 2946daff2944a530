//! The objects that the templates make of the values.

use std::{
    collections::{BTreeMap, BTreeSet},
    env, fs,
    path::Path,
};

use clap::Parser;
use konverge_testkit::{ControlPlane, Options};
use konverge_zopp_server::args::Arguments;
use serde_json::Value;

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
    assert_eq!((pull.server.as_str(), pull.leader_elect), ("http://release-konverge-server.home.svc:50051", true));
    let push = konverge_push::config::Config::of_container(&of("release-konverge-push"), &none).unwrap();
    assert_eq!(
        (push.server.leader_elect, push.push.allow_path.len(), push.server.enable_metrics_auth),
        (true, 1, true)
    );
    let roll = konverge_roll::config::Config::of_container(&of("release-konverge-roll"), &none).unwrap();
    assert_eq!((roll.leader_elect, roll.vault.allow_path.len()), (true, 1));
    assert!(roll.vault.flags().is_some());
    let server = of("release-konverge-server");
    Arguments::try_parse_from(["zopp-server"].into_iter().chain(server.iter().map(String::as_str))).unwrap();
}

#[test]
fn pods_are_spread_limited_and_confined_without_any_value() {
    let objects = objects(&render(&EVERYTHING, &[]).unwrap());
    for part in ["operator", "push", "roll", "server"] {
        let name = format!("release-konverge-{part}");
        let pod = &object(&objects, "Deployment", &name)["spec"]["template"]["spec"];
        let container = &pod["containers"][0];
        assert_eq!(container["securityContext"]["readOnlyRootFilesystem"], true, "{name}");
        assert!(container["resources"]["limits"]["memory"].is_string(), "{name}");
        assert!(container["livenessProbe"].is_object() && container["readinessProbe"].is_object(), "{name}");
        assert_eq!(pod["topologySpreadConstraints"][0]["topologyKey"], "kubernetes.io/hostname", "{name}");
        assert!(pod["terminationGracePeriodSeconds"].as_u64() > Some(30), "a program ends by itself within 30 s");
        let policy = object(&objects, "NetworkPolicy", &name);
        assert_eq!(policy["spec"]["policyTypes"], serde_json::json!(["Ingress", "Egress"]), "{name}");
        let has_budget = objects.contains_key(&("PodDisruptionBudget".to_owned(), name.clone()));
        assert_eq!(has_budget, part != "server", "a budget for one replica keeps its node from being drained");
    }
    let ports = object(&objects, "NetworkPolicy", "release-konverge-push")["spec"]["egress"][1]["ports"].clone();
    assert!(ports.as_array().unwrap().iter().any(|port| port["port"] == 8200), "Vault's: {ports}");
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
    ] {
        let shipped: Vec<Value> = serde_saphyr::from_multiple(shipped).unwrap();
        for kind in ["ClusterRole", "Role"] {
            let expected = grants(shipped.iter(), kind);
            assert_eq!(grants(of_part(&objects, part), kind), expected, "{kind} of {part}");
            assert!(!expected.is_empty());
        }
    }
}

#[test]
fn a_part_of_one_namespace_gets_no_role_of_the_cluster_but_for_what_has_no_namespace() {
    let confined = ["push.watchNamespace=shop", "pull.watchNamespace=shop", "roll.watchNamespace=shop"];
    let objects = objects(&render(&[&EVERYTHING[..], &confined, &["rbac.clusterWide=false"]].concat(), &[]).unwrap());
    for part in ["operator", "roll"] {
        assert!(grants(of_part(&objects, part), "ClusterRole").is_empty(), "{part}");
    }
    let of_push: BTreeSet<_> = grants(of_part(&objects, "push"), "ClusterRole")
        .into_iter()
        .map(|(_, resource, name, _)| (resource, name))
        .collect();
    let named = |resource: &str, name: Option<&str>| (resource.to_owned(), name.map(str::to_owned));
    let expected = [
        named("namespaces", Some("kube-system")),
        named("namespaces", Some("shop")),
        named("subjectaccessreviews", None),
        named("tokenreviews", None),
    ];
    assert_eq!(of_push, BTreeSet::from(expected));
    let role = object(&objects, "Role", "release-konverge-roll-watched");
    assert_eq!(role["metadata"]["namespace"], "shop");
}

#[test]
fn alerts_have_a_runbook_url_only_if_the_docs_have_an_address() {
    let with = ["prometheusRule.enabled=true", "prometheusRule.runbookBaseUrl=https://docs.example.com/"];
    for (sets, expected) in [(&with[..1], false), (&with[..], true)] {
        let objects = objects(&render(&[&EVERYTHING[..], sets].concat(), &[]).unwrap());
        for name in ["release-konverge-operator", "release-konverge-push", "release-konverge-roll"] {
            let rules = object(&objects, "PrometheusRule", name)["spec"]["groups"][0]["rules"].as_array().unwrap();
            assert!(rules.len() > 10, "{rules:?}");
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
    for (part, job) in [("operator", "pull"), ("push", "push"), ("roll", "roll")] {
        let map = object(&objects, "ConfigMap", &format!("release-konverge-{part}-dashboard"));
        assert_eq!(map["metadata"]["labels"]["grafana_dashboard"], "1");
        let dashboard: Value =
            serde_json::from_str(map["data"][format!("konverge-{job}.json")].as_str().unwrap()).unwrap();
        let panels = dashboard["panels"].as_array().unwrap();
        let text = panels.iter().map(ToString::to_string).collect::<String>();
        assert!(panels.len() > 12 && text.contains(&format!("konverge_{job}_")), "{text}");
    }
}

#[test]
fn a_kind_that_takes_no_part_is_not_granted() {
    let objects = objects(&render(&["roll.kinds={deployments}"], &[]).unwrap());
    let granted = grants(of_part(&objects, "roll"), "ClusterRole");
    let resources: BTreeSet<_> = granted.iter().map(|(_, resource, _, _)| resource.as_str()).collect();
    assert!(resources.contains("deployments") && !resources.contains("statefulsets"), "{resources:?}");
    assert!(!resources.contains("vaultrollouts"), "Vault takes no part: {resources:?}");
}
