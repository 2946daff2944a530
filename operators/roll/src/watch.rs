//! From watches to the index, and from the index to work.
//!
//! Every workload, Secret and `ConfigMap` of the cluster passes through here, the latter two as metadata alone.

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
    budget,
    index::{ClassRef, Shows, Work},
    messages,
    object::{SourceKind, SourceName, SourceRef, WorkloadRef},
    parts::Parts,
    spelling::{Settings, TriggerResource, watched},
    time::Time,
    trigger::{TriggerKind, TriggerRef},
    wakeups::{LISTED, OBJECT},
};

/// From what the watches show to the index, and from there to the queues.
impl Parts {
    /// No object of this kind requests rollouts.
    pub(crate) fn no_triggers(&self, kind: TriggerKind) {
        self.leave(self.index.retain_triggers(kind, &HashSet::new()), Priority::Normal, OBJECT);
    }

    /// Returns whether it is a workload that can be named.
    fn show(&self, kind: WorkloadKind, workload: Workload, origin: Origin) -> bool {
        let (shows, priority, reason) = told_by(origin);
        let now = Time::now();
        let (key, work) = self.index.show_by(shows, kind, workload, now);
        if let Some(key) = &key
            && let Some((stamp, rolled, progress)) = self.index.rollout(key)
        {
            let is_over = budget::is_over(progress);
            let next = self.budget().seen(key, &stamp, (now.recorded(rolled), now), is_over);
            self.queues.wake_next(next);
        }
        self.leave(work, priority, reason);
        key.is_some()
    }

    fn forget(&self, key: &WorkloadRef) {
        let work = self.index.forget(key);
        self.drop_if_gone(key);
        self.made_room(key);
        self.leave(work, Priority::Normal, OBJECT);
    }

    fn made_room(&self, key: &WorkloadRef) {
        let next = self.budget().done(key);
        self.queues.wake_next(next);
    }

    /// On a standby, drops the key of a workload that is gone. Its place in the budget and in the waiting list is given up without a run. A
    /// leader keeps the key, because a run may have taken a place meanwhile.
    fn drop_if_gone(&self, key: &WorkloadRef) {
        self.queues.workloads.remove_on_standby(key, || self.index.has(key));
    }

    /// The same for a source that no workload uses.
    fn drop_if_unused(&self, key: &SourceRef) {
        self.queues.sources.remove_on_standby(key, || self.index.is_used(key));
    }

    /// Queues what is to be done. A standby keeps only keys of what is there, also if the watch of another kind has removed it meanwhile: no
    /// worker of its own has begun anything that would have to be ended.
    fn leave(&self, work: Work, priority: Priority, reason: &'static str) {
        for source in work.sources {
            self.queues.sources.add(source.clone(), priority, reason);
            self.drop_if_unused(&source);
        }
        for source in work.unused {
            self.drop_if_unused(&source);
        }
        for workload in work.workloads {
            self.queues.workloads.add(workload.clone(), priority, reason);
            self.drop_if_gone(&workload);
        }
        for trigger in work.triggers {
            self.queues.triggers.add(trigger.clone(), priority, reason);
            self.queues.triggers.remove_on_standby(&trigger, || self.index.has_trigger(&trigger));
        }
        if let Some((source, uid, invalid)) = work.invalid {
            self.source_announcer.announce(&source, source.reference(&uid), &messages::invalid(&invalid));
        }
    }
}

/// How what is seen there counts, and how soon and why it is worked on.
fn told_by(origin: Origin) -> (Shows<'static>, Priority, &'static str) {
    match origin {
        Origin::List => (Shows::List, Priority::Low, LISTED),
        Origin::Watch => (Shows::Event, Priority::Normal, OBJECT),
    }
}

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
        self.parts.show(self.kind, workload, origin)
    }

    /// It is there, and what was known of it stays.
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
            parts.drop_if_gone(key);
            parts.made_room(key);
        }
        parts.leave(work, Priority::Normal, OBJECT);
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
        let (_, work) = self.parts.index.show_source(self.kind, object.metadata);
        let (priority, reason) = match origin {
            Origin::List => {
                self.missing.remove(source);
                (Priority::Low, LISTED)
            }
            Origin::Watch => (Priority::High, OBJECT),
        };
        self.parts.leave(work, priority, reason);
        false
    }

    fn delete(&mut self, source: &SourceRef) {
        self.parts.leave(self.parts.index.forget_source(source, Time::now()), Priority::Normal, OBJECT);
    }

    fn replace(&mut self, _: &HashSet<SourceRef>) {
        let work = self.parts.index.retain_sources(std::mem::take(&mut self.missing));
        self.parts.leave(work, Priority::Normal, OBJECT);
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
        let (_, priority, reason) = told_by(origin);
        let (key, work) = self.parts.index.show_class(class);
        self.parts.leave(work, priority, reason);
        key.is_some()
    }

    /// It is there, and what was known of it stays.
    fn undecodable(&mut self, _: &ClassRef, _: Undecodable, _: Origin) {}

    fn delete(&mut self, key: &ClassRef) {
        self.parts.leave(self.parts.index.forget_class(key), Priority::Normal, OBJECT);
    }

    fn replace(&mut self, listed: &HashSet<ClassRef>) {
        self.parts.leave(self.parts.index.retain_classes(listed), Priority::Normal, OBJECT);
    }
}

/// Handles the events of objects that ask for rollouts of others. An undecodable object is a trigger, too, and its status says so.
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
        let (shows, priority, reason) = told_by(origin);
        self.parts.leave(self.parts.index.show_trigger_by(shows, key, trigger), priority, reason);
        true
    }

    fn delete(&mut self, key: &TriggerRef) {
        let mut work = self.parts.index.forget_trigger(key);
        // The memory of it is removed with it.
        work.triggers.insert(key.clone());
        self.parts.leave(work, Priority::Normal, OBJECT);
    }

    fn replace(&mut self, listed: &HashSet<TriggerRef>) {
        self.parts.leave(self.parts.index.retain_triggers(K::KIND, listed), Priority::Normal, OBJECT);
    }
}

#[cfg(test)]
mod tests;
