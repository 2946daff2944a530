//! From the watch on Secrets to bindings, and from bindings to work.
//!
//! Every Secret of the cluster passes through here, as metadata; what is not annotated leaves no trace.

use std::{collections::HashSet, pin::pin, sync::Arc};

use futures::{Stream, StreamExt};
use k8s_openapi::api::core::v1::Secret;
use konverge_runtime::{Priority, Queue, watch::Event};
use konverge_zopp_client::EnvironmentName;
use kube::core::PartialObjectMeta;

use crate::{
    allow::{Rule, is_allowed},
    annotations::{Declaration, declaration},
    bindings::{Bindings, SecretRef, Source},
    hub::{Hubs, Wake},
};

/// Why a Secret is looked at: something happened to it in the cluster.
const SECRET: &str = "secret";
/// Why a Secret is looked at: its environment changed, or can be read again.
const ENVIRONMENT: &str = "environment";

/// What wakes the Secrets that are bound to an environment. Before all others, since somebody waits for the change.
pub fn wake(bindings: &Arc<Bindings>, queue: Queue<SecretRef>) -> Wake {
    // Bindings hold hubs and hubs hold this: were it not weak, neither would ever end.
    let bindings = Arc::downgrade(bindings);
    Arc::new(move |name: &EnvironmentName| {
        for key in bindings.upgrade().iter().flat_map(|bindings| bindings.bound_to(name)) {
            queue.add(key, Priority::High, ENVIRONMENT);
        }
    })
}

/// Keeps the bindings as the watch shows them.
pub struct Feed {
    /// The index to keep.
    pub bindings: Arc<Bindings>,
    /// Where bound environments are followed.
    pub hubs: Arc<Hubs>,
    /// Which namespaces may have which environments.
    pub rules: Vec<Rule>,
    /// Where work is left.
    pub queue: Queue<SecretRef>,
}

impl Feed {
    /// Runs as long as there are events.
    pub async fn run(self, events: impl Stream<Item = Event<PartialObjectMeta<Secret>>>) {
        let mut events = pin!(events);
        let mut shown = HashSet::new();
        while let Some(event) = events.next().await {
            match event {
                Event::Init => shown.clear(),
                Event::InitApply(object) => shown.extend(self.show(object)),
                Event::InitDone => {
                    self.bindings.retain(&std::mem::take(&mut shown));
                    self.queue.retain(|key| self.bindings.get(key).is_some());
                }
                Event::Apply(object) => {
                    self.show(object);
                }
                Event::Delete(object) => {
                    if let Some(key) = key(&object) {
                        self.forget(&key);
                    }
                }
            }
        }
    }

    /// The Secret is gone or not bound any more: nothing is left to do for it, and a standby keeps no key of it.
    fn forget(&self, key: &SecretRef) {
        self.bindings.remove(key);
        self.queue.remove(key);
    }

    /// Returns which Secret it is if it is one of ours.
    fn show(&self, object: PartialObjectMeta<Secret>) -> Option<SecretRef> {
        let key = key(&object)?;
        let source = match declaration(&object.metadata.annotations.unwrap_or_default()) {
            Declaration::NotOurs => {
                self.forget(&key);
                return None;
            }
            Declaration::Incomplete { missing } => Source::Incomplete(missing),
            Declaration::Bound(name) if is_allowed(&self.rules, &key.namespace, &name) => {
                let hub = self.hubs.subscribe(&name);
                Source::Environment(name, hub)
            }
            Declaration::Bound(name) => Source::NotAllowed(name),
        };
        let (uid, version) = (object.metadata.uid?, object.metadata.resource_version?);
        if self.bindings.show(key.clone(), uid, version, source) {
            self.queue.add(key.clone(), Priority::Normal, SECRET);
        }
        Some(key)
    }
}

fn key(object: &PartialObjectMeta<Secret>) -> Option<SecretRef> {
    let (namespace, name) = (object.metadata.namespace.clone()?, object.metadata.name.clone()?);
    Some(SecretRef { namespace, name })
}
