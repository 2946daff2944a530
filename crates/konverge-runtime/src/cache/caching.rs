//! How a cache is filled, what it keeps, and how it is looked into.

use std::{sync::Arc, time::Duration};

use super::{Store, store::Transform};
use crate::watch::{InitialList, WatchOptions};

/// How a cache is filled, what it keeps, and how it is looked into. The defaults are those of [`WatchOptions`].
pub struct Caching<K> {
    pub(super) watching: Watching,
    pub(super) transform: Option<Transform<K>>,
    pub(super) indexes: Vec<Declare<K>>,
    /// The field manager whose `managedFields` are kept. By default, that of the program.
    pub(super) field_manager: Option<String>,
}

type Declare<K> = Arc<dyn Fn(&Store<K>) + Send + Sync>;

/// The settings that must be equal for two users to share a cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Watching {
    pub(super) initial_list: InitialList,
    pub(super) timeout: Duration,
    pub(super) optional: bool,
    pub(super) warns_if_missing: bool,
}

impl Default for Watching {
    fn default() -> Self {
        let WatchOptions { initial_list, timeout, optional, .. } = WatchOptions::default();
        Self { initial_list, timeout, optional, warns_if_missing: true }
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
    /// Sets how the initial list is read.
    #[must_use]
    pub fn initial_list(mut self, list: InitialList) -> Self {
        self.watching.initial_list = list;
        self
    }

    /// Sets how long one watch lasts before the next one begins where it ended. The default is 25 seconds; see [`WatchOptions::timeout`].
    #[must_use]
    pub fn watch_timeout(mut self, timeout: Duration) -> Self {
        self.watching.timeout = timeout;
        self
    }

    /// Lets the kind be missing, such as `ServiceMonitor` in a cluster without Prometheus. Until its definition is installed, the cache is
    /// empty and counts as complete. Then it fills without a restart.
    #[must_use]
    pub fn optional(mut self) -> Self {
        self.watching.optional = true;
        self
    }

    /// [`optional`](Self::optional), for a kind that many clusters lack: that it is missing is in the log, and no warning of the checks.
    #[must_use]
    pub fn optional_without_warning(self) -> Self {
        let mut caching = self.optional();
        caching.watching.warns_if_missing = false;
        caching
    }

    /// Returns whether the kind may be [missing](Self::optional).
    pub fn is_optional(&self) -> bool {
        self.watching.optional
    }

    /// Calls `drop` with each object before it is stored, to remove the fields that this program never reads. A change of such a field is
    /// still a change of the object. Name, namespace, uid, version and generation stay as they are. A cache with a transform is not shared.
    ///
    /// Comparisons lack the removed fields, too. Do not remove the status of a kind whose status the program writes.
    #[must_use]
    pub fn transform(mut self, drop: impl Fn(&mut K) + Send + Sync + 'static) -> Self {
        self.transform = Some(Arc::new(drop));
        self
    }

    /// Keeps the `managedFields` of this manager instead of those of the program's. Only users that keep the same share a cache.
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
