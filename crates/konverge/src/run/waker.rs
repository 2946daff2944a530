//! The triggers of a controller's objects.

use std::{sync::Arc, time::Duration};

use futures::StreamExt;
use konverge_runtime::{
    Priority, Queue,
    cache::{Change, Index, Predicate, Store, Subscriber},
    object::{Object, ObjectKey},
};
use kube::{Resource, ResourceExt};

use crate::{
    annotations::RECONCILE_AT,
    deselected::{Deselected, exists},
    escaped::Escaped,
    finalizers::Finalizers,
    only::Only,
    owned::WakeOwner,
    setup::Setup,
    wakes::Trigger,
};

/// Puts objects into the queue of a controller.
pub(crate) struct Waker<K: Object> {
    pub(super) store: Store<K>,
    pub(super) queue: Queue<ObjectKey>,
    pub(super) debounce: Duration,
    /// Finds owners by their uid. Made only where there are children, since it costs something for each object.
    pub(super) by_uid: Option<Index<K, String>>,
    pub(super) deselected: Option<Arc<Deselected<K>>>,
    pub(super) escaped: Option<Arc<Escaped<K>>>,
}

impl<K: Object> Waker<K> {
    /// Whether there is an object of this name to work on.
    pub(super) fn is_there(&self, key: &ObjectKey) -> bool {
        exists(&self.store, key)
            || self.deselected.as_ref().is_some_and(|deselected| deselected.has(key))
            || self.escaped.as_ref().is_some_and(|escaped| escaped.has(key))
    }

    /// Others may name objects that do not exist. A key without an object would stay in the queue of a standby, which no worker empties.
    pub(super) fn wake(&self, key: ObjectKey, priority: Priority, reason: &'static str) {
        if self.is_there(&key) {
            self.queue.add_after(key, self.debounce, priority, reason);
        }
    }

    /// Wakes the object with this uid. Returns whether the controller knows it.
    pub(super) fn wake_owner(&self, uid: &str, priority: Priority, reason: &'static str) -> bool {
        let known = self.by_uid.iter().flat_map(|by_uid| by_uid.keys(&uid.to_owned()));
        let deselected = self.deselected.as_ref().and_then(|deselected| deselected.with_uid(uid));
        let owners: Vec<_> = known.chain(deselected).collect();
        let is_known = !owners.is_empty();
        for owner in owners {
            self.wake(owner, priority, reason);
        }
        is_known
    }

    /// Wakes the owners of children that changed.
    pub(super) fn wake_owners(self: &Arc<Self>) -> WakeOwner {
        let waker = Arc::clone(self);
        Arc::new(move |owner_uid, listed| {
            let priority = if listed { Priority::Low } else { Priority::Normal };
            waker.wake_owner(owner_uid, priority, "child");
        })
    }

    /// Wakes objects of the controller's own kind when they change.
    pub(super) fn follow(
        self: &Arc<Self>,
        predicate: Predicate<K>,
        only: Option<Only<K>>,
        finalizers: Option<Finalizers>,
    ) -> Subscriber {
        let waker = Arc::clone(self);
        // The run of an object that is not understood reports what is wrong with it.
        self.store.when_undecodable(move |key| waker.wake(key.clone(), Priority::Normal, "undecodable"));
        let waker = Arc::clone(self);
        self.store.subscribe(move |key, change| {
            if change.new.is_none() {
                // An object that is gone needs no run: the garbage collector deletes its children, or they were deleted before the finalizer was
                // removed.
                waker.queue.remove_unless(key, || waker.is_there(key));
                if let Some(escaped) = &waker.escaped {
                    escaped.left(key, change);
                }
                if let Some(deselected) = &waker.deselected {
                    deselected.left(key, change);
                }
            } else if predicate.admits(change) && concerns(only.as_ref(), finalizers.as_ref(), change) {
                let (priority, reason, is_new_wish) = meaning(change);
                if is_new_wish {
                    waker.queue.forget_failures(key);
                }
                waker.wake(key.clone(), priority, reason);
            }
        })
    }

    /// Wakes the objects that a stream names.
    pub(super) fn follow_trigger(self: &Arc<Self>, trigger: Trigger<K>, setup: &mut Setup) {
        let (keys, name) = ((trigger.stream)(setup, self.store.clone()), trigger.name);
        let waker = Arc::clone(self);
        let run = keys.for_each(move |key| {
            waker.wake(key, Priority::High, name);
            std::future::ready(())
        });
        // A stream that ends has nothing more to say, which is no reason for the program to end.
        let task = async move {
            run.await;
            tracing::warn!(trigger = name, "the trigger's stream has ended");
            std::future::pending::<()>().await;
        };
        if trigger.on_standbys {
            setup.manager.task(name, task);
        } else {
            setup.manager.leader_task(name, task);
        }
    }
}

/// Whether a change is any business of the controller: the object is or was one of those it is about, or still has our finalizer.
fn concerns<K: Resource>(only: Option<&Only<K>>, finalizers: Option<&Finalizers>, change: &Change<K>) -> bool {
    let Some(new) = &change.new else { return false };
    let is_ours = |object: &K| only.is_none_or(|only| only(object));
    is_ours(new)
        || change.old.as_ref().is_some_and(|old| is_ours(old))
        || finalizers.is_some_and(|finalizers| finalizers.hold(&**new))
}

/// How urgent a change is, what it is called, and whether earlier failures say nothing about what comes now.
fn meaning<K: Resource>(change: &Change<K>) -> (Priority, &'static str, bool) {
    let annotation = |object: &Arc<K>| object.annotations().get(RECONCILE_AT).cloned();
    match (&change.old, &change.new) {
        (Some(old), Some(new)) if annotation(old) != annotation(new) => (Priority::High, "reconcile-now", true),
        (Some(old), Some(new)) => (Priority::Normal, "changed", old.meta().generation != new.meta().generation),
        _ if change.listed => (Priority::Low, "listed", false),
        _ => (Priority::Normal, "created", true),
    }
}
