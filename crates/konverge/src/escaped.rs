//! Objects that the API server deleted although they had the finalizer of their controller.
//!
//! To delete an object, the API server reads it, asks the webhooks, and deletes it. If the object had no finalizer when it was read, one that a
//! controller adds in the meantime holds nothing (kubernetes/kubernetes issue 77988, open since 2019). The window is a few milliseconds, and as
//! long as the webhooks take. The run that added the finalizer goes on meanwhile, and what it makes outside would stay.
//!
//! So the process that leads keeps the last state of such an object until it is cleaned up. The watch shows its deletion without the beginning of
//! one before, which no other object with a finalizer has. A process that ends before the cleanup forgets it.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};
use konverge_runtime::{
    Priority, Queue,
    cache::Change,
    object::{Object, ObjectKey},
};

use crate::{finalizers::Finalizers, leading::Leading};

/// The objects of a controller that went past its finalizer and are not cleaned up yet.
pub(crate) struct Escaped<K> {
    pub(crate) queue: Queue<ObjectKey>,
    pub(crate) finalizers: Finalizers,
    pub(crate) leading: Leading,
    /// In the order of their deletion.
    pub(crate) objects: Mutex<HashMap<ObjectKey, Vec<Arc<K>>>>,
}

impl<K: Object> Escaped<K> {
    /// Takes in that an object is no longer in the cache. Requests a run if it went past the finalizer and this process leads. In a selection it
    /// may only have left that; the run finds out.
    pub(crate) fn left(&self, key: &ObjectKey, change: &Change<K>) {
        // A list does not show in which state an object went, nor is the last state known of one that could not be decoded.
        let Change { old: Some(old), new: None, listed: false, .. } = change else { return };
        let has_escaped = old.meta().deletion_timestamp.is_none() && self.finalizers.hold(&**old);
        if !has_escaped || !self.leading.has_begun() {
            return;
        }
        let mut last = K::clone(old);
        // As every object that is cleaned up has it.
        last.meta_mut().deletion_timestamp = Some(Time(Timestamp::now()));
        self.lock().entry(key.clone()).or_default().push(Arc::new(last));
        self.queue.add(key.clone(), Priority::Normal, "escaped");
    }

    /// Whether something of this name is to be cleaned up.
    pub(crate) fn has(&self, key: &ObjectKey) -> bool {
        self.lock().contains_key(key)
    }

    /// The objects of this name to be cleaned up, in the order of their deletion.
    pub(crate) fn of(&self, key: &ObjectKey) -> Vec<Arc<K>> {
        self.lock().get(key).cloned().unwrap_or_default()
    }

    /// Forgets an object that is cleaned up, or that is still there. If it left again meanwhile, that stays.
    pub(crate) fn forget(&self, key: &ObjectKey, object: &Arc<K>) {
        let mut objects = self.lock();
        if let Some(known) = objects.get_mut(key) {
            known.retain(|known| !Arc::ptr_eq(known, object));
            if known.is_empty() {
                objects.remove(key);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ObjectKey, Vec<Arc<K>>>> {
        self.objects.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
