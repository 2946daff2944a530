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
    annotations::{Declaration, KEYS, declaration},
    bindings::{Bindings, SecretRef, Source},
    hub::{Hubs, Wake},
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
    /// Which namespaces may read which environments.
    pub rules: Vec<Rule>,
    /// Where the Secrets are queued.
    pub queue: Queue<SecretRef>,
}

impl SecretHandler {
    /// Returns where the Secret's data is to come from, or `None` if it is not annotated.
    fn source(&self, namespace: &str, metadata: &ObjectMeta) -> Option<Source> {
        match metadata.annotations.as_ref().map(declaration)? {
            Declaration::NotOurs => None,
            Declaration::Incomplete { missing } => Some(Source::Incomplete(missing)),
            Declaration::Bound(name) if is_allowed(&self.rules, namespace, &name) => {
                let hub = self.hubs.subscribe(&name);
                Some(Source::Environment(name, hub))
            }
            Declaration::Bound(name) => Some(Source::NotAllowed(name)),
        }
    }
}

impl EventHandler<PartialObjectMeta<Secret>> for SecretHandler {
    type Key = SecretRef;

    fn key(&self, metadata: &ObjectMeta) -> Option<SecretRef> {
        Some(SecretRef { namespace: metadata.namespace.clone()?, name: metadata.name.clone()? })
    }

    fn apply(&mut self, key: &SecretRef, object: PartialObjectMeta<Secret>, origin: Origin) -> bool {
        let Some(source) = self.source(&key.namespace, &object.metadata) else {
            self.delete(key);
            return false;
        };
        let hub = if let Source::Environment(_, hub) = &source { Some(Arc::clone(hub)) } else { None };
        let requests_keys = object.metadata.annotations.is_some_and(|annotations| annotations.contains_key(KEYS));
        let (Some(uid), Some(version)) = (object.metadata.uid, object.metadata.resource_version) else { return false };
        let has_work = self.bindings.apply(key.clone(), uid, version, source, origin);
        self.bindings.set_requests_keys(key, requests_keys);
        if has_work {
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
    }
}
