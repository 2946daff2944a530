//! The metrics of the operator: the original's under its names, labels and buckets, and ours.
//!
//! The metrics of the original name objects, Secrets, keys and paths in their labels, and dashboards rely on that. Here each of them has a bound,
//! beyond which the value is `other`, and an object takes its series along when it goes. No label of ours is a name.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use konverge_apply::announce::ReasonGauge;
use konverge_core::deletion_guard::Stopped;
use konverge_runtime::metrics::{BoundedFamily, NameLabels, RegistryExt};
use konverge_vault::{LoginCounts, VaultError};
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::Registry,
};

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

/// The label of everything beyond the bound.
const OTHER: &str = "other";

macro_rules! labels {
    ($($(#[$doc:meta])* $name:ident { $($field:ident),* $(; $($fixed:ident),*)? })*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, EncodeLabelSet)]
        struct $name {
            $($field: String,)*
            $($($fixed: &'static str,)*)?
        }

        impl NameLabels for $name {
            fn other(&self) -> Self {
                Self { $($field: OTHER.to_owned(),)* $($($fixed: self.$fixed,)*)? }
            }
        }
    )*};
}

labels! {
    /// An object with a request.
    Resource { namespace, resource }
    /// The same, and how a run ended.
    Attempt { namespace, resource; result }
    /// The same, and what could not be read.
    Parsing { namespace, resource; error_type }
    /// A Secret that was looked for.
    Missing { namespace, secret_name }
    /// A key that was looked for.
    MissingKey { namespace, secret_name, key }
    /// A path in Vault, and why it was not written.
    WriteError { path; error_type }
}

/// The operator's metrics. Clones count into the same ones.
#[derive(Clone)]
pub struct Metrics {
    originals: Originals,
    pub(crate) ours: Ours,
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

/// Our own metrics. The public ones are counted where the event happens, the others by methods of [`Metrics`].
#[derive(Clone)]
pub(crate) struct Ours {
    pub(crate) propagation: Histogram,
    pub(crate) reads: Counter,
    pub(crate) writes: Counter,
    pub(crate) deletes: Counter,
    pub(crate) delete_errors: Counter,
    pub(crate) drift: Counter,
    pub(crate) adoptions: Counter,
    pub(crate) conflicts: Counter,
    pub(crate) orphans_found: Counter,
    orphans: Gauge,
    stopped: Gauge,
    oldest_look: Gauge<f64, AtomicU64>,
    renewals: Counter,
    bindings: ReasonGauge,
}

impl Originals {
    fn new(registry: &mut Registry) -> Self {
        let durations: BoundedFamily<Resource, Histogram> = BoundedFamily::new(|| Histogram::new(DURATION_BUCKETS));
        let secrets_missing = "Requested Secrets that did not exist or could not be read";
        let keys_missing = "Requested keys that their Secret did not have";
        Self {
            attempts: registry.add("sync_attempts", "Runs for an object that requests a push, by result"),
            durations: registry.add_metric("sync_duration_seconds", "How long a run took", durations),
            discovered: registry.add("secrets_discovered", "Paths that an object requests"),
            secrets_missing: registry.add("secret_not_found_errors", secrets_missing),
            keys_missing: registry.add("secret_key_missing_errors", keys_missing),
            parse_errors: registry.add("config_parse_errors", "Annotations that cannot be followed"),
            write_errors: registry.add("vault_write_errors", "Writes to Vault that failed, by path and cause"),
            auth_attempts: registry.add("auth_attempts", "Logins to Vault, by result"),
            runtime: registry.add("runtime_info", "Settings of the process, in the label value; always 1"),
        }
    }
}

impl Ours {
    fn new(registry: &mut Registry) -> Self {
        let propagation = "Time from the moment a change of a Secret was seen until its version was in Vault, without changes that waited for the end of a pause";
        let drift = "Times that content in Vault was restored after another client had changed or deleted it";
        let adoptions = "Times that content without a mark of ownership was replaced";
        let conflicts = "Times that a path belonged to another owner, or was written by another client meanwhile";
        let orphans = "Deleted objects whose paths in Vault could not be cleared yet";
        let orphans_found = "Paths found in Vault that were written for an object that no longer requests them";
        let stopped = "Deletions that wait for an approval, because there are too many";
        let oldest_look =
            "The longest time since a path of an object with an interval was last found in sync with Vault";
        let metrics = Self {
            propagation: registry.add_metric("propagation_seconds", propagation, Histogram::new(PROPAGATION_BUCKETS)),
            reads: registry.add("vault_reads", "Secrets read from Vault"),
            writes: registry.add("vault_writes", "Secrets written to Vault"),
            deletes: registry.add("vault_deletes", "Secrets deleted from Vault"),
            delete_errors: registry.add("vault_delete_errors", "Deletions in Vault that failed"),
            drift: registry.add("drift", drift),
            adoptions: registry.add("adoptions", adoptions),
            conflicts: registry.add("conflicts", conflicts),
            orphans_found: registry.add("orphans_found", orphans_found),
            orphans: registry.add("orphans", orphans),
            stopped: registry.add("deletions_stopped", stopped),
            oldest_look: registry.add("oldest_look_seconds", oldest_look),
            renewals: registry.add("token_renewals", "Renewals of the token for Vault"),
            bindings: ReasonGauge::default(),
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

    /// A write to this path failed.
    pub fn write_failed(&self, error: &VaultError, path: &str) {
        self.originals.write_errors.series(WriteError { path: path.to_owned(), error_type: category(error) }).inc();
    }

    /// The object requests this number of paths.
    pub fn discovered(&self, object: &ObjectRef, paths: usize) {
        self.originals.discovered.series(resource(object)).set(i64::try_from(paths).unwrap_or(i64::MAX));
    }

    /// A Secret lacks a requested key.
    pub fn key_missing(&self, namespace: &str, secret: &str, key: &str) {
        let (namespace, secret_name, key) = (namespace.to_owned(), secret.to_owned(), key.to_owned());
        self.originals.keys_missing.series(MissingKey { namespace, secret_name, key }).inc();
    }

    /// A requested Secret could not be read, or does not exist although its users need it. The original does not tell these apart.
    pub fn secret_not_found(&self, namespace: &str, secret: &str) {
        let (namespace, secret_name) = (namespace.to_owned(), secret.to_owned());
        self.originals.secrets_missing.series(Missing { namespace, secret_name }).inc();
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

    /// The number of deleted objects whose paths could not be cleared yet.
    pub fn orphans(&self, count: usize) {
        self.ours.orphans.set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// The deletions that wait for an approval. Set before each scrape.
    pub fn stopped(&self, stopped: Option<Stopped>) {
        let waiting = stopped.map_or(0, |stopped| stopped.waiting);
        self.ours.stopped.set(i64::try_from(waiting).unwrap_or(i64::MAX));
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

/// Returns the original's word for an error. The original derived it from the error's text, which can contain paths; this uses its kind.
fn category(error: &VaultError) -> &'static str {
    match error {
        _ if error.is_outage() => "connection_failed",
        VaultError::Login { .. } | VaultError::LoginRefused { .. } | VaultError::Credential { .. } => "auth_failed",
        VaultError::Denied { .. } => "permission_denied",
        VaultError::Path(_)
        | VaultError::NoMount { .. }
        | VaultError::UnknownMount { .. }
        | VaultError::NotKv { .. } => "invalid_path",
        _ => "unknown",
    }
}

/// Returns the word for an invalid request. The original has only `json_parse_error`; the other words are ours.
fn parse_error(invalid: &Invalid) -> &'static str {
    match invalid {
        Invalid::Secrets { .. } => "json_parse_error",
        Invalid::Word { .. } => "invalid_annotation",
        Invalid::Template { .. } => "invalid_template",
        Invalid::Spec { .. } => "invalid_spec",
    }
}

#[cfg(test)]
mod tests;
