//! The declaration of a controller, before there is a cluster: its kind, its children, what wakes it, how it works.

mod part;
mod settings;

use std::{any::Any, sync::Arc, time::Duration};

use futures::{FutureExt, StreamExt};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use konverge_apply::Writable;
use konverge_gen::Access;
use konverge_runtime::{
    Priority,
    cache::{Caching, Predicate, Store},
    object::{Object, ObjectKey},
};
use kube::{CustomResourceExt, Resource, core::object::HasStatus};

pub(crate) use settings::How;

use crate::{
    author_reasons::Reasons,
    finalizers::DeclaredFinalizers,
    only::Only,
    owned::{Child, OwnedKinds},
    reconcile::Reconcile,
    report::{CustomStatus, Report},
    wakes::{Begin, Trigger, Wakes, Watched},
    watch::Watch,
    watched::WatchedCache,
};

/// A controller of objects of kind `K`.
pub struct Controller<K: Object, R> {
    pub(crate) reconciler: R,
    pub(crate) name: Option<String>,
    /// The objects of its own kind.
    pub(crate) watch: Watch<K>,
    pub(crate) only: Option<Only<K>>,
    pub(crate) field_manager: Option<&'static str>,
    pub(crate) retry: Option<Retry<K>>,
    pub(crate) finalizers: DeclaredFinalizers,
    pub(crate) report: Option<Report<K>>,
    pub(crate) owned: OwnedKinds,
    pub(crate) wakes: Wakes<K>,
    generated: Generated,
    pub(crate) how: How,
}

/// The parts of generated files that a controller declares.
#[derive(Default)]
struct Generated {
    crd: Option<CustomResourceDefinition>,
    /// The reasons of its own, with their meanings.
    reasons: Vec<(&'static str, &'static str)>,
    access: Access,
}

/// Returns the pause after an error, given the error, the object and the attempt, or `None` if the class of the error decides.
pub(crate) type Retry<K> = Arc<dyn Fn(&(dyn Any + Send + Sync), &K, u32) -> Option<Duration> + Send + Sync>;

impl<K, R> Controller<K, R>
where
    K: Object + CustomResourceExt + HasStatus<Status: CustomStatus> + Resource<DynamicType = ()>,
    R: Reconcile<K>,
{
    /// A controller of a custom resource. How each run ended stands in the status of its object.
    pub fn new(reconciler: R) -> Self {
        let generated = Generated { crd: Some(K::crd()), ..Generated::default() };
        Self { generated, report: Some(Report::new()), ..Self::watching(reconciler) }
    }
}

impl<K: Object + Resource<DynamicType = ()>, R: Reconcile<K>> Controller<K, R> {
    /// A controller of a kind whose status is not its own, such as a built-in one. Failures are told in events and logs.
    ///
    /// With `PartialObjectMeta<K>` only metadata is watched, so payloads never enter the process.
    pub fn watching(reconciler: R) -> Self {
        Self::dynamic((), reconciler)
    }
}

impl<K: Object, R: Reconcile<K>> Controller<K, R> {
    /// A controller of a kind that is known at run time only.
    pub fn dynamic(kind: K::DynamicType, reconciler: R) -> Self {
        Self {
            reconciler,
            name: None,
            watch: Watch::of(kind).predicate(Predicate::meaningful()),
            only: None,
            field_manager: None,
            retry: None,
            finalizers: DeclaredFinalizers::default(),
            report: None,
            owned: OwnedKinds::default(),
            wakes: Wakes { watches: Vec::new(), triggers: Vec::new() },
            generated: Generated::default(),
            how: How::default(),
        }
    }

    /// Sets its name in logs and metrics. The default is the plural of its kind. Two controllers of one kind need two
    /// names.
    #[must_use]
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Only objects with these labels, in the syntax of `kubectl -l`; others are not even watched.
    ///
    /// An object with the controller's [finalizer](Self::finalizer) that no longer matches is cleaned up and let go, as with [`only`](Self::only).
    /// If a program finds at its start that more than ten of them, and more than half of all, do not match, it leaves those alone that nobody
    /// deleted: the selector may be wrong.
    #[must_use]
    pub fn label_selector(mut self, selector: impl Into<String>) -> Self {
        self.watch = self.watch.label_selector(selector);
        self
    }

    /// Only objects with these fields, in the syntax of `kubectl --field-selector`; others are not even watched.
    #[must_use]
    pub fn field_selector(mut self, selector: impl Into<String>) -> Self {
        self.watch = self.watch.field_selector(selector);
        self
    }

    /// Only objects for which this holds; others are watched and left alone.
    #[must_use]
    pub fn only(mut self, only: impl Fn(&K) -> bool + Send + Sync + 'static) -> Self {
        self.only = Some(Arc::new(only));
        self
    }

    /// Sets which updates of an object wake the controller. The default is all but changes of the status alone.
    #[must_use]
    pub fn predicate(mut self, predicate: Predicate<K>) -> Self {
        self.watch = self.watch.predicate(predicate);
        self
    }

    /// Holds objects that are being deleted until [`Reconcile::cleanup`] has succeeded and their children are gone. `finalizer` is a
    /// domain name and a word, such as `example.io/cleanup`.
    #[must_use]
    pub fn finalizer(mut self, finalizer: &'static str) -> Self {
        self.finalizers.set(finalizer, false);
        self
    }

    /// Like [`finalizer`](Self::finalizer), but an object gets it only when a run calls
    /// [`Context::ensure_finalizer`](crate::Context::ensure_finalizer), or has a child in another namespace. An object for which nothing
    /// exists outside is deleted at once, also while the operator is away.
    #[must_use]
    pub fn finalizer_on_demand(mut self, finalizer: &'static str) -> Self {
        self.finalizers.set(finalizer, true);
        self
    }

    /// The name of a finalizer that an earlier release used. Objects that have it get the current one in its place, and those that are
    /// being deleted are cleaned up and let go. Needs a [`finalizer`](Self::finalizer).
    #[must_use]
    pub fn former_finalizer(mut self, finalizer: &'static str) -> Self {
        self.finalizers.add_former(finalizer);
        self
    }

    /// Sets the field manager that the controller writes as. The default is the name of the program. Controllers that write parts of one
    /// object need one each, or each removes the fields of the other. It is a valid value of a label. A change orphans what was written
    /// before: remove its fields by hand.
    #[must_use]
    pub fn field_manager(mut self, manager: &'static str) -> Self {
        self.field_manager = Some(manager);
        self
    }

    /// The pause after an error of the reconciler, given the error, the object and the number of the failed attempt. `None` leaves the pause to
    /// the class of the error and the [backoff](Self::backoff). An object with a pause is reported as `Reconciling`, whatever the class.
    #[must_use]
    pub fn retry(mut self, pause: impl Fn(&R::Error, &K, u32) -> Option<Duration> + Send + Sync + 'static) -> Self {
        self.retry = Some(Arc::new(move |error, object, attempt| pause(error.downcast_ref()?, object, attempt)));
        self
    }

    /// Adds the reasons of an enum to the generated reference; see [`reasons!`](crate::reasons!).
    #[must_use]
    pub fn reasons<T: Reasons>(mut self) -> Self {
        self.generated.reasons.extend(T::ALL);
        self
    }

    /// Only objects in these namespaces, whatever namespaces the program looks at. Children are looked for in these, too.
    #[must_use]
    pub fn namespaces(mut self, namespaces: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.watch = self.watch.namespaces(namespaces);
        self
    }

    /// Its objects have children of kind `C` in their own namespace, or anywhere if they have none themselves. Changes of children wake
    /// their owner.
    #[must_use]
    pub fn owns<C: Child>(self) -> Self {
        self.declare_child(Watch::<C>::new(), false)
    }

    /// [`owns`](Self::owns) for children that are watched as `watch` says: with a predicate, of a kind that is known only at run time, or as
    /// their metadata alone. Metadata cannot tell whether a child's content is in sync, so each run sends a child whose kind is
    /// `PartialObjectMeta`.
    #[must_use]
    pub fn owns_with<C: Object + Writable>(self, watch: Watch<C>) -> Self {
        self.declare_child(watch, false)
    }

    /// Its objects have children of kind `C` in any namespace. Needs a [`finalizer`](Self::finalizer), since the cluster deletes
    /// no children across namespaces.
    #[must_use]
    pub fn owns_anywhere<C: Child>(self) -> Self {
        self.declare_child(Watch::<C>::new(), true)
    }

    /// [`owns_anywhere`](Self::owns_anywhere) for children that are watched as `watch` says.
    #[must_use]
    pub fn owns_anywhere_with<C: Object + Writable>(self, watch: Watch<C>) -> Self {
        self.declare_child(watch, true)
    }

    fn declare_child<C: Object + Writable>(mut self, watch: Watch<C>, is_anywhere: bool) -> Self {
        self.owned.add(watch, is_anywhere);
        self
    }

    /// Lets the generated role allow the deletion of children of a kind that an earlier release owned, named as its definition is: `services`,
    /// `deployments.apps`.
    ///
    /// The operator records the kinds that each controller owns, and finds children of a kind that the code no longer owns by itself. They
    /// are deleted when their owner next applies its [children](crate::Context::children), by the same rules as any child that is not wanted. For
    /// this the role must allow `list` and `delete`. A later release may leave the line out.
    #[must_use]
    pub fn formerly_owned(mut self, kind: impl Into<String>) -> Self {
        self.owned.add_former(kind.into());
        self
    }

    /// How the cache of its kind is filled and what it keeps; `change` gets the default. Controllers of a program that want the same objects
    /// share one cache if their settings differ only in indexes.
    #[must_use]
    pub fn caching(mut self, change: impl FnOnce(Caching<K>) -> Caching<K>) -> Self {
        self.watch = self.watch.caching(change);
        self
    }

    /// Adds an index by the values that this function takes from an object. To read it, call [`Store::find`]: in a run
    /// through [`Context::store`](crate::Context::store), and where something else is mapped to the objects that it
    /// concerns.
    #[must_use]
    pub fn index<V, By>(self, by: By) -> Self
    where
        V: Clone + Eq + std::hash::Hash + Send + Sync + 'static,
        By: Fn(&K) -> Vec<V> + Copy + Send + Sync + 'static,
    {
        self.caching(|caching| caching.index(by))
    }

    /// Watches objects of kind `O` too, as a [`Selection`](konverge_runtime::cache::Selection) or a [`Watch`] says. `map` tells which objects a
    /// change concerns; it may look into the cache of `K`. Objects that exist at the start wake at low priority.
    #[must_use]
    pub fn watches<O, Keys>(
        mut self,
        watch: impl Into<Watch<O>>,
        map: impl Fn(&O, &Store<K>) -> Keys + Send + Sync + 'static,
    ) -> Self
    where
        O: Object,
        Keys: IntoIterator<Item = ObjectKey>,
    {
        let Watch { kind, selection, caching, predicate } = watch.into();
        self.generated.access.to::<O>(&kind, &["list", "watch"]);
        self.wakes.watches.push(Box::new(move |setup, wake| {
            let cache = setup.caches.cache_as::<O>(&kind, &setup.within(selection), &caching);
            cache.store.subscribe(move |_, change| {
                if !predicate.admits(change) {
                    return;
                }
                let priority = if change.listed { Priority::Low } else { Priority::Normal };
                // An update can concern those that it leaves as well as those that it comes to.
                for object in change.old.iter().chain(&change.new) {
                    for key in map(object, &wake.cache.store) {
                        (wake.add)(key, priority, "watched");
                    }
                }
            });
            let synced = cache.clone();
            Watched { cache: WatchedCache::new(kind, cache), synced: async move { synced.synced().await }.boxed() }
        }));
        self
    }

    /// Something outside wakes objects. `stream` is given the cache of `K` and makes a stream of the objects to look at; `name` names it
    /// in logs and readiness. Runs on standbys too. A stream that ends is not begun again.
    #[must_use]
    pub fn trigger<S>(mut self, name: &'static str, stream: impl FnOnce(Store<K>) -> S + Send + 'static) -> Self
    where
        S: futures::Stream<Item = ObjectKey> + Send + 'static,
    {
        let stream: Box<Begin<K>> = Box::new(move |_, store| stream(store).boxed());
        self.wakes.triggers.push(Trigger { name, stream, on_standbys: true, describe: |_| () });
        self
    }

    /// Needs more of the API server than it declares otherwise.
    #[must_use]
    pub fn access(mut self, add: impl FnOnce(&mut Access)) -> Self {
        add(&mut self.generated.access);
        self
    }

    /// Watches something outside the cluster. `map` tells which objects a change concerns; it may look into the cache of `K`.
    ///
    /// The source is asked as `options` say, with growing pauses after failures. Its name names it in logs, in its metrics and in the
    /// readiness checks, which fail until it has answered once and while it has been failing for long. It ends with the program.
    ///
    /// With leader election, only the leader asks, and a replica that stands by is ready without an answer. Set
    /// [`Options::on_standbys`](konverge_external::Options::on_standbys) to have a stream open, and its changes in the queue, before a
    /// replica takes over.
    #[cfg(feature = "external")]
    #[must_use]
    pub fn watches_outside<S: konverge_external::Source, Keys>(
        mut self,
        name: &'static str,
        source: S,
        options: konverge_external::Options,
        map: impl Fn(&konverge_external::Change<S::Item>, &Store<K>) -> Keys + Send + Sync + 'static,
    ) -> Self
    where
        Keys: IntoIterator<Item = ObjectKey>,
    {
        self.wakes.triggers.push(crate::outside::trigger(name, source, options, map));
        self
    }

    /// Its objects stand for items on a server, or refer to some. `interest` tells which, from the object alone. Changes of these items wake
    /// the object, and so do other objects that let go of them.
    ///
    /// An object that stands for an item needs a finalizer; see [`finalizer_on_demand`](Self::finalizer_on_demand). Runs use
    /// [`Context::remote`](crate::Context::remote).
    #[cfg(feature = "remote")]
    #[must_use]
    pub fn remote<S: konverge_remote::Remote>(
        mut self,
        remotes: &konverge_remote::Remotes<S>,
        interest: impl Fn(&K) -> konverge_remote::Interest + Send + Sync + 'static,
    ) -> Self {
        self.wakes.triggers.push(crate::remote_objects::trigger(remotes, &self.watch.kind, interest));
        self
    }
}
