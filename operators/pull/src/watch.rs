//! The event handler for Secrets: it keeps the bindings as a watch shows them, and queues work.
//!
//! Every Secret of the cluster passes through here, as metadata. A Secret without the annotation leaves no trace.

use std::{collections::HashSet, sync::Arc};

use k8s_openapi::api::core::v1::Secret;
use konverge_runtime::{
    Priority,
    watch::{EventHandler, Origin},
};
use kube::core::{ObjectMeta, PartialObjectMeta};

use crate::{
    allow::{Rule, is_allowed},
    annotations::{Declaration, RECORD, TARGET_RECORD, declaration, unknown},
    bindings::{Bindings, SecretRef, Subscribed, WatchedSecret},
    hub::{Hubs, Wake},
    messages,
    record::proofs,
    source::{Reference, Sources},
    wakes::Wakes,
    wanted::WantedSource,
};

/// Reason in the queue: the Secret changed in the cluster.
const SECRET: &str = "secret";
/// Reason in the queue: the content changed, or can be read again.
const SOURCE: &str = "source";

/// Returns the function that wakes the Secrets of a content. They come before all others, since somebody waits for the change.
pub fn wake(bindings: &Arc<Bindings>, wakes: Wakes) -> Wake {
    // Bindings hold hubs and hubs hold this: were it not weak, neither would ever end.
    let bindings = Arc::downgrade(bindings);
    Arc::new(move |reference: &Reference| {
        for (key, owner) in bindings.upgrade().iter().flat_map(|bindings| bindings.bound_to(reference)) {
            wakes.wake(key, owner.as_ref(), Priority::High, SOURCE);
        }
    })
}

/// Subscribes Secrets to the contents that their namespaces may have.
pub struct Subscriptions {
    /// Where bound contents are followed.
    pub hubs: Arc<Hubs>,
    /// Which namespaces may read which contents.
    pub rules: Vec<Rule>,
}

impl Subscriptions {
    /// Subscribes a Secret in this namespace to its sources. Without any, the one answer says why.
    pub fn subscribe(&self, namespace: &str, declared: &Declaration) -> Vec<Subscribed> {
        let sources = match declared {
            Declaration::Incomplete(missing) => return vec![Err(Arc::new(messages::incomplete(missing)))],
            Declaration::Invalid(cause) => return vec![Err(Arc::new(messages::invalid_annotation(cause)))],
            Declaration::Paused => return vec![Err(Arc::new(messages::paused()))],
            Declaration::Bound(wanted) => &wanted.sources,
        };
        let subscribe = |WantedSource { reference, .. }: &WantedSource| {
            // Of a connection that is an object, the store and the namespaces of the object decide.
            if reference.connection().is_some() || is_allowed(&self.rules, namespace, reference) {
                self.hubs.subscribe(reference)
            } else {
                Err(messages::not_allowed(namespace, reference))
            }
        };
        sources.iter().map(|source| subscribe(source).map_err(Arc::new)).collect()
    }
}

/// Keeps the bindings as the watch on Secrets shows them.
pub struct SecretHandler {
    /// The bindings to keep.
    pub bindings: Arc<Bindings>,
    /// The subscriptions of annotated Secrets.
    pub subscriptions: Arc<Subscriptions>,
    /// The stores that recall the records of the Secrets.
    pub sources: Sources,
    /// Whom a change concerns.
    pub wakes: Wakes,
}

impl SecretHandler {
    /// The Secret is gone or not bound any more. A custom resource makes it anew. Without one, nothing is left to do, and a standby keeps no key of it.
    fn unbind(&self, key: &SecretRef) {
        match self.bindings.gone(key) {
            Some(owner) => self.wakes.wake_owner(key.namespace.clone(), &owner),
            None => self.wakes.secrets.remove(key),
        }
    }

    /// The Secret may be one with credentials.
    fn wake_connections(&self, key: &SecretRef) {
        for connection in self.sources.connections().made_of(key) {
            self.wakes.wake_connection(connection);
        }
    }
}

impl EventHandler<PartialObjectMeta<Secret>> for SecretHandler {
    type Key = SecretRef;

    fn key(&self, metadata: &ObjectMeta) -> Option<SecretRef> {
        Some(SecretRef { namespace: metadata.namespace.clone()?, name: metadata.name.clone()? })
    }

    fn apply(&mut self, key: &SecretRef, object: PartialObjectMeta<Secret>, origin: Origin) -> bool {
        self.wake_connections(key);
        let annotations = object.metadata.annotations.unwrap_or_default();
        let declared = declaration(&annotations);
        let record = match &declared {
            Some(declared) => declared.wanted().map_or(RECORD, |wanted| wanted.record_annotation()),
            None => TARGET_RECORD,
        };
        let record = annotations.get(record).cloned();
        let proofs = record.iter().flat_map(|record| proofs(record, declared.is_none()));
        proofs.for_each(|proof| self.sources.recall(&proof));
        let bound = self.bindings.get(key);
        let made = bound.filter(|binding| binding.made().is_some() && declared.is_none());
        let (declared, hubs) = match (declared, made) {
            (Some(declared), _) => {
                let hubs = self.subscriptions.subscribe(&key.namespace, &declared);
                (declared, hubs)
            }
            (None, Some(made)) => (made.declared, made.hubs),
            (None, None) => {
                self.unbind(key);
                return false;
            }
        };
        let (Some(uid), Some(shown)) = (object.metadata.uid, object.metadata.resource_version) else { return false };
        let owner = declared.wanted().and_then(|wanted| Some(wanted.made.as_ref()?.owner.clone()));
        let unknown = if owner.is_none() { unknown(&annotations) } else { Vec::new() };
        let seen = WatchedSecret { uid, shown, declared, hubs: hubs.clone(), unknown, record };
        if self.bindings.apply(key.clone(), seen, origin) {
            hubs.iter().flatten().for_each(|hub| hub.retry_soon());
            self.wakes.wake(key.clone(), owner.as_ref(), Priority::Normal, SECRET);
        }
        true
    }

    fn delete(&mut self, key: &SecretRef) {
        self.wake_connections(key);
        self.unbind(key);
    }

    fn replace(&mut self, listed: &HashSet<SecretRef>) {
        for key in self.bindings.vanished(listed) {
            self.delete(&key);
        }
        self.wakes.secrets.retain(|key| self.bindings.get(key).is_some());
        self.sources.records_are_complete();
    }
}
