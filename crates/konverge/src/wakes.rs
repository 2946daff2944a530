//! The things besides its own kind and its children that wake the objects of a controller.

use std::sync::Arc;

use futures::{future::BoxFuture, stream::BoxStream};
use konverge_runtime::{
    Priority,
    cache::{Cache, Store},
    object::ObjectKey,
};
use prometheus_client::registry::Registry;

use crate::{setup::Setup, watched::WatchedCache};

/// The watches and triggers that a controller declares.
pub(crate) struct Wakes<K> {
    pub(crate) watches: Vec<BeginWatch<K>>,
    pub(crate) triggers: Vec<Trigger<K>>,
}

/// Something else that is watched: begins its cache, which wakes what it concerns.
pub(crate) type BeginWatch<K> = Box<dyn FnOnce(&mut Setup, Wake<K>) -> Watched + Send>;

/// The cache of something else that is watched.
pub(crate) struct Watched {
    pub(crate) cache: WatchedCache,
    pub(crate) synced: BoxFuture<'static, ()>,
}

/// A stream of objects to reconcile, made once the cache of the kind is there.
pub(crate) struct Trigger<K> {
    pub(crate) name: &'static str,
    pub(crate) stream: Box<Begin<K>>,
    /// Also on replicas that do not lead.
    pub(crate) on_standbys: bool,
    /// Adds the series that it will have.
    pub(crate) describe: fn(&mut Registry),
}

pub(crate) type Begin<K> = dyn FnOnce(&mut Setup, Store<K>) -> BoxStream<'static, ObjectKey> + Send;

/// Puts objects into the queue of a controller, given the cache of its kind.
pub(crate) struct Wake<K> {
    pub(crate) cache: Cache<K>,
    pub(crate) add: Arc<dyn Fn(ObjectKey, Priority, &'static str) + Send + Sync>,
}
