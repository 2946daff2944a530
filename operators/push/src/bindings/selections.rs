//! The selectors of objects, and the Secrets that they match. Pure.
//!
//! A list of the API server shows which Secrets match at first, and the watch shows changes. A change during the list counts more than the list. If
//! it is older than the list, the watch will show the newer changes, too.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use konverge_core::reverse_index::ReverseIndex;
use kube::core::{Selector, SelectorExt};

use crate::object::{ObjectRef, SecretRef};

/// The selectors of all objects.
#[derive(Default)]
pub(super) struct Selections {
    /// By namespace, so that a Secret is compared with few of them.
    selectors: ReverseIndex<ObjectRef, String, Selector>,
    /// The events of the watch since an object requested a list, until its response arrives.
    listing: HashMap<ObjectRef, BTreeMap<String, bool>>,
}

/// The effect of a changed Secret on a selection.
pub(super) struct SelectionChange {
    pub(super) by: ObjectRef,
    /// Whether the Secret fits.
    pub(super) fits: bool,
    /// Whether a list is under way, so that the known selection may be wrong.
    pub(super) is_listing: bool,
}

impl Selections {
    /// The object selects like this, or not at all. Returns whether that is new.
    pub(super) fn set(&mut self, key: &ObjectRef, selector: Option<&Selector>) -> bool {
        let is_new = self.selectors.get(key, &key.namespace) != selector;
        if is_new {
            self.listing.remove(key);
            self.selectors.set(key, selector.map(|selector| (key.namespace.clone(), selector.clone())));
        }
        is_new
    }

    /// A Secret has these labels, or is gone. Returns the effects on all selections.
    pub(super) fn apply(
        &mut self,
        secret: &SecretRef,
        labels: Option<&BTreeMap<String, String>>,
    ) -> Vec<SelectionChange> {
        let selections = self.selectors.references(&secret.namespace);
        let change = |(key, selector): (&ObjectRef, &Selector)| {
            let fits = labels.is_some_and(|labels| selector.matches(labels));
            let is_listing =
                self.listing.get_mut(key).map(|changes| changes.insert(secret.name.clone(), fits)).is_some();
            SelectionChange { by: key.clone(), fits, is_listing }
        };
        selections.map(change).collect()
    }

    /// The object requests a list of the Secrets that fit.
    pub(super) fn begin_list(&mut self, key: &ObjectRef) {
        if self.selectors.get(key, &key.namespace).is_some() {
            self.listing.insert(key.clone(), BTreeMap::new());
        }
    }

    /// Returns the response to the list, with the changes since the request.
    pub(super) fn end_list(&mut self, key: &ObjectRef, mut names: BTreeSet<String>) -> BTreeSet<String> {
        for (name, fits) in self.listing.remove(key).unwrap_or_default() {
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
        self.selectors.is_empty() && self.listing.is_empty()
    }
}
