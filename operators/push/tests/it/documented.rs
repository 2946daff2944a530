//! The examples of the original's documentation, word for word, with its flags in the spelling of its manifests.

use konverge_push::object::Kind;
use serde_json::json;

use crate::world::World;

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
    let operator = world.operator(&FLAGS).await;
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
    operator.settled().await;
    assert_eq!(world.versions(&own).await, 1, "the original never settles here");
    world.rotate("api", &[("key", "l")]).await;
    world.holds(&own, &[("own-a", "1"), ("key", "l")]).await;
    world.holds(&world.path("app"), &[("db_username", "u"), ("db_password", "p"), ("key", "l")]).await;
}

#[tokio::test]
async fn a_secret_with_every_annotation_of_the_original() {
    let world = World::new().await;
    let operator = world.operator(&FLAGS).await;
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
    operator.settled().await;
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

#[tokio::test]
async fn a_list_may_name_a_secret_more_than_once_and_of_equal_keys_the_later_counts() {
    let world = World::new().await;
    let _operator = world.operator(&FLAGS).await;
    world.secret("db", &[("user", "u"), ("password", "p")], json!({})).await;
    world.secret("first", &[("shared", "first")], json!({})).await;
    world.secret("second", &[("shared", "second")], json!({})).await;
    // As Go reads it: names of fields in any case, what is unknown passed over, and without keys nothing is taken.
    let list = r#"[
        { "name": "db", "keys": ["user", "password"], "prefix": "DB_" },
        { "name": "db", "keys": ["user"], "prefix": "REPLICA_" },
        { "Name": "first", "KEYS": ["shared"], "comment": "the other one counts" },
        { "name": "second", "keys": ["shared"], "prefix": "" },
        { "name": "first" }
    ]"#;
    let path = world.path("app");
    let annotations = json!({ "vault-sync.io/path": path, "vault-sync.io/secrets": list });
    world.workload(Kind::Deployment, "app", &[], annotations).await;
    world.holds(&path, &[("DB_user", "u"), ("DB_password", "p"), ("REPLICA_user", "u"), ("shared", "second")]).await;
    world.says(Kind::Deployment, "app", "Synced").await;
}

#[tokio::test]
async fn what_a_deployment_has_written_is_cleared_with_it_unless_it_is_to_be_preserved() {
    let world = World::new().await;
    let _operator = world.operator(&FLAGS).await;
    world.secret("db", &[("user", "u")], json!({})).await;
    let list = r#"[{ "name": "db", "keys": ["user"] }]"#;
    for (name, preserve, list, at) in [
        ("kept", Some("true"), None, "kept/db"),
        ("kept-list", Some("true"), Some(list), "kept-list"),
        ("cleared", None, None, "cleared/db"),
        ("cleared-list", Some("false"), Some(list), "cleared-list"),
    ] {
        let annotations = json!({
            "vault-sync.io/path": world.path(name),
            "vault-sync.io/preserve-on-delete": preserve,
            "vault-sync.io/secrets": list,
        });
        let annotations = annotations.as_object().unwrap().iter().filter(|(_, value)| !value.is_null());
        let annotations = annotations.map(|(name, value)| (name.clone(), value.clone())).collect();
        world.workload(Kind::Deployment, name, &["db"], annotations).await;
        world.holds(&world.path(at), &[("user", "u")]).await;
        world.says(Kind::Deployment, name, "Synced").await;
        world.delete(Kind::Deployment, name).await;
        world.gone(Kind::Deployment, name).await;
        assert_eq!(world.read(&world.path(at)).await.is_some(), preserve == Some("true"), "{name}");
    }
}

#[tokio::test]
async fn an_interval_and_a_check_may_have_each_form_that_is_documented() {
    let world = World::new().await;
    let _operator = world.operator(&FLAGS).await;
    for (number, (annotation, value)) in [
        ("reconcile", "30s"),
        ("reconcile", "5m"),
        ("reconcile", "1h30m"),
        ("reconcile", "1.5h"),
        ("reconcile", "off"),
        ("reconcile", ""),
        ("rotation-check", "enabled"),
        ("rotation-check", "disabled"),
    ]
    .into_iter()
    .enumerate()
    {
        let name = format!("db-{number}");
        let path = world.path(&name);
        let annotation = format!("vault-sync.io/{annotation}");
        world.secret(&name, &[("k", "v")], json!({ "vault-sync.io/path": path, &annotation: value })).await;
        world.holds(&path, &[("k", "v")]).await;
        world.says(Kind::Secret, &name, "Synced").await;
        let notes = world.notes(&name).await;
        assert!(
            !notes.iter().any(|note| note.contains(&annotation)),
            "{annotation}: {value:?} is as it should be: {notes:?}"
        );
    }
    // Less than 30 s is raised to that, and told.
    let path = world.path("often");
    world.secret("often", &[("k", "v")], json!({ "vault-sync.io/path": path, "vault-sync.io/reconcile": "10s" })).await;
    world.holds(&path, &[("k", "v")]).await;
    let told = world.event("often", "AnnotationAdjusted").await;
    assert!(told.contains("counts as 30s"), "{told}");
}

#[tokio::test]
async fn without_a_path_or_with_an_empty_one_nothing_is_done() {
    let world = World::new().await;
    let operator = world.operator(&FLAGS).await;
    let list = r#"[{ "name": "db", "keys": ["k"] }]"#;
    world.secret("off", &[("k", "v")], json!({ "vault-sync.io/path": "", "vault-sync.io/reconcile": "30s" })).await;
    world.secret("none", &[("k", "v")], json!({ "vault-sync.io/secrets": list })).await;
    world.workload(Kind::Deployment, "off", &["off"], json!({ "vault-sync.io/path": "" })).await;
    // An object that was applied after them is done.
    let path = world.path("on");
    world.secret("on", &[("k", "v")], json!({ "vault-sync.io/path": path })).await;
    world.holds(&path, &[("k", "v")]).await;
    world.says(Kind::Secret, "on", "Synced").await;
    operator.settled().await;
    for (kind, name) in [(Kind::Secret, "off"), (Kind::Secret, "none"), (Kind::Deployment, "off")] {
        let object = world.api(kind).get_metadata(name).await.unwrap().metadata;
        assert_eq!(object.finalizers, None, "{name}");
        assert_eq!(world.record(kind, name).await, None, "{name}");
    }
    // Switched off, it lets go of what it had.
    world.annotate(Kind::Secret, "on", json!({ "vault-sync.io/path": "" })).await;
    world.is_deleted(&path).await;
}
