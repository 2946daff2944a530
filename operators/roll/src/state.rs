//! The state of a workload and of a source, and the snapshot of both that a plan is based on. No lock, no IO.

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

/// A snapshot of a workload and of the sources that it uses. The snapshot shares its data with the index, which never changes shared data.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// The reference of the workload.
    pub key: WorkloadRef,
    /// The workload.
    pub workload: Arc<WorkloadState>,
    /// The pods of its template, even if another workload runs them.
    pub pods: Pods,
    /// The sources of the workload and of its triggers.
    pub sources: BTreeMap<SourceName, Arc<SourceState>>,
    /// The Secrets that the Secrets Store CSI driver makes when the pods start. `None` if one of the classes that they mount is not known.
    pub made_by_driver: Option<BTreeSet<SourceName>>,
    /// The triggers whose requests count for the workload, with their specs.
    pub triggers: Vec<(TriggerRef, Arc<WatchedTrigger>, Arc<TriggerSpec>)>,
    /// Whether all triggers were listed. Until then, record entries that belong to triggers stay.
    pub all_triggers_listed: bool,
}

/// The pods of a template.
#[derive(Debug, Clone, Copy)]
pub struct Pods {
    /// The state of the rollout.
    pub rollout: Rollout,
    /// The time since which the pods have made no progress, while some are not available.
    pub unready: Option<Time>,
    /// The time since which all pods have been available.
    pub available: Option<Time>,
    /// Whether the last rollout has succeeded at some time.
    pub succeeded: bool,
    /// Whether this process began the last rollout, and its outcome is not counted yet.
    pub awaited: bool,
}

/// The time after which pods count as available. A pod in a crash loop is available for a moment each time.
pub(crate) const STEADY: SignedDuration = SignedDuration::from_secs(15);

impl Snapshot {
    /// Returns the observed workload.
    pub fn observed(&self) -> &Observed {
        &self.workload.observed
    }

    /// Returns `true` if the Secrets Store CSI driver makes this source when the pods start, as far as is known.
    pub fn may_be_made_by_driver(&self, name: &SourceName) -> bool {
        name.kind == SourceKind::Secret && self.made_by_driver.as_ref().is_none_or(|made| made.contains(name))
    }

    /// Returns a source, or `None` if it is unknown.
    pub fn source(&self, name: &SourceName) -> Option<&SourceState> {
        self.sources.get(name).map(|source| &**source)
    }

    /// Returns the specs of the triggers whose requests count.
    pub fn specs(&self) -> impl Iterator<Item = &TriggerSpec> {
        self.triggers.iter().map(|(_, _, spec)| &**spec)
    }
}

/// Everything that the index knows about a workload. Snapshots share this state, so a change copies it while a snapshot exists.
#[derive(Debug, Clone)]
pub struct WorkloadState {
    /// The observed workload.
    pub observed: Observed,
    /// The sources that the workload is rolled for.
    pub uses: Uses,
    /// The record of the content that the pods run with.
    pub record: RecordState,
    /// The health of the workload, and the messages about it.
    pub health: Health,
}

/// A workload as observed in the API server.
#[derive(Debug, Clone)]
pub struct Observed {
    /// The uid of the workload.
    pub uid: String,
    /// The resource version of the workload.
    pub version: String,
    /// The labels of the workload.
    pub labels: BTreeMap<String, String>,
    /// The spec in the annotations of the workload.
    pub spec: Result<Arc<WorkloadSpec>, Arc<Invalid>>,
    /// The Secrets and `ConfigMaps` that the pods name.
    pub referenced: LiteMap<SourceName, Usage>,
    /// The workload whose pod template this one runs, if it has no template of its own.
    pub template_of: Option<TemplateOf>,
    /// The classes of the Secrets Store CSI driver that the pods mount.
    pub classes: BTreeSet<String>,
    /// The stamp on the pod template.
    pub stamp: Option<String>,
    /// The state of the pods.
    pub rollout: Rollout,
    /// Whether the workload is being deleted.
    pub deleting: bool,
}

/// The health of a workload, with the times at which it changed.
#[derive(Debug, Clone, Default)]
pub struct Health {
    /// The time since which the pods have made no progress, while some are not available.
    pub unready: Option<Time>,
    /// The maximum numbers of pods of the newest template and of available pods since the template changed.
    pub most: (i64, i64),
    /// The time since which all pods have been available.
    pub available: Option<Time>,
    /// Whether the pods have been available for `STEADY` since the template changed.
    pub succeeded: bool,
    /// Whether this process changed the template, and the outcome of that is not counted yet.
    pub awaited: bool,
    /// The start of the wait for a rollout, and the earliest time of the rollout, if known.
    pub pending: Option<(Time, Option<Time>)>,
    /// The time since which no decision was possible.
    pub undecided: Option<Time>,
    /// The time since which the workload has a reported problem.
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

    /// Takes over the state of the previous version of the same object.
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

    /// Returns `true` if the status of a trigger of this workload may differ after the change to `now`.
    pub(crate) fn changes_status(&self, now: &Self) -> bool {
        let (before, after) = (&self.observed, &now.observed);
        let is_same = before.uid == after.uid && before.spec == after.spec && before.deleting == after.deleting;
        let runs_the_same = before.stamp == after.stamp && before.rollout.is_like(after.rollout);
        self.record.differs(&now.record) || !is_same || !runs_the_same
    }

    /// Returns `true` if the operator manages the workload: it is rolled for a source, or its annotations are invalid.
    pub(crate) fn is_opted_in(&self) -> bool {
        !self.uses.current.is_empty() || self.observed.spec.is_err() || self.observed.runs_foreign_template()
    }

    /// Records that this process has written the workload, which now has this `version`. `rolled` is the new stamp on its pod template and the time
    /// of the rollout.
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
        // The new pods get their own time to become ready.
        self.health.begin(now);
        self.health.awaited = true;
        // Until a watch event arrives, the known state is that of the former pods, for which a later wave would not wait.
        if !is_shown {
            self.observed.rollout.progress = Progress::Running;
        }
    }

    /// Takes the rollout whose response was lost, if the API server has applied it. Forgets a rollout that was not applied.
    pub(crate) fn take_acknowledged(&mut self) -> Option<UnacknowledgedRollout> {
        let acknowledged = self.record.take_acknowledged(&self.observed.version, self.observed.stamp.as_deref());
        self.health.awaited |= acknowledged.is_some();
        acknowledged
    }
}

impl Observed {
    /// Returns the wave of the workload.
    pub fn wave(&self) -> i32 {
        self.spec.as_ref().map_or(0, |spec| spec.wave)
    }

    /// Returns `true` if the workload requests rollouts and has no template of its own.
    pub fn runs_foreign_template(&self) -> bool {
        self.template_of.is_some() && self.spec.as_ref().is_ok_and(|own| own.requests_rollouts())
    }

    /// Returns `true` if the annotations forbid every rollout.
    pub fn says_never(&self) -> bool {
        self.spec.as_ref().is_ok_and(|own| own.never)
    }
}

impl Health {
    /// Records that the template has changed, so new pods get their own time to become available.
    fn begin(&mut self, now: Time) {
        (self.unready, self.available, self.succeeded, self.most) = (Some(now), None, false, (0, 0));
        self.awaited = false;
    }

    /// Takes over the earlier health, updated by the pods that are `shown` now.
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

    /// Records the messages of a run. Returns the messages that were not reported before.
    pub(crate) fn report(&mut self, messages: Vec<Statement>, now: Time) -> Vec<Statement> {
        let is_troubled = messages.iter().any(Statement::is_problem);
        self.troubled = is_troubled.then(|| self.troubled.unwrap_or(now));
        let new = messages.iter().filter(|message| !self.reported.contains(message)).cloned().collect();
        self.reported = messages;
        new
    }

    /// Records whether the workload waits for a rollout, with the time of this run and the earliest time of the rollout.
    pub(crate) fn wait(&mut self, waits: Option<(Time, Option<Time>)>) {
        let since = self.pending.map(|(since, _)| since);
        self.pending = waits.map(|(now, until)| (since.unwrap_or(now), until));
    }

    /// Clears the state that only a workload that has opted in can have.
    pub(crate) fn opt_out(&mut self) {
        self.pending = None;
        self.troubled = None;
        self.reported.clear();
    }

    /// Returns the message with the reason for which the workload is not rolled.
    pub fn blocked_by(&self) -> Option<&Statement> {
        self.reported.iter().find(|message| message.reason != reasons::ROLLED)
    }
}

/// Everything that the index knows about a source. Snapshots share this state.
#[derive(Debug, Clone, Default)]
pub struct SourceState {
    /// The uid of the source; empty before it is known.
    pub uid: String,
    /// The spec in the annotations of the workload.
    pub spec: SourceSpec,
    /// The invalid annotation, if there is one.
    pub invalid: Option<Invalid>,
    /// The content at the last read.
    pub read: Option<Arc<Read>>,
    /// Whether the content may be older than the content that the pods of a user have read.
    pub doubt: Doubt,
    /// The recent changes of each key.
    pub keys: BTreeMap<String, KeyChanges>,
    /// The time of the last observed change of the content.
    pub changed: Option<Time>,
    /// The time since which the content has been known.
    pub since: Option<Time>,
    /// The state of the secret in Vault, if the source is one.
    pub secret: SecretState,
    /// The reason for which the last read was refused.
    pub refused: Option<Statement>,
}

/// The recent changes of one key of a source.
#[derive(Debug, Clone)]
pub struct KeyChanges {
    /// The breaker of the key, which is open while the key changes too often.
    pub breaker: Breaker,
    /// The time of the last observed change.
    pub changed: Time,
}

/// The staleness of the known content of a source. A workload that became a user after the read may run with newer content, as may a workload that
/// another leader has rolled.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum Doubt {
    /// The content is current.
    #[default]
    None,
    /// The content may be outdated, as may the response to a read that is under way.
    Open,
    /// The content may be outdated. The read that is under way gives the current content.
    Reading,
}

/// The content of a source at a read.
#[derive(Debug, PartialEq, Eq)]
pub struct Read {
    /// The resource version, or `None` if the source did not exist.
    pub version: Option<String>,
    /// The digests of the values, or `None` if the source did not exist.
    pub content: Option<KeyDigests>,
    /// The version in Vault, if the source is there and has versions.
    pub in_vault: Option<Version>,
}

/// The result of reading a source.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct SourceChange {
    /// The workloads that need a run.
    pub users: BTreeSet<WorkloadRef>,
    /// Whether the content has changed.
    pub changed: bool,
    /// The uid of the source, if it changes too often since this change.
    pub ran_away: Option<String>,
}

impl SourceState {
    /// Returns the content, or `None` if it may be outdated.
    pub fn current(&self) -> Option<&Read> {
        self.read.as_deref().filter(|_| self.is_current())
    }

    /// Returns `true` if the known content is not older than the content that any user runs with.
    pub fn is_current(&self) -> bool {
        self.doubt == Doubt::None
    }

    /// Returns `true` if the source is known to exist: it was read, or it has a spec.
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

    /// Records a read. Returns the change, or `None` if no user needs a run.
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
