//! Who has to look again, and where it waits.

use konverge_runtime::{Priority, Queue, object::ObjectKey};
use tokio::sync::mpsc::UnboundedSender;

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
