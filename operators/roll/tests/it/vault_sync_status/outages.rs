//! Vault away, sealed, or not willing.

use std::{sync::Arc, time::Duration};

use konverge_roll::trigger::TriggerKind::VaultSyncStatus;
use konverge_testkit::http_get;
use konverge_workload::WorkloadKind::Deployment;
use serde_json::json;
use tokio::{
    net::TcpListener,
    time::{Instant, sleep},
};

use super::{
    between::Between,
    world::{VaultWorld, new_vault},
};
use crate::world::ALL;

/// The time that Vault is away: long enough for pauses that grow to exceed [`BACK_WITHIN`].
const AWAY: Duration = Duration::from_secs(21);
/// The time until everything is in sync once Vault answers: the breaker asks after five seconds at the latest. Then come one interval, the
/// rollout and its status, on a machine that other tests share.
const BACK_WITHIN: Duration = Duration::from_secs(10);

#[tokio::test]
async fn r1_a3_no_error_of_vault_rolls_anything_and_all_goes_on_by_itself() {
    let world = VaultWorld::with(Arc::new(new_vault().await)).await;
    let operator = world.in_sync(VaultSyncStatus, "vss", &[]).await;

    world.vault.policy("rollout", r#"path "nowhere/*" { capabilities = ["read"] }"#).await.unwrap();
    let told = world.says("vss", "PermissionDenied").await;
    assert!(told.contains("policy"), "{told}");
    world.world.event("vss", "PermissionDenied").await;
    assert_eq!(world.version("vss").await, 1, "what the pods run with is not forgotten");
    // A change in the meantime is not lost, and not seen either.
    world.write("app", "2").await;
    world.settled(&operator).await;
    assert_eq!(world.world.templates("web").await, 1);
    world.vault.policy("rollout", r#"path "+/metadata/*" { capabilities = ["read", "list"] }"#).await.unwrap();
    world.world.rolled("web", 1).await;
    world.says("vss", "InSync").await;

    world.vault.seal().await.unwrap();
    world.says("vss", "VaultUnavailable").await;
    world.is("vss", "Error").await;
    // Also for one that begins while it is sealed.
    operator.stop().await;
    let operator = world.operator(&[]).await;
    world.settled(&operator).await;
    world.says("vss", "VaultUnavailable").await;
    assert_eq!(world.world.templates("web").await, 2);
    world.vault.unseal().await.unwrap();
    world.says("vss", "InSync").await;
    world.settled(&operator).await;
    assert_eq!(world.world.templates("web").await, 2);
}

#[tokio::test]
async fn a9_r8_a_vault_that_hangs_holds_up_nobody() {
    let world = VaultWorld::new().await;
    // It takes every connection and says nothing.
    let silence = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", silence.local_addr().unwrap());
    world.world.secret("db", "1").await;
    world.world.workload(Deployment, "web", &["db"], json!({ ALL: "true" })).await;
    world.vss("vss", &world.sample()).await;
    let operator = world.operator_at(&address, &["--vault-timeout=2s"]).await;
    world.says("vss", "VaultUnavailable").await;
    world.world.noted(Deployment, "web").await;
    world.world.secret("db", "2").await;
    world.world.rolled("web", 1).await;
    let (code, _) = http_get(&operator.address, "/healthz").await.unwrap();
    assert_eq!(code, 200);
}

/// The answers of a proxy, a portal or a broken server in the place of Vault.
#[tokio::test]
async fn a3_what_is_no_answer_of_vault_rolls_nothing_and_all_goes_on_by_itself() {
    let world = VaultWorld::new().await;
    world.write("app", "1").await;
    world.world.workload(Deployment, "web", &[], json!({})).await;
    world.vss("vss", &world.sample()).await;
    let between = Between::before(&world.vault).await;
    let operator = world.operator_at(&between.address, &[]).await;
    world.says("vss", "InSync").await;
    let wrong = [
        ("200 OK", "text/html", "<html>Sign in</html>"),
        ("404 Not Found", "text/html", "<html>There is no such page</html>"),
        ("403 Forbidden", "text/html", "<html>Blocked</html>"),
        ("404 Not Found", "application/json", r#"{"errors":["not found"]}"#),
        ("502 Bad Gateway", "text/html", "<html>Try again later</html>"),
        ("200 OK", "application/json", "{}"),
        ("200 OK", "application/json", r#"{"data":{}}"#),
        ("200 OK", "application/json", ""),
    ];
    for (rolled, (status, kind, body)) in wrong.into_iter().enumerate() {
        let what = format!("{status} {body}");
        between.answer(status, kind, body);
        let told = world.says("vss", "VaultUnavailable").await;
        assert!(told.contains("Nothing is rolled"), "{what}: {told}");
        world.is("vss", "Error").await;
        world.write("app", &what).await;
        world.settled(&operator).await;
        assert_eq!(world.version("vss").await, rolled + 1, "{what}: what the pods run with is not forgotten");
        assert_eq!(world.world.templates("web").await, rolled + 1, "{what}");
        between.pass();
        world.world.rolled("web", rolled + 1).await;
        world.says("vss", "InSync").await;
    }
}

#[tokio::test]
async fn a20_after_a_sealed_vault_a_change_is_rolled_within_seconds() {
    let world = VaultWorld::with(Arc::new(new_vault().await)).await;
    let _operator = world.in_sync(VaultSyncStatus, "vss", &[]).await;
    world.vault.seal().await.unwrap();
    world.says("vss", "VaultUnavailable").await;
    sleep(AWAY).await;
    world.vault.unseal().await.unwrap();
    let back = Instant::now();
    world.write("app", "2").await;
    world.world.rolled("web", 1).await;
    world.says("vss", "InSync").await;
    assert!(back.elapsed() <= BACK_WITHIN, "{:?}", back.elapsed());
}

#[tokio::test]
async fn a20_after_404_on_everything_a_change_is_rolled_within_seconds() {
    let world = VaultWorld::new().await;
    world.write("app", "1").await;
    world.world.workload(Deployment, "web", &[], json!({})).await;
    world.vss("vss", &world.sample()).await;
    let between = Between::before(&world.vault).await;
    let _operator = world.operator_at(&between.address, &[]).await;
    world.says("vss", "InSync").await;
    // A page of a proxy that has lost its backend, what Vault itself answers about a path that it does not have, and a gateway whose errors
    // look like Vault's.
    let answers = [
        ("text/html", "<html>There is no such page</html>"),
        ("application/json", r#"{"errors":[]}"#),
        ("application/json", r#"{"errors":["not found"]}"#),
    ];
    for (rolled, (kind, body)) in answers.into_iter().enumerate() {
        between.answer("404 Not Found", kind, body);
        world.is("vss", "Error").await;
        sleep(AWAY).await;
        assert_eq!(world.world.templates("web").await, rolled + 1, "{body}");
        world.write("app", body).await;
        between.pass();
        let back = Instant::now();
        world.world.rolled("web", rolled + 1).await;
        world.says("vss", "InSync").await;
        assert!(back.elapsed() <= BACK_WITHIN, "{body}: {:?}", back.elapsed());
    }
}
