//! The event handler for Secrets: it keeps the bindings as a watch shows them, and queues work.
//!
//! Every Secret of the cluster passes through here, as metadata. A Secret without the annotation leaves no trace.

use std::{collections::HashSet, sync::Arc};

use k8s_openapi::api::core::v1::Secret;
use konverge_runtime::{
    Priority, Queue,
    watch::{EventHandler, Origin},
};
use kube::core::{ObjectMeta, PartialObjectMeta};

use crate::{
    allow::{Rule, is_allowed},
    annotations::{Declaration, KEYS, RECORD, declaration},
    bindings::{Bindings, SecretRef, Subscribed, WatchedSecret},
    hub::{Hubs, Wake},
    messages,
    source::{Reference, Sources},
};

/// Reason in the queue: the Secret changed in the cluster.
const SECRET: &str = "secret";
/// Reason in the queue: the content changed, or can be read again.
const SOURCE: &str = "source";

/// Returns the function that queues the Secrets of a content. They come before all others, since somebody waits for the change.
pub fn wake(bindings: &Arc<Bindings>, queue: Queue<SecretRef>) -> Wake {
    // Bindings hold hubs and hubs hold this: were it not weak, neither would ever end.
    let bindings = Arc::downgrade(bindings);
    Arc::new(move |reference: &Reference| {
        for key in bindings.upgrade().iter().flat_map(|bindings| bindings.bound_to(reference)) {
            queue.add(key, Priority::High, SOURCE);
        }
    })
}

/// Keeps the bindings as the watch on Secrets shows them.
pub struct SecretHandler {
    /// The bindings to keep.
    pub bindings: Arc<Bindings>,
    /// Where bound contents are followed.
    pub hubs: Arc<Hubs>,
    /// The stores that recall the records of the Secrets.
    pub sources: Sources,
    /// Which namespaces may read which contents.
    pub rules: Vec<Rule>,
    /// Where the Secrets are queued.
    pub queue: Queue<SecretRef>,
}

impl SecretHandler {
    fn subscribe(&self, namespace: &str, declared: &Declaration) -> Subscribed {
        let hub = match declared {
            Declaration::Incomplete(missing) => Err(messages::incomplete(missing)),
            Declaration::Invalid(cause) => Err(messages::invalid_annotation(cause)),
            Declaration::Bound(reference) if !is_allowed(&self.rules, namespace, reference) => {
                Err(messages::not_allowed(namespace, reference))
            }
            Declaration::Bound(reference) => self.hubs.subscribe(reference),
        };
        hub.map_err(Arc::new)
    }
}

impl EventHandler<PartialObjectMeta<Secret>> for SecretHandler {
    type Key = SecretRef;

    fn key(&self, metadata: &ObjectMeta) -> Option<SecretRef> {
        Some(SecretRef { namespace: metadata.namespace.clone()?, name: metadata.name.clone()? })
    }

    fn apply(&mut self, key: &SecretRef, object: PartialObjectMeta<Secret>, origin: Origin) -> bool {
        let annotations = object.metadata.annotations.unwrap_or_default();
        let Some(declared) = declaration(&annotations) else {
            self.delete(key);
            return false;
        };
        let record = annotations.get(RECORD).cloned();
        if let Some(record) = &record {
            self.sources.recall(record);
        }
        let (Some(uid), Some(shown)) = (object.metadata.uid, object.metadata.resource_version) else { return false };
        let hub = self.subscribe(&key.namespace, &declared);
        let requests_keys = annotations.contains_key(KEYS);
        let seen = WatchedSecret { uid, shown, declared, hub: hub.clone(), requests_keys, record };
        if self.bindings.apply(key.clone(), seen, origin) {
            if let Ok(hub) = hub {
                hub.retry_soon();
            }
            self.queue.add(key.clone(), Priority::Normal, SECRET);
        }
        true
    }

    /// The Secret is gone or not bound any more: nothing is left to do for it, and a standby keeps no key of it.
    fn delete(&mut self, key: &SecretRef) {
        self.bindings.remove(key);
        self.queue.remove(key);
    }

    fn replace(&mut self, listed: &HashSet<SecretRef>) {
        self.bindings.retain(listed);
        self.queue.retain(|key| self.bindings.get(key).is_some());
        self.sources.records_are_complete();
    }
}
