//! Sources against real servers: HTTP in this process, the API server and an S3 server beside it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests fail by panicking")]

mod api_server;
mod config_map;
mod http;
mod http_memory;
mod http_redirects;
mod long_poll;
mod objects;
mod s3;
mod secrecy;
mod server;
mod sse;
mod tls;

use std::time::Duration;

use futures::StreamExt;
use konverge_external::{Change, Changes, Health, Options};

/// Fast enough for a test, and slow enough to tell pauses from none.
const INTERVAL: Duration = Duration::from_millis(20);

/// The time limit of every wait in these tests.
const SOON: Duration = Duration::from_secs(60);

fn options() -> Options {
    Options::every(INTERVAL).longest_pause(INTERVAL * 4)
}

async fn next<T>(changes: &mut Changes<T>) -> Change<T> {
    tokio::time::timeout(SOON, changes.next()).await.expect("a change in time").expect("the stream goes on")
}

/// Keeps watching until the condition holds; no change may come meanwhile.
async fn quiet_until<T: std::fmt::Debug>(changes: &mut Changes<T>, mut holds: impl FnMut() -> bool) {
    let condition = konverge_testkit::eventually(SOON, || std::future::ready(holds().then_some(())));
    tokio::select! {
        change = changes.next() => panic!("a change that should not be: {change:?}"),
        held = condition => held.unwrap(),
    }
}

/// Waits until polls have failed since the last success, and says how.
async fn failing<T: std::fmt::Debug>(changes: &mut Changes<T>, health: &Health) -> String {
    quiet_until(changes, || health.failures() > 0).await;
    health.last_error().expect("a failure has a text")
}

/// Waits until a poll has failed with this in its text.
async fn failing_with<T: std::fmt::Debug>(changes: &mut Changes<T>, health: &Health, text: &str) {
    quiet_until(changes, || health.last_error().is_some_and(|error| error.contains(text))).await;
}
