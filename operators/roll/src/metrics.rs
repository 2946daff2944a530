//! The metrics of the operator. No label names an object.

use std::sync::{Arc, OnceLock, atomic::Ordering};

use konverge_workload::WorkloadKind;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::Registry,
};

use crate::{index::Index, time::Time};

/// In seconds. Most is done within a few requests; what is held back takes as long as it is told to.
const DELAY_BUCKETS: [f64; 12] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 60.0, 600.0, 3600.0];

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RolloutLabels {
    kind: &'static str,
    result: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Reason {
    reason: &'static str,
}

/// Tells how often something was done.
type Count = Box<dyn Fn() -> u64 + Send + Sync>;

/// The operator's metrics. Clones count into the same ones.
#[derive(Clone)]
pub struct Metrics {
    reads: Reads,
    rollouts: Rollouts,
    levels: Levels,
}

/// Reads of sources.
#[derive(Clone, Default)]
struct Reads {
    checks: Counter,
    failed: Family<Reason, Counter>,
    changes: Counter,
}

/// Rollouts that were begun or put off.
#[derive(Clone)]
struct Rollouts {
    patches: Family<RolloutLabels, Counter>,
    held: Family<Reason, Counter>,
    delay: Histogram,
}

/// Measures of what is known, taken before each scrape.
#[derive(Clone, Default)]
struct Levels {
    pending: Gauge,
    oldest: Gauge,
    workloads: Gauge,
    sources: Gauge,
    runaway: Gauge,
    vault_questions: Counter,
    count_questions: Arc<OnceLock<Count>>,
    vault_failing: Gauge,
    triggers: Gauge,
}

impl Reads {
    fn register(&self, registry: &mut Registry) {
        registry.register("checks", "Reads of Secrets and ConfigMaps, and of secrets in Vault", self.checks.clone());
        let help = "Reads of Secrets and ConfigMaps that failed, by reason";
        registry.register("failed_checks", help, self.failed.clone());
        registry.register("changes", "Reads that found other content than before", self.changes.clone());
    }
}

impl Rollouts {
    fn new() -> Self {
        Self { patches: Family::default(), held: Family::default(), delay: Histogram::new(DELAY_BUCKETS) }
    }

    fn register(&self, registry: &mut Registry) {
        registry.register("rollouts", "Patches of pod templates, by kind and result", self.patches.clone());
        registry.register("suppressed", "Rollouts that were put off, by reason", self.held.clone());
        let help = "From when a change was seen to when the pod template was patched";
        registry.register("delay_seconds", help, self.delay.clone());
    }
}

impl Levels {
    fn register(&self, registry: &mut Registry) {
        registry.register("pending", "Workloads that wait to be rolled", self.pending.clone());
        let help = "How long the one has waited that has waited longest";
        registry.register("oldest_pending_seconds", help, self.oldest.clone());
        registry.register("workloads", "Workloads that take part", self.workloads.clone());
        let help = "Secrets and ConfigMaps, and secrets in Vault, that they are rolled for";
        registry.register("sources", help, self.sources.clone());
        let help = "Those of them that are not followed because they change again and again";
        registry.register("runaway_sources", help, self.runaway.clone());
        let help = "Questions to Vault for versions since the start";
        registry.register("vault_questions", help, self.vault_questions.clone());
        let help = "Secrets in Vault that somebody is rolled for and that Vault does not tell of";
        registry.register("vault_failing", help, self.vault_failing.clone());
        registry.register("triggers", "Objects that ask for rollouts of others", self.triggers.clone());
    }
}

impl Metrics {
    /// Makes the metrics and registers them under `konverge_roll`.
    pub fn new(registry: &mut Registry) -> Self {
        let metrics = Self { reads: Reads::default(), rollouts: Rollouts::new(), levels: Levels::default() };
        let registry = registry.sub_registry_with_prefix("konverge_roll");
        metrics.reads.register(registry);
        metrics.rollouts.register(registry);
        metrics.levels.register(registry);
        metrics
    }

    /// Takes the measure of what is known, before it is scraped.
    pub fn measure(&self, index: &Index, now: Time) {
        let levels = &self.levels;
        let (since, pending) = index.waiting();
        let (workloads, sources) = index.counts();
        let set = |gauge: &Gauge, count: usize| gauge.set(i64::try_from(count).unwrap_or(i64::MAX));
        set(&levels.pending, pending);
        set(&levels.workloads, workloads);
        set(&levels.sources, sources);
        set(&levels.runaway, index.ran_away(now));
        let (triggers, failing) = index.trigger_counts();
        set(&levels.triggers, triggers);
        set(&levels.vault_failing, failing);
        let questions = levels.count_questions.get().map_or(0, |count| count());
        levels.vault_questions.inner().store(questions, Ordering::Relaxed);
        levels.oldest.set(since.map_or(0, |since| now.since(since).as_secs().max(0)));
    }

    /// Sets the function that returns the number of questions to Vault.
    pub fn vault_questions(&self, count: impl Fn() -> u64 + Send + Sync + 'static) {
        // There is one Vault, and so the first is the only one.
        let _ = self.levels.count_questions.set(Box::new(count));
    }

    /// A source was read.
    pub fn checked(&self, changed: bool) {
        self.reads.checks.inc();
        if changed {
            self.reads.changes.inc();
        }
    }

    /// A source could not be read.
    pub fn unread(&self, reason: &'static str) {
        self.reads.failed.get_or_create(&Reason { reason }).inc();
    }

    /// A pod template was patched, or was not.
    pub fn rolled(&self, kind: WorkloadKind, result: &'static str) {
        self.rollouts.patches.get_or_create(&RolloutLabels { kind: kind.name(), result }).inc();
    }

    /// A pod template was patched this many seconds after the cause was seen.
    pub fn delayed(&self, seconds: f64) {
        self.rollouts.delay.observe(seconds.max(0.0));
    }

    /// A rollout was put off.
    pub fn held(&self, reason: &'static str) {
        self.rollouts.held.get_or_create(&Reason { reason }).inc();
    }
}
