//! The manifests that users apply.

use konverge_roll::config::{Config, KINDS};
use konverge_runtime::http_server::Listen;
use konverge_workload::WorkloadKind::Deployment;
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};

use crate::world::{ALL, HOME, ROLE, World, control_plane};

const DEPLOYMENT: &str = include_str!("../../../../deploy/vault-rollout-operator.yaml");

fn documents() -> Vec<Value> {
    let documents = [ROLE, DEPLOYMENT].into_iter().flat_map(|text| text.split("\n---\n"));
    documents.map(|text| serde_saphyr::from_str(text).unwrap()).collect()
}

fn pod() -> Value {
    let documents = documents();
    documents.iter().find(|document| document["kind"] == "Deployment").unwrap()["spec"]["template"]["spec"].clone()
}

#[tokio::test]
async fn the_api_server_takes_the_manifests_as_they_are_written() {
    // Pods that do not keep to the strictest of the standards would be warned of here, and refused where it is enforced.
    control_plane().await.would_take(&[ROLE, DEPLOYMENT].join("\n---\n"), HOME).await.unwrap();
}

#[tokio::test]
async fn its_pods_keep_to_the_strictest_standard() {
    let control_plane = control_plane().await;
    let client = control_plane.admin_client().await.unwrap();
    let namespace = control_plane.namespace("restricted").await.unwrap();
    let label = json!({ "metadata": { "labels": { "pod-security.kubernetes.io/enforce": "restricted" } } });
    let namespaces = Api::<k8s_openapi::api::core::v1::Namespace>::all(client.clone());
    namespaces.patch(&namespace, &PatchParams::default(), &Patch::Merge(label)).await.unwrap();
    let account =
        json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": "vault-rollout-operator" } });
    let accounts = Api::<k8s_openapi::api::core::v1::ServiceAccount>::namespaced(client.clone(), &namespace);
    accounts.patch("vault-rollout-operator", &PatchParams::apply("user"), &Patch::Apply(account)).await.unwrap();
    let pods = Api::<k8s_openapi::api::core::v1::Pod>::namespaced(client, &namespace);
    let apply = async |name: &str, spec: Value| {
        let pod = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name }, "spec": spec });
        pods.patch(name, &PatchParams { dry_run: true, ..PatchParams::apply("user") }, &Patch::Apply(pod)).await
    };
    apply("ours", pod()).await.unwrap();
    let mut loose = pod();
    loose["securityContext"]["runAsNonRoot"] = false.into();
    let refused = apply("loose", loose).await.unwrap_err().to_string();
    assert!(refused.contains("runAsNonRoot"), "{refused}");
    assert_eq!(pod()["containers"][0]["securityContext"]["readOnlyRootFilesystem"], true);
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
