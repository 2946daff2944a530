//! The audit rows that belong to no change (reads and refusals), written behind the request's back.
//!
//! Changes write their rows themselves, in their own transaction. These here go through a bounded queue, in batches, so that a
//! read costs no commit; when the queue is full the request waits, so that no row is lost. The queue is emptied at shutdown.

use tokio::{sync::mpsc, task::JoinHandle};

use crate::store::{AuditRow, Store};

/// Rows waiting. At 300 bytes each a quarter of a megabyte.
const QUEUE: usize = 1024;
/// Rows per transaction at most.
const BATCH: usize = 256;

/// Where rows are handed in.
#[derive(Debug, Clone)]
pub(crate) struct AuditQueue {
    sender: mpsc::Sender<AuditRow>,
}

impl AuditQueue {
    /// Starts the writer. It ends, with everything written, when the last clone of the queue is gone.
    pub(crate) fn start(store: Store) -> (Self, JoinHandle<()>) {
        let (sender, receiver) = mpsc::channel(QUEUE);
        (Self { sender }, tokio::spawn(write(store, receiver)))
    }

    /// Hands in a row; waits while the queue is full.
    pub(crate) async fn record(&self, row: AuditRow) {
        if self.sender.send(row).await.is_err() {
            tracing::error!("an audit row was lost: the writer is gone");
        }
    }
}

async fn write(store: Store, mut receiver: mpsc::Receiver<AuditRow>) {
    let mut rows = Vec::with_capacity(BATCH);
    while receiver.recv_many(&mut rows, BATCH).await > 0 {
        if let Err(error) = store.record(&rows).await {
            tracing::error!(
                error = &error as &dyn std::error::Error,
                rows = rows.len(),
                "audit rows of reads and refusals could not be written"
            );
        }
        rows.clear();
    }
}
