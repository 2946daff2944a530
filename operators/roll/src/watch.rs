//! From watches to the index, and from the index to work.
//!
//! Every workload, Secret and `ConfigMap` of the cluster passes through here, the latter two as metadata alone.

use std::{
    collections::HashSet,
    pin::pin,
    sync::{Arc, Mutex, PoisonError},
};

use futures::{Stream, StreamExt};
use jiff::Timestamp;
use konverge_apply::events::{EventSink, Notice};
use konverge_runtime::{
    Priority, Queue,
    watch::{Event, Guarded},
};
use konverge_workload::{SecretProviderClass, Workload, WorkloadKind};
use kube::{Resource, core::PartialObjectMeta, runtime::events::EventType};

use crate::{
    budget::Budget,
    index::{Index, Shows, Work},
    messages::Message,
    object::{SourceKind, SourceRef, WorkloadRef},
    reconcile::{ACTION, ROOM, is_over},
    trigger::{Shown, TriggerKind, TriggerRef},
};

/// Why something is looked at: it changed.
pub const OBJECT: &str = "object";
/// It is there since before we were.
pub const LISTED: &str = "listed";

/// Keeps the index as the watches show things.
#[derive(Clone)]
pub struct Feed {
    /// What to keep.
    pub index: Arc<Index>,
    /// Where rollouts that are over make room.
    pub budget: Arc<Mutex<Budget>>,
    /// Where workloads are left to be looked at.
    pub workloads: Queue<WorkloadRef>,
    /// Where sources are left to be read.
    pub sources: Queue<SourceRef>,
    /// Where objects that ask for rollouts are left to be told how they stand.
    pub triggers: Queue<TriggerRef>,
    /// Where events go.
    pub events: EventSink,
}

impl Feed {
    /// Follows the workloads of one kind, as long as there are events.
    pub async fn workloads(self, kind: WorkloadKind, events: impl Stream<Item = Event<Guarded<Workload>>>) {
        let mut events = pin!(events);
        let mut listed = HashSet::new();
        while let Some(event) = events.next().await {
            match event {
                Event::Init => listed.clear(),
                Event::InitApply(object) => listed.extend(self.show(kind, object, Priority::Low)),
                Event::InitDone => {
                    let (gone, work) = self.index.retain(kind, &std::mem::take(&mut listed));
                    for key in &gone {
                        self.drop_if_gone(key);
                        self.made_room(key);
                    }
                    self.leave(work, Priority::Normal, OBJECT);
                }
                Event::Apply(object) => drop(self.show(kind, object, Priority::Normal)),
                Event::Delete(object) => {
                    let metadata = object.meta();
                    let Some((namespace, name)) = metadata.namespace.clone().zip(metadata.name.clone()) else {
                        continue;
                    };
                    self.forget(&WorkloadRef { namespace, kind, name });
                }
            }
        }
    }

    /// Follows the Secrets or the `ConfigMaps`, as long as there are events.
    pub async fn sources<K: Resource>(self, kind: SourceKind, events: impl Stream<Item = Event<PartialObjectMeta<K>>>) {
        let mut events = pin!(events);
        // What the list that is being read has not shown yet.
        let mut missing = HashSet::new();
        while let Some(event) = events.next().await {
            match event {
                Event::Init => missing = self.index.sources_there(kind),
                Event::InitApply(object) => {
                    let (source, work) = self.index.show_source(kind, object.metadata);
                    if let Some(source) = source {
                        missing.remove(&source);
                    }
                    self.leave(work, Priority::Low, LISTED);
                }
                Event::InitDone => {
                    let work = self.index.retain_sources(std::mem::take(&mut missing));
                    self.leave(work, Priority::Normal, OBJECT);
                }
                Event::Apply(object) => {
                    let (_, work) = self.index.show_source(kind, object.metadata);
                    self.leave(work, Priority::High, OBJECT);
                }
                Event::Delete(object) => {
                    let metadata = object.metadata;
                    let Some((namespace, name)) = metadata.namespace.zip(metadata.name) else { continue };
                    let source = crate::object::SourceName { kind, name }.of(&namespace);
                    self.leave(self.index.forget_source(&source, Timestamp::now()), Priority::Normal, OBJECT);
                }
            }
        }
    }

    /// Follows the classes of the Secrets Store CSI driver, as long as there are events.
    pub async fn classes(self, events: impl Stream<Item = Event<Guarded<SecretProviderClass>>>) {
        let mut events = pin!(events);
        let mut listed = HashSet::new();
        let show = |object: Guarded<SecretProviderClass>, priority, reason| match object.0 {
            Ok(class) => {
                let (key, work) = self.index.show_class(class);
                self.leave(work, priority, reason);
                key
            }
            // It is there, and what was known of it stays.
            Err(undecodable) => undecodable.metadata.namespace.zip(undecodable.metadata.name),
        };
        while let Some(event) = events.next().await {
            match event {
                Event::Init => listed.clear(),
                Event::InitApply(object) => listed.extend(show(object, Priority::Low, LISTED)),
                Event::InitDone => {
                    let work = self.index.retain_classes(&std::mem::take(&mut listed));
                    self.leave(work, Priority::Normal, OBJECT);
                }
                Event::Apply(object) => drop(show(object, Priority::Normal, OBJECT)),
                Event::Delete(object) => {
                    let metadata = object.meta();
                    let Some(key) = metadata.namespace.clone().zip(metadata.name.clone()) else { continue };
                    self.leave(self.index.forget_class(&key), Priority::Normal, OBJECT);
                }
            }
        }
    }

    /// Follows objects that ask for rollouts of others, as long as there are events. `shown` is what one of them is to us.
    pub async fn triggers<K: Resource>(
        self,
        kind: TriggerKind,
        events: impl Stream<Item = Event<K>>,
        shown: impl Fn(K) -> Option<(TriggerRef, Shown)>,
    ) {
        let mut events = pin!(events);
        let mut listed = HashSet::new();
        let show = |object: K, shows, priority, reason| {
            let (key, shown) = shown(object)?;
            self.leave(self.index.show_trigger_by(shows, key.clone(), shown), priority, reason);
            Some(key)
        };
        while let Some(event) = events.next().await {
            match event {
                Event::Init => listed.clear(),
                Event::InitApply(object) => listed.extend(show(object, Shows::List, Priority::Low, LISTED)),
                Event::InitDone => {
                    let work = self.index.retain_triggers(kind, &std::mem::take(&mut listed));
                    self.leave(work, Priority::Normal, OBJECT);
                }
                Event::Apply(object) => drop(show(object, Shows::Event, Priority::Normal, OBJECT)),
                Event::Delete(object) => {
                    let Some((key, _)) = shown(object) else { continue };
                    let mut work = self.index.forget_trigger(&key);
                    // What is remembered of it goes with it.
                    work.triggers.insert(key);
                    self.leave(work, Priority::Normal, OBJECT);
                }
            }
        }
    }

    /// Objects of this kind that ask for rollouts there are none.
    pub fn no_triggers(&self, kind: TriggerKind) {
        self.leave(self.index.retain_triggers(kind, &HashSet::new()), Priority::Normal, OBJECT);
    }

    /// Returns which workload it is.
    fn show(&self, kind: WorkloadKind, object: Guarded<Workload>, priority: Priority) -> Option<WorkloadRef> {
        let workload = match object.0 {
            Ok(workload) => workload,
            Err(undecodable) => {
                // It is there, and what was known of it stays.
                let metadata = undecodable.metadata;
                let key = WorkloadRef { namespace: metadata.namespace?, kind, name: metadata.name? };
                tracing::warn!(object = %key, "is not what its kind says, and is left alone: {}", undecodable.error);
                return Some(key);
            }
        };
        let (shows, reason) = if priority == Priority::Low { (Shows::List, LISTED) } else { (Shows::Event, OBJECT) };
        let now = Timestamp::now();
        let (key, work) = self.index.show_by(shows, kind, workload, now);
        if let Some(key) = &key
            && let Some((stamp, since, progress)) = self.index.rollout(key)
        {
            let mut budget = self.budget.lock().unwrap_or_else(PoisonError::into_inner);
            let next = budget.seen(key, &stamp, (since, now), is_over(progress));
            drop(budget);
            self.room_for(next);
        }
        self.leave(work, priority, reason);
        key
    }

    fn forget(&self, key: &WorkloadRef) {
        let work = self.index.forget(key);
        self.drop_if_gone(key);
        self.made_room(key);
        self.leave(work, Priority::Normal, OBJECT);
    }

    fn made_room(&self, key: &WorkloadRef) {
        let next = self.budget.lock().unwrap_or_else(PoisonError::into_inner).done(key);
        self.room_for(next);
    }

    fn room_for(&self, next: Option<WorkloadRef>) {
        if let Some(next) = next {
            self.workloads.add(next, Priority::Normal, ROOM);
        }
    }

    /// On a standby, drops the key of a workload that is gone. Its place in the budget and in the waiting list is given up without a run. A
    /// leader keeps the key, because a run may have taken a place meanwhile.
    fn drop_if_gone(&self, key: &WorkloadRef) {
        self.workloads.remove_on_standby(key, || self.index.has(key));
    }

    /// The same for a source that no workload uses.
    fn drop_if_unused(&self, key: &SourceRef) {
        self.sources.remove_on_standby(key, || self.index.is_used(key));
    }

    /// Queues what is to be done. A standby keeps only keys of what is there, also if the watch of another kind has removed it meanwhile: no
    /// worker of its own has begun anything that would have to be ended.
    fn leave(&self, work: Work, priority: Priority, reason: &'static str) {
        for source in work.sources {
            self.sources.add(source.clone(), priority, reason);
            self.drop_if_unused(&source);
        }
        for source in work.unused {
            self.drop_if_unused(&source);
        }
        for workload in work.workloads {
            self.workloads.add(workload.clone(), priority, reason);
            self.drop_if_gone(&workload);
        }
        for trigger in work.triggers {
            self.triggers.add(trigger.clone(), priority, reason);
            self.triggers.remove_on_standby(&trigger, || self.index.has_trigger(&trigger));
        }
        if let Some((source, uid, invalid)) = work.invalid {
            let Message { reason, text, .. } = Message::invalid(&invalid);
            tracing::warn!(%source, reason, "{text}");
            let regarding = source.reference(&uid);
            self.events.send(Notice { regarding, kind: EventType::Warning, reason, action: ACTION, note: text });
        }
    }
}

#[cfg(test)]
mod tests;
