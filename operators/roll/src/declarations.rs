//! The annotations of workloads and of the sources that they use. Pure.
//!
//! A workload opts in for itself ([`ON_CHANGE`]), or a Secret or `ConfigMap` opts in its users ([`ROLL_USERS`]) or the workloads with certain labels
//! ([`ROLL_SELECTOR`]). The operator always understands zopp's annotation, and those of Stakater Reloader and of wave if its flags say so. An invalid
//! value is an error that names the annotation, and rolls nothing.

mod others;
mod values;

use std::collections::{BTreeMap, BTreeSet};

use jiff::SignedDuration;
use konverge_workload::Keys;

use crate::object::{SourceKind, SourceName};
pub use others::{Reloader, Renamed};
pub(crate) use others::{WAVE_PREFIX, is_of_reloader};
pub use values::{Labels, object_name};

/// On a workload: `true` for all that its pods use, `false` to never roll it, or a list of `secret/NAME`,
/// `configmap/NAME` and `secret/NAME:KEY`.
pub const ON_CHANGE: &str = "roll.konverge.dev/on-change";
/// On a workload: the least time between two rollouts of it.
pub const MIN_INTERVAL: &str = "roll.konverge.dev/min-interval";
/// On a workload: a whole number. Those with a smaller one that use the same are rolled and ready before it.
pub const WAVE: &str = "roll.konverge.dev/wave";
/// On a workload: `true` remembers changes and rolls nothing until it goes.
pub const PAUSE: &str = "roll.konverge.dev/pause";
/// On a workload: namespaces whose objects may have it rolled, such as `platform,security`, or `*` for all. Its own may in any case.
pub const ALLOW_FROM: &str = "roll.konverge.dev/allow-from";
/// On a Secret or a `ConfigMap`: `true` rolls each workload that uses it.
pub const ROLL_USERS: &str = "roll.konverge.dev/roll-users";
/// On a Secret or a `ConfigMap`: rolls the workloads of its namespace with these labels, such as `app=web,tier=front`.
pub const ROLL_SELECTOR: &str = "roll.konverge.dev/roll-selector";
/// On a Secret or a `ConfigMap`: `true` rolls no workload.
pub const IGNORE: &str = "roll.konverge.dev/ignore";
/// The operator writes it on a workload: the record of the content that its pods run with.
pub const RECORD: &str = "roll.konverge.dev/record";
/// Written by us on a pod template: one text for all content that its pods run with.
pub const STAMP: &str = "roll.konverge.dev/content";
/// zopp's, on a workload: `true` for all Secrets that its pods use.
pub const ZOPP_RELOAD: &str = "zopp.dev/reload";
/// zopp's, written on the pod template of a workload that asks with [`ZOPP_RELOAD`]: when it was rolled.
pub const ZOPP_RESTARTED_AT: &str = "zopp.dev/restartedAt";

/// Of `kubectl rollout restart`, written on the pod template of a workload that is rolled for something in Vault: when it was rolled.
pub const RESTARTED_AT: &str = "kubectl.kubernetes.io/restartedAt";

/// The value that means all namespaces.
pub(crate) const EVERY_NAMESPACE: &str = "*";

/// The annotations of an object.
pub type Annotations = BTreeMap<String, String>;

/// The annotation that asked.
pub type Rule = &'static str;

/// The tools whose annotations are understood beside our own and those of zopp.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Others {
    /// Those of Stakater Reloader.
    pub reloader: Option<Reloader>,
    /// Those of wave.
    pub wave: bool,
}

impl Others {
    /// Those of every tool, with the names and settings that the tool has by default.
    pub const ALL: Self = Self { reloader: Some(Reloader::DEFAULT), wave: true };
}

/// The spec in the annotations of a workload.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WorkloadSpec {
    /// Never roll it.
    pub never: bool,
    /// All of a kind that its pods use.
    pub all: BTreeMap<SourceKind, Rule>,
    /// These, whether its pods use them or not; with the keys that are named.
    pub named: BTreeMap<SourceName, Named>,
    /// All of a kind that its pods use and that says so itself.
    pub matching: BTreeMap<SourceKind, Rule>,
    /// None of these, unless it is named by words of ours or of wave.
    pub except: BTreeSet<SourceName>,
    /// The least time between two rollouts; that of the platform if there is none.
    pub min_interval: Option<SignedDuration>,
    /// Its place in the order of those that use the same.
    pub wave: i32,
    /// Whether changes are only remembered.
    pub paused: bool,
    /// Whether zopp's mark is set as well.
    pub zopp: bool,
    /// Namespaces whose objects may have it rolled beside its own; `*` is all.
    pub allowed: BTreeSet<String>,
}

/// A source that a workload names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Named {
    /// Which keys; those that its pods use if none are named.
    pub keys: Option<Keys>,
    /// The annotation that names it.
    pub rule: Rule,
}

/// The spec in the annotations of a Secret or a `ConfigMap`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SourceSpec {
    /// Roll each workload that uses it.
    pub users: bool,
    /// Those with these labels.
    pub selector: Option<Labels>,
    /// Roll the workloads that use it and search for marked sources.
    pub matches: bool,
    /// Nobody.
    pub ignored: bool,
}

/// An annotation that cannot be followed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the annotation {annotation} is {value:?}: {cause}")]
pub struct Invalid {
    /// Which one.
    pub annotation: &'static str,
    /// The beginning of what it holds.
    pub value: String,
    /// The cause, and the valid values.
    pub cause: String,
}

impl WorkloadSpec {
    /// Reads the annotations of a workload and those of its pods, among which Reloader's may be.
    pub fn read(own: &Annotations, of_pods: &Annotations, namespace: &str, others: Others) -> Result<Self, Invalid> {
        let mut spec = Self::default();
        if let Some(text) = own.get(ON_CHANGE) {
            spec.on_change(text)?;
        }
        spec.min_interval = own.get(MIN_INTERVAL).map(|text| values::duration(MIN_INTERVAL, text)).transpose()?;
        spec.wave = own.get(WAVE).map_or(Ok(0), |text| values::whole_number(WAVE, text))?;
        spec.paused = values::boolean(own, PAUSE)? == Some(true);
        // Any other word is nothing to zopp.
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

    /// Whether an object of `namespace` may have a workload of namespace `own` rolled.
    pub fn allows(&self, own: &str, namespace: &str) -> bool {
        own == namespace || self.allowed.contains(namespace) || self.allowed.contains(EVERY_NAMESPACE)
    }

    /// Whether it asks to be rolled for anything.
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
                        // Named without a key, all that its pods use are meant already.
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
            users: values::boolean(own, ROLL_USERS)? == Some(true),
            selector: own.get(ROLL_SELECTOR).map(|text| values::labels(ROLL_SELECTOR, text)).transpose()?,
            matches: false,
            ignored: values::boolean(own, IGNORE)? == Some(true),
        };
        if let Some(settings) = others.reloader {
            spec.matches = values::is_true(own, settings.name_of(others::RELOADER_MATCH));
            spec.ignored |= values::is_true(own, settings.name_of(others::RELOADER_IGNORE));
        }
        Ok(spec)
    }

    /// Whether it says anything at all.
    pub fn is_silent(&self) -> bool {
        *self == Self::default()
    }
}

#[cfg(test)]
mod tests;
