//! The state of one workload.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use konverge_apply::Statement;
use konverge_runtime::version::is_older;
use konverge_workload::{Keys, Progress, Rollout, TemplateOf, Usage, Workload, WorkloadKind};
use litemap::LiteMap;

use super::revert_guard::RevertGuard;
use crate::{
    declarations::{Invalid, Others, RECORD, STAMP, WorkloadSpec},
    digest::Digester,
    object::{SourceName, WorkloadRef},
    reasons,
    record::Record,
    time::Time,
    unacknowledged::{Outcome, UnacknowledgedRollout},
    uses::{self, Use},
};

/// The number of earlier key selections that the index remembers for each source.
const REMEMBERED: usize = 4;

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

/// The sources that a workload is rolled for, now and before.
#[derive(Debug, Clone, Default)]
pub struct Uses {
    /// The sources that count now.
    pub current: LiteMap<SourceName, Use>,
    /// The key selections that counted before, by source. A record says that there was another one, and not which keys that were.
    pub previous_selections: BTreeMap<SourceName, Vec<Keys>>,
}

/// The record of a workload: the annotation, and what this process knows beyond it.
#[derive(Debug, Clone, Default)]
pub struct RecordState {
    /// The annotation, even if another client wrote it.
    pub shown: Option<String>,
    /// The record that stood there before somebody removed it or set it back.
    pub revert_guard: Option<Box<RevertGuard>>,
    /// Whether another leader wrote it, perhaps for content that is newer than what this process has read.
    pub doubted: bool,
    /// The record that this process writes at the moment, or wrote last.
    written: Option<String>,
    /// Whether this process has written since the workload was last shown.
    written_since: bool,
    /// A rollout whose answer was lost.
    unacknowledged: Option<Box<UnacknowledgedRollout>>,
}

/// The health of a workload, and since when it has been so.
#[derive(Debug, Clone, Default)]
pub struct Health {
    /// Since when some of its pods have not been available.
    pub unready: Option<Time>,
    /// Since when it has been waiting to be rolled, and until when, if that is known.
    pub pending: Option<(Time, Option<Time>)>,
    /// Since when there has been no decision about it.
    pub undecided: Option<Time>,
    /// Since when it has had a problem that somebody should solve.
    pub troubled: Option<Time>,
    /// The messages that were reported last.
    pub said: Vec<Statement>,
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
            record: RecordState { shown: annotations.remove(RECORD), ..RecordState::default() },
            health: Health { unready: is_unready.then_some(now), ..Health::default() },
        };
        Some((WorkloadRef { namespace, kind, name }, state))
    }

    /// Takes over what is known of the same object in its version before.
    pub(crate) fn carry_over(&mut self, before: &mut Self, now: Time) {
        self.uses = std::mem::take(&mut before.uses);
        let (is_older, is_same) =
            (is_older(&self.observed.version, &before.observed.version), self.observed.spec == before.observed.spec);
        self.record.carry_over(&mut before.record, is_older, now);
        let unready = self.health.unready;
        self.health = std::mem::take(&mut before.health);
        self.health.unready = unready.and(self.health.unready.or(unready));
        if !is_same {
            self.health.said.clear();
        }
    }

    /// Returns whether a trigger of this workload may have something else to report by what it is `now`.
    pub(crate) fn stands_otherwise(&self, now: &Self) -> bool {
        let (before, after) = (&self.observed, &now.observed);
        let is_same = before.uid == after.uid && before.spec == after.spec && before.deleting == after.deleting;
        let runs_the_same =
            self.record.shown == now.record.shown && before.stamp == after.stamp && before.rollout == after.rollout;
        self.record.written_since || !is_same || !runs_the_same
    }

    /// Returns whether the operator looks after it: it is rolled for a source, or its annotations cannot be followed.
    pub(crate) fn is_opted_in(&self) -> bool {
        !self.uses.current.is_empty() || self.observed.spec.is_err() || self.observed.runs_foreign_template()
    }

    /// Notes that this process has written on it, which is `version` of it now. `rolled` is the new stamp on its pod template, and when.
    pub(crate) fn wrote(&mut self, version: &str, record: String, rolled: Option<(String, Time)>) {
        if rolled.is_some() {
            self.record.unacknowledged = None;
        }
        if is_older(version, &self.observed.version) {
            return;
        }
        let is_shown = self.observed.version == version;
        version.clone_into(&mut self.observed.version);
        self.record.shown = Some(record);
        self.record.written_since = true;
        let Some((stamp, now)) = rolled else { return };
        self.observed.stamp = Some(stamp);
        // The new pods have their own time to become ready.
        self.health.unready = Some(now);
        // Until the watch shows it, its pods look as they did before, and a later wave would not wait for it.
        if !is_shown {
            self.observed.rollout.progress = Progress::Running;
        }
    }

    /// Takes the rollout whose answer was lost, if it was done after all. A rollout that was not done is forgotten.
    pub(crate) fn take_acknowledged(&mut self) -> Option<UnacknowledgedRollout> {
        let unacknowledged = self.record.unacknowledged.as_ref()?;
        match unacknowledged.outcome(&self.observed.version, self.observed.stamp.as_deref()) {
            Outcome::Unknown => None,
            Outcome::Done => self.record.unacknowledged.take().map(|unacknowledged| *unacknowledged),
            Outcome::Undone => {
                self.record.unacknowledged = None;
                None
            }
        }
    }
}

impl Observed {
    /// Returns its wave.
    pub fn wave(&self) -> i32 {
        self.spec.as_ref().map_or(0, |spec| spec.wave)
    }

    /// Returns whether it requests rollouts and has no template of its own that could be changed.
    pub fn runs_foreign_template(&self) -> bool {
        self.template_of.is_some() && self.spec.as_ref().is_ok_and(|own| own.requests_rollouts())
    }

    /// Returns whether its annotations say that it is never to be rolled.
    pub fn says_never(&self) -> bool {
        self.spec.as_ref().is_ok_and(|own| own.never)
    }
}

impl Uses {
    /// Replaces the sources that count. Key selections that count no more are remembered.
    pub(crate) fn replace(&mut self, now: LiteMap<SourceName, Use>, record: Option<&str>) {
        for (name, used) in std::mem::replace(&mut self.current, now) {
            if self.current.get(&name).is_none_or(|now| now.keys != used.keys) {
                self.remember(name, used.keys, record);
            }
        }
    }

    fn remember(&mut self, name: SourceName, keys: Keys, record: Option<&str>) {
        let is_recorded = |name: &SourceName| record.is_some_and(|record| record.contains(&name.to_string()));
        self.previous_selections.retain(|name, _| is_recorded(name));
        if !is_recorded(&name) {
            return;
        }
        let selections = self.previous_selections.entry(name).or_default();
        selections.retain(|known| *known != keys);
        if selections.len() == REMEMBERED {
            selections.remove(0);
        }
        selections.push(keys);
    }
}

impl RecordState {
    fn carry_over(&mut self, before: &mut Self, is_older: bool, now: Time) {
        self.doubted = before.doubted || ![&before.shown, &before.written].contains(&&self.shown);
        // In a storage that was restored from a backup, the record of that time counts.
        if !is_older {
            self.revert_guard = before.revert_guard.take();
            if self.shown != before.shown && (self.shown.is_none() || self.shown != before.written) {
                let again =
                    RevertGuard::of(before.shown.as_deref(), self.shown.as_deref(), self.revert_guard.as_deref(), now);
                self.revert_guard = again.map(Box::new).or(self.revert_guard.take());
            }
        }
        self.written = before.written.take();
        self.unacknowledged = before.unacknowledged.take();
    }

    /// Notes that this record is about to be written. Its watch event is then not taken for a write of another leader.
    pub(crate) fn writing(&mut self, record: &str) {
        self.written = Some(record.to_owned());
    }

    /// Returns whether the answer to a rollout was lost.
    pub(crate) fn has_unacknowledged(&self) -> bool {
        self.unacknowledged.is_some()
    }

    /// Notes a rollout whose answer was lost.
    pub(crate) fn set_unacknowledged(&mut self, unacknowledged: UnacknowledgedRollout) {
        self.unacknowledged = Some(Box::new(unacknowledged));
    }

    /// Returns the record of the object with this uid, or the one that stood there before and says more; and whether it is the one that stands there.
    pub fn own(&self, uid: &str, digester: &Digester) -> (Option<Record>, bool) {
        let read = |text: &str| Record::read(text, &digester.tag(uid));
        let shown = self.shown.as_deref().and_then(read);
        let revert_guard = self.revert_guard.as_ref().and_then(|revert_guard| read(revert_guard.record()));
        match (shown, revert_guard) {
            (Some(shown), Some(revert_guard)) if shown.rolled < revert_guard.rolled => (Some(revert_guard), false),
            (None, Some(revert_guard)) => (Some(revert_guard), false),
            (shown, _) => (shown, true),
        }
    }

    /// Returns until when the record is not restored, if another client keeps removing it.
    pub fn contested_until(&self, now: Time) -> Option<Time> {
        self.revert_guard
            .as_ref()
            .filter(|revert_guard| revert_guard.is_contested(now))
            .map(|revert_guard| revert_guard.until())
    }
}

impl Health {
    /// Notes the messages of a run. Returns the messages that were not reported before.
    pub(crate) fn say(&mut self, messages: Vec<Statement>, now: Time) -> Vec<Statement> {
        let is_troubled = messages.iter().any(Statement::is_problem);
        self.troubled = is_troubled.then(|| self.troubled.unwrap_or(now));
        let new = messages.iter().filter(|message| !self.said.contains(message)).cloned().collect();
        self.said = messages;
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
        self.said.clear();
    }

    /// Returns the message that says why it is not rolled.
    pub fn blocked_by(&self) -> Option<&Statement> {
        self.said.iter().find(|message| message.reason != reasons::ROLLED)
    }
}
