//! The progress of a rollout.

use serde::Deserialize;

/// The state of a workload's pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rollout {
    /// The progress of the rollout.
    pub progress: Progress,
    /// Whether the rollout is paused, so that changes of the template wait.
    pub paused: bool,
    /// Whether there are no pods, and there are to be none.
    pub empty: bool,
    /// The number of pods of the newest template.
    pub updated: i64,
    /// The number of available pods.
    pub available: i64,
    /// The deadline until which the controller waits for pods.
    pub deadline: Deadline,
}

/// The observer that detects pods that do not become available.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deadline {
    /// The controller, whose deadline has begun. It reports the end.
    OfController,
    /// The operator, because the rollout was complete once, so that its deadline (in seconds) no longer applies, or
    /// because the kind has none.
    Elapsed(Option<u32>),
}

/// The progress of a rollout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// No controller has observed the workload yet.
    Unknown,
    /// There are pods of an older template, or the controller has not seen the newest one.
    Running,
    /// The pods are of the newest template, but not all of them are available.
    Unready,
    /// All pods are of the newest template and available; or there is nothing to wait for.
    Ready,
    /// The controller has given up.
    Failed,
}

/// The fields of `spec` that are needed.
pub(crate) struct Wanted {
    pub(crate) replicas: Option<i64>,
    pub(crate) paused: Option<bool>,
    pub(crate) update_strategy: Option<UpdateStrategy>,
    pub(crate) deadline: Option<u32>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct UpdateStrategy {
    r#type: Option<String>,
    rolling_update: Option<RollingUpdate>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct RollingUpdate {
    partition: Option<i64>,
}

/// The fields of `status` that are needed.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Status {
    observed_generation: Option<Number>,
    replicas: i64,
    updated_replicas: i64,
    available_replicas: i64,
    /// Only a `DaemonSet` has this, and the three below.
    desired_number_scheduled: Option<i64>,
    current_number_scheduled: i64,
    updated_number_scheduled: i64,
    number_available: i64,
    abort: bool,
    /// The controller of Argo Rollouts, which has a deadline of its own.
    phase: Option<String>,
    conditions: Option<Vec<Condition>>,
}

/// A number, which Argo writes as a text.
#[derive(Deserialize)]
#[serde(untagged)]
enum Number {
    Number(i64),
    Text(String),
}

#[derive(Deserialize)]
struct Condition {
    #[serde(default)]
    r#type: String,
    #[serde(default)]
    status: String,
    #[serde(default)]
    reason: String,
}

impl Status {
    fn progressing(&self) -> Option<&Condition> {
        self.conditions.iter().flatten().find(|condition| condition.r#type == "Progressing")
    }
}

impl Number {
    fn value(&self) -> Option<i64> {
        match self {
            Self::Number(number) => Some(*number),
            Self::Text(text) => text.parse().ok(),
        }
    }
}

impl Rollout {
    /// The rollout of a kind that makes pods anew from its template each time: there is nothing to wait for.
    pub const SETTLED: Self = Self {
        progress: Progress::Ready,
        paused: false,
        empty: false,
        updated: 0,
        available: 0,
        deadline: Deadline::Elapsed(None),
    };

    pub(crate) fn of(generation: Option<i64>, wanted: &Wanted, status: &Status) -> Self {
        // A Deployment whose rollout was complete once has no deadline any more, even if its pods fail later.
        let was_complete = status.progressing().is_some_and(|condition| condition.reason == "NewReplicaSetAvailable");
        Self {
            progress: progress(generation, wanted, status),
            paused: wanted.paused == Some(true),
            empty: wanted.replicas == Some(0) && status.replicas == 0,
            updated: status.updated_replicas + status.updated_number_scheduled,
            available: status.available_replicas + status.number_available,
            deadline: match wanted.deadline {
                _ if status.phase.is_some() => Deadline::OfController,
                Some(_) if !was_complete => Deadline::OfController,
                seconds => Deadline::Elapsed(seconds),
            },
        }
    }

    /// Returns `true` if an observer of the other state need not look at this one: only the counts of pods may differ.
    #[must_use]
    pub fn is_like(self, other: Self) -> bool {
        (self.progress, self.paused, self.empty) == (other.progress, other.paused, other.empty)
    }
}

fn progress(generation: Option<i64>, wanted: &Wanted, status: &Status) -> Progress {
    let Some(observed) = status.observed_generation.as_ref().and_then(Number::value) else { return Progress::Unknown };
    if generation.is_some_and(|generation| observed < generation) {
        return Progress::Running;
    }
    let given_up =
        |condition: &Condition| condition.status == "False" && condition.reason == "ProgressDeadlineExceeded";
    if status.abort || status.progressing().is_some_and(given_up) {
        return Progress::Failed;
    }
    let strategy = wanted.update_strategy.as_ref();
    // With `OnDelete` a person decides when pods are deleted, so the rollout is not waited for.
    let by_hand = strategy.and_then(|strategy| strategy.r#type.as_deref()) == Some("OnDelete");
    let kept = strategy.and_then(|strategy| strategy.rolling_update.as_ref()?.partition).unwrap_or(0);
    let (pods, updated, available, needed) = match status.desired_number_scheduled {
        Some(desired) => {
            (status.current_number_scheduled, status.updated_number_scheduled, status.number_available, desired)
        }
        None => (status.replicas, status.updated_replicas, status.available_replicas, wanted.replicas.unwrap_or(1)),
    };
    if pods - updated > kept && !by_hand {
        return Progress::Running;
    }
    if available < needed { Progress::Unready } else { Progress::Ready }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::Workload;

    fn rollout(spec: &Value, status: &Value) -> Rollout {
        let object = json!({ "metadata": { "name": "a", "generation": 3 }, "spec": spec, "status": status });
        serde_json::from_value::<Workload>(object).unwrap().rollout
    }

    #[test]
    fn progress_of_each_kind() {
        let two = json!({ "replicas": 2 });
        let on_delete = json!({ "replicas": 2, "updateStrategy": { "type": "OnDelete" } });
        let partition = json!({ "replicas": 2, "updateStrategy": { "rollingUpdate": { "partition": 1 } } });
        let done = json!({ "observedGeneration": 3, "replicas": 2, "updatedReplicas": 2, "availableReplicas": 2 });
        let half = json!({ "observedGeneration": 3, "replicas": 2, "updatedReplicas": 1, "availableReplicas": 2 });
        let given_up = json!([{ "type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded" }]);
        let daemons = |updated: u32, available: u32| {
            json!({
                "observedGeneration": 3, "desiredNumberScheduled": 2, "currentNumberScheduled": 2,
                "updatedNumberScheduled": updated, "numberAvailable": available,
            })
        };
        let cases = [
            ("no controller", &two, json!({}), Progress::Unknown),
            ("not seen yet", &two, json!({ "observedGeneration": 2 }), Progress::Running),
            ("all new and there", &two, done.clone(), Progress::Ready),
            ("an old pod is left", &two, half.clone(), Progress::Running),
            ("an old pod waits for a person", &on_delete, half.clone(), Progress::Ready),
            ("an old pod is to stay", &partition, half.clone(), Progress::Ready),
            (
                "new pods do not come up",
                &two,
                json!({ "observedGeneration": 3, "replicas": 2, "updatedReplicas": 2, "availableReplicas": 1 }),
                Progress::Unready,
            ),
            (
                "given up",
                &two,
                json!({ "observedGeneration": 3, "replicas": 3, "updatedReplicas": 1, "conditions": given_up }),
                Progress::Failed,
            ),
            ("one replica where none is said", &json!({}), json!({ "observedGeneration": 3 }), Progress::Unready),
            ("Argo's text", &two, json!({ "observedGeneration": "2" }), Progress::Running),
            ("Argo's abort", &two, json!({ "observedGeneration": "3", "abort": true }), Progress::Failed),
            ("daemons, one old", &json!({}), daemons(1, 2), Progress::Running),
            ("daemons, one not up", &json!({}), daemons(2, 1), Progress::Unready),
            ("daemons", &json!({}), daemons(2, 2), Progress::Ready),
        ];
        for (what, spec, status, expected) in cases {
            assert_eq!(rollout(spec, &status).progress, expected, "{what}");
        }
        let waits = json!({ "replicas": 2, "progressDeadlineSeconds": 60 });
        let complete = json!([{ "type": "Progressing", "status": "True", "reason": "NewReplicaSetAvailable" }]);
        let rolling = json!([{ "type": "Progressing", "status": "True", "reason": "ReplicaSetUpdated" }]);
        for (what, spec, conditions, expected) in [
            ("a kind without one", &two, &rolling, Deadline::Elapsed(None)),
            ("it runs", &waits, &rolling, Deadline::OfController),
            ("it was complete", &waits, &complete, Deadline::Elapsed(Some(60))),
        ] {
            let status = json!({ "observedGeneration": 3, "updatedReplicas": 2, "availableReplicas": 1, "conditions": conditions });
            let found = rollout(spec, &status);
            assert_eq!((found.deadline, found.updated, found.available), (expected, 2, 1), "{what}");
        }
        let cron = json!({ "jobTemplate": { "spec": { "template": {} } }, "suspend": true });
        assert_eq!(rollout(&cron, &json!({})), Rollout::SETTLED);
    }

    #[test]
    fn paused_and_empty() {
        let paused = rollout(&json!({ "paused": true }), &json!({}));
        assert!(paused.paused && !paused.empty);
        let none = json!({ "replicas": 0 });
        assert!(rollout(&none, &json!({})).empty);
        // Its pods are still ending.
        assert!(!rollout(&none, &json!({ "replicas": 1 })).empty);
        assert!(!rollout(&json!({}), &json!({})).empty);
    }
}
