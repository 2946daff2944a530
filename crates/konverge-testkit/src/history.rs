//! The values that a field of an object has had, one after the other.

use std::{
    fmt::Debug,
    sync::{Arc, Mutex, PoisonError},
};

use futures::{StreamExt, pin_mut};
use kube::{
    Api, Resource,
    runtime::{WatchStreamExt, watcher},
};
use serde::de::DeserializeOwned;
use tokio::task::JoinHandle;

/// A watch that collects each value of a field, until it is dropped. Equal values in a row are one.
///
/// A test of late writes compares the collected values with their order: a value that comes back was restored by an older write.
pub struct History<T> {
    values: Arc<Mutex<Vec<T>>>,
    watching: JoinHandle<()>,
}

impl<T: PartialEq + Clone + Send + 'static> History<T> {
    /// Begins to collect. `value` reads the field of an object, if it has one.
    pub fn of<K>(
        objects: Api<K>,
        selection: watcher::Config,
        value: impl Fn(&K) -> Option<T> + Send + Sync + 'static,
    ) -> Self
    where
        K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
    {
        let values = Arc::<Mutex<Vec<T>>>::default();
        let collected = Arc::clone(&values);
        let watching = tokio::spawn(async move {
            let changes = watcher(objects, selection).default_backoff().applied_objects();
            pin_mut!(changes);
            while let Some(change) = changes.next().await {
                let Some(found) = change.ok().as_ref().and_then(&value) else { continue };
                let mut collected = collected.lock().unwrap_or_else(PoisonError::into_inner);
                if collected.last() != Some(&found) {
                    collected.push(found);
                }
            }
        });
        Self { values, watching }
    }

    /// Returns the values so far, oldest first.
    pub fn values(&self) -> Vec<T> {
        self.values.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl<T> Drop for History<T> {
    fn drop(&mut self) {
        self.watching.abort();
    }
}
