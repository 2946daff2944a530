//! The children of an object: created, kept in sync, and pruned when they are no longer wanted.
//!
//! The decisions are those of [`DesiredSet`]; here it meets the caches.

use std::any::TypeId;

use futures::future::{BoxFuture, FutureExt};
use konverge_apply::{
    ApplyOutcome, ChildOptions, DeleteBudget, DesiredSet, SetReport, Writable, desired::ChildReport, owners::OWNER_UID,
};
use konverge_core::reasons;
use konverge_runtime::object::{Object, ObjectKey, Scope};
use kube::{
    ResourceExt,
    core::{DynamicResourceScope, PartialObjectMeta},
    runtime::events::EventType,
};

use crate::{
    context::Context,
    error::Error,
    inventory,
    owned::{Child, Claim, Finder, Kind},
};

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
        let report = self.reconcile().await?;
        let is_tolerated = |child: &ChildReport| !child.is_awaited && (tolerates_unready || child.tolerates_unready);
        context.said().unready_children = unready(&report, is_tolerated);
        Ok(report)
    }

    /// Deletes all children of an object that is being deleted.
    pub(crate) async fn delete_all(self) -> Result<SetReport, Error>
    where
        K: Writable,
    {
        Self { wanted: Vec::new(), ..self }.reconcile().await
    }

    async fn reconcile(self) -> Result<SetReport, Error>
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
        let (owned, owner_uid) = (context.owned_children(), claim.owner.uid());
        let former = owned.former.places(owner_uid);
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
            owned.former.forget(owner_uid);
        }
        Ok(result?)
    }
}

/// Reports objects that claim to be children and that nothing proves to be, once.
fn warn_of_unproven<K: Object>(context: &Context<K>, owner_uid: &str, report: &SetReport) {
    let unproven = &report.unproven;
    if context.owned_children().are_news(owner_uid, unproven)
        && let Some(first) = unproven.first()
    {
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
