//! A controller at work: what wakes it, and what happens around the author's code in each run.

mod failure;
mod told;

use std::sync::Arc;

use futures::{
    FutureExt, StreamExt,
    future::{BoxFuture, join_all},
};
use konverge_apply::{Applier, ApplyError, Writable};
use konverge_core::reasons;
use konverge_runtime::{
    Action, Priority, Queue, Reconciler, Request,
    cache::{Change, Index, Store},
    controller::{self, Dropped},
    lease::Elector,
    object::{Object, ObjectKey},
};
use kube::{Resource, ResourceExt, runtime::events::EventType};

use crate::{
    children::Wake as WakeOwner,
    context::{Context, Shared},
    controller::{Controller, How, Only, Retry, Trigger, Wake},
    finalizers::Finalizers,
    operator::{Setup, StartError},
    reconcile::{Cleanup, Reconcile},
    report::Verdict,
    resync,
    schedule::Schedule,
    witness::Stores,
};
use failure::{Failure, RunError};
use told::Told;

/// Annotation: set to `true`, the object is left alone until it is taken away, except for its deletion.
pub const PAUSED: &str = "konverge.dev/paused";
/// Annotation: each new value makes the object be looked at at once.
pub const RECONCILE_AT: &str = "konverge.dev/reconcile-at";

/// A controller whose caches and queue are made, before anything runs.
pub(crate) struct Prepared<K: Object, R> {
    pub(crate) engine: Engine<K, R>,
    queue: Queue<ObjectKey>,
    /// Ends when all its caches are complete.
    pub(crate) synced: BoxFuture<'static, ()>,
    /// What asks for a lease of its own, if it has one.
    elector: Option<Elector>,
    how: How,
}

/// Puts a controller into a program.
pub(crate) fn install<K: Object + Writable, R: Reconcile<K>>(
    controller: Controller<K, R>,
    setup: &mut Setup,
) -> Result<(), StartError> {
    let Prepared { engine, queue, synced, elector, how } = prepare(controller, setup)?;
    let How { workers, time_limit, backoff, rate, resync, schedules, .. } = how;
    let shared = Arc::clone(&engine.shared);
    let again = resync::turns(shared.cache.store.clone(), resync, engine.only.clone(), queue.clone());
    setup.manager.task(format!("resync {}", shared.name), again);
    for schedule in schedules {
        let failed = |source| StartError::Schedule { controller: shared.name.clone(), source };
        let schedule: Schedule = schedule.parse().map_err(failed)?;
        let store = shared.cache.store.clone();
        let runs = schedule.request_runs(store, engine.only.clone(), queue.clone(), k8s_openapi::jiff::Timestamp::now);
        setup.manager.task(format!("schedule {}", shared.name), runs);
    }
    let mut controller = controller::Controller::new(Arc::new(engine), queue, setup.metrics.controllers())
        .workers(workers)
        .time_limit(time_limit)
        .backoff(backoff)
        .ready(synced);
    if let Some(rate) = rate {
        controller = controller.rate(rate);
    }
    match elector {
        Some(elector) => setup.manager.controller_with_lease(shared.name.clone(), controller, elector),
        None => setup.manager.controller(shared.name.clone(), controller),
    }
    Ok(())
}

/// Makes the caches, the queue and the engine of a controller.
pub(crate) fn prepare<K: Object + Writable, R: Reconcile<K>>(
    controller: Controller<K, R>,
    setup: &mut Setup,
) -> Result<Prepared<K, R>, StartError> {
    let Controller { reconciler, kind, name, selection, predicate, only, finalizers, report, children, .. } =
        controller;
    let (triggers, caching, how) = (controller.triggers, controller.caching, controller.how);
    let retry = controller.retry;
    let applier = setup.applier.clone();
    let applier = controller.field_manager.map_or(applier.clone(), |manager| applier.with_manager(manager));
    let field_manager = applier.manager().to_owned();
    let caching = caching.field_manager(&field_manager);
    let name = name.unwrap_or_else(|| K::plural(&kind).into_owned());
    let finalizers = finalizers.map(|finalizers| Finalizers { former: controller.former_finalizers, ..finalizers });
    if finalizers.is_none() && children.iter().any(|child| child.is_anywhere) {
        return Err(StartError::NeedsFinalizer { controller: name });
    }
    let selection = setup.narrowed(selection);
    let cache = setup.caches.cache_as::<K>(&kind, &selection, &caching);
    let queue = Queue::new(&name, setup.metrics.queues())
        .with_rest(how.rest)
        .with_namespaces(|key: &ObjectKey| key.namespace.as_deref().unwrap_or_default());
    setup.show_queue(&queue);

    let is_there = {
        let store = cache.store.clone();
        move |key: &ObjectKey| exists(&store, key)
    };
    // Others may name objects that do not exist. A key without an object would stay in the queue of a standby, which no worker empties.
    let wake = {
        let (queue, debounce, is_there) = (queue.clone(), how.debounce, is_there.clone());
        Arc::new(move |key: ObjectKey, priority, reason| {
            if is_there(&key) {
                queue.add_after(key, debounce, priority, reason);
            }
        })
    };
    let mut stores = Stores::default();
    let subscriber = {
        let (queue, wake, only, finalizers) = (queue.clone(), Arc::clone(&wake), only.clone(), finalizers.clone());
        cache.store.subscribe(move |key, change| {
            if change.new.is_none() {
                // What is gone needs nothing more: its children go by their owner references, or went before the finalizer did.
                queue.remove_unless(key, || is_there(key));
            } else if predicate.admits(change) && concerns(only.as_ref(), finalizers.as_ref(), change) {
                let (priority, reason, is_new_wish) = meaning(change);
                if is_new_wish {
                    queue.forget_failures(key);
                }
                wake(key.clone(), priority, reason);
            }
        })
    };
    stores.add(&kind, cache.store.clone(), subscriber);
    // Whoever leads says what is wrong with it.
    cache.store.when_undecodable({
        let wake = Arc::clone(&wake);
        move |key| wake(key.clone(), Priority::Normal, "undecodable")
    });

    // Made only where there are children, since it costs something for each object.
    let by_uid = (!children.is_empty()).then(|| cache.store.index(|object: &K| object.uid().into_iter().collect()));
    let mut synced = vec![{
        let cache = cache.clone();
        async move { cache.synced().await }.boxed()
    }];
    let mut kinds = Vec::new();
    for child in children {
        let namespaces = if child.is_anywhere { &[] } else { selection.namespaces.as_slice() };
        let kind = (child.begin)(setup, namespaces, &field_manager);
        kind.subscribe(&mut stores, wake_owners(by_uid.clone(), Arc::clone(&wake)));
        synced.push(kind.synced());
        kinds.push(kind);
    }
    let mut watched = Vec::new();
    for begin in controller.watches {
        let declared = begin(setup, Wake { cache: cache.clone(), add: wake.clone() });
        synced.push(declared.synced);
        watched.push(declared.cache);
    }
    for trigger in triggers {
        begin_trigger(trigger, setup, &cache.store, Arc::clone(&wake));
    }

    let elector = if how.has_own_lease { setup.elector_of(&name)? } else { None };
    let applier = elector.as_ref().map_or(applier, |elector| gated(elector, setup, &field_manager));
    let applier = applier.with_witness(Arc::new(stores));
    let shared = Arc::new(Shared {
        name: name.clone(),
        kind,
        cache,
        applier,
        events: setup.events.clone(),
        report,
        children: kinds,
        watched,
        flags: setup.flags.clone(),
        finalizers,
        owner_keys: setup.owner_keys.clone(),
        unproven: std::sync::Mutex::default(),
    });
    crate::metrics::measure(&setup.metrics, &setup.object_metrics, &shared);
    let synced = join_all(synced).map(|_all| ()).boxed();
    Ok(Prepared {
        engine: Engine { shared, reconciler, only, retry, told: Told::default() },
        queue,
        synced,
        elector,
        how,
    })
}

/// An applier whose writes wait for the lease of the controller instead of the program's.
fn gated(elector: &Elector, setup: &Setup, field_manager: &str) -> Applier {
    Applier::new(elector.leadership().gate(setup.client_of_each_replica().clone()), field_manager)
}

/// Wakes the owner of a child that changed, if it is an object of the controller.
fn wake_owners<K: Object>(
    by_uid: Option<Index<K, String>>,
    wake: Arc<impl Fn(ObjectKey, Priority, &'static str) + Send + Sync + 'static>,
) -> WakeOwner {
    Box::new(move |owner_uid: &str, listed| {
        let priority = if listed { Priority::Low } else { Priority::Normal };
        for owner in by_uid.iter().flat_map(|by_uid| by_uid.keys(&owner_uid.to_owned())) {
            wake(owner, priority, "child");
        }
    })
}

/// Wakes the objects that a stream names.
fn begin_trigger<K: Object>(
    trigger: Trigger<K>,
    setup: &mut Setup,
    store: &Store<K>,
    wake: Arc<impl Fn(ObjectKey, Priority, &'static str) + Send + Sync + 'static>,
) {
    let (keys, name) = ((trigger.stream)(setup, store.clone()), trigger.name);
    let run = keys.for_each(move |key| {
        wake(key, Priority::High, name);
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

/// Whether the API server has the object, as far as the cache knows, be it understood or not.
pub(crate) fn exists<K: Object>(store: &Store<K>, key: &ObjectKey) -> bool {
    store.get(key).is_some() || store.why_undecodable(key).is_some()
}

/// Whether a change is any business of the controller: the object is or was one of those it is about, or still has our finalizer.
fn concerns<K: Resource>(only: Option<&Only<K>>, finalizers: Option<&Finalizers>, change: &Change<K>) -> bool {
    // What is gone needs nothing more: its children go by their owner references, or went before the finalizer did.
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

/// What surrounds the author's code.
pub(crate) struct Engine<K: Object, R> {
    shared: Arc<Shared<K>>,
    reconciler: R,
    only: Option<Only<K>>,
    retry: Option<Retry<K>>,
    told: Told,
}

impl<K: Object + Writable, R: Reconcile<K>> Reconciler for Engine<K, R> {
    type Key = ObjectKey;
    type Error = RunError<R::Error>;

    async fn reconcile(&self, request: Request<ObjectKey>) -> Result<Action, Self::Error> {
        if let Some(undecodable) = self.shared.cache.store.why_undecodable(&request.key) {
            // What is known of it is from before, and no reason to do anything.
            if let Some(notice) = self.told.notice::<K>(&self.shared.kind, &request.key, &undecodable) {
                self.shared.events.send(notice);
            }
            return Ok(Action::Done);
        }
        self.told.forget(&request.key);
        let Some(object) = self.shared.cache.store.get(&request.key) else { return Ok(Action::Done) };
        let is_ours = self.only.as_ref().is_none_or(|only| only(&object));
        let context = |object| Context::new(Arc::clone(&self.shared), object, request.attempt, request.reasons.clone());
        let is_released = object.meta().deletion_timestamp.is_some() || !is_ours;
        if !is_released && is_paused(&*object) {
            tracing::debug!("paused by its annotation {PAUSED}");
            return Ok(Action::Done);
        }
        if !self.shared.children.is_empty()
            && let Err(error) = self.shared.owner_keys.load().await
        {
            if is_ours {
                self.report(&context(object), Some(Failure::of(&error))).await?;
            }
            return Err(error.into());
        }
        if is_released {
            return self.release(context(object)).await;
        }
        let context = context(self.held(object).await?);
        let result = self.reconciler.apply(Arc::clone(context.object()), context.clone()).await;
        let result = result.map_err(|error| self.failed(error, &context));
        let failure = result.as_ref().err().map(Failure::of);
        if request.attempt == 1 && failure.as_ref().is_some_and(Failure::is_of_the_api_server) {
            // To report it takes the API server, which mostly answers again by the next attempt.
            return result;
        }
        let reported = self.report(&context, failure).await;
        let action = result?;
        reported?;
        Ok(action)
    }

    async fn dropped(&self, key: &ObjectKey, why: &Dropped) {
        let Some(object) = self.shared.cache.store.get(key) else { return };
        let (reason, message) = match why {
            Dropped::TimedOut(limit) => (reasons::TIMED_OUT, format!("took longer than {limit:?}")),
            Dropped::Panicked(cause) => (reasons::PANICKED, format!("a bug in the operator: {cause}")),
        };
        let failure = Failure { reason, message, is_stalled: false, is_told_again: false };
        let context = Context::new(Arc::clone(&self.shared), object, 1, [].into());
        if let Err(error) = self.report(&context, Some(failure)).await {
            tracing::warn!(error = &error as &dyn std::error::Error, "cannot write the status");
        }
    }
}

impl<K: Object + Writable, R: Reconcile<K>> Engine<K, R> {
    /// The object with our finalizer on it, where the controller has one that every object gets, and without those of earlier releases.
    async fn held(&self, mut object: Arc<K>) -> Result<Arc<K>, ApplyError> {
        let Shared { finalizers, applier, kind, .. } = &*self.shared;
        let Some(finalizers) = finalizers.as_ref().filter(|finalizers| finalizers.is_due(&*object)) else {
            return Ok(object);
        };
        if let Some(held) = applier.add_finalizer_with(&*object, finalizers.name, kind).await? {
            object = Arc::new(held);
        }
        for former in &finalizers.former {
            if let Some(after) = applier.remove_finalizer_with(&*object, former, kind).await? {
                object = Arc::new(after);
            }
        }
        Ok(object)
    }

    /// The failure of the author's code, with the pause that the author's hook chooses.
    fn failed(&self, error: R::Error, context: &Context<K>) -> RunError<R::Error> {
        match self.retry.as_ref().and_then(|retry| retry(&error, context.object(), context.attempt())) {
            Some(pause) => RunError::Delayed { error, pause },
            None => RunError::Author(error),
        }
    }

    /// Lets go of an object that is being deleted or is not ours any more.
    async fn release(&self, context: Context<K>) -> Result<Action, RunError<R::Error>> {
        let Shared { finalizers, applier, kind, .. } = &*self.shared;
        let mut object = Arc::clone(context.object());
        let Some(finalizers) = finalizers.as_ref().filter(|finalizers| finalizers.hold(&*object)) else {
            return Ok(Action::Done);
        };
        let cleaned = match self.reconciler.finalize(Arc::clone(&object), context.clone()).await {
            Ok(Cleanup::Pending { after, reason, message }) => {
                context.progressing(reason, message);
                self.report(&context, None).await?;
                return Ok(Action::After(after));
            }
            Ok(Cleanup::Done) => context.children().delete_all().await.map_err(RunError::Engine),
            Err(error) => Err(self.failed(error, &context)),
        };
        if let Err(error) = cleaned {
            self.report(&context, Some(Failure::of(&error))).await?;
            return Err(error);
        }
        let claim = context.claim()?;
        for kind in &self.shared.children {
            if kind.has_any(&claim)? {
                // The last of them wakes us when it goes.
                return Ok(Action::Done);
            }
        }
        for finalizer in finalizers.names() {
            if let Some(after) = applier.remove_finalizer_with(&*object, finalizer, kind).await? {
                object = Arc::new(after);
            }
        }
        Ok(Action::Done)
    }

    /// Says how the run ended, in the status, and in an event if that says something new or a refusal goes on.
    async fn report(&self, context: &Context<K>, failure: Option<Failure>) -> Result<(), ApplyError> {
        let verdict = match &failure {
            Some(failure) => failure.verdict(),
            None => context.said().verdict().unwrap_or_else(Verdict::success),
        };
        // Without a status of our own, the log and the events have to do; repeated ones become a series.
        let is_news = context.report_status(Some(&verdict)).await?.unwrap_or(true);
        if let Some(Failure { reason, message, is_told_again, .. }) = failure
            && (is_news || is_told_again)
        {
            context.event(EventType::Warning, reason, "Reconcile", message);
        }
        Ok(())
    }
}

fn is_paused<K: Resource>(object: &K) -> bool {
    object.annotations().get(PAUSED).is_some_and(|paused| paused == "true")
}
