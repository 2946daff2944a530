//! Pods.

use serde_json::Value;

use super::{Condition, Readiness, View};

pub(super) fn pod(object: &View<'_>) -> Readiness {
    let phase = object.text("/status/phase").unwrap_or("Pending");
    let ready = object.condition("Ready");
    match phase {
        "Succeeded" => Readiness::Current,
        "Failed" => Readiness::Failed(failure(object)),
        "Running" => match ready {
            Some(ready) if ready.is_true() || ready.reason == "PodCompleted" => Readiness::Current,
            ready => match crashing(object) {
                Some(container) => Readiness::Failed(format!("container {container} crashes again and again")),
                None => Readiness::InProgress(ready.map_or_else(|| "not ready".to_owned(), |ready| ready.why())),
            },
        },
        _ => {
            let unscheduled = object.condition("PodScheduled").filter(|scheduled| scheduled.status == "False");
            Readiness::InProgress(unscheduled.as_ref().map_or_else(|| phase.to_lowercase(), Condition::why))
        }
    }
}

fn failure(object: &View<'_>) -> String {
    let reason = object.text("/status/reason").unwrap_or_default();
    let message = object.text("/status/message").unwrap_or_default();
    if reason.is_empty() && message.is_empty() {
        return "a container failed".to_owned();
    }
    Condition { status: "False", reason, message }.why()
}

/// The first container that the kubelet has stopped to start at once.
fn crashing<'a>(object: &View<'a>) -> Option<&'a str> {
    let states = |path: &str| object.0.pointer(path).and_then(Value::as_array).into_iter().flatten();
    states("/status/initContainerStatuses").chain(states("/status/containerStatuses")).find_map(|container| {
        let reason = container.pointer("/state/waiting/reason").and_then(Value::as_str);
        (reason == Some("CrashLoopBackOff")).then(|| container.get("name").and_then(Value::as_str).unwrap_or_default())
    })
}
