//! Changes in Vault that roll nothing yet: every trigger is suspended, or a Secret has not followed.

use std::collections::{BTreeMap, BTreeSet};

use jiff::SignedDuration;
use konverge_workload::Need;

use super::judge::{Compared, Planner};
use crate::{
    decision::Now,
    object::SourceName,
    record::{Content, Entry, Record},
    state::SourceState,
    time::Time,
    vault::SecretState,
    wait::{self, Deferral, WaitFor},
};

/// A Secret that is waited for, as it is recorded and as it is.
struct Followed<'a> {
    secret: &'a SourceName,
    source: &'a SourceState,
    /// The recorded entry for the same keys, and whether the workload was rolled without it.
    before: Option<(&'a Entry, bool)>,
    current: Entry,
}

impl Planner<'_> {
    /// Returns why a source that has changed rolls nothing yet. Returns `None` as soon as one trigger does not want to wait.
    pub(super) fn deferral(&self, source: &SourceName) -> Option<Deferral> {
        let mut deferral = None;
        for spec in self.snapshot.specs().filter(|spec| spec.sources.contains_key(source)) {
            let one = match &spec.wait_for {
                _ if spec.suspended => Deferral::Suspended,
                None => return None,
                Some(wait) => self.waits(source, wait)?,
            };
            deferral = match deferral {
                Some(known) if one == Deferral::Suspended => Some(known),
                _ => Some(one),
            };
        }
        deferral
    }

    /// Returns why a Secret is still waited for. Returns `None` if it has followed, or its time is over.
    fn waits(&self, source: &SourceName, wait: &WaitFor) -> Option<Deferral> {
        let workload = &self.snapshot.workload;
        let secret = self.snapshot.source(&wait.secret).filter(|secret| secret.is_current());
        match secret.and_then(|secret| secret.read.as_ref()) {
            // A Secret that may not be read may have followed for all that is known. Its time counts.
            None if secret.is_some_and(|secret| secret.refused.is_some()) => {}
            None => return Some(Deferral::Awaited(wait.secret.clone(), None)),
            Some(read) => {
                let keys = workload.uses.current.get(&wait.secret)?.awaited.as_ref()?;
                let entry = self.digester.entry(&workload.observed.uid, &wait.secret, keys, read.content.as_ref());
                if recorded(self.record, &wait.secret).is_some_and(|(before, _)| has_followed(before, &entry)) {
                    return None;
                }
            }
        }
        let until = self.since(source).later(wait.timeout);
        if until > self.now {
            return Some(Deferral::Awaited(wait.secret.clone(), Some(until)));
        }
        wait.holds.then(|| Deferral::Overdue(wait.secret.clone(), until))
    }

    /// Returns when a source changed: when Vault says, which a restart of the operator does not change, or when that was seen, if that was later.
    fn since(&self, source: &SourceName) -> Time {
        let Some(known) = self.snapshot.source(source) else { return self.now };
        let created = match &known.standing {
            // A time in the future is another clock's.
            SecretState::Live(version) => version.created.parse().ok().and_then(|created| self.now.recorded(created)),
            _ => None,
        };
        created.max(known.changed).or(known.since).unwrap_or(self.now)
    }

    /// Returns the entries of the Secrets that are waited for, and when to look again though nothing happens.
    pub(super) fn of_awaited(&self, compared: &Compared) -> (BTreeMap<String, Now>, Option<Time>) {
        let (mut entries, mut again) = (BTreeMap::new(), None);
        let workload = &self.snapshot.workload;
        let awaited = workload.uses.current.iter().filter_map(|(name, used)| Some((name, used.awaited.as_ref()?)));
        for (secret, keys) in awaited {
            let before = recorded(self.record, secret);
            let source = self.snapshot.source(secret).and_then(|source| Some((source, source.current()?)));
            let Some((source, read)) = source else {
                entries
                    .extend(before.map(|(before, is_late)| (name_of(secret, is_late), entry(before.clone(), false))));
                continue;
            };
            let current = self.digester.entry(&workload.observed.uid, secret, keys, read.content.as_ref());
            let before = before.filter(|(before, _)| before.selection == current.selection);
            let (is_late, found, quiet) = self.follow(Followed { secret, source, before, current }, compared);
            again = [again, quiet].into_iter().flatten().min();
            entries.insert(name_of(secret, is_late), found);
        }
        (entries, again)
    }

    /// Returns the next entry of a Secret that is waited for: whether the workload was rolled without it, the entry, and when to look again.
    fn follow(&self, followed: Followed<'_>, compared: &Compared) -> (bool, Now, Option<Time>) {
        let Followed { secret, source, before, current } = followed;
        let follows = |sources: &BTreeSet<SourceName>| {
            let mut specs = self.snapshot.specs().filter(|spec| spec.waits_for(secret));
            specs.any(|spec| sources.iter().any(|source| spec.sources.contains_key(source)))
        };
        let differs = before.is_some_and(|(before, _)| has_followed(before, &current));
        match before {
            // Pods that were rolled without it have read the old content.
            Some((_, true)) if differs => (false, entry(current, true), None),
            Some((before, true)) => (true, entry(before.clone(), false), None),
            Some((before, false)) if follows(&compared.rolled) && !differs => {
                (true, entry(before.clone(), false), None)
            }
            Some((before, false)) if !follows(&compared.rolled) && !follows(&compared.noted) => {
                let quiet = if differs { self.quiet(secret, source.since) } else { None };
                match quiet {
                    Some(time) if time <= self.now => (false, entry(current, false), None),
                    quiet => (false, entry(before.clone(), false), quiet),
                }
            }
            _ => (false, entry(current, false), None),
        }
    }

    /// Returns when a change of the Secret is taken for one that is not from Vault: Vault was asked twice since, answers, and has nothing new.
    fn quiet(&self, secret: &SourceName, since: Option<Time>) -> Option<Time> {
        let specs: Vec<_> = self.snapshot.specs().filter(|spec| spec.waits_for(secret)).collect();
        let mut sources = specs.iter().flat_map(|spec| spec.sources.keys());
        let answers = |source: &SourceName| {
            self.snapshot.source(source).is_some_and(|known| matches!(known.standing, SecretState::Live(_)))
        };
        if !sources.all(answers) {
            return None;
        }
        let every = specs.iter().map(|spec| spec.every).max()?;
        Some(since?.later(SignedDuration::try_from(every * 2).ok()?))
    }
}

fn name_of(secret: &SourceName, is_late: bool) -> String {
    if is_late { wait::late(secret) } else { wait::awaited(secret) }
}

/// Returns the entry of a Secret that is waited for, and whether the workload was rolled without it.
fn recorded<'a>(record: Option<&'a Record>, secret: &SourceName) -> Option<(&'a Entry, bool)> {
    let content = &record?.content;
    let awaited = content.get(&wait::awaited(secret)).map(|entry| (entry, false));
    awaited.or_else(|| content.get(&wait::late(secret)).map(|entry| (entry, true)))
}

/// Returns whether the content exists, and is another than before.
fn has_followed(before: &Entry, now: &Entry) -> bool {
    before.selection == now.selection && before.content != now.content && matches!(now.content, Content::Digest(_))
}

/// Returns an entry that rolls nothing by itself, unless it was waited for in vain.
fn entry(entry: Entry, is_news: bool) -> Now {
    Now { entry, need: Need::Required, is_news, counts: is_news }
}
