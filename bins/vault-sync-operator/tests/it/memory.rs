//! Secrets that are nobody's business cost nothing (W14, I14).

use konverge_testkit::create_foreign_secrets;

use crate::stage::{Stage, until};

const FOREIGN: usize = 2000;

/// The number of objects that are made at the same time.
const AT_ONCE: usize = 16;

/// Foreign Secrets are not kept, so there should be no difference; a fifth is for what an allocator keeps of the pages that they came in.
const BOUND: f64 = 1.2;

#[tokio::test(flavor = "multi_thread")]
async fn w14_thousands_of_foreign_secrets_take_no_memory() {
    let stage = Stage::shared().await;
    let namespace = stage.plane.namespace("memory").await.unwrap();
    let view = stage.view(&namespace).await;
    let path = view.path("db");
    view.secret("db", &[("n", "1")], Some(&path)).await.unwrap();
    let before = stage.start(&namespace, |spec| spec).await;
    until("it is in sync", async || view.is_synced("Secret", "db", &[&path]).await).await;
    let without = before.process.resident().unwrap();
    create_foreign_secrets(&view.client, &namespace, FOREIGN, AT_ONCE).await.unwrap();
    // Once a later object is in Vault, the earlier one has been seen.
    view.secret("db", &[("n", "2")], Some(&path)).await.unwrap();
    until("it is rotated", async || view.holds(&path, "n", "2").await).await;
    let lived_through = before.process.resident().unwrap() / without;
    drop(before);
    let after = stage.start(&namespace, |spec| spec).await;
    view.secret("db", &[("n", "3")], Some(&path)).await.unwrap();
    until("it is rotated again", async || view.holds(&path, "n", "3").await).await;
    let there_at_start = after.process.resident().unwrap() / without;
    assert!(
        lived_through < BOUND && there_at_start < BOUND,
        "{lived_through:.2} and {there_at_start:.2} of {without} bytes"
    );
}
