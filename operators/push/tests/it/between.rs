//! Between a write and the mark that says whose it is: a crash, another installation, a Vault that does not mark.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use konverge_core::SecretValue;
use konverge_push::object::Kind;
use konverge_testkit::eventually;
use konverge_testkit_stores::{Fault, HttpFront, VaultOptions, VaultServer};
use konverge_vault::{Credential, Deletion, Limits, Login, Vault, VaultConfig};
use serde_json::json;

use crate::world::{Operator, World, until, vault_config};

/// How marks fare on the way to Vault.
#[derive(Clone, Copy)]
enum Marks {
    /// The connection breaks before them.
    Cut,
    /// They come so much later.
    Late(Duration),
}

/// A way to Vault on which all requests pass as they are but those for marks.
async fn way(server: &VaultServer, marks: Marks) -> (HttpFront, Arc<AtomicBool>) {
    let front = HttpFront::start(server.address()).await.unwrap();
    let met = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&met);
    front.plan(move |request| {
        let is_mark =
            request.path.starts_with("/v1/secret/metadata/") && ["PATCH", "POST"].contains(&request.method.as_str());
        is_mark.then(|| {
            seen.store(true, Ordering::SeqCst);
            match marks {
                Marks::Cut => Fault::DropRequest,
                Marks::Late(late) => Fault::Delay(late),
            }
        })
    });
    (front, met)
}

fn by(server: &VaultServer, address: &str) -> Vault {
    let login = Login::Token(Credential::value(SecretValue::from(server.root_token().to_owned())));
    let limits = Limits::default().with(|limits| limits.deadline = Duration::from_secs(20));
    Vault::new(&VaultConfig::new(address, login).unwrap().limits(limits))
}

async fn server() -> VaultServer {
    let server = VaultServer::start(VaultOptions::default()).await.unwrap();
    server.mount_kv("secret", 2).await.unwrap();
    server
}

/// An operator that writes and is gone before it has marked anything.
async fn killed_before_the_mark(world: &World, server: &VaultServer, arguments: &[&str], written: &[&str]) {
    let (front, met) = way(server, Marks::Cut).await;
    let operator: Operator = world.operator_with(by(server, &front.url()), arguments).await;
    until("it is written and not marked", async || {
        for path in written {
            if world.read(path).await.is_none() {
                return Err(format!("nothing at {path}"));
            }
        }
        if met.load(Ordering::SeqCst) { Ok(()) } else { Err("no mark was tried".to_owned()) }
    })
    .await;
    operator.stop().await;
    for path in written {
        assert!(world.marks(path).await.is_empty() && world.versions(path).await == 1, "{path}");
    }
}

#[tokio::test]
async fn what_was_written_before_a_crash_is_ours_though_its_source_is_another_by_now() {
    let server = server().await;
    let world = World::with(&server).await;
    let refuse = ["--existing", "refuse"];
    let path = world.path("db");
    world.secret("db", &[("k", "1")], json!({ "vault-sync.io/path": path })).await;
    killed_before_the_mark(&world, &server, &refuse, &[&path]).await;
    world.rotate("db", &[("k", "2")]).await;
    let _operator = world.operator(&refuse).await;
    world.holds(&path, &[("k", "2")]).await;
    world.says(Kind::Secret, "db", "Synced").await;
    assert_eq!(world.versions(&path).await, 2);
    assert_eq!(world.marks(&path).await["vault-sync.io/owner"], format!("{}/Secret/db", world.namespace));
}

#[tokio::test]
async fn what_was_written_before_a_crash_goes_though_its_source_went_meanwhile() {
    let server = server().await;
    let world = World::with(&server).await;
    let path = world.path("app");
    world.workload(Kind::Deployment, "app", &["db"], json!({ "vault-sync.io/path": path })).await;
    let before = world.operator(&[]).await;
    world.says(Kind::Deployment, "app", "SecretNotFound").await;
    before.stop().await;
    world.secret("db", &[("k", "1")], json!({})).await;
    killed_before_the_mark(&world, &server, &[], &[&format!("{path}/db")]).await;
    world.delete(Kind::Deployment, "app").await;
    world.delete(Kind::Secret, "db").await;
    let _operator = world.operator(&[]).await;
    world.gone(Kind::Deployment, "app").await;
    world.is_deleted(&format!("{path}/db")).await;
}

#[tokio::test]
async fn what_was_there_before_is_nobodys_though_a_write_was_begun() {
    let server = server().await;
    let world = World::with(&server).await;
    let path = world.path("db");
    world.write(&path, &[("by", "hand")]).await;
    let refuse = json!({ "vault-sync.io/path": path, "vault-sync.io/existing": "refuse" });
    world.secret("db", &[("k", "1")], refuse).await;
    let operator = world.operator(&[]).await;
    world.says(Kind::Secret, "db", "ExistsAlready").await;
    let record = world.record(Kind::Secret, "db").await.unwrap();
    assert_eq!(record["paths"][&path]["begun"], json!(null), "Vault has told that it was not made");
    operator.stop().await;
    // Nor is it what was written instead of that since.
    world.vault.delete(&world.locate(&path).await, konverge_vault::Expected::Any, Deletion::Metadata).await.unwrap();
    world.write(&path, &[("by", "another hand")]).await;
    let _operator = world.operator(&[]).await;
    world.delete(Kind::Secret, "db").await;
    world.gone(Kind::Secret, "db").await;
    world.holds(&path, &[("by", "another hand")]).await;
}

/// Both have a Secret `name` with the same path.
async fn shared(worlds: [&World; 2], name: &str) -> String {
    let path = worlds[0].path(name);
    for (world, from) in worlds.into_iter().zip(["one", "two"]) {
        world.secret(name, &[("from", from)], json!({ "vault-sync.io/path": path })).await;
    }
    path
}

/// One has it, in its first version, and the other says so.
async fn is_of_one(worlds: [&World; 2], name: &str, path: &str) {
    let holder = until(&format!("{path} is of one of them"), async || {
        let mut states = Vec::new();
        for world in worlds {
            let record = world.record(Kind::Secret, name).await.ok_or("no record")?;
            states.push(record["state"].as_str().unwrap_or_default().to_owned());
        }
        match [&*states[0], &*states[1]] {
            ["Synced", "OwnedByAnother"] => Ok(0),
            ["OwnedByAnother", "Synced"] => Ok(1),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
    let owner = format!("{}/Secret/{name}", worlds[holder].namespace);
    assert_eq!(worlds[holder].marks(path).await["vault-sync.io/owner"], owner);
    worlds[holder].holds(path, &[("from", ["one", "two"][holder])]).await;
    assert_eq!(worlds[holder].versions(path).await, 1, "nobody's value was replaced");
}

#[tokio::test]
async fn of_two_installations_that_write_first_at_the_same_time_one_has_the_path() {
    let server = server().await;
    let (one, two) = (World::with(&server).await, World::with(&server).await);
    let mut paths = Vec::new();
    for number in 0..20 {
        let name = format!("db-{number}");
        paths.push((shared([&one, &two], &name).await, name));
    }
    let _operators = tokio::join!(one.operator(&[]), two.operator(&[]));
    for (path, name) in &paths {
        is_of_one([&one, &two], name, path).await;
    }
}

#[tokio::test]
async fn who_comes_between_the_write_and_the_mark_of_another_waits_for_it() {
    let server = server().await;
    let (one, two) = (World::with(&server).await, World::with(&server).await);
    let path = one.path("db");
    let (front, _) = way(&server, Marks::Late(Duration::from_secs(1))).await;
    let _operators = (one.operator_with(by(&server, &front.url()), &[]).await, two.operator(&[]).await);
    one.secret("db", &[("from", "one")], json!({ "vault-sync.io/path": path })).await;
    one.holds(&path, &[("from", "one")]).await;
    two.secret("db", &[("from", "two")], json!({ "vault-sync.io/path": path })).await;
    is_of_one([&one, &two], "db", &path).await;
}

#[tokio::test]
async fn what_could_not_be_marked_is_marked_when_that_is_allowed() {
    let server = server().await;
    let world = World::with(&server).await;
    let data = "path \"secret/data/*\" { capabilities = [\"create\", \"read\", \"update\", \"delete\"] }";
    server.policy("push", data).await.unwrap();
    let token = server.token(&["push", "default"], json!({ "ttl": "1h" })).await.unwrap();
    let _operator = world.operator_with(Vault::new(&vault_config(&server, &token)), &[]).await;
    let path = world.path("db");
    let annotations = json!({ "vault-sync.io/path": path, "vault-sync.io/reconcile": "30s" });
    world.secret("db", &[("k", "v")], annotations).await;
    world.says(Kind::Secret, "db", "Synced").await;
    world.event("db", "OwnerNotMarked").await;
    let metadata = "path \"secret/metadata/*\" { capabilities = [\"read\", \"update\", \"patch\"] }";
    server.policy("push", &format!("{data}\n{metadata}")).await.unwrap();
    let marked = eventually(Duration::from_mins(3), || async { (!world.marks(&path).await.is_empty()).then_some(()) });
    marked.await.expect("it is marked with the next look or the one after");
    assert_eq!(world.versions(&path).await, 1);
}
