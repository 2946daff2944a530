//! The metrics of all watched sources.

use std::{
    sync::atomic::AtomicU64,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{
        counter::Counter,
        family::Family,
        gauge::Gauge,
        histogram::{Histogram, exponential_buckets},
    },
    registry::Registry,
};

use crate::ChangeKind;

/// Series of all sources of a process, labelled by their names. Clones are handles to the same ones.
#[derive(Clone)]
pub struct Metrics {
    polls: Family<ResultLabels, Counter>,
    errors: Family<ReasonLabels, Counter>,
    changes: Family<KindLabels, Counter>,
    duration: Family<SourceLabels, Histogram>,
    last_success: Family<SourceLabels, Gauge<f64, AtomicU64>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct SourceLabels {
    source: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabels {
    source: String,
    result: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabels {
    source: String,
    reason: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KindLabels {
    source: String,
    kind: &'static str,
}

impl Default for Metrics {
    /// Counted, but in no registry.
    fn default() -> Self {
        Self {
            polls: Family::default(),
            errors: Family::default(),
            changes: Family::default(),
            // From one millisecond to about a minute.
            duration: Family::new_with_constructor(|| Histogram::new(exponential_buckets(0.001, 2.0, 17))),
            last_success: Family::default(),
        }
    }
}

impl Metrics {
    /// Makes the series and puts them into the registry. Once per registry.
    pub fn register(registry: &mut Registry) -> Self {
        let this = Self::default();
        registry.register("konverge_external_polls", "Polls by result, success or error", this.polls.clone());
        registry.register(
            "konverge_external_errors",
            "Failed polls, failed parts of polls and failed writes of what is remembered, by reason",
            this.errors.clone(),
        );
        registry.register(
            "konverge_external_changes",
            "Changes taken by the consumer: added, modified or removed",
            this.changes.clone(),
        );
        registry.register(
            "konverge_external_poll_duration_seconds",
            "How long polls take; of event streams and long polls most of it is waiting",
            this.duration.clone(),
        );
        registry.register(
            "konverge_external_last_success_timestamp_seconds",
            "When the last poll succeeded, as Unix time; its age is time() minus this",
            this.last_success.clone(),
        );
        this
    }

    pub(crate) fn succeeded(&self, source: &str, took: Duration) {
        self.polls.get_or_create(&ResultLabels { source: source.to_owned(), result: "success" }).inc();
        let labels = SourceLabels { source: source.to_owned() };
        self.duration.get_or_create(&labels).observe(took.as_secs_f64());
        // A clock before 1970 has other troubles.
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.last_success.get_or_create(&labels).set(now.as_secs_f64());
    }

    pub(crate) fn failed(&self, source: &str, reason: &'static str, took: Duration) {
        self.polls.get_or_create(&ResultLabels { source: source.to_owned(), result: "error" }).inc();
        self.errors.get_or_create(&ReasonLabels { source: source.to_owned(), reason }).inc();
        self.duration.get_or_create(&SourceLabels { source: source.to_owned() }).observe(took.as_secs_f64());
    }

    pub(crate) fn fault(&self, source: &str, reason: &'static str) {
        self.errors.get_or_create(&ReasonLabels { source: source.to_owned(), reason }).inc();
    }

    pub(crate) fn changed(&self, source: &str, kind: ChangeKind) {
        self.changes.get_or_create(&KindLabels { source: source.to_owned(), kind: kind.as_str() }).inc();
    }
}
