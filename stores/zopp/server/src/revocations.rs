//! Tells open streams at once that their principal lost something. The period after which each stream asks by itself stays: a
//! change by another process tells nobody.

use std::sync::Arc;

use tokio::sync::broadcast;

/// Losses a slow stream may be behind before it asks without knowing whose they were.
const CAPACITY: usize = 64;

/// Where losses are announced. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct Revocations {
    sender: broadcast::Sender<Arc<[String]>>,
}

impl Default for Revocations {
    fn default() -> Self {
        Self { sender: broadcast::Sender::new(CAPACITY) }
    }
}

impl Revocations {
    /// Announces that these principals lost something.
    pub(crate) fn announce(&self, principal_ids: impl Into<Arc<[String]>>) {
        // An error means that there is no stream.
        let _ = self.sender.send(principal_ids.into());
    }

    /// The announcements from now on.
    pub(crate) fn subscribe(&self) -> Losses {
        Losses { receiver: self.sender.subscribe() }
    }
}

/// One stream's end.
#[derive(Debug)]
pub(crate) struct Losses {
    receiver: broadcast::Receiver<Arc<[String]>>,
}

impl Losses {
    /// Waits until the principal may have lost something. Safe to drop and call again.
    pub(crate) async fn of(&mut self, principal_id: &str) {
        loop {
            match self.receiver.recv().await {
                Ok(lost) if !lost.iter().any(|id| id == principal_id) => {}
                Ok(_) | Err(broadcast::error::RecvError::Lagged(_)) => return,
                // The server is going, which streams learn in another way.
                Err(broadcast::error::RecvError::Closed) => std::future::pending().await,
            }
        }
    }
}
