//! Whether Vault serves and accepts our login: for the readiness of the process, and to wake failed objects after an outage.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use konverge_core::error::in_one_line;
use konverge_runtime::{Priority, Queue};
use konverge_vault::Vault;
use tokio::time::sleep;

use crate::{bindings::Bindings, object::ObjectRef, watch::RECOVERED};

/// The pause between two requests.
const EVERY: Duration = Duration::from_secs(2);

/// Knows whether Vault works. Clones know the same.
#[derive(Debug, Clone)]
pub(crate) struct Reachability(Arc<Mutex<Result<(), String>>>);

impl Default for Reachability {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(Err("Vault was not asked yet".to_owned()))))
    }
}

impl Reachability {
    /// For [`Checks::readiness`](konverge_runtime::checks::Checks::readiness).
    pub(crate) fn check(&self) -> Result<(), String> {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Result<(), String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks for ever. When Vault works again, queues all objects whose last run failed.
    pub(crate) async fn run(self, vault: Vault, bindings: Arc<Bindings>, queue: Queue<ObjectRef>) {
        loop {
            let now = look(&vault).await;
            let before = std::mem::replace(&mut *self.lock(), now.clone());
            match (before, now) {
                (Err(_), Ok(())) => {
                    tracing::info!("Vault can be worked with");
                    for key in bindings.failing() {
                        queue.add(key, Priority::Normal, RECOVERED);
                    }
                }
                (before, Err(why)) if before.as_ref() != Err(&why) => tracing::warn!("{why}"),
                _ => {}
            }
            sleep(EVERY).await;
        }
    }
}

/// Vault serves, and there is a token.
async fn look(vault: &Vault) -> Result<(), String> {
    let health = vault.health().await.map_err(|error| in_one_line(&error))?;
    if !health.initialized || health.sealed {
        let state = if health.initialized { "sealed" } else { "not initialised" };
        return Err(format!("Vault is {state}; what is in the cluster is pushed when it is unsealed"));
    }
    vault.log_in().await.map_err(|error| in_one_line(&error))
}
