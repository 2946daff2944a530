//! The writes of this process that the watch has not shown yet.

use std::collections::HashMap;

use crate::object::ObjectKey;

/// The last write of this process to each object, until the watch has shown it or a list or bookmark proves that it never will.
///
/// Time proves nothing: a watch may be late without limit, and then still shows states from before our write.
#[derive(Debug, Default)]
pub(super) struct UnobservedWrites(HashMap<ObjectKey, Mark>);

#[derive(Debug)]
struct Mark {
    uid: Option<String>,
    /// The version that our write made, or the last one that was known before our deletion.
    version: u64,
    is_deletion: bool,
    /// Whether the API server answered before the list that is being read was asked for.
    is_before_list: bool,
}

impl Mark {
    fn is_passed(&self, version: u64) -> bool {
        !self.is_deletion && self.version <= version
    }
}

impl UnobservedWrites {
    /// Remembers that a write of ours made this version.
    pub(super) fn wrote(&mut self, key: &ObjectKey, uid: Option<&str>, version: u64) {
        self.insert(key, uid, version, false);
    }

    /// Remembers that a deletion of ours ended the object, of which this was the last known version.
    pub(super) fn deleted(&mut self, key: &ObjectKey, uid: Option<&str>, version: u64) {
        self.insert(key, uid, version, true);
    }

    fn insert(&mut self, key: &ObjectKey, uid: Option<&str>, version: u64, is_deletion: bool) {
        self.0
            .insert(key.clone(), Mark { uid: uid.map(ToOwned::to_owned), version, is_deletion, is_before_list: false });
    }

    /// Returns whether the object in this version is from before our last write: an object that we deleted, or an older version.
    pub(super) fn is_overtaken(&self, key: &ObjectKey, uid: Option<&str>, version: u64) -> bool {
        self.0.get(key).is_some_and(|mark| version < mark.version || mark.is_deletion && mark.uid.as_deref() == uid)
    }

    /// Takes in that the watch, or a list, showed the object in this version.
    pub(super) fn observed(&mut self, key: &ObjectKey, uid: Option<&str>, version: u64) {
        if !self.is_overtaken(key, uid, version) {
            self.0.remove(key);
        }
    }

    /// Takes in that the watch showed the end of the object.
    pub(super) fn ended(&mut self, key: &ObjectKey, uid: Option<&str>) {
        if self.0.get(key).is_some_and(|mark| mark.uid.as_deref() == uid) {
            self.0.remove(key);
        }
    }

    /// Returns whether we deleted the object later than at this version.
    pub(super) fn is_deleted_later(&self, key: &ObjectKey, uid: Option<&str>, version: u64) -> bool {
        let is_later = |mark: &Mark| mark.is_deletion && mark.uid.as_deref() == uid && mark.version > version;
        self.0.get(key).is_some_and(is_later)
    }

    /// Takes in that a list at this version does not have the object. Returns whether our last write to it is thereby over.
    pub(super) fn absent(&mut self, key: &ObjectKey, version: u64) -> bool {
        let is_over = self.0.get(key).is_some_and(|mark| mark.version <= version);
        is_over && self.0.remove(key).is_some()
    }

    /// Returns the objects that were written up to this version and would have been shown by now.
    ///
    /// A deletion is not among them: nobody tells its version, so the watch may still be on its way to it.
    pub(super) fn passed(&self, version: u64, namespace: Option<&str>) -> Vec<ObjectKey> {
        let marks = self.0.iter().filter(|(key, mark)| is_in(key, namespace) && mark.is_passed(version));
        marks.map(|(key, _)| key.clone()).collect()
    }

    /// Takes in that a list of the namespace, or of everything, is about to be asked for. It will show all that was answered before.
    pub(super) fn begin_list(&mut self, namespace: Option<&str>) {
        for (_, mark) in self.0.iter_mut().filter(|(key, _)| is_in(key, namespace)) {
            mark.is_before_list = true;
        }
    }

    /// Returns whether a list at this version cannot be right, given that it shows the object as it was before our last write.
    pub(super) fn is_contradicted(&self, key: &ObjectKey, uid: Option<&str>, list: u64) -> bool {
        self.0.get(key).is_some_and(|mark| {
            let is_deleted = mark.is_deletion && mark.uid.as_deref() == uid;
            if is_deleted { mark.is_before_list } else { mark.version <= list }
        })
    }

    /// Returns whether a write that was answered before the list was asked for is newer than the list.
    pub(super) fn is_newer_than_list(&self, version: u64, namespace: Option<&str>) -> bool {
        let is_newer = |mark: &Mark| mark.is_before_list && mark.version > version;
        self.0.iter().any(|(key, mark)| is_in(key, namespace) && is_newer(mark))
    }

    /// Returns whether our last write to the object was up to this version, and no deletion.
    pub(super) fn is_passed(&self, key: &ObjectKey, version: u64) -> bool {
        self.0.get(key).is_some_and(|mark| mark.is_passed(version))
    }

    /// Returns whether our last write to the object has not been shown.
    pub(super) fn awaits(&self, key: &ObjectKey) -> bool {
        self.0.contains_key(key)
    }

    /// Returns the objects whose last write by this process has not been shown.
    pub(super) fn keys(&self) -> impl Iterator<Item = &ObjectKey> {
        self.0.keys()
    }

    /// Forgets the object.
    pub(super) fn forget(&mut self, key: &ObjectKey) {
        self.0.remove(key);
    }

    /// Forgets all objects in `namespace`, or everywhere.
    pub(super) fn forget_all(&mut self, namespace: Option<&str>) {
        self.0.retain(|key, _| !is_in(key, namespace));
    }
}

/// Whether the object is in the namespace that a watch is about, or the watch is about all.
pub(super) fn is_in(key: &ObjectKey, namespace: Option<&str>) -> bool {
    namespace.is_none() || key.namespace.as_deref() == namespace
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> ObjectKey {
        ObjectKey::namespaced("a", "b")
    }

    #[test]
    fn a_write_counts_until_the_watch_has_come_so_far() {
        let mut unobserved = UnobservedWrites::default();
        unobserved.wrote(&key(), Some("u"), 10);
        assert!(unobserved.is_overtaken(&key(), Some("u"), 9) && unobserved.is_overtaken(&key(), Some("before"), 9));
        assert!(!unobserved.is_overtaken(&key(), Some("u"), 10));
        unobserved.observed(&key(), Some("u"), 9);
        assert!(unobserved.passed(9, None).is_empty() && unobserved.passed(10, Some("elsewhere")).is_empty());
        assert_eq!(unobserved.passed(10, Some("a")), [key()]);
        unobserved.observed(&key(), Some("u"), 10);
        assert!(unobserved.passed(10, None).is_empty());
    }

    #[test]
    fn what_we_deleted_does_not_come_back_but_its_successor_does() {
        let mut unobserved = UnobservedWrites::default();
        unobserved.deleted(&key(), Some("u"), 10);
        assert!(unobserved.is_overtaken(&key(), Some("u"), 12), "changed by another client before it was deleted");
        unobserved.observed(&key(), Some("u"), 12);
        assert!(unobserved.passed(100, None).is_empty(), "nobody knows the version of the deletion");
        assert!(!unobserved.is_overtaken(&key(), Some("v"), 14));
        unobserved.ended(&key(), Some("v"));
        assert!(unobserved.is_overtaken(&key(), Some("u"), 12));
        unobserved.ended(&key(), Some("u"));
        assert!(!unobserved.is_overtaken(&key(), Some("u"), 12));
        unobserved.deleted(&key(), Some("u"), 10);
        unobserved.absent(&key(), 9);
        assert!(unobserved.is_overtaken(&key(), Some("u"), 11), "the list is older than what is known");
        unobserved.absent(&key(), 10);
        assert!(!unobserved.is_overtaken(&key(), Some("u"), 11));
    }
}
