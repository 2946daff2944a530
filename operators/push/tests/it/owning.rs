//! The owner of a path, and the objects that may become it.

use k8s_openapi::api::events::v1::Event;
use konverge_push::object::Kind;
use konverge_vault::Deletion;
use kube::{Api, api::ListParams};
use serde_json::json;

use crate::world::{World, until};

#[tokio::test]
async fn w5_paths_beyond_the_platforms_boundaries_are_refused() {
    let world = World::new().await;
    let _operator = world.operator(&["--allow-path", "*=secret/data/{namespace}/*"]).await;
    for (name, path, state) in [
        ("climbing", format!("{}/../../sys/raw", world.path("a")), "InvalidPath"),
        ("system", "sys/policies/acl/a".to_owned(), "InvalidPath"),
        ("token", "auth/token/create".to_owned(), "InvalidPath"),
        ("empty", format!("secret/data//{}", world.namespace), "InvalidPath"),
        ("foreign", "secret/data/another-team/db".to_owned(), "PathNotAllowed"),
        ("sideways", "secret/another-team/db".to_owned(), "PathNotAllowed"),
    ] {
        world.secret(name, &[("k", "v")], json!({ "vault-sync.io/path": path })).await;
        let told = world.says(Kind::Secret, name, state).await;
        assert!(told.contains("Vault stays as it is"), "{told}");
        let object = world.api(Kind::Secret).get_metadata(name).await.unwrap();
        assert!(object.metadata.finalizers.unwrap_or_default().is_empty(), "nothing is to be cleared for {name}");
    }
    assert_eq!(world.read("secret/data/another-team/db").await, None);
    world.secret("own", &[("k", "v")], json!({ "vault-sync.io/path": world.path("own") })).await;
    world.holds(&world.path("own"), &[("k", "v")]).await;
}

#[tokio::test]
async fn w5_what_belongs_to_vault_in_its_namespaces_is_refused_too() {
    let world = World::new().await;
    let _operator = world.operator(&[]).await;
    for (kv, path) in [
        ("ns1:1", "ns1/sys/policies/acl/x"),
        ("ns1:1", "ns1/ns2/SYS/policies/acl/x"),
        ("ns1/sys:1", "ns1/sys/policies/acl/x"),
        ("ns1/auth:2", "ns1/auth/data/users/x"),
        ("", "ns1/identity/entity/name/x"),
    ] {
        let name = "system";
        world.secret(name, &[("policy", "x")], json!({ "vault-sync.io/path": path, "vault-sync.io/kv": kv })).await;
        let told = world.says(Kind::Secret, name, "InvalidPath").await;
        assert!(told.contains(path) && told.contains("Vault stays as it is"), "{told}");
        let object = world.api(Kind::Secret).get_metadata(name).await.unwrap();
        assert!(object.metadata.finalizers.unwrap_or_default().is_empty(), "nothing is to be cleared");
        world.delete(Kind::Secret, name).await;
        world.gone(Kind::Secret, name).await;
    }
}

#[tokio::test]
async fn w7_of_two_owners_one_has_the_path_and_the_other_says_so() {
    let world = World::new().await;
    let path = world.path("shared");
    let operator = world.operator(&[]).await;
    world.secret("first", &[("from", "first")], json!({ "vault-sync.io/path": path })).await;
    world.says(Kind::Secret, "first", "Synced").await;
    world.secret("second", &[("from", "second")], json!({ "vault-sync.io/path": path })).await;
    let told = world.says(Kind::Secret, "second", "OwnedByAnother").await;
    assert!(told.contains(&format!("Secret {}/first", world.namespace)), "{told}");
    assert!(operator.metric("konverge_push_conflicts_total", "") > 0.5);
    operator.settled().await;
    world.holds(&path, &[("from", "first")]).await;
    assert_eq!(world.versions(&path).await, 1);
    world.delete(Kind::Secret, "second").await;
    world.gone(Kind::Secret, "second").await;
    world.holds(&path, &[("from", "first")]).await;
    let marks = world.marks(&path).await;
    assert_eq!(marks["vault-sync.io/owner"], format!("{}/Secret/first", world.namespace));
}

#[tokio::test]
async fn w7_a_path_that_becomes_free_goes_to_who_waited() {
    let world = World::new().await;
    let path = world.path("shared");
    let _operator = world.operator(&[]).await;
    world.secret("first", &[("from", "first")], json!({ "vault-sync.io/path": path })).await;
    world.says(Kind::Secret, "first", "Synced").await;
    world.secret("second", &[("from", "second")], json!({ "vault-sync.io/path": path })).await;
    world.says(Kind::Secret, "second", "OwnedByAnother").await;
    world.delete(Kind::Secret, "first").await;
    world.gone(Kind::Secret, "first").await;
    world.holds(&path, &[("from", "second")]).await;
    world.says(Kind::Secret, "second", "Synced").await;
}

#[tokio::test]
async fn w22_two_installations_do_not_fight() {
    let world = World::new().await;
    let path = world.path("shared");
    world.secret("db", &[("from", "one")], json!({ "vault-sync.io/path": path })).await;
    let one = world.operator(&["--instance", "one"]).await;
    world.says(Kind::Secret, "db", "Synced").await;
    one.stop().await;
    world.rotate("db", &[("from", "two")]).await;
    let _two = world.operator(&["--instance", "two"]).await;
    let told = world.says(Kind::Secret, "db", "OwnedByAnother").await;
    assert!(told.contains("installation one"), "{told}");
    assert_eq!(world.versions(&path).await, 1);
}

#[tokio::test]
async fn w7_what_was_there_before_is_taken_over_or_left_as_the_object_says() {
    let world = World::new().await;
    let operator = world.operator(&[]).await;
    let (kept, taken) = (world.path("kept"), world.path("taken"));
    for path in [&kept, &taken] {
        world.write(path, &[("by", "hand")]).await;
    }
    let refuse = json!({ "vault-sync.io/path": kept, "vault-sync.io/existing": "refuse" });
    world.secret("kept", &[("k", "v")], refuse).await;
    let told = world.says(Kind::Secret, "kept", "ExistsAlready").await;
    assert!(told.contains("vault-sync.io/existing: adopt"), "{told}");
    world.holds(&kept, &[("by", "hand")]).await;
    world.secret("taken", &[("k", "v")], json!({ "vault-sync.io/path": taken })).await;
    world.holds(&taken, &[("k", "v")]).await;
    assert!(world.event("taken", "Adopted").await.contains(&taken));
    // A list of warnings shows it. Where there are no versions, it promises none.
    let old = format!("old/{}/taken", world.namespace);
    world.write(&old, &[("by", "hand")]).await;
    world.secret("flat", &[("k", "v")], json!({ "vault-sync.io/path": old })).await;
    assert!(world.event("flat", "Adopted").await.contains("is gone"));
    let events = Api::<Event>::namespaced(world.client.clone(), &world.namespace);
    let warnings = events.list(&ListParams::default().fields("type=Warning,reason=Adopted")).await.unwrap();
    assert_eq!(warnings.items.len(), 2, "{warnings:?}");
    assert!((operator.metric("konverge_push_adoptions_total", "") - 2.0).abs() < 0.5);
    world.delete(Kind::Secret, "kept").await;
    world.gone(Kind::Secret, "kept").await;
    world.holds(&kept, &[("by", "hand")]).await;
}

#[tokio::test]
async fn an_object_that_takes_nothing_over_has_its_own_path_back() {
    let world = World::new().await;
    let _operator = world.operator(&["--existing", "refuse"]).await;
    let path = world.path("db");
    for value in ["before", "after"] {
        world.secret("db", &[("k", value)], json!({ "vault-sync.io/path": path })).await;
        world.says(Kind::Secret, "db", "Synced").await;
        world.holds(&path, &[("k", value)]).await;
        world.delete(Kind::Secret, "db").await;
        world.gone(Kind::Secret, "db").await;
        world.is_deleted(&path).await;
    }
}

/// Somebody has all of a path removed in Vault, its mark included, and writes it by hand.
async fn by_hand(world: &World, path: &str) {
    world.vault.delete(&world.locate(path).await, konverge_vault::Expected::Any, Deletion::Metadata).await.unwrap();
    world.write(path, &[("by", "hand")]).await;
}

#[tokio::test]
async fn what_somebody_wrote_in_place_of_ours_is_not_ours() {
    let world = World::new().await;
    let _operator = world.operator(&["--existing", "refuse"]).await;
    for what in ["rotated", "deleted", "moved"] {
        let path = world.path(what);
        world.secret(what, &[("k", "1")], json!({ "vault-sync.io/path": path })).await;
        world.holds(&path, &[("k", "1")]).await;
        world.rotate(what, &[("k", "2")]).await;
        world.holds(&path, &[("k", "2")]).await;
        until("it is recorded", async || {
            let record = world.record(Kind::Secret, what).await.ok_or("none")?;
            if record["paths"][&path]["version"] == 2 { Ok(()) } else { Err(record.to_string()) }
        })
        .await;
        by_hand(&world, &path).await;
        match what {
            "rotated" => {
                world.rotate(what, &[("k", "3")]).await;
                world.says(Kind::Secret, what, "ExistsAlready").await;
            }
            "moved" => {
                let elsewhere = world.path("elsewhere");
                world.annotate(Kind::Secret, what, json!({ "vault-sync.io/path": elsewhere })).await;
                world.holds(&elsewhere, &[("k", "2")]).await;
                assert!(world.event(what, "NotCleared").await.contains(&path));
            }
            _ => {}
        }
        world.delete(Kind::Secret, what).await;
        world.gone(Kind::Secret, what).await;
        assert!(world.event(what, "NotCleared").await.contains(&path), "whoever looks for it is told where it is");
        world.holds(&path, &[("by", "hand")]).await;
        assert_eq!(world.versions(&path).await, 1);
    }
}
