//! What the original's documentation shows, as it stands there, with its flags in the spelling of its manifests.

use konverge_push::object::Kind;
use serde_json::json;

use crate::world::{QUIET, World};

/// The arguments of the original's manifests that are not of this world's.
const FLAGS: [&str; 6] =
    ["-leader-elect=false", "-zap-devel=false", "-zap-log-level=info", "-enable-metrics-auth=true", "-vault-role", "r"];

#[tokio::test]
async fn a_deployment_without_a_list_has_each_secret_it_uses_beneath_its_path() {
    let world = World::new().await;
    let path = world.path("my-app");
    let _operator = world.operator(&FLAGS).await;
    for name in ["my-app-secrets", "db-secrets", "files", "init-secrets", "init-key"] {
        world.secret(name, &[("key", name), ("other", "whole")], json!({})).await;
    }
    let labels = json!({ "app": "my-app" });
    let env =
        |secret: &str| json!({ "name": "KEY", "valueFrom": { "secretKeyRef": { "name": secret, "key": "key" } } });
    let from = |secret: &str| json!([{ "secretRef": { "name": secret } }]);
    let pod = json!({
        "containers": [{ "name": "app", "image": "i", "env": [env("db-secrets")], "envFrom": from("my-app-secrets") }],
        "initContainers": [{ "name": "init", "image": "i", "env": [env("init-key")], "envFrom": from("init-secrets") }],
        "volumes": [{ "name": "files", "secret": { "secretName": "files" } }],
    });
    let deployment = json!({
        "metadata": { "annotations": { "vault-sync.io/path": path } },
        "spec": { "selector": { "matchLabels": labels }, "template": { "metadata": { "labels": labels }, "spec": pod } },
    });
    world.apply(Kind::Deployment, "my-app", deployment).await;
    for name in ["my-app-secrets", "db-secrets", "files", "init-secrets", "init-key"] {
        world.holds(&format!("{path}/{name}"), &[("key", name), ("other", "whole")]).await;
    }
    world.says(Kind::Deployment, "my-app", "Synced").await;
    assert_eq!(world.read(&path).await, None);
}

#[tokio::test]
async fn chosen_keys_are_merged_with_their_prefixes_for_a_deployment_and_for_a_secret_that_names_itself() {
    let world = World::new().await;
    let _operator = world.operator(&FLAGS).await;
    world.secret("database", &[("username", "u"), ("password", "p"), ("unused", "x")], json!({})).await;
    world.secret("api", &[("key", "k")], json!({})).await;
    let list = json!([
        { "name": "database", "keys": ["username", "password"], "prefix": "db_" },
        { "name": "api", "keys": ["key"] },
    ]);
    let annotations = json!({ "vault-sync.io/path": world.path("app"), "vault-sync.io/secrets": list.to_string() });
    world.workload(Kind::Deployment, "app", &["database"], annotations).await;
    world.holds(&world.path("app"), &[("db_username", "u"), ("db_password", "p"), ("key", "k")]).await;

    let own = world.path("own");
    let list = json!([{ "name": "own", "keys": ["a"], "prefix": "own-" }, { "name": "api", "keys": ["key"] }]);
    let annotations = json!({ "vault-sync.io/path": own, "vault-sync.io/secrets": list.to_string() });
    world.secret("own", &[("a", "1"), ("b", "2")], annotations).await;
    world.holds(&own, &[("own-a", "1"), ("key", "k")]).await;
    world.says(Kind::Secret, "own", "Synced").await;
    tokio::time::sleep(QUIET).await;
    assert_eq!(world.versions(&own).await, 1, "the original never settles here");
    world.rotate("api", &[("key", "l")]).await;
    world.holds(&own, &[("own-a", "1"), ("key", "l")]).await;
    world.holds(&world.path("app"), &[("db_username", "u"), ("db_password", "p"), ("key", "l")]).await;
}

#[tokio::test]
async fn a_secret_with_every_annotation_of_the_original() {
    let world = World::new().await;
    let _operator = world.operator(&FLAGS).await;
    let path = world.path("database");
    let annotations = json!({
        "vault-sync.io/path": path,
        "vault-sync.io/preserve-on-delete": "true",
        "vault-sync.io/reconcile": "5m",
        "vault-sync.io/rotation-check": "disabled",
        "vault-sync.io/secret-versions": "{\"database\":\"1\"}",
    });
    world.secret("database", &[("username", "u")], annotations).await;
    world.holds(&path, &[("username", "u")]).await;
    world.says(Kind::Secret, "database", "Synced").await;
    world.rotate("database", &[("username", "v")]).await;
    world.holds(&path, &[("username", "v")]).await;
    tokio::time::sleep(QUIET).await;
    assert_eq!(world.versions(&path).await, 2, "looked at each time, written when it differs");
    let object = world.api(Kind::Secret).get_metadata("database").await.unwrap().metadata;
    assert_eq!(object.annotations.unwrap()["vault-sync.io/secret-versions"], "{\"database\":\"1\"}");
    assert_eq!(object.finalizers.unwrap(), ["vault-sync.io/finalizer"]);
    world.delete(Kind::Secret, "database").await;
    world.gone(Kind::Secret, "database").await;
    world.holds(&path, &[("username", "v")]).await;
}

#[tokio::test]
async fn the_cluster_name_is_a_prefix_and_version_one_is_written_flat() {
    let world = World::new().await;
    let _operator = world.operator(&["-cluster-name", "c1"]).await;
    let path = format!("secret/data/{}/app", world.namespace);
    world.secret("db", &[("k", "v")], json!({})).await;
    world.workload(Kind::Deployment, "app", &["db"], json!({ "vault-sync.io/path": path })).await;
    world.holds(&format!("clusters/c1/{path}/db"), &[("k", "v")]).await;
    let plain = World::new().await;
    let _plain_operator = plain.operator(&[]).await;
    let path = format!("old/{}/db", plain.namespace);
    plain.secret("db", &[("k", "v")], json!({ "vault-sync.io/path": path })).await;
    plain.holds(&path, &[("k", "v")]).await;
    plain.delete(Kind::Secret, "db").await;
    plain.gone(Kind::Secret, "db").await;
    assert_eq!(plain.read(&path).await, None);
}
