//! Custom resources that have Secrets made.
//!
//! A watched object is turned into what its Secret is to hold ([`Wanted`]), and binds that Secret, as annotations do. The rest is the same: a run fills the
//! Secret by [`Pull::fill`], and puts the statements about it into the status of the object.
//!
//! Of several objects with one target, the oldest has it.

pub mod secret_pull;
pub mod secret_source;
pub mod zopp_secret_sync;

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use k8s_openapi::{
    api::core::v1::Secret, apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
    jiff::Timestamp,
};
use konverge::prelude::{Action, Context, Controller, CustomStatus, Error, EventType, Reason, Reconcile};
use konverge_apply::{ApplyError, Statement};
use konverge_core::{claims::Claims, error::Classify, names::is_object_name};
use konverge_runtime::{
    cache::{Caching, Change},
    object::{Object, ObjectKey},
};
use kube::{
    Api, CustomResourceExt, Resource, ResourceExt,
    api::{DeleteParams, Preconditions},
    core::object::HasStatus,
};
use tokio::sync::mpsc::UnboundedReceiver;

use self::{
    secret_pull::SecretPull,
    secret_source::{ClusterSecretSource, SecretSource},
    zopp_secret_sync::ZoppSecretSync,
};
use crate::{
    annotations::{Declaration, TARGET_RECORD, is_reserved},
    bindings::{Bindings, SecretRef},
    messages, reasons,
    reconcile::{Pull, PullError},
    record::TargetRecord,
    wakes::{Wakes, trigger},
    wanted::{Foreign, Owner, OwnerKind, Wanted},
    watch::Subscriptions,
};

/// The shortest interval in which an object can have its stores asked.
pub(crate) const SHORTEST_REFRESH: Duration = Duration::from_secs(10);

/// How soon an object looks again whether its target is free. Nothing tells it.
const LOOK_AGAIN: Duration = Duration::from_mins(1);

/// How often an object records at least that its Secret is as its sources are, while nothing else happens.
pub(crate) const RECORD_VERIFIED_EVERY: Duration = Duration::from_hours(1);

/// How soon a Secret is read again that another writer has changed meanwhile.
const AFTER_CONFLICT: Duration = Duration::from_millis(50);

/// Returns the definitions that a cluster needs, each with its plural.
pub fn definitions() -> [(&'static str, CustomResourceDefinition); 4] {
    [
        ("secretpulls", SecretPull::crd()),
        ("secretsources", SecretSource::crd()),
        ("clustersecretsources", ClusterSecretSource::crd()),
        ("zoppsecretsyncs", ZoppSecretSync::crd()),
    ]
}

/// What an object requests.
pub struct Request {
    /// The Secret.
    pub target: SecretRef,
    /// What it is to hold.
    pub wanted: Wanted,
}

/// A kind whose objects have Secrets made.
pub trait Requests: Object + Resource<DynamicType = ()> + HasStatus<Status: CustomStatus> {
    /// The kind.
    const KIND: OwnerKind;

    /// Returns what the object requests.
    ///
    /// # Errors
    /// The field that cannot be used, and why.
    fn request(&self) -> Result<Request, String>;

    /// Returns whether the Secret is to stay as it is.
    fn is_suspended(&self) -> bool;

    /// Returns the name of the Secret that the object had made last, if it is to be deleted once the object names another one.
    fn former_target(&self) -> Option<&str>;

    /// Returns the reason of this kind's conditions for a reason of this operator.
    fn reason(reason: &'static str) -> &'static str;

    /// Records what the Secret holds, and when the sources last confirmed this. `None` if the Secret is not in sync.
    fn record(status: &mut Self::Status, target: &str, record: Option<&TargetRecord>, verified: Option<Timestamp>);
}

/// Returns whether a Secret can have this name.
fn is_valid_target(name: &str) -> bool {
    is_object_name(name)
}

/// Checks that the annotations of a target request nothing of this operator.
fn check_annotations(annotations: &BTreeMap<String, String>) -> Result<(), String> {
    annotations.keys().find(|name| is_reserved(name)).map_or(Ok(()), |name| {
        Err(format!("spec.target.annotations: {name} is for Secrets that are annotated by hand; leave it out"))
    })
}

fn now() -> Timestamp {
    Timestamp::now().round(k8s_openapi::jiff::Unit::Second).unwrap_or_default()
}

/// An object of one of the kinds.
type Id = (String, Owner);

/// The custom resources, and the targets that they claim.
pub struct Objects {
    pull: Arc<Pull>,
    bindings: Arc<Bindings>,
    subscriptions: Arc<Subscriptions>,
    wakes: Wakes,
    claims: Mutex<Targets>,
}

#[derive(Default)]
struct Targets {
    claims: Claims<Id, SecretRef>,
    /// The age of each object, which decides.
    created: HashMap<Id, Option<Timestamp>>,
}

impl Objects {
    /// Has Secrets filled by `pull`.
    pub fn new(pull: Arc<Pull>, bindings: Arc<Bindings>, subscriptions: Arc<Subscriptions>, wakes: Wakes) -> Arc<Self> {
        Arc::new(Self { pull, bindings, subscriptions, wakes, claims: Mutex::default() })
    }

    /// Returns the controller of a kind. It runs for the objects that come out of `wakes`, besides those that change.
    pub fn controller<K>(self: Arc<Self>, wakes: UnboundedReceiver<ObjectKey>) -> Controller<K, Filling>
    where
        K: Requests + CustomResourceExt,
        Filling: Reconcile<K>,
    {
        let trigger = trigger(&self, wakes, Self::changed);
        Controller::<K, _>::new(Filling(self)).caching(Caching::optional_without_warning).trigger("secrets", trigger)
    }

    /// The watch shows a change of an object. A standby follows the sources, too.
    fn changed<K: Requests>(&self, key: &ObjectKey, change: &Change<K>) {
        match &change.new {
            // The run says what is wrong.
            Some(object) if !object.is_suspended() => drop(self.bind(&**object)),
            Some(_) => {}
            None => self.release(key.namespace.as_deref().unwrap_or_default(), K::KIND, &key.name),
        }
    }

    /// Binds the target of an object.
    fn bind<K: Requests>(&self, object: &K) -> Result<SecretRef, Statement> {
        let namespace = object.namespace().unwrap_or_default();
        let id = (namespace.clone(), Owner { kind: K::KIND, name: object.name_any() });
        let Request { target, wanted } = match object.request() {
            Ok(request) => request,
            Err(cause) => {
                self.release(&namespace, K::KIND, &id.1.name);
                return Err(messages::invalid_spec(&cause));
            }
        };
        let given_up = {
            let mut targets = self.targets();
            targets.created.insert(id.clone(), object.meta().creation_timestamp.as_ref().map(|time| time.0));
            let given_up = targets.claims.set(&id, [target.clone()]);
            let Targets { claims, created } = &*targets;
            let rank = |id: &Id| Some((created.get(id)?.as_ref(), id.clone()));
            if let Some((_, first)) = claims.preceding(&id, [target.clone()], rank) {
                let statement = messages::target_taken(&target, first);
                drop(targets);
                self.bindings.release(&target, &id.1);
                return Err(statement);
            }
            given_up
        };
        self.free(&id.1, given_up);
        let declared = Declaration::Bound(Arc::new(wanted));
        let subscribe = || self.subscriptions.subscribe(&namespace, &declared);
        if self.bindings.bind(&target, declared.clone(), subscribe) {
            Ok(target)
        } else {
            // No event of the object tells when the annotations are gone.
            Err(Statement { is_passing: true, ..messages::foreign(&target, &Foreign::Annotated) })
        }
    }

    /// The object is gone, or requests nothing. Those that wait for its target have it next.
    fn release(&self, namespace: &str, kind: OwnerKind, name: &str) {
        let id = (namespace.to_owned(), Owner { kind, name: name.to_owned() });
        let given_up = {
            let mut targets = self.targets();
            targets.created.remove(&id);
            targets.claims.set(&id, [])
        };
        self.free(&id.1, given_up);
    }

    fn free(&self, owner: &Owner, targets: Vec<SecretRef>) {
        for target in targets {
            self.bindings.release(&target, owner);
            let waiting: Vec<_> = self.targets().claims.claimants(&target).cloned().collect();
            for (namespace, owner) in waiting {
                self.wakes.wake_owner(namespace, &owner);
            }
        }
    }

    fn targets(&self) -> MutexGuard<'_, Targets> {
        self.claims.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Fills the target of an object.
    async fn run<K: Requests>(&self, object: &K, context: &Context<K>) -> Result<Action, Error> {
        if object.is_suspended() {
            self.release(&object.namespace().unwrap_or_default(), K::KIND, &object.name_any());
            context.progressing(Reason::new(K::reason(reasons::SUSPENDED)), messages::suspended().text);
            return Ok(Action::Done);
        }
        let target = match self.bind(object) {
            Ok(target) => target,
            Err(statement) => {
                Self::say(context, object, &[statement])?;
                return Ok(Action::After(LOOK_AGAIN));
            }
        };
        self.delete_former(object, &target, context).await?;
        let next = match self.pull.fill(&target).await {
            Ok(next) => next,
            // Another writer was faster. The Secret is read, and decided upon anew.
            Err(PullError::Apply(ApplyError::OutOfDate { .. })) => return Ok(Action::After(AFTER_CONFLICT)),
            Err(error) => return Err(failed::<K>(&error)),
        };
        let Some(binding) = self.bindings.get(&target) else { return Ok(next) };
        let record = binding.record.as_deref().and_then(TargetRecord::read);
        let verified = self.pull.verified_ago(&binding).and_then(|ago| now().checked_sub(ago).ok());
        context.status(|status| K::record(status, &target.name, record.as_ref(), verified));
        Self::say(context, object, &binding.said)?;
        Ok(match next {
            Action::Done => Action::After(RECORD_VERIFIED_EVERY),
            next => next,
        })
    }

    /// Puts the statements into the status.
    ///
    /// # Errors
    /// A problem that lasts until somebody changes something. The framework tells it in an event.
    fn say<K: Requests>(context: &Context<K>, object: &K, statements: &[Statement]) -> Result<(), Error> {
        let Some(first) = statements.first() else { return Ok(()) };
        let text = statements.iter().map(|statement| &*statement.text).collect::<Vec<_>>().join("; ");
        let reason = K::reason(first.reason);
        if !first.is_problem() {
            context.ready(Reason::new(reason), text);
            return Ok(());
        }
        if !first.is_passing {
            return Err(Error::permanent(reason, text));
        }
        let ready = object.status().and_then(|status| status.standard().conditions.get("Ready"));
        if ready.is_none_or(|ready| ready.reason != reason) {
            context.event(EventType::Warning, reason, "Pull", text.clone());
        }
        context.progressing(Reason::new(reason), text);
        Ok(())
    }

    /// Deletes the Secret that the object had made under another name.
    async fn delete_former<K: Requests>(
        &self,
        object: &K,
        target: &SecretRef,
        context: &Context<K>,
    ) -> Result<(), Error> {
        let Some(former) = object.former_target().filter(|former| *former != target.name) else { return Ok(()) };
        let api = Api::<Secret>::namespaced(context.client().clone(), &target.namespace);
        let Some(found) = api.get_metadata_opt(former).await? else { return Ok(()) };
        let owner = Owner { kind: K::KIND, name: object.name_any() };
        let record = found.annotations().get(TARGET_RECORD).and_then(|record| TargetRecord::read(record));
        if record.is_none_or(|record| record.owner != owner.to_string()) {
            return Ok(());
        }
        let seen = Preconditions { uid: found.uid(), resource_version: found.resource_version() };
        let deleted = api.delete(former, &DeleteParams { preconditions: Some(seen), ..DeleteParams::default() }).await;
        match deleted {
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            deleted => Ok(deleted.map(drop)?),
        }
    }
}

/// Returns an error of a run in the words of the kind.
fn failed<K: Requests>(error: &PullError) -> Error {
    Error::transient(K::reason(error.reason()), error.to_string())
}

/// The reconciler of both kinds.
pub struct Filling(Arc<Objects>);

impl Reconcile<SecretPull> for Filling {
    type Error = Error;

    async fn apply(&self, object: Arc<SecretPull>, context: Context<SecretPull>) -> Result<Action, Error> {
        self.0.run(&*object, &context).await
    }
}

impl Reconcile<ZoppSecretSync> for Filling {
    type Error = Error;

    async fn apply(&self, object: Arc<ZoppSecretSync>, context: Context<ZoppSecretSync>) -> Result<Action, Error> {
        self.0.run(&*object, &context).await
    }
}
