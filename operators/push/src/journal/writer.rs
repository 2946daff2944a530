//! The task that writes the journal: what comes within a moment, in one request.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Duration,
};

use k8s_openapi::{ByteString, api::core::v1::Secret};
use konverge_core::error::in_one_line;
use kube::{
    Api,
    api::{ObjectMeta, PostParams},
};
use tokio::{
    sync::{mpsc, oneshot},
    time::{Instant, sleep, timeout_at},
};

use super::{
    Intention, Journal, JournalError, LABEL, PREFIX, delete,
    entry::{ENTRIES, KEY, spell},
};
use crate::object::ObjectRef;

/// For so long at most others are waited for that come with the first. Each request for a batch takes the API server as long as several
/// reads, and each of those who wait is at work for longer than this anyway.
const GATHER: Duration = Duration::from_millis(60);

/// Where nobody came for so long, nobody is waited for any more.
const QUIET: Duration = Duration::from_millis(10);

/// So many make a batch at most: with long paths they are far from the 1 MiB that a Secret may have.
const MOST: usize = 500;

/// Before what could not be removed is removed again.
const RETRY: Duration = Duration::from_secs(30);

/// Something to be done.
pub(super) enum Order {
    Write(Waiting),
    /// Nothing is left of this batch.
    Remove(String),
}

/// An entry that somebody waits for.
pub(super) struct Waiting {
    pub(super) key: ObjectRef,
    pub(super) intention: Intention,
    /// Whether it is noted.
    pub(super) answer: oneshot::Sender<Result<bool, JournalError>>,
}

pub(super) struct Writer {
    api: Api<Secret>,
    journal: Journal,
    /// Tells the batches of this process from those of others.
    name: String,
    written: u64,
    /// Batches that are to be removed.
    gone: BTreeSet<String>,
}

impl Writer {
    pub(super) fn new(api: Api<Secret>, journal: Journal) -> Self {
        Self {
            api,
            journal,
            name: format!("{PREFIX}-{:08x}", rand::random::<u32>()),
            written: 0,
            gone: BTreeSet::new(),
        }
    }

    /// Carries out orders for ever. Orders with a waiting run come first.
    pub(super) async fn run(mut self, mut orders: mpsc::UnboundedReceiver<Order>) {
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

    fn take(&mut self, order: Order, waiting: &mut VecDeque<Waiting>) {
        match order {
            Order::Write(entry) => waiting.push_back(entry),
            Order::Remove(batch) => drop(self.gone.insert(batch)),
        }
    }

    /// Notes these together, and tells who waits.
    async fn write(&mut self, batch: Vec<Waiting>) {
        self.written += 1;
        let name = format!("{}-{}", self.name, self.written);
        let outcome = self.create(&name, &batch).await;
        match &outcome {
            Ok(true) => {
                let mut state = self.journal.state();
                for Waiting { key, intention, .. } in &batch {
                    state.note(&name, key.clone(), intention.clone());
                }
            }
            // It may be there all the same, and nobody counts on it.
            Err(_) => drop(self.gone.insert(name)),
            Ok(false) => {}
        }
        for Waiting { answer, .. } in batch {
            // The run that waited may have been cancelled.
            drop(answer.send(outcome.clone()));
        }
    }

    /// False is that there can be no journal, or that this does not fit in.
    async fn create(&self, name: &str, batch: &[Waiting]) -> Result<bool, JournalError> {
        let entries = spell(batch.iter().map(|waiting| &waiting.intention));
        let digest_key = ByteString(self.journal.0.digest_key.bytes().to_vec());
        let secret = Secret {
            metadata: ObjectMeta {
                name: Some(name.to_owned()),
                labels: Some(BTreeMap::from([(LABEL.to_owned(), "true".to_owned())])),
                ..ObjectMeta::default()
            },
            data: Some(BTreeMap::from([(KEY.to_owned(), digest_key), (ENTRIES.to_owned(), entries)])),
            immutable: Some(true),
            ..Secret::default()
        };
        let refused = match self.api.create(&PostParams::default(), &secret).await {
            Ok(_) => return Ok(true),
            Err(kube::Error::Api(status)) => status,
            Err(error) => return Err(JournalError::from(error)),
        };
        match refused.code {
            // The name is nobody else's: this is the answer to the same request, which was sent again.
            409 => return Ok(true),
            // It is not allowed, or there is no such namespace.
            403 | 404 => self.journal.refuse(&refused.message),
            // It is too large.
            413 | 422 => {}
            _ => return Err(JournalError::from(kube::Error::Api(refused))),
        }
        Ok(false)
    }

    /// Whether it is gone for sure.
    async fn remove(&self, batch: &str) -> bool {
        let deleted = delete(&self.api, batch).await;
        if let Err(error) = &deleted {
            tracing::debug!(
                batch,
                "what is noted of objects that bear it themselves stays for now: {}",
                in_one_line(error)
            );
        }
        deleted.is_ok()
    }
}
