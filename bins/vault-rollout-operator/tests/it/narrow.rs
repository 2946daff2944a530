//! Few files may be open (F32).

use futures::{StreamExt, stream};
use konverge_roll::trigger::TriggerKind::VaultRollout;
use konverge_testkit::{http_get, metric};
use konverge_testkit_stores::VaultOptions;

use crate::{
    stage::{Stage, until},
    vault::Vault,
    view::View,
};

/// Fewer than the connections that the workers could use to two servers.
const OPEN_FILES: u32 = 48;
const WORKERS: &str = "64";

/// The number of objects that come at once: enough to occupy all workers.
const WORKLOADS: usize = 70;

/// The number of objects that are made or changed at the same time.
const AT_ONCE: usize = 8;

/// Runs the function for each workload.
async fn for_each(this: impl AsyncFn(&str)) {
    let names = (0..WORKLOADS).map(|number| format!("web-{number}"));
    stream::iter(names).map(async |name| this(&name).await).buffer_unordered(AT_ONCE).for_each(async |()| ()).await;
}

async fn rolled(view: &View, times: usize) {
    for_each(async |name| view.rolled(name, times).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn f32_with_few_open_files_and_many_workers_all_is_rolled_once_and_soon() {
    let stage = Stage::shared().await;
    let view = stage.view("narrow").await;
    let mut vault = Vault::start(VaultOptions::default()).await;
    // Questions about so many paths would occupy the machine.
    vault.interval = "2s";
    for_each(async |name| {
        vault.write(name, "1").await;
        view.secret(name, "1").await.unwrap();
        view.deployment(name, name).await.unwrap();
        view.asks(VaultRollout, name, name).await.unwrap();
    })
    .await;
    let (spec, address) = vault.operator(stage.kubeconfig(), &view.namespace);
    let mut operator = stage.start_as(spec.args(["--workers", WORKERS]).open_files(OPEN_FILES), address).await;
    rolled(&view, 0).await;
    for_each(async |name| {
        until(&format!("{name} is in sync"), async || Ok(view.says(VaultRollout, name, "InSync").await?.is_some()))
            .await;
    })
    .await;

    for_each(async |name| view.secret(name, "2").await.unwrap()).await;
    rolled(&view, 1).await;
    for_each(async |name| vault.write(name, "2").await).await;
    rolled(&view, 2).await;

    let scraped = http_get(&operator.address, "/metrics").await.unwrap().1;
    assert_eq!(metric(&scraped, "process_max_fds", "").to_string(), OPEN_FILES.to_string());
    let said = operator.process.logged();
    assert!(!said.contains("Too many open files"), "{said}");
    assert_eq!(operator.process.status(), None, "it has not ended");
}
