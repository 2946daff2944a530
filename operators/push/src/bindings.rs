//! The objects that ask for a push, from what the watches show of them, and the Secrets that they name. Nothing about any other object
//! is kept, and of Secrets nothing but their versions.

mod claims;
mod selections;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use jiff::Timestamp;
use konverge_core::digest::ContentDigest;
use konverge_vault::{PathError, SecretPath};
use tokio::time::Instant;

use crate::{
    asked::{Asked, Invalid},
    desired::Wanted,
    messages::Message,
    object::{Kind, ObjectRef, SecretRef},
    record::Record,
    vault_push::SECRET,
};
use claims::Claims;
pub use claims::{Share, key_of};
use selections::{Selections, Told};

/// What an object asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Asking {
    /// Nothing any more, but it has our finalizer: what was written for it is to be cleared.
    Nothing,
    /// Something that cannot be understood.
    Invalid(Arc<Invalid>),
    /// A push.
    Push(Arc<Push>),
}

/// A push that is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Push {
    /// What the annotations say.
    pub asked: Asked,
    /// Which Secrets it is made of.
    pub wanted: Wanted,
}

impl Push {
    /// Where one of the [targets](Wanted::targets) is to be, behind `prefix`.
    pub fn path(&self, prefix: &str, target: &str) -> Result<SecretPath, PathError> {
        let base = format!("{prefix}{}", self.asked.path);
        match &self.wanted {
            Wanted::Composed(_) => SecretPath::parse(&base.replace(SECRET, target)),
            _ if target.is_empty() => SecretPath::parse(&base),
            _ => SecretPath::parse(&base)?.join(target),
        }
    }
}

/// An object as a watch shows it.
#[derive(Debug, Clone)]
pub struct Shown {
    /// Which one.
    pub key: ObjectRef,
    /// Its uid; another one under the same name is another binding.
    pub uid: String,
    /// Its resource version.
    pub version: String,
    /// What it asks for.
    pub asking: Asking,
    /// Since when it is being deleted.
    pub deleting: Option<Timestamp>,
    /// Whether it has our finalizer.
    pub finalizer: bool,
    /// Which generation of what it asks for this is, where that is to be told; see [`Record::generation`].
    pub generation: Option<i64>,
    /// The text of its record.
    pub record: Option<String>,
}

/// What is known of an object that asks. All of it can be lost at any time: the cluster and Vault have the truth.
#[derive(Debug, Clone)]
pub struct Binding {
    /// The object's uid.
    pub uid: String,
    /// What it asks for.
    pub asking: Asking,
    /// Since when it is being deleted.
    pub deleting: Option<Timestamp>,
    /// Whether it has our finalizer.
    pub finalizer: bool,
    /// Which generation of what it asks for this is, where that is to be told.
    pub generation: Option<i64>,
    /// What is recorded on it.
    pub record: Option<Record>,
    /// The resource version that was seen or written last.
    pub version: String,
    /// What was in Vault when it was last found in step.
    pub verified: Option<Verified>,
    /// What was last said of it.
    pub said: Vec<Message>,
    /// What is to be said of it when its record is noted.
    pub unsaid: Vec<Message>,
    /// How often in a row it could not be brought in step because Vault or the API server did not do their part.
    pub failures: u32,
    /// When a Secret of its changed, if that is not in Vault yet.
    pub changed: Option<Instant>,
    /// How often somebody else changed the record.
    edits: u64,
    /// The resource version that was seen last.
    shown: String,
    /// The text of the record that was seen last, then those that were written since; anything else is somebody else's.
    texts: VecDeque<Option<String>>,
}

/// So many texts are remembered that were written and have not been seen; the oldest ones go, and count as somebody else's then.
const UNSEEN_TEXTS: usize = 8;

/// A moment at which all was as it should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verified {
    /// The versions of the Secrets that it was made of; nothing of one that is not there.
    pub sources: BTreeMap<String, Option<String>>,
    /// What each location holds.
    pub digests: BTreeMap<String, ContentDigest>,
    /// The request to look that was answered by this.
    pub sync_now: Option<String>,
    /// When Vault was looked at.
    pub looked: Instant,
}

impl Binding {
    fn new(shown: Shown) -> Self {
        let record = shown.record.as_deref().and_then(|text| Record::read(text, &shown.uid));
        Self {
            uid: shown.uid,
            asking: shown.asking,
            deleting: shown.deleting,
            finalizer: shown.finalizer,
            generation: shown.generation,
            record,
            version: shown.version.clone(),
            shown: shown.version,
            verified: None,
            said: Vec::new(),
            unsaid: Vec::new(),
            failures: 0,
            changed: None,
            edits: 0,
            texts: VecDeque::from([shown.record]),
        }
    }

    /// A record of an object on which there is none.
    pub fn new_record(&self, now: Timestamp) -> Record {
        let record = Record::new(&self.uid, now);
        // In a status there are only whole seconds.
        let whole = Timestamp::from_second(now.as_second()).unwrap_or(now);
        let since = if self.generation.is_some() { whole } else { now };
        Record { since, generation: self.generation, ..record }
    }

    /// Takes over what is shown. Returns whether there is something to do.
    fn take(&mut self, shown: Shown) -> bool {
        let asks_otherwise = self.asking != shown.asking;
        // A watch may show what was written some time after the next was.
        let seen = self.texts.iter().position(|text| *text == shown.record);
        let recorded_otherwise = seen.is_none();
        let changed = asks_otherwise
            || recorded_otherwise
            || self.generation != shown.generation
            || self.deleting.is_some() != shown.deleting.is_some()
            || self.finalizer && !shown.finalizer;
        if asks_otherwise {
            self.verified = None;
            self.said.clear();
        }
        if recorded_otherwise {
            // What is known is not forgotten because somebody changed the annotation or took it away; it is written again.
            if let Some(record) = shown.record.as_deref().and_then(|text| Record::read(text, &self.uid)) {
                self.record = Some(record.with_intended(self.record.take()));
            }
            self.verified = None;
            self.edits += 1;
        }
        match seen {
            Some(seen) => drop(self.texts.drain(..seen)),
            None => self.texts = VecDeque::from([shown.record]),
        }
        self.asking = shown.asking;
        self.deleting = shown.deleting;
        self.finalizer = shown.finalizer;
        self.generation = shown.generation;
        self.shown = shown.version;
        self.settle_version();
        changed
    }

    /// The record is about to be written: a watch may show it before the answer comes.
    pub fn expect(&mut self, record: &Record) {
        let text = Some(record.text());
        if self.texts.back() != Some(&text) {
            self.texts.push_back(text);
        }
        if self.texts.len() > UNSEEN_TEXTS {
            self.texts.pop_front();
        }
    }

    /// The record was not written after all.
    pub fn expect_no_more(&mut self, record: &Record) {
        if self.texts.len() > 1 && self.bears(record) {
            self.texts.pop_back();
        }
        self.settle_version();
    }

    /// What was written and not seen yet has a newer version than what is shown, which its answer tells.
    fn settle_version(&mut self) {
        if self.texts.len() == 1 {
            self.version.clone_from(&self.shown);
        }
    }

    /// The expected record was written. If it was seen meanwhile, what was seen after it is newer than this answer.
    pub fn recorded(&mut self, record: Record, version: String) {
        if self.texts.len() > 1 && self.bears(&record) {
            self.version = version;
        }
        self.record = Some(record);
    }

    /// Notes down that all was in step, as a run found that began with this binding. Not if somebody else has changed the record since: that
    /// wants a run of its own.
    pub fn verify(&mut self, begun: &Self, verified: Option<Verified>) {
        self.verified = verified.filter(|_| self.edits == begun.edits);
    }

    /// What is to be recorded on the object, as the same run made it, and said with it. The object bears it when it is
    /// [noted](Self::unrecorded).
    pub fn intend(&mut self, begun: &Self, record: Record, messages: Vec<Message>) {
        if self.edits == begun.edits {
            self.record = Some(record);
            let said_later = |message: &Message| !messages.contains(message);
            self.unsaid.retain(said_later);
            self.unsaid.extend(messages);
        }
    }

    /// What was begun for the object, or for one before it, though it bears no word of it.
    pub fn recall(&mut self, begun: &Record) {
        let record = self.record.take().unwrap_or_else(|| {
            let record = self.new_record(begun.since);
            Record { deletion: begun.deletion, ..record }
        });
        self.record = Some(record.with_intended(Some(begun.clone())));
    }

    /// Whether there is a record and the object bears it.
    pub fn bears_its_record(&self) -> bool {
        self.record.as_ref().is_some_and(|record| self.bears(record))
    }

    /// The record, if the object does not bear it.
    pub fn unrecorded(&self) -> Option<&Record> {
        self.record.as_ref().filter(|record| !self.bears(record))
    }

    /// Whether the object bears the record, as far as that is known.
    pub fn bears(&self, record: &Record) -> bool {
        self.texts.back().is_some_and(|text| text.as_deref() == Some(&*record.text()))
    }
}

/// All bindings. Nothing is done under the lock but looking up and noting down.
#[derive(Default)]
pub struct Bindings(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    bindings: HashMap<ObjectRef, Binding>,
    /// Which Secrets an object uses, and the other way round.
    uses: HashMap<ObjectRef, BTreeSet<SecretRef>>,
    users: HashMap<SecretRef, BTreeSet<ObjectRef>>,
    /// The versions of used Secrets, as far as they were seen; nothing of one that is known not to be there.
    versions: HashMap<SecretRef, Option<String>>,
    selections: Selections,
    claims: Claims,
}

impl Bindings {
    /// A watch shows an object that asks, or that has our finalizer. Returns whether there is something to do.
    pub fn show(&self, shown: Shown) -> bool {
        let mut inner = self.lock();
        let key = shown.key.clone();
        let known = inner.bindings.get_mut(&key).filter(|known| known.uid == shown.uid);
        let work = if let Some(binding) = known {
            binding.take(shown)
        } else {
            inner.bindings.insert(key.clone(), Binding::new(shown));
            true
        };
        inner.index(&key);
        work
    }

    /// An object is gone, or asks for nothing and has nothing to be cleared. Returns who may have waited for its paths.
    pub fn remove(&self, key: &ObjectRef) -> Vec<ObjectRef> {
        let mut inner = self.lock();
        if inner.bindings.remove(key).is_none() {
            return Vec::new();
        }
        inner.index(key);
        inner.claims.release_all(key)
    }

    /// A complete list of a kind was seen: what is not in it is gone.
    pub fn retain(&self, kind: Kind, shown: &HashSet<ObjectRef>) -> Vec<ObjectRef> {
        let known: Vec<_> = {
            let inner = self.lock();
            let gone = |key: &&ObjectRef| key.kind == kind && !shown.contains(*key);
            inner.bindings.keys().filter(gone).cloned().collect()
        };
        known.iter().flat_map(|key| self.remove(key)).collect()
    }

    /// A Secret is there in this version and with these labels; it has no version if it is gone. Returns who uses it, or selects by labels
    /// and used to, and has not seen that.
    pub fn secret_is(
        &self,
        secret: &SecretRef,
        version: Option<&str>,
        labels: &BTreeMap<String, String>,
    ) -> Vec<ObjectRef> {
        let mut inner = self.lock();
        let mut selecting = inner.select(secret, version.map(|_| labels));
        let Some(users) = inner.users.get(secret).cloned() else { return selecting };
        let now = version.map(str::to_owned);
        let before = inner.versions.insert(secret.clone(), now.clone());
        if before.as_ref() == Some(&now) {
            return selecting;
        }
        for user in &users {
            let binding = inner.bindings.get_mut(user).filter(|_| before.is_some());
            // The first change that is not in Vault yet counts.
            binding.map(|binding| binding.changed.get_or_insert_with(Instant::now));
        }
        selecting.extend(users);
        selecting
    }

    /// It is asked which Secrets fit the object's selector.
    pub fn ask_selected(&self, key: &ObjectRef) {
        self.lock().selections.ask(key);
    }

    /// These fit. What a watch has shown since it was asked counts more.
    pub fn selected(&self, key: &ObjectRef, names: BTreeSet<String>) {
        let mut inner = self.lock();
        let names = inner.selections.answered(key, names).into_iter();
        let secret = |name| SecretRef { namespace: key.namespace.clone(), name };
        inner.use_only(key, names.map(secret).collect());
    }

    /// Whether the object uses these Secrets and no other.
    pub fn uses_just(&self, key: &ObjectRef, sources: &BTreeMap<String, Option<String>>) -> bool {
        let inner = self.lock();
        let used = inner.uses.get(key).into_iter().flatten().map(|secret| &secret.name);
        used.eq(sources.keys())
    }

    /// A Secret was read in this version. What a watch has shown stays, since it may be newer.
    pub fn secret_was(&self, secret: &SecretRef, version: Option<&str>) {
        let mut inner = self.lock();
        if inner.users.contains_key(secret) {
            inner.versions.entry(secret.clone()).or_insert_with(|| version.map(str::to_owned));
        }
    }

    /// The version in which a used Secret is there, as far as that was seen.
    pub fn version(&self, secret: &SecretRef) -> Option<String> {
        self.lock().versions.get(secret).cloned().flatten()
    }

    /// Whether any object uses the Secret.
    pub fn is_used(&self, secret: &SecretRef) -> bool {
        self.lock().users.contains_key(secret)
    }

    /// A complete list of Secrets was seen: used ones that are not in it are gone. Returns who uses those.
    pub fn secrets_are(&self, shown: &HashSet<SecretRef>) -> Vec<ObjectRef> {
        let gone: Vec<_> = self.lock().users.keys().filter(|secret| !shown.contains(*secret)).cloned().collect();
        gone.iter().flat_map(|secret| self.secret_is(secret, None, &BTreeMap::new())).collect()
    }

    /// We changed a Secret's metadata and nothing else: whoever knew its content by the one version knows it by the other.
    pub fn renamed_version(&self, secret: &SecretRef, from: &str, to: &str) {
        let mut inner = self.lock();
        if let Some(version) = inner.versions.get_mut(secret).filter(|version| version.as_deref() == Some(from)) {
            *version = Some(to.to_owned());
        }
        for user in inner.users.get(secret).cloned().unwrap_or_default() {
            let verified = inner.bindings.get_mut(&user).and_then(|binding| binding.verified.as_mut());
            if let Some(version) = verified.and_then(|verified| verified.sources.get_mut(&secret.name))
                && version.as_deref() == Some(from)
            {
                *version = Some(to.to_owned());
            }
        }
    }

    /// Whether the Secrets are, as far as the watch has shown, in these versions.
    pub fn are_current(&self, namespace: &str, sources: &BTreeMap<String, Option<String>>) -> bool {
        let inner = self.lock();
        sources.iter().all(|(name, version)| {
            let secret = SecretRef { namespace: namespace.to_owned(), name: name.clone() };
            inner.versions.get(&secret) == Some(version)
        })
    }

    /// What is known of an object.
    pub fn get(&self, key: &ObjectRef) -> Option<Binding> {
        self.lock().bindings.get(key).cloned()
    }

    /// Notes something down, unless the object is another one or asks for something else by now.
    pub fn settle(&self, key: &ObjectRef, before: &Binding, note: impl FnOnce(&mut Binding)) {
        let mut inner = self.lock();
        if let Some(now) = inner.bindings.get_mut(key)
            && now.uid == before.uid
            && now.asking == before.asking
        {
            note(now);
        }
    }

    /// Notes down what happened to the object itself, whatever it asks for by now; nothing of another one.
    pub fn on_object(&self, key: &ObjectRef, uid: &str, note: impl FnOnce(&mut Binding)) {
        if let Some(now) = self.lock().bindings.get_mut(key).filter(|now| now.uid == uid) {
            note(now);
        }
    }

    /// Whether the object still asks for what it did.
    pub fn is_current(&self, key: &ObjectRef, before: &Binding) -> bool {
        let inner = self.lock();
        inner.bindings.get(key).is_some_and(|now| {
            now.uid == before.uid && now.asking == before.asking && now.deleting.is_some() == before.deleting.is_some()
        })
    }

    /// Lays claim to a location. Of two objects that were never there, the first gets it; one that has it keeps it.
    pub fn claim(&self, key: &ObjectRef, location: &str, share: Share) -> Result<(), ObjectRef> {
        self.lock().claims.claim(key, location, share)
    }

    /// Gives up a location. Returns who wanted it.
    pub fn release(&self, key: &ObjectRef, location: &str) -> Vec<ObjectRef> {
        self.lock().claims.release(key, location)
    }

    /// The objects that could not be brought in step because Vault or the API server did not do their part.
    pub fn failing(&self) -> Vec<ObjectRef> {
        let inner = self.lock();
        inner.bindings.iter().filter(|(_, binding)| binding.failures > 0).map(|(key, _)| key.clone()).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// Notes who uses which Secrets and which locations.
    fn index(&mut self, key: &ObjectRef) {
        let Some(binding) = self.bindings.get(key) else {
            self.selections.set(key, None);
            return self.use_only(key, BTreeSet::new());
        };
        let secret = |name: &str| SecretRef { namespace: key.namespace.clone(), name: name.to_owned() };
        let used = match &binding.asking {
            Asking::Push(push) => push.wanted.names().into_iter().map(secret).collect(),
            Asking::Nothing | Asking::Invalid(_) => BTreeSet::new(),
        };
        let selector = match &binding.asking {
            Asking::Push(push) => push.wanted.selector(),
            Asking::Nothing | Asking::Invalid(_) => None,
        };
        for (location, written) in binding.record.iter().flat_map(|record| &record.paths) {
            let share = if written.keys.is_some() { Share::Keys } else { Share::Whole };
            self.claims.recall(key, location, share);
            for name in written.keys.iter().flatten() {
                self.claims.recall(key, &key_of(location, name), Share::Whole);
            }
        }
        let selects = selector.is_some();
        let is_new = self.selections.set(key, selector);
        // Which Secrets fit a selector is known already, or is asked for when the object is looked at.
        if !selects || is_new {
            self.use_only(key, used);
        }
    }

    /// A Secret has these labels, or is gone. Returns whose selection that changes.
    fn select(&mut self, secret: &SecretRef, labels: Option<&BTreeMap<String, String>>) -> Vec<ObjectRef> {
        let mut changed = Vec::new();
        for Told { by, fits, asking } in self.selections.told(secret, labels) {
            let mut used = self.uses.get(&by).cloned().unwrap_or_default();
            let is_new = if fits { used.insert(secret.clone()) } else { used.remove(secret) };
            if is_new {
                self.use_only(&by, used);
            }
            if is_new || asking {
                changed.push(by);
            }
        }
        changed
    }

    fn use_only(&mut self, key: &ObjectRef, used: BTreeSet<SecretRef>) {
        let before = self.uses.remove(key).unwrap_or_default();
        for secret in used.difference(&before) {
            self.users.entry(secret.clone()).or_default().insert(key.clone());
        }
        for secret in before.difference(&used) {
            let Some(users) = self.users.get_mut(secret) else { continue };
            users.remove(key);
            if users.is_empty() {
                self.users.remove(secret);
                self.versions.remove(secret);
            }
        }
        if !used.is_empty() {
            self.uses.insert(key.clone(), used);
        }
    }
}

#[cfg(test)]
mod tests;
