//! The status of a trigger, and an event where there is news. Pure; the time is
//! handed in.
//!
//! [`target_statuses`] compares each workload of a trigger with each of its sources. [`status_update`] makes one status of all of them: it has the worst of
//! their conditions.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use jiff::Timestamp;
use konverge_apply::{
    Severity, Statement,
    conditions::{ConditionStatus, Conditions, Moment, READY, Reason},
};
use konverge_core::names::few;
use konverge_workload::{Progress, TemplateOf};

use crate::{
    definition::{Baseline, HELD, ROLLED_OUT, Status, VaultSync},
    digest::Digester,
    messages::{self, second, template_elsewhere},
    object::{SourceName, WorkloadRef},
    plan::{Comparison, Deferral, Verdict, compare},
    reasons,
    record::Record,
    state::{Snapshot, WorkloadState},
    time::Time,
    trigger::{Refusal, TriggerKind, TriggerRef, TriggerSpec, WatchedTrigger},
    vault::{SecretState, Version},
};

/// The values of the original operator.
const IN_SYNC: &str = "Already in Sync";
const SYNCED: &str = "Synced";
const ERROR: &str = "Error";

/// The reason of a condition without one.
const UNKNOWN: Reason = Reason::new("Unknown");

/// The shortest time until another look, if the reported time lies in the past.
const SHORTEST_REST: Duration = Duration::from_secs(1);

/// An update of the status of a trigger.
#[derive(Debug, Clone, PartialEq)]
pub struct StatusUpdate {
    /// Its status.
    pub status: Status,
    /// The messages that were not reported before.
    pub news: Vec<Statement>,
    /// When to look again though nothing happens.
    pub again: Option<Duration>,
}

/// Returns the next status. Returns `None` while too little is known.
pub fn status_update(
    key: &TriggerRef,
    shown: &WatchedTrigger,
    target_statuses: &[TargetStatus],
    now: Time,
) -> Option<StatusUpdate> {
    let all = workload_conditions(key, target_statuses);
    let mut condition = worst(shown, &all)?;
    let spec = shown.spec();
    if let Some(note) =
        spec.and_then(|spec| spec.notes.first()).filter(|_| condition.readiness <= Readiness::Progressing)
    {
        let text = format!("{}; but {note}", condition.text);
        condition = TargetCondition::new(condition.readiness, reasons::INVALID_TIMESTAMP, text);
    }
    let before = &shown.status;
    let last_rollout = target_statuses.iter().filter_map(TargetStatus::rolled).max().max(before.last_rollout_time);
    let every = spec.map(|spec| spec.every).unwrap_or_default();
    let recent = last_rollout.filter(|_| condition.readiness <= Readiness::Progressing).and_then(|rolled| {
        let rest = every.checked_sub(now.wall().duration_since(rolled).unsigned_abs())?;
        (!rest.is_zero()).then_some(rest)
    });
    let is_known = target_statuses.iter().all(|target| matches!(target.state, TargetState::InSync(_)));
    let sync_status = match (condition.readiness, recent) {
        (Readiness::Waiting | Readiness::Stalled, _) => Some(ERROR.to_owned()),
        // The original says nothing while it works.
        _ if !is_known => before.vault_sync.as_ref().map(|before| before.sync_status.clone()),
        (_, Some(_)) => Some(SYNCED.to_owned()),
        (_, None) => Some(IN_SYNC.to_owned()),
    };
    let is_of_original = key.kind == TriggerKind::VaultSyncStatus;
    let moment = Moment { generation: shown.generation, now: now.wall() };
    let waiting = Waiting::of(target_statuses);
    let in_sync = all.iter().flatten().filter(|condition| condition.readiness == Readiness::Ready);
    let count = |count: usize| u32::try_from(count).ok();
    let status = Status {
        vault_sync: sync_status.filter(|_| is_of_original).map(|sync_status| VaultSync { sync_status }),
        observed_generation: shown.generation,
        uid: shown.uid.clone(),
        // Of many it would be large, and is recorded on each.
        baseline: if is_of_original {
            target_statuses.iter().filter_map(|target| target.baseline(before)).collect()
        } else {
            Vec::new()
        },
        workloads: count(all.len()).filter(|_| !is_of_original),
        in_sync_workloads: count(in_sync.count()).filter(|_| !is_of_original),
        pending_workloads: Some(waiting.workloads).filter(|count| !is_of_original && *count > 0),
        last_rollout_time: last_rollout,
        conditions: conditions(&condition, before, target_statuses, &waiting, moment),
    };
    let news = news(&condition, before, target_statuses);
    let again = [recent, waiting.rest(now)].into_iter().flatten().min();
    Some(StatusUpdate { status, news, again })
}

/// The rollouts that are held back.
#[derive(Default)]
struct Waiting<'a> {
    /// How many workloads.
    workloads: u32,
    /// The first of them, and why.
    first: Option<(&'a WorkloadRef, &'a Statement)>,
    /// When the first of them may go on.
    until: Option<Time>,
}

impl<'a> Waiting<'a> {
    fn of(target_statuses: &'a [TargetStatus]) -> Self {
        let mut waiting = Self::default();
        let mut last = None;
        for TargetStatus { workload, state, .. } in target_statuses {
            let TargetState::PendingRollout(PendingRollout { message: Some(message), until }) = state else { continue };
            if last != Some(workload) {
                waiting.workloads += 1;
                last = Some(workload);
            }
            waiting.first.get_or_insert((workload, message));
            waiting.until = [waiting.until, *until].into_iter().flatten().min();
        }
        waiting
    }

    /// Returns how long until another look, because another time may be reported then.
    fn rest(&self, now: Time) -> Option<Duration> {
        let rest = Duration::try_from(self.until?.since(now)).unwrap_or_default();
        Some(rest.max(SHORTEST_REST))
    }
}

/// Returns the conditions that tools read, the last rollout, and the rollouts that are held back.
fn conditions(
    condition: &TargetCondition,
    before: &Status,
    target_statuses: &[TargetStatus],
    waiting: &Waiting<'_>,
    moment: Moment,
) -> Conditions {
    let mut conditions = before.conditions.clone();
    let reason = |reason: &str| Reason::parse(reason).unwrap_or(UNKNOWN);
    match condition.readiness {
        Readiness::Ready => conditions.ready(&reason(condition.reason), &condition.text, moment),
        Readiness::Progressing | Readiness::Waiting => {
            conditions.reconciling(&reason(condition.reason), &condition.text, moment);
        }
        Readiness::Stalled => conditions.stalled(&reason(condition.reason), &condition.text, moment),
    }
    let last = target_statuses.iter().filter_map(|target| Some((target.in_sync()?, target)));
    let last = last.filter(|(in_sync, _)| in_sync.rolled.is_some()).max_by_key(|(in_sync, _)| in_sync.rolled);
    // If the workload was rolled for another source since, that one is reported there, and the message before stays.
    if let Some((in_sync, TargetStatus { workload, source, .. })) =
        last.filter(|(in_sync, _)| in_sync.rolled >= before.last_rollout_time)
    {
        let time = in_sync.rolled.map(second).unwrap_or_default();
        let because = in_sync.because.as_deref().unwrap_or("the cause is not recorded");
        let text = format!("{workload} was rolled at {time} for {}: {because}", what(source, &in_sync.version));
        conditions.set(ROLLED_OUT, ConditionStatus::True, &reason(reasons::ROLLED_USER), &text, moment);
    }
    match waiting.first {
        None => conditions.remove(HELD),
        Some((workload, message)) => {
            let others = match waiting.workloads {
                1 => String::new(),
                count => format!("; {} more wait", count - 1),
            };
            let until = waiting.until.map(|until| format!("; not before {}", second(until.wall()))).unwrap_or_default();
            let text = format!("{workload}: {}{until}{others}", message.text);
            conditions.set(HELD, ConditionStatus::True, &reason(message.reason), &text, moment);
        }
    }
    conditions
}

/// Returns the worst condition of all workloads and sources, and how many have it. Returns `None` while too little is known.
fn worst(shown: &WatchedTrigger, all: &[Option<TargetCondition>]) -> Option<TargetCondition> {
    let spec = match &shown.spec {
        Ok(spec) => spec,
        Err(Refusal { reason, text }) => {
            return Some(TargetCondition::new(
                Readiness::Stalled,
                reason,
                format!("{text}. Nothing is rolled for its sake"),
            ));
        }
    };
    if spec.suspended {
        let text =
            "spec.suspend is true: nothing is rolled for its sake, and what changes is rolled once when that goes";
        return Some(TargetCondition::new(Readiness::Stalled, reasons::SUSPENDED, text.to_owned()));
    }
    if all.is_empty() {
        let text = "no workload has these labels, or none of them wants to be rolled; a workload that gets them later is rolled, too";
        return Some(TargetCondition::new(Readiness::Waiting, reasons::NO_TARGETS, text.to_owned()));
    }
    let is_known = all.iter().all(Option::is_some);
    // A known problem is reported before everything is known.
    let known = || all.iter().flatten().filter(|condition| is_known || condition.readiness >= Readiness::Waiting);
    let mut worst = known().reduce(worse)?.clone();
    let alike = known().filter(|condition| condition.reason == worst.reason).count() - 1;
    if alike > 0 {
        worst.text = format!("{}; {alike} more of {} stand like this", worst.text, all.len());
    }
    Some(worst)
}

fn news(condition: &TargetCondition, before: &Status, target_statuses: &[TargetStatus]) -> Vec<Statement> {
    let mut news = Vec::new();
    let rolled = target_statuses.iter().filter(|target| target.rolled() > before.last_rollout_time);
    let mut rolled: Vec<_> = rolled.collect();
    rolled.dedup_by_key(|target| &target.workload);
    if let Some(first) = rolled.first() {
        news.push(messages::trigger_rolled(&first.workload, rolled.len() - 1, &first.source));
    }
    let ready = before.conditions.get(READY);
    let is_new = ready.is_none_or(|ready| ready.reason != condition.reason);
    let is_problem = condition.readiness >= Readiness::Waiting
        || condition.reason == reasons::INVALID_TIMESTAMP
        || condition.reason == reasons::ROLLOUT_FAILED;
    // Somebody wants it so.
    let is_problem = is_problem && condition.reason != reasons::SUSPENDED;
    let was_problem = ready.is_some_and(|ready| ready.status != "True");
    if is_new && (is_problem || was_problem && condition.readiness == Readiness::Ready) {
        let severity = if is_problem { Severity::Problem } else { Severity::Notice };
        news.push(Statement::new(severity, condition.reason, condition.text.clone()));
    }
    news
}

impl TargetStatus {
    fn in_sync(&self) -> Option<&InSync> {
        match &self.state {
            TargetState::InSync(in_sync) => Some(in_sync),
            _ => None,
        }
    }

    fn rolled(&self) -> Option<Timestamp> {
        self.in_sync()?.rolled
    }

    /// The content that the pods run with, or ran with when that was last known.
    fn baseline(&self, before: &Status) -> Option<Baseline> {
        let (workload, source) = (self.workload.to_string(), self.source.to_string());
        match &self.state {
            TargetState::InSync(InSync { uid, version, .. }) => Some(Baseline {
                workload,
                uid: uid.clone(),
                source,
                version: version.number,
                created: version.created.clone(),
            }),
            _ => before.baseline.iter().find(|noted| noted.workload == workload && noted.source == source).cloned(),
        }
    }
}

/// The state of one workload with one source.
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
    /// Vault does not have the secret, or its state cannot be read.
    Vault(SecretState),
    /// Vault reports an older version than the one that the pods run with.
    Older {
        /// The version that Vault reports.
        found: Version,
        /// The version that the pods run with.
        recorded: Version,
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
    pub message: Option<Statement>,
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
    pub secrets: BTreeMap<SourceName, SecretState>,
}

/// Returns the state of each workload of a trigger with each of its sources.
pub fn target_statuses(key: &TriggerRef, targets: &Targets, digester: &Digester, now: Time) -> Vec<TargetStatus> {
    let Targets { spec, workloads, secrets } = targets;
    let mut statuses = Vec::new();
    for (workload, snapshot) in workloads {
        let target = snapshot.as_ref().map(|snapshot| Target::of(key, spec, snapshot, digester, now));
        statuses.extend(secrets.iter().map(|(source, secret)| {
            let state = target.as_ref().map_or(TargetState::NoWorkload, |target| target.state(source, secret.clone()));
            TargetStatus { workload: workload.clone(), source: source.clone(), state }
        }));
    }
    statuses
}

/// A workload of a trigger.
struct Target<'a> {
    snapshot: &'a Snapshot,
    /// Its state, if that is the same for all sources.
    fixed: Option<TargetState>,
    /// The comparison with its record, once for all its sources.
    comparison: Comparison,
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
        Self { snapshot, fixed, comparison: compare(snapshot, digester, now) }
    }

    fn state(&self, source: &SourceName, secret: SecretState) -> TargetState {
        if let Some(fixed) = &self.fixed {
            return fixed.clone();
        }
        let SecretState::Live(version) = secret else {
            return if secret == SecretState::Unknown { TargetState::NotYet } else { TargetState::Vault(secret) };
        };
        let Comparison { record, verdict, deferral, .. } = &self.comparison;
        let text = source.to_string();
        let recorded = record.as_ref().and_then(|record| record.content.get(&text)?.version.clone());
        if let Some(recorded) = recorded.filter(|recorded| version.is_before(recorded)) {
            return TargetState::Older { found: version, recorded };
        }
        let deferral = deferral.get(source);
        if matches!(deferral, Some(Deferral::Awaited(_, None))) {
            return TargetState::NotYet;
        }
        match verdict {
            Some(Verdict::Roll { changed, .. }) if changed.contains(&text) && !self.snapshot.pods.rollout.empty => {
                TargetState::PendingRollout(pending(&self.snapshot.workload))
            }
            Some(_) if deferral.is_some_and(Deferral::is_reported) => {
                TargetState::PendingRollout(pending(&self.snapshot.workload))
            }
            None | Some(Verdict::Note(_)) => TargetState::NotYet,
            Some(Verdict::Roll { .. } | Verdict::Nothing) => {
                TargetState::InSync(self.in_sync(record.as_ref(), &text, version))
            }
        }
    }

    fn in_sync(&self, record: Option<&Record>, source: &str, version: Version) -> InSync {
        let (own, other) = match record {
            Some(record) if record.is_for(source) => (Some(record), None),
            other => (None, other),
        };
        let has_failed = record.is_some_and(|record| record.failed.is_some());
        InSync {
            uid: self.snapshot.observed().uid.clone(),
            version,
            rolled: own.and_then(|record| record.rolled),
            because: own.and_then(|record| record.because.clone()),
            since: other.and_then(|record| record.because.clone()),
            progress: if has_failed { Progress::Failed } else { self.snapshot.pods.rollout.progress },
        }
    }
}

/// Returns what keeps a workload from being rolled.
fn pending(workload: &WorkloadState) -> PendingRollout {
    let message = workload.health.blocked_by().cloned();
    PendingRollout { message, until: workload.health.pending.and_then(|(_, until)| until) }
}

/// Whether a workload is ready, and otherwise by what it can become ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Readiness {
    Ready,
    /// It goes on by itself.
    Progressing,
    /// It goes on by itself as soon as something outside is mended.
    Waiting,
    /// Somebody has to change an object.
    Stalled,
}

/// The condition of a workload, or of a workload with one source.
#[derive(Debug, Clone, PartialEq, Eq)]
struct TargetCondition {
    readiness: Readiness,
    reason: &'static str,
    text: String,
}

/// Returns the condition of each workload, which is the worst of its sources. `None` while that is not known.
fn workload_conditions(key: &TriggerRef, target_statuses: &[TargetStatus]) -> Vec<Option<TargetCondition>> {
    let groups = target_statuses.chunk_by(|one, next| one.workload == next.workload);
    groups
        .map(|group| {
            let all: Vec<_> = group.iter().map(|target| target_condition(key, target)).collect();
            let is_known = all.iter().all(Option::is_some);
            let known = all.iter().flatten().filter(|condition| is_known || condition.readiness >= Readiness::Waiting);
            let worst = known.reduce(worse)?.clone();
            if worst.readiness > Readiness::Ready {
                return Some(worst);
            }
            let versions = group.iter().filter_map(|target| Some(what(&target.source, &target.in_sync()?.version)));
            let text = format!("the pods of {} run with {}", group[0].workload, few(versions));
            Some(TargetCondition { text, ..worst })
        })
        .collect()
}

/// Returns the worse condition, and of two equal ones the first.
fn worse<'a>(one: &'a TargetCondition, next: &'a TargetCondition) -> &'a TargetCondition {
    if next.readiness > one.readiness { next } else { one }
}

/// A source in a version.
fn what(source: &SourceName, version: &Version) -> String {
    match version.number {
        0 => format!("what is in {source}"),
        number => format!("version {number} of {source}"),
    }
}

/// Returns the condition of one workload with one source. `None` while it is not known.
fn target_condition(key: &TriggerRef, target: &TargetStatus) -> Option<TargetCondition> {
    let TargetStatus { workload, source, state } = target;
    Some(match state {
        TargetState::NotYet => return None,
        TargetState::NoWorkload => TargetCondition::new(
            Readiness::Waiting,
            reasons::WORKLOAD_MISSING,
            format!(
                "{workload} does not exist or is not watched: its name may be wrong, or --kinds and --namespace leave it out. The operator waits for it, and \
                 the content of Vault at that time rolls nothing"
            ),
        ),
        TargetState::NotAllowed => TargetCondition::new(
            Readiness::Stalled,
            reasons::NOT_ALLOWED,
            format!(
                "{workload} is in another namespace and does not allow this one to have it rolled; annotate it with roll.konverge.dev/allow-from={}",
                key.namespace
            ),
        ),
        TargetState::OptedOut => TargetCondition::new(
            Readiness::Stalled,
            reasons::OPTED_OUT,
            format!("{workload} says roll.konverge.dev/on-change=false, and so it is never rolled"),
        ),
        TargetState::Elsewhere(other) => TargetCondition::new(
            Readiness::Stalled,
            reasons::TEMPLATE_ELSEWHERE,
            format!("{workload}: {}", template_elsewhere(other)),
        ),
        TargetState::Invalid(cause) => TargetCondition::new(
            Readiness::Stalled,
            reasons::INVALID_ANNOTATION,
            format!("on {workload} {cause}. It is not rolled before that is fixed"),
        ),
        TargetState::Vault(state) => of_secret(source, state),
        TargetState::Older { found, recorded } => TargetCondition::new(
            Readiness::Progressing,
            reasons::OLDER_VERSION,
            format!(
                "Vault states version {} of {source}, and the pods of {workload} run with version {}, which is newer. Nothing is rolled before \
                 Vault has a newer one",
                found.number, recorded.number
            ),
        ),
        TargetState::Suspended => TargetCondition::new(Readiness::Stalled, reasons::SUSPENDED, String::new()),
        TargetState::PendingRollout(pending) => of_pending(workload, source, pending),
        TargetState::InSync(in_sync) => of_pods(workload, source, in_sync),
    })
}

/// Returns the condition for a secret that Vault does not show.
fn of_secret(source: &SourceName, state: &SecretState) -> TargetCondition {
    match state {
        SecretState::Failing { reason, text } => TargetCondition::new(
            Readiness::Waiting,
            reason,
            format!("{text}. Nothing is rolled; the operator asks again"),
        ),
        SecretState::Deleted => TargetCondition::new(
            Readiness::Waiting,
            reasons::SECRET_DELETED,
            format!(
                "the newest version of {source} is deleted or destroyed. Nothing is rolled before there is another one, or it is undeleted and changes"
            ),
        ),
        _ => TargetCondition::new(
            Readiness::Waiting,
            reasons::SECRET_NOT_FOUND,
            format!("there is no {source}; create it, or correct the path. Nothing is rolled"),
        ),
    }
}

/// Returns the condition for a workload that is about to be rolled.
fn of_pending(workload: &WorkloadRef, source: &SourceName, pending: &PendingRollout) -> TargetCondition {
    let Some(message) = &pending.message else {
        let text = format!("{source} changed, and {workload} is rolled");
        return TargetCondition::new(Readiness::Progressing, reasons::ROLLOUT_PENDING, text);
    };
    let (readiness, reason) = match message.reason {
        reasons::NOT_FOLLOWED => (Readiness::Waiting, reasons::NOT_FOLLOWED),
        _ => (Readiness::Progressing, reasons::ROLLOUT_PENDING),
    };
    TargetCondition::new(readiness, reason, format!("{workload}: {}", message.text))
}

/// Returns the condition for a workload that was rolled for the version that there is.
fn of_pods(workload: &WorkloadRef, source: &SourceName, in_sync: &InSync) -> TargetCondition {
    let InSync { version, rolled, since, progress, .. } = in_sync;
    let what = what(source, version);
    match (rolled, since, progress) {
        (Some(_), _, Progress::Running | Progress::Unready) => TargetCondition::new(
            Readiness::Progressing,
            reasons::ROLLOUT_RUNNING,
            format!("{workload} was rolled for {what}, and its new pods are not all there yet"),
        ),
        (Some(_), _, Progress::Failed) => TargetCondition::new(
            Readiness::Progressing,
            reasons::ROLLOUT_FAILED,
            format!("{workload} was rolled for {what}, and its new pods do not become ready"),
        ),
        // The source of a later rollout reports how that goes. A failed rollout keeps this version from the pods, too.
        (None, Some(since), Progress::Failed) => TargetCondition::new(
            Readiness::Progressing,
            reasons::ROLLOUT_FAILED,
            format!(
                "the pods of {workload} that are to run with {what} do not become ready; it was rolled since: {since}"
            ),
        ),
        _ => {
            TargetCondition::new(Readiness::Ready, reasons::IN_SYNC, format!("the pods of {workload} run with {what}"))
        }
    }
}

impl TargetCondition {
    fn new(readiness: Readiness, reason: &'static str, text: String) -> Self {
        Self { readiness, reason, text }
    }
}

#[cfg(test)]
mod tests;
