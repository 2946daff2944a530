//! The engine against a real API server.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests fail by panicking")]

mod client;
mod http;
mod lease;
mod manager_group;
mod metrics_server;
mod process;
mod selector;
mod watch;

use konverge_runtime::Metrics;
use konverge_testkit::{ControlPlane, Options};
use tokio::sync::OnceCell;

/// One for all tests that do not stop it; it ends with the process.
async fn control_plane() -> &'static ControlPlane {
    static CONTROL_PLANE: OnceCell<ControlPlane> = OnceCell::const_new();
    CONTROL_PLANE.get_or_init(|| async { ControlPlane::start(Options::default()).await.unwrap() }).await
}

/// How many requests a client with these metrics has had an answer to. A watch is one request.
fn requests(metrics: &Metrics) -> u64 {
    let text = metrics.encode().unwrap();
    let counts = text.lines().filter(|line| line.starts_with("rest_client_requests_total{"));
    counts.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum()
}
