//! Objects that belong to another one by an owner reference, as the original makes them.

use std::sync::Arc;

use konverge::{
    Object,
    apply::{Applier, MetadataChange, Writable},
    kube::{Resource, ResourceExt},
    prelude::{Context, Error, ObjectKey},
};

use crate::{annotations, reasons};

/// Makes a child of the object as desired, and returns it as the cache showed it before; `None` if it was not there. Sends nothing if it is in sync. An
/// object of that name that does not belong to the owner is left alone.
pub(super) async fn apply<K, C>(context: &Context<K>, desired: &C) -> Result<Option<Arc<C>>, Error>
where
    K: Object + Writable,
    C: Object + Writable + Resource<DynamicType = ()>,
{
    let Some(key) = ObjectKey::of(desired) else { return Ok(None) };
    let observed = context.watched::<C>()?.get(&key);
    apply_as_seen(context.applier(), context, desired, observed.as_deref()).await?;
    Ok(observed)
}

/// Like [`apply`], but with this applier, such as one for a dry run, and the observed child; `None` if there was none.
pub(super) async fn apply_as_seen<K, C>(
    applier: &Applier,
    context: &Context<K>,
    desired: &C,
    seen: Option<&C>,
) -> Result<(), Error>
where
    K: Object + Writable,
    C: Object + Writable + Resource<DynamicType = ()>,
{
    if let Some(seen) = seen {
        check_owner(context, seen)?;
    }
    let outcome = applier.apply(desired, seen).await?.outcome;
    tracing::trace!(?outcome, "applied a child");
    Ok(())
}

/// Fails if the API server would not accept a child of the object that is not there yet, or if the child belongs to another object. Writes nothing.
pub(super) async fn check<K, C>(context: &Context<K>, desired: &C) -> Result<(), Error>
where
    K: Object + Writable,
    C: Object + Writable + Resource<DynamicType = ()>,
{
    let Some(key) = ObjectKey::of(desired) else { return Ok(()) };
    if let Some(observed) = context.watched::<C>()?.get(&key) {
        return check_owner(context, &*observed);
    }
    let preview = context.applier().clone().with_dry_run(true);
    apply_as_seen(&preview, context, desired, None).await
}

/// Refuses a child that belongs to another object.
fn check_owner<K, C>(context: &Context<K>, child: &C) -> Result<(), Error>
where
    K: Object,
    C: Resource<DynamicType = ()>,
{
    if belongs_to(child, &**context.object()) {
        return Ok(());
    }
    let key = ObjectKey { namespace: child.namespace(), name: child.name_any() };
    let message = format!("{} {key} exists and does not belong to this object; delete or rename it", C::kind(&()));
    Err(Error::refused(reasons::NOT_OURS, message))
}

/// Says on a child that its item stays, because that of its owner stays. The garbage collector deletes the child after its owner.
pub(super) async fn orphan_item<K, C>(context: &Context<K>, name: &str) -> Result<(), Error>
where
    K: Object + Writable,
    C: Object + Writable + Resource<DynamicType = ()>,
{
    let key = ObjectKey { namespace: context.object().namespace(), name: name.to_owned() };
    if let Some(child) = context.watched::<C>()?.get(&key)
        && belongs_to(&*child, &**context.object())
    {
        let change = MetadataChange::new().annotation(annotations::DELETION, annotations::ORPHAN);
        context.applier().change_metadata_with(&*child, &change, &()).await?;
    }
    Ok(())
}

/// Deletes a child. Returns `true` until it is gone.
pub(super) async fn delete<K, C>(context: &Context<K>, key: &ObjectKey) -> Result<bool, Error>
where
    K: Object + Writable,
    C: Object + Writable + Resource<DynamicType = ()>,
{
    let known = context.watched::<C>()?.get(key);
    let Some(child) = known.filter(|child| belongs_to(&**child, &**context.object())) else { return Ok(false) };
    if child.meta().deletion_timestamp.is_none() {
        let deletion = context.applier().delete(&*child).await?;
        tracing::trace!(?deletion, "deleted a child");
    }
    Ok(true)
}

/// Whether an object has an owner reference to another one.
pub(super) fn belongs_to<C: Resource, K: Resource>(child: &C, owner: &K) -> bool {
    let uid = owner.meta().uid.as_ref();
    child.owner_references().iter().any(|reference| Some(&reference.uid) == uid)
}

/// The owner of this kind that an object has in its own namespace.
pub(in crate::control) fn owner_key<C: Resource, K: Resource<DynamicType = ()>>(child: &C) -> Option<ObjectKey> {
    let owner = child.owner_references().iter().find(|owner| owner.kind == K::kind(&()))?;
    Some(ObjectKey { namespace: child.namespace(), name: owner.name.clone() })
}
