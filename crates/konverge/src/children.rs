//! The children of an object: created, kept in sync, and pruned when they are no longer wanted.
//!
//! The decisions are those of [`DesiredSet`]; here it meets the caches.

use std::{
    any::{Any, TypeId},
    collections::HashSet,
    sync::{Arc, Mutex, PoisonError},
};

use futures::future::{BoxFuture, FutureExt};
use konverge_apply::{
    Applier, ApplyOutcome, ChildOptions, DeleteBudget, DesiredSet, Owner, OwnerKey, Recognition, SetReport, Writable,
    desired::ChildReport,
    owners::{MANAGED_BY, OWNER_UID, RETAINED, managed_by},
};
use konverge_core::reasons;
use konverge_runtime::{
    cache::{Cache, Change, Index, Predicate},
    object::{Object, ObjectKey, Scope},
};
use kube::{
    Resource, ResourceExt,
    core::{DynamicResourceScope, PartialObjectMeta},
    runtime::events::EventType,
};

use crate::{
    context::Context,
    error::Error,
    inventory,
    setup::{Setup, both},
    watch::Watch,
    witness::Stores,
};

/// A kind that children can have: every typed kind.
pub trait Child: Object + Writable + Resource<DynamicType = ()> {}

impl<C: Object + Writable + Resource<DynamicType = ()>> Child for C {}

/// The children that an object should have. All others that it has are pruned.
#[must_use = "nothing happens until it is applied"]
pub struct Children<K: Object> {
    context: Context<K>,
    wanted: Vec<Step>,
    budget: DeleteBudget,
    tolerates_unready: bool,
}

/// One after the other.
enum Step {
    Child(Box<dyn Wanted>),
    WhenReady,
}

impl<K: Object> Children<K> {
    pub(crate) fn new(context: Context<K>) -> Self {
        Self { context, wanted: Vec::new(), budget: DeleteBudget::default(), tolerates_unready: false }
    }

    /// Wants this child. Without a namespace it gets the one of its owner. Its kind must have been declared with
    /// [`Controller::owns`](crate::Controller::owns).
    pub fn with<C: Child>(mut self, child: C) -> Self {
        self.wanted.push(Step::Child(Box::new(Typed { child, options: ChildOptions::default() })));
        self
    }

    /// [`with`](Self::with) for a child that is not treated like all others: written after certain others, ready by a rule of its
    /// own, or kept when its owner is deleted.
    ///
    /// ```
    /// # use k8s_openapi::api::{apps::v1::StatefulSet, batch::v1::Job, core::v1::PersistentVolumeClaim};
    /// # use konverge::{Children, Object};
    /// # fn all<K: Object>(children: Children<K>, backups: PersistentVolumeClaim, redis: StatefulSet, upgrade: Job) -> Children<K> {
    /// children
    ///     .with_options(backups, |claim| claim.retain())
    ///     .with(redis)
    ///     .with_options(upgrade, |job| {
    ///         let is_done = |job: &Job| job.status.as_ref().is_some_and(|status| status.succeeded.unwrap_or(0) > 0);
    ///         job.after::<StatefulSet>("redis").ready_when(is_done)
    ///     })
    /// # }
    /// ```
    pub fn with_options<C: Child>(
        mut self,
        child: C,
        options: impl FnOnce(ChildOptions<C>) -> ChildOptions<C>,
    ) -> Self {
        let options = options(ChildOptions::default());
        self.wanted.push(Step::Child(Box::new(Typed { child, options })));
        self
    }

    /// [`with`](Self::with) for a child of a kind that is known only at run time. It has to name its namespace, if its kind has namespaces.
    pub fn with_dynamic<C: Object + Writable>(mut self, kind: C::DynamicType, child: C) -> Self {
        self.wanted.push(Step::Child(Box::new(Dynamic { kind, child })));
        self
    }

    /// Children that are added from here on are written only when all that were added before are
    /// [ready](konverge_apply::readiness()): the database before the app. Until then they stay as they are, or absent, nothing is
    /// deleted, and the object is reported as in progress. A child that becomes ready wakes its owner.
    pub fn when_ready(mut self) -> Self {
        self.wanted.push(Step::WhenReady);
        self
    }

    /// Lets the object be ready while children are not. Otherwise it is reported as in progress, with what they lack, until all
    /// children are [ready](konverge_apply::readiness()).
    pub fn tolerate_unready(mut self) -> Self {
        self.tolerates_unready = true;
        self
    }

    /// Sets how much one run may delete. The default is ten children or half of them.
    pub fn budget(mut self, budget: DeleteBudget) -> Self {
        self.budget = budget;
        self
    }

    /// Writes all children of the set, in the order in which they were added, and then deletes all others of the object. Sends nothing
    /// for children that are in sync.
    ///
    /// The set is all that the object should have, so a run applies one set: a second one would delete the children of the first, and
    /// is an error. An object of that name that is not a child of this owner is left alone and is an error.
    pub async fn apply(self) -> Result<SetReport, Error>
    where
        K: Writable,
    {
        if std::mem::replace(&mut self.context.said().has_applied_children, true) {
            return Err(Error::permanent(
                reasons::CHILDREN_APPLIED_TWICE,
                "the reconciler applies two sets of children in one run, and each would delete the children of the other; add all \
                 children to one set, and call children().apply() once",
            ));
        }
        let (context, tolerates_unready) = (self.context.clone(), self.tolerates_unready);
        let report = self.bring().await?;
        let is_tolerated = |child: &ChildReport| !child.is_awaited && (tolerates_unready || child.tolerates_unready);
        context.said().unready_children = unready(&report, is_tolerated);
        Ok(report)
    }

    /// Deletes all children of an object that is being deleted.
    pub(crate) async fn delete_all(self) -> Result<SetReport, Error>
    where
        K: Writable,
    {
        Self { wanted: Vec::new(), ..self }.bring().await
    }

    async fn bring(self) -> Result<SetReport, Error>
    where
        K: Writable,
    {
        let Self { context, wanted, budget, .. } = self;
        let claim = context.claim()?;
        let mut set = DesiredSet::new(claim.owner.clone()).budget(budget);
        if let Some(key) = claim.key {
            set = set.key(key.clone());
        }
        let finder = context.finder();
        for kind in &finder.kinds {
            set = kind.observe(claim.owner.uid(), set);
        }
        let (shared, owner_uid) = (context.shared(), claim.owner.uid());
        let former = shared.former_children.places(owner_uid);
        for (kind, namespace) in &former {
            let found = inventory::children_at(context.client(), kind, namespace.as_deref(), owner_uid).await?;
            set = set.observe_with(&found, kind);
        }
        for step in wanted {
            set = match step {
                Step::Child(child) => {
                    // The garbage collector deletes no such child.
                    if !claim.owner.may_be_referred_to_from(child.namespace(&finder).as_deref()) {
                        context.ensure_finalizer().await?;
                    }
                    child.add(set, &finder, &claim).await?
                }
                Step::WhenReady => set.when_ready(),
            };
        }
        let result = set.apply(context.applier()).await;
        let report = result.as_ref().unwrap_or_else(|error| error.done());
        if context.applier().is_dry_run() {
            announce(report);
        }
        warn_of_unproven(&context, owner_uid, report);
        if !former.is_empty() && result.is_ok() && report.waiting.is_empty() && report.prune_later.is_empty() {
            shared.former_children.forget(owner_uid);
        }
        Ok(result?)
    }
}

/// Reports objects that claim to be children and that nothing proves to be, once.
fn warn_of_unproven<K: Object>(context: &Context<K>, owner_uid: &str, report: &SetReport) {
    let unproven = &report.unproven;
    let mut reported = context.shared().unproven.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(first) = unproven.first() else {
        reported.remove(owner_uid);
        return;
    };
    if reported.insert(owner_uid.to_owned(), unproven.clone()).is_none_or(|before| before != *unproven) {
        let objects = match unproven.len() {
            1 => format!("{first} carries"),
            count => format!("{first} and {} more objects carry", count - 1),
        };
        let note = format!(
            "{objects} the label {OWNER_UID} of this object, but nothing proves that this operator made them as its children. They are \
             left alone; delete them by hand if they should go"
        );
        context.event(EventType::Warning, reasons::UNPROVEN_CHILD, "Prune", note);
    }
}

/// Lists the children that are neither ready nor tolerated, and what they lack. Returns `None` if there are none.
fn unready(report: &SetReport, is_tolerated: impl Fn(&ChildReport) -> bool) -> Option<String> {
    const NAMED: usize = 10;
    let unready = report.children.iter().filter(|child| !child.readiness.is_current() && !is_tolerated(child));
    let mut all = unready.map(|child| format!("{} is {}", child.object, child.readiness));
    let named: Vec<String> = all.by_ref().take(NAMED).collect();
    let text = named.join("; ");
    match all.count() {
        _ if named.is_empty() => None,
        0 => Some(text),
        more => Some(format!("{text}; and {more} more")),
    }
}

/// Logs the changes that a dry run would have made.
fn announce(report: &SetReport) {
    for child in &report.children {
        if child.outcome == ApplyOutcome::Created {
            tracing::info!(child = %child.object, "dry run: would create");
            continue;
        }
        for difference in &child.differences {
            tracing::info!(child = %child.object, %difference, "dry run: would change");
        }
    }
    for child in &report.waiting {
        tracing::info!(%child, "dry run: would wait for those before it");
    }
    for child in &report.pruned {
        tracing::info!(%child, "dry run: would delete");
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

    fn find<C: Object + Writable>(&self, kind: &C::DynamicType) -> Option<&'a Kind<C>> {
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
    fn check<C: Resource<Scope: 'static>>(
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

/// A child that is wanted, whatever its kind.
trait Wanted: Send + Sync {
    /// Adds it to the set, with what is known of the object of its name, unless that is somebody else's.
    fn add<'a>(
        self: Box<Self>,
        set: DesiredSet,
        finder: &'a Finder<'a>,
        claim: &'a Claim<'a>,
    ) -> BoxFuture<'a, Result<DesiredSet, Error>>;

    /// The namespace that it will be in.
    fn namespace(&self, finder: &Finder<'_>) -> Option<String>;
}

/// A child of a kind that the compiler knows, and how it is treated.
struct Typed<C> {
    child: C,
    options: ChildOptions<C>,
}

impl<C: Child> Wanted for Typed<C> {
    fn add<'a>(
        self: Box<Self>,
        set: DesiredSet,
        finder: &'a Finder<'a>,
        claim: &'a Claim<'a>,
    ) -> BoxFuture<'a, Result<DesiredSet, Error>> {
        let Self { child, options } = *self;
        // Of a kind whose metadata alone is watched, the content is not known: each run sends it.
        match finder.find::<C>(&()).is_none().then(|| finder.find::<PartialObjectMeta<C>>(&())).flatten() {
            Some(metadata) => add(set, finder, claim, &(), child, options, metadata).boxed(),
            None => async move { add(set, finder, claim, &(), child, options, finder.kind::<C>(&())?).await }.boxed(),
        }
    }

    fn namespace(&self, finder: &Finder<'_>) -> Option<String> {
        namespace_of(&self.child, finder)
    }
}

/// A child of a kind that is known only at run time.
struct Dynamic<C: Object> {
    kind: C::DynamicType,
    child: C,
}

impl<C: Object + Writable> Wanted for Dynamic<C> {
    fn add<'a>(
        self: Box<Self>,
        set: DesiredSet,
        finder: &'a Finder<'a>,
        claim: &'a Claim<'a>,
    ) -> BoxFuture<'a, Result<DesiredSet, Error>> {
        async move {
            let Self { kind, child } = *self;
            add(set, finder, claim, &kind, child, ChildOptions::default(), finder.kind::<C>(&kind)?).await
        }
        .boxed()
    }

    fn namespace(&self, finder: &Finder<'_>) -> Option<String> {
        namespace_of(&self.child, finder)
    }
}

/// The namespace of a wanted child.
fn namespace_of<C: Object>(child: &C, finder: &Finder<'_>) -> Option<String> {
    // Whether a kind that is known only at run time has namespaces, its child says.
    let is_dynamic = TypeId::of::<C::Scope>() == TypeId::of::<DynamicResourceScope>();
    let default = finder.namespace.filter(|_| C::Scope::IS_NAMESPACED && !is_dynamic);
    let namespace = child.meta().namespace.as_deref().filter(|_| C::Scope::IS_NAMESPACED).or(default);
    namespace.map(ToOwned::to_owned)
}

/// Adds a child, whose kind is cached whole or as its metadata alone.
async fn add<C: Object + Writable, S: Object + Writable>(
    set: DesiredSet,
    finder: &Finder<'_>,
    claim: &Claim<'_>,
    kind: &C::DynamicType,
    child: C,
    options: ChildOptions<C>,
    known: &Kind<S>,
) -> Result<DesiredSet, Error> {
    let key = ObjectKey { namespace: namespace_of(&child, finder), name: child.name_any() };
    if known.is_skipped(claim.owner.uid()) {
        tracing::debug!(child = %key, kind = %C::kind(kind), "skipped, since the API server does not serve this kind");
        return Ok(set);
    }
    if let Some(found) = known.cache.store.get(&key) {
        claim.check(&*found, &known.dynamic_type, &key)?;
        return Ok(set.observe_with([&*found], &known.dynamic_type).add_with_options(child, kind, options));
    }
    // Not in the cache means new, or not ours. An object that is not ours must not be overwritten.
    let api = C::Scope::api::<C>(finder.client.clone(), kind, key.namespace.as_deref());
    match api.get_metadata_opt(&key.name).await? {
        Some(found) => {
            claim.check(&found, kind, &key)?;
            Ok(set.observe_with([&found], kind).add_with_options(child, kind, options))
        }
        None => Ok(set.add_new_with_options(child, kind, options)),
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
    fn subscribe(&self, stores: &mut Stores, wake: Wake);
    /// Wakes owners whose children were skipped, whenever the kind is installed. Never ends; none if the kind is not optional.
    fn wake_skipped(&self, wake: Wake) -> Option<BoxFuture<'static, ()>>;
    /// Returns once the cache is complete.
    fn synced(&self) -> BoxFuture<'static, ()>;
}

/// Told the uid of an owner, and whether the change was found in a list.
pub(crate) type Wake = Arc<dyn Fn(&str, bool) + Send + Sync>;

pub(crate) struct Kind<C: Object> {
    dynamic_type: C::DynamicType,
    predicate: Predicate<C>,
    pub(crate) cache: Cache<C>,
    by_owner: Index<C, String>,
    /// Uids of the owners whose children were skipped while the kind was missing; none if the kind is not optional.
    skipped: Option<Arc<Mutex<HashSet<String>>>>,
}

impl<C: Object + Writable> Kind<C> {
    /// Begins the cache of the children that this `manager` makes, in these namespaces unless the watch names others.
    pub(crate) fn begin(
        setup: &mut Setup,
        watch: Watch<C>,
        namespaces: &[String],
        manager: &str,
    ) -> Box<dyn ChildKind> {
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
    fn is_skipped(&self, owner_uid: &str) -> bool {
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

    fn subscribe(&self, stores: &mut Stores, wake: Wake) {
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

    fn wake_skipped(&self, wake: Wake) -> Option<BoxFuture<'static, ()>> {
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
