//! Secrets and `ConfigMaps` in the index.

use std::collections::{BTreeSet, HashSet};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::{Index, Inner, Work};
use crate::{
    breaker::{self, Breaker},
    declarations::{Invalid, SourceAsks},
    digest::KeyDigests,
    messages::Message,
    object::{SourceKind, SourceName, SourceRef, WorkloadRef},
    vault::{Standing, Version},
};

/// What is known of a Secret or a `ConfigMap`.
#[derive(Debug, Default)]
pub(super) struct Source {
    pub(super) uid: String,
    pub(super) asks: SourceAsks,
    pub(super) invalid: Option<Invalid>,
    /// What was read of it; nothing if it was not read yet.
    pub(super) read: Option<Read>,
    /// Whether what was read of it may be older than what somebody runs with who uses it.
    pub(super) doubt: Doubt,
    pub(super) breaker: Breaker,
    /// When its content changed, as far as that was seen.
    pub(super) changed: Option<Timestamp>,
    /// Since when it has had its content, or has been known to.
    pub(super) since: Option<Timestamp>,
    /// How it stands in Vault, if it is there.
    pub(super) standing: Standing,
    /// Why it may not be read, if the last attempt was refused.
    pub(super) refused: Option<Message>,
}

/// Whether what was read of a source may be older than what is known otherwise: somebody uses it who was not known when it was read, and
/// whose pods may have read what came after; or another has rolled somebody for what we have not seen yet.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) enum Doubt {
    /// It is not.
    #[default]
    None,
    /// It may be, and so may what is being read at the moment.
    Open,
    /// What is being read since will tell.
    Reading,
}

/// What was read of a source.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Read {
    /// In which version; nothing if it was not there.
    pub(super) version: Option<String>,
    /// What it holds.
    pub(super) content: Option<KeyDigests>,
    /// In which version that was in Vault, if it is from there and has versions.
    pub(super) in_vault: Option<Version>,
}

/// What reading a source has brought.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Learned {
    /// Whom it concerns.
    pub users: BTreeSet<WorkloadRef>,
    /// Whether its content is another than before.
    pub changed: bool,
    /// Whether it has run away by that; then its uid.
    pub ran_away: Option<String>,
}

impl Index {
    /// A watch shows a source. One that nobody is rolled for and that asks for nothing leaves no trace.
    pub fn show_source(&self, kind: SourceKind, metadata: ObjectMeta) -> (Option<SourceRef>, Work) {
        let mut work = Work::default();
        let (Some(namespace), Some(name)) = (metadata.namespace, metadata.name) else { return (None, work) };
        let name = SourceName { kind, name };
        let source = name.of(&namespace);
        let (asks, invalid) = match metadata.annotations.map(|own| SourceAsks::read(&own, self.others)) {
            None => (SourceAsks::default(), None),
            Some(Ok(asks)) => (asks, None),
            // It may have asked to be let alone.
            Some(Err(invalid)) => (SourceAsks { ignored: true, ..SourceAsks::default() }, Some(invalid)),
        };
        let mut inner = self.lock();
        let is_used = inner.users.is_referenced(&source);
        let silent = asks.is_silent();
        if silent && !inner.sources.contains_key(&source) {
            return (None, work);
        }
        let known = inner.sources.entry(source.clone()).or_default();
        known.uid = metadata.uid.unwrap_or_default();
        if known.invalid != invalid {
            work.invalid = invalid.clone().map(|invalid| (source.clone(), known.uid.clone(), invalid));
            known.invalid = invalid;
        }
        // Also before the answer to the first read is there: it may be from before this.
        if is_used && known.read.as_ref().is_none_or(|read| read.version != metadata.resource_version) {
            work.sources.insert(source.clone());
        }
        let before = std::mem::replace(&mut known.asks, asks);
        if before != known.asks {
            inner.asks_otherwise(&source, &mut work);
        }
        inner.drop_unused(&source);
        (Some(source), work)
    }

    /// A source is about to be read: what that brings is newer than all that was shown before.
    pub fn reading(&self, source: &SourceRef) {
        if let Some(known) = self.lock().sources.get_mut(source).filter(|known| known.doubt == Doubt::Open) {
            known.doubt = Doubt::Reading;
        }
    }

    /// A source was read in this version; nothing if it is not there.
    pub fn learn(
        &self,
        source: &SourceRef,
        version: Option<String>,
        content: Option<KeyDigests>,
        now: Timestamp,
    ) -> Learned {
        self.lock().learn(source, Read { version, content, in_vault: None }, &self.breaker, now)
    }

    /// A source may not be read. What is known of it stays. Returns whom it concerns, if they do not know that yet.
    pub fn refuse(&self, source: &SourceRef, why: Message) -> BTreeSet<WorkloadRef> {
        let mut inner = self.lock();
        match inner.sources.get_mut(source) {
            Some(known) if known.refused.as_ref() != Some(&why) => known.refused = Some(why),
            _ => return BTreeSet::new(),
        }
        inner.users_stirred(source);
        inner.users_of(source)
    }

    /// A source is gone.
    pub fn forget_source(&self, source: &SourceRef, now: Timestamp) -> Work {
        let learned = self.learn(source, None, None, now);
        let mut work = self.lock().asks_no_more(source);
        work.workloads.extend(learned.users);
        work
    }

    /// Those of a kind that are there for all that is known: they have been read, or ask for something.
    pub fn sources_there(&self, kind: SourceKind) -> HashSet<SourceRef> {
        let is_there =
            |known: &Source| known.read.as_ref().is_some_and(|read| read.content.is_some()) || !known.asks.is_silent();
        let inner = self.lock();
        let there = inner.sources.iter().filter(|(source, known)| source.name.kind == kind && is_there(known));
        there.map(|(source, _)| source.clone()).collect()
    }

    /// A complete list was seen, and these that were [there](Self::sources_there) when it began are not in it. They ask for nothing any more; whether
    /// they are gone is told by who reads them, since one that nobody used when the list passed it by may be used by now.
    pub fn retain_sources(&self, missing: impl IntoIterator<Item = SourceRef>) -> Work {
        let mut work = Work::default();
        for source in missing {
            work.add(self.lock().asks_no_more(&source));
            work.sources.extend(Some(source).filter(|source| self.is_used(source)));
        }
        work
    }

    /// Its uid, as far as it was seen.
    pub fn source_uid(&self, source: &SourceRef) -> Option<String> {
        self.lock().sources.get(source).map(|known| known.uid.clone()).filter(|uid| !uid.is_empty())
    }

    /// Whether anybody is rolled for it.
    pub fn is_used(&self, source: &SourceRef) -> bool {
        self.lock().users.is_referenced(source)
    }

    /// How many sources are not followed until they are quiet.
    pub fn ran_away(&self, now: Timestamp) -> usize {
        let inner = self.lock();
        let used = inner.sources.iter().filter(|(source, _)| inner.users.is_referenced(source));
        used.filter(|(_, known)| known.breaker.open_until(now).is_some()).count()
    }

    /// How many workloads take part, and how many sources they are rolled for.
    pub fn counts(&self) -> (usize, usize) {
        let inner = self.lock();
        (inner.workloads.values().filter(|known| !known.uses.is_empty()).count(), inner.users.target_count())
    }
}

impl Source {
    /// What was read of it, or is being read, may be outdated.
    pub(super) fn doubt(&mut self) {
        self.doubt = Doubt::Open;
    }
}

impl Inner {
    pub(super) fn users_of(&self, source: &SourceRef) -> BTreeSet<WorkloadRef> {
        self.users.referrers(source).cloned().collect()
    }

    /// A source holds this.
    pub(super) fn learn(
        &mut self,
        source: &SourceRef,
        read: Read,
        breaker: &breaker::Settings,
        now: Timestamp,
    ) -> Learned {
        let users = self.users_of(source);
        self.users_stirred(source);
        let Some(known) = self.sources.get_mut(source).filter(|_| !users.is_empty()) else {
            return Learned::default();
        };
        let was_waited_for = known.doubt == Doubt::Reading;
        if was_waited_for {
            known.doubt = Doubt::None;
        }
        let was_waited_for = was_waited_for | known.refused.take().is_some();
        let before = known.read.replace(read);
        let is_new = before.is_none();
        let now_it_is = known.read.as_ref();
        let changed = before.as_ref().is_some_and(|before| now_it_is.is_some_and(|now| now.content != before.content));
        let versions = before
            .as_ref()
            .and_then(|before| before.in_vault.as_ref())
            .zip(now_it_is.and_then(|now| now.in_vault.as_ref()));
        let times = versions.map_or(1, |(before, now)| now.times_since(before, breaker.within));
        if is_new || changed {
            known.since = Some(now);
        }
        if !is_new && !changed && !was_waited_for {
            return Learned::default();
        }
        let mut learned = Learned { users, changed, ran_away: None };
        if changed {
            known.changed = Some(now);
            learned.ran_away = known.breaker.changed(times, now, breaker).then(|| known.uid.clone());
        }
        learned
    }

    /// A source is not there to ask for anything.
    fn asks_no_more(&mut self, source: &SourceRef) -> Work {
        let mut work = Work::default();
        if let Some(known) = self.sources.get_mut(source) {
            let before = std::mem::take(&mut known.asks);
            known.invalid = None;
            if !before.is_silent() {
                self.asks_otherwise(source, &mut work);
            }
        }
        self.drop_unused(source);
        work
    }

    /// Updates every workload that the annotations of a source may concern.
    fn asks_otherwise(&mut self, source: &SourceRef, work: &mut Work) {
        let namespace = &source.namespace;
        let selector = self.sources.get(source).and_then(|known| known.asks.selector.clone());
        let selects = selector.is_some();
        let changes = self.source_selectors.set(source, selector.map(|selector| (namespace.clone(), selector)));
        let mut concerned: BTreeSet<_> = self.named.referrers(source).cloned().collect();
        if selects || !changes.removed.is_empty() {
            let all = self.workloads.keys().filter(|key| key.namespace == *namespace);
            concerned.extend(all.cloned());
        }
        for key in concerned {
            self.index(&key, work);
        }
    }
}
