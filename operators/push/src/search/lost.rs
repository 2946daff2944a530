//! Objects whose deletion this process did not see.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::{object::ObjectRef, orphans::Orphan, record::Record};

/// Objects that are gone, or have a successor of their name, while this process did not see their deletion. Clones share the list.
#[derive(Clone, Default)]
pub struct Lost(Arc<(Mutex<Vec<Orphan>>, Notify)>);

impl Lost {
    /// Adds an object with the record that was known of it.
    pub(crate) fn add(&self, key: &ObjectRef, record: Record) {
        self.lock().push(Orphan::new(key, record));
        self.0.1.notify_one();
    }

    /// Takes all objects out.
    pub(super) fn take(&self) -> Vec<Orphan> {
        std::mem::take(&mut *self.lock())
    }

    /// Puts objects back, for the next attempt.
    pub(super) fn put_back(&self, lost: impl Iterator<Item = Orphan>) {
        self.lock().extend(lost);
    }

    /// Waits until an object is added.
    pub(super) async fn added(&self) {
        self.0.1.notified().await;
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Orphan>> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
