//! The plan for a workload: a pure function of a snapshot. No lock, no client, no clock.
//!
//! [`compare`] compares the content of each source with the entry that the record of the workload has for it, and [`decide`] says what follows from all of them.
//! A change in Vault may be held back by a [`Deferral`]. A [`Plan`] adds to the [`Comparison`] what only the run of the workload itself needs. Later waves need
//! a [`peer`], and the status of a trigger needs the comparison alone.
//!
//! An entry may be recorded for another selection of keys, or in another mode, than the one that counts now. A user who changes what counts while a change
//! waits to be rolled has restarted nothing by that: the change still counts.
//!
//! If a trigger says so, a workload waits for a Secret into which another tool syncs a secret in Vault. It waits until the content differs from that of the last
//! rollout for this source, or from the baseline. The record of the workload has the old content. So a restart of the operator does no harm, and a Secret
//! that is quicker than the request to Vault does none either. It is not known whether a change of the Secret comes from Vault. If Vault was asked twice after it and
//! had nothing new, the change is taken for another client's, and counts no more.

use std::collections::{BTreeMap, BTreeSet};

use jiff::SignedDuration;
use konverge_apply::Statement;
use konverge_workload::{Deadline, Keys, Need, Progress};
use litemap::LiteMap;

use crate::{
    annotations::{Invalid, WorkloadSpec},
    digest::{Digester, KeyDigests},
    object::{SourceName, SourceRef},
    record::{self, Content, Entry, Record},
    state::{Observed, Pods, Read, STEADY, Snapshot, SourceState},
    time::Time,
    trigger::WaitFor,
    uses::Use,
    vault::SecretState,
    waves::Peer,
};

/// The shortest time.
const MOMENT: SignedDuration = SignedDuration::from_nanos(1);

/// A workload that has opted in, and the plan for it.
#[derive(Debug)]
pub struct View {
    /// The input of the plan.
    pub snapshot: Snapshot,
    /// The plan.
    pub plan: Plan,
    /// Whether it was not known until now what is to be done.
    pub is_decided_now: bool,
}

impl View {
    /// Returns the workload as the API server has it.
    pub fn observed(&self) -> &Observed {
        self.snapshot.observed()
    }

    /// Returns its uid.
    pub fn uid(&self) -> &str {
        &self.observed().uid
    }

    /// Returns the spec in its annotations.
    pub fn spec(&self) -> Result<&WorkloadSpec, &Invalid> {
        self.observed().spec.as_deref().map_err(|invalid| &**invalid)
    }

    /// Returns the sources that it is rolled for.
    pub fn uses(&self) -> &LiteMap<SourceName, Use> {
        &self.snapshot.workload.uses.current
    }

    /// Returns since when it has been waiting to be rolled.
    pub fn pending(&self) -> Option<Time> {
        self.snapshot.workload.health.pending.map(|(since, _)| since)
    }
}

/// The comparison of what a workload uses with its record.
#[derive(Debug, Default)]
pub struct Comparison {
    /// The record of the workload, if it is its own.
    pub record: Option<Record>,
    /// Whether that record stands on it, and was not removed.
    pub is_noted: bool,
    /// The result, also if a source is doubted. A run takes [`Plan::verdict`] instead. `None` while a source of the workload has not been read.
    pub verdict: Option<Verdict>,
    /// The sources that have changed and roll nothing yet, and why.
    pub deferral: BTreeMap<SourceName, Deferral>,
    /// The sources that new pods need, and that do not exist or lack a key.
    pub unsatisfied: Vec<Unsatisfied>,
    /// The time of the next look, if no event comes before.
    pub again: Option<Time>,
}

/// A source without which the pods of a workload cannot start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unsatisfied {
    /// The source.
    pub source: SourceName,
    /// The missing keys. Empty if the source does not exist.
    pub keys: Vec<String>,
    /// Whether pods have started with the source, so that it was removed since.
    pub was_there: bool,
}

/// The plan for a run of a workload.
#[derive(Debug)]
pub struct Plan {
    /// The comparison with the record.
    pub comparison: Comparison,
    /// The sources to read again before a decision: another leader has written the record, and may have seen newer content.
    pub doubted: Vec<SourceRef>,
    /// When a source that it may be rolled for changed last, as far as that was seen.
    pub changed: Option<Time>,
    /// The sources that may not be read.
    pub refused: Vec<Statement>,
    /// Until when its record is not restored, because another client keeps removing it.
    pub contested_until: Option<Time>,
}

impl Plan {
    /// Returns the decision of a run. Returns `None` while a source of the workload has not been read, or is to be read again.
    pub fn verdict(&self) -> Option<&Verdict> {
        self.comparison.verdict.as_ref().filter(|_| self.doubted.is_empty())
    }
}

/// Why a source that has changed rolls nothing for the time being, whatever else changes. All but the last are about what is in Vault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Deferral {
    /// Every trigger is suspended.
    Suspended,
    /// This Secret has not followed; until then it is waited for. Without a time it has not been read yet, and nothing is known.
    Awaited(SourceName, Option<Time>),
    /// It had not followed by then, and nothing is rolled without it.
    Overdue(SourceName, Time),
    /// It changes too often. Until then, if it is quiet.
    RanAway(Time),
}

impl Deferral {
    /// Until when it is waited for at the most.
    pub fn until(&self) -> Option<Time> {
        match self {
            Self::Awaited(_, until) => *until,
            Self::RanAway(until) => Some(*until),
            Self::Suspended | Self::Overdue(..) => None,
        }
    }

    /// Returns whether it is known, and no user wants it so.
    pub fn is_reported(&self) -> bool {
        matches!(self, Self::Awaited(_, Some(_)) | Self::Overdue(..) | Self::RanAway(_))
    }

    /// Whether those of later waves wait for it. Other users of a runaway source wait for it themselves.
    pub fn is_waited_for(&self) -> bool {
        !matches!(self, Self::Suspended | Self::RanAway(_))
    }
}

/// A source that a workload uses, as it is now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CurrentEntry {
    /// Its content.
    pub entry: Entry,
    /// Whether the pods can do without.
    pub need: Need,
    /// Whether its content is known to differ from that of the pods, although the record has nothing comparable. Another operator has recorded so, or the
    /// content differs in the keys that counted when it was recorded.
    pub is_news: bool,
    /// Whether that it differs is a reason to roll.
    pub counts: bool,
}

/// The annotations of a workload.
#[derive(Debug, Clone, Copy)]
pub struct RecordedState<'a> {
    /// Its record, if it is its own and made with our key.
    pub record: Option<&'a Record>,
    /// Whether that one stands there, and was not taken away.
    pub is_noted: bool,
    /// Whether the stamp on its pod template is its own and made with our key.
    pub is_stamped: bool,
}

/// The decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing: the pods run with what there is, and the record says so.
    Nothing,
    /// The record is to say this; the pods run with it, or nothing else is known of them. Never a reason to roll.
    Note(BTreeMap<String, Entry>),
    /// The pods run with something else.
    Roll {
        /// Which sources differ.
        changed: Vec<String>,
        /// The content that the pods run with afterwards.
        content: BTreeMap<String, Entry>,
    },
}

/// Plans a run of a workload.
pub fn plan(snapshot: &Snapshot, digester: &Digester, now: Time) -> Plan {
    let comparison = compare(snapshot, digester, now);
    let doubted = doubted(snapshot, comparison.verdict.as_ref());
    let (mut changed, mut refused) = (None, Vec::new());
    for name in snapshot.workload.uses.current.keys() {
        let Some(source) = snapshot.source(name) else { continue };
        if !comparison.deferral.contains_key(name) {
            let used = snapshot.workload.uses.current.get(name);
            changed = used.and_then(|used| source.changed(&used.keys, now)).max(changed);
        }
        refused.extend(source.refused.clone());
    }
    let contested_until = snapshot.workload.record.contested_until(now);
    Plan { comparison, doubted, changed, refused, contested_until }
}

/// Compares what a workload uses with its record.
pub fn compare(snapshot: &Snapshot, digester: &Digester, now: Time) -> Comparison {
    let (record, is_noted) = snapshot.workload.record.own(|| digester.tag(&snapshot.observed().uid));
    let planner = Planner { snapshot, record: record.as_ref(), is_noted, digester, now };
    let compared = planner.compare_all().unwrap_or_default();
    Comparison { record, is_noted, ..compared }
}

/// Returns the sources that this process may have read too early: another leader has rolled the workload, which this verdict would roll back.
fn doubted(snapshot: &Snapshot, verdict: Option<&Verdict>) -> Vec<SourceRef> {
    let Some(Verdict::Roll { changed, .. }) = verdict.filter(|_| snapshot.workload.record.doubted) else {
        return Vec::new();
    };
    // A version in Vault says itself whether it is older.
    let in_cluster = snapshot.workload.uses.current.keys().filter(|name| !name.kind.is_in_vault());
    let changed = in_cluster.filter(|name| changed.contains(&name.to_string()));
    changed.map(|name| name.of(&snapshot.key.namespace)).collect()
}

/// The progress of the last rollout of a workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LastRollout {
    /// The rollout has succeeded, or there was none.
    Over,
    /// The pods may still become available, until this time or until the controller gives up.
    UnderWay(Option<Time>),
    /// The pods did not become available in time. If they are available now, the failure ends at this time.
    Failed(Option<Time>),
}

impl LastRollout {
    /// Returns the time of the next check without an event.
    pub fn until(self) -> Option<Time> {
        match self {
            Self::Over => None,
            Self::UnderWay(until) | Self::Failed(until) => until,
        }
    }
}

/// Returns the progress of the last rollout of a workload. The controller of a Deployment observes its deadline until the rollout is complete.
/// Otherwise a rollout has failed if its pods make no progress within the deadline, which is `rollout_timeout` for a kind without one.
pub fn last_rollout(record: Option<&Record>, pods: Pods, now: Time, rollout_timeout: SignedDuration) -> LastRollout {
    let Some((record, rolled)) = record.and_then(|record| Some((record, record.rolled?))) else {
        return LastRollout::Over;
    };
    let Pods { rollout, unready, available, succeeded, awaited } = pods;
    let has_failed = record.failed.is_some();
    match rollout.progress {
        _ if rollout.empty => LastRollout::Over,
        Progress::Ready => match available.map(|since| since.later(STEADY)).filter(|steady| *steady > now) {
            Some(steady) if has_failed => LastRollout::Failed(Some(steady)),
            Some(steady) if awaited && !succeeded => LastRollout::UnderWay(Some(steady)),
            _ => LastRollout::Over,
        },
        _ if has_failed => LastRollout::Failed(None),
        // A later failure of its pods has another cause.
        _ if succeeded => LastRollout::Over,
        Progress::Unknown => LastRollout::Over,
        Progress::Failed => LastRollout::Failed(None),
        Progress::Running | Progress::Unready => {
            let limit = match rollout.deadline {
                _ if rollout.paused => return LastRollout::UnderWay(None),
                Deadline::OfController => return LastRollout::UnderWay(None),
                Deadline::Elapsed(Some(seconds)) => SignedDuration::from_secs(seconds.into()),
                Deadline::Elapsed(None) if rollout_timeout.is_zero() => return LastRollout::UnderWay(None),
                Deadline::Elapsed(None) => rollout_timeout,
            };
            let end = unready.unwrap_or(now).max(now.recorded_or_now(rolled)).later(limit);
            if end > now { LastRollout::UnderWay(Some(end)) } else { LastRollout::Failed(None) }
        }
    }
}

/// Returns `true` if the pods of the newest template have been available for long enough.
pub fn has_succeeded(pods: Pods, now: Time) -> bool {
    let Pods { rollout, available, succeeded, .. } = pods;
    let is_steady = || rollout.progress == Progress::Ready && available.is_some_and(|since| now.since(since) >= STEADY);
    !rollout.empty && (succeeded || is_steady())
}

/// Returns `true` if a workload was rolled for the current content of one of these sources, and has failed since. A source comes with the keys that
/// another workload waits for. Other keys say nothing about them.
pub fn has_failed_for(snapshot: &Snapshot, waiting: &[(SourceName, &Keys)], digester: &Digester, now: Time) -> bool {
    let observed = snapshot.observed();
    if observed.deleting || observed.spec.as_ref().is_ok_and(|spec| spec.failure_ignored) {
        return false;
    }
    let Comparison { record, verdict, deferral, .. } = compare(snapshot, digester, now);
    let Some(record) = record.filter(|record| record.failed.is_some()) else { return false };
    let is_failed = |source: &SourceName, keys: &Keys| {
        let text = source.to_string();
        let differs = match &verdict {
            Some(Verdict::Roll { changed, .. }) => changed.contains(&text),
            _ => deferral.contains_key(source),
        };
        let used = snapshot.workload.uses.current.get(source);
        record.is_for(&text) && !differs && used.is_some_and(|used| used.keys.overlaps(keys))
    };
    let in_either_mode = |source: &SourceName| [Some(source.clone()), source.in_other_mode()].into_iter().flatten();
    waiting.iter().any(|(source, keys)| in_either_mode(source).any(|source| is_failed(&source, keys)))
}

/// Returns how far a workload of an earlier wave is. `rollout_timeout` is how long it may take to become ready.
pub fn peer(snapshot: &Snapshot, digester: &Digester, now: Time, rollout_timeout: SignedDuration) -> Peer {
    let Comparison { record, verdict, deferral, again, .. } = compare(snapshot, digester, now);
    let waits = deferral.values().any(Deferral::is_waited_for);
    let in_sync = !waits && !matches!(verdict, None | Some(Verdict::Roll { .. }));
    let health = &snapshot.workload.health;
    let has_failed = record.as_ref().is_some_and(|record| record.failed.is_some());
    // A workload that is held back for a while, as by a pause or the budget, reports that, and is no trouble.
    let since = if in_sync {
        // Pods that went away long after a rollout have their own time to come back.
        record.and_then(|record| Some(now.recorded_or_now(record.rolled?))).max(snapshot.pods.unready)
    } else {
        [health.undecided, health.troubled].into_iter().flatten().min()
    };
    let has_failed = in_sync && has_failed;
    let overdue = has_failed || since.is_some_and(|since| now.since(since) > rollout_timeout);
    let end = since.map(|since| since.later(rollout_timeout + MOMENT)).filter(|_| !overdue);
    let until =
        deferral.values().filter_map(Deferral::until).chain(again).chain(end).filter(|until| *until > now).min();
    Peer { in_sync, progress: snapshot.pods.rollout.progress, overdue, until }
}

/// Compares the content that exists with the record of the workload.
///
/// - First sight of a source is recorded and rolls nothing, because the pods that exist have read it. It rolls if another operator has recorded before
///   that they run with something else, unless a stamp says that the workload was rolled since.
///
/// - The same holds for another selection of keys, unless the source is known to have changed by the recorded selection: a change that waits to be
///   rolled is not settled by a new selection.
///
/// - A source that is gone changes nothing: pods that are restarted for it would not start. Its entry stays, so that it rolls
///   nothing if it comes back with the same content.
///
/// - An older version than the recorded one changes nothing either: it comes from a server that lags behind.
///
/// - An optional source that is created rolls. Without a required one, no pod has started yet.
///
/// - Only the record says which content the pods run with, and no stamp. A user who sets the template back, by `kubectl rollout undo` or from a repository,
///   has restarted the pods by that, and they have read the current content. A stamp that came with a manifest may be of any age.
pub fn decide(recorded: RecordedState<'_>, now: &BTreeMap<String, CurrentEntry>) -> Verdict {
    let nothing = BTreeMap::new();
    let known = recorded.record.map_or(&nothing, |record| &record.content);
    let mut content = BTreeMap::new();
    let mut changed = Vec::new();
    for (source, now) in now {
        let before = known.get(source).filter(|before| before.selection == now.entry.selection);
        let (entry, differs) = match (before.map(|before| &before.content), &now.entry.content) {
            (Some(Content::Digest(_)), Content::Absent) => (before.unwrap_or(&now.entry), false),
            (Some(Content::Digest(_)), _) if before.is_some_and(|before| now.entry.is_before(before)) => {
                (before.unwrap_or(&now.entry), false)
            }
            (Some(Content::Digest(before)), Content::Digest(now_it_is)) => (&now.entry, before != now_it_is),
            (Some(Content::Absent), Content::Digest(_)) => (&now.entry, now.need == Need::Optional),
            (None, Content::Digest(_)) => {
                let is_told = recorded.record.is_none() && recorded.is_stamped;
                (&now.entry, now.is_news && !is_told)
            }
            (Some(Content::Absent) | None, Content::Absent) => (&now.entry, false),
        };
        content.insert(source.clone(), entry.clone());
        if differs && now.counts {
            changed.push(source.clone());
        }
    }
    match recorded.record {
        _ if !changed.is_empty() => Verdict::Roll { changed, content },
        Some(record) if record.content == content && recorded.is_noted => Verdict::Nothing,
        Some(_) | None => Verdict::Note(content),
    }
}

/// Returns `true` if the content of one source alone is a reason to roll.
fn is_change(recorded: RecordedState<'_>, source: &str, now: &CurrentEntry) -> bool {
    let alone = BTreeMap::from([(source.to_owned(), now.clone())]);
    matches!(decide(recorded, &alone), Verdict::Roll { .. })
}

/// A workload that is planned for.
struct Planner<'a> {
    snapshot: &'a Snapshot,
    record: Option<&'a Record>,
    is_noted: bool,
    digester: &'a Digester,
    now: Time,
}

/// The sources that were compared so far.
#[derive(Default)]
struct ComparedSources {
    /// The entries of the next record.
    now: BTreeMap<String, CurrentEntry>,
    /// The secrets in Vault that it is rolled for.
    rolled: BTreeSet<SourceName>,
    /// The secrets in Vault that are seen for the first time.
    first_seen: BTreeSet<SourceName>,
    /// The sources that have changed and roll nothing yet.
    deferral: BTreeMap<SourceName, Deferral>,
    /// The sources that new pods need and that are missing.
    unsatisfied: Vec<Unsatisfied>,
}

/// A Secret that is waited for, as it is recorded and as it is.
struct Followed<'a> {
    secret: &'a SourceName,
    source: &'a SourceState,
    /// The recorded entry for the same keys, and whether the workload was rolled without it.
    before: Option<(&'a Entry, bool)>,
    current: Entry,
}

/// An entry that stays as it is recorded.
fn kept(entry: &Entry) -> CurrentEntry {
    CurrentEntry { entry: entry.clone(), need: Need::Required, is_news: false, counts: true }
}

impl ComparedSources {
    /// Keeps the recorded entry, and defers the change.
    fn defer(&mut self, name: &SourceName, before: Option<(String, &Entry)>, deferral: Deferral) {
        self.now.extend(before.map(|(text, before)| (text, kept(before))));
        self.deferral.insert(name.clone(), deferral);
    }
}

impl<'a> Planner<'a> {
    /// Compares all sources. Returns the comparison without the record. Returns `None` while a source of the cluster has not been read, or nothing is known.
    fn compare_all(&self) -> Option<Comparison> {
        let uses = &self.snapshot.workload.uses.current;
        let mut compared = ComparedSources::default();
        for (name, used) in uses.iter().filter(|(_, used)| used.counts) {
            self.compare(name, used, &mut compared)?;
        }
        if !self.snapshot.all_triggers_listed {
            let for_triggers = |text: &String| SourceName::is_in_vault(text) || record::secret_of(text).is_some();
            let recorded = self.record.iter().flat_map(|record| &record.content);
            for (text, entry) in recorded.filter(|(text, _)| for_triggers(text)) {
                compared.now.entry(text.clone()).or_insert_with(|| kept(entry));
            }
        }
        if compared.now.is_empty() {
            return None;
        }
        let (awaited, again) = self.of_awaited(&compared);
        let ComparedSources { mut now, deferral, unsatisfied, .. } = compared;
        let awaits = |secret: &SourceName| uses.get(secret).is_some_and(|used| used.awaited.is_some());
        now.retain(|text, _| record::secret_of(text).is_none_or(|secret| !awaits(&secret)));
        now.extend(awaited);
        let mut verdict = decide(self.recorded_state(), &now);
        if let Verdict::Roll { changed, .. } = &mut verdict {
            // Users know it by its own name.
            for text in changed {
                if let Some(secret) = record::secret_of(text) {
                    *text = secret.to_string();
                }
            }
        }
        Some(Comparison { verdict: Some(verdict), deferral, unsatisfied, again, ..Comparison::default() })
    }

    /// Compares one source. Returns `None` if it is about to be read, so that nothing can be decided.
    fn compare(&self, name: &SourceName, used: &Use, compared: &mut ComparedSources) -> Option<()> {
        let source = self.snapshot.source(name);
        let text = name.to_string();
        let own = self.record.and_then(|record| record.content.get(&text));
        let other = self.of_other_mode(name).filter(|_| own.is_none());
        let Some((source, read)) = source.and_then(|source| Some((source, source.current()?))) else {
            return compare_unread(source, name, own.map(|own| (text, own)).or(other), compared);
        };
        let entry = self.entry(name, used, read);
        if entry.content == Content::Absent && self.is_needed(name, used) {
            let lacks = read.content.iter().flat_map(|content| used.required.iter().filter(|key| !content.has(key)));
            let was_there = own.is_some_and(|own| matches!(own.content, Content::Digest(_)));
            compared.unsatisfied.push(Unsatisfied { source: name.clone(), keys: lacks.cloned().collect(), was_there });
        }
        let is_news = self.is_news(name, read, (own, other.as_ref().map(|(_, entry)| *entry)), &entry);
        let before = own.map(|entry| (text.clone(), entry)).or(other);
        let new = CurrentEntry { entry, need: used.need, is_news, counts: true };
        let rolled = self.record.and_then(|record| Some(self.now.recorded_or_now(record.rolled?)));
        let open = source.ran_away(&used.keys, rolled, self.now);
        if let Some(until) = open.filter(|_| is_change(self.recorded_state(), &text, &new)) {
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
            None => drop(compared.first_seen.insert(name.clone())),
        }
        compared.now.insert(text, new);
        Some(())
    }

    /// Returns `true` if pods cannot start without the source.
    fn is_needed(&self, name: &SourceName, used: &Use) -> bool {
        used.need == Need::Required && !name.kind.is_in_vault() && !self.snapshot.may_be_made_by_driver(name)
    }

    fn entry(&self, name: &SourceName, used: &Use, read: &Read) -> Entry {
        let content = satisfying(used, read);
        let entry = self.digester.entry(&self.snapshot.observed().uid, name, &used.keys, content);
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
        let Some(SecretState::Live(now)) = self.snapshot.source(name).map(|source| &source.secret) else {
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
        let content = workload.uses.current.get(name).map_or(read.content.as_ref(), |used| satisfying(used, read));
        let mut entries = selections.map(|keys| self.digester.entry(uid, name, keys, content));
        let entry = entries.find(|entry| entry.selection == before.selection);
        entry.is_some_and(|entry| {
            let now = Entry { version: read.in_vault.clone(), ..entry };
            let both = (&before.content, &now.content);
            matches!(both, (Content::Digest(before), Content::Digest(now)) if before != now) && !now.is_before(before)
        })
    }

    /// Returns the entry of a secret in Vault in the other mode, if that mode counts no more.
    fn of_other_mode(&self, name: &SourceName) -> Option<(String, &'a Entry)> {
        let other = name.in_other_mode()?;
        if self.snapshot.workload.uses.current.get(&other).is_some_and(|used| used.counts) {
            return None;
        }
        let text = other.to_string();
        let entry = self.record?.content.get(&text)?;
        Some((text, entry))
    }

    fn recorded_state(&self) -> RecordedState<'a> {
        let Snapshot { workload, .. } = self.snapshot;
        let stamp = workload.observed.stamp.as_deref();
        let is_stamped = stamp.is_some_and(|stamp| self.digester.is_stamp_of(&workload.observed.uid, stamp));
        RecordedState { record: self.record, is_noted: self.is_noted, is_stamped }
    }

    /// Returns why a source that has changed rolls nothing yet. Returns `None` as soon as one trigger does not want to wait.
    fn deferral(&self, source: &SourceName) -> Option<Deferral> {
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
                if recorded_entry(self.record, &wait.secret).is_some_and(|(before, _)| has_followed(before, &entry)) {
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
        let created = match &known.secret {
            // A time in the future is another clock's.
            SecretState::Live(version) => version.created.parse().ok().and_then(|created| self.now.recorded(created)),
            _ => None,
        };
        created.max(known.changed).or(known.since).unwrap_or(self.now)
    }

    /// Returns the entries of the Secrets that are waited for, and when to look again though nothing happens.
    fn of_awaited(&self, compared: &ComparedSources) -> (BTreeMap<String, CurrentEntry>, Option<Time>) {
        let (mut entries, mut again) = (BTreeMap::new(), None);
        let workload = &self.snapshot.workload;
        let awaited = workload.uses.current.iter().filter_map(|(name, used)| Some((name, used.awaited.as_ref()?)));
        for (secret, keys) in awaited {
            let before = recorded_entry(self.record, secret);
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
    fn follow(&self, followed: Followed<'_>, compared: &ComparedSources) -> (bool, CurrentEntry, Option<Time>) {
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
            Some((before, false)) if !follows(&compared.rolled) && !follows(&compared.first_seen) => {
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
            self.snapshot.source(source).is_some_and(|known| matches!(known.secret, SecretState::Live(_)))
        };
        if !sources.all(answers) {
            return None;
        }
        let every = specs.iter().map(|spec| spec.every).max()?;
        Some(since?.later(SignedDuration::try_from(every * 2).ok()?))
    }
}

/// Returns the content of a source, or `None` if it lacks a key that the pods need to start.
fn satisfying<'a>(used: &Use, read: &'a Read) -> Option<&'a KeyDigests> {
    read.content.as_ref().filter(|content| used.required.iter().all(|key| content.has(key)))
}

/// A source whose content is not known. The cluster is asked at any moment, unless that is refused. Vault may be away, and a Secret forbidden, for a long time, and
/// nothing else waits for it: the entry that is recorded stays.
fn compare_unread(
    source: Option<&SourceState>,
    name: &SourceName,
    before: Option<(String, &Entry)>,
    compared: &mut ComparedSources,
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

fn name_of(secret: &SourceName, is_late: bool) -> String {
    if is_late { record::late(secret) } else { record::awaited(secret) }
}

/// Returns the entry of a Secret that is waited for, and whether the workload was rolled without it.
fn recorded_entry<'a>(known: Option<&'a Record>, secret: &SourceName) -> Option<(&'a Entry, bool)> {
    let content = &known?.content;
    let awaited = content.get(&record::awaited(secret)).map(|entry| (entry, false));
    awaited.or_else(|| content.get(&record::late(secret)).map(|entry| (entry, true)))
}

/// Returns whether the content exists, and is another than before.
fn has_followed(before: &Entry, now: &Entry) -> bool {
    before.selection == now.selection && before.content != now.content && matches!(now.content, Content::Digest(_))
}

/// Returns an entry that rolls nothing by itself, unless it was waited for in vain.
fn entry(entry: Entry, is_news: bool) -> CurrentEntry {
    CurrentEntry { entry, need: Need::Required, is_news, counts: is_news }
}

#[cfg(test)]
mod tests;
