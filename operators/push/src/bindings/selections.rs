//! Which selectors match which Secrets. Pure.
//!
//! Which Secrets fit at first is asked of the API server, and the watch tells of changes. It may tell of one while the answer is under way,
//! and then it counts, whichever is newer: should it be old news, the newer ones are still to come.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use kube::core::{Selector, SelectorExt};

use crate::object::{ObjectRef, SecretRef};

/// By namespace, so that a Secret is held against few.
#[derive(Default)]
pub(super) struct Selections(HashMap<String, BTreeMap<ObjectRef, Selection>>);

struct Selection {
    selector: Selector,
    /// The events of the watch since a list was requested, until its response arrives.
    told: Option<BTreeMap<String, bool>>,
}

/// The effect of a changed Secret on a selection.
pub(super) struct SelectionChange {
    pub(super) by: ObjectRef,
    /// Whether the Secret fits.
    pub(super) fits: bool,
    /// Whether it is being asked which ones do, so that what is known by then may be wrong.
    pub(super) is_listing: bool,
}

impl Selections {
    /// The object selects like this, or not at all. Whether that is new.
    pub(super) fn set(&mut self, key: &ObjectRef, selector: Option<&Selector>) -> bool {
        let known = self.0.entry(key.namespace.clone()).or_default();
        let before = known.get(key).map(|selection| &selection.selector);
        let is_new = before != selector;
        match selector {
            Some(selector) if is_new => {
                known.insert(key.clone(), Selection { selector: selector.clone(), told: None });
            }
            Some(_) => {}
            None => drop(known.remove(key)),
        }
        if known.is_empty() {
            self.0.remove(&key.namespace);
        }
        is_new
    }

    /// A Secret has these labels; it has none if it is gone.
    pub(super) fn told(
        &mut self,
        secret: &SecretRef,
        labels: Option<&BTreeMap<String, String>>,
    ) -> Vec<SelectionChange> {
        let selections = self.0.get_mut(&secret.namespace).into_iter().flatten();
        let tell = |(key, selection): (&ObjectRef, &mut Selection)| {
            let fits = labels.is_some_and(|labels| selection.selector.matches(labels));
            let is_listing = selection.told.as_mut().map(|told| told.insert(secret.name.clone(), fits)).is_some();
            SelectionChange { by: key.clone(), fits, is_listing }
        };
        selections.map(tell).collect()
    }

    /// It is asked which Secrets fit.
    pub(super) fn ask(&mut self, key: &ObjectRef) {
        if let Some(selection) = self.0.get_mut(&key.namespace).and_then(|known| known.get_mut(key)) {
            selection.told = Some(BTreeMap::new());
        }
    }

    /// The answer, as it has become meanwhile.
    pub(super) fn answered(&mut self, key: &ObjectRef, mut names: BTreeSet<String>) -> BTreeSet<String> {
        let selection = self.0.get_mut(&key.namespace).and_then(|known| known.get_mut(key));
        for (name, fits) in selection.and_then(|selection| selection.told.take()).unwrap_or_default() {
            if fits {
                names.insert(name);
            } else {
                names.remove(&name);
            }
        }
        names
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
