//! Secrets that are nobody's business cost nothing (I14).

use std::fs;

use futures::{StreamExt, stream};
use k8s_openapi::{ByteString, api::core::v1::Secret};
use konverge_testkit::Process;
use kube::api::{ObjectMeta, PostParams};

use crate::stage::Stage;

const FOREIGN: usize = 2000;
const FOREIGN_SIZE: usize = 20 * 1024;

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
    let without = resident(&operator.process);
    let api = view.secrets();
    let made = stream::iter(0..FOREIGN).map(async |number| {
        let metadata = ObjectMeta { name: Some(format!("foreign-{number}")), ..ObjectMeta::default() };
        let data = Some([("payload".to_owned(), ByteString(vec![b'x'; FOREIGN_SIZE]))].into());
        api.create(&PostParams::default(), &Secret { metadata, data, ..Secret::default() }).await.unwrap();
    });
    made.buffer_unordered(16).for_each(async |()| ()).await;
    // What came later has been seen when there is a rollout for what was changed after it.
    view.secret("db", "2").await.unwrap();
    view.rolled("web", 1).await;
    let lived_through = resident(&operator.process) / without;
    operator.crash().await;
    view.secret("db", "3").await.unwrap();
    view.rolled("web", 2).await;
    let there_at_start = resident(&operator.process) / without;
    assert!(
        lived_through < BOUND && there_at_start < BOUND,
        "{lived_through:.2} and {there_at_start:.2} of {without} bytes"
    );
}

/// The resident set in bytes, as the kernel accounts it.
fn resident(process: &Process) -> f64 {
    let status = fs::read_to_string(format!("/proc/{}/status", process.pid().unwrap())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches("kB").trim().parse::<f64>().unwrap() * 1024.0
}
