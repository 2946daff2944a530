//! Controllers of pods: all of the wanted replicas are there, are of the wanted revision, and work.

use super::{Condition, Readiness, View};

/// The first count that is too small.
fn missing(counts: &[(&str, i64, i64)]) -> Option<Readiness> {
    let (what, have, want) = counts.iter().find(|(_, have, want)| have < want)?;
    Some(Readiness::InProgress(format!("{what}: {have} of {want}")))
}

fn replicas(object: &View<'_>) -> i64 {
    object.number("/spec/replicas").unwrap_or(1)
}

pub(super) fn deployment(object: &View<'_>) -> Readiness {
    let progressing = object.condition("Progressing");
    if let Some(stuck) = progressing.filter(|condition| condition.reason == "ProgressDeadlineExceeded") {
        return Readiness::Failed(stuck.why());
    }
    let want = replicas(object);
    let (all, updated) = (object.status("replicas"), object.status("updatedReplicas"));
    let shortage = missing(&[
        ("replicas", all, want),
        ("replicas of the wanted revision", updated, want),
        ("available replicas", object.status("availableReplicas"), want),
        ("ready replicas", object.status("readyReplicas"), want),
    ]);
    if let Some(shortage) = shortage {
        return shortage;
    }
    if all > want {
        return Readiness::InProgress(format!("{} replicas too many", all - want));
    }
    match object.condition("Available") {
        Some(available) if available.is_true() => Readiness::Current,
        Some(available) => Readiness::InProgress(available.why()),
        None => Readiness::InProgress("not looked at yet".to_owned()),
    }
}

pub(super) fn replica_set(object: &View<'_>) -> Readiness {
    if let Some(failure) = object.condition("ReplicaFailure").filter(Condition::is_true) {
        return Readiness::InProgress(failure.why());
    }
    let want = replicas(object);
    let shortage = missing(&[
        ("replicas", object.status("replicas"), want),
        ("labelled replicas", object.status("fullyLabeledReplicas"), want),
        ("available replicas", object.status("availableReplicas"), want),
        ("ready replicas", object.status("readyReplicas"), want),
    ]);
    match (shortage, object.status("replicas") - want) {
        (Some(shortage), _) => shortage,
        (None, 1..) => Readiness::InProgress(format!("{} replicas too many", object.status("replicas") - want)),
        (None, _) if object.number("/status/observedGeneration").is_none() => {
            Readiness::InProgress("not looked at yet".to_owned())
        }
        (None, _) => Readiness::Current,
    }
}

pub(super) fn stateful_set(object: &View<'_>) -> Readiness {
    // The pods are replaced when somebody deletes them, which nobody may ever do.
    if object.text("/spec/updateStrategy/type") == Some("OnDelete") {
        return Readiness::Current;
    }
    if object.number("/status/observedGeneration").is_none() {
        return Readiness::InProgress("not looked at yet".to_owned());
    }
    let want = replicas(object);
    let all = object.status("replicas");
    if let Some(shortage) =
        missing(&[("replicas", all, want), ("ready replicas", object.status("readyReplicas"), want)])
    {
        return shortage;
    }
    if all > want {
        return Readiness::InProgress(format!("{} replicas too many", all - want));
    }
    if let Some(partition) =
        object.number("/spec/updateStrategy/rollingUpdate/partition").filter(|partition| *partition > 0)
    {
        let updated = ("replicas of the wanted revision", object.status("updatedReplicas"), want - partition);
        return missing(&[updated]).unwrap_or(Readiness::Current);
    }
    if object.text("/status/currentRevision") != object.text("/status/updateRevision") {
        return Readiness::InProgress("replicas of the wanted revision are on their way".to_owned());
    }
    Readiness::Current
}

pub(super) fn daemon_set(object: &View<'_>) -> Readiness {
    if object.number("/status/observedGeneration").is_none() {
        return Readiness::InProgress("not looked at yet".to_owned());
    }
    let want = object.status("desiredNumberScheduled");
    let mut counts = vec![
        ("scheduled pods", object.status("currentNumberScheduled"), want),
        ("available pods", object.status("numberAvailable"), want),
        ("ready pods", object.status("numberReady"), want),
    ];
    if object.text("/spec/updateStrategy/type") != Some("OnDelete") {
        counts.insert(1, ("pods of the wanted revision", object.status("updatedNumberScheduled"), want));
    }
    missing(&counts).unwrap_or(Readiness::Current)
}

/// A job that runs is as it should be; whether it succeeds is another question, and one that fails has failed.
pub(super) fn job(object: &View<'_>) -> Readiness {
    let failed = object.condition("Failed").or_else(|| object.condition("FailureTarget"));
    if let Some(failed) = failed.filter(Condition::is_true) {
        return Readiness::Failed(failed.why());
    }
    let is_complete = object.condition("Complete").is_some_and(|complete| complete.is_true());
    if is_complete || object.text("/status/startTime").is_some() {
        return Readiness::Current;
    }
    match object.condition("Suspended").filter(Condition::is_true) {
        Some(suspended) => Readiness::InProgress(suspended.why()),
        None => Readiness::InProgress("the job has not started".to_owned()),
    }
}
