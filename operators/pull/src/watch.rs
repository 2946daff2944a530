//! The event handler for Secrets: it keeps the bindings as a watch shows them, and queues work.
//!
//! Every Secret of the cluster passes through here, as metadata. A Secret without the annotation leaves no trace.

use std::{collections::HashSet, sync::Arc};

use k8s_openapi::api::core::v1::Secret;
use konverge_runtime::{
    Priority, Queue,
    watch::{EventHandler, Origin},
};
use konverge_zopp_client::EnvironmentName;
use kube::core::{ObjectMeta, PartialObjectMeta};

use crate::{
    allow::{Rule, is_allowed},
    annotations::{Declaration, KEYS, RECORD, declaration},
    bindings::{Bindings, SecretRef, WatchedSecret},
    hub::{Hubs, Wake},
    memory::Memory,
};

/// Reason in the queue: the Secret changed in the cluster.
const SECRET: &str = "secret";
/// Reason in the queue: the environment changed, or can be read again.
const ENVIRONMENT: &str = "environment";

/// Returns the function that queues the Secrets of an environment. They come before all others, since somebody waits for the change.
pub fn wake(bindings: &Arc<Bindings>, queue: Queue<SecretRef>) -> Wake {
    // Bindings hold hubs and hubs hold this: were it not weak, neither would ever end.
    let bindings = Arc::downgrade(bindings);
    Arc::new(move |name: &EnvironmentName| {
        for key in bindings.upgrade().iter().flat_map(|bindings| bindings.bound_to(name)) {
            queue.add(key, Priority::High, ENVIRONMENT);
        }
    })
}

/// Keeps the bindings as the watch on Secrets shows them.
pub struct SecretHandler {
    /// The bindings to keep.
    pub bindings: Arc<Bindings>,
    /// Where bound environments are followed.
    pub hubs: Arc<Hubs>,
    /// The memory that recalls the records of the Secrets.
    pub memory: Arc<Memory>,
    /// Which namespaces may read which environments.
    pub rules: Vec<Rule>,
    /// Where the Secrets are queued.
    pub queue: Queue<SecretRef>,
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
            self.memory.recall(record);
        }
        let (Some(uid), Some(shown)) = (object.metadata.uid, object.metadata.resource_version) else { return false };
        let hub = match &declared {
            Declaration::Bound(name) if is_allowed(&self.rules, &key.namespace, name) => {
                Some(self.hubs.subscribe(name))
            }
            Declaration::Bound(_) | Declaration::Incomplete(_) => None,
        };
        let requests_keys = annotations.contains_key(KEYS);
        let seen = WatchedSecret { uid, shown, declared, hub: hub.clone(), requests_keys, record };
        if self.bindings.apply(key.clone(), seen, origin) {
            if let Some(hub) = hub {
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
        self.memory.load();
    }
}
