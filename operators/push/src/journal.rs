//! The journal of intentions: the paths that the operator is about to write for many objects without a record, in a few Secrets of its
//! namespace.
//!
//! A path is recorded on its object before it is written for the first time, so that no crash leaves one in Vault that nobody knows of. With
//! many new objects at once, as at the first start in a cluster, that is one request for each before anything is in Vault. Here those
//! that come within a moment are noted together, in one request, and each object gets its record after, when there is time.
//!
//! The journal speaks of objects that bear no record, and of nothing else. An object that bears one, or that is gone and cleared after, goes
//! from the journal, and a batch with its last object; at rest there is none. After a crash, or when another replica takes over, what is there is
//! read before the first run, and each object that it names has a run.
//!
//! They are Secrets because of the digests in them: by those a write that was begun for an object that is gone can be told from what
//! somebody else wrote, and who may read their key can guess at short values. Where the operator may not make Secrets, as with the
//! original's role, each object gets its record first.

mod entry;
mod writer;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use k8s_openapi::api::core::v1::Secret;
use konverge_apply::read::list_all;
use konverge_core::digest::DigestKey;
use konverge_vault::{Content, Location};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, ListParams},
};
use tokio::sync::{OnceCell, mpsc, oneshot};

use entry::Entry;
pub use entry::Intention;
use writer::{Order, Waiting, Writer};

use crate::{object::ObjectRef, record::Record};

/// How the names of the Secrets begin.
pub const PREFIX: &str = "vault-sync-operator-intended";

/// The label that all of them have.
pub const LABEL: &str = "vault-sync.io/intended";

/// Secrets in one answer.
const PAGE: u32 = 50;

/// The journal cannot be read or written now.
#[derive(Debug, Clone, thiserror::Error)]
#[error("cannot note down in a Secret of the operator's namespace what is about to be written to Vault: {0}")]
pub struct JournalError(pub(crate) Arc<kube::Error>);

impl From<kube::Error> for JournalError {
    fn from(error: kube::Error) -> Self {
        Self(Arc::new(error))
    }
}

/// A handle; clones are handles to the same journal.
#[derive(Clone)]
pub struct Journal(Arc<Shared>);

struct Shared {
    api: Api<Secret>,
    state: Mutex<State>,
    orders: mpsc::UnboundedSender<Order>,
    recalled: OnceCell<()>,
    /// The key of this process for digests.
    digest_key: Arc<DigestKey>,
}

#[derive(Default)]
struct State {
    /// The intentions by object, each with its batch.
    noted: HashMap<ObjectRef, Vec<(String, Intention)>>,
    /// How many of a batch's objects are left.
    left: HashMap<String, usize>,
    /// Whether it cannot be used: it is not allowed, or there is no such namespace.
    refused: bool,
}

impl Journal {
    /// A journal in this namespace, which is the operator's own, and the task that writes it.
    pub fn new(client: Client, namespace: &str) -> (Self, impl Future<Output = ()> + Send + use<>) {
        let api = Api::namespaced(client, namespace);
        let (orders, ordered) = mpsc::unbounded_channel();
        let digest_key = Arc::new(DigestKey::new(rand::random()));
        let journal = Self(Arc::new(Shared {
            api: api.clone(),
            state: Mutex::default(),
            orders,
            recalled: OnceCell::new(),
            digest_key,
        }));
        (journal.clone(), Writer::new(api, journal).run(ordered))
    }

    /// Reads what was noted before this process led, once. Gives the objects that it speaks of, the first time.
    pub async fn recall(&self) -> Result<Vec<ObjectRef>, JournalError> {
        let mut found = Vec::new();
        self.0.recalled.get_or_try_init(|| async { self.read().await.map(|objects| found = objects) }).await?;
        Ok(found)
    }

    async fn read(&self) -> Result<Vec<ObjectRef>, JournalError> {
        let batches = match batches(&self.0.api).await {
            Err(kube::Error::Api(status)) if status.code == 403 => {
                self.refuse(&status.message);
                return Ok(Vec::new());
            }
            batches => batches?,
        };
        let mut state = self.state();
        Ok(batches.into_iter().flat_map(|batch| state.take(batch)).collect())
    }

    /// The intentions of the object, and of earlier objects with its name. Empty before [`recall`](Self::recall).
    pub fn about(&self, key: &ObjectRef) -> Vec<Intention> {
        let state = self.state();
        state.noted.get(key).into_iter().flatten().map(|(_, intention)| intention.clone()).collect()
    }

    /// Whether anything is noted of the object.
    pub fn speaks_of(&self, key: &ObjectRef) -> bool {
        self.state().noted.contains_key(key)
    }

    /// Notes the record of an object that bears none, and what is about to be written. It is there for sure when this gives true;
    /// false is that there can be no journal, or that this is not noted yet and is not worth while.
    pub async fn intend<'a>(
        &self,
        key: &ObjectRef,
        record: &Record,
        contents: impl IntoIterator<Item = (&'a Location, &'a Content)>,
        worth_while: bool,
    ) -> Result<bool, JournalError> {
        if self.state().refused || !worth_while && !self.speaks_of(key) {
            return Ok(false);
        }
        let digest_key = &self.0.digest_key;
        let entry = Entry::new(key, record, contents, digest_key);
        let is_noted = self.about(key).iter().any(|intention| intention.covers(&entry));
        if is_noted || !worth_while {
            return Ok(is_noted);
        }
        let intention = Intention::new(entry, Arc::clone(digest_key));
        let (answer, answered) = oneshot::channel();
        // Where the task has ended there is no answer.
        drop(self.0.orders.send(Order::Write(Waiting { key: key.clone(), intention, answer })));
        answered.await.unwrap_or(Ok(false))
    }

    /// The object bears its record, or is gone and nothing is left of it.
    pub fn resolve(&self, key: &ObjectRef) {
        let mut state = self.state();
        for batch in state.resolve(key) {
            drop(self.0.orders.send(Order::Remove(batch)));
        }
    }

    /// The intentions of earlier objects with the name are over, unless the record still has one of their paths.
    pub fn resolve_others(&self, key: &ObjectRef, record: &Record) {
        for batch in self.state().resolve_others(key, record) {
            drop(self.0.orders.send(Order::Remove(batch)));
        }
    }

    /// It cannot be used from now on. Said once.
    fn refuse(&self, cause: &str) {
        if !std::mem::replace(&mut self.state().refused, true) {
            tracing::info!(
                cause,
                "Secrets cannot be made in the operator's namespace: each object is written on before its first write to Vault; allow the \
                 service account to create and delete Secrets there to have a first sync of many quicker"
            );
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Takes all of the journal away, for an uninstall. Where it may not be touched there is none.
pub(crate) async fn erase(client: &Client) -> Result<(), JournalError> {
    let api = Api::<Secret>::default_namespaced(client.clone());
    let found = match batches(&api).await {
        Err(kube::Error::Api(status)) if status.code == 403 => return Ok(()),
        found => found?,
    };
    for batch in found {
        delete(&api, &batch.name_any()).await?;
    }
    Ok(())
}

/// All batches that there are.
async fn batches(api: &Api<Secret>) -> kube::Result<Vec<Secret>> {
    list_all(api, &ListParams::default().labels(LABEL).limit(PAGE)).await
}

/// Deletes a batch, if it is there still.
async fn delete(api: &Api<Secret>, batch: &str) -> kube::Result<()> {
    match api.delete(batch, &DeleteParams::default()).await {
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        deleted => deleted.map(drop),
    }
}

impl State {
    /// Takes over a batch of another process. Gives the objects that it speaks of.
    fn take(&mut self, batch: Secret) -> Vec<ObjectRef> {
        let name = batch.name_any();
        let Some(intentions) = entry::read(batch) else {
            tracing::warn!(
                "what the Secret {name} of the operator's namespace holds was not written by this program; it is left"
            );
            return Vec::new();
        };
        let mut objects = Vec::new();
        for intention in intentions {
            // A kind that this version does not know, of one after it.
            let Some(key) = intention.key() else { continue };
            self.note(&name, key.clone(), intention);
            objects.push(key);
        }
        objects
    }

    fn note(&mut self, batch: &str, key: ObjectRef, intention: Intention) {
        *self.left.entry(batch.to_owned()).or_default() += 1;
        self.noted.entry(key).or_default().push((batch.to_owned(), intention));
    }

    /// Gives the batches that nothing is left of.
    fn resolve(&mut self, key: &ObjectRef) -> Vec<String> {
        let gone = self.noted.remove(key).unwrap_or_default();
        self.leave(gone)
    }

    /// The same of intentions for others than the record's object, if none of their paths is in the record.
    fn resolve_others(&mut self, key: &ObjectRef, record: &Record) -> Vec<String> {
        let Some(noted) = self.noted.remove(key) else { return Vec::new() };
        let is_done = |(_, intention): &(String, Intention)| {
            let begun = intention.record();
            begun.uid != record.uid && !begun.paths.keys().any(|path| record.paths.contains_key(path))
        };
        let (gone, stay): (Vec<_>, Vec<_>) = noted.into_iter().partition(is_done);
        if !stay.is_empty() {
            self.noted.insert(key.clone(), stay);
        }
        self.leave(gone)
    }

    fn leave(&mut self, gone: Vec<(String, Intention)>) -> Vec<String> {
        let mut done = Vec::new();
        for (batch, _) in gone {
            let Some(left) = self.left.get_mut(&batch) else { continue };
            *left -= 1;
            if *left == 0 {
                self.left.remove(&batch);
                done.push(batch);
            }
        }
        done
    }
}

#[cfg(test)]
mod tests;
