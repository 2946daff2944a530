//! The status of a trigger, and an event where there is news. Pure; the time is
//! handed in.

pub mod state;
mod words;

use std::time::Duration;

use jiff::Timestamp;
use konverge_apply::{
    Severity, Statement,
    conditions::{ConditionStatus, Conditions, Moment, READY, Reason},
};

use self::{
    state::{InSync, PendingRollout, TargetState, TargetStatus},
    words::{How, Word, what, words},
};
use crate::{
    messages::{self, second},
    object::WorkloadRef,
    reasons,
    status::{Baseline, HELD, ROLLED_OUT, Status, VaultSync},
    time::Time,
    trigger::{Refusal, TriggerKind, TriggerRef, WatchedTrigger},
};

/// The original's words.
const IN_SYNC: &str = "Already in Sync";
const SYNCED: &str = "Synced";
const ERROR: &str = "Error";

/// The reason of a condition without one.
const UNKNOWN: Reason = Reason::new("Unknown");

/// A time that is told is looked at again no sooner than this, should it lie in the past.
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
    let words = words(key, target_statuses);
    let mut word = worst(shown, &words)?;
    let spec = shown.spec();
    if let Some(note) = spec.and_then(|spec| spec.notes.first()).filter(|_| word.how <= How::Going) {
        word = Word::new(word.how, reasons::INVALID_TIMESTAMP, format!("{}; but {note}", word.text));
    }
    let before = &shown.status;
    let last_rollout = target_statuses.iter().filter_map(TargetStatus::rolled).max().max(before.last_rollout_time);
    let every = spec.map(|spec| spec.every).unwrap_or_default();
    let recent = last_rollout.filter(|_| word.how <= How::Going).and_then(|rolled| {
        let rest = every.checked_sub(now.wall().duration_since(rolled).unsigned_abs())?;
        (!rest.is_zero()).then_some(rest)
    });
    let is_known = target_statuses.iter().all(|target| matches!(target.state, TargetState::InSync(_)));
    let sync_status = match (word.how, recent) {
        (How::Waiting | How::Stalled, _) => Some(ERROR.to_owned()),
        // The original says nothing while it works.
        _ if !is_known => before.vault_sync.as_ref().map(|said| said.sync_status.clone()),
        (_, Some(_)) => Some(SYNCED.to_owned()),
        (_, None) => Some(IN_SYNC.to_owned()),
    };
    let is_of_original = key.kind == TriggerKind::VaultSyncStatus;
    let moment = Moment { generation: shown.generation, now: now.wall() };
    let waiting = Waiting::of(target_statuses);
    let in_sync = words.iter().flatten().filter(|word| word.how == How::Ready);
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
        workloads: count(words.len()).filter(|_| !is_of_original),
        in_sync_workloads: count(in_sync.count()).filter(|_| !is_of_original),
        pending_workloads: Some(waiting.workloads).filter(|count| !is_of_original && *count > 0),
        last_rollout_time: last_rollout,
        conditions: conditions(&word, before, target_statuses, &waiting, moment),
    };
    let news = news(&word, before, target_statuses);
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
            let TargetState::PendingRollout(PendingRollout { said: Some(said), until }) = state else { continue };
            if last != Some(workload) {
                waiting.workloads += 1;
                last = Some(workload);
            }
            waiting.first.get_or_insert((workload, said));
            waiting.until = [waiting.until, *until].into_iter().flatten().min();
        }
        waiting
    }

    /// How long until that is worth another look, since then another time may be told.
    fn rest(&self, now: Time) -> Option<Duration> {
        let rest = Duration::try_from(self.until?.since(now)).unwrap_or_default();
        Some(rest.max(SHORTEST_REST))
    }
}

/// Returns the conditions that tools read, the last rollout, and the rollouts that are held back.
fn conditions(
    word: &Word,
    before: &Status,
    target_statuses: &[TargetStatus],
    waiting: &Waiting<'_>,
    moment: Moment,
) -> Conditions {
    let mut conditions = before.conditions.clone();
    let reason = |reason: &str| Reason::parse(reason).unwrap_or(UNKNOWN);
    match word.how {
        How::Ready => conditions.ready(&reason(word.reason), &word.text, moment),
        How::Going | How::Waiting => conditions.reconciling(&reason(word.reason), &word.text, moment),
        How::Stalled => conditions.stalled(&reason(word.reason), &word.text, moment),
    }
    let last = target_statuses.iter().filter_map(|target| Some((target.in_step()?, target)));
    let last = last.filter(|(in_step, _)| in_step.rolled.is_some()).max_by_key(|(in_step, _)| in_step.rolled);
    // Rolled for something else since, the workload tells of that, and what was said before stays.
    if let Some((in_step, TargetStatus { workload, source, .. })) =
        last.filter(|(in_step, _)| in_step.rolled >= before.last_rollout_time)
    {
        let time = in_step.rolled.map(second).unwrap_or_default();
        let because = in_step.because.as_deref().unwrap_or("the cause is not recorded");
        let text = format!("{workload} was rolled at {time} for {}: {because}", what(source, &in_step.version));
        conditions.set(ROLLED_OUT, ConditionStatus::True, &reason(reasons::ROLLED_USER), &text, moment);
    }
    match waiting.first {
        None => conditions.remove(HELD),
        Some((workload, said)) => {
            let others = match waiting.workloads {
                1 => String::new(),
                count => format!("; {} more wait", count - 1),
            };
            let until = waiting.until.map(|until| format!("; not before {}", second(until.wall()))).unwrap_or_default();
            let text = format!("{workload}: {}{until}{others}", said.text);
            conditions.set(HELD, ConditionStatus::True, &reason(said.reason), &text, moment);
        }
    }
    conditions
}

/// Returns the worst state of all workloads and sources, and how many have it. Returns `None` while too little is known.
fn worst(shown: &WatchedTrigger, words: &[Option<Word>]) -> Option<Word> {
    let spec = match &shown.spec {
        Ok(spec) => spec,
        Err(Refusal { reason, text }) => {
            return Some(Word::new(How::Stalled, reason, format!("{text}. Nothing is rolled for its sake")));
        }
    };
    if spec.suspended {
        let text =
            "spec.suspend is true: nothing is rolled for its sake, and what changes is rolled once when that goes";
        return Some(Word::new(How::Stalled, reasons::SUSPENDED, text.to_owned()));
    }
    if words.is_empty() {
        let text = "no workload has these labels, or none of them wants to be rolled; a workload that gets them later is rolled, too";
        return Some(Word::new(How::Waiting, reasons::NO_TARGETS, text.to_owned()));
    }
    let is_known = words.iter().all(Option::is_some);
    // A known problem is reported before everything is known.
    let known = || words.iter().flatten().filter(|word| is_known || word.how >= How::Waiting);
    let mut worst = known().reduce(|worst, word| if word.how > worst.how { word } else { worst })?.clone();
    let alike = known().filter(|word| word.reason == worst.reason).count() - 1;
    if alike > 0 {
        worst.text = format!("{}; {alike} more of {} stand like this", worst.text, words.len());
    }
    Some(worst)
}

fn news(word: &Word, before: &Status, target_statuses: &[TargetStatus]) -> Vec<Statement> {
    let mut news = Vec::new();
    let rolled = target_statuses.iter().filter(|target| target.rolled() > before.last_rollout_time);
    let mut rolled: Vec<_> = rolled.collect();
    rolled.dedup_by_key(|target| &target.workload);
    if let Some(first) = rolled.first() {
        news.push(messages::trigger_rolled(&first.workload, rolled.len() - 1, &first.source));
    }
    let said = before.conditions.get(READY);
    let is_new = said.is_none_or(|said| said.reason != word.reason);
    let is_problem =
        word.how >= How::Waiting || word.reason == reasons::INVALID_TIMESTAMP || word.reason == reasons::ROLLOUT_FAILED;
    // Somebody wants it so.
    let is_problem = is_problem && word.reason != reasons::SUSPENDED;
    let was_problem = said.is_some_and(|said| said.status != "True");
    if is_new && (is_problem || was_problem && word.how == How::Ready) {
        let severity = if is_problem { Severity::Problem } else { Severity::Notice };
        news.push(Statement::new(severity, word.reason, word.text.clone()));
    }
    news
}

impl TargetStatus {
    fn in_step(&self) -> Option<&InSync> {
        match &self.state {
            TargetState::InSync(in_step) => Some(in_step),
            _ => None,
        }
    }

    fn rolled(&self) -> Option<Timestamp> {
        self.in_step()?.rolled
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

#[cfg(test)]
mod tests;
