//! Objects that ask for rollouts of others, and secrets in Vault, in the index.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    time::Duration,
};

use jiff::Timestamp;
use konverge_workload::{Need, Progress, Usage};

use super::{Index, Inner, Known, Learned, Work, is_older, remove, sources::Read};
use crate::{
    decision::Verdict,
    digest::{Digester, KeyDigests},
    object::{SourceName, SourceRef, WorkloadRef},
    trigger::{Shown, TriggerRef},
    uses::{self, Use},
    vault::{Standing, Version},
};

/// How things stand with what an object asks for, for one workload and one source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outlook {
    /// The workload.
    pub workload: WorkloadRef,
    /// The source.
    pub source: SourceName,
    /// How they stand.
    pub state: State,
}

/// How a workload and a source that an object asks for stand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// There is no such workload.
    NoWorkload,
    /// It does not allow objects of that namespace to have it rolled.
    NotAllowed,
    /// It says that it is never to be rolled.
    OptedOut,
    /// Nothing is rolled for it, because it asks for what cannot be understood.
    Invalid(String),
    /// Vault does not have it, or does not tell.
    Vault(Standing),
    /// What Vault tells is older than what the pods run with.
    Older {
        /// What Vault tells.
        told: Version,
        /// What the pods run with.
        noted: Version,
    },
    /// It is not known yet; whoever finds out says so.
    NotYet,
    /// It changed, and is about to be rolled. What was said of that.
    Pending(String),
    /// The pods run with this version.
    InStep(InStep),
}

/// With what the pods of a workload run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InStep {
    /// The workload's uid.
    pub uid: String,
    /// The version.
    pub version: Version,
    /// When it was last rolled for this source.
    pub rolled: Option<Timestamp>,
    /// How its pods stand since.
    pub progress: Progress,
}

impl Index {
    /// A watch shows an object that asks for rollouts of others.
    pub fn show_trigger(&self, key: TriggerRef, shown: Shown) -> Work {
        let mut work = Work::default();
        let mut inner = self.lock();
        let before = inner.triggers.get(&key);
        if before.is_some_and(|before| before.uid == shown.uid && is_older(&shown.version, &before.version)) {
            return work;
        }
        let is_same = before.is_some_and(|before| {
            before.uid == shown.uid && before.asks == shown.asks && before.deleting == shown.deleting
        });
        if is_same {
            inner.triggers.insert(key.clone(), shown);
        } else {
            let mut concerned = inner.unaim(&key, &mut work);
            inner.triggers.insert(key.clone(), shown);
            concerned.extend(inner.aim(&key, &mut work));
            inner.index_all(&concerned, &mut work);
        }
        work.triggers.insert(key);
        work
    }

    /// Such an object is gone.
    pub fn forget_trigger(&self, key: &TriggerRef) -> Work {
        let mut work = Work::default();
        let mut inner = self.lock();
        let concerned = inner.unaim(key, &mut work);
        inner.triggers.remove(key);
        inner.index_all(&concerned, &mut work);
        work
    }

    /// A complete list was seen: what is not in it is gone, and what nobody asks for by now nobody does.
    pub fn retain_triggers(&self, shown: &HashSet<TriggerRef>) -> Work {
        let gone: Vec<_> = self.lock().triggers.keys().filter(|key| !shown.contains(*key)).cloned().collect();
        let mut work = Work::default();
        for key in gone {
            let forgotten = self.forget_trigger(&key);
            work.workloads.extend(forgotten.workloads);
            work.sources.extend(forgotten.sources);
        }
        self.lock().triggers_seen = true;
        work
    }

    /// What is known of such an object.
    pub fn trigger(&self, key: &TriggerRef) -> Option<Shown> {
        self.lock().triggers.get(key).cloned()
    }

    /// Its status is this version of it now.
    pub fn told(&self, key: &TriggerRef, uid: &str, note: impl FnOnce(&mut Shown)) {
        if let Some(shown) = self.lock().triggers.get_mut(key).filter(|shown| shown.uid == uid) {
            note(shown);
        }
    }

    /// Who asks for rollouts of a workload.
    pub fn triggers_of(&self, key: &WorkloadRef) -> BTreeSet<TriggerRef> {
        self.lock().aimed.get(key).cloned().unwrap_or_default()
    }

    /// The shortest interval at which anybody wants to know of a source.
    pub fn interval(&self, source: &SourceRef) -> Option<Duration> {
        let inner = self.lock();
        let asked = inner.asked.get(source)?.iter().filter_map(|key| inner.triggers.get(key)?.asks());
        asked.map(|asks| asks.every).min()
    }

    /// A secret in Vault stands like this. Returns also who tells of that, if it stood otherwise before.
    pub fn learn_vault(
        &self,
        source: &SourceRef,
        standing: Standing,
        content: Option<KeyDigests>,
        now: Timestamp,
    ) -> (Learned, BTreeSet<TriggerRef>) {
        let mut inner = self.lock();
        let Some(known) = inner.sources.get_mut(source) else { return Default::default() };
        let is_new = known.standing != standing;
        known.standing.clone_from(&standing);
        let telling = inner.asked.get(source).filter(|_| is_new).cloned().unwrap_or_default();
        let Some(content) = content else { return (Learned::default(), telling) };
        let in_vault = match standing {
            Standing::Live(version) if version.is_known() => Some(version),
            _ => None,
        };
        let read = Read { version: None, content: Some(content), in_vault };
        (inner.learn(source, read, &self.breaker, now), telling)
    }

    /// How many such objects there are, and how many secrets Vault does not tell of.
    pub fn trigger_counts(&self) -> (usize, usize) {
        let inner = self.lock();
        let failing = inner.sources.values().filter(|source| matches!(source.standing, Standing::Failing { .. }));
        (inner.triggers.len(), failing.count())
    }

    /// How all that an object asks for stands.
    pub fn outlook(&self, key: &TriggerRef, digester: &Digester) -> Vec<Outlook> {
        let inner = self.lock();
        let Some(asks) = inner.triggers.get(key).and_then(Shown::asks) else { return Vec::new() };
        let pairs = asks.targets.iter().flat_map(|target| asks.sources.keys().map(move |source| (target, source)));
        pairs
            .map(|(workload, source)| Outlook {
                workload: workload.clone(),
                source: source.clone(),
                state: inner.state(key, workload, source, digester),
            })
            .collect()
    }
}

impl Inner {
    /// Takes note of what an object asks for. Returns whom that concerns.
    fn aim(&mut self, key: &TriggerRef, work: &mut Work) -> BTreeSet<WorkloadRef> {
        let Some(asks) = self.triggers.get(key).and_then(Shown::asks).cloned() else { return BTreeSet::new() };
        for target in &asks.targets {
            self.aimed.entry(target.clone()).or_default().insert(key.clone());
        }
        for source in asks.sources.keys().map(|source| source.of("")) {
            self.asked.entry(source.clone()).or_default().insert(key.clone());
            // Somebody may want to know sooner, or not so soon any more.
            work.sources.insert(source);
        }
        asks.targets.clone()
    }

    /// Forgets what an object asks for.
    fn unaim(&mut self, key: &TriggerRef, work: &mut Work) -> BTreeSet<WorkloadRef> {
        let Some(asks) = self.triggers.get(key).and_then(Shown::asks).cloned() else { return BTreeSet::new() };
        for target in &asks.targets {
            remove(&mut self.aimed, target, key);
        }
        for source in asks.sources.keys().map(|source| source.of("")) {
            remove(&mut self.asked, &source, key);
            work.sources.insert(source);
        }
        asks.targets.clone()
    }

    fn index_all(&mut self, concerned: &BTreeSet<WorkloadRef>, work: &mut Work) {
        for workload in concerned {
            self.index(workload, work);
        }
    }

    /// What objects that name a workload have it rolled for.
    pub(super) fn triggered(&self, key: &WorkloadRef, known: &Known) -> BTreeMap<SourceName, Use> {
        let mut found = BTreeMap::new();
        let Some(own) = known.asks.as_ref().ok().filter(|own| !own.never) else { return found };
        let aimed = self.aimed.get(key).into_iter().flatten();
        let allowed = aimed.filter(|trigger| own.allows(&key.namespace, &trigger.namespace));
        for trigger in allowed {
            let Some(asks) = self.triggers.get(trigger).and_then(Shown::asks) else { continue };
            for (source, keys) in &asks.sources {
                // No pod has started without it, as far as anybody knows.
                let usage = Usage { need: Need::Required, keys: keys.clone() };
                uses::add(&mut found, source, usage, trigger.rule());
            }
        }
        found
    }

    /// Whether a secret is another one than a workload's pods are taken to run with, of which nothing is recorded.
    pub(super) fn is_news(&self, key: &WorkloadRef, known: &Known, source: &SourceName) -> bool {
        let of = source.of("");
        let Some(Standing::Live(now)) = self.sources.get(&of).map(|source| &source.standing) else { return false };
        let allowed =
            |trigger: &&TriggerRef| known.asks.as_ref().is_ok_and(|own| own.allows(&key.namespace, &trigger.namespace));
        let asked = self.aimed.get(key).into_iter().flatten().filter(allowed);
        let asked = asked.filter_map(|trigger| self.triggers.get(trigger));
        let mut asked = asked.filter(|shown| shown.asks().is_some_and(|asks| asks.sources.contains_key(source)));
        asked.any(|shown| shown.is_news(key, &known.uid, source, now))
    }

    fn state(&self, key: &TriggerRef, workload: &WorkloadRef, source: &SourceName, digester: &Digester) -> State {
        let Some(known) = self.workloads.get(workload) else { return State::NoWorkload };
        match &known.asks {
            Err(invalid) => return State::Invalid(invalid.to_string()),
            Ok(own) if !own.allows(&workload.namespace, &key.namespace) => return State::NotAllowed,
            Ok(own) if own.never => return State::OptedOut,
            Ok(_) => {}
        }
        let standing = self.sources.get(&source.of("")).map(|source| source.standing.clone()).unwrap_or_default();
        let Standing::Live(version) = standing else {
            return if standing == Standing::Unknown { State::NotYet } else { State::Vault(standing) };
        };
        let text = source.to_string();
        let record = known.record(digester);
        let noted = record.as_ref().and_then(|record| record.content.get(&text)?.version.clone());
        if let Some(noted) = noted.filter(|noted| version.is_before(noted)) {
            return State::Older { told: version, noted };
        }
        match self.verdict(workload, known, digester) {
            Some(Verdict::Roll { changed, .. }) if changed.contains(&text) && !known.rollout.empty => {
                State::Pending(known.said.iter().map(|message| message.text.clone()).collect::<Vec<_>>().join("; "))
            }
            None | Some(Verdict::Note(_)) => State::NotYet,
            Some(Verdict::Roll { .. } | Verdict::Nothing) => {
                let named = format!("{text} ");
                let is_for_it = |because: &String| because.contains(&named);
                let record = record.filter(|record| record.because.as_ref().is_some_and(is_for_it));
                State::InStep(InStep {
                    uid: known.uid.clone(),
                    version,
                    rolled: record.and_then(|record| record.rolled),
                    progress: known.rollout.progress,
                })
            }
        }
    }
}
