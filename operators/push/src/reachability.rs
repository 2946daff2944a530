//! Whether Vault serves and accepts our login: for the readiness of the process, and to wake failed objects after an outage.

use std::{sync::Arc, time::Duration};

use konverge_core::error::in_one_line;
use konverge_runtime::{Priority, Queue, checks::Probe};
use konverge_vault::Vault;
use tokio::time::sleep;

use crate::{bindings::Bindings, object::ObjectRef, watch::RECOVERED};

/// The pause between two requests.
const EVERY: Duration = Duration::from_secs(2);

/// Asks for ever. When Vault works again, queues all objects whose last run failed.
pub(crate) async fn follow(vault: Vault, probe: Probe, bindings: Arc<Bindings>, queue: Queue<ObjectRef>) {
    loop {
        let now = look(&vault).await;
        match (probe.replace(now.clone()), now) {
            (Err(_), Ok(())) => {
                tracing::info!("Vault can be worked with");
                queue.add_all(bindings.failing(), Priority::Normal, RECOVERED);
            }
            (before, Err(why)) if before.as_ref() != Err(&why) => tracing::warn!("{why}"),
            _ => {}
        }
        sleep(EVERY).await;
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
