//! The classes of the Secrets Store CSI driver: the Secrets in which the driver stores what it mounts for pods.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet, HashSet},
};

use konverge_core::reverse_index::ReverseIndex;
use konverge_workload::Usage;
use litemap::LiteMap;

use crate::{
    object::{SourceName, WorkloadRef},
    state::Observed,
    uses::MADE,
};

/// A class: its namespace and its name.
pub type ClassRef = (String, String);

/// The classes, and the workloads that mount them.
#[derive(Default)]
pub(super) struct Classes {
    /// The Secrets of each class.
    secrets: BTreeMap<ClassRef, BTreeSet<SourceName>>,
    /// The classes that a workload mounts. A class need not exist.
    mounted: ReverseIndex<WorkloadRef, ClassRef>,
}

impl Classes {
    /// Sets the classes that a workload mounts.
    pub(super) fn set_mounted(&mut self, key: &WorkloadRef, classes: &BTreeSet<String>) {
        self.mounted.set(key, classes.iter().map(|class| ((key.namespace.clone(), class.clone()), ())));
    }

    /// Forgets a workload.
    pub(super) fn remove_workload(&mut self, key: &WorkloadRef) {
        self.mounted.remove(key);
    }

    /// Sets the Secrets of a class, or removes the class. Returns the workloads that mount it, or none if nothing has changed.
    pub(super) fn set_secrets(&mut self, class: &ClassRef, secrets: Option<BTreeSet<SourceName>>) -> Vec<WorkloadRef> {
        if self.secrets.get(class) == secrets.as_ref() {
            return Vec::new();
        }
        match secrets {
            Some(secrets) => drop(self.secrets.insert(class.clone(), secrets)),
            None => drop(self.secrets.remove(class)),
        }
        self.mounted.referrers(class).cloned().collect()
    }

    /// Returns the classes that a complete list does not contain.
    pub(super) fn missing_in(&self, listed: &HashSet<ClassRef>) -> Vec<ClassRef> {
        self.secrets.keys().filter(|class| !listed.contains(*class)).cloned().collect()
    }

    /// Returns the Secrets that the driver makes for the pods of a workload. Returns `None` if one of the classes that they mount is not known.
    pub(super) fn made_for(&self, namespace: &str, workload: &Observed) -> Option<BTreeSet<SourceName>> {
        let mut made = BTreeSet::new();
        for class in &workload.classes {
            made.extend(self.secrets.get(&(namespace.to_owned(), class.clone()))?.iter().cloned());
        }
        Some(made)
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.secrets.is_empty() && self.mounted.is_empty()
    }

    /// Returns all sources that the pods of a workload use: those that they name, and those that the driver makes for them.
    pub(super) fn referenced<'a>(
        &self,
        namespace: &str,
        workload: &'a Observed,
    ) -> Cow<'a, LiteMap<SourceName, Usage>> {
        let of_class = |class: &String| self.secrets.get(&(namespace.to_owned(), class.clone()));
        let mut all = Cow::Borrowed(&workload.referenced);
        for secret in workload.classes.iter().filter_map(of_class).flatten() {
            all.to_mut().insert(secret.clone(), MADE);
        }
        all
    }
}
