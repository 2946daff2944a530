//! The annotations of workloads and of the sources that they use. Pure functions.
//!
//! A workload opts in for itself ([`ON_CHANGE`]), or a Secret or `ConfigMap` opts in its users ([`ROLL_USERS`]) or the workloads with certain labels
//! ([`ROLL_SELECTOR`]). The operator always follows zopp's annotation. Its flags enable those of Stakater Reloader and of wave. An invalid value is
//! an error that names the annotation, and causes no rollout.

mod others;
mod values;

use std::collections::{BTreeMap, BTreeSet};

use jiff::SignedDuration;
use konverge_workload::Keys;
use kube::core::Selector;

use crate::object::{SourceKind, SourceName};
pub use others::{Reloader, Renamed};
pub(crate) use others::{WAVE_PREFIX, is_of_reloader};
pub use values::object_name;

const WORKLOAD: &str = "workload";
const SOURCE: &str = "Secret, ConfigMap";

const REFUSED: &str = "`InvalidAnnotation`; nothing restarts because of it";

// Those of Reloader and wave are on their migration pages.
konverge_jobs::annotations! {
    /// `true`: restart for every source that the pods use. `false`: never restart, whatever requests it. Or a list of `secret/NAME`, `configmap/NAME` and,
    /// for single keys, `secret/NAME:KEY`.
    ON_CHANGE = "roll.konverge.dev/on-change" on WORKLOAD, otherwise: REFUSED;
    /// The minimum time between two rollouts, such as `10m`. Default: `--min-interval`.
    MIN_INTERVAL = "roll.konverge.dev/min-interval" on WORKLOAD, otherwise: REFUSED;
    /// A whole number. Smaller waves go first. Default: 0.
    WAVE = "roll.konverge.dev/wave" on WORKLOAD, otherwise: REFUSED;
    /// `true`: changes are recorded, and cause one rollout after the annotation is removed.
    PAUSE = "roll.konverge.dev/pause" on WORKLOAD, otherwise: REFUSED;
    /// `true`: a failed rollout of this workload does not hold back the others that wait for the same source.
    IGNORE_FAILURE = "roll.konverge.dev/ignore-failure" on WORKLOAD, otherwise: REFUSED;
    /// The other namespaces whose `VaultSyncStatus` and `VaultRollout` objects may restart the workload: a list, or `*`.
    ALLOW_FROM = "roll.konverge.dev/allow-from" on WORKLOAD, otherwise: REFUSED;
    /// `true`: restart every workload that uses this object.
    ROLL_USERS = "roll.konverge.dev/roll-users" on SOURCE, otherwise: REFUSED;
    /// Restart the workloads of this namespace with these labels, such as `app=web,tier=front`.
    ROLL_SELECTOR = "roll.konverge.dev/roll-selector" on SOURCE, otherwise: REFUSED;
    /// `true`: restart no workload, whatever requests it.
    IGNORE = "roll.konverge.dev/ignore" on SOURCE, otherwise: REFUSED;
    /// Written by the operator: a digest of each source, the last rollout and its cause.
    RECORD = "roll.konverge.dev/record" on WORKLOAD, otherwise: "is replaced";
    /// Written by the operator. Each rollout changes it.
    STAMP = "roll.konverge.dev/content" on "pod template";
    /// Of zopp: `true` restarts the workload for all Secrets that its pods use.
    ZOPP_RELOAD = "zopp.dev/reload" on WORKLOAD, otherwise: "The workload has not opted in.";
    /// Written by the operator for workloads with `zopp.dev/reload`: the time of the rollout.
    ZOPP_RESTARTED_AT = "zopp.dev/restartedAt" on "pod template";
    /// Written by the operator at a rollout for a secret in Vault: the time of the rollout.
    RESTARTED_AT = "kubectl.kubernetes.io/restartedAt" on "pod template";
}

/// The value that means all namespaces.
pub(crate) const EVERY_NAMESPACE: &str = "*";

/// The annotations of an object.
pub type Annotations = BTreeMap<String, String>;

/// The annotation that requests a rollout, or the kind of the trigger that does.
pub type Rule = &'static str;

/// The other tools whose annotations the operator follows, besides zopp.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Others {
    /// The settings of Stakater Reloader, if its annotations count.
    pub reloader: Option<Reloader>,
    /// Whether the annotations of wave count.
    pub wave: bool,
}

impl Others {
    /// All tools, with their default names and settings.
    pub const ALL: Self = Self { reloader: Some(Reloader::DEFAULT), wave: true };
}

/// The spec in the annotations of a workload.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is true independently of the others")]
pub struct WorkloadSpec {
    /// Whether every rollout is forbidden.
    pub never: bool,
    /// The kinds of which every source that the pods use counts, each with its rule.
    pub all: BTreeMap<SourceKind, Rule>,
    /// The named sources, which count even if the pods do not use them.
    pub named: BTreeMap<SourceName, Named>,
    /// The kinds of which a source that the pods use counts if its own annotation requests it, each with its rule.
    pub matching: BTreeMap<SourceKind, Rule>,
    /// The excluded sources. A source that is named by an annotation of Konverge or of wave counts all the same.
    pub except: BTreeSet<SourceName>,
    /// The minimum time between two rollouts. `None` selects the operator's default.
    pub min_interval: Option<SignedDuration>,
    /// The wave: the order among the workloads that use the same source.
    pub wave: i32,
    /// Whether rollouts are paused. Changes are recorded.
    pub paused: bool,
    /// Whether a failed rollout of the workload does not hold back other workloads.
    pub failure_ignored: bool,
    /// Whether a rollout also writes the annotation of zopp.
    pub zopp: bool,
    /// The other namespaces whose triggers may request rollouts; `*` stands for all.
    pub allowed: BTreeSet<String>,
}

/// A source that a workload names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Named {
    /// The named keys. `None` selects the keys that the pods use.
    pub keys: Option<Keys>,
    /// The annotation that names the source.
    pub rule: Rule,
}

/// The spec in the annotations of a Secret or a `ConfigMap`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SourceSpec {
    /// Whether all users of the source are rolled.
    pub users: bool,
    /// The labels of further workloads that are rolled.
    pub selector: Option<Selector>,
    /// Whether users that search for marked sources are rolled.
    pub matches: bool,
    /// Whether no workload is rolled for the source.
    pub ignored: bool,
}

/// An annotation with an invalid value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the annotation {annotation} is {value:?}: {cause}")]
pub struct Invalid {
    /// The name of the annotation.
    pub annotation: &'static str,
    /// The beginning of the value.
    pub value: String,
    /// The cause, and the valid values.
    pub cause: String,
}

impl WorkloadSpec {
    /// Reads the annotations of a workload and of its pods, which may have those of Reloader.
    pub fn read(own: &Annotations, of_pods: &Annotations, namespace: &str, others: Others) -> Result<Self, Invalid> {
        let mut spec = Self::default();
        if let Some(text) = own.get(ON_CHANGE) {
            spec.on_change(text)?;
        }
        spec.min_interval = own.get(MIN_INTERVAL).map(|text| values::duration(MIN_INTERVAL, text)).transpose()?;
        spec.wave = own.get(WAVE).map_or(Ok(0), |text| values::whole_number(WAVE, text))?;
        spec.paused = values::boolean(own, PAUSE)?;
        spec.failure_ignored = values::boolean(own, IGNORE_FAILURE)?;
        // zopp ignores every other value.
        if values::is_true(own, ZOPP_RELOAD) {
            spec.zopp = true;
            spec.all.entry(SourceKind::Secret).or_insert(ZOPP_RELOAD);
        }
        spec.allowed =
            own.get(ALLOW_FROM).map(|text| values::namespaces(ALLOW_FROM, text)).transpose()?.unwrap_or_default();
        if let Some(settings) = others.reloader {
            others::reloader(&mut spec, settings, own, of_pods)?;
        }
        if others.wave {
            others::wave(&mut spec, own, namespace)?;
        }
        Ok(spec)
    }

    /// Returns `true` if a trigger of `namespace` may request rollouts of a workload of namespace `own`.
    pub fn allows(&self, own: &str, namespace: &str) -> bool {
        own == namespace || self.allowed.contains(namespace) || self.allowed.contains(EVERY_NAMESPACE)
    }

    /// Returns `true` if the workload requests rollouts for any source.
    pub fn requests_rollouts(&self) -> bool {
        !self.never && (!self.all.is_empty() || !self.named.is_empty() || !self.matching.is_empty())
    }

    fn on_change(&mut self, text: &str) -> Result<(), Invalid> {
        match text.trim() {
            "true" => self.all = [SourceKind::Secret, SourceKind::ConfigMap].map(|kind| (kind, ON_CHANGE)).into(),
            "false" => self.never = true,
            list => {
                for (source, key) in values::sources(ON_CHANGE, list)? {
                    let key = key.map(Keys::one);
                    match self.named.get_mut(&source) {
                        // A source that is named without a key already selects all keys that the pods use.
                        Some(named) => named.keys = named.keys.take().zip(key).map(|(keys, key)| keys.and(key)),
                        None => drop(self.named.insert(source, Named { keys: key, rule: ON_CHANGE })),
                    }
                }
            }
        }
        Ok(())
    }
}

impl SourceSpec {
    /// Reads the annotations of a Secret or a `ConfigMap`.
    pub fn read(own: &Annotations, others: Others) -> Result<Self, Invalid> {
        let mut spec = Self {
            users: values::boolean(own, ROLL_USERS)?,
            selector: own.get(ROLL_SELECTOR).map(|text| values::labels(ROLL_SELECTOR, text)).transpose()?,
            matches: false,
            ignored: values::boolean(own, IGNORE)?,
        };
        if let Some(settings) = others.reloader {
            spec.matches = values::is_true(own, settings.name_of(others::RELOADER_MATCH));
            spec.ignored |= values::is_true(own, settings.name_of(others::RELOADER_IGNORE));
        }
        Ok(spec)
    }

    /// Returns `true` if the annotations request nothing.
    pub fn is_silent(&self) -> bool {
        *self == Self::default()
    }
}

#[cfg(test)]
mod tests;
