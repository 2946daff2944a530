//! The manifests that users apply.

use std::ffi::OsString;

use konverge_testkit::{ControlPlane, Options};
use serde_json::{Value, json};

use crate::stage::ROLE;

const HOME: &str = "konverge-system";
const DEPLOYMENT: &str = include_str!("../../../../deploy/konverge.yaml");

/// Of each job: its role in the cluster, what else it may do there, and its role in its own namespace.
const ROLES: [(&str, &str, &str, &str); 3] = [
    (
        include_str!("../../../../deploy/rbac/zopp-operator.yaml"),
        "zopp-operator",
        "zopp-operator-auth",
        "zopp-operator-leader-election",
    ),
    (
        include_str!("../../../../deploy/rbac/vault-sync-operator.yaml"),
        "vault-sync-operator-manager-role",
        "vault-sync-operator-auth-role",
        "vault-sync-operator-own-namespace",
    ),
    (
        include_str!("../../../../deploy/rbac/vault-rollout-operator.yaml"),
        "vault-rollout-operator",
        "vault-rollout-operator-auth",
        "vault-rollout-operator",
    ),
];

fn documents(text: &str) -> Vec<Value> {
    text.split("\n---\n").map(|text| serde_saphyr::from_str(text).unwrap()).collect()
}

fn rules(text: &str, kind: &str, name: &str) -> Vec<Value> {
    let found = documents(text).into_iter().find(|role| role["kind"] == kind && role["metadata"]["name"] == name);
    found.unwrap()["rules"].as_array().unwrap().clone()
}

fn pod() -> Value {
    documents(DEPLOYMENT)[0]["spec"]["template"]["spec"].clone()
}

#[test]
fn it_may_do_what_the_three_may_do_by_themselves_and_nothing_more() {
    let (mut everywhere, mut of_tokens, mut at_home) = (Vec::new(), Vec::new(), Vec::new());
    for (text, role, tokens, home) in ROLES {
        everywhere.extend(rules(text, "ClusterRole", role));
        of_tokens.push(rules(text, "ClusterRole", tokens));
        at_home.extend(rules(text, "Role", home));
    }
    assert_eq!(rules(ROLE, "ClusterRole", "konverge"), everywhere);
    for of_job in of_tokens {
        assert_eq!(rules(ROLE, "ClusterRole", "konverge-auth"), of_job);
    }
    assert_eq!(rules(ROLE, "Role", "konverge"), at_home);
}

#[test]
fn flags_port_and_account_are_those_of_the_program() {
    let pod = pod();
    let container = &pod["containers"][0];
    let arguments: Vec<String> = serde_json::from_value(container["args"].clone()).unwrap();
    for job in [konverge_pull::job(), konverge_push::job(), konverge_roll::job()] {
        let begins = format!("--job={} ", job.name);
        let line = arguments.iter().find(|argument| argument.starts_with(&begins)).unwrap();
        let words = shlex::split(line.strip_prefix("--job=").unwrap()).unwrap();
        let settings = job.ready(words.into_iter().map(OsString::from).collect()).unwrap().settings;
        let elects = ["leader-elect=true", "leader_elect: true"];
        assert!(elects.iter().any(|elects| settings.contains(elects)), "there are two of them: {settings}");
    }
    assert_eq!(arguments[0], "run");
    assert!(arguments.contains(&"--bind-address=:8080".to_owned()));
    assert_eq!(container["ports"][0], json!({ "name": "http", "containerPort": 8080 }));
    for (probe, path) in [("livenessProbe", "/healthz"), ("readinessProbe", "/readyz")] {
        assert_eq!(container[probe]["httpGet"], json!({ "path": path, "port": "http" }));
    }
    assert!(pod["terminationGracePeriodSeconds"].as_u64() > Some(30), "the program ends by itself within 30 s");
    let account = pod["serviceAccountName"].as_str().unwrap();
    assert!(ROLE.contains(&format!("kind: ServiceAccount\nmetadata:\n  name: {account}\n")));
}

#[tokio::test]
async fn the_api_server_takes_the_manifests_as_they_are_written_and_its_pods_where_they_are_restricted() {
    let plane = ControlPlane::start(Options::default()).await.unwrap();
    plane.would_take(&[ROLE, DEPLOYMENT].join("\n---\n"), HOME).await.unwrap();
    plane.would_run_restricted(DEPLOYMENT).await.unwrap();
}
