//! The manifests that users apply.

use konverge_jobs::Settings;
use konverge_roll::config::{Config, KINDS};
use konverge_runtime::http_server::Listen;
use konverge_workload::WorkloadKind::Deployment;
use serde_json::{Value, json};

use crate::world::{ALL, HOME, ROLE, World, control_plane};

const TOKEN_PAGE: &str = include_str!("../../../../docs/migrate/vaultsyncstatus.md");
const DEPLOYMENT: &str = include_str!("../../../../deploy/vault-rollout-operator.yaml");

fn documents() -> Vec<Value> {
    let documents = [ROLE, DEPLOYMENT].into_iter().flat_map(|text| text.split("\n---\n"));
    documents.map(|text| serde_saphyr::from_str(text).unwrap()).collect()
}

fn pod() -> Value {
    let documents = documents();
    documents.iter().find(|document| document["kind"] == "Deployment").unwrap()["spec"]["template"]["spec"].clone()
}

/// The patch with which users of the `VaultSyncStatus` handler keep their token.
fn patch() -> Value {
    let (_, patch) = TOKEN_PAGE.split_once("<!-- file: token.yaml -->\n```yaml\n").unwrap();
    serde_saphyr::from_str(patch.split_once("```").unwrap().0).unwrap()
}

/// The Deployment with that patch.
fn deployment_with_token() -> Value {
    let mut deployment: Value = serde_saphyr::from_str(DEPLOYMENT.split("\n---\n").next().unwrap()).unwrap();
    let (pod, patch) = (&mut deployment["spec"]["template"]["spec"], &patch()["spec"]["template"]["spec"]);
    pod["volumes"] = patch["volumes"].clone();
    assert_eq!(pod["containers"][0]["name"], patch["containers"][0]["name"]);
    for field in ["env", "volumeMounts"] {
        assert!(pod["containers"][0][field].is_null(), "{field} is replaced");
        pod["containers"][0][field] = patch["containers"][0][field].clone();
    }
    deployment
}

#[tokio::test]
async fn the_api_server_takes_the_manifests_as_they_are_written() {
    for deployment in [DEPLOYMENT, &deployment_with_token().to_string()] {
        control_plane().await.would_take(&[ROLE, deployment].join("\n---\n"), HOME).await.unwrap();
    }
}

#[tokio::test]
async fn its_pods_keep_to_the_strictest_standard() {
    for deployment in [DEPLOYMENT, &deployment_with_token().to_string()] {
        control_plane().await.would_run_restricted(deployment).await.unwrap();
    }
    assert_eq!(pod()["containers"][0]["securityContext"]["readOnlyRootFilesystem"], true);
}

#[test]
fn the_patch_of_the_page_is_what_the_original_has() {
    let deployment = deployment_with_token();
    let pod = &deployment["spec"]["template"]["spec"];
    let container = &pod["containers"][0];
    let (name, value) = (container["env"][0]["name"].as_str().unwrap(), container["env"][0]["value"].as_str().unwrap());
    let config = Config::of_container(&[], &[(name.to_owned(), value.to_owned())].into()).unwrap();
    let vault = config.vault.flags().unwrap();
    assert_eq!((vault.address.as_str(), config.vault.namespace_of_url()), ("https://vault.example.com:8200", None));
    assert_eq!(container["volumeMounts"][0]["mountPath"], "/etc/config");
    assert_eq!(container["volumeMounts"][0]["name"], pod["volumes"][0]["name"]);
    assert_eq!(pod["volumes"][0]["configMap"]["name"], "vault-token-config");
}

#[test]
fn flags_ports_and_account_are_those_of_the_program() {
    let pod = pod();
    let container = &pod["containers"][0];
    let arguments: Vec<String> = serde_json::from_value(container["args"].clone()).unwrap();
    let config = Config::of_container(&arguments, &[].into()).unwrap();
    assert!(config.leader_elect, "there are two of them");
    let Listen::At(address) = config.bind_address else { panic!("it serves nothing") };
    assert_eq!(container["ports"][0]["containerPort"], u64::from(address.port()));
    for (probe, path) in [("livenessProbe", "/healthz"), ("readinessProbe", "/readyz")] {
        assert_eq!(
            (&container[probe]["httpGet"]["path"], &container[probe]["httpGet"]["port"]),
            (&json!(path), &json!("http"))
        );
    }
    assert!(
        container["resources"]["limits"]["memory"].is_string() && container["resources"]["requests"]["cpu"].is_string()
    );
    assert!(pod["terminationGracePeriodSeconds"].as_u64() > Some(30), "the program ends by itself within 30 s");
    let account = pod["serviceAccountName"].as_str().unwrap();
    assert!(ROLE.contains(&format!("kind: ServiceAccount\nmetadata:\n  name: {account}\n")));
    let resources: Vec<String> = documents()
        .iter()
        .filter(|document| document["kind"] == "ClusterRole")
        .flat_map(|role| role["rules"].as_array().unwrap().clone())
        // The rule for metrics is about a path and names no resources.
        .filter(|rule| rule["nonResourceURLs"].is_null())
        .flat_map(|rule| serde_json::from_value::<Vec<String>>(rule["resources"].clone()).unwrap())
        .collect();
    for kind in KINDS {
        assert!(resources.iter().any(|resource| resource == kind.plural()), "{kind:?}");
    }
}

#[test]
fn nothing_of_a_secret_or_config_map_is_written() {
    let rules = ROLE.split("\n---\n").find(|text| text.contains("kind: ClusterRole\n")).unwrap();
    let rule = rules.split("  - apiGroups:").find(|rule| rule.contains("secrets")).unwrap();
    assert!(rule.contains("verbs: [get, list, watch]"), "{rule}");
    assert!(!ROLE.contains("delete") && !ROLE.contains("\"*\""), "{ROLE}");
}

#[tokio::test]
async fn no_digest_is_one_of_a_value_without_the_key() {
    let world = World::new().await;
    world.secret("db", "password").await;
    world.workload(Deployment, "web", &["db"], json!({ ALL: "true" })).await;
    world.workload(Deployment, "twin", &["db"], json!({ ALL: "true" })).await;
    let _operator = world.operator(&[]).await;
    let (web, twin) = (world.noted(Deployment, "web").await, world.noted(Deployment, "twin").await);
    let digest = |record: &serde_json::Value| record["content"]["Secret/db"].as_str().unwrap().to_owned();
    assert_ne!(digest(&web), digest(&twin), "the same content looks the same");
    assert!(!web.to_string().contains("password"));
}
