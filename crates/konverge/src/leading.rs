//! Whether a controller works in this process yet.

use std::sync::Arc;

use tokio::sync::watch;

/// Set once the controller's caches are complete and this process leads, if replicas elect a leader. A lease that is lost ends the
/// program, so it is never taken back. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct Leading(Arc<watch::Sender<bool>>);

impl Default for Leading {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(false)))
    }
}

impl Leading {
    pub(crate) fn begin(&self) {
        self.0.send_replace(true);
    }

    pub(crate) fn has_begun(&self) -> bool {
        *self.0.borrow()
    }

    /// Returns once the controller works.
    pub(crate) async fn begun(&self) {
        // The sender lives as long as `self`, so this cannot fail.
        let _ = self.0.subscribe().wait_for(|begun| *begun).await;
    }
}
