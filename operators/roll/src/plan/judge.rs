//! The comparison of the content that there is with what is recorded on a workload. Pure.
//!
//! An entry may be recorded for another selection of keys, or in another mode, than the one that counts now. A user who changes what counts while a change
//! waits to be rolled has restarted nothing by that: the change still counts.

use std::collections::{BTreeMap, BTreeSet};

use konverge_workload::{Keys, Need};

use crate::{
    decision::{self, Now, RecordedState, Verdict},
    digest::Digester,
    object::{SourceKind, SourceName},
    record::{Content, Entry, Record},
    state::{Read, Snapshot, SourceState},
    time::Time,
    uses::Use,
    vault,
    wait::{self, Deferral},
};

/// The comparison of what there is with what is recorded.
#[derive(Debug)]
pub struct Judged {
    /// The record of the workload, if it is its own.
    pub record: Option<Record>,
    /// Whether that record stands on it, and was not removed.
    pub is_noted: bool,
    /// The decision. `None` while a source of the workload has not been read.
    pub verdict: Option<Verdict>,
    /// The sources that have changed and roll nothing yet, and why.
    pub deferral: BTreeMap<SourceName, Deferral>,
    /// When to look again though nothing happens.
    pub again: Option<Time>,
}

/// Compares what there is with what is recorded on a workload.
pub fn judge(snapshot: &Snapshot, digester: &Digester, now: Time) -> Judged {
    let (record, is_noted) = snapshot.workload.record.own(&snapshot.observed().uid, digester);
    let planner = Planner { snapshot, record: record.as_ref(), is_noted, digester, now };
    let (verdict, deferral, again) = planner.judge().unwrap_or_default();
    Judged { record, is_noted, verdict, deferral, again }
}

/// A workload that is planned for.
pub(super) struct Planner<'a> {
    pub(super) snapshot: &'a Snapshot,
    pub(super) record: Option<&'a Record>,
    is_noted: bool,
    pub(super) digester: &'a Digester,
    pub(super) now: Time,
}

/// The sources that were compared so far.
#[derive(Default)]
pub(super) struct Compared {
    /// The entries of the next record.
    now: BTreeMap<String, Now>,
    /// The secrets in Vault that it is rolled for.
    pub(super) rolled: BTreeSet<SourceName>,
    /// The secrets in Vault that are seen for the first time.
    pub(super) noted: BTreeSet<SourceName>,
    /// The sources that have changed and roll nothing yet.
    deferral: BTreeMap<SourceName, Deferral>,
}

/// An entry that stays as it is recorded.
fn kept(entry: &Entry) -> Now {
    Now { entry: entry.clone(), need: Need::Required, is_news: false, counts: true }
}

impl Compared {
    /// Leaves an entry as if nobody had told of a change.
    fn defer(&mut self, name: &SourceName, before: Option<(String, &Entry)>, deferral: Deferral) {
        self.now.extend(before.map(|(text, before)| (text, kept(before))));
        self.deferral.insert(name.clone(), deferral);
    }
}

type Outcome = (Option<Verdict>, BTreeMap<SourceName, Deferral>, Option<Time>);

impl<'a> Planner<'a> {
    /// Returns `None` while a source of the cluster has not been read, or nothing is known.
    fn judge(&self) -> Option<Outcome> {
        let mut compared = Compared::default();
        for (name, used) in self.snapshot.workload.uses.current.iter().filter(|(_, used)| used.counts) {
            self.compare(name, used, &mut compared)?;
        }
        if !self.snapshot.all_triggers_listed {
            let for_triggers = |text: &String| SourceName::is_in_vault(text) || wait::secret_of(text).is_some();
            let recorded = self.record.iter().flat_map(|record| &record.content);
            for (text, entry) in recorded.filter(|(text, _)| for_triggers(text)) {
                compared.now.entry(text.clone()).or_insert_with(|| kept(entry));
            }
        }
        if compared.now.is_empty() {
            return None;
        }
        let (awaited, again) = self.of_awaited(&compared);
        let Compared { mut now, deferral, .. } = compared;
        let awaits = |secret: &SourceName| {
            self.snapshot.workload.uses.current.get(secret).is_some_and(|used| used.awaited.is_some())
        };
        now.retain(|text, _| wait::secret_of(text).is_none_or(|secret| !awaits(&secret)));
        now.extend(awaited);
        let mut verdict = decision::decide(self.standing(), &now);
        if let Verdict::Roll { changed, .. } = &mut verdict {
            // Users know it by its own name.
            for text in changed {
                if let Some(secret) = wait::secret_of(text) {
                    *text = secret.to_string();
                }
            }
        }
        Some((Some(verdict), deferral, again))
    }

    /// Compares one source. Returns `None` if it is about to be read, so that nothing can be decided.
    fn compare(&self, name: &SourceName, used: &Use, compared: &mut Compared) -> Option<()> {
        let source = self.snapshot.source(name);
        let text = name.to_string();
        let own = self.record.and_then(|record| record.content.get(&text));
        let other = self.of_other_mode(name).filter(|_| own.is_none());
        let Some((source, read)) = source.and_then(|source| Some((source, source.current()?))) else {
            return compare_unread(source, name, own.map(|own| (text, own)).or(other), compared);
        };
        let entry = self.entry(name, used, read);
        let is_news = self.is_news(name, read, (own, other.as_ref().map(|(_, entry)| *entry)), &entry);
        let before = own.map(|entry| (text.clone(), entry)).or(other);
        let new = Now { entry, need: used.need, is_news, counts: true };
        let open = source.breaker.open_until(self.now);
        if let Some(until) = open.filter(|_| decision::is_change(self.standing(), &text, &new)) {
            compared.defer(name, before, Deferral::RanAway(until));
            return Some(());
        }
        match before.filter(|_| name.kind.is_in_vault()) {
            Some((noted, before)) if is_news || differs(before, &new.entry) => match self.deferral(name) {
                Some(deferral) => {
                    compared.defer(name, Some((noted, before)), deferral);
                    return Some(());
                }
                None => drop(compared.rolled.insert(name.clone())),
            },
            Some(_) => {}
            None => drop(compared.noted.insert(name.clone())),
        }
        compared.now.insert(text, new);
        Some(())
    }

    fn entry(&self, name: &SourceName, used: &Use, read: &Read) -> Entry {
        let entry = self.digester.entry(&self.snapshot.observed().uid, name, &used.keys, read.content.as_ref());
        Entry { version: read.in_vault.clone(), ..entry }
    }

    /// Returns whether a source is known to have changed though no entry for the same keys is recorded.
    fn is_news(
        &self,
        name: &SourceName,
        read: &Read,
        (own, other): (Option<&Entry>, Option<&Entry>),
        entry: &Entry,
    ) -> bool {
        match (own, other) {
            (Some(before), _) if before.selection == entry.selection => false,
            (Some(before), _) => self.differs_by_previous_selection(name, before, read),
            (None, Some(before)) => is_other_version(before, read),
            (None, None) => name.kind.is_in_vault() && self.is_news_to_triggers(name),
        }
    }

    /// Returns whether a trigger has noted that the pods run with another version of a secret, of which nothing is recorded on the workload.
    fn is_news_to_triggers(&self, name: &SourceName) -> bool {
        let Some(vault::SecretState::Live(now)) = self.snapshot.source(name).map(|source| &source.standing) else {
            return false;
        };
        let (key, uid) = (&self.snapshot.key, &self.snapshot.observed().uid);
        let mut requests = self.snapshot.triggers.iter().filter(|(_, _, spec)| spec.sources.contains_key(name));
        requests.any(|(_, shown, _)| shown.is_news(key, uid, name, now))
    }

    /// Returns whether a source differs from its entry by the selection of keys for which that was recorded.
    fn differs_by_previous_selection(&self, name: &SourceName, before: &Entry, read: &Read) -> bool {
        let workload = &self.snapshot.workload;
        let remembered = workload.uses.previous_selections.get(name).into_iter().flatten();
        // The most frequent selections need no memory.
        let used = workload.observed.referenced.get(name).map(|usage| &usage.keys);
        let selections = remembered.chain(used).chain([&Keys::All]);
        let uid = &workload.observed.uid;
        let mut entries = selections.map(|keys| self.digester.entry(uid, name, keys, read.content.as_ref()));
        let entry = entries.find(|entry| entry.selection == before.selection);
        entry.is_some_and(|entry| {
            let now = Entry { version: read.in_vault.clone(), ..entry };
            let both = (&before.content, &now.content);
            matches!(both, (Content::Digest(before), Content::Digest(now)) if before != now) && !now.is_before(before)
        })
    }

    /// Returns the entry of a secret in Vault in the other mode, if that mode counts no more.
    fn of_other_mode(&self, name: &SourceName) -> Option<(String, &'a Entry)> {
        let kind = match name.kind {
            SourceKind::Vault => SourceKind::VaultContent,
            SourceKind::VaultContent => SourceKind::Vault,
            SourceKind::VaultV1 | SourceKind::Secret | SourceKind::ConfigMap => return None,
        };
        let other = SourceName { kind, name: name.name.clone() };
        if self.snapshot.workload.uses.current.get(&other).is_some_and(|used| used.counts) {
            return None;
        }
        let text = other.to_string();
        let entry = self.record?.content.get(&text)?;
        Some((text, entry))
    }

    fn standing(&self) -> RecordedState<'a> {
        let Snapshot { workload, .. } = self.snapshot;
        let stamp = workload.observed.stamp.as_deref();
        let is_stamped = stamp.is_some_and(|stamp| self.digester.is_stamp_of(&workload.observed.uid, stamp));
        RecordedState { record: self.record, is_noted: self.is_noted, is_stamped }
    }
}

/// A source whose content is not known. The cluster is asked at any moment, unless that is refused. Vault may be away, and a Secret forbidden, for a long time, and
/// nothing else waits for it: the entry that is recorded stays.
fn compare_unread(
    source: Option<&SourceState>,
    name: &SourceName,
    before: Option<(String, &Entry)>,
    compared: &mut Compared,
) -> Option<()> {
    if !name.kind.is_in_vault() && source.is_none_or(|source| source.refused.is_none()) {
        return None;
    }
    compared.now.extend(before.map(|(text, entry)| (text, kept(entry))));
    Some(())
}

/// Returns whether content is another than the recorded one, and not older.
fn differs(before: &Entry, now: &Entry) -> bool {
    before.selection == now.selection && before.content != now.content && !now.is_before(before)
}

/// Returns whether a secret in Vault was read in another version than the recorded one, and not in an older one.
fn is_other_version(before: &Entry, read: &Read) -> bool {
    let versions = before.version.as_ref().zip(read.in_vault.as_ref());
    versions.is_some_and(|(before, now)| before != now && !now.is_before(before))
}
