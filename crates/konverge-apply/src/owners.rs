//! The owners of an object: references where Kubernetes allows them, labels where it does not, and the lookup from a child to its owner.
//!
//! A reference may not cross namespaces, and a namespaced object may not own a cluster-scoped one: the garbage collector would take
//! the owner for missing and delete the child. There the labels alone tell, and a finalizer of the owner has to clean up.

use std::{collections::BTreeMap, fmt, sync::Arc};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use konverge_core::digest::{DigestKey, keyed_hash};
use kube::{Resource, api::ObjectMeta, runtime::reflector::ObjectRef};
use sha2::{Digest, Sha256};

use crate::{error::ApplyError, object::Target, object_name::ObjectName};

/// Label with the uid of the owner: the one that decides what may be pruned.
pub const OWNER_UID: &str = "konverge.dev/owner-uid";
/// Label with the namespace of an owner that cannot be referred to; absent for a cluster-scoped one.
pub const OWNER_NAMESPACE: &str = "konverge.dev/owner-namespace";
/// Label with the name of an owner that cannot be referred to. A name that is no label's value is an annotation under this key,
/// and the label has a digest of it, so that a selector can still find it.
pub const OWNER_NAME: &str = "konverge.dev/owner-name";
/// Annotation that proves who the owner is. Anyone who may create objects may write the labels and owner references of another's
/// children; the proof is made with an [`OwnerKey`], which only the operator may read.
pub const OWNER_PROOF: &str = "konverge.dev/owner-proof";
/// Label with the field manager that writes the object.
///
/// Its value is [`managed_by`] of the field manager.
pub const MANAGED_BY: &str = "app.kubernetes.io/managed-by";

/// The key of the proofs that children carry.
///
/// A proof binds the uid of the owner to the kind, namespace and name of the child, so it is worth nothing on any other object.
/// Clones share the key.
#[derive(Clone)]
pub struct OwnerKey(Arc<DigestKey>);

impl OwnerKey {
    /// Makes proofs with this key, which has to be the same in all replicas and after a restart.
    pub fn new(key: DigestKey) -> Self {
        Self(Arc::new(key))
    }

    /// 128 bits of HMAC-SHA256, as hexadecimal digits.
    pub(crate) fn proof(&self, owner_uid: &str, child: &Target) -> String {
        let child = child.key();
        let parts = [b"owner", owner_uid.as_bytes(), child.as_bytes()];
        hex::encode(&keyed_hash(self.0.bytes(), parts)[..16])
    }
}

impl fmt::Debug for OwnerKey {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("OwnerKey")
    }
}

/// Annotation of a child that [outlives its owner](crate::desired::ChildOptions::retain): the kind of the owner, and its group.
pub const RETAINED: &str = "konverge.dev/retained-from";

/// Whether an object, in JSON, outlives its owner.
pub(crate) fn is_retained(object: &serde_json::Value) -> bool {
    object["metadata"]["annotations"][RETAINED].is_string()
}

/// An object that owns others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    pub(crate) object: ObjectName,
    pub(crate) is_terminating: bool,
    pub(crate) annotations: BTreeMap<String, String>,
    api_version: String,
    uid: String,
}

impl Owner {
    /// The owner that `object` is. It must have been read from the API server, as it needs a uid.
    pub fn of<K: Resource<Scope: 'static, DynamicType: Default>>(object: &K) -> Result<Self, ApplyError> {
        Self::of_kind(object, &K::DynamicType::default())
    }

    /// [`of`](Self::of) for kinds that are known at run time only.
    pub fn of_kind<K: Resource<Scope: 'static>>(object: &K, kind: &K::DynamicType) -> Result<Self, ApplyError> {
        let target = Target::of(object, kind)?;
        let metadata = object.meta();
        let uid = metadata.uid.clone().filter(|uid| !uid.is_empty()).ok_or_else(|| ApplyError::MissingField {
            kind: target.object.kind.clone(),
            name: target.object.name.clone(),
            field: "metadata.uid",
        })?;
        Ok(Self {
            api_version: target.api_version,
            object: target.object,
            uid,
            is_terminating: metadata.deletion_timestamp.is_some(),
            annotations: metadata.annotations.clone().unwrap_or_default(),
        })
    }

    /// Its uid.
    pub fn uid(&self) -> &str {
        &self.uid
    }

    /// Its kind, namespace and name.
    pub fn object(&self) -> &ObjectName {
        &self.object
    }

    /// A reference that lets the garbage collector delete the child after the owner, and says no more.
    pub fn reference(&self) -> OwnerReference {
        OwnerReference {
            api_version: self.api_version.clone(),
            kind: self.object.kind.clone(),
            name: self.object.name.clone(),
            uid: self.uid.clone(),
            controller: Some(false),
            block_owner_deletion: Some(false),
        }
    }

    /// Returns a reference that also marks the owner as the controller of the child. A child has one controller at most.
    ///
    /// In a foreground deletion, the owner does not wait for the child. On clusters that check it, such as `OpenShift`, the writer would
    /// need permission to update the owner's `finalizers` for that. An owner that has to wait has a finalizer.
    pub fn controller_reference(&self) -> OwnerReference {
        OwnerReference { controller: Some(true), ..self.reference() }
    }

    /// Whether a child in this namespace, or in none, may have a reference to it.
    pub fn may_be_referred_to_from(&self, namespace: Option<&str>) -> bool {
        self.object.namespace.is_none() || self.object.namespace.as_deref() == namespace
    }

    /// Labels that lead back to the owner from wherever the child is.
    pub fn labels(&self) -> BTreeMap<String, String> {
        let name = &self.object.name;
        let name = if is_label_value(name) { name.clone() } else { digest(name) };
        let mut labels = BTreeMap::from([(OWNER_UID.to_owned(), self.uid.clone()), (OWNER_NAME.to_owned(), name)]);
        if let Some(namespace) = &self.object.namespace {
            labels.insert(OWNER_NAMESPACE.to_owned(), namespace.clone());
        }
        labels
    }

    /// The part that labels cannot hold; usually empty.
    pub fn annotations(&self) -> BTreeMap<String, String> {
        let name = &self.object.name;
        let long = (!is_label_value(name)).then(|| (OWNER_NAME.to_owned(), name.clone()));
        long.into_iter().collect()
    }

    /// The value of [`RETAINED`] for children of this owner.
    pub(crate) fn retained_as(&self) -> String {
        format!("{}.{}", self.object.kind, group(&self.api_version))
    }

    /// Makes `child` its child by labels alone, so that the garbage collector leaves it when the owner is gone.
    pub(crate) fn adopt_retained(&self, child: &mut ObjectMeta) {
        child.labels.get_or_insert_default().extend(self.labels());
        let annotations = child.annotations.get_or_insert_default();
        annotations.extend(self.annotations());
        annotations.insert(RETAINED.to_owned(), self.retained_as());
    }

    /// Makes `child` its child: by a controller reference where one is allowed, else by labels and, for a long name, an annotation.
    pub(crate) fn adopt(&self, child: &mut ObjectMeta) {
        let labels = child.labels.get_or_insert_default();
        labels.insert(OWNER_UID.to_owned(), self.uid.clone());
        if self.may_be_referred_to_from(child.namespace.as_deref()) {
            let references = child.owner_references.get_or_insert_default();
            references.retain(|reference| reference.uid != self.uid);
            references.push(self.controller_reference());
            return;
        }
        labels.extend(self.labels());
        if !self.annotations().is_empty() {
            child.annotations.get_or_insert_default().extend(self.annotations());
        }
    }
}

/// A reference to `object` without more meaning than deletion after it; see [`Owner::reference`].
pub fn owner_ref<K>(object: &K) -> Result<OwnerReference, ApplyError>
where
    K: Resource<Scope: 'static, DynamicType: Default>,
{
    Owner::of(object).map(|owner| owner.reference())
}

/// A reference to `object` as the manager of the child; see [`Owner::controller_reference`].
pub fn controller_ref<K>(object: &K) -> Result<OwnerReference, ApplyError>
where
    K: Resource<Scope: 'static, DynamicType: Default>,
{
    Owner::of(object).map(|owner| owner.controller_reference())
}

/// The owner of kind `K` that the metadata of a child tells: the controller reference if it is of that kind, else the labels.
///
/// Assumes that the owner of a child in a namespace is in a namespace if the kind is known at run time only. The labels do not tell the kind: an object of another kind that has the same name makes a key that may not exist.
pub fn owner_of<K>(child: &ObjectMeta, kind: &K::DynamicType) -> Option<ObjectRef<K>>
where
    K: Resource<Scope: 'static, DynamicType: Clone>,
{
    let references = child.owner_references.iter().flatten();
    let controller = references.into_iter().find(|reference| {
        reference.controller == Some(true)
            && reference.kind == K::kind(kind)
            && group(&reference.api_version) == K::group(kind)
    });
    if let Some(reference) = controller {
        // A cluster-scoped owner has no namespace, whatever the child has.
        let target = Target::named::<K>(kind, child.namespace.as_deref(), reference.name.clone());
        return Some(named(target.object.namespace, &reference.name, kind));
    }
    labelled_owner(child, kind)
}

/// The owner that the labels of a child tell.
pub fn labelled_owner<K>(child: &ObjectMeta, kind: &K::DynamicType) -> Option<ObjectRef<K>>
where
    K: Resource<DynamicType: Clone>,
{
    let labels = child.labels.as_ref()?;
    let annotated = child.annotations.as_ref().and_then(|annotations| annotations.get(OWNER_NAME));
    let name = annotated.or_else(|| labels.get(OWNER_NAME)).filter(|name| !name.is_empty())?;
    Some(named(labels.get(OWNER_NAMESPACE).cloned(), name, kind))
}

fn named<K: Resource<DynamicType: Clone>>(
    namespace: Option<String>,
    name: &str,
    kind: &K::DynamicType,
) -> ObjectRef<K> {
    let reference = ObjectRef::new_with(name, kind.clone());
    match namespace {
        Some(namespace) => reference.within(&namespace),
        None => reference,
    }
}

fn group(api_version: &str) -> &str {
    api_version.split_once('/').map_or("", |(group, _)| group)
}

/// Returns the value of the label [`MANAGED_BY`] for a field manager, whose name may have characters that a label value may not.
#[must_use]
pub fn managed_by(manager: &str) -> String {
    let allowed = |character: char| character.is_ascii_alphanumeric() || matches!(character, '-' | '_' | '.');
    let value: String =
        manager.chars().map(|character| if allowed(character) { character } else { '-' }).take(63).collect();
    value.trim_matches(|character: char| !character.is_ascii_alphanumeric()).to_owned()
}

/// Whether the API server takes it for the value of a label.
fn is_label_value(text: &str) -> bool {
    let is_end = |character: char| character.is_ascii_alphanumeric();
    text.len() <= 63
        && text.starts_with(is_end)
        && text.ends_with(is_end)
        && text.chars().all(|character| is_end(character) || matches!(character, '-' | '_' | '.'))
}

/// 160 bits of SHA-256: nobody finds two names with the same, and it is short enough for a label.
fn digest(name: &str) -> String {
    format!("sha256-{}", hex::encode(&Sha256::digest(name)[..20]))
}

#[cfg(test)]
mod tests;
