//! Who is rolled for what, kept in step with what the watches show.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    Inner, Known, Work, remove,
    sources::{Doubt, Source},
};
use crate::{
    object::{SourceName, SourceRef, WorkloadRef},
    uses::{self, Use},
};

impl Inner {
    /// Takes what is known of a workload now.
    pub(super) fn put(&mut self, key: &WorkloadRef, known: Known, work: &mut Work) {
        let before = self.workloads.get(key);
        // Who chose it by labels that it has no more.
        let chose = before.filter(|before| before.labels != known.labels);
        work.triggers.extend(chose.iter().flat_map(|before| self.asking(key, &before.labels)).cloned());
        if chose.is_some() || before.is_none_or(|before| before.stands_otherwise(&known)) {
            work.triggers.extend(self.asking(key, &known.labels).cloned());
        }
        let (before, mounted, lender) = (self.named_by(key), self.mounted_by(key), self.lender_of(key));
        self.workloads.insert(key.clone(), known);
        self.keep_mounted(key, &mounted);
        self.keep_named(key, &before);
        self.lend(key, lender, work);
        self.index(key, work);
    }

    /// The sources that ask for a workload's rollouts if they ask for those of their users, or that it names itself.
    pub(super) fn named_by(&self, key: &WorkloadRef) -> BTreeSet<SourceRef> {
        let Some(known) = self.workloads.get(key) else { return BTreeSet::new() };
        let referenced = self.referenced(&key.namespace, known);
        let named = known.asks.iter().flat_map(|asks| asks.named.keys());
        named.chain(referenced.keys()).map(|name| name.of(&key.namespace)).collect()
    }

    /// Keeps by source what concerns a workload now. `before` is what did until now.
    pub(super) fn keep_named(&mut self, key: &WorkloadRef, before: &BTreeSet<SourceRef>) {
        let after = self.named_by(key);
        for source in before.difference(&after) {
            remove(&mut self.named, source, key);
        }
        for source in after.difference(before) {
            self.named.entry(source.clone()).or_default().insert(key.clone());
        }
    }

    /// Finds out anew what a workload is rolled for.
    pub(super) fn index(&mut self, key: &WorkloadRef, work: &mut Work) {
        self.stirred(key);
        let Some(known) = self.workloads.get(key) else { return };
        let of_source = |name: &SourceName| self.sources.get(&name.of(&key.namespace)).map(|source| &source.asks);
        let chooses = |name: &&SourceName| {
            let selector = of_source(name).and_then(|asks| asks.selector.as_ref());
            selector.is_some_and(|selector| selector.choose(&known.labels))
        };
        let chosen = self.choosing.get(&key.namespace).into_iter().flatten().filter(chooses);
        let mut found = match &known.asks {
            // It has no template that could be changed.
            Ok(_) if known.template_of.is_some() => BTreeMap::new(),
            Ok(asks) => uses::uses(asks, &self.referenced(&key.namespace, known), chosen, of_source),
            Err(_) => BTreeMap::new(),
        };
        // What annotations can ask for is in the cluster, and what these can is in Vault.
        found.extend(self.triggered(key, known).into_iter().filter(|_| known.template_of.is_none()));
        for (secret, keys, rule) in self.awaited(key, known) {
            uses::add_awaited(&mut found, secret, keys, rule);
        }
        // One more reason says nothing new to those that have theirs: it is noted first, and they see that.
        if known.uses.iter().any(|(name, used)| found.get(name) != Some(used)) {
            work.triggers.extend(self.asking(key, &known.labels).cloned());
        }
        // Also one that takes no part any more: it may have a place that others wait for.
        if !found.is_empty() || known.asks.is_err() || known.asks_in_vain() || !known.uses.is_empty() {
            work.workloads.insert(key.clone());
        }
        self.use_only(key, found, work);
    }

    fn use_only(&mut self, key: &WorkloadRef, found: BTreeMap<SourceName, Use>, work: &mut Work) {
        let Some(known) = self.workloads.get_mut(key) else { return };
        let before = std::mem::replace(&mut known.uses, found.into_iter().collect());
        let gone: Vec<_> = before.keys().filter(|name| !known.uses.contains_key(*name)).cloned().collect();
        let now: Vec<_> = known.uses.keys().filter(|name| !before.contains_key(*name)).cloned().collect();
        let used: Vec<_> = known.uses.keys().map(|name| name.of(&key.namespace)).collect();
        for name in now {
            let source = name.of(&key.namespace);
            // Of what is known of it nothing follows for somebody who came later: the watch of it may lag behind theirs.
            // What is known of Vault has its time with it.
            if !name.kind.is_in_vault() {
                self.sources.entry(source.clone()).and_modify(Source::doubt);
                self.users_stirred(&source);
            }
            self.users.entry(source).or_default().insert(key.clone());
        }
        for source in used {
            // Asked for until it was read: who has asked before may have been interrupted.
            let known = self.sources.entry(source.clone()).or_default();
            if known.read.is_none() || known.doubt != Doubt::None {
                work.sources.insert(source);
            }
        }
        for (name, used) in before {
            if let Some(known) = self.workloads.get_mut(key)
                && known.uses.get(&name).is_none_or(|now| now.keys != used.keys)
            {
                known.remember(name, used.keys);
            }
        }
        for name in gone {
            let source = name.of(&key.namespace);
            remove(&mut self.users, &source, key);
            if !self.users.contains_key(&source) {
                work.unused.insert(source.clone());
            }
            self.drop_unused(&source);
            if name.kind.is_in_vault() {
                work.sources.insert(source);
            }
        }
    }

    /// Forgets a workload.
    pub(super) fn drop_workload(&mut self, key: &WorkloadRef, work: &mut Work) {
        self.use_only(key, BTreeMap::new(), work);
        self.stirred(key);
        self.waiting.remove(key);
        let (named, lender) = (self.named_by(key), self.lender_of(key));
        if let Some(known) = self.workloads.remove(key) {
            work.triggers.extend(self.asking(key, &known.labels).cloned());
            self.keep_mounted(key, &known.classes);
            self.keep_named(key, &named);
            self.lend(key, lender, work);
        }
    }

    /// Those that wait for this one may go now, or wait for another.
    pub(super) fn wake_later_waves(&self, key: &WorkloadRef, work: &mut Work) {
        let waiting = self.waiting.iter().filter(|(_, after)| *after == key);
        work.workloads.extend(waiting.map(|(waiting, _)| waiting.clone()));
    }

    /// Forgets of a source what nobody needs any more.
    pub(super) fn drop_unused(&mut self, source: &SourceRef) {
        let silent = |known: &Source| known.asks.is_silent();
        if !self.users.contains_key(source) && self.sources.get(source).is_some_and(silent) {
            self.sources.remove(source);
        }
        if let Some(known) = self.sources.get_mut(source).filter(|_| !self.users.contains_key(source)) {
            // Whoever uses it next reads it anew.
            known.read = None;
            known.doubt = Doubt::None;
            known.refused = None;
        }
    }
}

impl Known {
    /// Whether it asks to be rolled and has no template of its own that could be changed.
    pub(super) fn asks_in_vain(&self) -> bool {
        self.template_of.is_some() && self.asks.as_ref().is_ok_and(|own| own.asks())
    }

    /// Whether who asks for its rollouts may have something else to tell by what it is now.
    pub(super) fn stands_otherwise(&self, now: &Self) -> bool {
        let is_same = self.uid == now.uid && self.asks == now.asks && self.deleting == now.deleting;
        let runs_the_same = self.record == now.record && self.stamp == now.stamp && self.rollout == now.rollout;
        self.ours.since || !is_same || !runs_the_same
    }
}
