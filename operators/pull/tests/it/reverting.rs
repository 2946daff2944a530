//! Another client reverts the operator's writes.

use std::time::Duration;

use k8s_openapi::{ByteString, api::core::v1::Secret};
use kube::api::PostParams;
use tokio::time::{Instant, sleep};

use crate::world::World;

/// Reverts each write of the operator to the Secret as another controller, for this time. Returns the number of reverts.
async fn undo(world: &World, manager: &str, time: Duration) -> u32 {
    let parameters = PostParams { field_manager: Some(manager.to_owned()), ..PostParams::default() };
    let (began, mut times) = (Instant::now(), 0);
    while began.elapsed() < time {
        let mut secret: Secret = world.secrets().get("backend").await.unwrap();
        if secret.data.as_ref().is_some_and(|data| data.contains_key("A")) {
            secret.data = Some([("sealed".to_owned(), ByteString(b"theirs".to_vec()))].into());
            secret.metadata.managed_fields = None;
            times += u32::from(world.secrets().replace("backend", &parameters, &secret).await.is_ok());
        }
        sleep(Duration::from_millis(20)).await;
    }
    times
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_undoes_each_write_is_answered_with_growing_pauses_and_named() {
    let (world, scene, operator) = World::in_sync().await;
    let times = undo(&world, "sealed-secrets", Duration::from_secs(12)).await;
    // Three at once, and then after 1, 2, 4 and 8 seconds.
    assert!((5..=7).contains(&times), "{times}");
    let text = world.told("backend", "Contested").await;
    assert!(text.contains("\"sealed-secrets\"") && text.contains("zopp.dev/sync"), "{text}");
    operator.counts(r#"konverge_pull_bindings{reason="Contested"} 1"#).await;
    // A change does not wait for the end of the pause.
    scene.set("A", "2");
    let changed = Instant::now();
    world.holds("backend", &[("A", "2"), ("sealed", "theirs")]).await;
    assert!(changed.elapsed() < Duration::from_secs(3), "{:?}", changed.elapsed());
    operator.counts(r#"konverge_pull_bindings{reason="Contested"} 1"#).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_clients_that_undo_each_write_count_together() {
    let (world, _scene, operator) = World::in_sync().await;
    let time = Duration::from_secs(6);
    let (one, other) = tokio::join!(undo(&world, "sealed-secrets", time), undo(&world, "mirror", time));
    // Three at once, and then after 1 and 2 seconds.
    assert!((4..=6).contains(&(one + other)), "{one} and {other}");
    let text = world.told("backend", "Contested").await;
    assert!(text.contains("\"sealed-secrets\"") || text.contains("\"mirror\""), "{text}");
    operator.counts(r#"konverge_pull_bindings{reason="Contested"} 1"#).await;
    world.holds("backend", &[("A", "1"), ("sealed", "theirs")]).await;
    world.stays("backend", &[&operator]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_that_is_replaced_by_hand_is_filled_at_once() {
    let (world, _scene, operator) = World::in_sync().await;
    for _ in 0..3 {
        let mut secret: Secret = world.secrets().get("backend").await.unwrap();
        secret.data = None;
        world.secrets().replace("backend", &PostParams::default(), &secret).await.unwrap();
        let replaced = Instant::now();
        world.holds("backend", &[("A", "1")]).await;
        assert!(replaced.elapsed() < Duration::from_secs(2), "{:?}", replaced.elapsed());
    }
    operator.counts(r#"konverge_pull_bindings{reason="Synced"} 1"#).await;
}
