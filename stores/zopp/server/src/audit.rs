//! The audit rows that belong to no change (reads and refusals). A request does not wait for its row.
//!
//! Changes write their rows themselves, in their own transaction. These here go through a bounded queue, in batches, so that a
//! read costs no commit. If the queue is full, the request waits, so a running server drops no row. A batch waits for more
//! rows for `GATHER`; a crash loses the rows that are not committed yet. The queue is emptied at shutdown.
//! While the database takes no changes, as on a full disk, reads go on: the last `KEPT` rows wait in memory, and the metrics count those that are
//! lost.
//!
//! Rows that say the same again are folded into one (module `fold`): polls of operators and repeated refusals would bury the rest.
//! On request ([`AuditOptions::required`]) a read waits until its row is on disk, and fails if it cannot be written.

mod fold;
pub(crate) mod row;

use std::time::Duration;

use tokio::{
    sync::{mpsc, oneshot},
    task::JoinHandle,
    time::{Instant, MissedTickBehavior, interval, sleep_until},
};
use tokio_util::sync::CancellationToken;

use self::fold::Fold;
use crate::{
    clock,
    metrics::Metrics,
    store::{AuditRow, AuditWrite, Outcome, Store, StoreError},
};

/// Rows waiting. At 300 bytes each a quarter of a megabyte.
const QUEUE: usize = 1024;
/// Rows that wait for a database that takes no changes at the moment.
const KEPT: usize = 1024;
/// Rows per transaction at most.
const BATCH: usize = 256;
/// How long a batch waits for more rows. Each batch is a commit, which costs the database more than the reads that it tells of.
const GATHER: Duration = Duration::from_millis(20);
/// How often the counts of folded rows are written. A crash loses the counts of so long.
const FLUSH: Duration = Duration::from_secs(10);
/// How often rows that are too old are deleted.
const PRUNE: Duration = Duration::from_hours(1);
/// Rows deleted per transaction: others wait for it.
const PRUNE_BATCH: u32 = 1000;

/// Which rows about reads and refusals are kept, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct AuditOptions {
    /// Fail a read whose row cannot be written.
    pub required: bool,
    /// Equal reads of a service within this period share a row. Zero gives each its own.
    pub fold: Duration,
    /// Delete rows that are older.
    pub retention: Option<Duration>,
}

impl AuditOptions {
    /// The usual [`AuditOptions::fold`].
    pub const FOLD: Duration = Duration::from_hours(1);
}

impl Default for AuditOptions {
    fn default() -> Self {
        Self { required: false, fold: Self::FOLD, retention: None }
    }
}

/// A row on its way to the writer.
#[derive(Debug)]
struct Handed {
    row: AuditRow,
    /// Unix milliseconds.
    at: i64,
    /// Told whether the row was written.
    written: Option<oneshot::Sender<()>>,
}

/// Where rows are handed in.
#[derive(Debug, Clone)]
pub(crate) struct AuditQueue {
    sender: mpsc::Sender<Handed>,
    required: bool,
}

/// The row of a read could not be written, and the read must not happen without it.
#[derive(Debug)]
pub(crate) struct Unrecorded;

impl AuditQueue {
    /// Starts the writer. Once the calls are `finished` it takes nothing more, writes what it has, and ends.
    pub(crate) fn start(
        store: Store,
        options: AuditOptions,
        metrics: Metrics,
        finished: CancellationToken,
    ) -> (Self, JoinHandle<()>) {
        let (sender, receiver) = mpsc::channel(QUEUE);
        if let Some(retention) = options.retention {
            tokio::spawn(prune(store.clone(), retention, finished.clone()));
        }
        let fold = Fold::new(options.fold);
        let writer = Writer { store, metrics, fold, waiting: Vec::new(), required: options.required };
        (Self { sender, required: options.required }, tokio::spawn(writer.run(receiver, finished)))
    }

    /// Hands in a row; waits while the queue is full.
    pub(crate) async fn record(&self, row: AuditRow) -> Result<(), Unrecorded> {
        let (told, written) = oneshot::channel();
        // A refusal shows nothing, so it need not wait.
        let must_wait = self.required && row.outcome == Outcome::Success;
        let handed = Handed { row, at: clock::now_milliseconds(), written: must_wait.then_some(told) };
        if self.sender.send(handed).await.is_err() {
            tracing::error!("an audit row was lost: the writer is gone");
            return if must_wait { Err(Unrecorded) } else { Ok(()) };
        }
        if must_wait { written.await.map_err(|_| Unrecorded) } else { Ok(()) }
    }
}

struct Writer {
    store: Store,
    metrics: Metrics,
    fold: Fold,
    /// Could not be written yet.
    waiting: Vec<AuditWrite>,
    /// A read fails if its row cannot be written, and counts are written with every batch.
    required: bool,
}

impl Writer {
    async fn run(mut self, mut receiver: mpsc::Receiver<Handed>, finished: CancellationToken) {
        let mut flush = interval(FLUSH);
        flush.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut handed = Vec::with_capacity(BATCH);
        loop {
            let count = tokio::select! {
                count = receiver.recv_many(&mut handed, BATCH) => count,
                _ = flush.tick() => {
                    let counts = self.fold.take_counts();
                    self.write(counts).await;
                    continue;
                }
                () = finished.cancelled(), if !receiver.is_closed() => {
                    receiver.close();
                    continue;
                }
            };
            if count == 0 {
                let counts = self.fold.take_counts();
                self.write(counts).await;
                return;
            }
            // Nobody waits for these rows.
            if !self.required {
                gather(&mut receiver, &mut handed, &finished).await;
            }
            let (mut writes, mut waiting) = (Vec::with_capacity(handed.len()), Vec::new());
            for Handed { row, at, written } in handed.drain(..) {
                writes.extend(self.fold.admit(row, at));
                waiting.extend(written);
            }
            if self.required {
                writes.extend(self.fold.take_counts());
            }
            if self.write(writes).await {
                for told in waiting {
                    // A caller that hung up waits no more.
                    let _ = told.send(());
                }
            }
        }
    }

    /// Writes what waits and these. Returns whether all was written.
    async fn write(&mut self, writes: Vec<AuditWrite>) -> bool {
        self.waiting.extend(writes);
        if self.waiting.is_empty() {
            return true;
        }
        let Err(error) = self.store.record(&self.waiting).await else {
            self.waiting.clear();
            return true;
        };
        // A read that failed for this must not be on record as one that was shown. And a row that the database refuses would hold up all others.
        let rest = if self.required || !matches!(error, StoreError::Outage(_)) { 0 } else { KEPT };
        let lost = self.waiting.len().saturating_sub(rest);
        self.waiting.drain(..lost);
        tracing::error!(
            error = &error as &dyn std::error::Error,
            lost,
            waiting = self.waiting.len(),
            "audit rows of reads and refusals could not be written"
        );
        if lost > 0 {
            self.metrics.audit_rows_lost(lost);
            // Counts of rows that are not there would count for nothing.
            self.fold.forget();
        }
        false
    }
}

/// Adds the rows that come soon, up to a whole batch.
async fn gather(receiver: &mut mpsc::Receiver<Handed>, handed: &mut Vec<Handed>, finished: &CancellationToken) {
    let until = Instant::now() + GATHER;
    while handed.len() < BATCH {
        let room = BATCH - handed.len();
        tokio::select! {
            count = receiver.recv_many(handed, room) => if count == 0 { return },
            () = sleep_until(until) => return,
            () = finished.cancelled() => return,
        }
    }
}

/// Deletes rows that are older than `retention`, now and every hour.
async fn prune(store: Store, retention: Duration, finished: CancellationToken) {
    let mut period = interval(PRUNE);
    period.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let retention = i64::try_from(retention.as_millis()).unwrap_or(i64::MAX);
    loop {
        tokio::select! {
            _ = period.tick() => {}
            () = finished.cancelled() => return,
        }
        let before = clock::now_milliseconds().saturating_sub(retention);
        loop {
            match store.delete_audit_before(before, PRUNE_BATCH).await {
                Ok(deleted) if deleted == u64::from(PRUNE_BATCH) && !finished.is_cancelled() => {}
                Ok(_) => break,
                Err(error) => {
                    tracing::error!(error = &error as &dyn std::error::Error, "old audit rows could not be deleted");
                    break;
                }
            }
        }
    }
}
