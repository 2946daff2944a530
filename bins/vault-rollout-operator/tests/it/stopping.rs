//! SIGTERM while Vault takes the connection, reads the request for the token, and says nothing. The other moments are tested with every program in
//! `tests/it/stopping.rs`.

use std::time::Duration;

use konverge_roll::trigger::TriggerKind::VaultSyncStatus;
use konverge_testkit::Process;
use tokio::{net::TcpListener, time::timeout};

use crate::stage::{SOON, Stage, operator};

/// A pod has 40 seconds. A program ends waiting runs 24 seconds after the signal, and gives its tasks the rest of 30.
const GRACE: Duration = Duration::from_secs(36);

#[tokio::test]
async fn an_operator_that_waits_for_the_answer_about_its_token_ends_in_time() {
    let stage = Stage::shared().await;
    let view = stage.view("stopping").await;
    view.deployment("web", "db").await.unwrap();
    view.asks(VaultSyncStatus, "web", "app").await.unwrap();
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let token = stage.plane.run_directory().path().join("hanging-token");
    std::fs::write(&token, "s.token").unwrap();
    let url = format!("http://{}/v1/", silent.local_addr().unwrap());
    let (spec, _) = operator(stage.kubeconfig(), &view.namespace);
    let spec = spec.args(["--vault-url", &url, "--vault-token-file"]).arg(&token);
    let mut process = Process::start(stage.plane.run_directory(), spec).unwrap();
    let asked = timeout(SOON, silent.accept()).await.unwrap().unwrap();
    assert!(process.status().is_none(), "it ended by itself: {}", process.logged());
    process.terminate(GRACE).await.unwrap();
    drop(asked);
}
