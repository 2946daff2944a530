//! Secrets that are nobody's business cost nothing (W14, I14).

use std::fs;

use futures::{StreamExt, stream};
use k8s_openapi::{ByteString, api::core::v1::Secret};
use konverge_testkit::Process;
use kube::{
    Api,
    api::{ObjectMeta, PostParams},
};

use crate::stage::{Stage, until};

const FOREIGN: usize = 2000;
const FOREIGN_SIZE: usize = 20 * 1024;

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
    until("it is in step", async || view.is_synced("Secret", "db", &[&path]).await).await;
    let without = resident(&before.process);
    let api = Api::<Secret>::namespaced(view.client.clone(), &namespace);
    let made = stream::iter(0..FOREIGN).map(async |number| {
        let metadata = ObjectMeta { name: Some(format!("foreign-{number}")), ..ObjectMeta::default() };
        let data = Some([("payload".to_owned(), ByteString(vec![b'x'; FOREIGN_SIZE]))].into());
        api.create(&PostParams::default(), &Secret { metadata, data, ..Secret::default() }).await.unwrap();
    });
    made.buffer_unordered(16).for_each(async |()| ()).await;
    // What came later has been seen when what was made after it is in Vault.
    view.secret("db", &[("n", "2")], Some(&path)).await.unwrap();
    until("it is rotated", async || view.holds(&path, "n", "2").await).await;
    let lived_through = resident(&before.process) / without;
    drop(before);
    let after = stage.start(&namespace, |spec| spec).await;
    view.secret("db", &[("n", "3")], Some(&path)).await.unwrap();
    until("it is rotated again", async || view.holds(&path, "n", "3").await).await;
    let there_at_start = resident(&after.process) / without;
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
