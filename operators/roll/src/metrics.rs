//! The metrics of the operator. No label names an object.

use std::sync::atomic::Ordering;

use konverge_runtime::metrics::RegistryExt;
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

/// What the counter of rollouts counts.
#[derive(Debug, Clone, Copy)]
pub enum RolloutResult {
    /// The pod template was patched, so the rollout begins.
    Patched,
    /// The API server refused the patch.
    Refused,
    /// Another client changed the workload first, so the patch is tried again.
    Outdated,
    /// The pods were available for long enough.
    Succeeded,
    /// The pods did not become available in time.
    Failed,
}

/// The operator's metrics. Clones count into the same ones.
#[derive(Clone)]
pub struct Metrics {
    checks: Counter,
    failed_checks: Family<Reason, Counter>,
    changes: Counter,
    rollouts: Family<RolloutLabels, Counter>,
    suppressed: Family<Reason, Counter>,
    delay: Histogram,
    levels: Levels,
}

/// Measures of what is known, taken before each scrape.
#[derive(Clone)]
struct Levels {
    pending: Gauge,
    oldest: Gauge,
    workloads: Gauge,
    failed: Gauge,
    sources: Gauge,
    runaway: Gauge,
    vault_questions: Counter,
    vault_failing: Gauge,
    triggers: Gauge,
}

impl Levels {
    fn new(registry: &mut Registry) -> Self {
        let oldest = "The longest time that a workload has waited for its rollout";
        let sources = "Secrets and ConfigMaps, and secrets in Vault, that restart workloads";
        let runaway = "Sources that the operator does not follow for a while because they change too often";
        let failing = "Secrets in Vault that restart workloads and whose version Vault does not tell";
        Self {
            pending: registry.add("pending", "Workloads that wait for their rollout"),
            oldest: registry.add("oldest_pending_seconds", oldest),
            workloads: registry.add("workloads", "Workloads that have opted in"),
            failed: registry
                .add("failed_workloads", "Workloads whose pods did not become available after their last rollout"),
            sources: registry.add("sources", sources),
            runaway: registry.add("runaway_sources", runaway),
            vault_questions: registry.add("vault_questions", "Requests to Vault for versions"),
            vault_failing: registry.add("vault_failing", failing),
            triggers: registry.add("triggers", "Objects that request rollouts of workloads"),
        }
    }
}

impl Metrics {
    /// Makes the metrics and registers them under `konverge_roll`.
    pub fn new(registry: &mut Registry) -> Self {
        let registry = registry.sub_registry_with_prefix("konverge_roll");
        let delay = "Time from the moment a change was seen until the pod template was patched";
        Self {
            checks: registry.add("checks", "Reads of Secrets and ConfigMaps, and of secrets in Vault"),
            failed_checks: registry.add("failed_checks", "Reads of Secrets and ConfigMaps that failed, by reason"),
            changes: registry.add("changes", "Reads that found other content than before"),
            rollouts: registry
                .add("rollouts", "Patches of pod templates, and outcomes of rollouts, by kind and result"),
            suppressed: registry.add("suppressed", "Rollouts that were delayed, by reason"),
            delay: registry.add_metric("delay_seconds", delay, Histogram::new(DELAY_BUCKETS)),
            levels: Levels::new(registry),
        }
    }

    /// Takes the measure of what is known, before it is scraped. `questions` is how many Vault was asked so far.
    pub fn measure(&self, index: &Index, questions: u64, now: Time) {
        let levels = &self.levels;
        let set = |gauge: &Gauge, count: usize| gauge.set(i64::try_from(count).unwrap_or(i64::MAX));
        let (since, pending) = index.waiting();
        let (workloads, sources) = index.counts();
        let (triggers, failing) = index.trigger_counts();
        set(&levels.pending, pending);
        levels.oldest.set(since.map_or(0, |since| now.since(since).as_secs().max(0)));
        set(&levels.workloads, workloads);
        set(&levels.failed, index.failed_count());
        set(&levels.sources, sources);
        set(&levels.runaway, index.ran_away(now));
        levels.vault_questions.inner().store(questions, Ordering::Relaxed);
        set(&levels.vault_failing, failing);
        set(&levels.triggers, triggers);
    }

    /// A source was read.
    pub fn checked(&self, changed: bool) {
        self.checks.inc();
        if changed {
            self.changes.inc();
        }
    }

    /// A source could not be read.
    pub fn unread(&self, reason: &'static str) {
        self.failed_checks.get_or_create(&Reason { reason }).inc();
    }

    /// A pod template was patched, or was not, or the rollout has ended.
    pub fn rolled(&self, kind: WorkloadKind, result: RolloutResult) {
        let result = match result {
            RolloutResult::Patched => "patched",
            RolloutResult::Refused => "refused",
            RolloutResult::Outdated => "outdated",
            RolloutResult::Succeeded => "succeeded",
            RolloutResult::Failed => "failed",
        };
        self.rollouts.get_or_create(&RolloutLabels { kind: kind.name(), result }).inc();
    }

    /// A pod template was patched this many seconds after the cause was seen.
    pub fn delayed(&self, seconds: f64) {
        self.delay.observe(seconds.max(0.0));
    }

    /// A rollout was put off.
    pub fn held(&self, reason: &'static str) {
        self.suppressed.get_or_create(&Reason { reason }).inc();
    }
}
