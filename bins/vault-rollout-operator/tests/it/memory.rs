//! Secrets that are nobody's business cost nothing (I14).

use konverge_testkit::create_foreign_secrets;

use crate::stage::Stage;

const FOREIGN: usize = 2000;

/// The number of objects that are made at the same time.
const AT_ONCE: usize = 16;

/// Of foreign Secrets not even the name is kept, so there should be no difference; a fifth is for what an allocator keeps of the pages that
/// they came in.
const BOUND: f64 = 1.2;

#[tokio::test(flavor = "multi_thread")]
async fn thousands_of_foreign_secrets_take_no_memory() {
    let stage = Stage::shared().await;
    let view = stage.view("memory").await;
    view.secret("db", "1").await.unwrap();
    view.deployment("web", "db").await.unwrap();
    let mut operator = stage.start(&view.namespace, &[]).await;
    view.rolled("web", 0).await;
    let without = operator.process.resident().unwrap();
    create_foreign_secrets(&view.client, &view.namespace, FOREIGN, AT_ONCE).await.unwrap();
    // Once a later change was rolled, the earlier one has been seen.
    view.secret("db", "2").await.unwrap();
    view.rolled("web", 1).await;
    let lived_through = operator.process.resident().unwrap() / without;
    operator.crash().await;
    view.secret("db", "3").await.unwrap();
    view.rolled("web", 2).await;
    let there_at_start = operator.process.resident().unwrap() / without;
    assert!(
        lived_through < BOUND && there_at_start < BOUND,
        "{lived_through:.2} and {there_at_start:.2} of {without} bytes"
    );
}
