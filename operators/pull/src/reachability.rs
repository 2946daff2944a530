//! Whether the zopp server is there, for readiness.

use std::time::Duration;

use konverge_runtime::checks::Probe;
use konverge_zopp_client::Connection;

/// The answer of `/readyz` is at most this much older than the server's last answer.
const INTERVAL: Duration = Duration::from_secs(1);

/// Asks the server's own health check, for ever.
pub(crate) async fn follow(connection: Connection, probe: Probe) {
    loop {
        drop(probe.replace(match connection.is_serving().await {
            Ok(true) => Ok(()),
            Ok(false) => Err("the server says that it is not serving".to_owned()),
            Err(error) => Err(error.to_string()),
        }));
        tokio::time::sleep(INTERVAL).await;
    }
}
