//! What belongs to an object: made, kept in step, and pruned when it is no longer wanted.

use std::{
    any::{Any, TypeId},
    collections::HashSet,
    sync::Arc,
};

use futures::future::BoxFuture;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use konverge_apply::{Applier, ApplyOutcome, Writable};
use konverge_runtime::{
    cache::{Cache, Change, Index, Selection, Subscriber},
    object::{Object, ObjectKey},
};
use kube::{Api, Client, Resource, ResourceExt, core::PartialObjectMeta};

use crate::{
    context::Context,
    error::Error,
    operator::Setup,
    owner::{self, MANAGED_BY, OWNER_UID},
    witness::Stores,
};

/// A kind that children can have: every typed kind.
pub trait Child: Object + Writable + Resource<DynamicType = ()> {}

impl<C: Object + Writable + Resource<DynamicType = ()>> Child for C {}

/// The children that an object should have. What it has beyond them is pruned.
#[must_use = "nothing happens until it is applied"]
pub struct Children<K: Object> {
    context: Context<K>,
    wanted: Vec<Box<dyn Wanted<K>>>,
}

/// What became of one child.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChildOutcome {
    /// Its kind.
    pub kind: String,
    /// Its name.
    pub key: ObjectKey,
    /// What was done to it.
    pub outcome: Done,
}

/// What was done to a child.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Done {
    /// It was made.
    Created,
    /// It was not as it should be.
    Changed,
    /// It was as it should be.
    Unchanged,
    /// It was no longer wanted.
    Deleted,
}

impl<K: Object> Children<K> {
    pub(crate) fn new(context: Context<K>) -> Self {
        Self { context, wanted: Vec::new() }
    }

    /// Wants this child. Without a namespace it gets the one of its owner. Its kind must have been declared with
    /// [`Controller::owns`](crate::Controller::owns).
    pub fn add<C: Child>(mut self, child: C) -> Self {
        self.wanted.push(Box::new(child));
        self
    }

    /// Makes all that is wanted, in order, and then deletes what is not. Sends nothing for what is in step already.
    ///
    /// An object of that name that is not ours is left alone and is an error; so is a child of somebody else.
    pub async fn apply(self) -> Result<Vec<ChildOutcome>, Error> {
        let (mut outcomes, mut wanted) = (Vec::new(), HashSet::new());
        for child in self.wanted {
            let outcome = child.apply(&self.context).await?;
            wanted.insert((outcome.kind.clone(), outcome.key.clone()));
            outcomes.push(outcome);
        }
        outcomes.extend(prune(&self.context, &wanted).await?);
        Ok(outcomes)
    }

    /// Begins the cache of a kind of children.
    pub(crate) fn kind<C: Child>(setup: &mut Setup, selection: &Selection) -> Box<dyn ChildKind> {
        let ours = Selection {
            label_selector: Some(format!("{MANAGED_BY}={}", setup.program)),
            namespaces: selection.namespaces.clone(),
            field_selector: None,
        };
        let cache = setup.caches.cache::<C>(&(), &ours);
        let by_owner = cache.store.index(|child: &C| owner::uid_of(child).into_iter().collect());
        Box::new(Kind { cache, by_owner })
    }
}

/// Deletes the children that are not wanted, and tells which.
pub(crate) async fn prune<K: Object>(
    context: &Context<K>,
    wanted: &HashSet<(String, ObjectKey)>,
) -> Result<Vec<ChildOutcome>, Error> {
    let owner_uid = context.owner_uid()?;
    let mut outcomes = Vec::new();
    for kind in context.child_kinds() {
        for key in kind.owned(&owner_uid) {
            if !wanted.contains(&(kind.name(), key.clone())) && kind.delete(context.applier(), &key).await? {
                outcomes.push(ChildOutcome { kind: kind.name(), key, outcome: Done::Deleted });
            }
        }
    }
    Ok(outcomes)
}

/// One child that is wanted, whatever its kind.
trait Wanted<K: Object>: Send + Sync {
    fn apply<'a>(self: Box<Self>, context: &'a Context<K>) -> BoxFuture<'a, Result<ChildOutcome, Error>>;
}

impl<K: Object, C: Child> Wanted<K> for C {
    fn apply<'a>(mut self: Box<Self>, context: &'a Context<K>) -> BoxFuture<'a, Result<ChildOutcome, Error>> {
        Box::pin(async move {
            let kind = context.child_kind::<C>()?;
            owner::stamp(&mut *self, context)?;
            let key = ObjectKey::of(&*self).ok_or_else(|| {
                Error::permanent("InvalidChild", format!("a wanted {} has no name", C::kind(&())))
            })?;
            let observed = kind.cache.store.get(&key);
            match &observed {
                Some(observed) => belongs(observed.meta(), &key, &C::kind(&()), context)?,
                None => {
                    // Not in the cache can mean not ours, which must not be overwritten.
                    if let Some(found) = look::<C>(context.client(), &key).await? {
                        belongs(found.meta(), &key, &C::kind(&()), context)?;
                    }
                }
            }
            let applied = context.applier().apply(&*self, observed.as_deref()).await?;
            let outcome = match applied.outcome {
                ApplyOutcome::Created => Done::Created,
                ApplyOutcome::Changed => Done::Changed,
                ApplyOutcome::Unchanged => Done::Unchanged,
            };
            Ok(ChildOutcome { kind: C::kind(&()).into_owned(), key, outcome })
        })
    }
}

/// Fails unless the object is a child of this owner.
fn belongs<K: Object>(found: &ObjectMeta, key: &ObjectKey, kind: &str, context: &Context<K>) -> Result<(), Error> {
    let label = found.labels.as_ref().and_then(|labels| labels.get(OWNER_UID));
    match label {
        Some(uid) if *uid == context.owner_uid()? => Ok(()),
        Some(_) => Err(Error::permanent(
            "ChildOfAnother",
            format!("{kind} {key} belongs to {}; choose another name", owner::described(found)),
        )),
        None => Err(Error::permanent(
            "NotOurs",
            format!("{kind} {key} exists and was not made by this operator; delete it or choose another name"),
        )),
    }
}

/// The metadata of an object, straight from the API server.
async fn look<C: Child>(client: &Client, key: &ObjectKey) -> Result<Option<PartialObjectMeta<C>>, kube::Error> {
    let api: Api<C> =
        <C::Scope as konverge_runtime::object::Scope>::api(client.clone(), &(), key.namespace.as_deref());
    api.get_metadata_opt(&key.name).await
}

/// A kind of children, whatever it is.
pub(crate) trait ChildKind: Any + Send + Sync {
    fn name(&self) -> String;
    fn child_type(&self) -> TypeId;
    fn as_any(&self) -> &dyn Any;
    /// The children of this owner, as far as the cache knows.
    fn owned(&self, owner_uid: &str) -> Vec<ObjectKey>;
    /// Deletes a child. Whether it was there.
    fn delete<'a>(&'a self, applier: &'a Applier, key: &ObjectKey) -> BoxFuture<'a, Result<bool, Error>>;
    /// Calls back with the owner's uid whenever a child changes, but for our own writes through `stores`.
    fn subscribe(&self, stores: &mut Stores, wake: Arc<dyn Fn(&str, bool) + Send + Sync>);
    /// Returns once the cache is complete.
    fn synced(&self) -> BoxFuture<'static, ()>;
}

pub(crate) struct Kind<C> {
    pub(crate) cache: Cache<C>,
    by_owner: Index<C, String>,
}

impl<C: Child> ChildKind for Kind<C> {
    fn name(&self) -> String {
        C::kind(&()).into_owned()
    }

    fn child_type(&self) -> TypeId {
        TypeId::of::<C>()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn owned(&self, owner_uid: &str) -> Vec<ObjectKey> {
        self.by_owner.keys(&owner_uid.to_owned())
    }

    fn delete<'a>(&'a self, applier: &'a Applier, key: &ObjectKey) -> BoxFuture<'a, Result<bool, Error>> {
        let child = self.cache.store.get(key);
        Box::pin(async move {
            match child {
                // It is on its way out already.
                Some(child) if child.meta().deletion_timestamp.is_some() => Ok(false),
                Some(child) => Ok(applier.delete(&*child).await?),
                None => Ok(false),
            }
        })
    }

    fn subscribe(&self, stores: &mut Stores, wake: Arc<dyn Fn(&str, bool) + Send + Sync>) {
        let subscriber: Subscriber = self.cache.store.subscribe(move |_, change: &Change<C>| {
            let uids: HashSet<String> =
                change.old.iter().chain(&change.new).filter_map(|child| owner::uid_of(&**child)).collect();
            for uid in uids {
                wake(&uid, change.listed);
            }
        });
        stores.add(&(), self.cache.store.clone(), subscriber);
    }

    fn synced(&self) -> BoxFuture<'static, ()> {
        let cache = self.cache.clone();
        Box::pin(async move { cache.synced().await })
    }
}

impl<C: Child> Kind<C> {
    /// The children of this owner.
    pub(crate) fn of(&self, owner_uid: &str) -> Vec<Arc<C>> {
        let mut children = self.by_owner.get(&owner_uid.to_owned());
        children.sort_by_key(|child| (child.namespace(), child.name_any()));
        children
    }
}
