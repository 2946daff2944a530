//! Content that nothing requests any more is deleted, and nothing else is.

use konverge_push::object::Kind;
use serde_json::json;

use crate::world::World;

#[tokio::test]
async fn w6_deleting_a_workload_clears_every_path_of_it() {
    let world = World::new().await;
    let path = world.path("app");
    let _operator = world.operator(&[]).await;
    world.secret("db", &[("user", "u")], json!({})).await;
    world.secret("api", &[("key", "k")], json!({})).await;
    world.workload(Kind::Deployment, "app", &["db", "api"], json!({ "vault-sync.io/path": path })).await;
    world.says(Kind::Deployment, "app", "Synced").await;
    world.delete(Kind::Deployment, "app").await;
    world.gone(Kind::Deployment, "app").await;
    for name in ["db", "api"] {
        let path = format!("{path}/{name}");
        assert_eq!(world.read(&path).await, None);
        assert_eq!(world.versions(&path).await, 1, "deleted softly, so that it can be had back");
        assert!(world.marks(&path).await.is_empty(), "others can have it");
    }
}

#[tokio::test]
async fn w11_moved_paths_dropped_references_and_removed_annotations_leave_nothing_behind() {
    let world = World::new().await;
    let (old, new) = (world.path("old"), world.path("new"));
    let _operator = world.operator(&[]).await;
    world.secret("db", &[("user", "u")], json!({})).await;
    world.secret("api", &[("key", "k")], json!({})).await;
    world.workload(Kind::Deployment, "app", &["db", "api"], json!({ "vault-sync.io/path": old })).await;
    world.says(Kind::Deployment, "app", "Synced").await;

    world.workload(Kind::Deployment, "app", &["db"], json!({ "vault-sync.io/path": old })).await;
    world.is_deleted(&format!("{old}/api")).await;
    world.holds(&format!("{old}/db"), &[("user", "u")]).await;

    world.annotate(Kind::Deployment, "app", json!({ "vault-sync.io/path": new })).await;
    world.is_deleted(&format!("{old}/db")).await;
    world.holds(&format!("{new}/db"), &[("user", "u")]).await;

    let secrets = json!([{ "name": "db", "keys": ["user"] }]).to_string();
    world.annotate(Kind::Deployment, "app", json!({ "vault-sync.io/secrets": secrets })).await;
    world.is_deleted(&format!("{new}/db")).await;
    world.holds(&new, &[("user", "u")]).await;

    world.annotate(Kind::Deployment, "app", json!({ "vault-sync.io/path": null })).await;
    world.is_deleted(&new).await;
    crate::world::until("the finalizer and the record are gone", async || {
        let object = world.api(Kind::Deployment).get_metadata("app").await.unwrap().metadata;
        let annotations = object.annotations.unwrap_or_default();
        match (object.finalizers, annotations.get("vault-sync.io/status")) {
            (None, None) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
}

#[tokio::test]
async fn what_was_there_stays_until_what_is_wanted_instead_is_there() {
    let world = World::new().await;
    let (old, new) = (world.path("old"), world.path("new"));
    let rule = format!("*=secret/data/{}/*", world.namespace);
    let _operator = world.operator(&["--allow-path", &rule]).await;
    world.secret("db", &[("user", "u")], json!({ "vault-sync.io/path": old })).await;
    world.says(Kind::Secret, "db", "Synced").await;
    let missing = json!([{ "name": "db", "keys": ["gone"] }]).to_string();
    for (annotations, state) in [
        (json!({ "vault-sync.io/path": "secret/data/elsewhere/db" }), "PathNotAllowed"),
        (json!({ "vault-sync.io/path": new, "vault-sync.io/secrets": missing }), "KeyNotFound"),
    ] {
        world.annotate(Kind::Secret, "db", annotations).await;
        world.says(Kind::Secret, "db", state).await;
        world.holds(&old, &[("user", "u")]).await;
    }
    world.annotate(Kind::Secret, "db", json!({ "vault-sync.io/secrets": null })).await;
    world.holds(&new, &[("user", "u")]).await;
    world.is_deleted(&old).await;
}

#[tokio::test]
async fn w11_another_cluster_name_moves_everything() {
    let world = World::new().await;
    let path = format!("kv/data/{}/db", world.namespace);
    world.secret("db", &[("user", "u")], json!({ "vault-sync.io/path": path })).await;
    let operator = world.operator(&["--cluster-name", "c1"]).await;
    let before = format!("clusters/c1/{path}");
    world.holds(&before, &[("user", "u")]).await;
    world.says(Kind::Secret, "db", "Synced").await;
    operator.stop().await;
    let _operator = world.operator(&["--cluster-name", "c2"]).await;
    world.holds(&format!("clusters/c2/{path}"), &[("user", "u")]).await;
    world.is_deleted(&before).await;
}

#[tokio::test]
async fn w12_the_four_policies_of_deletion() {
    let world = World::new().await;
    let _operator = world.operator(&[]).await;
    for (policy, readable, versions) in
        [("soft", false, 2), ("destroy", false, 2), ("metadata", false, 0), ("keep", true, 2)]
    {
        let path = world.path(policy);
        let annotations = json!({ "vault-sync.io/path": path, "vault-sync.io/deletion-policy": policy });
        world.secret(policy, &[("k", "1")], annotations).await;
        world.holds(&path, &[("k", "1")]).await;
        world.rotate(policy, &[("k", "2")]).await;
        world.holds(&path, &[("k", "2")]).await;
        world.says(Kind::Secret, policy, "Synced").await;
        world.delete(Kind::Secret, policy).await;
        world.gone(Kind::Secret, policy).await;
        assert_eq!(world.read(&path).await.is_some(), readable, "{policy}");
        assert_eq!(world.versions(&path).await, versions, "{policy}");
        assert!(world.marks(&path).await.is_empty(), "{policy}");
        let location = world.locate(&path).await;
        let metadata = world.vault.metadata(&location).await.unwrap();
        let destroyed = metadata.is_some_and(|metadata| metadata.versions.values().all(|version| version.destroyed));
        assert_eq!(destroyed, policy == "destroy", "{policy}");
    }
}

#[tokio::test]
async fn p19_preserve_on_delete_is_exactly_true() {
    let world = World::new().await;
    let _operator = world.operator(&[]).await;
    for (name, value, kept) in [("kept", "true", true), ("cleared", "True", false)] {
        let path = world.path(name);
        let annotations = json!({ "vault-sync.io/path": path, "vault-sync.io/preserve-on-delete": value });
        world.secret(name, &[("k", "v")], annotations).await;
        world.says(Kind::Secret, name, "Synced").await;
        world.delete(Kind::Secret, name).await;
        world.gone(Kind::Secret, name).await;
        assert_eq!(world.read(&path).await.is_some(), kept, "{name}");
    }
}

#[tokio::test]
async fn p19_what_is_preserved_from_now_on_is_preserved_whatever_else_is_said() {
    let world = World::new().await;
    let _operator = world.operator(&["--default-deletion-policy", "metadata"]).await;
    for name in ["unasked", "broken"] {
        world.secret(name, &[("k", "v")], json!({ "vault-sync.io/path": world.path(name) })).await;
        world.says(Kind::Secret, name, "Synced").await;
    }
    // In one edit with the path that goes.
    let unasked = json!({ "vault-sync.io/path": null, "vault-sync.io/preserve-on-delete": "true" });
    world.annotate(Kind::Secret, "unasked", unasked).await;
    crate::world::until("it is let go", async || {
        let finalizers = world.api(Kind::Secret).get_metadata("unasked").await.unwrap().metadata.finalizers;
        finalizers.map_or(Ok(()), |finalizers| Err(format!("{finalizers:?}")))
    })
    .await;
    // On an object whose other annotations cannot be understood.
    world.annotate(Kind::Secret, "broken", json!({ "vault-sync.io/secrets": "[{" })).await;
    world.says(Kind::Secret, "broken", "InvalidSecretsAnnotation").await;
    world.annotate(Kind::Secret, "broken", json!({ "vault-sync.io/preserve-on-delete": "true" })).await;
    world.delete(Kind::Secret, "broken").await;
    world.gone(Kind::Secret, "broken").await;
    for name in ["unasked", "broken"] {
        world.holds(&world.path(name), &[("k", "v")]).await;
    }
}
