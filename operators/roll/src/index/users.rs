//! Who is rolled for what, kept in step with what the watches show.

use std::collections::BTreeMap;

use super::{
    Inner, Known, Work,
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
        let classes = known.classes.iter().map(|class| ((key.namespace.clone(), class.clone()), ()));
        self.mounted.set(key, classes);
        self.workloads.insert(key.clone(), known);
        self.set_named(key);
        self.set_template_ref(key, work);
        self.index(key, work);
    }

    /// Sets which sources may concern a workload.
    pub(super) fn set_named(&mut self, key: &WorkloadRef) {
        let Some(known) = self.workloads.get(key) else { return };
        let referenced = self.referenced(&key.namespace, known);
        let named = known.asks.iter().flat_map(|asks| asks.named.keys());
        let named: Vec<_> = named.chain(referenced.keys()).map(|name| (name.of(&key.namespace), ())).collect();
        self.named.set(key, named);
    }

    /// Finds out anew what a workload is rolled for.
    pub(super) fn index(&mut self, key: &WorkloadRef, work: &mut Work) {
        self.stirred(key);
        let Some(known) = self.workloads.get(key) else { return };
        let of_source = |name: &SourceName| self.sources.get(&name.of(&key.namespace)).map(|source| &source.asks);
        let chosen = self.source_selectors.matching(&key.namespace, |_, selector| selector.choose(&known.labels));
        let chosen: Vec<_> = chosen.map(|source| &source.name).collect();
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
        for (name, used) in before {
            if known.uses.get(&name).is_none_or(|now| now.keys != used.keys) {
                known.remember(name, used.keys);
            }
        }
        let used: Vec<_> = known.uses.keys().map(|name| name.of(&key.namespace)).collect();
        let changes = self.users.set(key, used.iter().map(|source| (source.clone(), ())));
        // The watch of a source may lag behind the watch of the workload, so older knowledge does not count for a new user. A version in Vault
        // carries its own time.
        for source in changes.added.iter().filter(|source| !source.name.kind.is_in_vault()) {
            self.sources.entry((**source).clone()).and_modify(Source::doubt);
            self.users_stirred(source);
        }
        for source in used {
            // Asked for until it was read: who has asked before may have been interrupted.
            let known = self.sources.entry(source.clone()).or_default();
            if known.read.is_none() || known.doubt != Doubt::None {
                work.sources.insert(source);
            }
        }
        for source in changes.removed {
            if !self.users.is_referenced(&source) {
                work.unused.insert((*source).clone());
            }
            self.drop_unused(&source);
            if source.name.kind.is_in_vault() {
                work.sources.insert((*source).clone());
            }
        }
    }

    /// Forgets a workload.
    pub(super) fn drop_workload(&mut self, key: &WorkloadRef, work: &mut Work) {
        self.use_only(key, BTreeMap::new(), work);
        self.stirred(key);
        self.waiting.remove(key);
        if let Some(known) = self.workloads.remove(key) {
            work.triggers.extend(self.asking(key, &known.labels).cloned());
            self.mounted.remove(key);
            self.named.remove(key);
            self.set_template_ref(key, work);
        }
    }

    /// Those that wait for this one may go now, or wait for another.
    pub(super) fn wake_later_waves(&self, key: &WorkloadRef, work: &mut Work) {
        work.workloads.extend(self.waiting.referrers(key).cloned());
    }

    /// Forgets of a source what nobody needs any more.
    pub(super) fn drop_unused(&mut self, source: &SourceRef) {
        let silent = |known: &Source| known.asks.is_silent();
        if !self.users.is_referenced(source) && self.sources.get(source).is_some_and(silent) {
            self.sources.remove(source);
        }
        if let Some(known) = self.sources.get_mut(source).filter(|_| !self.users.is_referenced(source)) {
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
