//! What keeps a change in Vault from rolling a workload: nobody wants it now, or a Secret has not followed yet.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use konverge_workload::{Keys, Need};

use super::{Inner, Known, sources::Doubt};
use crate::{
    decision::Now,
    declarations::Rule,
    digest::Digester,
    object::{SourceName, WorkloadRef},
    record::{Content, Entry, Record},
    trigger::{Asks, Shown, TriggerRef},
    vault::Standing,
    wait::{self, Back, WaitFor},
};

/// A workload that is looked at.
#[derive(Clone, Copy)]
pub(super) struct Looked<'a> {
    pub(super) known: &'a Known,
    pub(super) namespace: &'a str,
    pub(super) record: Option<&'a Record>,
    pub(super) digester: &'a Digester,
    pub(super) now: Timestamp,
}

/// What is to become of the sources in Vault by a verdict.
#[derive(Default)]
pub(super) struct Moved {
    /// They are rolled for.
    pub(super) rolled: BTreeSet<SourceName>,
    /// They are seen for the first time.
    pub(super) noted: BTreeSet<SourceName>,
    /// They have changed, and it is not time yet.
    pub(super) back: BTreeMap<SourceName, Back>,
}

impl Inner {
    /// Those who may have a workload rolled, and what they ask for.
    pub(super) fn asked_by<'a>(
        &'a self,
        key: &'a WorkloadRef,
        known: &'a Known,
    ) -> impl Iterator<Item = (&'a TriggerRef, &'a Asks)> {
        let own = known.asks.as_ref().ok().filter(|own| !own.never);
        let asking = own.into_iter().flat_map(move |own| {
            self.asking(key, &known.labels).filter(move |trigger| own.allows(&key.namespace, &trigger.namespace))
        });
        asking.filter_map(|trigger| Some((trigger, &**self.triggers.get(trigger).and_then(Shown::asks)?)))
    }

    /// The Secrets that are waited for on behalf of a workload.
    pub(super) fn awaited(&self, key: &WorkloadRef, known: &Known) -> Vec<(SourceName, Keys, Rule)> {
        let wishes = self.asked_by(key, known);
        let awaited = wishes.filter_map(|(trigger, asks)| Some((asks.wait_for.as_ref()?, trigger.rule())));
        awaited.map(|(wait, rule)| (wait.secret.clone(), wait.keys.clone(), rule)).collect()
    }

    /// Why a source that has changed rolls nothing yet; nothing as soon as one of those who ask does not want to wait.
    pub(super) fn back(&self, key: &WorkloadRef, looked: Looked<'_>, source: &SourceName) -> Option<Back> {
        let mut back = None;
        let asked = self.asked_by(key, looked.known);
        for (_, asks) in asked.filter(|(_, asks)| asks.sources.contains_key(source)) {
            let one = match &asks.wait_for {
                _ if asks.suspended => Back::Suspended,
                None => return None,
                Some(wait) => self.waits(looked, source, wait)?,
            };
            back = match back {
                Some(known) if one == Back::Suspended => Some(known),
                _ => Some(one),
            };
        }
        back
    }

    /// Whether the Secret has still to follow.
    fn waits(&self, looked: Looked<'_>, source: &SourceName, wait: &WaitFor) -> Option<Back> {
        let Looked { known, namespace, record, digester, now } = looked;
        let secret = self.sources.get(&wait.secret.of(namespace)).filter(|secret| secret.doubt == Doubt::None);
        match secret.and_then(|secret| secret.read.as_ref()) {
            // What may not be read may have followed for all that is known, and the time is told.
            None if secret.is_some_and(|secret| secret.refused.is_some()) => {}
            None => return Some(Back::Awaited(wait.secret.clone(), None)),
            Some(read) => {
                let keys = known.uses.get(&wait.secret)?.awaited.as_ref()?;
                let entry = digester.entry(&known.uid, &wait.secret, keys, read.content.as_ref());
                if recorded(record, &wait.secret).is_some_and(|(before, _)| has_followed(before, &entry)) {
                    return None;
                }
            }
        }
        let until = self.since(source, now).checked_add(wait.timeout).unwrap_or(Timestamp::MAX);
        if until > now {
            return Some(Back::Awaited(wait.secret.clone(), Some(until)));
        }
        wait.holds.then(|| Back::Overdue(wait.secret.clone(), until))
    }

    /// When a source changed: when Vault says, which a restart of the operator does not change, or when that was seen, if it was later.
    fn since(&self, source: &SourceName, now: Timestamp) -> Timestamp {
        let Some(known) = self.sources.get(&source.of("")) else { return now };
        let created = match &known.standing {
            Standing::Live(version) => version.created.parse::<Timestamp>().ok(),
            _ => None,
        };
        // A time in the future is another clock's.
        let created = created.filter(|created| *created <= now);
        created.max(known.changed).or(known.since).unwrap_or(now)
    }

    /// What is to be recorded of the Secrets that are waited for, and when it is to be looked at again though nothing happens.
    pub(super) fn of_awaited(
        &self,
        key: &WorkloadRef,
        looked: Looked<'_>,
        moved: &Moved,
    ) -> (BTreeMap<String, Now>, Option<Timestamp>) {
        let Looked { known, namespace, record, digester, now } = looked;
        let (mut entries, mut again) = (BTreeMap::new(), None);
        for (secret, keys) in known.uses.iter().filter_map(|(name, used)| Some((name, used.awaited.as_ref()?))) {
            let (awaited, late) = (wait::awaited(secret), wait::late(secret));
            let before = recorded(record, secret);
            let source = self.sources.get(&secret.of(namespace)).filter(|source| source.doubt == Doubt::None);
            let Some((source, read)) = source.and_then(|source| Some((source, source.read.as_ref()?))) else {
                if let Some((before, is_late)) = before {
                    let text = if is_late { late } else { awaited };
                    entries.insert(text, entry(before.clone(), false));
                }
                continue;
            };
            let current = digester.entry(&known.uid, secret, keys, read.content.as_ref());
            let before = before.filter(|(before, _)| before.selection == current.selection);
            let follows = |sources: &BTreeSet<SourceName>| {
                let mut asked = self.asked_by(key, known).filter(|(_, asks)| asks.waits_for(secret));
                asked.any(|(_, asks)| sources.iter().any(|source| asks.sources.contains_key(source)))
            };
            let differs = before.is_some_and(|(before, _)| has_followed(before, &current));
            let (text, found) = match before {
                // Pods that were rolled without it have read what it was.
                Some((_, true)) if differs => (awaited, entry(current, true)),
                Some((before, true)) => (late, entry(before.clone(), false)),
                Some((before, false)) if follows(&moved.rolled) && !differs => (late, entry(before.clone(), false)),
                Some((before, false)) if !follows(&moved.rolled) && !follows(&moved.noted) => {
                    let quiet = if differs { self.quiet(key, looked, secret, source.since) } else { None };
                    match quiet {
                        Some(time) if time <= now => (awaited, entry(current, false)),
                        quiet => {
                            again = [again, quiet].into_iter().flatten().min();
                            (awaited, entry(before.clone(), false))
                        }
                    }
                }
                _ => (awaited, entry(current, false)),
            };
            entries.insert(text, found);
        }
        (entries, again)
    }

    /// When a change of the Secret is nobody's who follows Vault: Vault was asked twice since, answers, and has nothing new.
    fn quiet(
        &self,
        key: &WorkloadRef,
        looked: Looked<'_>,
        secret: &SourceName,
        since: Option<Timestamp>,
    ) -> Option<Timestamp> {
        let asked: Vec<_> = self.asked_by(key, looked.known).filter(|(_, asks)| asks.waits_for(secret)).collect();
        let mut sources = asked.iter().flat_map(|(_, asks)| asks.sources.keys());
        let answers = |source: &SourceName| {
            let known = self.sources.get(&source.of(""));
            known.is_some_and(|known| matches!(known.standing, Standing::Live(_)))
        };
        if !sources.all(answers) {
            return None;
        }
        let every = asked.iter().map(|(_, asks)| asks.every).max()?;
        since?.checked_add(SignedDuration::try_from(every * 2).ok()?).ok()
    }
}

/// What is recorded of a Secret that is waited for, and whether it was late.
fn recorded<'a>(record: Option<&'a Record>, secret: &SourceName) -> Option<(&'a Entry, bool)> {
    let content = &record?.content;
    let awaited = content.get(&wait::awaited(secret)).map(|entry| (entry, false));
    awaited.or_else(|| content.get(&wait::late(secret)).map(|entry| (entry, true)))
}

/// Whether the content is there, and another than it was.
fn has_followed(before: &Entry, now: &Entry) -> bool {
    before.selection == now.selection && before.content != now.content && matches!(now.content, Content::Digest(_))
}

/// By itself it rolls nothing, unless it was waited for in vain.
fn entry(entry: Entry, is_news: bool) -> Now {
    Now { entry, need: Need::Required, is_news, counts: is_news }
}
