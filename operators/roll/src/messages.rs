//! The messages to the owners of objects: the cause and the next step, never a value.

use jiff::Timestamp;
use konverge_apply::{Announcer, Severity, Statement, events::EventSink, statement_log};
use konverge_core::{
    error::{Classify, in_one_line},
    names::few,
};
use konverge_workload::TemplateOf;

use crate::{
    annotations::{IGNORE_FAILURE, Invalid, RECORD},
    budget::{Limit, Spent},
    hold::BlockedBy,
    object::{SourceName, WorkloadRef},
    plan::{Deferral, Unsatisfied},
    reasons,
    uses::Use,
    waves::WaveGate,
};

/// The `action` of every event of this operator.
const ACTION: &str = "Roll";

/// Announces statements about workloads and triggers.
pub fn announcer(events: EventSink) -> Announcer {
    Announcer::new(events, ACTION, statement_log!(object))
}

/// Announces statements about sources.
pub fn source_announcer(events: EventSink) -> Announcer {
    Announcer::new(events, ACTION, statement_log!(source))
}

fn notice(reason: &'static str, text: String) -> Statement {
    Statement::new(Severity::Notice, reason, text)
}

fn problem(reason: &'static str, text: String) -> Statement {
    Statement::new(Severity::Problem, reason, text)
}

/// An annotation cannot be followed.
pub fn invalid(invalid: &Invalid) -> Statement {
    problem(reasons::INVALID_ANNOTATION, format!("{invalid}. It rolls nothing until you correct it"))
}

/// The workload requests rollouts, and has no template of its own.
pub fn elsewhere(other: &TemplateOf) -> Statement {
    problem(reasons::TEMPLATE_ELSEWHERE, template_elsewhere(other))
}

/// The workload was rolled.
pub fn rolled(because: &str) -> Statement {
    notice(reasons::ROLLED, format!("rolled: {because}"))
}

/// A workload is rolled for a source.
pub fn rolled_user(user: &WorkloadRef) -> Statement {
    notice(reasons::ROLLED_USER, format!("its content changed: {user} is rolled"))
}

/// A source changes all the time.
pub fn ran_away(source: &SourceName) -> Statement {
    let who = if source.kind.is_in_vault() {
        "Vault's audit log names the client that writes it"
    } else {
        "find the client that writes it: metadata.managedFields names it"
    };
    let text = format!(
        "it changes more often than --runaway-changes allows in a minute, so the operator rolls nothing for it until it is quiet; {who}"
    );
    problem(reasons::RAN_AWAY, text)
}

/// A workload is rolled for a trigger, and so many others.
pub fn trigger_rolled(workload: &WorkloadRef, others: usize, source: &SourceName) -> Statement {
    let text = match others {
        0 => format!("{source} changed: {workload} is rolled"),
        others => format!("{source} changed: {workload} and {others} more are rolled"),
    };
    notice(reasons::ROLLED_USER, text)
}

/// The original operator still writes on the object.
pub fn original_runs() -> Statement {
    problem(
        reasons::ORIGINAL_RUNS,
        "kopf's finalizer and annotations have come back, so the original still runs, and restarts the same workloads. Scale it down"
            .to_owned(),
    )
}

/// Another client keeps removing its record.
pub fn record_contested() -> Statement {
    problem(
        reasons::RECORD_TAKEN,
        format!(
            "another client keeps removing the annotation {RECORD} or setting it back, so the operator restores it with growing pauses. That rolls \
             nothing, but a change while the operator is down may be missed; find the client: metadata.managedFields names it"
        ),
    )
}

/// The workload cannot be read or written.
pub fn failed(error: &(impl std::error::Error + Classify)) -> Statement {
    problem(error.reason(), format!("{}. The operator tries again", in_one_line(error)))
}

/// A source may not be read.
pub fn refused(source: &SourceName, error: &impl std::error::Error) -> Statement {
    let text = format!(
        "{source} may not be read, so it rolls nothing: {}. Let the operator's service account get it; the operator tries again",
        in_one_line(error)
    );
    problem(reasons::FORBIDDEN, text)
}

/// The workload waits. `changed` names the changed sources.
pub fn held(hold: BlockedBy, changed: &str) -> Statement {
    let (reason, why) = match hold {
        BlockedBy::Annotation => (reasons::PAUSED, "its annotation pauses it".to_owned()),
        BlockedBy::Paused => (reasons::PAUSED, "its rollout is paused; resume it to have it rolled".to_owned()),
        BlockedBy::Debounce(until) => {
            (reasons::INTERVAL, format!("more changes may come until {}", second(until.wall())))
        }
        BlockedBy::Interval(until) => {
            let next = second(until.wall());
            let why = format!("the minimum interval has not passed; the next rollout is at {next} at the earliest");
            (reasons::INTERVAL, why)
        }
    };
    notice(reason, format!("{changed}, and it is not rolled yet: {why}"))
}

/// Returns why a changed source rolls nothing yet. Returns `None` if that is not reported.
pub fn deferral(deferral: &Deferral, changed: &str) -> Option<Statement> {
    Some(match deferral {
        Deferral::Suspended | Deferral::Awaited(_, None) => return None,
        Deferral::RanAway(_) => {
            notice(reasons::BREAKER, format!("{changed} too often, and it is not rolled before the source is quiet"))
        }
        Deferral::Awaited(secret, Some(until)) => {
            let until = second(until.wall());
            let why = format!("it waits for {secret} to follow, until {until} at the latest");
            notice(reasons::AWAITED, format!("{changed}, and it is not rolled yet: {why}"))
        }
        Deferral::Overdue(secret, until) => {
            let until = second(until.wall());
            let text = format!(
                "{changed}, and it is not rolled: {secret} has not followed by {until}. Check the tool that syncs it; this is rolled as soon as it has followed"
            );
            problem(reasons::NOT_FOLLOWED, text)
        }
    })
}

/// The workload waits for an earlier wave.
pub fn not_its_wave(turn: &WaveGate<WorkloadRef>, changed: &str) -> Option<Statement> {
    match turn {
        WaveGate::Now => None,
        WaveGate::After(other) => {
            let text = format!("{changed}, and it is not rolled yet: {other} of an earlier wave is first");
            Some(notice(reasons::WAVE, text))
        }
        WaveGate::Halted(other) => {
            let text = format!(
                "{changed}, and it is not rolled: {other} of an earlier wave is first, and cannot be rolled or does not become ready. Its \
                 events tell why. Fix that, or change the content again"
            );
            Some(problem(reasons::HALTED, text))
        }
    }
}

/// The last rollout of the workload has failed.
pub fn rollout_failed(rolled: Timestamp, because: &str) -> Statement {
    let text = format!(
        "it was rolled at {rolled} ({because}), and its pods do not become available. Other workloads that wait for the same content are held back \
         until it recovers or the content changes; the annotation {IGNORE_FAILURE}=true on it lets them go. Its pods tell why they fail"
    );
    problem(reasons::ROLLOUT_FAILED, text)
}

/// The pods of the failed rollout are available.
pub fn recovered() -> Statement {
    notice(reasons::RECOVERED, "its pods have become available".to_owned())
}

/// Another workload has failed with the same content.
pub fn failed_elsewhere(failed: &WorkloadRef, changed: &str) -> Statement {
    let text = format!(
        "{changed}, and it is not rolled: {failed} was rolled for the same content, and its pods do not become available. It is rolled once that one \
         recovers or the content changes again; the annotation {IGNORE_FAILURE}=true on that one lets it go"
    );
    problem(reasons::FAILED_ELSEWHERE, text)
}

/// New pods could not start.
pub fn unsatisfied(missing: &[Unsatisfied]) -> Statement {
    let one = |missing: &Unsatisfied| match &*missing.keys {
        [] => format!("there is no {}", missing.source),
        [key] => format!("{} has no key {key}", missing.source),
        keys => format!("{} has no keys {}", missing.source, few(keys)),
    };
    let missing = few(missing.iter().map(one));
    problem(
        reasons::UNSATISFIED,
        format!(
            "new pods could not start, so it is not rolled: {missing}. Once that is restored, it is rolled once for all changes since"
        ),
    )
}

/// There were enough rollouts for the time being.
pub fn spent(spent: &Spent, namespace: &str, changed: &str) -> Statement {
    let (reason, what) = match spent.by {
        Limit::Rate => (reasons::RATE, "the limit of --max-rollouts-per-minute is reached".to_owned()),
        Limit::Concurrent => (reasons::CONCURRENT, "the limit of --max-concurrent-rollouts is reached".to_owned()),
        Limit::RateOfNamespace(share) => {
            let what = format!(
                "the namespace {namespace} has begun {share} rollouts in a minute, which is its share of \
                 --max-rollouts-per-minute by --concurrent-per-namespace"
            );
            (reasons::SHARE, what)
        }
        Limit::ConcurrentOfNamespace(share) => {
            let what = format!(
                "the namespace {namespace} has {share} rollouts under way, which is its share by --concurrent-per-namespace"
            );
            (reasons::SHARE, what)
        }
    };
    notice(reason, format!("{changed}, and it is not rolled yet: {what}"))
}

/// Names the changed sources, and the annotation by which each counts.
pub fn because<'a>(changed: impl IntoIterator<Item = (&'a SourceName, &'a Use)>) -> String {
    let all: Vec<_> = changed.into_iter().map(|(source, used)| format!("{source} changed ({})", used.rule)).collect();
    if all.is_empty() {
        "the content that it uses differs from the content that its pods were rolled for".to_owned()
    } else {
        few(all)
    }
}

/// Names the way to roll a workload that runs the pod template of another one.
pub(crate) fn template_elsewhere(other: &TemplateOf) -> String {
    let TemplateOf { kind, name } = other;
    format!(
        "its pods are made of the template of {kind} {name}, which spec.workloadRef names, so it is not rolled itself; annotate that one, which rolls \
          these pods"
    )
}

/// Why it is rolled, and which Secrets had not followed in time.
pub(crate) fn without(why: String, late: &[String]) -> String {
    if late.is_empty() { why } else { format!("{why}; {} had not followed in time", few(late)) }
}

/// Rounds a time up to the second.
pub(crate) fn second(time: Timestamp) -> Timestamp {
    let up = i64::from(time.subsec_nanosecond() > 0);
    Timestamp::from_second(time.as_second() + up).unwrap_or(time)
}
