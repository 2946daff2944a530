//! `sync`, `pause` and `resume`.

use konverge_testkit::eventually;
use serde_json::json;

use crate::stage::{SOON, Stage, VALUES, World};

async fn settled(world: &World<'_>) {
    world.secret("db", &[("password", VALUES[0])], json!({ "vault-sync.io/path": world.path("db") })).await;
    world.until("secret/db", "Synced").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sync_that_is_waited_for_has_been_answered_when_it_ends() {
    let world = Stage::shared().await.world().await;
    let operator = world.operator(&[]).await;
    settled(&world).await;
    for _ in 0..3 {
        world.write(&world.path("db"), &[("password", VALUES[2])]).await;
        world.run("sync secret/db --wait").await.ends(0).says(&["secret/db: Synced"]);
        assert_eq!(world.held(&world.path("db")).await["password"], VALUES[0], "it was put right before the answer");
    }
    world.run("sync secret/db").await.ends(0).says(&["a sync is requested"]);

    world.secret("far", &[("a", "b")], json!({ "vault-sync.io/path": "secret/data/elsewhere/x" })).await;
    world.run("sync secret/far --wait").await.ends(1).says(&["secret/far: PathNotAllowed", "may not write"]);
    let answer = world.run("sync secret/far --wait -o json").await.ends(1).json();
    assert_eq!((&answer["asked"], &answer["state"]), (&json!("sync"), &json!("PathNotAllowed")));

    world.secret("silent", &[("a", "b")], json!({})).await;
    world.run("sync secret/silent --wait").await.ends(2).says(&["has not opted in"]);

    drop(operator);
    world.until("secret/db", "Synced").await;
    world
        .run("sync secret/db --wait --timeout 2s")
        .await
        .ends(2)
        .says(&["has not answered", "kubectl konverge doctor"]);
    world
        .run("status secret/db")
        .await
        .ends(1)
        .says(&["Pending", "vault-sync.io/sync-now is set, and the operator has not"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_paused_is_left_alone_until_it_is_resumed() {
    let world = Stage::shared().await.world().await;
    let _operator = world.operator(&[]).await;
    settled(&world).await;
    world.run("pause secret/db").await.ends(0).says(&["is paused for push"]);
    world.until("secret/db", "Paused").await;
    // docs/reference/kubectl.md states these exit codes.
    world.run("status secret/db").await.ends(1);
    world.run("why secret/db").await.ends(1);
    world.write(&world.path("db"), &[("password", VALUES[2])]).await;
    world.run("sync secret/db").await.ends(2).says(&["is paused: ", "kubectl konverge resume secret/db"]);
    world.run("diff secret/db").await.ends(1).says(&["~ password changed"]);
    assert_eq!(world.held(&world.path("db")).await["password"], VALUES[2]);
    world.run("resume secret/db").await.ends(0).says(&["is resumed for push"]);
    world.until("secret/db", "Synced").await;
    assert_eq!(world.held(&world.path("db")).await["password"], VALUES[0]);
    world.secret("silent", &[("a", "b")], json!({})).await;
    world.run("pause secret/silent").await.ends(2).says(&["has not opted in"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_vault_push_is_asked_as_all_others_are() {
    let world = Stage::shared().await.world().await;
    let _operator = world.operator(&[]).await;
    let path = world.path("shared");
    world.write(&path, &[("theirs", VALUES[1])]).await;
    world.secret("db", &[("password", VALUES[0])], json!({})).await;
    world.vault_push("db", "db", &path, "Merge").await;
    world.until("vpush/db", "Synced").await;
    world.run("why vaultpush/db").await.ends(0).says(&["state", "Synced", "its own keys; those of others stay", &path]);
    world.run("diff vpush/db").await.ends(0).says(&["password same"]);
    world.write(&path, &[("theirs", VALUES[1]), ("password", VALUES[2])]).await;
    world.run("diff vpush/db").await.ends(1).says(&["~ password changed"]);
    world.run("sync vpush/db --wait").await.ends(0).says(&["vaultpush/db: Synced"]);
    let held = world.held(&path).await;
    assert_eq!((held["password"].as_str(), held["theirs"].as_str()), (VALUES[0], VALUES[1]));
    world.run("pause vpush/db").await.ends(0).says(&["is paused for push"]);
    world.until("vpush/db", "Paused").await;
    world.run("resume vpush/db").await.ends(0).says(&["is resumed for push"]);
    world.until("vpush/db", "Synced").await;
    world.run("status").await.ends(0).says(&["vaultpush/db"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn deletions_that_an_operator_has_stopped_go_on_when_a_person_approves_them() {
    let stage = Stage::set().await;
    stage.deploy(2).await;
    let world = stage.world().await;
    let _operator = world.operator(&["--deletion-grace=1s", "--leader-elect"]).await;
    world.run("approve").await.ends(0).says(&["no operator has stopped deletions"]);
    let names: Vec<_> = (0..6).map(|number| format!("db-{number}")).collect();
    for name in &names {
        world.secret(name, &[("a", "b")], json!({ "vault-sync.io/path": world.path(name) })).await;
    }
    for name in &names {
        world.until(&format!("secret/{name}"), "Synced").await;
    }
    // One mistake: a chart without its annotations.
    for name in &names {
        world.secret(name, &[("a", "b")], json!({})).await;
    }
    for name in &names {
        world.until(&format!("secret/{name}"), "DeletionsStopped").await;
        assert_eq!(world.held(&world.path(name)).await["a"], "b", "{name}");
    }
    let told = eventually(SOON, async || {
        let ran = world.run("doctor").await;
        ran.out.contains("6 deletions are requested").then_some(ran)
    });
    told.await.unwrap().ends(1).says(&["WRONG deletions", "kubectl konverge approve"]);
    world.run("approve").await.ends(0).says(&["no operator has stopped deletions"]);
    world.run_in(&stage.home, "approve").await.ends(0).says(&["push: approved: 6 deletions are requested"]);
    eventually(SOON, async || {
        for name in &names {
            if !world.held(&world.path(name)).await.is_empty() {
                return None;
            }
        }
        Some(())
    })
    .await
    .unwrap();
    eventually(SOON, async || world.run("doctor").await.code.eq(&0).then_some(())).await.unwrap();
}
