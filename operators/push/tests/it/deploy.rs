//! The manifests that users apply.

use konverge_jobs::Settings;
use konverge_push::config::{Config, Task};
use konverge_runtime::http_server::Listen;
use serde_json::Value;

use crate::world::DEFINITION;

const NAMESPACE: &str = "vault-sync-operator-system";
const ROLE: &str = include_str!("../../../../deploy/rbac/vault-sync-operator.yaml");
const DEPLOYMENT: &str = include_str!("../../../../deploy/vault-sync-operator.yaml");
const DRAIN: &str = include_str!("../../../../deploy/vault-sync-operator-drain.yaml");

fn documents() -> Vec<Value> {
    let documents = [ROLE, DEPLOYMENT, DRAIN, DEFINITION].into_iter().flat_map(|text| text.split("\n---\n"));
    documents.map(|text| serde_saphyr::from_str(text).unwrap()).collect()
}

/// The manifest's pod.
fn pod(kind: &str) -> Value {
    let documents = documents();
    documents.iter().find(|document| document["kind"] == kind).unwrap()["spec"]["template"]["spec"].clone()
}

/// The configuration that the program reads from the first container's arguments and variables.
fn settings(pod: &Value) -> Config {
    let container = &pod["containers"][0];
    let arguments: Vec<String> = serde_json::from_value(container["args"].clone()).unwrap();
    let variables = container["env"].as_array().into_iter().flatten();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let variables = variables.map(|variable| (text(&variable["name"]), text(&variable["value"]))).collect();
    Config::of_container(&arguments, &variables).unwrap()
}

#[tokio::test]
async fn the_api_server_takes_the_manifests_as_they_are_written() {
    let manifest = [ROLE, DEPLOYMENT, DRAIN, DEFINITION].join("\n---\n");
    crate::world::control_plane().await.would_take(&manifest, NAMESPACE).await.unwrap();
}

#[tokio::test]
async fn its_pods_keep_to_the_strictest_standard() {
    let manifest = [DEPLOYMENT, DRAIN].join("\n---\n");
    crate::world::control_plane().await.would_run_restricted(&manifest).await.unwrap();
}

#[test]
fn flags_ports_and_account_are_those_of_the_program() {
    let pod = pod("Deployment");
    let config = settings(&pod);
    assert_eq!((config.task, config.server.leader_elect, config.push.allow_path.len()), (Task::Run, true, 1));
    assert_eq!(config.vault.vault_addr, "https://vault.example.com:8200");
    assert_eq!(
        (config.vault.vault_role.as_str(), config.vault.vault_auth_path.as_deref()),
        ("vault-sync-operator", Some("kubernetes"))
    );
    let port = |listen: Listen| {
        let Listen::At(address) = listen else { panic!("it serves nowhere") };
        u64::from(address.port())
    };
    let ports = &pod["containers"][0]["ports"];
    assert_eq!(ports[0]["containerPort"], port(config.server.metrics_bind_address));
    assert_eq!(ports[1]["containerPort"], port(config.server.health_probe_bind_address));
    assert!(pod["terminationGracePeriodSeconds"].as_u64() > Some(30), "the program ends by itself within 30 s");
    let drain = self::pod("Job");
    assert_eq!(settings(&drain).task, Task::Drain);
    for pod in [&pod, &drain] {
        let account = pod["serviceAccountName"].as_str().unwrap();
        assert!(ROLE.contains(&format!("kind: ServiceAccount\nmetadata:\n  name: {account}\n")));
    }
}

#[test]
fn the_roles_allow_no_more_than_is_used() {
    let role =
        documents().into_iter().find(|document| document["metadata"]["name"] == "vault-sync-operator-manager-role");
    let rules = role.unwrap()["rules"].as_array().unwrap().clone();
    for rule in &rules {
        let verbs: Vec<_> = rule["verbs"].as_array().unwrap().iter().map(|verb| verb.as_str().unwrap()).collect();
        let creates = rule["resources"][0] == "events";
        assert!(
            verbs
                .iter()
                .all(|verb| matches!(*verb, "get" | "list" | "watch" | "patch") || (*verb == "create" && creates))
        );
        assert!(!rule.to_string().contains('*'), "{rule}");
    }
    let resources: Vec<_> = rules.iter().flat_map(|rule| rule["resources"].as_array().unwrap().clone()).collect();
    for kind in konverge_push::object::Kind::ALL {
        assert!(resources.iter().any(|resource| resource == kind.plural()), "{kind:?}");
    }
}
