//! A look into the work queues of a running program.

use konverge_runtime::{Queue, object::ObjectKey};
use serde_json::{Value, json};

/// One queue, as JSON when somebody asks.
pub(super) type Shown = Box<dyn Fn() -> Value + Send + Sync>;

pub(super) fn shown(queue: &Queue<ObjectKey>) -> Shown {
    let queue = queue.clone();
    Box::new(move || {
        let mut keys: Vec<_> = queue.snapshot();
        keys.sort_by(|one, other| one.key.cmp(&other.key));
        let keys: Vec<Value> = keys
            .into_iter()
            .map(|queued| {
                json!({
                    "object": queued.key.to_string(),
                    "failures": queued.failures,
                    "inFlightSeconds": queued.in_flight_for.map(|time| time.as_secs_f64()),
                    "dueInSeconds": queued.due_in.map(|time| time.as_secs_f64()),
                    "priority": queued.priority.map(|priority| format!("{priority:?}").to_lowercase()),
                    "reasons": queued.reasons,
                })
            })
            .collect();
        json!({ "queue": queue.name(), "objects": keys })
    })
}
