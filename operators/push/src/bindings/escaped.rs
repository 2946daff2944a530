//! Objects that the API server deleted although they had our finalizer.
//!
//! To delete an object, the API server reads it, asks the webhooks, and deletes it. A finalizer that comes in between holds nothing
//! (kubernetes/kubernetes issue 77988). The run that added it still writes to Vault, and nothing would clear that.
//!
//! So the binding of such an object stays, as that of an object that is being deleted, until its paths are cleared or in the list of orphans. Another
//! object that has the name by then waits for that, as it would have waited for the finalizer. A process that ends before forgets it.

use jiff::Timestamp;

use super::{Binding, Bindings, Inner, Shown};
use crate::{object::ObjectRef, record::Record};

impl Bindings {
    /// A watch shows that an object is gone. If it had our finalizer and nobody had begun to delete it, keeps its binding as that of an object that is
    /// being deleted, and returns `true`.
    ///
    /// The watches select no objects, so none can have left a selection instead.
    pub fn escape(&self, key: &ObjectRef, now: Timestamp) -> bool {
        let mut inner = self.lock();
        let Inner { bindings, escaped, .. } = &mut *inner;
        let Some(binding) = bindings.get_mut(key).filter(|binding| binding.is_held()) else { return false };
        binding.deleting = Some(now);
        escaped.insert(key.clone(), None);
        true
    }

    /// Returns the record of an object that our finalizer held, and that is gone or has a successor with this uid, although nobody saw its deletion.
    pub fn lost(&self, key: &ObjectRef, successor: Option<&str>) -> Option<Record> {
        let inner = self.lock();
        let held = inner.bindings.get(key).filter(|binding| binding.is_held());
        held.filter(|held| successor != Some(held.uid.as_str())).and_then(|held| held.record.clone())
    }

    /// Whether the object with this uid went past our finalizer and is not cleared yet.
    pub fn has_escaped(&self, key: &ObjectRef, uid: &str) -> bool {
        let inner = self.lock();
        inner.escaped.contains_key(key) && inner.bindings.get(key).is_some_and(|binding| binding.uid == uid)
    }
}

impl Inner {
    /// Whether the object has the name of another one that is still to be cleared. That other one may also be there again, out of a backup.
    pub(super) fn must_wait(&mut self, shown: &Shown) -> bool {
        let is_back = self.bindings.get(&shown.key).is_some_and(|former| former.uid == shown.uid);
        if is_back {
            self.escaped.remove(&shown.key);
        }
        self.escaped.contains_key(&shown.key)
    }

    /// Takes in an object that must wait. Returns whether there is something to do.
    pub(super) fn show_waiting(&mut self, shown: Shown) -> bool {
        match self.escaped.get_mut(&shown.key) {
            Some(Some(known)) if known.uid == shown.uid => known.take(shown),
            _ => {
                self.escaped.insert(shown.key.clone(), Some(Binding::new(shown)));
                true
            }
        }
    }
}
