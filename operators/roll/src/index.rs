//! Who uses what, as the watches show it. All of it can be lost at any time: the cluster has the truth.
//!
//! Of each workload is kept what its pods use, since a Secret may ask for its users at any time and a list would be the only other way to
//! find them. Of Secrets and `ConfigMaps` that nobody is rolled for and that ask for nothing, not even the name is kept, and of the others
//! digests and never a value.

mod classes;
mod former;
mod lent;
mod sources;
mod standing;
mod taken;
mod triggers;
mod turns;
mod users;
mod view;
mod waiting;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use jiff::Timestamp;
use konverge_core::reverse_index::ReverseIndex;
use konverge_workload::{Keys, Progress, Rollout, TemplateOf, Usage, Workload, WorkloadKind};
use litemap::LiteMap;

use crate::{
    breaker,
    declarations::{Invalid, Labels, Others, RECORD, STAMP, WorkloadAsks},
    messages::Message,
    object::{SourceName, SourceRef, WorkloadRef},
    record::Record,
    trigger::{Asks, Shown, TriggerKind, TriggerRef},
    unheard::{Outcome, Unheard},
    uses::{self, Use},
    waves::Line,
};
pub use classes::ClassRef;
pub use sources::Learned;
use sources::Source;
pub use standing::{InStep, Outlook, Pending, State};
use taken::Taken;
pub use view::View;

/// What is to be done after something was shown.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Workloads to look at.
    pub workloads: BTreeSet<WorkloadRef>,
    /// Secrets and `ConfigMaps` to read, and secrets in Vault to be followed, or not any more.
    pub sources: BTreeSet<SourceRef>,
    /// Secrets and `ConfigMaps`, in the cluster or in Vault, that no workload uses any more.
    pub unused: BTreeSet<SourceRef>,
    /// Objects whose status is to be looked at.
    pub triggers: BTreeSet<TriggerRef>,
    /// What a source asks for and cannot have, with its uid; told once for each text.
    pub invalid: Option<(SourceRef, String, Invalid)>,
}

impl Work {
    /// This is to be done as well.
    fn add(&mut self, more: Self) {
        self.workloads.extend(more.workloads);
        self.sources.extend(more.sources);
        self.unused.extend(more.unused);
        self.triggers.extend(more.triggers);
        self.invalid = self.invalid.take().or(more.invalid);
    }
}

/// What shows an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shows<'a> {
    /// A watch. What is older than what is known of it is late.
    Event,
    /// A list. It says what there is, also if that is older: then the API server's storage was restored from a backup.
    List,
    /// The answer to somebody who has found this version to be none that is there. The same holds for it, unless more is known by now.
    Answer(&'a str),
}

impl Shows<'_> {
    fn is_outdated(self, version: &str, known: &str) -> bool {
        match self {
            Self::Event => is_older(version, known),
            Self::List => false,
            Self::Answer(outdated) => known != outdated && is_older(version, known),
        }
    }
}

/// What we have written on a workload.
#[derive(Debug, Default)]
struct Ours {
    /// The record that we write at the moment, or wrote last.
    record: Option<String>,
    /// Whether that was since the workload was last shown.
    since: bool,
    /// A rollout of which the answer was lost.
    unheard: Option<Box<Unheard>>,
}

/// What is known of a workload.
#[derive(Debug)]
struct Known {
    uid: String,
    version: String,
    labels: BTreeMap<String, String>,
    asks: Result<Arc<WorkloadAsks>, Arc<Invalid>>,
    /// What its pods name.
    referenced: LiteMap<SourceName, Usage>,
    /// Whose pod template it runs pods of, if that is not its own.
    template_of: Option<TemplateOf>,
    /// The classes of the Secrets Store CSI driver that they mount.
    classes: BTreeSet<String>,
    /// What it is rolled for.
    uses: LiteMap<SourceName, Use>,
    /// By which keys of a source it was rolled for it before.
    former: BTreeMap<SourceName, Vec<Keys>>,
    /// The text of its record, whoever wrote it.
    record: Option<String>,
    /// What stood there before somebody took it away.
    taken: Option<Box<Taken>>,
    stamp: Option<String>,
    rollout: Rollout,
    /// Since when not all of its pods have been seen to be there.
    unready: Option<Timestamp>,
    deleting: bool,
    said: Vec<Message>,
    /// Since when it has been waiting to be rolled, and until when it will be, as far as that is known.
    pending: Option<(Timestamp, Option<Timestamp>)>,
    ours: Ours,
    /// Whether another wrote its record, for what may be newer than what we have read.
    doubted: bool,
    /// Since when it has not been known what is to be done about it, as far as it was looked at.
    undecided: Option<Timestamp>,
    /// Since when something has kept it from being looked after that somebody should see to.
    troubled: Option<Timestamp>,
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
    /// What the workload asks for that was shown last. Most ask for the same, and it is kept once for those that do.
    usual: Arc<WorkloadAsks>,
    sources: HashMap<SourceRef, Source>,
    /// The sources whose annotations may concern a workload: those that it names, and those that its pods use.
    named: ReverseIndex<WorkloadRef, SourceRef>,
    /// The sources that a workload is rolled for.
    users: ReverseIndex<WorkloadRef, SourceRef>,
    /// The classes of the Secrets Store CSI driver that have it make Secrets, by namespace and name.
    classes: BTreeMap<ClassRef, BTreeSet<SourceName>>,
    /// The classes that a workload mounts. A class need not exist.
    mounted: ReverseIndex<WorkloadRef, ClassRef>,
    /// The sources that select workloads of their namespace by labels.
    source_selectors: ReverseIndex<SourceRef, String, Labels>,
    /// The Deployments whose pod template another workload runs.
    template_refs: ReverseIndex<WorkloadRef, WorkloadRef>,
    /// By namespace, source and wave: those of earlier waves that use it, for all that wait for their turn.
    lines: HashMap<String, BTreeMap<(SourceName, i32), Line<WorkloadRef>>>,
    /// The workload that must move before another one may be rolled.
    waiting: ReverseIndex<WorkloadRef, WorkloadRef>,
    /// Objects that ask for rollouts of others.
    triggers: BTreeMap<TriggerRef, Shown>,
    /// Of which kinds all of them have been seen. Before that, what is recorded for their sake stays.
    triggers_seen: BTreeSet<TriggerKind>,
    /// The workloads that a trigger names. A workload need not exist.
    targets: ReverseIndex<TriggerRef, WorkloadRef>,
    /// The triggers that select workloads of a namespace by labels.
    trigger_selectors: ReverseIndex<TriggerRef, String, Arc<Asks>>,
    /// The sources that a trigger requests rollouts for.
    followed: ReverseIndex<TriggerRef, SourceRef>,
}

impl Index {
    /// Nothing is known yet.
    pub fn new(others: Others, breaker: breaker::Settings) -> Self {
        Self { others, breaker, inner: Mutex::default() }
    }

    /// A watch shows a workload. Nothing to do if it takes no part.
    pub fn show(&self, kind: WorkloadKind, workload: Workload, now: Timestamp) -> (Option<WorkloadRef>, Work) {
        self.show_by(Shows::Event, kind, workload, now)
    }

    /// The same, as it is shown by whatever it is.
    pub fn show_by(
        &self,
        shows: Shows<'_>,
        kind: WorkloadKind,
        workload: Workload,
        now: Timestamp,
    ) -> (Option<WorkloadRef>, Work) {
        let mut work = Work::default();
        let Workload { metadata, references, template_of, template_annotations, rollout } = workload;
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
            template_of,
            classes: references.secret_provider_classes,
            uses: LiteMap::new(),
            former: BTreeMap::new(),
            record: annotations.remove(RECORD),
            taken: None,
            stamp: template_annotations.get(STAMP).cloned(),
            rollout,
            unready: matches!(rollout.progress, Progress::Running | Progress::Unready).then_some(now),
            deleting: metadata.deletion_timestamp.is_some(),
            said: Vec::new(),
            pending: None,
            ours: Ours::default(),
            doubted: false,
            undecided: None,
            troubled: None,
        };
        let mut inner = self.lock();
        if let Ok(asks) = &mut known.asks {
            if *asks == inner.usual {
                asks.clone_from(&inner.usual);
            } else {
                inner.usual.clone_from(asks);
            }
        }
        let stands_otherwise = inner.workloads.get(&key).is_none_or(|before| before.stands_otherwise(&known));
        if let Some(before) = inner.workloads.get_mut(&key).filter(|before| before.uid == known.uid) {
            // What we wrote may have been answered before the watch shows what was there before it.
            if shows.is_outdated(&known.version, &before.version) {
                return (Some(key), work);
            }
            known.uses = std::mem::take(&mut before.uses);
            known.former = std::mem::take(&mut before.former);
            known.said = std::mem::take(&mut before.said);
            known.pending = before.pending;
            known.unready = known.unready.and(before.unready.or(known.unready));
            known.troubled = before.troubled;
            known.doubted = before.doubted || ![&before.record, &before.ours.record].contains(&&known.record);
            // In a storage that was restored from a backup, what was there then counts.
            if !is_older(&known.version, &before.version) {
                known.keep_record(before, now);
            }
            known.ours.record = before.ours.record.take();
            known.ours.unheard = before.ours.unheard.take();
            known.undecided = before.undecided;
            if before.asks != known.asks {
                known.said.clear();
            }
        } else {
            inner.drop_workload(&key, &mut work);
        }
        inner.put(&key, known, &mut work);
        if stands_otherwise {
            inner.wake_later_waves(&key, &mut work);
        }
        (Some(key), work)
    }

    /// Whether a workload is there.
    pub fn has(&self, key: &WorkloadRef) -> bool {
        self.lock().workloads.contains_key(key)
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
            work.add(self.forget(key));
        }
        (gone, work)
    }

    /// Notes something down, unless the workload is another one by now.
    fn note(&self, key: &WorkloadRef, uid: &str, note: impl FnOnce(&mut Known)) {
        let mut inner = self.lock();
        if let Some(known) = inner.workloads.get_mut(key).filter(|known| known.uid == uid) {
            note(known);
            inner.stirred(key);
        }
    }

    /// This was said of it last. Returns what of it was not said before.
    pub fn say(&self, key: &WorkloadRef, uid: &str, messages: Vec<Message>, now: Timestamp) -> Vec<Message> {
        let mut new = Vec::new();
        self.note(key, uid, |known| {
            let is_troubled = messages.iter().any(|message| message.is_problem);
            known.troubled = is_troubled.then(|| known.troubled.unwrap_or(now));
            new = messages.iter().filter(|message| !known.said.contains(message)).cloned().collect();
            known.said = messages;
        });
        new
    }

    /// It waits to be rolled, until when if that is known, or waits no more.
    pub fn pending(&self, key: &WorkloadRef, uid: &str, waits: Option<(Timestamp, Option<Timestamp>)>) {
        self.note(key, uid, |known| {
            let since = known.pending.map(|(since, _)| since);
            known.pending = waits.map(|(now, until)| (since.unwrap_or(now), until));
        });
    }

    /// The longest time that any workload has been waiting for, and how many wait.
    pub fn waiting(&self) -> (Option<Timestamp>, usize) {
        let inner = self.lock();
        let pending = || inner.workloads.values().filter_map(|known| known.pending);
        (pending().map(|(since, _)| since).min(), pending().count())
    }

    /// We are about to write this record. Whoever sees it, and has not seen the answer, does not take it for another's.
    pub fn writing(&self, key: &WorkloadRef, uid: &str, record: &str) {
        self.note(key, uid, |known| known.ours.record = Some(record.to_owned()));
    }

    /// We wrote on a workload, which is this version of it now; `rolled` is the stamp that its pod template got, and when.
    pub fn wrote(
        &self,
        key: &WorkloadRef,
        uid: &str,
        version: &str,
        record: String,
        rolled: Option<(String, Timestamp)>,
    ) {
        self.note(key, uid, |known| {
            if rolled.is_some() {
                known.ours.unheard = None;
            }
            if is_older(version, &known.version) {
                return;
            }
            let is_shown = known.version == version;
            version.clone_into(&mut known.version);
            known.record = Some(record);
            known.ours.since = true;
            let Some((stamp, now)) = rolled else { return };
            known.stamp = Some(stamp);
            // These pods have their own time to become ready.
            known.unready = Some(now);
            // Until the watch shows it, it stands as it did before, and whoever waits for it would not wait.
            if !is_shown {
                known.rollout.progress = Progress::Running;
            }
        });
    }

    /// The answer to a rollout was lost.
    pub fn unheard(&self, key: &WorkloadRef, uid: &str, unheard: Unheard) {
        self.note(key, uid, |known| known.ours.unheard = Some(Box::new(unheard)));
    }

    /// A rollout of which the answer was lost, and which was done after all. That is told once.
    pub fn heard(&self, key: &WorkloadRef, uid: &str) -> Option<Unheard> {
        let mut inner = self.lock();
        let known = inner.workloads.get_mut(key).filter(|known| known.uid == uid)?;
        match known.ours.unheard.as_ref()?.outcome(&known.version, known.stamp.as_deref()) {
            Outcome::Unknown => None,
            Outcome::Done => known.ours.unheard.take().map(|unheard| *unheard),
            Outcome::Undone => {
                known.ours.unheard = None;
                None
            }
        }
    }

    /// The stamp of a workload that was rolled by us, when that was, and how far it is.
    pub fn rollout(&self, key: &WorkloadRef) -> Option<(String, Timestamp, Progress)> {
        let inner = self.lock();
        let known = inner.workloads.get(key)?;
        // Whoever's it is: at worst a place in the budget is taken for some time.
        let rolled = Record::of_any(known.record.as_deref()?)?.rolled?;
        Some((known.stamp.clone()?, rolled, known.rollout.progress))
    }

    /// It takes no part any more, so it waits for nothing and nothing holds of it that was said.
    pub fn leave(&self, key: &WorkloadRef) {
        let mut inner = self.lock();
        inner.waiting.remove(key);
        if let Some(known) = inner.workloads.get_mut(key) {
            known.pending = None;
            known.troubled = None;
            known.said.clear();
            inner.stirred(key);
        }
    }

    /// It waits for no turn.
    pub fn needs_no_turn(&self, key: &WorkloadRef) {
        self.lock().waiting.remove(key);
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a resource version is an earlier one. Where they cannot be compared, none is: what is stale is refused by the API server then.
fn is_older(version: &str, than: &str) -> bool {
    matches!((version.parse::<u64>(), than.parse::<u64>()), (Ok(version), Ok(than)) if version < than)
}

#[cfg(test)]
mod tests;
