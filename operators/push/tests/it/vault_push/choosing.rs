//! Which Secrets and keys are taken, where they go, and what becomes of them.

use konverge_push::object::Kind::{Secret, VaultPush};
use serde_json::json;

use crate::world::{World, until};

#[tokio::test]
async fn named_secrets_follow_their_changes_and_rest_without_a_write() {
    let world = World::new().await;
    let operator = world.operator(&[]).await;
    for name in ["db", "api"] {
        world.secret(name, &[("n", "1")], json!({})).await;
    }
    let spec = json!({ "secrets": { "names": ["db", "api"] }, "path": "secret/data/{namespace}/{name}/{secret}" });
    world.vault_push("all", spec.clone()).await;
    let paths = ["api", "db"].map(|secret| world.path(&format!("all/{secret}")));
    for path in &paths {
        world.holds(path, &[("n", "1")]).await;
    }
    world.says(VaultPush, "all", "Synced").await;
    world.rotate("db", &[("n", "2")]).await;
    world.holds(&paths[1], &[("n", "2")]).await;
    assert_eq!((world.versions(&paths[0]).await, world.versions(&paths[1]).await), (1, 2));
    assert_eq!(world.marks(&paths[0]).await["vault-sync.io/owner"], format!("{}/VaultPush/all", world.namespace));
    until("the version is noted", async || {
        let record = world.record(VaultPush, "all").await.unwrap();
        if record["paths"][&paths[1]]["version"] == 2 { Ok(()) } else { Err(record.to_string()) }
    })
    .await;
    let writes = world.writes_during(operator.settled()).await;
    assert!(writes.is_empty(), "{}: {writes:?}", "at rest");
    operator.stop().await;
    let operator = world.operator(&[]).await;
    let writes = world.writes_during(operator.settled()).await;
    assert!(writes.is_empty(), "{}: {writes:?}", "after a restart");
    // P13: a source that goes deletes nothing.
    world.delete(Secret, "db").await;
    world.says(VaultPush, "all", "SecretNotFound").await;
    world.holds(&paths[1], &[("n", "2")]).await;
    world.secret("db", &[("n", "3")], json!({})).await;
    world.holds(&paths[1], &[("n", "3")]).await;
    // Content that moves is cleared where it was.
    let moved = json!({ "secrets": spec["secrets"], "path": "secret/data/{namespace}/moved/{secret}" });
    world.vault_push("all", moved).await;
    world.holds(&world.path("moved/db"), &[("n", "3")]).await;
    for path in &paths {
        world.is_deleted(path).await;
    }
    world.delete(VaultPush, "all").await;
    world.gone(VaultPush, "all").await;
    world.is_deleted(&world.path("moved/db")).await;
}

#[tokio::test]
async fn a_selector_takes_who_fits_now_and_later_and_clears_who_does_not_any_more() {
    let world = World::new().await;
    let operator = world.operator(&[]).await;
    let labelled = async |name: &str, tier: serde_json::Value| {
        world.merge(Secret, name, json!({ "metadata": { "labels": { "tier": tier } } })).await;
    };
    for name in ["early", "late", "never"] {
        world.secret(name, &[("of", name)], json!({})).await;
    }
    labelled("early", "gold".into()).await;
    let expressions = json!([{ "key": "tier", "operator": "In", "values": ["gold", "silver"] }]);
    let spec = json!({
        "secrets": { "selector": { "matchExpressions": expressions } }, "path": "secret/data/{namespace}/{secret}",
    });
    world.vault_push("tiers", spec).await;
    world.holds(&world.path("early"), &[("of", "early")]).await;
    labelled("late", "silver".into()).await;
    world.holds(&world.path("late"), &[("of", "late")]).await;
    labelled("early", "lead".into()).await;
    world.is_deleted(&world.path("early")).await;
    world.holds(&world.path("late"), &[("of", "late")]).await;
    // While nobody looks: one comes, one goes.
    world.says(VaultPush, "tiers", "Synced").await;
    operator.stop().await;
    labelled("early", "gold".into()).await;
    world.delete(Secret, "late").await;
    let operator = world.operator(&[]).await;
    world.holds(&world.path("early"), &[("of", "early")]).await;
    world.is_deleted(&world.path("late")).await;
    world.rotate("early", &[("of", "another")]).await;
    world.holds(&world.path("early"), &[("of", "another")]).await;
    assert_eq!(world.read(&world.path("never")).await, None);
    // The status follows the write.
    operator.settled().await;
    world.says(VaultPush, "tiers", "Synced").await;
    let labelling = async {
        labelled("never", "lead".into()).await;
        operator.settled().await;
    };
    let writes = world.writes_during(labelling).await;
    assert!(writes.is_empty(), "{}: {writes:?}", "what does not fit is nobody's work");
    world.delete(VaultPush, "tiers").await;
    world.gone(VaultPush, "tiers").await;
    world.is_deleted(&world.path("early")).await;
}

#[tokio::test]
async fn keys_are_renamed_and_texts_are_made_of_values_or_the_path_stays() {
    let world = World::new().await;
    let operator = world.operator(&[]).await;
    world.secret("db", &[("user", "u"), ("password", "$p{}")], json!({})).await;
    world.secret("host", &[("name", "h")], json!({})).await;
    let path = world.path("app");
    let spec = |template: &str| {
        json!({
            "secrets": { "names": ["db", "host"] }, "path": path, "keyPrefix": "db_",
            "keys": [{ "secret": "db", "from": "user" }, { "secret": "host", "from": "name", "to": "HOST" }],
            "templates": { "url": template },
        })
    };
    world.vault_push("app", spec("pg://${db/user}:${db/password}@${host/name}/$$")).await;
    let held = [("HOST", "h"), ("db_user", "u"), ("url", "pg://u:$p{}@h/$")];
    world.holds(&path, &held).await;
    world.vault_push("app", spec("${host/port}")).await;
    let told = world.says(VaultPush, "app", "KeyNotFound").await;
    assert!(told.contains("port") && told.contains("spec.keys and spec.templates"), "{told}");
    world.vault_push("app", spec("${other/port}")).await;
    let told = world.says(VaultPush, "app", "InvalidTemplate").await;
    assert!(told.contains("other is not one of secrets.names"), "{told}");
    operator.settled().await;
    world.holds(&path, &held).await;
    assert_eq!(world.versions(&path).await, 1, "never half a template");
    world.vault_push("app", spec("${host/port}")).await;
    world.rotate("host", &[("port", "1")]).await;
    world.holds(&path, &[("HOST", "h"), ("db_user", "u"), ("url", "1")]).await;
}

#[tokio::test]
async fn p16_what_is_there_is_left_alone_also_when_the_secret_changes() {
    let world = World::new().await;
    let operator = world.operator(&[]).await;
    world.secret("db", &[("n", "1")], json!({})).await;
    let (theirs, equal, ours) = (world.path("theirs"), world.path("equal"), world.path("ours"));
    world.write(&theirs, &[("by", "hand")]).await;
    world.write(&equal, &[("n", "1")]).await;
    for (name, path) in [("theirs", &theirs), ("equal", &equal), ("ours", &ours)] {
        let spec = json!({ "secrets": { "names": ["db"] }, "path": path, "updatePolicy": "IfNotExists" });
        world.vault_push(name, spec).await;
        world.says(VaultPush, name, "Synced").await;
    }
    world.holds(&ours, &[("n", "1")]).await;
    for name in ["theirs", "equal"] {
        assert!(world.event(name, "LeftAlone").await.contains("was there before"));
    }
    world.rotate("db", &[("n", "2")]).await;
    assert!(world.event("ours", "LeftAlone").await.contains("holds what was written first"));
    // All has been looked at again, by one that remembers nothing.
    operator.stop().await;
    let operator = world.operator(&[]).await;
    world.rotate("db", &[("n", "3")]).await;
    operator.settled().await;
    world.holds(&theirs, &[("by", "hand")]).await;
    world.holds(&ours, &[("n", "1")]).await;
    assert_eq!((world.versions(&theirs).await, world.versions(&ours).await), (1, 1));
    for name in ["theirs", "equal", "ours"] {
        world.says(VaultPush, name, "Synced").await;
        world.delete(VaultPush, name).await;
        world.gone(VaultPush, name).await;
    }
    world.is_deleted(&ours).await;
    world.holds(&theirs, &[("by", "hand")]).await;
    world.holds(&equal, &[("n", "1")]).await;
}

#[tokio::test]
async fn the_example_that_we_ship_does_what_it_says() {
    let world = World::new().await;
    let _operator = world.operator(&[]).await;
    world.secret("db", &[("user", "u"), ("password", "p")], json!({})).await;
    world.secret("stripe", &[("token", "t")], json!({})).await;
    let labels = json!({ "labels": { "vault": "shared" } });
    world.apply(Secret, "labelled", json!({ "metadata": labels, "stringData": { "k": "v" } })).await;
    let manifest = include_str!("../../../../../deploy/vaultpush-example.yaml");
    for document in manifest.split("\n---\n") {
        let object: serde_json::Value = serde_saphyr::from_str(document).unwrap();
        world.vault_push(object["metadata"]["name"].as_str().unwrap(), object["spec"].clone()).await;
    }
    let url = "postgres://u:p@db.shop.svc/checkout";
    world.holds(&world.path("checkout"), &[("DB_PASSWORD", "p"), ("DB_URL", url), ("STRIPE_TOKEN", "t")]).await;
    world.holds(&world.path("shared/labelled"), &[("k", "v")]).await;
}
