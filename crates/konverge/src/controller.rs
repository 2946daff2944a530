//! The declaration of a controller, before there is a cluster: its kind, its children, what wakes it, how it works.

mod part;
mod settings;

use std::{any::Any, collections::BTreeSet, sync::Arc, time::Duration};

use futures::{FutureExt, StreamExt, future::BoxFuture, stream::BoxStream};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use konverge_apply::Writable;
use konverge_gen::Access;
use konverge_runtime::{
    Priority,
    cache::{Cache, Caching, Predicate, Selection, Store},
    object::{Object, ObjectKey},
};
use kube::{CustomResourceExt, Resource, core::object::HasStatus};
use prometheus_client::registry::Registry;

pub(crate) use settings::How;

use crate::{
    author_reasons::Reasons,
    children::{Child, ChildKind, Kind},
    finalizers::Finalizers,
    inventory,
    only::Only,
    reconcile::Reconcile,
    report::{CustomStatus, Report},
    setup::Setup,
    watch::Watch,
    watched::WatchedCache,
};

/// A controller of objects of kind `K`.
pub struct Controller<K: Object, R> {
    pub(crate) reconciler: R,
    pub(crate) kind: K::DynamicType,
    pub(crate) name: Option<String>,
    pub(crate) crd: Option<CustomResourceDefinition>,
    pub(crate) selection: Selection,
    pub(crate) predicate: Predicate<K>,
    pub(crate) only: Option<Only<K>>,
    pub(crate) field_manager: Option<&'static str>,
    pub(crate) retry: Option<Retry<K>>,
    pub(crate) reasons: Vec<(&'static str, &'static str)>,
    pub(crate) finalizers: Option<Finalizers>,
    pub(crate) former_finalizers: Vec<&'static str>,
    pub(crate) report: Option<Report<K>>,
    pub(crate) children: Vec<DeclaredChild>,
    pub(crate) formerly_owned: BTreeSet<String>,
    pub(crate) watches: Vec<BeginWatch<K>>,
    pub(crate) triggers: Vec<Trigger<K>>,
    pub(crate) access: Access,
    pub(crate) caching: Caching<K>,
    pub(crate) how: How,
}

/// Returns the pause after an error, given the error, the object and the attempt, or `None` if the class of the error decides.
pub(crate) type Retry<K> = Arc<dyn Fn(&(dyn Any + Send + Sync), &K, u32) -> Option<Duration> + Send + Sync>;

/// A kind of children, and how its cache is made.
pub(crate) struct DeclaredChild {
    /// Its kind, as [`inventory::resource_name`] spells it.
    pub(crate) name: String,
    pub(crate) is_anywhere: bool,
    pub(crate) begin: BeginKind,
    pub(crate) declare: Box<dyn Fn(&mut Access) + Send>,
}

/// Begins the cache of a kind of children, given the namespaces of the owners and the field manager.
type BeginKind = Box<dyn FnOnce(&mut Setup, &[String], &str) -> Box<dyn ChildKind> + Send>;

/// Something else that is watched: begins its cache, which wakes what it concerns.
pub(crate) type BeginWatch<K> = Box<dyn FnOnce(&mut Setup, Wake<K>) -> Watched + Send>;

/// The cache of something else that is watched.
pub(crate) struct Watched {
    pub(crate) cache: WatchedCache,
    pub(crate) synced: BoxFuture<'static, ()>,
}

/// A stream of objects to reconcile, made once the cache of the kind is there.
pub(crate) struct Trigger<K> {
    pub(crate) name: &'static str,
    pub(crate) stream: Box<Begin<K>>,
    /// Also on replicas that do not lead.
    pub(crate) on_standbys: bool,
    /// Adds the series that it will have.
    pub(crate) describe: fn(&mut Registry),
}

type Begin<K> = dyn FnOnce(&mut Setup, Store<K>) -> BoxStream<'static, ObjectKey> + Send;

/// Puts objects into the queue of a controller, given the cache of its kind.
pub(crate) struct Wake<K> {
    pub(crate) cache: Cache<K>,
    pub(crate) add: Arc<dyn Fn(ObjectKey, Priority, &'static str) + Send + Sync>,
}

impl<K, R> Controller<K, R>
where
    K: Object + CustomResourceExt + HasStatus<Status: CustomStatus> + Resource<DynamicType = ()>,
    R: Reconcile<K>,
{
    /// A controller of a custom resource. How each run ended stands in the status of its object.
    pub fn new(reconciler: R) -> Self {
        Self { crd: Some(K::crd()), report: Some(Report::new()), ..Self::watching(reconciler) }
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
            kind,
            name: None,
            crd: None,
            selection: Selection::default(),
            predicate: Predicate::meaningful(),
            only: None,
            field_manager: None,
            retry: None,
            reasons: Vec::new(),
            finalizers: None,
            former_finalizers: Vec::new(),
            report: None,
            children: Vec::new(),
            formerly_owned: BTreeSet::new(),
            watches: Vec::new(),
            triggers: Vec::new(),
            access: Access::default(),
            caching: Caching::default(),
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
        self.selection.label_selector = Some(selector.into());
        self
    }

    /// Only objects with these fields, in the syntax of `kubectl --field-selector`; others are not even watched.
    #[must_use]
    pub fn field_selector(mut self, selector: impl Into<String>) -> Self {
        self.selection.field_selector = Some(selector.into());
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
        self.predicate = predicate;
        self
    }

    /// Holds objects that are being deleted until [`Reconcile::cleanup`] has succeeded and their children are gone. `finalizer` is a
    /// domain name and a word, such as `example.io/cleanup`.
    #[must_use]
    pub fn finalizer(mut self, finalizer: &'static str) -> Self {
        self.finalizers = Some(Finalizers::new(finalizer, false));
        self
    }

    /// Like [`finalizer`](Self::finalizer), but an object gets it only when a run calls
    /// [`Context::ensure_finalizer`](crate::Context::ensure_finalizer), or has a child in another namespace. An object for which nothing
    /// exists outside is deleted at once, also while the operator is away.
    #[must_use]
    pub fn finalizer_on_demand(mut self, finalizer: &'static str) -> Self {
        self.finalizers = Some(Finalizers::new(finalizer, true));
        self
    }

    /// The name of a finalizer that an earlier release used. Objects that have it get the current one in its place, and those that are
    /// being deleted are cleaned up and let go. Needs a [`finalizer`](Self::finalizer).
    #[must_use]
    pub fn former_finalizer(mut self, finalizer: &'static str) -> Self {
        self.former_finalizers.push(finalizer);
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
        self.reasons.extend(T::ALL);
        self
    }

    /// Only objects in these namespaces, whatever namespaces the program looks at. Children are looked for in these, too.
    #[must_use]
    pub fn namespaces(mut self, namespaces: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.selection.namespaces = namespaces.into_iter().map(Into::into).collect();
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
        let kind = watch.kind.clone();
        self.children.push(DeclaredChild {
            name: inventory::resource_name::<C>(&kind),
            is_anywhere,
            begin: Box::new(move |setup, namespaces, manager| Kind::begin(setup, watch, namespaces, manager)),
            declare: Box::new(move |access| {
                access.to::<C>(&kind, &["create", "delete", "get", "list", "patch", "watch"]);
            }),
        });
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
        self.formerly_owned.insert(kind.into());
        self
    }

    /// Whether its objects have children, or had some.
    pub(crate) fn has_children(&self) -> bool {
        !self.children.is_empty() || !self.formerly_owned.is_empty()
    }

    /// How the cache of its kind is filled and what it keeps; `change` gets the default. Controllers of a program that want the same objects
    /// share one cache if their settings differ only in indexes.
    #[must_use]
    pub fn caching(mut self, change: impl FnOnce(Caching<K>) -> Caching<K>) -> Self {
        self.caching = change(self.caching);
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

    /// Watches objects of kind `O` too, as a [`Selection`] or a [`Watch`] says. `map` tells which objects a change concerns; it may look into
    /// the cache of `K`. Objects that exist at the start wake at low priority.
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
        self.access.to::<O>(&kind, &["list", "watch"]);
        self.watches.push(Box::new(move |setup, wake| {
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
        self.triggers.push(Trigger { name, stream, on_standbys: true, describe: |_| () });
        self
    }

    /// Needs more of the API server than it declares otherwise.
    #[must_use]
    pub fn access(mut self, add: impl FnOnce(&mut Access)) -> Self {
        add(&mut self.access);
        self
    }
}
