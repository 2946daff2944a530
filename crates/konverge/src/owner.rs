//! How a child tells whose it is.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use konverge_runtime::object::{Object, ObjectKey};
use kube::{Resource, ResourceExt};

use crate::{context::Context, error::Error};

/// Label of children: the program that made them.
pub const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
/// Label of children: the uid of the object they belong to. What does not carry the owner's uid is never changed or deleted.
pub const OWNER_UID: &str = "konverge.dev/owner-uid";
/// Annotation of children, for people: kind, namespace and name of the object they belong to.
pub const OWNER: &str = "konverge.dev/owner";

/// The uid of the owner of a child.
pub(crate) fn uid_of<C: Resource>(child: &C) -> Option<String> {
    child.meta().labels.as_ref()?.get(OWNER_UID).cloned()
}

/// The owner of a child in words.
pub(crate) fn described(child: &ObjectMeta) -> String {
    let owner = child.annotations.as_ref().and_then(|annotations| annotations.get(OWNER));
    owner.cloned().unwrap_or_else(|| "another object".to_owned())
}

/// Makes `child` a child of the object that `context` is about.
pub(crate) fn stamp<K: Object, C: Resource<DynamicType = ()>>(
    child: &mut C,
    context: &Context<K>,
) -> Result<(), Error> {
    let (owner, kind) = (context.object(), context.kind());
    let uid = context.owner_uid()?;
    let key = ObjectKey::of(&**owner).ok_or_else(|| Error::transient("Unnamed", "the object has no name"))?;
    let meta = child.meta_mut();
    if meta.namespace.is_none() {
        meta.namespace.clone_from(&key.namespace);
    }
    // The garbage collector deletes children in the namespace of their owner, or of an owner without one.
    if (key.namespace.is_none() || key.namespace == meta.namespace)
        && let Some(reference) = owner.controller_owner_ref(kind)
    {
        meta.owner_references = Some(vec![reference]);
    }
    let labels = meta.labels.get_or_insert_with(BTreeMap::new);
    labels.insert(MANAGED_BY.to_owned(), context.program().to_owned());
    labels.insert(OWNER_UID.to_owned(), uid);
    let annotations = meta.annotations.get_or_insert_with(BTreeMap::new);
    annotations.insert(OWNER.to_owned(), format!("{} {key}", K::kind(kind)));
    Ok(())
}

/// Whether this finalizer is on the object.
pub(crate) fn has_finalizer<K: Resource>(object: &K, finalizer: &str) -> bool {
    object.finalizers().iter().any(|found| found == finalizer)
}
