//! The metrics of controllers, under the names of controller-runtime.

use std::time::{Duration, SystemTime};

use konverge_core::reasons;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, exemplar::HistogramWithExemplars, family::Family, gauge::Gauge},
    registry::Registry,
};

use super::registry::duration_bounds;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    controller: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabels {
    controller: String,
    result: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabels {
    controller: String,
    reason: &'static str,
}

/// The exemplar, which leads from a figure to a run behind it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Trace {
    trace_id: String,
}

type Durations = HistogramWithExemplars<Trace>;

/// How a run ended, for counting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RunResult {
    Success,
    RequeueAfter,
    Error { reason: &'static str, permanent: bool },
    TimedOut,
    Panicked,
}

/// The series of all controllers of a process.
#[derive(Clone)]
pub struct ControllerMetrics {
    runs: Family<ResultLabels, Counter>,
    errors: Family<Labels, Counter>,
    error_reasons: Family<ReasonLabels, Counter>,
    permanent_errors: Family<Labels, Counter>,
    panics: Family<Labels, Counter>,
    timeouts: Family<Labels, Counter>,
    time: Family<Labels, Durations, fn() -> Durations>,
    max_concurrent: Family<Labels, Gauge>,
    active: Family<Labels, Gauge>,
}

impl ControllerMetrics {
    pub(super) fn new(registry: &mut Registry) -> Self {
        let metrics = Self {
            runs: Family::default(),
            errors: Family::default(),
            error_reasons: Family::default(),
            permanent_errors: Family::default(),
            panics: Family::default(),
            timeouts: Family::default(),
            time: Family::new_with_constructor(|| Durations::new(duration_bounds())),
            max_concurrent: Family::default(),
            active: Family::default(),
        };
        let mut add = |name: &str, help: &str, family: &Family<Labels, Counter>| {
            registry.register(format!("controller_runtime_{name}"), help, family.clone());
        };
        add("reconcile_errors", "Runs that failed", &metrics.errors);
        add(
            "terminal_reconcile_errors",
            "Runs that failed until somebody changes something",
            &metrics.permanent_errors,
        );
        add("reconcile_panics", "Runs that panicked", &metrics.panics);
        add("reconcile_timeouts", "Runs that were given up after the time limit", &metrics.timeouts);
        registry.register("controller_runtime_reconcile", "Runs by result", metrics.runs.clone());
        registry.register("konverge_reconcile_errors", "Runs that failed, by reason", metrics.error_reasons.clone());
        registry.register("controller_runtime_reconcile_time_seconds", "How long runs took", metrics.time.clone());
        registry.register("controller_runtime_max_concurrent_reconciles", "Workers", metrics.max_concurrent.clone());
        registry.register("controller_runtime_active_workers", "Workers with a run in flight", metrics.active.clone());
        metrics
    }

    pub(crate) fn configured(&self, controller: &str, workers: usize) {
        self.max_concurrent.get_or_create(&labels(controller)).set(i64::try_from(workers).unwrap_or(i64::MAX));
    }

    pub(crate) fn started(&self, controller: &str) {
        self.active.get_or_create(&labels(controller)).inc();
    }

    /// Counts a run that belongs to this trace, and tells how its result is called.
    pub(crate) fn finished(
        &self,
        controller: &str,
        result: RunResult,
        took: Duration,
        trace: Option<String>,
    ) -> &'static str {
        let labels = labels(controller);
        self.active.get_or_create(&labels).dec();
        let exemplar = trace.map(|trace_id| Trace { trace_id });
        let now = exemplar.is_some().then(SystemTime::now);
        self.time.get_or_create(&labels).observe(took.as_secs_f64(), exemplar, now);
        let (result, reason) = match result {
            RunResult::Success => ("success", None),
            RunResult::RequeueAfter => ("requeue_after", None),
            RunResult::Error { reason, permanent } => {
                if permanent {
                    self.permanent_errors.get_or_create(&labels).inc();
                }
                ("error", Some(reason))
            }
            RunResult::TimedOut => {
                self.timeouts.get_or_create(&labels).inc();
                ("error", Some(reasons::TIMED_OUT))
            }
            RunResult::Panicked => {
                self.panics.get_or_create(&labels).inc();
                ("error", Some(reasons::PANICKED))
            }
        };
        self.runs.get_or_create(&ResultLabels { controller: controller.to_owned(), result }).inc();
        if let Some(reason) = reason {
            self.errors.get_or_create(&labels).inc();
            self.error_reasons.get_or_create(&ReasonLabels { controller: controller.to_owned(), reason }).inc();
        }
        result
    }
}

fn labels(controller: &str) -> Labels {
    Labels { controller: controller.to_owned() }
}
