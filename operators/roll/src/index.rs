//! Who uses what, as the watches show it. All of it can be lost at any time: the cluster has the truth.
//!
//! Of each workload is kept what its pods use, since a Secret may ask for its users at any time and a list would be the only other way to
//! find them. Of Secrets and `ConfigMaps` that nobody is rolled for and that ask for nothing, not even the name is kept, and of the others
//! digests and never a value.

mod sources;
mod triggers;
mod view;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use jiff::Timestamp;
use konverge_workload::{Progress, Rollout, Usage, Workload, WorkloadKind};

use crate::{
    breaker,
    declarations::{Invalid, Others, RECORD, STAMP, SourceAsks, WorkloadAsks},
    messages::Message,
    object::{SourceName, SourceRef, WorkloadRef},
    record::Record,
    trigger::{Shown, TriggerRef},
    uses::{self, Use},
};
pub use sources::Learned;
use sources::Source;
pub use triggers::{InStep, Outlook, State};
pub use view::View;

/// What is to be done after something was shown.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Workloads to look at.
    pub workloads: BTreeSet<WorkloadRef>,
    /// Secrets and `ConfigMaps` to read, and secrets in Vault to be followed, or not any more.
    pub sources: BTreeSet<SourceRef>,
    /// Objects whose status is to be looked at.
    pub triggers: BTreeSet<TriggerRef>,
    /// What a source asks for and cannot have, with its uid; told once for each text.
    pub invalid: Option<(SourceRef, String, Invalid)>,
}

/// What is known of a workload.
#[derive(Debug)]
struct Known {
    uid: String,
    version: String,
    labels: BTreeMap<String, String>,
    asks: Result<Arc<WorkloadAsks>, Arc<Invalid>>,
    /// What its pods use.
    referenced: BTreeMap<SourceName, Usage>,
    /// What it is rolled for.
    uses: BTreeMap<SourceName, Use>,
    /// The text of its record, whoever wrote it.
    record: Option<String>,
    stamp: Option<String>,
    rollout: Rollout,
    /// Since when it has been seen under way.
    running: Option<Timestamp>,
    deleting: bool,
    said: Vec<Message>,
    /// Since when it has been waiting to be rolled.
    pending: Option<Timestamp>,
}

/// The index.
pub struct Index {
    others: Others,
    breaker: breaker::Settings,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    workloads: BTreeMap<WorkloadRef, Known>,
    sources: HashMap<SourceRef, Source>,
    /// Which workloads a change of what a source asks for may concern, but for those with its labels.
    named: HashMap<SourceRef, BTreeSet<WorkloadRef>>,
    /// Who is rolled for a source.
    users: HashMap<SourceRef, BTreeSet<WorkloadRef>>,
    /// The sources that choose by labels.
    choosing: BTreeMap<String, BTreeSet<SourceName>>,
    /// Who waits for its turn.
    waiting: BTreeSet<WorkloadRef>,
    /// Objects that ask for rollouts of others.
    triggers: BTreeMap<TriggerRef, Shown>,
    /// Whether all of them have been seen. Before that, what is recorded for their sake stays.
    triggers_seen: bool,
    /// Which of them ask for rollouts of a workload, whether it is there or not.
    aimed: HashMap<WorkloadRef, BTreeSet<TriggerRef>>,
    /// Which of them ask for rollouts when a source changes.
    asked: HashMap<SourceRef, BTreeSet<TriggerRef>>,
}

impl Index {
    /// Nothing is known yet.
    pub fn new(others: Others, breaker: breaker::Settings) -> Self {
        Self { others, breaker, inner: Mutex::default() }
    }

    /// A watch shows a workload. Nothing to do if it takes no part.
    pub fn show(&self, kind: WorkloadKind, workload: Workload, now: Timestamp) -> (Option<WorkloadRef>, Work) {
        let mut work = Work::default();
        let Workload { metadata, references, template_annotations, rollout } = workload;
        let (Some(namespace), Some(name), Some(uid)) = (metadata.namespace, metadata.name, metadata.uid) else {
            return (None, work);
        };
        let mut annotations = metadata.annotations.unwrap_or_default();
        let asks = WorkloadAsks::read(&annotations, &template_annotations, &namespace, self.others);
        let key = WorkloadRef { namespace, kind, name };
        let mut known = Known {
            uid,
            version: metadata.resource_version.unwrap_or_default(),
            labels: metadata.labels.unwrap_or_default(),
            asks: asks.map(Arc::new).map_err(Arc::new),
            referenced: uses::referenced(&references),
            uses: BTreeMap::new(),
            record: annotations.remove(RECORD),
            stamp: template_annotations.get(STAMP).cloned(),
            rollout,
            running: (rollout.progress == Progress::Running).then_some(now),
            deleting: metadata.deletion_timestamp.is_some(),
            said: Vec::new(),
            pending: None,
        };
        let mut inner = self.lock();
        if let Some(before) = inner.workloads.get_mut(&key).filter(|before| before.uid == known.uid) {
            // What we wrote may have been answered before the watch shows what was there before it.
            if is_older(&known.version, &before.version) {
                return (Some(key), work);
            }
            known.uses = std::mem::take(&mut before.uses);
            known.said = std::mem::take(&mut before.said);
            known.pending = before.pending;
            known.running = known.running.and(before.running.or(known.running));
            if before.asks != known.asks {
                known.said.clear();
            }
        } else {
            inner.drop_workload(&key, &mut work);
        }
        inner.put(&key, known, &mut work);
        inner.wake_later_waves(&key, &mut work);
        (Some(key), work)
    }

    /// A workload is gone.
    pub fn forget(&self, key: &WorkloadRef) -> Work {
        let mut work = Work::default();
        let mut inner = self.lock();
        inner.drop_workload(key, &mut work);
        inner.wake_later_waves(key, &mut work);
        work
    }

    /// A complete list of a kind was seen: what is not in it is gone. Returns those that are.
    pub fn retain(&self, kind: WorkloadKind, shown: &HashSet<WorkloadRef>) -> (Vec<WorkloadRef>, Work) {
        let gone = |key: &&WorkloadRef| key.kind == kind && !shown.contains(*key);
        let gone: Vec<_> = self.lock().workloads.keys().filter(gone).cloned().collect();
        let mut work = Work::default();
        for key in &gone {
            let forgotten = self.forget(key);
            work.workloads.extend(forgotten.workloads);
            work.sources.extend(forgotten.sources);
            work.triggers.extend(forgotten.triggers);
        }
        (gone, work)
    }

    /// Notes something down, unless the workload is another one by now.
    fn note(&self, key: &WorkloadRef, uid: &str, note: impl FnOnce(&mut Known)) {
        if let Some(known) = self.lock().workloads.get_mut(key).filter(|known| known.uid == uid) {
            note(known);
        }
    }

    /// This was said of it last. Returns what of it was not said before.
    pub fn say(&self, key: &WorkloadRef, uid: &str, messages: Vec<Message>) -> Vec<Message> {
        let mut new = Vec::new();
        self.note(key, uid, |known| {
            new = messages.iter().filter(|message| !known.said.contains(message)).cloned().collect();
            known.said = messages;
        });
        new
    }

    /// It waits to be rolled, or waits no more.
    pub fn pending(&self, key: &WorkloadRef, uid: &str, now: Option<Timestamp>) {
        self.note(key, uid, |known| known.pending = now.map(|now| known.pending.unwrap_or(now)));
    }

    /// The longest time that any workload has been waiting for, and how many wait.
    pub fn waiting(&self) -> (Option<Timestamp>, usize) {
        let inner = self.lock();
        let pending = || inner.workloads.values().filter_map(|known| known.pending);
        (pending().min(), pending().count())
    }

    /// We wrote on a workload, which is this version of it now.
    pub fn wrote(&self, key: &WorkloadRef, uid: &str, version: &str, record: String, stamp: Option<String>) {
        self.note(key, uid, |known| {
            if !is_older(version, &known.version) {
                version.clone_into(&mut known.version);
                known.record = Some(record);
                known.stamp = stamp.or(known.stamp.take());
            }
        });
    }

    /// The stamp of a workload that was rolled by us, when that was, and how far it is.
    pub fn rollout(&self, key: &WorkloadRef) -> Option<(String, Timestamp, Progress)> {
        let inner = self.lock();
        let known = inner.workloads.get(key)?;
        // Whoever's it is: at worst a place in the budget is taken for some time.
        let rolled = serde_json::from_str::<Record>(known.record.as_deref()?).ok()?.rolled?;
        Some((known.stamp.clone()?, rolled, known.rollout.progress))
    }

    /// It waits for others of an earlier wave.
    pub fn wait_for_turn(&self, key: &WorkloadRef, waits: bool) {
        let mut inner = self.lock();
        if waits {
            inner.waiting.insert(key.clone());
        } else {
            inner.waiting.remove(key);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn put(&mut self, key: &WorkloadRef, known: Known, work: &mut Work) {
        let concerned = |known: &Known| {
            let named = known.asks.as_ref().map(|asks| asks.named.keys().cloned().collect::<BTreeSet<_>>());
            let named = named.unwrap_or_default().into_iter();
            named.chain(known.referenced.keys().cloned()).map(|name| name.of(&key.namespace)).collect::<BTreeSet<_>>()
        };
        let before = self.workloads.get(key).map(concerned).unwrap_or_default();
        let after = concerned(&known);
        for source in before.difference(&after) {
            remove(&mut self.named, source, key);
        }
        for source in after.difference(&before) {
            self.named.entry(source.clone()).or_default().insert(key.clone());
        }
        self.workloads.insert(key.clone(), known);
        self.index(key, work);
    }

    /// Finds out anew what a workload is rolled for.
    fn index(&mut self, key: &WorkloadRef, work: &mut Work) {
        let Some(known) = self.workloads.get(key) else { return };
        let of_source = |name: &SourceName| self.sources.get(&name.of(&key.namespace)).map(|source| &source.asks);
        let chooses = |name: &&SourceName| {
            let selector = of_source(name).and_then(|asks| asks.selector.as_ref());
            selector.is_some_and(|selector| selector.choose(&known.labels))
        };
        let chosen = self.choosing.get(&key.namespace).into_iter().flatten().filter(chooses);
        let mut found = match &known.asks {
            Ok(asks) => uses::uses(asks, &known.referenced, chosen, of_source),
            Err(_) => BTreeMap::new(),
        };
        // What annotations can ask for is in the cluster, and what these can is in Vault.
        found.extend(self.triggered(key, known));
        work.triggers.extend(self.aimed.get(key).into_iter().flatten().cloned());
        if !found.is_empty() || known.asks.is_err() {
            work.workloads.insert(key.clone());
        }
        self.use_only(key, found, work);
    }

    fn use_only(&mut self, key: &WorkloadRef, found: BTreeMap<SourceName, Use>, work: &mut Work) {
        let Some(known) = self.workloads.get_mut(key) else { return };
        let before = std::mem::replace(&mut known.uses, found);
        let gone: Vec<_> = before.keys().filter(|name| !known.uses.contains_key(*name)).cloned().collect();
        let now: Vec<_> = known.uses.keys().filter(|name| !before.contains_key(*name)).cloned().collect();
        let used: Vec<_> = known.uses.keys().map(|name| name.of(&key.namespace)).collect();
        for name in now {
            let source = name.of(&key.namespace);
            // Of what is known of it nothing follows for somebody who came later: the watch of it may lag behind theirs.
            // What is known of Vault has its time with it.
            if !name.kind.is_in_vault() {
                self.sources.entry(source.clone()).and_modify(|known| known.unsure = known.read.is_some());
            }
            self.users.entry(source).or_default().insert(key.clone());
        }
        for source in used {
            // Asked for until it was read: who has asked before may have been interrupted.
            let known = self.sources.entry(source.clone()).or_default();
            if known.read.is_none() || known.unsure {
                work.sources.insert(source);
            }
        }
        for name in gone {
            let source = name.of(&key.namespace);
            remove(&mut self.users, &source, key);
            self.drop_unused(&source);
            if name.kind.is_in_vault() {
                work.sources.insert(source);
            }
        }
    }

    fn drop_workload(&mut self, key: &WorkloadRef, work: &mut Work) {
        self.use_only(key, BTreeMap::new(), work);
        self.waiting.remove(key);
        work.triggers.extend(self.aimed.get(key).into_iter().flatten().cloned());
        if let Some(known) = self.workloads.remove(key) {
            let named = known.asks.iter().flat_map(|asks| asks.named.keys());
            for name in named.chain(known.referenced.keys()) {
                remove(&mut self.named, &name.of(&key.namespace), key);
            }
        }
    }

    /// Those of the same namespace that wait for their turn may have it now.
    fn wake_later_waves(&self, key: &WorkloadRef, work: &mut Work) {
        let same = self.waiting.iter().filter(|waiting| waiting.namespace == key.namespace && *waiting != key);
        work.workloads.extend(same.cloned());
    }

    fn drop_unused(&mut self, source: &SourceRef) {
        let silent = |known: &Source| known.asks == SourceAsks::default() && known.invalid.is_none();
        if !self.users.contains_key(source) && self.sources.get(source).is_some_and(silent) {
            self.sources.remove(source);
        }
        if let Some(known) = self.sources.get_mut(source).filter(|_| !self.users.contains_key(source)) {
            // Whoever uses it next reads it anew.
            known.read = None;
            known.unsure = false;
            known.refused = None;
        }
    }
}

fn remove<K: std::hash::Hash + Eq, V: Ord>(of: &mut HashMap<K, BTreeSet<V>>, from: &K, key: &V) {
    if let Some(set) = of.get_mut(from) {
        set.remove(key);
        if set.is_empty() {
            of.remove(from);
        }
    }
}

/// Whether a resource version is an earlier one. Where they cannot be compared, none is: what is stale is refused by the API server then.
fn is_older(version: &str, than: &str) -> bool {
    matches!((version.parse::<u64>(), than.parse::<u64>()), (Ok(version), Ok(than)) if version < than)
}

#[cfg(test)]
mod tests;
