//! The metrics of a queue, under the names of controller-runtime.

use std::{sync::atomic::AtomicU64, time::Duration};

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::Registry,
};

use super::state::Priority;
use crate::metrics::registry::{BeforeScrape, duration_buckets};

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    name: String,
    controller: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DepthLabels {
    name: String,
    controller: String,
    priority: &'static str,
}

type SecondsGauge = Gauge<f64, AtomicU64>;
type Durations = Family<Labels, Histogram, fn() -> Histogram>;

/// The series of all queues of a process.
#[derive(Clone)]
pub struct QueueMetrics {
    before_scrape: BeforeScrape,
    depth: Family<DepthLabels, Gauge>,
    adds: Family<Labels, Counter>,
    retries: Family<Labels, Counter>,
    queue_duration: Durations,
    work_duration: Durations,
    unfinished: Family<Labels, SecondsGauge>,
    longest: Family<Labels, SecondsGauge>,
}

impl QueueMetrics {
    /// Registers the series; once per process.
    pub(crate) fn new(before_scrape: BeforeScrape, registry: &mut Registry) -> Self {
        let durations = || Durations::new_with_constructor(duration_buckets);
        let metrics = Self {
            before_scrape,
            depth: Family::default(),
            adds: Family::default(),
            retries: Family::default(),
            queue_duration: durations(),
            work_duration: durations(),
            unfinished: Family::default(),
            longest: Family::default(),
        };
        registry.register("workqueue_depth", "Keys that are due and wait for a worker", metrics.depth.clone());
        registry.register("workqueue_adds", "Additions to the queue, duplicates included", metrics.adds.clone());
        registry.register("workqueue_retries", "Requests handed back for another attempt", metrics.retries.clone());
        registry.register(
            "workqueue_queue_duration_seconds",
            "How long due keys waited for a worker",
            metrics.queue_duration.clone(),
        );
        registry.register(
            "workqueue_work_duration_seconds",
            "How long workers had a key",
            metrics.work_duration.clone(),
        );
        registry.register(
            "workqueue_unfinished_work_seconds",
            "Sum of the ages of all runs in flight",
            metrics.unfinished.clone(),
        );
        registry.register(
            "workqueue_longest_running_processor_seconds",
            "Age of the oldest run in flight",
            metrics.longest.clone(),
        );
        metrics
    }

    pub(super) fn measure_before_scrape(&self, measure: impl Fn() -> bool + Send + Sync + 'static) {
        self.before_scrape.add(measure);
    }

    pub(super) fn added(&self, name: &str) {
        self.adds.get_or_create(&labels(name)).inc();
    }

    pub(super) fn started(&self, name: &str, waited: Duration) {
        self.queue_duration.get_or_create(&labels(name)).observe(waited.as_secs_f64());
    }

    pub(super) fn finished(&self, name: &str, worked: Duration, again: bool) {
        self.work_duration.get_or_create(&labels(name)).observe(worked.as_secs_f64());
        if again {
            self.retries.get_or_create(&labels(name)).inc();
        }
    }

    pub(super) fn measured(&self, name: &str, depths: [(Priority, usize); 3], running: &[Duration]) {
        for (priority, depth) in depths {
            let labels =
                DepthLabels { name: name.to_owned(), controller: name.to_owned(), priority: priority_name(priority) };
            self.depth.get_or_create(&labels).set(i64::try_from(depth).unwrap_or(i64::MAX));
        }
        let sum: Duration = running.iter().sum();
        let longest = running.iter().max().copied().unwrap_or_default();
        self.unfinished.get_or_create(&labels(name)).set(sum.as_secs_f64());
        self.longest.get_or_create(&labels(name)).set(longest.as_secs_f64());
    }
}

fn labels(name: &str) -> Labels {
    Labels { name: name.to_owned(), controller: name.to_owned() }
}

fn priority_name(priority: Priority) -> &'static str {
    match priority {
        Priority::Low => "low",
        Priority::Normal => "normal",
        Priority::High => "high",
    }
}
