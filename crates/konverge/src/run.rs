//! A controller at work: what wakes it, and what happens around the author's code in each run.

mod failure;
mod undecodable_reports;
mod waker;

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::{
    FutureExt,
    future::{BoxFuture, join_all},
};
use konverge_apply::{Applier, ApplyError, Writable};
use konverge_core::{error::in_one_line, reasons};
use konverge_runtime::{
    Action, Priority, Queue, Reconciler, Request,
    cache::{Cache, Caching, Selection},
    controller::{self, Aborted},
    lease::{Elector, Leadership},
    object::{Object, ObjectKey},
    queue::PERIODIC,
};
use kube::{ResourceExt, runtime::events::EventType};

use crate::{
    annotations::{PAUSED, is_paused},
    context::{Context, Shared},
    controller::{Controller, How, Retry},
    deselected::{Deselected, Found},
    escaped::Escaped,
    finalizers::Finalizers,
    inventory::{FormerChildren, Inventory},
    leading::Leading,
    only::Only,
    owned::{OwnedChildren, OwnedKinds},
    owner_keys::OwnerKeys,
    reconcile::{Cleanup, Reconcile},
    report::Verdict,
    resync,
    schedule::Schedule,
    setup::Setup,
    start_error::StartError,
    wakes::{Wake, Wakes},
    watch::Watch,
    watched::WatchedCache,
    write_observer::Stores,
};
use failure::{Failure, RunError};
use undecodable_reports::UndecodableReports;
use waker::Waker;

/// A controller whose caches and queue are made, before anything runs.
pub(crate) struct Prepared<K: Object, R> {
    pub(crate) engine: Engine<K, R>,
    waker: Arc<Waker<K>>,
    inventory: Option<Inventory>,
    /// Set when the first run may begin.
    leading: Leading,
    /// Ends when all its caches are complete.
    pub(crate) synced: BoxFuture<'static, ()>,
    /// The elector of its own lease, if it has one.
    elector: Option<Elector>,
    how: How,
}

/// Puts a controller into a program.
pub(crate) fn install<K: Object + Writable, R: Reconcile<K>>(
    controller: Controller<K, R>,
    setup: &mut Setup,
) -> Result<(), StartError> {
    let Prepared { engine, waker, inventory, synced, leading, elector, how } = prepare(controller, setup)?;
    let How { workers, time_limit, backoff, rate, resync, schedules, .. } = how;
    let (shared, queue) = (Arc::clone(&engine.shared), waker.queue.clone());
    let is_there = move |key: &ObjectKey| waker.is_there(key);
    let again = resync::turns(shared.cache.store.clone(), resync, engine.only.clone(), queue.clone(), is_there);
    setup.manager.task(format!("resync {}", shared.name), again);
    if let Some(deselected) = engine.deselected.clone() {
        setup.manager.task(format!("deselected {}", shared.name), deselected.search(resync));
    }
    if let Some(inventory) = inventory {
        setup.manager.task(format!("inventory {}", shared.name), inventory.keep());
    }
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
        .ready(synced.map(move |()| leading.begin()));
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
    let Controller {
        reconciler, name, watch, only, field_manager, retry, finalizers, report, owned, wakes, how, ..
    } = controller;
    let Watch { kind, selection, caching, predicate } = watch;
    let name = name.unwrap_or_else(|| K::plural(&kind).into_owned());
    let writes = Writes::new(&name, field_manager, how.has_own_lease, setup)?;
    let finalizers = finalizers.in_force();
    if finalizers.is_none() && owned.need_finalizer() {
        return Err(StartError::NeedsFinalizer { controller: name });
    }
    let caching = caching.field_manager(writes.applier.manager());
    let base = Base::begin(name, &kind, &caching, selection, how.rest, setup);
    let deselected = finalizers.clone().and_then(|finalizers| base.deselected(&kind, finalizers, &writes, setup));
    let escaped = finalizers.clone().map(|finalizers| base.escaped(finalizers));
    let has_children = !owned.is_empty();
    let waker = Arc::new(base.waker(how.debounce, has_children, deselected.clone(), escaped.clone()));
    let subscriber = waker.follow(predicate, only.clone(), finalizers.clone());
    let inventory = has_children.then(|| base.inventory(&owned, &writes, Arc::clone(&waker)));
    let Base { name, cache, selection, leading, .. } = base;

    let mut stores = Stores::of::<K>(&kind);
    let manager = writes.applier.manager();
    let children = owned.begin(&selection.namespaces, manager, &waker.wake_owners(), &mut stores, setup);
    let (watched, mut synced) = begin_wakes(wakes, &cache, &waker, setup);
    synced.extend(children.iter().map(|kind| kind.synced()));
    synced.push(synced_cache(cache.clone()));

    let applier_past_cache = writes.applier.clone().with_write_observer(Arc::new(stores.clone()));
    stores.add(&kind, cache.store.clone(), subscriber);
    let former_children = inventory.as_ref().map(|inventory| inventory.children.clone());
    let shared = Arc::new(Shared {
        name,
        kind,
        cache,
        applier: writes.applier.with_write_observer(Arc::new(stores)),
        applier_past_cache,
        events: setup.events.clone(),
        report,
        children: OwnedChildren::new(children, has_children, writes.owner_keys, former_children),
        watched,
        flags: setup.settings.flags.clone(),
        finalizers,
        leadership: writes.leadership,
    });
    let standard = shared.report.as_ref().map(|report| report.standard);
    crate::metrics::measure(&setup.metrics, &setup.series.objects, &shared.name, &shared.cache.store, standard);
    let engine = Engine {
        shared,
        reconciler,
        only,
        retry,
        undecodable_reports: UndecodableReports::default(),
        deselected,
        escaped,
    };
    let synced = join_all(synced).map(|_all| ()).boxed();
    Ok(Prepared { engine, waker, inventory, leading, synced, elector: writes.elector, how })
}

/// Ends when the cache is complete.
fn synced_cache<K: Object>(cache: Cache<K>) -> BoxFuture<'static, ()> {
    async move { cache.synced().await }.boxed()
}

/// The cache and the queue of a controller, before anything wakes it.
struct Base<K: Object> {
    name: String,
    cache: Cache<K>,
    queue: Queue<ObjectKey>,
    /// Without `--selector`.
    of_the_author: Selection,
    selection: Selection,
    leading: Leading,
}

impl<K: Object + Writable> Base<K> {
    fn begin(
        name: String,
        kind: &K::DynamicType,
        caching: &Caching<K>,
        selection: Selection,
        rest: Duration,
        setup: &mut Setup,
    ) -> Self {
        let of_the_author = setup.within(selection);
        let selection = setup.narrowed(of_the_author.clone());
        let cache = setup.caches.cache_as::<K>(kind, &selection, caching);
        let queue = Queue::new(&name, setup.metrics.queues())
            .with_min_interval(rest)
            .with_namespaces(|key: &ObjectKey| key.namespace.as_deref().unwrap_or_default());
        setup.show_queue(&queue);
        Self { name, cache, queue, of_the_author, selection, leading: Leading::default() }
    }

    /// The search for objects that leave the selection with our finalizer. Returns `None` if no object can leave it.
    fn deselected(
        &self,
        kind: &K::DynamicType,
        finalizers: Finalizers,
        writes: &Writes,
        setup: &Setup,
    ) -> Option<Arc<Deselected<K>>> {
        // Nothing leaves a selection of everything.
        let is_selective = self.selection.label_selector.is_some() || self.selection.field_selector.is_some();
        is_selective.then(|| {
            Arc::new(Deselected {
                kind: kind.clone(),
                store: self.cache.store.clone(),
                queue: self.queue.clone(),
                finalizers,
                of_the_author: self.of_the_author.clone(),
                client: writes.applier.client().clone(),
                events: setup.events.clone(),
                leading: self.leading.clone(),
                keys: Mutex::default(),
            })
        })
    }

    fn escaped(&self, finalizers: Finalizers) -> Arc<Escaped<K>> {
        let (queue, leading) = (self.queue.clone(), self.leading.clone());
        Arc::new(Escaped { queue, finalizers, leading, objects: Mutex::default() })
    }

    fn waker(
        &self,
        debounce: Duration,
        has_children: bool,
        deselected: Option<Arc<Deselected<K>>>,
        escaped: Option<Arc<Escaped<K>>>,
    ) -> Waker<K> {
        let store = self.cache.store.clone();
        let by_uid = has_children.then(|| store.index(|object: &K| object.uid().into_iter().collect()));
        Waker { store, queue: self.queue.clone(), debounce, by_uid, deselected, escaped }
    }

    /// The record of the kinds of children.
    fn inventory(&self, owned: &OwnedKinds, writes: &Writes, waker: Arc<Waker<K>>) -> Inventory {
        Inventory {
            controller: self.name.clone(),
            field_manager: writes.applier.manager().to_owned(),
            namespaces: self.selection.namespaces.clone(),
            owned: owned.names(),
            formerly_owned: owned.former_names(),
            client: writes.applier.client().clone(),
            keys: writes.owner_keys.clone(),
            leading: self.leading.clone(),
            children: FormerChildren::default(),
            wake: Box::new(move |uid| waker.wake_owner(uid, Priority::Low, "former-children")),
        }
    }
}

/// How a controller writes.
struct Writes {
    applier: Applier,
    owner_keys: OwnerKeys,
    /// The elector of its own lease, if it has one.
    elector: Option<Elector>,
    /// Whether the controller leads, by its own lease or the program's; `None` where there are no elections.
    leadership: Option<Leadership>,
}

impl Writes {
    fn new(
        controller: &str,
        field_manager: Option<&str>,
        has_own_lease: bool,
        setup: &Setup,
    ) -> Result<Self, StartError> {
        let applier = setup.applier.clone();
        let applier = field_manager.map_or(applier.clone(), |manager| applier.with_manager(manager));
        let elector = if has_own_lease { setup.elector_of(controller)? } else { None };
        let applier = match &elector {
            Some(elector) => gated(elector, setup, applier.manager()),
            None => applier,
        };
        let owner_keys = setup.owner_keys_with(applier.client(), elector.is_some());
        let leadership = match &elector {
            Some(elector) => Some(elector.leadership()),
            None => setup.leadership().cloned(),
        };
        Ok(Self { applier, owner_keys, elector, leadership })
    }
}

/// Begins the watches and the triggers that a controller declares. From then on, they wake the objects that they concern. Returns the
/// caches of the watches, and futures that end when these are complete.
fn begin_wakes<K: Object>(
    declared: Wakes<K>,
    cache: &Cache<K>,
    waker: &Arc<Waker<K>>,
    setup: &mut Setup,
) -> (Vec<WatchedCache>, Vec<BoxFuture<'static, ()>>) {
    let watches = declared.watches.into_iter().map(|begin| {
        let waker = Arc::clone(waker);
        let add = Arc::new(move |key, priority, reason| waker.wake(key, priority, reason));
        let watched = begin(setup, Wake { cache: cache.clone(), add });
        (watched.cache, watched.synced)
    });
    let begun = watches.unzip();
    for trigger in declared.triggers {
        waker.follow_trigger(trigger, setup);
    }
    begun
}

/// An applier whose writes wait for the lease of the controller instead of the program's.
fn gated(elector: &Elector, setup: &Setup, field_manager: &str) -> Applier {
    Applier::new(elector.leadership().gate(setup.client_of_each_replica().clone()), field_manager)
}

/// The layers around the author's code.
pub(crate) struct Engine<K: Object, R> {
    shared: Arc<Shared<K>>,
    reconciler: R,
    only: Option<Only<K>>,
    retry: Option<Retry<K>>,
    undecodable_reports: UndecodableReports,
    /// None if no object can leave the selection with our finalizer.
    deselected: Option<Arc<Deselected<K>>>,
    /// None without a finalizer.
    escaped: Option<Arc<Escaped<K>>>,
}

impl<K: Object + Writable, R: Reconcile<K>> Reconciler for Engine<K, R> {
    type Key = ObjectKey;
    type Error = RunError<R::Error>;

    async fn reconcile(&self, request: Request<ObjectKey>) -> Result<Action, Self::Error> {
        if let Some(undecodable) = self.shared.cache.store.why_undecodable(&request.key) {
            // The cached object is an old one, and gives no reason for a run.
            if let Some(notice) = self.undecodable_reports.notice::<K>(&self.shared.kind, &request.key, &undecodable) {
                self.shared.events.send(notice);
            }
            return Ok(Action::Done);
        }
        self.undecodable_reports.forget(&request.key);
        // First, because only what left before the look is known to be gone if the look does not find it.
        let left: Vec<_> = self.escaped.iter().flat_map(|escaped| escaped.of(&request.key)).collect();
        let cached = self.shared.cache.store.get(&request.key);
        let found = match &self.deselected {
            Some(deselected) if cached.is_none() => deselected.find(&request.key, !left.is_empty()).await?,
            _ => Found::Nothing,
        };
        let action = self.clean_up_after_escaped(&request, left, cached.as_ref(), &found).await?;
        if action != Action::Done {
            return Ok(action);
        }
        let Some(object) = cached else {
            let Found::ToRelease(object) = found else { return Ok(Action::Done) };
            self.shared.children.load_key().await?;
            return self.release(Context::uncached(Arc::clone(&self.shared), object, &request)).await;
        };
        let is_ours = self.only.as_ref().is_none_or(|only| only(&object));
        let context = |object| Context::new(Arc::clone(&self.shared), object, request.attempt, request.reasons.clone());
        let is_released = object.meta().deletion_timestamp.is_some() || !is_ours;
        if !is_released && is_paused(&*object) {
            tracing::debug!("paused by its annotation {PAUSED}");
            return Ok(Action::Done);
        }
        if let Err(error) = self.shared.children.load_key().await {
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
        if request.attempt == 1 && failure.as_ref().is_some_and(Failure::is_passing) {
            // To report an outage takes the API server, and a lost race is no failure: the next run decides with the fresh state.
            return result;
        }
        let reported = self.report(&context, failure).await;
        let action = result?;
        reported?;
        Ok(action)
    }

    async fn on_abort(&self, key: &ObjectKey, why: &Aborted) {
        let Some(object) = self.shared.cache.store.get(key) else { return };
        let (reason, message) = match why {
            Aborted::TimedOut(limit) => (reasons::TIMED_OUT, format!("took longer than {limit:?}")),
            Aborted::Panicked(cause) => (reasons::PANICKED, format!("a bug in the operator: {cause}")),
        };
        let failure = Failure { reason, message, is_stalled: false, is_told_again: false };
        let context = Context::new(Arc::clone(&self.shared), object, 1, [].into());
        if let Err(error) = self.report(&context, Some(failure)).await {
            tracing::warn!(error = %in_one_line(&error), "cannot write the status");
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
        let Shared { finalizers, kind, .. } = &*self.shared;
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
        if context.is_gone() {
            return Ok(Action::Done);
        }
        let claim = context.claim()?;
        if self.shared.children.has_any(&claim)? {
            // The last of them wakes us when it goes.
            return Ok(Action::Done);
        }
        for finalizer in finalizers.names() {
            if let Some(after) = context.applier().remove_finalizer_with(&*object, finalizer, kind).await? {
                object = Arc::new(after);
            }
        }
        if let Some((deselected, key)) = self.deselected.as_ref().zip(ObjectKey::of(&*object)) {
            deselected.forget(&key);
        }
        Ok(Action::Done)
    }

    /// Cleans up after those of the objects of this name that went past the finalizer. `cached` and `found` are the object of the name as it was
    /// after they left.
    async fn clean_up_after_escaped(
        &self,
        request: &Request<ObjectKey>,
        left: Vec<Arc<K>>,
        cached: Option<&Arc<K>>,
        found: &Found<K>,
    ) -> Result<Action, RunError<R::Error>> {
        let Some(escaped) = &self.escaped else { return Ok(Action::Done) };
        let there = match found {
            Found::Nothing => cached.and_then(|object| object.uid()),
            Found::Other(uid) => uid.clone(),
            Found::ToRelease(object) => object.uid(),
        };
        for object in left {
            // Else it only left the selection.
            if object.uid() != there {
                // Not again at each look at a cleanup that takes its time.
                if request.reasons.iter().any(|reason| *reason != PERIODIC) {
                    tracing::warn!(
                        "the API server deleted the object past its finalizer; cleaning up what was made for it"
                    );
                }
                self.shared.children.load_key().await?;
                let context = Context::gone(Arc::clone(&self.shared), Arc::clone(&object), request);
                let released = self.release(context.clone()).await;
                if !matches!(released, Ok(Action::Done)) {
                    self.report_to_successor(request, cached, &context, released.as_ref().err()).await?;
                    return released;
                }
            }
            escaped.forget(&request.key, &object);
        }
        Ok(Action::Done)
    }

    /// Reports on the object that has the name now that it waits for the cleanup after a former one.
    async fn report_to_successor(
        &self,
        request: &Request<ObjectKey>,
        successor: Option<&Arc<K>>,
        former: &Context<K>,
        error: Option<&RunError<R::Error>>,
    ) -> Result<(), ApplyError> {
        let is_served = |object: &K| {
            let is_going = object.meta().deletion_timestamp.is_some() || is_paused(object);
            !is_going && self.only.as_ref().is_none_or(|only| only(object))
        };
        let Some(successor) = successor.filter(|object| is_served(object)) else { return Ok(()) };
        let context =
            Context::new(Arc::clone(&self.shared), Arc::clone(successor), request.attempt, request.reasons.clone());
        let verdict = former.said().verdict();
        context.said().verdict = verdict;
        self.report(&context, error.map(Failure::of)).await
    }

    /// Reports the end of the run in the status, and in an event if it is news or a refusal goes on.
    async fn report(&self, context: &Context<K>, failure: Option<Failure>) -> Result<(), ApplyError> {
        if context.is_gone() {
            return Ok(());
        }
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
