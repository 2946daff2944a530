//! The audit rows that belong to no change (reads and refusals), written behind the request's back.
//!
//! Changes write their rows themselves, in their own transaction. These here go through a bounded queue, in batches, so that a
//! read costs no commit; when the queue is full the request waits, so that no row is lost. The queue is emptied at shutdown.

use tokio::{sync::mpsc, task::JoinHandle};
use tokio_util::sync::CancellationToken;

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
    /// Starts the writer. Once the calls are `finished` it takes nothing more, writes what it has, and ends.
    pub(crate) fn start(store: Store, finished: CancellationToken) -> (Self, JoinHandle<()>) {
        let (sender, receiver) = mpsc::channel(QUEUE);
        (Self { sender }, tokio::spawn(write(store, receiver, finished)))
    }

    /// Hands in a row; waits while the queue is full.
    pub(crate) async fn record(&self, row: AuditRow) {
        if self.sender.send(row).await.is_err() {
            tracing::error!("an audit row was lost: the writer is gone");
        }
    }
}

async fn write(store: Store, mut receiver: mpsc::Receiver<AuditRow>, finished: CancellationToken) {
    let mut rows = Vec::with_capacity(BATCH);
    loop {
        let count = tokio::select! {
            count = receiver.recv_many(&mut rows, BATCH) => count,
            () = finished.cancelled(), if !receiver.is_closed() => {
                receiver.close();
                continue;
            }
        };
        if count == 0 {
            return;
        }
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
