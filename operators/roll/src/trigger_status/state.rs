//! How each workload of a trigger stands with each of its sources. Pure.

use std::{collections::BTreeMap, sync::Arc};

use jiff::Timestamp;
use konverge_apply::Statement;
use konverge_workload::{Progress, TemplateOf};

use crate::{
    decision::Verdict,
    digest::Digester,
    object::{SourceName, WorkloadRef},
    plan::judge::{Judged, judge},
    record::Record,
    state::{Snapshot, WorkloadState},
    time::Time,
    trigger::{TriggerRef, TriggerSpec},
    vault::{SecretState, Version},
    wait::Deferral,
};

/// How one workload stands with one source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TargetStatus {
    /// The workload.
    pub workload: WorkloadRef,
    /// The source.
    pub source: SourceName,
    /// The state.
    pub state: TargetState,
}

/// The state of a workload with one source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TargetState {
    /// The workload does not exist.
    NoWorkload,
    /// It does not allow triggers of that namespace to have it rolled.
    NotAllowed,
    /// Its annotations say that it is never to be rolled.
    OptedOut,
    /// It runs pods of another's template, and has none that could be changed.
    Elsewhere(TemplateOf),
    /// Nothing is rolled for it, because its annotations cannot be followed.
    Invalid(String),
    /// Vault does not have the secret, or does not tell.
    Vault(SecretState),
    /// Vault tells an older version than the one that the pods run with.
    Older {
        /// The version that Vault tells.
        told: Version,
        /// The version that the pods run with.
        noted: Version,
    },
    /// It is not known yet. The trigger is woken when it is.
    NotYet,
    /// The trigger is suspended.
    Suspended,
    /// The secret has changed, and the workload is about to be rolled.
    PendingRollout(PendingRollout),
    /// The pods run with this version.
    InSync(InSync),
}

/// Why a workload is not rolled yet.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PendingRollout {
    /// The message about that. `None` if it is rolled at once.
    pub said: Option<Statement>,
    /// The earliest time of the rollout, if that is known.
    pub until: Option<Time>,
}

/// The version that the pods of a workload run with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InSync {
    /// The workload's uid.
    pub uid: String,
    /// The version.
    pub version: Version,
    /// When it was last rolled for this source.
    pub rolled: Option<Timestamp>,
    /// Why it was rolled then, and for which trigger.
    pub because: Option<String>,
    /// Why it was rolled since for something else. Its pods run with this version all the same.
    pub since: Option<String>,
    /// The state of its pods.
    pub progress: Progress,
}

/// A trigger with the snapshots of its workloads.
#[derive(Debug)]
pub struct Targets {
    /// The spec of the trigger.
    pub spec: Arc<TriggerSpec>,
    /// The workloads that it names or selects. `None` if one does not exist.
    pub workloads: Vec<(WorkloadRef, Option<Snapshot>)>,
    /// The state of each of its sources.
    pub standings: BTreeMap<SourceName, SecretState>,
}

/// Returns how each workload of a trigger stands with each of its sources.
pub fn target_statuses(key: &TriggerRef, targets: &Targets, digester: &Digester, now: Time) -> Vec<TargetStatus> {
    let Targets { spec, workloads, standings } = targets;
    let mut outlooks = Vec::new();
    for (workload, snapshot) in workloads {
        let target = snapshot.as_ref().map(|snapshot| Target::of(key, spec, snapshot, digester, now));
        outlooks.extend(standings.iter().map(|(source, standing)| {
            let state =
                target.as_ref().map_or(TargetState::NoWorkload, |target| target.state(source, standing.clone()));
            TargetStatus { workload: workload.clone(), source: source.clone(), state }
        }));
    }
    outlooks
}

/// A workload of a trigger.
struct Target<'a> {
    snapshot: &'a Snapshot,
    /// Its state, if that is the same for all sources.
    fixed: Option<TargetState>,
    /// The comparison with its record, once for all its sources.
    judged: Judged,
}

impl<'a> Target<'a> {
    fn of(key: &TriggerRef, spec: &TriggerSpec, snapshot: &'a Snapshot, digester: &Digester, now: Time) -> Self {
        let workload = snapshot.observed();
        let fixed = match &workload.spec {
            Err(invalid) => Some(TargetState::Invalid(invalid.to_string())),
            Ok(own) if !own.allows(&snapshot.key.namespace, &key.namespace) => Some(TargetState::NotAllowed),
            Ok(own) if own.never => Some(TargetState::OptedOut),
            Ok(_) if spec.suspended => Some(TargetState::Suspended),
            Ok(_) => workload.template_of.clone().map(TargetState::Elsewhere),
        };
        Self { snapshot, fixed, judged: judge(snapshot, digester, now) }
    }

    fn state(&self, source: &SourceName, standing: SecretState) -> TargetState {
        if let Some(fixed) = &self.fixed {
            return fixed.clone();
        }
        let SecretState::Live(version) = standing else {
            return if standing == SecretState::Unknown { TargetState::NotYet } else { TargetState::Vault(standing) };
        };
        let Judged { record, verdict, deferral, .. } = &self.judged;
        let text = source.to_string();
        let noted = record.as_ref().and_then(|record| record.content.get(&text)?.version.clone());
        if let Some(noted) = noted.filter(|noted| version.is_before(noted)) {
            return TargetState::Older { told: version, noted };
        }
        let deferral = deferral.get(source);
        if matches!(deferral, Some(Deferral::Awaited(_, None))) {
            return TargetState::NotYet;
        }
        match verdict {
            Some(Verdict::Roll { changed, .. }) if changed.contains(&text) && !self.snapshot.pods.rollout.empty => {
                TargetState::PendingRollout(pending(&self.snapshot.workload))
            }
            Some(_) if deferral.is_some_and(Deferral::is_told) => {
                TargetState::PendingRollout(pending(&self.snapshot.workload))
            }
            None | Some(Verdict::Note(_)) => TargetState::NotYet,
            Some(Verdict::Roll { .. } | Verdict::Nothing) => {
                TargetState::InSync(self.in_step(record.as_ref(), &text, version))
            }
        }
    }

    fn in_step(&self, record: Option<&Record>, source: &str, version: Version) -> InSync {
        let (own, other) = match record {
            Some(record) if record.is_for(source) => (Some(record), None),
            other => (None, other),
        };
        InSync {
            uid: self.snapshot.observed().uid.clone(),
            version,
            rolled: own.and_then(|record| record.rolled),
            because: own.and_then(|record| record.because.clone()),
            since: other.and_then(|record| record.because.clone()),
            progress: self.snapshot.pods.rollout.progress,
        }
    }
}

/// Returns what keeps a workload from being rolled.
fn pending(workload: &WorkloadState) -> PendingRollout {
    let said = workload.health.blocked_by().cloned();
    PendingRollout { said, until: workload.health.pending.and_then(|(_, until)| until) }
}
