//! `sync`, `pause` and `resume`.

use serde_json::json;

use crate::stage::{Stage, VALUES, World};

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
    world.run("sync secret/db").await.ends(0).says(&["is asked for"]);

    world.secret("far", &[("a", "b")], json!({ "vault-sync.io/path": "secret/data/elsewhere/x" })).await;
    world.run("sync secret/far --wait").await.ends(1).says(&["secret/far: PathNotAllowed", "may not write"]);
    let answer = world.run("sync secret/far --wait -o json").await.ends(1).json();
    assert_eq!((&answer["asked"], &answer["state"]), (&json!("sync"), &json!("PathNotAllowed")));

    world.secret("silent", &[("a", "b")], json!({})).await;
    world.run("sync secret/silent --wait").await.ends(1).says(&["asks for nothing"]);

    drop(operator);
    world.until("secret/db", "Synced").await;
    world
        .run("sync secret/db --wait --timeout 2s")
        .await
        .ends(1)
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
    world.run("pause secret/db").await.ends(0).says(&["left alone from now on"]);
    world.until("secret/db", "Paused").await;
    world.write(&world.path("db"), &[("password", VALUES[2])]).await;
    world.run("sync secret/db").await.ends(1).says(&["is left alone", "kubectl konverge resume secret/db"]);
    world.run("diff secret/db").await.ends(1).says(&["~ password changed"]);
    assert_eq!(world.held(&world.path("db")).await["password"], VALUES[2]);
    world.run("resume secret/db").await.ends(0).says(&["is worked on again"]);
    world.until("secret/db", "Synced").await;
    assert_eq!(world.held(&world.path("db")).await["password"], VALUES[0]);
    world.secret("silent", &[("a", "b")], json!({})).await;
    world.run("pause secret/silent").await.ends(1).says(&["asks for nothing"]);
}
