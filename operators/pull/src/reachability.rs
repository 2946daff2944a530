//! Whether the zopp server is there, for readiness.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use konverge_zopp_client::Connection;

/// The answer of `/readyz` is at most this much older than the server's last answer.
const INTERVAL: Duration = Duration::from_secs(1);

/// The server's last answer. Clones look at the same one.
#[derive(Clone)]
pub(crate) struct Reachability(Arc<Mutex<Result<(), String>>>);

impl Default for Reachability {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(Err("the server was not asked yet".to_owned()))))
    }
}

impl Reachability {
    /// The check: what the server said last, or why it said nothing.
    pub(crate) fn check(&self) -> Result<(), String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Asks the server's own health check, for ever.
    pub(crate) async fn run(self, connection: Connection) {
        loop {
            let answer = match connection.is_serving().await {
                Ok(true) => Ok(()),
                Ok(false) => Err("the server says that it is not serving".to_owned()),
                Err(error) => Err(error.to_string()),
            };
            *self.0.lock().unwrap_or_else(PoisonError::into_inner) = answer;
            tokio::time::sleep(INTERVAL).await;
        }
    }
}
