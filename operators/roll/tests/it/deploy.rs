//! The role that users apply.

use konverge_workload::WorkloadKind::Deployment;
use serde_json::json;

use crate::world::{ALL, ROLE, World};

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
