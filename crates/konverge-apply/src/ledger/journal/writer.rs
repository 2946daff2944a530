//! The task that writes the journal: intentions that come within a moment, in one request.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Duration,
};

use k8s_openapi::api::core::v1::Secret;
use konverge_core::error::in_one_line;
use kube::api::{ObjectMeta, PostParams};
use tokio::{
    sync::{mpsc, oneshot},
    time::{Instant, sleep, timeout_at},
};

use super::{Intention, Journal, JournalError, delete};

/// How long the first intention waits for others at most. Each request for a batch takes the API server as long as several reads, and each run
/// that waits is at work for longer than this anyway.
const GATHER: Duration = Duration::from_millis(60);

/// After this long without another intention, the batch waits no longer.
const QUIET: Duration = Duration::from_millis(10);

/// The most intentions of a batch. Even with long paths they are far from the 1 MiB that a Secret may have.
const MOST: usize = 500;

/// The pause before the next attempt to remove a batch.
const RETRY: Duration = Duration::from_secs(30);

/// A task of the writer.
pub(super) enum Order<I: Intention> {
    Write(Waiting<I>),
    /// Nothing is left of this batch.
    Remove(String),
}

/// An intention that a run waits for.
pub(super) struct Waiting<I: Intention> {
    pub(super) key: I::Key,
    pub(super) intention: I,
    /// Whether it is noted.
    pub(super) answer: oneshot::Sender<Result<bool, JournalError>>,
}

pub(super) struct Writer<I: Intention> {
    journal: Journal<I>,
    written: u64,
    /// Batches that are to be removed.
    gone: BTreeSet<String>,
}

impl<I: Intention> Writer<I> {
    pub(super) fn new(journal: Journal<I>) -> Self {
        Self { journal, written: 0, gone: BTreeSet::new() }
    }

    /// Carries out orders, for ever. Orders with a waiting run come first.
    pub(super) async fn run(mut self, mut orders: mpsc::UnboundedReceiver<Order<I>>) {
        let mut waiting = VecDeque::new();
        loop {
            while let Ok(order) = orders.try_recv() {
                self.take(order, &mut waiting);
            }
            if !waiting.is_empty() {
                let until = Instant::now() + GATHER;
                while waiting.len() < MOST
                    && let Ok(Some(order)) = timeout_at(until.min(Instant::now() + QUIET), orders.recv()).await
                {
                    self.take(order, &mut waiting);
                }
                let batch = waiting.drain(..waiting.len().min(MOST)).collect();
                self.write(batch).await;
            } else if let Some(batch) = self.gone.first().cloned()
                && self.remove(&batch).await
            {
                self.gone.remove(&batch);
            } else {
                let order = tokio::select! {
                    order = orders.recv() => order,
                    () = sleep(RETRY), if !self.gone.is_empty() => continue,
                };
                match order {
                    Some(order) => self.take(order, &mut waiting),
                    None => return,
                }
            }
        }
    }

    fn take(&mut self, order: Order<I>, waiting: &mut VecDeque<Waiting<I>>) {
        match order {
            Order::Write(entry) => waiting.push_back(entry),
            Order::Remove(batch) => drop(self.gone.insert(batch)),
        }
    }

    /// Writes these together, and answers the runs that wait.
    async fn write(&mut self, batch: Vec<Waiting<I>>) {
        self.written += 1;
        let name = format!("{}-{}", self.journal.0.options.prefix, self.written);
        let intentions: Vec<I> = batch.iter().map(|waiting| waiting.intention.clone()).collect();
        let outcome = self.create(&name, &intentions).await;
        match &outcome {
            Ok(true) => {
                let mut state = self.journal.state();
                for Waiting { key, intention, .. } in &batch {
                    state.add(&name, key.clone(), intention.clone());
                }
            }
            // It may exist all the same, and nobody counts on it.
            Err(_) => drop(self.gone.insert(name)),
            Ok(false) => {}
        }
        for Waiting { answer, .. } in batch {
            // The run that waited may have been cancelled.
            drop(answer.send(outcome.clone()));
        }
    }

    /// Returns `false` if there can be no journal, or if the batch does not fit into a Secret.
    async fn create(&self, name: &str, batch: &[I]) -> Result<bool, JournalError> {
        let secret = Secret {
            metadata: ObjectMeta {
                name: Some(name.to_owned()),
                labels: Some(BTreeMap::from([(self.journal.0.options.label.to_owned(), "true".to_owned())])),
                ..ObjectMeta::default()
            },
            data: Some(I::encode(batch)),
            immutable: Some(true),
            ..Secret::default()
        };
        let refused = match self.journal.0.api.create(&PostParams::default(), &secret).await {
            Ok(_) => return Ok(true),
            Err(kube::Error::Api(status)) => status,
            Err(error) => return Err(JournalError::from(error)),
        };
        match refused.code {
            // No other process uses the name: this answers the same request, which was sent again.
            409 => return Ok(true),
            // It is not allowed, or there is no such namespace.
            403 | 404 => self.journal.refuse(&refused.message),
            // It is too large.
            413 | 422 => {}
            _ => return Err(JournalError::from(kube::Error::Api(refused))),
        }
        Ok(false)
    }

    /// Returns whether the batch is gone for sure.
    async fn remove(&self, batch: &str) -> bool {
        let deleted = delete(&self.journal.0.api, batch).await;
        if let Err(error) = &deleted {
            tracing::debug!(
                batch,
                "the batch stays for now, though each of its objects bears a record: {}",
                in_one_line(error)
            );
        }
        deleted.is_ok()
    }
}
