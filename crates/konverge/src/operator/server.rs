//! The HTTP server of a program: health, metrics, the log filter, and a look into the work queues.

use std::sync::Arc;

use konverge_runtime::{Manager, Metrics, Queue, object::ObjectKey, telemetry::LogFilter};
use kube::Client;
use serde_json::{Value, json};

use crate::{options::Options, start_error::StartError};

/// A manager that has its address.
pub(super) async fn manager(options: &Options, metrics: Metrics) -> Result<Manager, StartError> {
    Ok(Manager::listen(options.server.address, metrics).await?)
}

/// Takes the address for metrics, if they have one of their own.
pub(super) async fn serve_metrics(options: &Options, manager: &mut Manager, client: &Client) -> Result<(), StartError> {
    options.server.metrics.serve(manager, client).await
}

/// Lets the log filter be changed while the program runs.
pub(super) fn show_filter(manager: &mut Manager, filter: LogFilter) {
    manager.log_filter(filter);
}

/// The work queues, each as JSON when somebody asks.
#[derive(Default)]
pub(crate) struct Queues(Vec<Box<dyn Fn() -> Value + Send + Sync>>);

impl Queues {
    pub(crate) fn add(&mut self, queue: &Queue<ObjectKey>) {
        let queue = queue.clone();
        self.0.push(Box::new(move || shown(&queue)));
    }

    /// Shows them, if the program is told to.
    pub(super) fn serve(self, options: &Options, manager: &mut Manager) {
        if options.server.debug_queues {
            let queues = Arc::new(self.0);
            manager.page("/debug/queues", move || {
                let shown: Vec<Value> = queues.iter().map(|show| show()).collect();
                Value::from(shown).to_string()
            });
        }
    }
}

fn shown(queue: &Queue<ObjectKey>) -> Value {
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
}
