//! Objects that ask for rollouts of others, and secrets in Vault, in the index.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    sync::Arc,
    time::Duration,
};

use jiff::{SignedDuration, Timestamp};
use konverge_workload::{Need, Usage};

use super::{Index, Inner, Known, Learned, Shows, Work, sources::Read};
use crate::{
    breaker,
    digest::KeyDigests,
    object::{SourceName, SourceRef, WorkloadRef},
    trigger::{Asks, Shown, TriggerKind, TriggerRef},
    uses::{self, Use},
    vault::Standing,
};

impl Index {
    /// A watch shows an object that asks for rollouts of others.
    pub fn show_trigger(&self, key: TriggerRef, shown: Shown) -> Work {
        self.show_trigger_by(Shows::Event, key, shown)
    }

    /// The same, as it is shown by whatever it is.
    pub fn show_trigger_by(&self, by: Shows<'_>, key: TriggerRef, shown: Shown) -> Work {
        let mut work = Work::default();
        let mut inner = self.lock();
        let before = inner.triggers.get(&key);
        if before.is_some_and(|before| before.uid == shown.uid && by.is_outdated(&shown.version, &before.version)) {
            return work;
        }
        let is_same = before.is_some_and(|before| {
            before.uid == shown.uid && before.asks == shown.asks && before.deleting == shown.deleting
        });
        if is_same {
            inner.triggers.insert(key.clone(), shown);
            inner.concerned_stirred(&key);
        } else {
            inner.put_trigger(&key, Some(shown), &mut work);
        }
        work.triggers.insert(key);
        work
    }

    /// Whether such an object is there.
    pub fn has_trigger(&self, key: &TriggerRef) -> bool {
        self.lock().triggers.contains_key(key)
    }

    /// Such an object is gone.
    pub fn forget_trigger(&self, key: &TriggerRef) -> Work {
        let mut work = Work::default();
        let mut inner = self.lock();
        inner.put_trigger(key, None, &mut work);
        work
    }

    /// A complete list of a kind was seen: what is not in it is gone, and what nobody asks for by now nobody does.
    pub fn retain_triggers(&self, kind: TriggerKind, shown: &HashSet<TriggerRef>) -> Work {
        let gone = |key: &&TriggerRef| key.kind == kind && !shown.contains(*key);
        let gone: Vec<_> = self.lock().triggers.keys().filter(gone).cloned().collect();
        let mut work = Work::default();
        for key in gone {
            work.add(self.forget_trigger(&key));
            // What is remembered of it goes with it.
            work.triggers.insert(key);
        }
        let mut inner = self.lock();
        inner.triggers_seen.insert(kind);
        // What is recorded for their sake counts from now on as it is.
        inner.lines.clear();
        drop(inner);
        work
    }

    /// What is known of such an object.
    pub fn trigger(&self, key: &TriggerRef) -> Option<Shown> {
        self.lock().triggers.get(key).cloned()
    }

    /// Its status is this version of it now.
    pub fn told(&self, key: &TriggerRef, uid: &str, note: impl FnOnce(&mut Shown)) {
        let mut inner = self.lock();
        if let Some(shown) = inner.triggers.get_mut(key).filter(|shown| shown.uid == uid) {
            note(shown);
            inner.concerned_stirred(key);
        }
    }

    /// Who asks for rollouts of a workload.
    pub fn triggers_of(&self, key: &WorkloadRef) -> BTreeSet<TriggerRef> {
        let inner = self.lock();
        match inner.workloads.get(key) {
            Some(known) => inner.asking(key, &known.labels).cloned().collect(),
            None => inner.targets.referrers(key).cloned().collect(),
        }
    }

    /// The shortest interval at which anybody wants to know of a source.
    pub fn interval(&self, source: &SourceRef) -> Option<Duration> {
        let inner = self.lock();
        let followers = inner.followed.referrers(source).filter_map(|key| inner.triggers.get(key)?.asks());
        followers.map(|asks| asks.every).min()
    }

    /// Whether somebody uses a secret in Vault of which nothing has been learned.
    pub fn is_unknown(&self, source: &SourceRef) -> bool {
        self.lock().sources.get(source).is_some_and(|known| known.standing == Standing::Unknown)
    }

    /// A secret in Vault stands like this. Returns also who tells of that, if it stood otherwise before.
    pub fn learn_vault(
        &self,
        source: &SourceRef,
        standing: Standing,
        content: Option<KeyDigests>,
        now: Timestamp,
    ) -> (Learned, BTreeSet<TriggerRef>) {
        let every = self.interval(source).and_then(|every| SignedDuration::try_from(every).ok());
        let mut inner = self.lock();
        let Some(known) = inner.sources.get_mut(source) else { return Default::default() };
        let is_new = known.standing != standing;
        known.standing.clone_from(&standing);
        inner.users_stirred(source);
        let telling = inner.followed.referrers(source).filter(|_| is_new).cloned().collect();
        let Some(content) = content else { return (Learned::default(), telling) };
        let in_vault = match standing {
            Standing::Live(version) if version.is_known() => Some(version),
            _ => None,
        };
        let read = Read { version: None, content: Some(content), in_vault };
        // Quiet is what was asked for twice and had not changed.
        let quiet = self.breaker.quiet.max(every.unwrap_or_default() * 2);
        (inner.learn(source, read, &breaker::Settings { quiet, ..self.breaker }, now), telling)
    }

    /// How many such objects there are, and how many secrets Vault does not tell of.
    pub fn trigger_counts(&self) -> (usize, usize) {
        let inner = self.lock();
        let failing = inner.sources.values().filter(|source| matches!(source.standing, Standing::Failing { .. }));
        (inner.triggers.len(), failing.count())
    }
}

impl Inner {
    /// Replaces a trigger, or removes it, and updates every workload that it concerns, before or now.
    fn put_trigger(&mut self, key: &TriggerRef, shown: Option<Shown>, work: &mut Work) {
        let asks = |shown: Option<&Shown>| shown.and_then(Shown::asks).cloned();
        let before = asks(self.triggers.get(key));
        let mut concerned = self.concerned(before.as_deref());
        // Somebody may want to know sooner, or not so soon any more.
        work.sources.extend(self.followed.targets(key).cloned());
        match shown {
            Some(shown) => drop(self.triggers.insert(key.clone(), shown)),
            None => drop(self.triggers.remove(key)),
        }
        let now = asks(self.triggers.get(key));
        let spec = now.as_deref();
        self.targets.set(key, spec.iter().flat_map(|asks| &asks.targets).map(|target| (target.clone(), ())));
        let scopes =
            now.iter().flat_map(|asks| asks.choices.iter().map(|choice| (choice.namespace.clone(), Arc::clone(asks))));
        self.trigger_selectors.set(key, scopes);
        self.followed.set(key, spec.iter().flat_map(|asks| asks.sources.keys()).map(|source| (source.of(""), ())));
        work.sources.extend(self.followed.targets(key).cloned());
        concerned.extend(self.concerned(spec));
        for workload in concerned {
            self.index(&workload, work);
        }
    }

    /// Whom it concerns what somebody asks for.
    fn concerned(&self, asks: Option<&Asks>) -> BTreeSet<WorkloadRef> {
        asks.iter().flat_map(|asks| self.chosen(asks).map(|(key, _)| key).chain(&asks.targets)).cloned().collect()
    }

    /// What an object notes of those whom it concerns may be otherwise.
    fn concerned_stirred(&mut self, key: &TriggerRef) {
        let asks = self.triggers.get(key).and_then(Shown::asks).filter(|_| !self.lines.is_empty()).cloned();
        for workload in self.concerned(asks.as_deref()) {
            self.stirred(&workload);
        }
    }

    /// Those that have labels that are asked for.
    pub(super) fn chosen<'a>(&'a self, asks: &'a Asks) -> impl Iterator<Item = (&'a WorkloadRef, &'a Known)> {
        let all = Some(&self.workloads).filter(|_| !asks.choices.is_empty()).into_iter().flatten();
        all.filter(|(key, known)| asks.chooses(key, &known.labels))
    }

    /// The objects that ask for rollouts of a workload: by its name, or by its labels.
    pub(super) fn asking<'a>(
        &'a self,
        key: &'a WorkloadRef,
        labels: &'a BTreeMap<String, String>,
    ) -> impl Iterator<Item = &'a TriggerRef> {
        let chosen = self.trigger_selectors.matching(&key.namespace, move |_, asks| asks.chooses(key, labels));
        self.targets.referrers(key).chain(chosen)
    }

    /// What objects that name a workload have it rolled for.
    pub(super) fn triggered(&self, key: &WorkloadRef, known: &Known) -> BTreeMap<SourceName, Use> {
        let mut found = BTreeMap::new();
        for (trigger, asks) in self.asked_by(key, known) {
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
        let asked = self.asking(key, &known.labels).filter(allowed);
        let asked = asked.filter_map(|trigger| self.triggers.get(trigger));
        let mut asked = asked.filter(|shown| shown.asks().is_some_and(|asks| asks.sources.contains_key(source)));
        asked.any(|shown| shown.is_news(key, &known.uid, source, now))
    }
}
