//! Paths that others keep keys in.

use konverge_push::object::Kind::{Secret, VaultPush};
use konverge_testkit_stores::{VaultOptions, VaultServer};
use serde_json::json;

use crate::world::World;

pub(crate) fn merging(path: &str, key: &str) -> serde_json::Value {
    let keys = json!([{ "from": "value", "to": key }]);
    json!({ "secrets": { "names": ["db"] }, "path": path, "keys": keys, "updatePolicy": "Merge" })
}

#[tokio::test]
async fn p5_keys_of_others_survive_and_a_key_has_one_owner() {
    let world = World::new().await;
    let operator = world.operator(&[]).await;
    let path = world.path("shared");
    world.write(&path, &[("by", "hand"), ("kept", "1")]).await;
    world.secret("db", &[("value", "1")], json!({})).await;
    world.vault_push("one", merging(&path, "a")).await;
    world.vault_push("two", merging(&path, "b")).await;
    world.holds(&path, &[("a", "1"), ("b", "1"), ("by", "hand"), ("kept", "1")]).await;
    for name in ["one", "two"] {
        world.says(VaultPush, name, "Synced").await;
    }
    let record = world.record(VaultPush, "one").await.unwrap();
    assert_eq!(record["paths"][&path]["keys"], json!(["a"]));
    // A person changes their own, and both of ours change at the same moment.
    world.write(&path, &[("a", "1"), ("b", "1"), ("by", "another hand")]).await;
    world.rotate("db", &[("value", "2")]).await;
    world.holds(&path, &[("a", "2"), ("b", "2"), ("by", "another hand")]).await;
    let before = world.versions(&path).await;

    world.vault_push("three", merging(&path, "a")).await;
    let told = world.says(VaultPush, "three", "OwnedByAnother").await;
    assert!(told.contains(&format!("key a of {path}")) && told.contains("/one"), "{told}");
    world.secret("whole", &[("k", "v")], json!({ "vault-sync.io/path": path })).await;
    world.says(Secret, "whole", "OwnedByAnother").await;
    let taken = world.path("taken");
    world.secret("holder", &[("k", "v")], json!({ "vault-sync.io/path": taken })).await;
    world.says(Secret, "holder", "Synced").await;
    world.vault_push("four", merging(&taken, "a")).await;
    world.says(VaultPush, "four", "OwnedByAnother").await;
    operator.settled().await;
    assert_eq!((world.versions(&path).await, world.versions(&taken).await), (before, 1), "nobody fights");
    world.holds(&taken, &[("k", "v")]).await;
    // The key becomes free, and goes to who waited for it.
    world.delete(VaultPush, "one").await;
    world.says(VaultPush, "three", "Synced").await;
    world.holds(&path, &[("a", "2"), ("b", "2"), ("by", "another hand")]).await;
}

#[tokio::test]
async fn p5_marks_in_vault_keep_the_keys_of_another_installation() {
    let world = World::new().await;
    let path = world.path("shared");
    world.secret("db", &[("value", "1")], json!({})).await;
    let one = world.operator(&["--instance", "one"]).await;
    world.vault_push("push", merging(&path, "a")).await;
    world.says(VaultPush, "push", "Synced").await;
    one.stop().await;
    let _two = world.operator(&["--instance", "two"]).await;
    world.rotate("db", &[("value", "2")]).await;
    let told = world.says(VaultPush, "push", "OwnedByAnother").await;
    assert!(told.contains("installation one"), "{told}");
    world.holds(&path, &[("a", "1")]).await;
}

#[tokio::test]
async fn p11_one_key_is_deleted_and_the_others_stay() {
    let world = World::new().await;
    let _operator = world.operator(&[]).await;
    let path = world.path("shared");
    world.write(&path, &[("by", "hand")]).await;
    world.secret("db", &[("a", "1"), ("b", "1")], json!({})).await;
    let spec = |keys: serde_json::Value| json!({ "secrets": { "names": ["db"] }, "path": path, "keys": keys, "updatePolicy": "Merge" });
    world.vault_push("push", spec(json!([{ "from": "a" }, { "from": "b" }]))).await;
    world.holds(&path, &[("a", "1"), ("b", "1"), ("by", "hand")]).await;
    world.vault_push("push", spec(json!([{ "from": "b" }]))).await;
    world.holds(&path, &[("b", "1"), ("by", "hand")]).await;
    world.says(VaultPush, "push", "Synced").await;
    let marks = world.marks(&path).await;
    assert!(marks.contains_key("vault-sync.io/key/b") && marks.len() == 1, "{marks:?}");
    world.delete(VaultPush, "push").await;
    world.gone(VaultPush, "push").await;
    world.holds(&path, &[("by", "hand")]).await;
    assert_eq!(world.marks(&path).await.len(), 0);
    // An object that was alone there leaves nothing.
    let alone = world.path("alone");
    world.vault_push("alone", merging(&alone, "x")).await;
    world.says(VaultPush, "alone", "KeyNotFound").await;
    world.rotate("db", &[("value", "1")]).await;
    world.holds(&alone, &[("x", "1")]).await;
    world.delete(VaultPush, "alone").await;
    world.gone(VaultPush, "alone").await;
    world.is_deleted(&alone).await;
}

#[tokio::test]
async fn what_nobody_has_marked_is_taken_over_or_refused_and_version_one_is_not_merged() {
    let world = World::new().await;
    let _operator = world.operator(&[]).await;
    let path = world.path("shared");
    world.write(&path, &[("a", "by hand"), ("x", "y")]).await;
    world.secret("db", &[("value", "1")], json!({})).await;
    let mut refusing = merging(&path, "a");
    refusing["existing"] = "Refuse".into();
    world.vault_push("push", refusing).await;
    let told = world.says(VaultPush, "push", "ExistsAlready").await;
    assert!(told.contains("spec.existing: Adopt"), "{told}");
    world.holds(&path, &[("a", "by hand"), ("x", "y")]).await;
    world.vault_push("push", merging(&path, "a")).await;
    world.holds(&path, &[("a", "1"), ("x", "y")]).await;
    assert!(world.event("push", "Adopted").await.contains('a'));

    let old = format!("old/{}/x", world.namespace);
    let mut of_version_one = merging(&format!("{}/x", world.namespace), "a");
    of_version_one["mount"] = "old".into();
    world.vault_push("old", of_version_one).await;
    let told = world.says(VaultPush, "old", "NeedsVersionTwo").await;
    assert!(told.contains("updatePolicy: Replace"), "{told}");
    assert_eq!(world.read(&old).await, None);
}

#[tokio::test]
async fn another_policy_moves_a_path_from_whole_to_keys_and_back() {
    let world = World::new().await;
    let _operator = world.operator(&[]).await;
    let path = world.path("shared");
    world.secret("db", &[("value", "1"), ("other", "1")], json!({})).await;
    let whole = json!({ "secrets": { "names": ["db"] }, "path": path });
    world.vault_push("push", whole.clone()).await;
    world.holds(&path, &[("other", "1"), ("value", "1")]).await;
    world.vault_push("push", merging(&path, "value")).await;
    world.holds(&path, &[("value", "1")]).await;
    world.says(VaultPush, "push", "Synced").await;
    let names = |marks: &std::collections::BTreeMap<String, String>| marks.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&world.marks(&path).await), ["vault-sync.io/key/value"]);
    world.vault_push("push", whole).await;
    world.holds(&path, &[("other", "1"), ("value", "1")]).await;
    world.says(VaultPush, "push", "Synced").await;
    let marks = names(&world.marks(&path).await);
    assert_eq!(marks, ["vault-sync.io/instance", "vault-sync.io/owner", "vault-sync.io/uid"]);
    world.delete(VaultPush, "push").await;
    world.gone(VaultPush, "push").await;
    world.is_deleted(&path).await;
}

#[tokio::test]
async fn p6_where_check_and_set_is_demanded_all_is_written_as_elsewhere() {
    let server = VaultServer::start(VaultOptions::default()).await.unwrap();
    server.mount_kv("secret", 2).await.unwrap();
    server.request("POST", "secret/config", &json!({ "cas_required": true })).await.unwrap();
    let world = World::with(&server).await;
    let (whole, shared) = (world.path("whole"), world.path("shared"));
    let by_hand = json!({ "options": { "cas": 0 }, "data": { "by": "hand" } });
    server.request("POST", &shared, &json!({ "data": { "by": "hand" } })).await.unwrap_err();
    server.request("POST", &shared, &by_hand).await.unwrap();
    let _operator = world.operator(&[]).await;
    world.secret("db", &[("value", "1")], json!({ "vault-sync.io/path": whole })).await;
    world.vault_push("push", merging(&shared, "a")).await;
    for value in ["1", "2"] {
        world.rotate("db", &[("value", value)]).await;
        world.holds(&whole, &[("value", value)]).await;
        world.holds(&shared, &[("a", value), ("by", "hand")]).await;
    }
    world.says(Secret, "db", "Synced").await;
    world.says(VaultPush, "push", "Synced").await;
    world.delete(VaultPush, "push").await;
    world.gone(VaultPush, "push").await;
    world.holds(&shared, &[("by", "hand")]).await;
}
