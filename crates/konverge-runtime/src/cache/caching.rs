//! How a cache is filled, what it keeps, and how it is looked into.

use std::{sync::Arc, time::Duration};

use super::{Store, store::Transform};
use crate::watch::{InitialList, WatchOptions};

/// How a cache is filled, what it keeps, and how it is looked into. What is not said is as [`WatchOptions`] has it.
pub struct Caching<K> {
    pub(super) watching: Watching,
    pub(super) transform: Option<Transform<K>>,
    pub(super) indexes: Vec<Declare<K>>,
    /// Whose `managedFields` are kept; those of the program's field manager unless said.
    pub(super) field_manager: Option<String>,
}

type Declare<K> = Arc<dyn Fn(&Store<K>) + Send + Sync>;

/// What two who share a cache must agree about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Watching {
    pub(super) initial_list: InitialList,
    pub(super) timeout: Duration,
    pub(super) optional: bool,
}

impl Default for Watching {
    fn default() -> Self {
        let WatchOptions { initial_list, timeout, optional, .. } = WatchOptions::default();
        Self { initial_list, timeout, optional }
    }
}

// Derived, they would ask for as much of `K`.
impl<K> Default for Caching<K> {
    fn default() -> Self {
        Self { watching: Watching::default(), transform: None, indexes: Vec::new(), field_manager: None }
    }
}

impl<K> Clone for Caching<K> {
    fn clone(&self) -> Self {
        let (transform, indexes) = (self.transform.clone(), self.indexes.clone());
        Self { watching: self.watching, transform, indexes, field_manager: self.field_manager.clone() }
    }
}

impl<K: kube::Resource + Send + Sync + 'static> Caching<K> {
    /// How what exists is read at the beginning.
    #[must_use]
    pub fn initial_list(mut self, list: InitialList) -> Self {
        self.watching.initial_list = list;
        self
    }

    /// How long one watch lasts before the next one begins where it ended, 25 seconds by default; see [`WatchOptions::timeout`].
    #[must_use]
    pub fn watch_timeout(mut self, timeout: Duration) -> Self {
        self.watching.timeout = timeout;
        self
    }

    /// The kind may be missing, such as a `ServiceMonitor` in a cluster without Prometheus. Until its definition is installed the cache is
    /// empty and counts as complete; then it fills, without a restart.
    #[must_use]
    pub fn optional(mut self) -> Self {
        self.watching.optional = true;
        self
    }

    /// Whether the kind may be [missing](Self::optional).
    pub fn is_optional(&self) -> bool {
        self.watching.optional
    }

    /// Takes from each object what nobody here reads, before it is stored; changes of that are still seen. Its name, namespace, uid,
    /// version and generation stay whatever `drop` does. A cache with such a function is shared with nobody.
    ///
    /// What is taken away is missing from every comparison too. Leave the status of a kind alone whose status is written.
    #[must_use]
    pub fn transform(mut self, drop: impl Fn(&mut K) + Send + Sync + 'static) -> Self {
        self.transform = Some(Arc::new(drop));
        self
    }

    /// Keeps the `managedFields` of this manager instead of those of the program's. Shared with those who keep the same.
    #[must_use]
    pub fn field_manager(mut self, manager: impl Into<String>) -> Self {
        self.field_manager = Some(manager.into());
        self
    }

    /// Keeps an index by what this function takes from an object, for [`Store::find`].
    #[must_use]
    pub fn index<V, By>(mut self, by: By) -> Self
    where
        V: Clone + Eq + std::hash::Hash + Send + Sync + 'static,
        By: Fn(&K) -> Vec<V> + Copy + Send + Sync + 'static,
    {
        self.indexes.push(Arc::new(move |store| store.declare_index(by)));
        self
    }
}
