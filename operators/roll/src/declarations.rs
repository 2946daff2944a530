//! What is asked for, by annotations on workloads and on what they use. Pure.
//!
//! A workload asks for itself ([`ON_CHANGE`]), or a Secret or `ConfigMap` asks for those that use it ([`ROLL_USERS`]) or have certain labels
//! ([`ROLL_SELECTOR`]). zopp's word is always understood, those of Stakater Reloader and of wave if the platform says so. What cannot be
//! understood is an error that names the annotation, and then nothing is rolled for its sake.

mod others;
mod values;

use std::collections::{BTreeMap, BTreeSet};

use jiff::SignedDuration;
use konverge_workload::Keys;

use crate::object::{SourceKind, SourceName};
pub use values::{Labels, object_name};

/// On a workload: `true` for all that its pods use, `false` to be left alone whoever else asks, or a list of `secret/NAME`,
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
/// On a Secret or a `ConfigMap`: `true` rolls whoever uses it.
pub const ROLL_USERS: &str = "roll.konverge.dev/roll-users";
/// On a Secret or a `ConfigMap`: rolls the workloads of its namespace with these labels, such as `app=web,tier=front`.
pub const ROLL_SELECTOR: &str = "roll.konverge.dev/roll-selector";
/// On a Secret or a `ConfigMap`: `true` rolls nobody, whoever asks.
pub const IGNORE: &str = "roll.konverge.dev/ignore";
/// Written by us on a workload: its [`Record`](crate::record::Record).
pub const RECORD: &str = "roll.konverge.dev/record";
/// Written by us on a pod template: one text for all content that its pods run with.
pub const STAMP: &str = "roll.konverge.dev/content";
/// zopp's, on a workload: `true` for all Secrets that its pods use.
pub const ZOPP_RELOAD: &str = "zopp.dev/reload";
/// zopp's, written on the pod template of a workload that asks with [`ZOPP_RELOAD`]: when it was rolled.
pub const ZOPP_RESTARTED_AT: &str = "zopp.dev/restartedAt";

/// Of `kubectl rollout restart`, written on the pod template of a workload that is rolled for something in Vault: when it was rolled.
pub const RESTARTED_AT: &str = "kubectl.kubernetes.io/restartedAt";

/// What stands for all namespaces.
pub(crate) const EVERY_NAMESPACE: &str = "*";

/// The annotations of an object.
pub type Annotations = BTreeMap<String, String>;

/// The annotation that asked.
pub type Rule = &'static str;

/// Whose annotations are understood beside ours and zopp's.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Others {
    /// Those of Stakater Reloader.
    pub reloader: bool,
    /// Those of wave.
    pub wave: bool,
}

/// What a workload asks for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WorkloadAsks {
    /// To be left alone, whoever asks.
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
    /// Who named it.
    pub rule: Rule,
}

/// What a Secret or a `ConfigMap` asks for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SourceAsks {
    /// Whoever uses it.
    pub users: bool,
    /// Those with these labels.
    pub selector: Option<Labels>,
    /// Those who use it and look for such as say so.
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
    /// What is wrong with it, and what it may be.
    pub cause: String,
}

impl WorkloadAsks {
    /// Reads the annotations of a workload and those of its pods, among which Reloader's may be.
    pub fn read(own: &Annotations, of_pods: &Annotations, namespace: &str, others: Others) -> Result<Self, Invalid> {
        let mut asks = Self::default();
        if let Some(text) = own.get(ON_CHANGE) {
            asks.on_change(text)?;
        }
        asks.min_interval = own.get(MIN_INTERVAL).map(|text| values::duration(MIN_INTERVAL, text)).transpose()?;
        asks.wave = own.get(WAVE).map_or(Ok(0), |text| values::whole_number(WAVE, text))?;
        asks.paused = values::boolean(own, PAUSE)? == Some(true);
        // Any other word is nothing to zopp.
        if values::is_true(own, ZOPP_RELOAD) {
            asks.zopp = true;
            asks.all.entry(SourceKind::Secret).or_insert(ZOPP_RELOAD);
        }
        asks.allowed =
            own.get(ALLOW_FROM).map(|text| values::namespaces(ALLOW_FROM, text)).transpose()?.unwrap_or_default();
        if others.reloader {
            others::reloader(&mut asks, own, of_pods)?;
        }
        if others.wave {
            others::wave(&mut asks, own, namespace)?;
        }
        Ok(asks)
    }

    /// Whether an object of `namespace` may have a workload of namespace `own` rolled.
    pub fn allows(&self, own: &str, namespace: &str) -> bool {
        own == namespace || self.allowed.contains(namespace) || self.allowed.contains(EVERY_NAMESPACE)
    }

    /// Whether it asks to be rolled for anything.
    pub fn asks(&self) -> bool {
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

impl SourceAsks {
    /// Reads the annotations of a Secret or a `ConfigMap`.
    pub fn read(own: &Annotations, others: Others) -> Result<Self, Invalid> {
        let mut asks = Self {
            users: values::boolean(own, ROLL_USERS)? == Some(true),
            selector: own.get(ROLL_SELECTOR).map(|text| values::labels(ROLL_SELECTOR, text)).transpose()?,
            matches: false,
            ignored: values::boolean(own, IGNORE)? == Some(true),
        };
        if others.reloader {
            asks.matches = values::is_true(own, others::RELOADER_MATCH);
            asks.ignored |= values::is_true(own, others::RELOADER_IGNORE);
        }
        Ok(asks)
    }

    /// Whether it says anything at all.
    pub fn is_silent(&self) -> bool {
        *self == Self::default()
    }
}

#[cfg(test)]
mod tests;
