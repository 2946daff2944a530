//! The journal of intentions: what a process is about to write outside for many objects without a record, in a few Secrets.
//!
//! An intention is recorded on its object before the first write outside, so that no crash leaves something outside that nobody knows of. With
//! many new objects at once, as at the first start in a cluster, that is one request for each before anything is written. The journal
//! writes intentions that come within a moment together, in one request, and each object gets its record later.
//!
//! The journal speaks of objects that bear no record, and of nothing else. An object leaves the journal once it bears a record, or once it is
//! gone and cleared. A batch goes with its last object, so there is none at rest. After a crash or a failover, the next process reads the
//! journal before its first run and runs each object in it.
//!
//! The batches are Secrets, because an intention may carry digests together with their key.

mod writer;

use std::{
    collections::{BTreeMap, HashMap},
    hash::Hash,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use k8s_openapi::{ByteString, api::core::v1::Secret};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams},
};
use tokio::sync::{OnceCell, mpsc, oneshot};

use self::writer::{Order, Waiting, Writer};
use crate::read::list_all;

/// Secrets in one response.
const PAGE: u32 = 50;

/// The data of one batch.
pub type BatchData = BTreeMap<String, ByteString>;

/// The intention to write outside for one object.
pub trait Intention: Clone + Send + Sync + 'static {
    /// Names an object.
    type Key: Clone + Eq + Hash + Send + Sync + 'static;

    /// Returns the object. `None` if this version of the program does not know its kind.
    fn key(&self) -> Option<Self::Key>;

    /// Returns the data of a batch with these intentions.
    fn encode(batch: &[Self]) -> BatchData;

    /// Returns the intentions of a batch. `None` if this program did not write it.
    fn decode(data: BatchData) -> Option<Vec<Self>>;
}

/// The journal cannot be read or written now.
#[derive(Debug, Clone, thiserror::Error)]
#[error(transparent)]
pub struct JournalError(pub Arc<kube::Error>);

impl From<kube::Error> for JournalError {
    fn from(error: kube::Error) -> Self {
        Self(Arc::new(error))
    }
}

/// The names and texts of a journal.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct JournalOptions {
    /// How the names of this process's Secrets begin. No other process may use the same.
    pub prefix: String,
    /// The label of all Secrets of the journal.
    pub label: &'static str,
    /// The log line if the process may not create Secrets: the consequence and the next step.
    pub refused: &'static str,
}

impl JournalOptions {
    /// All of them; see the fields.
    #[must_use]
    pub fn new(prefix: impl Into<String>, label: &'static str, refused: &'static str) -> Self {
        Self { prefix: prefix.into(), label, refused }
    }
}

/// A handle to the journal. Clones are handles to the same journal.
pub struct Journal<I: Intention>(Arc<Shared<I>>);

struct Shared<I: Intention> {
    api: Api<Secret>,
    options: JournalOptions,
    state: Mutex<State<I>>,
    orders: mpsc::UnboundedSender<Order<I>>,
    recalled: OnceCell<()>,
}

struct State<I: Intention> {
    /// The intentions by object, each with its batch.
    noted: HashMap<I::Key, Vec<(String, I)>>,
    /// How many of a batch's intentions are left.
    left: HashMap<String, usize>,
    /// Whether the journal cannot be used: it is not allowed, or there is no such namespace.
    refused: bool,
}

impl<I: Intention> Clone for Journal<I> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<I: Intention> Default for State<I> {
    fn default() -> Self {
        Self { noted: HashMap::new(), left: HashMap::new(), refused: false }
    }
}

impl<I: Intention> Journal<I> {
    /// A journal in the namespace of `api`, and the task that writes it.
    pub fn new(api: Api<Secret>, options: JournalOptions) -> (Self, impl Future<Output = ()> + Send + use<I>) {
        let (orders, ordered) = mpsc::unbounded_channel();
        let shared = Shared { api, options, state: Mutex::default(), orders, recalled: OnceCell::new() };
        let journal = Self(Arc::new(shared));
        (journal.clone(), Writer::new(journal).run(ordered))
    }

    /// Reads the intentions of earlier processes, once. Returns their objects, the first time.
    pub async fn recall(&self) -> Result<Vec<I::Key>, JournalError> {
        let mut found = Vec::new();
        self.0.recalled.get_or_try_init(|| async { self.read().await.map(|objects| found = objects) }).await?;
        Ok(found)
    }

    async fn read(&self) -> Result<Vec<I::Key>, JournalError> {
        let batches = match batches(&self.0.api, self.0.options.label).await {
            Err(kube::Error::Api(status)) if status.code == 403 => {
                self.refuse(&status.message);
                return Ok(Vec::new());
            }
            batches => batches?,
        };
        let mut state = self.state();
        Ok(batches.into_iter().flat_map(|batch| state.take(batch)).collect())
    }

    /// Returns the intentions for the object, and for earlier objects with its name. Empty before [`recall`](Self::recall).
    pub fn about(&self, key: &I::Key) -> Vec<I> {
        let state = self.state();
        state.noted.get(key).into_iter().flatten().map(|(_, intention)| intention.clone()).collect()
    }

    /// Returns whether the journal holds an intention for the object.
    pub fn speaks_of(&self, key: &I::Key) -> bool {
        self.state().noted.contains_key(key)
    }

    /// Returns whether the journal cannot be used: it is not allowed, or there is no such namespace.
    pub fn is_refused(&self) -> bool {
        self.state().refused
    }

    /// Writes an intention into the journal. Returns `true` once it is stored, and `false` if the journal cannot hold it.
    pub async fn note(&self, key: I::Key, intention: I) -> Result<bool, JournalError> {
        let (answer, answered) = oneshot::channel();
        // If the task has ended, there is no answer.
        drop(self.0.orders.send(Order::Write(Waiting { key, intention, answer })));
        answered.await.unwrap_or(Ok(false))
    }

    /// The object bears its record, or is gone and nothing is left of it.
    pub fn resolve(&self, key: &I::Key) {
        self.resolve_where(key, |_| true);
    }

    /// Those of the object's intentions are over for which `is_over`.
    pub fn resolve_where(&self, key: &I::Key, is_over: impl Fn(&I) -> bool) {
        for batch in self.state().resolve_where(key, is_over) {
            drop(self.0.orders.send(Order::Remove(batch)));
        }
    }

    /// Deletes the whole journal, for an uninstall. Without the permission to read it there is none.
    pub async fn erase(api: &Api<Secret>, label: &str) -> Result<(), JournalError> {
        let found = match batches(api, label).await {
            Err(kube::Error::Api(status)) if status.code == 403 => return Ok(()),
            found => found?,
        };
        for batch in found {
            delete(api, &batch.name_any()).await?;
        }
        Ok(())
    }

    /// The journal cannot be used from now on. Logged once.
    fn refuse(&self, cause: &str) {
        if !std::mem::replace(&mut self.state().refused, true) {
            tracing::info!(cause, "{}", self.0.options.refused);
        }
    }

    fn state(&self) -> MutexGuard<'_, State<I>> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn batches(api: &Api<Secret>, label: &str) -> kube::Result<Vec<Secret>> {
    list_all(api, &ListParams::default().labels(label).limit(PAGE)).await
}

/// Deletes a batch, if it still exists.
async fn delete(api: &Api<Secret>, batch: &str) -> kube::Result<()> {
    match api.delete(batch, &DeleteParams::default()).await {
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        deleted => deleted.map(drop),
    }
}

impl<I: Intention> State<I> {
    /// Takes over a batch of another process. Returns the objects of its intentions.
    fn take(&mut self, batch: Secret) -> Vec<I::Key> {
        let name = batch.name_any();
        let Some(intentions) = I::decode(batch.data.unwrap_or_default()) else {
            tracing::warn!(
                "the Secret {name} of the operator's namespace was not written by this program; its content is ignored"
            );
            return Vec::new();
        };
        let mut objects = Vec::new();
        for intention in intentions {
            // A later version may have written it, for a kind that this version does not know.
            let Some(key) = intention.key() else { continue };
            self.add(&name, key.clone(), intention);
            objects.push(key);
        }
        objects
    }

    fn add(&mut self, batch: &str, key: I::Key, intention: I) {
        *self.left.entry(batch.to_owned()).or_default() += 1;
        self.noted.entry(key).or_default().push((batch.to_owned(), intention));
    }

    /// Forgets those of the object's intentions that are over. Returns the batches of which nothing is left.
    fn resolve_where(&mut self, key: &I::Key, is_over: impl Fn(&I) -> bool) -> Vec<String> {
        let Some(noted) = self.noted.remove(key) else { return Vec::new() };
        let (over, rest): (Vec<_>, Vec<_>) = noted.into_iter().partition(|(_, intention)| is_over(intention));
        if !rest.is_empty() {
            self.noted.insert(key.clone(), rest);
        }
        let mut done = Vec::new();
        for (batch, _) in over {
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
mod tests {
    use kube::api::ObjectMeta;

    use super::*;

    /// The object and the process that noted it.
    #[derive(Debug, Clone, PartialEq, Eq)]
    struct Noted(String, u8);

    impl Intention for Noted {
        type Key = String;

        fn key(&self) -> Option<String> {
            Some(self.0.clone()).filter(|name| name != "unknown")
        }

        fn encode(batch: &[Self]) -> BatchData {
            batch.iter().map(|Noted(name, process)| (name.clone(), ByteString(vec![*process]))).collect()
        }

        fn decode(data: BatchData) -> Option<Vec<Self>> {
            data.into_iter().map(|(name, process)| Some(Noted(name, *process.0.first()?))).collect()
        }
    }

    fn noted(name: &str, process: u8) -> Noted {
        Noted(name.to_owned(), process)
    }

    fn state(batches: &[(&str, Noted)]) -> State<Noted> {
        let mut state = State::default();
        for (batch, intention) in batches {
            state.add(batch, intention.0.clone(), intention.clone());
        }
        state
    }

    #[test]
    fn a_batch_goes_with_the_last_of_its_objects() {
        // The second is noted again by another process, for a later object with its name.
        let mut state = state(&[("one", noted("a", 1)), ("one", noted("b", 1)), ("two", noted("b", 2))]);
        let (a, b) = ("a".to_owned(), "b".to_owned());
        assert_eq!(state.resolve_where(&b, |_| true), ["two"]);
        assert_eq!(state.resolve_where(&b, |_| true), [""; 0], "it was resolved already");
        assert_eq!(state.resolve_where(&a, |_| true), ["one"]);
        assert!(state.left.is_empty() && state.noted.is_empty());
    }

    #[test]
    fn an_intention_that_is_not_over_stays_with_its_batch() {
        let mut state = state(&[("one", noted("a", 1)), ("two", noted("a", 2)), ("three", noted("a", 3))]);
        let a = "a".to_owned();
        assert_eq!(state.resolve_where(&a, |Noted(_, process)| *process == 1), ["one"]);
        assert_eq!(state.noted[&a].iter().map(|(batch, _)| &**batch).collect::<Vec<_>>(), ["two", "three"]);
        assert_eq!(state.resolve_where(&a, |_| true), ["two", "three"]);
        assert!(state.left.is_empty() && state.noted.is_empty());
    }

    #[test]
    fn a_batch_of_another_process_is_taken_over_whole() {
        let batch = |data: Option<BatchData>| Secret {
            metadata: ObjectMeta { name: Some("one".to_owned()), ..ObjectMeta::default() },
            data,
            ..Secret::default()
        };
        let mut state = State::<Noted>::default();
        let written = Noted::encode(&[noted("a", 1), noted("b", 1), noted("unknown", 1)]);
        assert_eq!(state.take(batch(Some(written))), ["a", "b"]);
        assert_eq!(state.resolve_where(&"a".to_owned(), |_| true), [""; 0]);
        assert_eq!(state.resolve_where(&"b".to_owned(), |_| true), ["one"]);
        let foreign = BTreeMap::from([("a".to_owned(), ByteString(Vec::new()))]);
        assert_eq!(state.take(batch(Some(foreign))), [""; 0]);
        assert!(state.left.is_empty(), "another program wrote it");
    }
}
