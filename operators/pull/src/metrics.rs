//! The operator's metrics. No label carries the name of an object.

use std::{sync::atomic::AtomicU64, time::Duration};

use konverge_apply::announce::ReasonGauge;
use konverge_runtime::metrics::RegistryExt;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::Registry,
};

/// Bucket bounds in seconds: the promise is well under one, the poll is at sixty.
const PROPAGATION_BUCKETS: [f64; 11] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0];

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabel {
    result: &'static str,
}

/// The operator's metrics. Clones count into the same ones.
#[derive(Clone)]
pub struct Metrics {
    bindings: ReasonGauge,
    syncs: Family<ResultLabel, Counter>,
    propagation: Histogram,
    streams: Gauge,
    pub(crate) stream_ends: Counter,
    pub(crate) polls: Counter,
    pub(crate) missed_events: Counter,
    stalest: Gauge<f64, AtomicU64>,
    first_keys: Gauge,
}

impl Metrics {
    /// Makes the metrics and registers them under the prefix `konverge_pull`.
    pub fn new(registry: &mut Registry) -> Self {
        let registry = registry.sub_registry_with_prefix("konverge_pull");
        let bindings = ReasonGauge::default();
        bindings.register(registry, "bindings", "Annotated Secrets, by the reason of their last event");
        let propagation = "Time from the moment a change was reported until the Secret held it";
        let stalest =
            "The longest time since the server answered about an environment; rises while the server is silent";
        Self {
            bindings,
            syncs: registry.add("syncs", "Reconciliations of a Secret, by result"),
            propagation: registry.add_metric("propagation_seconds", propagation, Histogram::new(PROPAGATION_BUCKETS)),
            streams: registry.add("streams", "Open streams; one for each distinct environment"),
            stream_ends: registry.add("stream_ends", "Streams that ended or could not be opened"),
            polls: registry.add("polls", "Polls of environments, in addition to their streams"),
            missed_events: registry.add("missed_events", "Changes that a poll found and the stream had not reported"),
            stalest: registry.add("stalest_seconds", stalest),
            first_keys: registry
                .add("unpinned_workspaces", "Workspaces whose first key is trusted because nothing pins it"),
        }
    }

    /// Sets the number of workspaces whose key is trusted because it was the first.
    pub fn first_keys(&self, count: usize) {
        self.first_keys.set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// The server answered this long ago about the environment about which it was silent for the longest time.
    pub fn stalest(&self, age: Duration) {
        self.stalest.set(age.as_secs_f64());
    }

    /// The reason of a binding's last statement changed. `None` is before the first statement and after the last.
    pub fn reason_changed(&self, from: Option<&'static str>, to: Option<&'static str>) {
        self.bindings.moved(from, to);
    }

    /// A reconciliation ended: `changed`, `unchanged`, `kept`, `gone` or `failed`.
    pub fn synced(&self, result: &'static str) {
        self.syncs.get_or_create(&ResultLabel { result }).inc();
    }

    /// A change was in the Secret this long after it was heard of.
    pub fn propagated(&self, after: Duration) {
        self.propagation.observe(after.as_secs_f64());
    }

    /// A stream opened; it counts as open until the guard is dropped, which is also when its task is cancelled.
    pub(crate) fn stream_opened(&self) -> StreamGuard {
        self.streams.inc();
        StreamGuard(self.streams.clone())
    }
}

/// An open stream.
pub(crate) struct StreamGuard(Gauge);

impl Drop for StreamGuard {
    fn drop(&mut self) {
        self.0.dec();
    }
}
