//! The event handlers of the informers. Every workload, Secret and `ConfigMap` of the cluster passes through here, the latter two as metadata alone.

use std::{collections::HashSet, sync::Arc};

use konverge_runtime::{
    Priority,
    watch::{EventHandler, Guarded, Origin, Undecodable},
};
use konverge_workload::{SecretProviderClass, Workload, WorkloadKind};
use kube::{
    Resource,
    core::{ObjectMeta, PartialObjectMeta},
};

use crate::{
    convert::{Settings, TriggerResource, watched},
    index::ClassRef,
    object::{SourceKind, SourceName, SourceRef, WorkloadRef},
    parts::{LISTED, OBJECT, Parts, origin_of},
    time::Time,
    trigger::TriggerRef,
};

/// Handles the events of the workloads of one kind.
pub struct Workloads {
    /// The shared parts.
    pub parts: Arc<Parts>,
    /// The kind.
    pub kind: WorkloadKind,
}

impl EventHandler<Workload> for Workloads {
    type Key = WorkloadRef;

    fn key(&self, metadata: &ObjectMeta) -> Option<WorkloadRef> {
        Some(WorkloadRef { namespace: metadata.namespace.clone()?, kind: self.kind, name: metadata.name.clone()? })
    }

    fn apply(&mut self, _: &WorkloadRef, workload: Workload, origin: Origin) -> bool {
        self.parts.apply_workload(self.kind, workload, origin)
    }

    /// The workload still exists, so its last known state stays.
    fn undecodable(&mut self, key: &WorkloadRef, object: Undecodable, _: Origin) {
        tracing::warn!(object = %key, "is not what its kind says, and is left alone: {}", object.error);
    }

    fn delete(&mut self, key: &WorkloadRef) {
        self.parts.forget(key);
    }

    fn replace(&mut self, listed: &HashSet<WorkloadRef>) {
        let Self { parts, kind } = self;
        let (gone, work) = parts.index.retain(*kind, listed);
        for key in &gone {
            parts.forget_key(key);
        }
        parts.enqueue(work, Priority::Normal, OBJECT);
    }
}

/// Handles the events of the Secrets or the `ConfigMaps`.
pub struct Sources {
    parts: Arc<Parts>,
    kind: SourceKind,
    /// The known sources that the list that is being read has not shown yet.
    missing: HashSet<SourceRef>,
}

impl Sources {
    /// Handles the sources of one kind.
    pub fn new(parts: Arc<Parts>, kind: SourceKind) -> Self {
        Self { parts, kind, missing: HashSet::new() }
    }
}

impl<K: Resource> EventHandler<PartialObjectMeta<K>> for Sources {
    type Key = SourceRef;

    fn key(&self, metadata: &ObjectMeta) -> Option<SourceRef> {
        let name = SourceName { kind: self.kind, name: metadata.name.clone()? };
        Some(name.of(metadata.namespace.as_deref()?))
    }

    fn begin_list(&mut self) {
        self.missing = self.parts.index.sources_there(self.kind);
    }

    /// Keeps no key for the list: a source that comes into use after the list has shown it is not missing.
    fn apply(&mut self, source: &SourceRef, object: PartialObjectMeta<K>, origin: Origin) -> bool {
        let (_, work) = self.parts.index.apply_source(self.kind, object.metadata);
        let (priority, reason) = match origin {
            Origin::List => {
                self.missing.remove(source);
                (Priority::Low, LISTED)
            }
            Origin::Watch => (Priority::High, OBJECT),
        };
        self.parts.enqueue(work, priority, reason);
        false
    }

    fn delete(&mut self, source: &SourceRef) {
        self.parts.enqueue(self.parts.index.forget_source(source, Time::now()), Priority::Normal, OBJECT);
    }

    fn replace(&mut self, _: &HashSet<SourceRef>) {
        let work = self.parts.index.retain_sources(std::mem::take(&mut self.missing));
        self.parts.enqueue(work, Priority::Normal, OBJECT);
    }
}

/// Handles the events of the classes of the Secrets Store CSI driver.
pub struct Classes {
    /// The shared parts.
    pub parts: Arc<Parts>,
}

impl EventHandler<SecretProviderClass> for Classes {
    type Key = ClassRef;

    fn key(&self, metadata: &ObjectMeta) -> Option<ClassRef> {
        metadata.namespace.clone().zip(metadata.name.clone())
    }

    fn apply(&mut self, _: &ClassRef, class: SecretProviderClass, origin: Origin) -> bool {
        let (_, priority, reason) = origin_of(origin);
        let (key, work) = self.parts.index.apply_class(class);
        self.parts.enqueue(work, priority, reason);
        key.is_some()
    }

    /// The class still exists, so its last known state stays.
    fn undecodable(&mut self, _: &ClassRef, _: Undecodable, _: Origin) {}

    fn delete(&mut self, key: &ClassRef) {
        self.parts.enqueue(self.parts.index.forget_class(key), Priority::Normal, OBJECT);
    }

    fn replace(&mut self, listed: &HashSet<ClassRef>) {
        self.parts.enqueue(self.parts.index.retain_classes(listed), Priority::Normal, OBJECT);
    }
}

/// Handles the events of triggers. An undecodable object is a trigger, too, and its status says so.
pub struct Triggers {
    /// The shared parts.
    pub parts: Arc<Parts>,
    /// How their specs are read.
    pub settings: Arc<Settings>,
}

impl<K: TriggerResource> EventHandler<Guarded<K>> for Triggers {
    type Key = TriggerRef;

    fn key(&self, metadata: &ObjectMeta) -> Option<TriggerRef> {
        Some(TriggerRef { kind: K::KIND, namespace: metadata.namespace.clone()?, name: metadata.name.clone()? })
    }

    fn apply(&mut self, _: &TriggerRef, object: Guarded<K>, origin: Origin) -> bool {
        let Some((key, trigger)) = watched(object, &self.settings) else { return false };
        let (shows, priority, reason) = origin_of(origin);
        self.parts.enqueue(self.parts.index.apply_trigger(shows, key, trigger), priority, reason);
        true
    }

    fn delete(&mut self, key: &TriggerRef) {
        let mut work = self.parts.index.forget_trigger(key);
        // The memory of it is removed with it.
        work.triggers.insert(key.clone());
        self.parts.enqueue(work, Priority::Normal, OBJECT);
    }

    fn replace(&mut self, listed: &HashSet<TriggerRef>) {
        self.parts.enqueue(self.parts.index.retain_triggers(K::KIND, listed), Priority::Normal, OBJECT);
    }
}

#[cfg(test)]
mod tests;
