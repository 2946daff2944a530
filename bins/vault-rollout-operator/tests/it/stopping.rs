//! SIGTERM while a server that the operator needs takes every connection and says nothing.

use std::{path::PathBuf, time::Duration};

use futures::FutureExt;
use konverge_roll::trigger::TriggerKind::VaultSyncStatus;
use konverge_testkit::{Process, ProcessSpec};
use serde_json::Value;
use tokio::{
    net::TcpListener,
    time::{sleep, timeout},
};

use crate::stage::{SOON, Stage, operator};

/// A pod has 40 seconds. A program ends 24 seconds after the signal the runs that still wait, and gives the rest of 30 to its tasks.
const GRACE: Duration = Duration::from_secs(36);

async fn silence() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    (listener, address)
}

fn start(stage: &Stage, spec: ProcessSpec) -> Process {
    Process::start(stage.plane.run_directory(), spec).unwrap()
}

#[tokio::test]
async fn a_vault_that_hangs_does_not_keep_the_operator_at_any_moment() {
    let stage = Stage::shared().await;
    let view = stage.view("stopping").await;
    view.deployment("web", "db").await.unwrap();
    view.asks(VaultSyncStatus, "web", "app").await.unwrap();
    let (listener, silent) = silence().await;
    let token = stage.plane.run_directory().path().join("hanging-token");
    std::fs::write(&token, "s.token").unwrap();
    let hanging = || {
        let (spec, _) = operator(stage.kubeconfig(), &view.namespace);
        spec.args(["--vault-url", &format!("http://{silent}/v1/"), "--vault-token-file"]).arg(&token)
    };
    // Right after the start, before it can have read anything.
    for delay in [50, 300, 1000] {
        let mut process = start(stage, hanging());
        sleep(Duration::from_millis(delay)).await;
        process.terminate(GRACE).await.unwrap();
    }
    // While it waits for the answer about its token.
    let mut process = start(stage, hanging());
    while listener.accept().now_or_never().is_some() {}
    let asked = timeout(SOON, listener.accept()).await.unwrap().unwrap();
    process.terminate(GRACE).await.unwrap();
    drop(asked);
}

#[tokio::test]
async fn an_api_server_that_hangs_does_not_keep_the_operator() {
    let stage = Stage::shared().await;
    let (_listener, silent) = silence().await;
    let mut config: Value = serde_json::from_slice(&std::fs::read(stage.kubeconfig()).unwrap()).unwrap();
    config["clusters"][0]["cluster"]["server"] = format!("https://{silent}").into();
    let path: PathBuf = stage.plane.run_directory().path().join("silent.json");
    std::fs::write(&path, config.to_string()).unwrap();
    for delay in [50, 1000, 3000] {
        let (spec, _) = operator(&path, "default");
        let mut process = start(stage, spec);
        sleep(Duration::from_millis(delay)).await;
        process.terminate(GRACE).await.unwrap();
    }
}
