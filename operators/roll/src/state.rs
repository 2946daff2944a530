//! The state of one workload and of one source, and the snapshot of both that a plan is made of. No lock, no IO.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use jiff::SignedDuration;
use konverge_apply::Statement;
use konverge_runtime::version::is_older;
use konverge_workload::{Keys, Progress, Rollout, TemplateOf, Usage, Workload, WorkloadKind};
use litemap::LiteMap;

use crate::{
    annotations::{Invalid, Others, RECORD, STAMP, SourceSpec, WorkloadSpec},
    breaker::{self, Breaker},
    digest::KeyDigests,
    object::{SourceKind, SourceName, WorkloadRef},
    reasons,
    record::{RecordState, UnacknowledgedRollout},
    time::Time,
    trigger::{TriggerRef, TriggerSpec, WatchedTrigger},
    uses::{self, Uses},
    vault::{SecretState, Version},
};

/// A snapshot of one workload and of all that it uses. It shares what it shows with the index, which leaves it as it is.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// Which workload.
    pub key: WorkloadRef,
    /// The workload.
    pub workload: Arc<WorkloadState>,
    /// The pods of its template, even if another workload runs them.
    pub pods: Pods,
    /// The sources that it uses, and those of its triggers.
    pub sources: BTreeMap<SourceName, Arc<SourceState>>,
    /// The Secrets that the Secrets Store CSI driver makes when the pods start. `None` if one of the classes that they mount is not known.
    pub made_by_driver: Option<BTreeSet<SourceName>>,
    /// The triggers whose requests count for it, with their specs.
    pub triggers: Vec<(TriggerRef, Arc<WatchedTrigger>, Arc<TriggerSpec>)>,
    /// Whether all triggers have been seen. Before, entries in records that belong to triggers stay.
    pub all_triggers_listed: bool,
}

/// The pods of a template.
#[derive(Debug, Clone, Copy)]
pub struct Pods {
    /// Their state.
    pub rollout: Rollout,
    /// The time since which they have made no progress, while some of them are not available.
    pub unready: Option<Time>,
    /// The time since which all of them have been available.
    pub available: Option<Time>,
    /// Whether the last rollout has succeeded before.
    pub succeeded: bool,
    /// Whether this process began the last rollout, and its outcome is not counted yet.
    pub awaited: bool,
}

/// The time after which pods count as available. A pod in a crash loop is available for a moment each time.
pub(crate) const STEADY: SignedDuration = SignedDuration::from_secs(15);

impl Snapshot {
    /// Returns the workload as the API server has it.
    pub fn observed(&self) -> &Observed {
        &self.workload.observed
    }

    /// Returns `true` if the Secrets Store CSI driver makes this source when the pods start, as far as is known.
    pub fn may_be_made_by_driver(&self, name: &SourceName) -> bool {
        name.kind == SourceKind::Secret && self.made_by_driver.as_ref().is_none_or(|made| made.contains(name))
    }

    /// Returns one source, if it is known.
    pub fn source(&self, name: &SourceName) -> Option<&SourceState> {
        self.sources.get(name).map(|source| &**source)
    }

    /// Returns the specs of the triggers whose requests count.
    pub fn specs(&self) -> impl Iterator<Item = &TriggerSpec> {
        self.triggers.iter().map(|(_, _, spec)| &**spec)
    }
}

/// Everything that the index knows about one workload. A snapshot shares it, so each change makes a new version for as long as a snapshot exists.
#[derive(Debug, Clone)]
pub struct WorkloadState {
    /// The workload as the API server has it.
    pub observed: Observed,
    /// The sources that it is rolled for.
    pub uses: Uses,
    /// The record of the content that its pods run with.
    pub record: RecordState,
    /// The health of the workload, and the messages about it.
    pub health: Health,
}

/// A workload as the API server has it.
#[derive(Debug, Clone)]
pub struct Observed {
    /// Its uid.
    pub uid: String,
    /// Its resource version.
    pub version: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// The spec in its annotations.
    pub spec: Result<Arc<WorkloadSpec>, Arc<Invalid>>,
    /// The Secrets and `ConfigMaps` that its pods name.
    pub referenced: LiteMap<SourceName, Usage>,
    /// The workload whose pod template it runs, if that is not its own.
    pub template_of: Option<TemplateOf>,
    /// The classes of the Secrets Store CSI driver that its pods mount.
    pub classes: BTreeSet<String>,
    /// The stamp on its pod template.
    pub stamp: Option<String>,
    /// The state of its pods.
    pub rollout: Rollout,
    /// Whether it is being deleted.
    pub deleting: bool,
}

/// The health of a workload, and since when it has been so.
#[derive(Debug, Clone, Default)]
pub struct Health {
    /// The time since which its pods have made no progress, while some of them are not available.
    pub unready: Option<Time>,
    /// The maximum number of pods of the newest template, and of available ones, since the template changed.
    pub most: (i64, i64),
    /// The time since which all of its pods have been available.
    pub available: Option<Time>,
    /// Whether they have been available for long enough since the template changed.
    pub succeeded: bool,
    /// Whether this process changed the template, and the outcome of that is not counted yet.
    pub awaited: bool,
    /// Since when it has been waiting to be rolled, and until when, if that is known.
    pub pending: Option<(Time, Option<Time>)>,
    /// Since when there has been no decision about it.
    pub undecided: Option<Time>,
    /// Since when it has had a problem that somebody should solve.
    pub troubled: Option<Time>,
    /// The messages that were reported last.
    pub reported: Vec<Statement>,
}

impl WorkloadState {
    /// Reads a workload. Returns `None` if it has no namespace, name or uid.
    pub(crate) fn read(
        kind: WorkloadKind,
        workload: Workload,
        others: Others,
        now: Time,
    ) -> Option<(WorkloadRef, Self)> {
        let Workload { metadata, references, template_of, template_annotations, rollout } = workload;
        let (namespace, name, uid) = (metadata.namespace?, metadata.name?, metadata.uid?);
        let mut annotations = metadata.annotations.unwrap_or_default();
        let spec = WorkloadSpec::read(&annotations, &template_annotations, &namespace, others);
        let is_unready = matches!(rollout.progress, Progress::Running | Progress::Unready);
        let state = Self {
            observed: Observed {
                uid,
                version: metadata.resource_version.unwrap_or_default(),
                labels: metadata.labels.unwrap_or_default(),
                spec: spec.map(Arc::new).map_err(Arc::new),
                referenced: uses::referenced(&references),
                template_of,
                classes: references.secret_provider_classes,
                stamp: template_annotations.get(STAMP).cloned(),
                rollout,
                deleting: metadata.deletion_timestamp.is_some(),
            },
            uses: Uses::default(),
            record: RecordState::of(annotations.remove(RECORD)),
            health: Health {
                unready: is_unready.then_some(now),
                most: (rollout.updated, rollout.available),
                available: (rollout.progress == Progress::Ready).then_some(now),
                ..Health::default()
            },
        };
        Some((WorkloadRef { namespace, kind, name }, state))
    }

    /// Takes over what is known of the same object in its version before.
    pub(crate) fn carry_over(&mut self, before: &mut Self, now: Time) {
        self.uses = std::mem::take(&mut before.uses);
        let (is_older, is_same) =
            (is_older(&self.observed.version, &before.observed.version), self.observed.spec == before.observed.spec);
        self.record.carry_over(&mut before.record, is_older, now);
        let is_same_template = self.observed.stamp == before.observed.stamp;
        let shown = std::mem::replace(&mut self.health, std::mem::take(&mut before.health));
        self.health.carry_over(&shown, is_same_template, now);
        if !is_same {
            self.health.reported.clear();
        }
    }

    /// Returns whether a trigger of this workload may have something else to report by what it is `now`.
    pub(crate) fn changes_status(&self, now: &Self) -> bool {
        let (before, after) = (&self.observed, &now.observed);
        let is_same = before.uid == after.uid && before.spec == after.spec && before.deleting == after.deleting;
        let runs_the_same = before.stamp == after.stamp && before.rollout.is_like(after.rollout);
        self.record.differs(&now.record) || !is_same || !runs_the_same
    }

    /// Returns whether the operator looks after it: it is rolled for a source, or its annotations cannot be followed.
    pub(crate) fn is_opted_in(&self) -> bool {
        !self.uses.current.is_empty() || self.observed.spec.is_err() || self.observed.runs_foreign_template()
    }

    /// Notes that this process has written on it, which is `version` of it now. `rolled` is the new stamp on its pod template, and when.
    pub(crate) fn wrote(&mut self, version: &str, record: String, rolled: Option<(String, Time)>) {
        if rolled.is_some() {
            self.record.set_unacknowledged(None);
        }
        if is_older(version, &self.observed.version) {
            // The watch has shown more than the answer.
            self.health.awaited |= rolled.is_some_and(|(stamp, _)| self.observed.stamp == Some(stamp));
            return;
        }
        let is_shown = self.observed.version == version;
        version.clone_into(&mut self.observed.version);
        self.record.wrote(record);
        let Some((stamp, now)) = rolled else { return };
        self.observed.stamp = Some(stamp);
        // The new pods have their own time to become ready.
        self.health.begin(now);
        self.health.awaited = true;
        // Until the watch shows it, its pods look as they did before, and a later wave would not wait for it.
        if !is_shown {
            self.observed.rollout.progress = Progress::Running;
        }
    }

    /// Takes the rollout whose answer was lost, if it was done after all. A rollout that was not done is forgotten.
    pub(crate) fn take_acknowledged(&mut self) -> Option<UnacknowledgedRollout> {
        let acknowledged = self.record.take_acknowledged(&self.observed.version, self.observed.stamp.as_deref());
        self.health.awaited |= acknowledged.is_some();
        acknowledged
    }
}

impl Observed {
    /// Returns its wave.
    pub fn wave(&self) -> i32 {
        self.spec.as_ref().map_or(0, |spec| spec.wave)
    }

    /// Returns whether it requests rollouts and has no template of its own.
    pub fn runs_foreign_template(&self) -> bool {
        self.template_of.is_some() && self.spec.as_ref().is_ok_and(|own| own.requests_rollouts())
    }

    /// Returns whether its annotations say that it is never to be rolled.
    pub fn says_never(&self) -> bool {
        self.spec.as_ref().is_ok_and(|own| own.never)
    }
}

impl Health {
    /// Records that the template has changed, so that new pods get their own time to become available.
    fn begin(&mut self, now: Time) {
        (self.unready, self.available, self.succeeded, self.most) = (Some(now), None, false, (0, 0));
        self.awaited = false;
    }

    /// Notes how the pods are `shown` now.
    fn carry_over(&mut self, shown: &Self, is_same_template: bool, now: Time) {
        if !is_same_template {
            self.begin(now);
        }
        if self.available.is_some_and(|since| now.since(since) >= STEADY) {
            (self.succeeded, self.unready) = (true, None);
        }
        if shown.available.is_some() {
            self.available = self.available.or(shown.available);
            return;
        }
        self.available = None;
        // A pod that was available only for a moment is no progress.
        if shown.most > self.most {
            (self.unready, self.most) = (None, shown.most);
        }
        self.unready = shown.unready.and(self.unready.or(shown.unready));
    }

    /// Notes the messages of a run. Returns the messages that were not reported before.
    pub(crate) fn report(&mut self, messages: Vec<Statement>, now: Time) -> Vec<Statement> {
        let is_troubled = messages.iter().any(Statement::is_problem);
        self.troubled = is_troubled.then(|| self.troubled.unwrap_or(now));
        let new = messages.iter().filter(|message| !self.reported.contains(message)).cloned().collect();
        self.reported = messages;
        new
    }

    /// Notes whether it waits to be rolled, with the time of this run and the earliest time of the rollout.
    pub(crate) fn wait(&mut self, waits: Option<(Time, Option<Time>)>) {
        let since = self.pending.map(|(since, _)| since);
        self.pending = waits.map(|(now, until)| (since.unwrap_or(now), until));
    }

    /// Forgets everything that only holds for a workload that has opted in.
    pub(crate) fn opt_out(&mut self) {
        self.pending = None;
        self.troubled = None;
        self.reported.clear();
    }

    /// Returns the message that says why it is not rolled.
    pub fn blocked_by(&self) -> Option<&Statement> {
        self.reported.iter().find(|message| message.reason != reasons::ROLLED)
    }
}

/// Everything that the index knows about one source. A snapshot shares it.
#[derive(Debug, Clone, Default)]
pub struct SourceState {
    /// Its uid, if it was seen.
    pub uid: String,
    /// The spec in its annotations.
    pub spec: SourceSpec,
    /// The annotation that cannot be followed.
    pub invalid: Option<Invalid>,
    /// The content that was read last.
    pub read: Option<Arc<Read>>,
    /// Whether that content may be older than what the pods of a user have read.
    pub doubt: Doubt,
    /// The recent changes of each key that has changed.
    pub keys: BTreeMap<String, KeyChanges>,
    /// When its content was last seen to change.
    pub changed: Option<Time>,
    /// Since when it has had its content, or has been known to.
    pub since: Option<Time>,
    /// The state of the secret in Vault, if it is one.
    pub secret: SecretState,
    /// Why the last read was refused.
    pub refused: Option<Statement>,
}

/// The recent changes of one key of a source.
#[derive(Debug, Clone)]
pub struct KeyChanges {
    /// The breaker, which is open while the key changes too often.
    pub breaker: Breaker,
    /// The time of the last observed change.
    pub changed: Time,
}

/// Whether the content of a source may be older than what is known otherwise. A user that came after the read may run with newer content, and so may one
/// that another leader has rolled.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum Doubt {
    /// It is current.
    #[default]
    None,
    /// It may be older, and so may the answer to a read that is under way.
    Open,
    /// It may be older, and the read that is under way will tell.
    Reading,
}

/// The content of a source, as it was read.
#[derive(Debug, PartialEq, Eq)]
pub struct Read {
    /// Its resource version. `None` if it did not exist.
    pub version: Option<String>,
    /// The digests of its values. `None` if it did not exist.
    pub content: Option<KeyDigests>,
    /// Its version in Vault, if it is from there and has versions.
    pub in_vault: Option<Version>,
}

/// The result of reading a source.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct SourceChange {
    /// The workloads that need a run.
    pub users: BTreeSet<WorkloadRef>,
    /// Whether its content has changed.
    pub changed: bool,
    /// The uid of the source, if this change is the one by which it has run away.
    pub ran_away: Option<String>,
}

impl SourceState {
    /// Returns the content, if nothing newer can be known.
    pub fn current(&self) -> Option<&Read> {
        self.read.as_deref().filter(|_| self.is_current())
    }

    /// Returns whether what is known of its content is not older than what a user runs with.
    pub fn is_current(&self) -> bool {
        self.doubt == Doubt::None
    }

    /// Returns whether it exists as far as is known: it has been read, or has a spec.
    pub(crate) fn exists(&self) -> bool {
        self.read.as_ref().is_some_and(|read| read.content.is_some()) || !self.spec.is_silent()
    }

    /// Returns the time until which a workload, last rolled at `rolled`, is not rolled for these keys, because one of them changes too often. Returns
    /// `None` if another key has changed since.
    pub(crate) fn ran_away(&self, keys: &Keys, rolled: Option<Time>, now: Time) -> Option<Time> {
        let used = || self.keys.iter().filter(|(key, _)| keys.contains(key)).map(|(_, changes)| changes);
        let is_news = |changes: &KeyChanges| rolled.is_none_or(|rolled| changes.changed > rolled);
        if used().any(|changes| is_news(changes) && changes.breaker.open_until(now).is_none()) {
            return None;
        }
        used().filter_map(|changes| changes.breaker.open_until(now)).max()
    }

    /// Returns the time of the last change of these keys, without those that change too often.
    pub(crate) fn changed(&self, keys: &Keys, now: Time) -> Option<Time> {
        let followed = self.keys.iter().filter(|(key, _)| keys.contains(key)).map(|(_, changes)| changes);
        followed.filter(|changes| changes.breaker.open_until(now).is_none()).map(|changes| changes.changed).max()
    }

    /// Returns the keys that change too often.
    pub(crate) fn runaway_keys(&self, now: Time) -> impl Iterator<Item = &String> {
        self.keys.iter().filter(move |(_, changes)| changes.breaker.open_until(now).is_some()).map(|(key, _)| key)
    }

    /// Notes what was read. Returns whether users need a run, and the change.
    pub(crate) fn learn(
        &mut self,
        read: Read,
        is_used: impl Fn(&str) -> bool,
        breaker: &breaker::Settings,
        now: Time,
    ) -> Option<SourceChange> {
        let was_awaited = self.doubt == Doubt::Reading;
        if was_awaited {
            self.doubt = Doubt::None;
        }
        let was_awaited = was_awaited | self.refused.take().is_some();
        let read = Arc::new(read);
        let before = self.read.replace(Arc::clone(&read));
        let is_new = before.is_none();
        let changed = before.as_ref().is_some_and(|before| read.content != before.content);
        let versions = before.as_ref().and_then(|before| before.in_vault.as_ref()).zip(read.in_vault.as_ref());
        let times = versions.map_or(1, |(before, now)| now.times_since(before, breaker.within));
        if is_new || changed {
            self.since = Some(now);
        }
        if !is_new && !changed && !was_awaited {
            return None;
        }
        let mut learned = SourceChange { changed, ..SourceChange::default() };
        if changed {
            self.changed = Some(now);
            let before = before.as_ref().and_then(|before| before.content.as_ref());
            let opens = self.count((before, read.content.as_ref()), times, is_used, breaker, now);
            learned.ran_away = opens.then(|| self.uid.clone());
        }
        Some(learned)
    }

    /// Counts the change of each key. The source was written this many `times` since the last read. That count holds for a key only if all keys
    /// changed. Returns `true` if a used key now changes too often.
    fn count(
        &mut self,
        (before, read): (Option<&KeyDigests>, Option<&KeyDigests>),
        times: usize,
        is_used: impl Fn(&str) -> bool,
        breaker: &breaker::Settings,
        now: Time,
    ) -> bool {
        let changed = KeyDigests::changed(before, read);
        let mut all = read.into_iter().flat_map(KeyDigests::keys);
        let times = if all.all(|key| changed.contains(key)) { times } else { 1 };
        self.keys.retain(|key, _| [before, read].into_iter().flatten().any(|content| content.has(key)));
        let mut opens = false;
        for key in changed {
            let new = KeyChanges { breaker: Breaker::default(), changed: now };
            let counted = self.keys.entry(key.clone()).or_insert(new);
            counted.changed = now;
            // Each key is counted, because another workload may use it later.
            opens |= counted.breaker.changed(times, now, breaker) && is_used(key);
        }
        opens
    }
}
