//! Who has to look again, and where it waits.

use std::sync::Arc;

use futures::stream::{self, BoxStream, StreamExt};
use konverge_runtime::{
    Priority, Queue,
    cache::{Change, Store},
    object::{Object, ObjectKey},
};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};

use crate::{
    bindings::SecretRef,
    source::ConnectionName,
    wanted::{Owner, OwnerKind},
};

/// Wakes whoever fills a Secret. Clones are the same.
#[derive(Clone)]
pub struct Wakes {
    /// The annotated Secrets.
    pub secrets: Queue<SecretRef>,
    /// The objects of kind `SecretPull`.
    pub secret_pulls: UnboundedSender<ObjectKey>,
    /// The objects of kind `ZoppSecretSync`.
    pub zopp_secret_syncs: UnboundedSender<ObjectKey>,
    /// The objects of kind `SecretSource`.
    pub secret_sources: UnboundedSender<ObjectKey>,
    /// The objects of kind `ClusterSecretSource`.
    pub cluster_secret_sources: UnboundedSender<ObjectKey>,
}

impl Wakes {
    /// Wakes the custom resource that has the Secret made, or the Secret itself if there is none.
    pub fn wake(&self, key: SecretRef, owner: Option<&Owner>, priority: Priority, reason: &'static str) {
        match owner {
            Some(owner) => self.wake_owner(key.namespace, owner),
            None => self.secrets.add(key, priority, reason),
        }
    }

    /// Wakes a custom resource.
    pub fn wake_owner(&self, namespace: String, owner: &Owner) {
        let objects = match owner.kind {
            OwnerKind::SecretPull => &self.secret_pulls,
            OwnerKind::ZoppSecretSync => &self.zopp_secret_syncs,
        };
        // Without a controller of the kind, nobody has it made.
        drop(objects.send(ObjectKey { namespace: Some(namespace), name: owner.name.clone() }));
    }

    /// Wakes a custom resource that is a connection.
    pub fn wake_connection(&self, ConnectionName { namespace, name }: ConnectionName) {
        let objects = if namespace.is_some() { &self.secret_sources } else { &self.cluster_secret_sources };
        drop(objects.send(ObjectKey { namespace, name }));
    }
}

/// Returns the trigger of a controller: the objects that come out of `wakes`. `changed` learns of each change in the cache of the controller.
///
/// The cache keeps its subscribers for as long as the process runs, so the subscriber does not keep the owner.
pub fn trigger<K: Object, O: Send + Sync + 'static>(
    owner: &Arc<O>,
    wakes: UnboundedReceiver<ObjectKey>,
    changed: fn(&O, &ObjectKey, &Change<K>),
) -> impl FnOnce(Store<K>) -> BoxStream<'static, ObjectKey> + Send + use<K, O> {
    let owner = Arc::downgrade(owner);
    move |store| {
        store.subscribe(move |key, change| {
            if let Some(owner) = owner.upgrade() {
                changed(&owner, key, change);
            }
        });
        stream::unfold(wakes, async |mut wakes| Some((wakes.recv().await?, wakes))).boxed()
    }
}
