//! The metrics of the operator: the original's under its names, labels and buckets, and ours.
//!
//! The metrics of the original name objects, Secrets, keys and paths in their labels, and dashboards rely on that. Here each of them has a bound,
//! beyond which the value is `other`, and an object takes its series along when it goes. No label of ours is a name.

mod labels;

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use konverge_apply::announce::ReasonGauge;
use konverge_runtime::metrics::{BoundedFamily, RegistryExt};
use konverge_vault::{LoginCounts, VaultError};
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::Registry,
};

use self::labels::{Attempt, Missing, MissingKey, Parsing, Resource, WriteError, category, parse_error};
use crate::{
    object::{Kind, ObjectRef},
    runtime_info::RuntimeInfo,
    spec::Invalid,
};

/// Those of the original, in seconds.
const DURATION_BUCKETS: [f64; 11] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// In seconds: the promise is two, and an interval may be what finds a change.
const PROPAGATION_BUCKETS: [f64; 12] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 30.0, 300.0];

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabel {
    result: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Setting {
    setting: &'static str,
    value: String,
}

/// The operator's metrics. Clones count into the same ones.
#[derive(Clone)]
pub struct Metrics {
    originals: Originals,
    ours: Ours,
}

/// The metrics of the original, under its names.
#[derive(Clone)]
struct Originals {
    attempts: BoundedFamily<Attempt, Counter>,
    durations: BoundedFamily<Resource, Histogram>,
    discovered: BoundedFamily<Resource, Gauge>,
    secrets_missing: BoundedFamily<Missing, Counter>,
    keys_missing: BoundedFamily<MissingKey, Counter>,
    parse_errors: BoundedFamily<Parsing, Counter>,
    write_errors: BoundedFamily<WriteError, Counter>,
    auth_attempts: Family<ResultLabel, Counter>,
    runtime: Family<Setting, Gauge>,
}

/// Our own metrics.
#[derive(Clone)]
struct Ours {
    propagation: Histogram,
    reads: Counter,
    writes: Counter,
    deletes: Counter,
    delete_errors: Counter,
    drift: Counter,
    adoptions: Counter,
    conflicts: Counter,
    orphans: Gauge,
    oldest_look: Gauge<f64, AtomicU64>,
    renewals: Counter,
    bindings: ReasonGauge,
}

impl Originals {
    fn new(registry: &mut Registry) -> Self {
        let metrics = Self {
            attempts: BoundedFamily::new(Counter::default),
            durations: BoundedFamily::new(|| Histogram::new(DURATION_BUCKETS)),
            discovered: BoundedFamily::new(Gauge::default),
            secrets_missing: BoundedFamily::new(Counter::default),
            keys_missing: BoundedFamily::new(Counter::default),
            parse_errors: BoundedFamily::new(Counter::default),
            write_errors: BoundedFamily::new(Counter::default),
            auth_attempts: Family::default(),
            runtime: Family::default(),
        };
        metrics.attempts.register(registry, "sync_attempts", "Runs for an object that requests a push, by result");
        metrics.durations.register(registry, "sync_duration_seconds", "How long a run took");
        metrics.discovered.register(registry, "secrets_discovered", "Paths that an object requests");
        let help = "Requested Secrets that did not exist or could not be read";
        metrics.secrets_missing.register(registry, "secret_not_found_errors", help);
        let help = "Requested keys that their Secret did not have";
        metrics.keys_missing.register(registry, "secret_key_missing_errors", help);
        metrics.parse_errors.register(registry, "config_parse_errors", "Annotations that cannot be followed");
        let help = "Writes to Vault that failed, by path and cause";
        metrics.write_errors.register(registry, "vault_write_errors", help);
        registry.register("auth_attempts", "Logins to Vault, by result", metrics.auth_attempts.clone());
        let help = "Settings of the process, in the label value; always 1";
        registry.register("runtime_info", help, metrics.runtime.clone());
        metrics
    }
}

impl Ours {
    fn new(registry: &mut Registry) -> Self {
        let propagation = "Time from the moment a change of a Secret was seen until its version was in Vault";
        let drift = "Times that content in Vault was restored after another client had changed or deleted it";
        let adoptions = "Times that content without a mark of ownership was replaced";
        let conflicts = "Times that a path belonged to another owner, or was written by another client meanwhile";
        let orphans = "Deleted objects whose paths in Vault could not be cleared yet";
        let oldest_look =
            "The longest time since a path of an object with an interval was last found in sync with Vault";
        let bindings = ReasonGauge::default();
        let metrics = Self {
            propagation: registry.add_metric("propagation_seconds", propagation, Histogram::new(PROPAGATION_BUCKETS)),
            reads: registry.add("vault_reads", "Secrets read from Vault"),
            writes: registry.add("vault_writes", "Secrets written to Vault"),
            deletes: registry.add("vault_deletes", "Secrets deleted from Vault"),
            delete_errors: registry.add("vault_delete_errors", "Deletions in Vault that failed"),
            drift: registry.add("drift", drift),
            adoptions: registry.add("adoptions", adoptions),
            conflicts: registry.add("conflicts", conflicts),
            orphans: registry.add("orphans", orphans),
            oldest_look: registry.add("oldest_look_seconds", oldest_look),
            renewals: registry.add("token_renewals", "Renewals of the token for Vault"),
            bindings,
        };
        metrics.bindings.register(registry, "bindings", "Objects that request a push, by the reason of their state");
        metrics
    }
}

impl Metrics {
    /// Makes the metrics and registers them: the original's under `vault_sync_operator`, ours under `konverge_push`.
    pub fn new(registry: &mut Registry) -> Self {
        Self {
            originals: Originals::new(registry.sub_registry_with_prefix("vault_sync_operator")),
            ours: Ours::new(registry.sub_registry_with_prefix("konverge_push")),
        }
    }

    /// The gauge of the objects with a request, by the reason of their state.
    pub fn reasons(&self) -> ReasonGauge {
        self.ours.bindings.clone()
    }

    /// A secret was read from Vault.
    pub fn read(&self) {
        self.ours.reads.inc();
    }

    /// A secret was written to Vault.
    pub fn wrote(&self) {
        self.ours.writes.inc();
    }

    /// A secret was deleted from Vault.
    pub fn deleted(&self) {
        self.ours.deletes.inc();
    }

    /// A secret could not be deleted from Vault.
    pub fn delete_failed(&self) {
        self.ours.delete_errors.inc();
    }

    /// A write to this path failed.
    pub fn write_failed(&self, error: &VaultError, path: &str) {
        self.originals.write_errors.series(WriteError { path: path.to_owned(), error_type: category(error) }).inc();
    }

    /// A path belonged to another owner.
    pub fn conflicted(&self) {
        self.ours.conflicts.inc();
    }

    /// Content of ours had been changed in Vault.
    pub fn drifted(&self) {
        self.ours.drift.inc();
    }

    /// Content without an owner was replaced.
    pub fn adopted(&self) {
        self.ours.adoptions.inc();
    }

    /// The object requests this number of paths.
    pub fn discovered(&self, object: &ObjectRef, paths: usize) {
        self.originals.discovered.series(resource(object)).set(i64::try_from(paths).unwrap_or(i64::MAX));
    }

    /// A Secret lacks a requested key.
    pub fn key_missing(&self, namespace: &str, secret: &str, key: &str) {
        let labels =
            MissingKey { namespace: namespace.to_owned(), secret_name: secret.to_owned(), key: key.to_owned() };
        self.originals.keys_missing.series(labels).inc();
    }

    /// A requested Secret could not be read, or does not exist although its users need it. The original does not tell these apart.
    pub fn secret_not_found(&self, namespace: &str, secret: &str) {
        self.originals
            .secrets_missing
            .series(Missing { namespace: namespace.to_owned(), secret_name: secret.to_owned() })
            .inc();
    }

    /// The request of the object is invalid.
    pub fn parse_failed(&self, object: &ObjectRef, invalid: &Invalid) {
        let Resource { namespace, resource } = resource(object);
        self.originals.parse_errors.series(Parsing { namespace, resource, error_type: parse_error(invalid) }).inc();
    }

    /// A run for the object ended after this time.
    pub fn attempted(&self, object: &ObjectRef, succeeded: bool, took: Duration) {
        let labels = resource(object);
        self.originals.durations.series(labels.clone()).observe(took.as_secs_f64());
        let Resource { namespace, resource } = labels;
        let result = if succeeded { "success" } else { "failed" };
        self.originals.attempts.series(Attempt { namespace, resource, result }).inc();
    }

    /// A change was in Vault this long after it was seen.
    pub fn propagated(&self, after: Duration) {
        self.ours.propagation.observe(after.as_secs_f64());
    }

    /// The number of deleted objects whose paths could not be cleared yet.
    pub fn orphans(&self, count: usize) {
        self.ours.orphans.set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// The time since the oldest verification of all objects with an interval. Set before each scrape.
    pub fn oldest_look(&self, age: Duration) {
        self.ours.oldest_look.set(age.as_secs_f64());
    }

    /// The client's counts of logins. Set before each scrape.
    pub fn logins(&self, counts: LoginCounts) {
        for (result, count) in [("success", counts.succeeded), ("failed", counts.failed)] {
            let counter = self.originals.auth_attempts.get_or_create_owned(&ResultLabel { result });
            counter.inner().store(count, Ordering::Relaxed);
        }
        self.ours.renewals.inner().store(counts.renewed, Ordering::Relaxed);
    }

    /// The settings of the process. Set once.
    pub fn runtime(&self, info: &RuntimeInfo, workers: usize) {
        for (setting, value) in info.settings(workers) {
            self.originals.runtime.get_or_create(&Setting { setting, value }).set(1);
        }
    }

    /// The object is gone, and so are its series. One of another kind with its name begins anew.
    pub fn forget(&self, object: &ObjectRef) {
        let gone = |namespace: &str, name: &str| namespace == &*object.namespace && name == &*object.name;
        self.originals.attempts.forget(|labels| gone(&labels.namespace, &labels.resource));
        self.originals.durations.forget(|labels| gone(&labels.namespace, &labels.resource));
        self.originals.discovered.forget(|labels| gone(&labels.namespace, &labels.resource));
        self.originals.parse_errors.forget(|labels| gone(&labels.namespace, &labels.resource));
        if object.kind == Kind::Secret {
            self.originals.secrets_missing.forget(|labels| gone(&labels.namespace, &labels.secret_name));
            self.originals.keys_missing.forget(|labels| gone(&labels.namespace, &labels.secret_name));
        }
    }
}

fn resource(object: &ObjectRef) -> Resource {
    Resource { namespace: object.namespace.clone(), resource: object.name.clone() }
}

#[cfg(test)]
mod tests;
