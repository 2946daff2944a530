//! The tools of a run.

mod status;

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, PoisonError},
};

use k8s_openapi::{api::core::v1::ObjectReference, jiff::Timestamp};
use konverge_apply::{
    Applier, ApplyError, ConditionStatus, MetadataChange, Owner, StatusWriter, Writable,
    conditions::{Moment, Reason},
    events::{EventSink, Notice},
};
use konverge_core::{api_server, reasons};
use konverge_runtime::{
    Request,
    cache::{Cache, Store},
    lease::Leadership,
    object::{Object, ObjectKey},
};
use kube::{Client, Resource, ResourceExt, core::object::HasStatus, runtime::events::EventType};
use tokio::sync::OnceCell;

pub(crate) use self::status::Said;
use crate::{
    children::Children,
    error::Error,
    finalizers::Finalizers,
    flags::Flags,
    owned::{Child, Claim, Finder, OwnedChildren},
    report::{AnyStatus, Report, Verdict},
    watched::{Watched, WatchedCache},
};

/// The part that all runs of a controller share.
pub(crate) struct Shared<K: Object> {
    pub(crate) name: String,
    pub(crate) kind: K::DynamicType,
    pub(crate) cache: Cache<K>,
    pub(crate) applier: Applier,
    /// Writes objects that are not in the cache past it.
    pub(crate) applier_past_cache: Applier,
    pub(crate) events: EventSink,
    pub(crate) report: Option<Report<K>>,
    pub(crate) children: OwnedChildren,
    pub(crate) watched: Vec<WatchedCache>,
    pub(crate) flags: Flags,
    pub(crate) finalizers: Option<Finalizers>,
    /// Whether the controller leads; `None` where there are no elections.
    pub(crate) leadership: Option<Leadership>,
}

/// One run: the object it is about, why it runs, and what it may use. Clones are handles to the same run.
pub struct Context<K: Object>(Arc<Inner<K>>);

struct Inner<K: Object> {
    shared: Arc<Shared<K>>,
    object: Arc<K>,
    known_from: KnownFrom,
    attempt: u32,
    reasons: BTreeSet<&'static str>,
    said: Mutex<Said>,
    /// The object after the last write of it in this run.
    written: Mutex<Option<Arc<K>>>,
    /// Set once the finalizer is there.
    held: OnceCell<()>,
}

/// How a run knows its object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum KnownFrom {
    /// The cache has it.
    Cache,
    /// The API server has it, and the cache does not. Writes of the run must not bring it in there.
    ApiServer,
    /// It is gone, and this is its last state.
    Memory,
}

impl<K: Object> Clone for Context<K> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<K: Object> Context<K> {
    pub(crate) fn new(shared: Arc<Shared<K>>, object: Arc<K>, attempt: u32, reasons: BTreeSet<&'static str>) -> Self {
        Self::of(shared, object, KnownFrom::Cache, attempt, reasons)
    }

    /// A run for an object that is not in the cache.
    pub(crate) fn uncached(shared: Arc<Shared<K>>, object: K, request: &Request<ObjectKey>) -> Self {
        Self::of(shared, Arc::new(object), KnownFrom::ApiServer, request.attempt, request.reasons.clone())
    }

    /// A run for an object that is gone, to clean up what was made for it.
    pub(crate) fn gone(shared: Arc<Shared<K>>, object: Arc<K>, request: &Request<ObjectKey>) -> Self {
        Self::of(shared, object, KnownFrom::Memory, request.attempt, request.reasons.clone())
    }

    fn of(
        shared: Arc<Shared<K>>,
        object: Arc<K>,
        known_from: KnownFrom,
        attempt: u32,
        reasons: BTreeSet<&'static str>,
    ) -> Self {
        Self(Arc::new(Inner {
            shared,
            object,
            known_from,
            attempt,
            reasons,
            said: Mutex::default(),
            written: Mutex::default(),
            held: OnceCell::new(),
        }))
    }

    /// The object as the cache knew it when the run began.
    pub fn object(&self) -> &Arc<K> {
        &self.0.object
    }

    /// 1 on the first attempt, 2 after one failure, and so on.
    pub fn attempt(&self) -> u32 {
        self.0.attempt
    }

    /// Why it runs: words such as `created`, `changed`, `child`, `retry`, `periodic`, or the name of a trigger.
    pub fn reasons(&self) -> &BTreeSet<&'static str> {
        &self.0.reasons
    }

    /// The name of the controller.
    pub fn controller(&self) -> &str {
        &self.0.shared.name
    }

    /// For requests that nothing else here makes. Every call has a deadline and is counted.
    pub fn client(&self) -> &Client {
        self.applier().client()
    }

    /// For writing what is neither a child nor the status.
    pub fn applier(&self) -> &Applier {
        let Shared { applier, applier_past_cache, .. } = &*self.0.shared;
        if self.0.known_from == KnownFrom::Cache { applier } else { applier_past_cache }
    }

    /// Whether the object is gone, so that nothing can be written to it. A write of the author is dropped, or the cleanup would never end.
    pub(crate) fn is_gone(&self) -> bool {
        self.0.known_from == KnownFrom::Memory
    }

    /// The cache of the controller's own kind.
    pub fn store(&self) -> &Store<K> {
        &self.0.shared.cache.store
    }

    /// The objects of a kind that the controller declared to [watch](crate::Controller::watches).
    pub fn watched<O: Object + Resource<DynamicType = ()>>(&self) -> Result<Watched<'_, O>, Error> {
        self.watched_kind(&())
    }

    /// [`watched`](Self::watched) for kinds that are known only at run time.
    pub fn watched_kind<O: Object>(&self, kind: &O::DynamicType) -> Result<Watched<'_, O>, Error> {
        Watched::among(&self.0.shared.watched, kind).ok_or_else(|| {
            let name = std::any::type_name::<O>();
            let message = format!(
                "the controller does not watch {} ({name}); add .watches::<{name}, _>(…) to it",
                O::plural(kind)
            );
            Error::permanent(reasons::UNDECLARED, message)
        })
    }

    /// The values of flags that the program [declares](crate::Operator::flags).
    pub fn flags<F: Send + Sync + 'static>(&self) -> Result<&F, Error> {
        self.0.shared.flags.get().ok_or_else(|| {
            let name = std::any::type_name::<F>();
            let message =
                format!("the program does not declare the flags {name}; add .flags::<{name}>() to the operator");
            Error::permanent(reasons::UNDECLARED, message)
        })
    }

    /// The children of kind `C` that the object has, by namespace and name. An object that only claims to be one is left out. So is a child
    /// whose proof was removed, until [`children`](Self::children) are applied again.
    pub fn owned<C: Child>(&self) -> Result<Vec<Arc<C>>, Error> {
        self.owned_kind(&())
    }

    /// [`owned`](Self::owned) for kinds that are known only at run time.
    pub fn owned_kind<C: Object + Writable>(&self, kind: &C::DynamicType) -> Result<Vec<Arc<C>>, Error> {
        self.finder().kind::<C>(kind)?.children(&self.claim()?)
    }

    /// Adds the finalizer of a controller that has one [on demand](crate::Controller::finalizer_on_demand), so that
    /// [`cleanup`](crate::Reconcile::cleanup) runs before the object goes. Call it right before the run makes the first thing outside
    /// the cluster. Sends nothing if the object has the finalizer.
    pub async fn ensure_finalizer(&self) -> Result<(), Error>
    where
        K: Writable,
    {
        if self.is_gone() {
            return Ok(());
        }
        let Some(finalizers) = &self.0.shared.finalizers else {
            return Err(Error::permanent(
                reasons::UNDECLARED,
                "the controller has no finalizer; add .finalizer_on_demand(\"…\") to it",
            ));
        };
        let add = async || {
            let after = self.applier().add_finalizer_with(&**self.object(), finalizers.name, self.kind()).await?;
            after.map_or(Ok(()), |after| self.has_written(&after))
        };
        self.0.held.get_or_try_init(add).await?;
        Ok(())
    }

    /// Fails unless this process still holds its lease; without leader election it never does. Call it right before each write to a store, a
    /// cloud or another system outside the cluster: a process that was suspended or starved may run again after another began to lead. Writes to
    /// the API server need no such call.
    pub fn check_lease(&self) -> Result<(), Error> {
        let checked = self.0.shared.leadership.as_ref().map_or(Ok(()), Leadership::check);
        // The class that a write to the API server has that is not sent for the same reason.
        checked.map_err(|error| Error::unavailable(api_server::ENDPOINT, reasons::NOT_LEADING, error.to_string()))
    }

    /// The children that the object should have.
    pub fn children(&self) -> Children<K> {
        Children::new(self.clone())
    }

    /// Gives the object itself a label; nothing is sent if it has it. Labels of others stay.
    pub async fn label(&self, name: &str, value: &str) -> Result<(), Error>
    where
        K: Writable,
    {
        self.change_metadata(&MetadataChange::new().label(name, value)).await
    }

    /// Gives the object itself an annotation; nothing is sent if it has it. Annotations of others stay.
    pub async fn annotate(&self, name: &str, value: &str) -> Result<(), Error>
    where
        K: Writable,
    {
        self.change_metadata(&MetadataChange::new().annotation(name, value)).await
    }

    /// Changes metadata of the object as this run knows it.
    async fn change_metadata(&self, change: &MetadataChange) -> Result<(), Error>
    where
        K: Writable,
    {
        if self.is_gone() {
            return Ok(());
        }
        let after = self.applier().change_metadata_with(&*self.written(), change, self.kind()).await?;
        Ok(after.map_or(Ok(()), |after| self.has_written(&after))?)
    }

    /// Tells the readers of the object's events. `reason` and `action` are `CamelCase` words from fixed lists; never a secret in `note`.
    pub fn event(
        &self,
        kind: EventType,
        reason: impl Into<&'static str>,
        action: &'static str,
        note: impl Into<String>,
    ) {
        self.event_about(self.0.object.object_ref(self.kind()), kind, reason, action, note);
    }

    /// Like [`event`](Self::event), but for the readers of another object's events. An object without a namespace has its events in `default`.
    pub fn event_about(
        &self,
        regarding: ObjectReference,
        kind: EventType,
        reason: impl Into<&'static str>,
        action: &'static str,
        note: impl Into<String>,
    ) {
        let notice = Notice { regarding, kind, reason: reason.into(), action, note: note.into() };
        self.0.shared.events.send(notice);
    }

    /// Changes the author's own part of the status: `change` gets a copy of the current status. It is written once, when the run is over,
    /// and only if it differs.
    ///
    /// The operator becomes the owner of the fields and conditions that the run changes. Fields and conditions of other controllers are
    /// in the copy to be read, and stay as they are.
    pub fn status(&self, change: impl FnOnce(&mut K::Status))
    where
        K: HasStatus,
        K::Status: 'static,
    {
        self.change_status(|status| {
            if let Some(status) = status.as_any().downcast_mut::<K::Status>() {
                change(status);
            }
        });
    }

    /// Sets a condition of the author's own, such as `BackedUp`. It stays until a run sets it otherwise or
    /// [removes](Self::remove_condition) it. `Ready`, `Reconciling` and `Stalled` follow from how the run ends.
    pub fn condition(
        &self,
        condition_type: &str,
        status: impl Into<ConditionStatus>,
        reason: impl Into<Reason>,
        message: impl AsRef<str>,
    ) {
        let (moment, reason) = (self.moment(), reason.into());
        self.change_status(|all| {
            all.conditions().set(condition_type, status.into(), &reason, message.as_ref(), moment);
        });
    }

    /// Removes a condition that the operator has set. A condition of another controller stays.
    pub fn remove_condition(&self, condition_type: &str) {
        self.change_status(|all| all.conditions().remove(condition_type));
    }

    /// Reports that the run succeeded, with a reason; the default reason is `Reconciled`. While children are not ready the
    /// object is reported as in progress all the same, unless they are [tolerated](crate::Children::tolerate_unready).
    pub fn ready(&self, reason: impl Into<Reason>, message: impl Into<String>) {
        self.said().verdict = Some(Verdict::Ready { reason: reason.into(), message: message.into() });
    }

    /// Reports that the run succeeded, but the object is not ready yet: something else has to happen, and will wake it.
    pub fn progressing(&self, reason: impl Into<Reason>, message: impl Into<String>) {
        self.said().verdict = Some(Verdict::Progressing { reason: reason.into(), message: message.into() });
    }

    /// Writes the status at once, as far as the run has determined it: for runs that take long. Sends nothing if it is unchanged. The end
    /// of the run writes the rest.
    pub async fn write_status(&self) -> Result<(), Error>
    where
        K: Writable,
    {
        if self.is_gone() {
            return Ok(());
        }
        let verdict = self.said().verdict();
        self.report_status(verdict.as_ref()).await?;
        Ok(())
    }

    /// Writes the status, with how the run stands if that is known. Returns whether that was news; `None` for a kind whose status
    /// is not the operator's.
    pub(crate) async fn report_status(&self, verdict: Option<&Verdict>) -> Result<Option<bool>, ApplyError>
    where
        K: Writable,
    {
        let moment = self.moment();
        let said = self.change_status(|status| {
            if let Some(verdict) = verdict {
                status.say(verdict, moment);
            }
            status.json()
        });
        let Some(status) = said else { return Ok(None) };
        let object = self.written();
        let status = status.map_err(|source| ApplyError::Encode {
            kind: K::kind(self.kind()).into_owned(),
            name: object.name_any(),
            source,
        })?;
        let applier = self.applier().clone();
        let is_dry_run = applier.is_dry_run();
        let written = StatusWriter::new(applier).update_with(&*object, &status, self.kind()).await?;
        let is_news = written.is_some();
        if is_news && is_dry_run {
            tracing::info!(object = object.name_any(), %status, "dry run: would write the status");
        }
        if let Some(written) = written {
            self.set_written(written);
        }
        Ok(Some(is_news))
    }

    /// Changes the copy of the status; `None` for a kind whose status is not the operator's.
    fn change_status<T>(&self, change: impl FnOnce(&mut dyn AnyStatus) -> T) -> Option<T> {
        let report = self.shared().report.as_ref()?;
        let mut said = self.said();
        let status = said.status.get_or_insert_with(|| (report.begin)(self.object()));
        Some(change(&mut **status))
    }

    fn moment(&self) -> Moment {
        Moment { generation: self.object().meta().generation, now: Timestamp::now() }
    }

    pub(crate) fn said(&self) -> std::sync::MutexGuard<'_, Said> {
        self.0.said.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The object as this run knows it: after the last write of it, else as the cache knew it when the run began.
    pub(crate) fn written(&self) -> Arc<K> {
        let written = self.0.written.lock().unwrap_or_else(PoisonError::into_inner).clone();
        written.unwrap_or_else(|| Arc::clone(&self.0.object))
    }

    /// Notes the answer to a write of something else than the status, since the write of the status names the version of the object.
    pub(crate) fn has_written(&self, after: &K) -> Result<(), ApplyError>
    where
        K: Writable,
    {
        let seen = StatusWriter::new(self.applier().clone()).at_version_of(&*self.written(), after, self.kind())?;
        self.set_written(seen);
        Ok(())
    }

    fn set_written(&self, object: K) {
        *self.0.written.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(object));
    }

    pub(crate) fn shared(&self) -> &Shared<K> {
        &self.0.shared
    }

    pub(crate) fn kind(&self) -> &K::DynamicType {
        &self.0.shared.kind
    }

    pub(crate) fn owned_children(&self) -> &OwnedChildren {
        &self.0.shared.children
    }

    /// The object as an owner, and how its children are told from others.
    pub(crate) fn claim(&self) -> Result<Claim<'_>, Error> {
        let owner = Owner::of_kind(&**self.object(), self.kind())?;
        Ok(Claim { owner, key: self.0.shared.children.key(), applier: self.applier() })
    }

    /// Where children look for their kinds.
    pub(crate) fn finder(&self) -> Finder<'_> {
        Finder {
            kinds: self.0.shared.children.kinds(),
            client: self.client(),
            namespace: self.0.object.meta().namespace.as_deref(),
        }
    }
}
