//! The kinds of children that a controller owns: their declaration, their caches, and how children are told from other objects.

use std::{
    any::Any,
    collections::{BTreeSet, HashMap, HashSet},
    sync::{Arc, Mutex, PoisonError},
};

use futures::future::{BoxFuture, FutureExt};
use konverge_apply::{
    Applier, DesiredSet, ObjectName, Owner, OwnerKey, Recognition, Writable,
    owners::{MANAGED_BY, OWNER_UID, RETAINED, managed_by},
};
use konverge_core::reasons;
use konverge_gen::Access;
use konverge_runtime::{
    cache::{Cache, Change, Index, Predicate},
    object::{Object, ObjectKey},
};
use kube::{Resource, ResourceExt};

use crate::{
    error::Error,
    inventory::{self, FormerChildren},
    owner_keys::{self, OwnerKeys},
    setup::{Setup, both},
    watch::Watch,
    write_observer::Stores,
};

/// A kind that children can have: every typed kind.
pub trait Child: Object + Writable + Resource<DynamicType = ()> {}

impl<C: Object + Writable + Resource<DynamicType = ()>> Child for C {}

/// The kinds of children that a controller declares.
#[derive(Default)]
pub(crate) struct OwnedKinds {
    declared: Vec<DeclaredKind>,
    /// The kinds that its author says it owned before.
    formerly: BTreeSet<String>,
}

/// A kind of children, and how its cache is made.
struct DeclaredKind {
    /// Its name, as [`inventory::resource_name`] spells it.
    name: String,
    is_anywhere: bool,
    begin: Begin,
    declare: Box<dyn Fn(&mut Access) + Send>,
}

/// Begins the cache of a kind of children, given the namespaces of the owners and the field manager.
type Begin = Box<dyn FnOnce(&mut Setup, &[String], &str) -> Box<dyn ChildKind> + Send>;

impl OwnedKinds {
    /// Adds a kind, whose children are in the namespace of their owner or anywhere.
    pub(crate) fn add<C: Object + Writable>(&mut self, watch: Watch<C>, is_anywhere: bool) {
        let kind = watch.kind.clone();
        self.declared.push(DeclaredKind {
            name: inventory::resource_name::<C>(&kind),
            is_anywhere,
            begin: Box::new(move |setup, namespaces, manager| Kind::begin(setup, watch, namespaces, manager)),
            declare: Box::new(move |access| {
                access.to::<C>(&kind, &["create", "delete", "get", "list", "patch", "watch"]);
            }),
        });
    }

    /// Adds a kind that an earlier release owned.
    pub(crate) fn add_former(&mut self, kind: String) {
        self.formerly.insert(kind);
    }

    /// Whether objects have no children and had none.
    pub(crate) fn is_empty(&self) -> bool {
        self.declared.is_empty() && self.formerly.is_empty()
    }

    /// Whether children can be where the cluster does not delete them with their owner.
    pub(crate) fn need_finalizer(&self) -> bool {
        self.declared.iter().any(|kind| kind.is_anywhere)
    }

    /// The names of the kinds, as [`inventory::resource_name`] spells them.
    pub(crate) fn names(&self) -> BTreeSet<String> {
        self.declared.iter().map(|kind| kind.name.clone()).collect()
    }

    /// The kinds that the author says the controller owned before.
    pub(crate) fn former_names(&self) -> BTreeSet<String> {
        self.formerly.clone()
    }

    /// Declares the access that children need: to them, and in the namespace of the program to the key that proves them.
    pub(crate) fn declare(&self, program: &str, access: &mut Access, at_home: &mut Access) {
        if !self.is_empty() {
            owner_keys::declare(program, at_home);
        }
        self.formerly.iter().for_each(|kind| inventory::declare(kind, access));
        self.declared.iter().for_each(|kind| (kind.declare)(access));
    }

    /// Begins the caches, and lets changes of children wake their owners.
    pub(crate) fn begin(
        self,
        namespaces: &[String],
        manager: &str,
        wake: &WakeOwner,
        stores: &mut Stores,
        setup: &mut Setup,
    ) -> Vec<Box<dyn ChildKind>> {
        let mut kinds = Vec::new();
        for DeclaredKind { name, is_anywhere, begin, .. } in self.declared {
            let namespaces = if is_anywhere { &[] } else { namespaces };
            let kind = begin(setup, namespaces, manager);
            kind.subscribe(stores, Arc::clone(wake));
            if let Some(waking) = kind.wake_skipped(Arc::clone(wake)) {
                setup.manager.task(format!("optional children {name}"), waking);
            }
            kinds.push(kind);
        }
        kinds
    }
}

/// The children of a controller's objects, as far as its runs share them.
pub(crate) struct OwnedChildren {
    kinds: Vec<Box<dyn ChildKind>>,
    /// Whether objects have children, or had some.
    may_exist: bool,
    key: OwnerKeys,
    /// Children of kinds that the controller no longer owns.
    pub(crate) former: FormerChildren,
    /// By uid of the owner: the objects that were reported as unproven.
    unproven: Mutex<HashMap<String, Vec<ObjectName>>>,
}

impl OwnedChildren {
    pub(crate) fn new(
        kinds: Vec<Box<dyn ChildKind>>,
        may_exist: bool,
        key: OwnerKeys,
        former: Option<FormerChildren>,
    ) -> Self {
        Self { kinds, may_exist, key, former: former.unwrap_or_default(), unproven: Mutex::default() }
    }

    /// Loads the key that proves children, where there are any.
    pub(crate) async fn load_key(&self) -> Result<(), Error> {
        if self.may_exist { self.key.load().await } else { Ok(()) }
    }

    /// The key that proves children, once it is loaded.
    pub(crate) fn key(&self) -> Option<&OwnerKey> {
        self.key.get()
    }

    /// The kinds that children can have.
    pub(crate) fn kinds(&self) -> Vec<&dyn ChildKind> {
        self.kinds.iter().map(AsRef::as_ref).collect()
    }

    /// Whether this owner has children that have to go before it does.
    pub(crate) fn has_any(&self, claim: &Claim<'_>) -> Result<bool, Error> {
        for kind in &self.kinds {
            if kind.has_any(claim)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Remembers which objects only claim to be children of this owner. Returns whether there are any, and others than before.
    pub(crate) fn are_news(&self, owner_uid: &str, unproven: &[ObjectName]) -> bool {
        let mut reported = self.unproven.lock().unwrap_or_else(PoisonError::into_inner);
        if unproven.is_empty() {
            reported.remove(owner_uid);
            return false;
        }
        let before = reported.insert(owner_uid.to_owned(), unproven.to_vec());
        before.is_none_or(|before| before != unproven)
    }
}

/// Where a child looks for its kind.
pub(crate) struct Finder<'a> {
    pub(crate) kinds: Vec<&'a dyn ChildKind>,
    pub(crate) client: &'a kube::Client,
    pub(crate) namespace: Option<&'a str>,
}

impl<'a> Finder<'a> {
    pub(crate) fn kind<C: Object + Writable>(&self, kind: &C::DynamicType) -> Result<&'a Kind<C>, Error> {
        self.find(kind).ok_or_else(|| {
            let (name, plural) = (std::any::type_name::<C>(), C::plural(kind));
            let message =
                format!("the controller does not declare that its objects own {plural}; add .owns::<{name}>() to it");
            Error::permanent(reasons::UNDECLARED, message)
        })
    }

    pub(crate) fn find<C: Object + Writable>(&self, kind: &C::DynamicType) -> Option<&'a Kind<C>> {
        let of_type = self.kinds.iter().filter_map(|kind| kind.as_any().downcast_ref::<Kind<C>>());
        of_type.into_iter().find(|found| found.dynamic_type == *kind)
    }
}

/// An owner, and how its children are told from objects that only claim to be.
pub(crate) struct Claim<'a> {
    pub(crate) owner: Owner,
    pub(crate) key: Option<&'a OwnerKey>,
    pub(crate) applier: &'a Applier,
}

impl Claim<'_> {
    fn recognize<C: Resource<Scope: 'static>>(&self, object: &C, kind: &C::DynamicType) -> Result<Recognition, Error> {
        Ok(Recognition::of(object, kind, &self.owner, self.key, self.applier)?)
    }

    /// Whether an object that has the name of a wanted child may be written. A child of another owner is an error of the set.
    pub(crate) fn check<C: Resource<Scope: 'static>>(
        &self,
        object: &C,
        kind: &C::DynamicType,
        key: &ObjectKey,
    ) -> Result<(), Error> {
        let why = match self.recognize(object, kind)? {
            Recognition::Nobodys => "was not made by this operator",
            Recognition::Unproven => "carries the label of a child, but nothing proves that this operator made it",
            _ => return Ok(()),
        };
        let message = format!("{} {key} exists and {why}; delete it, or choose another name", C::kind(kind));
        Err(Error::permanent(reasons::NOT_OURS, message))
    }
}

/// A kind of children, whatever it is.
pub(crate) trait ChildKind: Any + Send + Sync {
    fn as_any(&self) -> &dyn Any;
    /// Tells the set which children this owner has.
    fn observe(&self, owner_uid: &str, set: DesiredSet) -> DesiredSet;
    /// Whether this owner has children of the kind that have to go before it does. Retained children do not.
    fn has_any(&self, claim: &Claim<'_>) -> Result<bool, Error>;
    /// Calls back with the owner's uid whenever a child changes, but for our own writes through `stores`.
    fn subscribe(&self, stores: &mut Stores, wake: WakeOwner);
    /// Wakes owners whose children were skipped, whenever the kind is installed. Never ends; none if the kind is not optional.
    fn wake_skipped(&self, wake: WakeOwner) -> Option<BoxFuture<'static, ()>>;
    /// Returns once the cache is complete.
    fn synced(&self) -> BoxFuture<'static, ()>;
}

/// Told the uid of an owner, and whether the change was found in a list.
pub(crate) type WakeOwner = Arc<dyn Fn(&str, bool) + Send + Sync>;

pub(crate) struct Kind<C: Object> {
    pub(crate) dynamic_type: C::DynamicType,
    predicate: Predicate<C>,
    pub(crate) cache: Cache<C>,
    by_owner: Index<C, String>,
    /// Uids of the owners whose children were skipped while the kind was missing; none if the kind is not optional.
    skipped: Option<Arc<Mutex<HashSet<String>>>>,
}

impl<C: Object + Writable> Kind<C> {
    /// Begins the cache of the children that this `manager` makes, in these namespaces unless the watch names others.
    fn begin(setup: &mut Setup, watch: Watch<C>, namespaces: &[String], manager: &str) -> Box<dyn ChildKind> {
        let Watch { kind, mut selection, caching, predicate } = watch;
        let (ours, caching) = (format!("{MANAGED_BY}={}", managed_by(manager)), caching.field_manager(manager));
        selection.label_selector = both(Some(&ours), selection.label_selector.as_deref());
        if selection.namespaces.is_empty() {
            selection.namespaces = namespaces.to_vec();
        }
        let cache = setup.caches.cache_as::<C>(&kind, &selection, &caching);
        let by_owner = cache.store.index(|child: &C| owner_uid(child).into_iter().collect());
        let skipped = caching.is_optional().then(Arc::default);
        Box::new(Self { dynamic_type: kind, predicate, cache, by_owner, skipped })
    }

    /// Whether the API server does not serve the kind. The owner is then woken once it does.
    pub(crate) fn is_skipped(&self, owner_uid: &str) -> bool {
        let Some(skipped) = &self.skipped else { return false };
        if !self.cache.is_missing() {
            return false;
        }
        skipped.lock().unwrap_or_else(PoisonError::into_inner).insert(owner_uid.to_owned());
        // If the kind was installed meanwhile, owners may have been woken before this one was among them.
        self.cache.is_missing()
    }

    /// The children of this owner, by namespace and name. A field manager's name proves nothing: any client can apply under it.
    pub(crate) fn children(&self, claim: &Claim<'_>) -> Result<Vec<Arc<C>>, Error> {
        let mut children = Vec::new();
        for object in self.labelled(claim.owner.uid()) {
            if claim.recognize(&*object, &self.dynamic_type)? == Recognition::Proven {
                children.push(object);
            }
        }
        Ok(children)
    }

    /// The objects with this owner's label, by namespace and name. Anyone may have written it.
    fn labelled(&self, owner_uid: &str) -> Vec<Arc<C>> {
        let mut children = self.by_owner.get(&owner_uid.to_owned());
        children.sort_by_key(|child| (child.namespace(), child.name_any()));
        children
    }
}

impl<C: Object + Writable> ChildKind for Kind<C> {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn observe(&self, owner_uid: &str, set: DesiredSet) -> DesiredSet {
        // If a kind is missing now, its known children are gone, or are skipped and must not be pruned.
        if self.cache.is_missing() {
            return set;
        }
        set.observe_with(self.labelled(owner_uid).iter().map(AsRef::as_ref), &self.dynamic_type)
    }

    fn has_any(&self, claim: &Claim<'_>) -> Result<bool, Error> {
        if self.cache.is_missing() {
            return Ok(false);
        }
        for object in self.labelled(claim.owner.uid()) {
            let is_retained = object.annotations().contains_key(RETAINED);
            if !is_retained && claim.recognize(&*object, &self.dynamic_type)? == Recognition::Proven {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn subscribe(&self, stores: &mut Stores, wake: WakeOwner) {
        let predicate = self.predicate.clone();
        let subscriber = self.cache.store.subscribe(move |_, change: &Change<C>| {
            if !predicate.admits(change) {
                return;
            }
            let owners = change.old.iter().chain(&change.new).filter_map(|child| owner_uid(&**child));
            for owner in owners.collect::<HashSet<_>>() {
                wake(&owner, change.listed);
            }
        });
        stores.add(&self.dynamic_type, self.cache.store.clone(), subscriber);
    }

    fn wake_skipped(&self, wake: WakeOwner) -> Option<BoxFuture<'static, ()>> {
        let (cache, skipped) = (self.cache.clone(), self.skipped.clone()?);
        let waking = async move {
            loop {
                cache.when_missing(true).await;
                cache.when_missing(false).await;
                let owners = std::mem::take(&mut *skipped.lock().unwrap_or_else(PoisonError::into_inner));
                for owner in &owners {
                    wake(owner, true);
                }
            }
        };
        Some(waking.boxed())
    }

    fn synced(&self) -> BoxFuture<'static, ()> {
        let cache = self.cache.clone();
        async move { cache.synced().await }.boxed()
    }
}

fn owner_uid<C: Resource>(child: &C) -> Option<String> {
    child.labels().get(OWNER_UID).cloned()
}
