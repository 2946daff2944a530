//! The owner of a child, and the proof of it. Pure.

use std::collections::BTreeMap;

use kube::Resource;
use serde_json::{Value, json};

use crate::{
    applier::Applier,
    error::ApplyError,
    object::Target,
    owners::{OWNER_PROOF, OWNER_UID, Owner, OwnerKey, RETAINED},
};

use super::observed::Observed;

/// The owner, as an object's metadata shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Recognition {
    /// It is a child of the owner: it carries the proof, or no [`OwnerKey`] is in use and its label or controller reference tells.
    Proven,
    /// Its label or controller reference names the owner, and a client has applied that label under our field manager's name. A release that
    /// wrote no proof leaves this behind, or a client that removed it. The next apply of a wanted child adds the proof. Any client can use our
    /// field manager's name, so such an object is never deleted, counted or waited for.
    Earlier,
    /// Its label or controller reference names the owner, and nothing shows that we wrote it.
    Unproven,
    /// It is a child of the owner with this uid.
    OfAnother(String),
    /// It names no owner.
    Nobodys,
}

impl Recognition {
    /// Returns what `object`, with our entry in its managed fields, tells about `owner` to the field manager of `applier`.
    pub fn of<K: Resource<Scope: 'static>>(
        object: &K,
        kind: &K::DynamicType,
        owner: &Owner,
        key: Option<&OwnerKey>,
        applier: &Applier,
    ) -> Result<Self, ApplyError> {
        let recognizer = Recognizer { owner, key, manager: applier.manager() };
        let metadata = serde_json::to_value(object.meta()).map_err(|source| ApplyError::Encode {
            kind: K::kind(kind).into_owned(),
            name: object.meta().name.clone().unwrap_or_default(),
            source,
        })?;
        Ok(recognizer.recognize(&Target::of(object, kind)?, &json!({ "metadata": metadata })))
    }
}

/// Tells the children of one owner.
pub(super) struct Recognizer<'a> {
    pub(super) owner: &'a Owner,
    pub(super) key: Option<&'a OwnerKey>,
    pub(super) manager: &'a str,
}

impl Recognizer<'_> {
    pub(super) fn recognize(&self, target: &Target, state: &Value) -> Recognition {
        let metadata = &state["metadata"];
        let proof = metadata["annotations"][OWNER_PROOF].as_str();
        if let (Some(key), Some(proof)) = (self.key, proof)
            && key.proof(self.owner.uid(), target) == proof
        {
            return Recognition::Proven;
        }
        match named_owner(metadata) {
            None => Recognition::Nobodys,
            Some(uid) if uid != self.owner.uid() => Recognition::OfAnother(uid.to_owned()),
            Some(_) if self.key.is_none() => Recognition::Proven,
            Some(_) if has_applied_the_label(metadata, self.manager) => Recognition::Earlier,
            Some(_) => Recognition::Unproven,
        }
    }
}

impl Recognizer<'_> {
    /// Whether an object that names the owner with this uid was retained by an earlier owner of the same kind, namespace and name. Two
    /// owners cannot have these at the same time, so the earlier one is gone.
    pub(super) fn may_take_over(&self, observed: &Observed, uid: &str) -> bool {
        let Observed { target, state } = observed;
        let metadata = &state["metadata"];
        let is_proven = match self.key {
            Some(key) => metadata["annotations"][OWNER_PROOF].as_str() == Some(&*key.proof(uid, target)),
            None => has_applied_the_label(metadata, self.manager),
        };
        let has = |place: &str, entries: BTreeMap<String, String>| {
            entries.iter().filter(|(name, _)| *name != OWNER_UID).all(|(name, value)| metadata[place][name] == **value)
        };
        is_proven
            && metadata["annotations"][RETAINED] == self.owner.retained_as()
            && has("labels", self.owner.labels())
            && has("annotations", self.owner.annotations())
    }
}

/// Uid of the owner that the label of an object names.
pub(super) fn labelled_owner(metadata: &Value) -> Option<&str> {
    metadata["labels"][OWNER_UID].as_str()
}

/// Uid of the owner that an object names by label or by controller reference.
fn named_owner(metadata: &Value) -> Option<&str> {
    let controller = || {
        let references = metadata["ownerReferences"].as_array()?;
        references.iter().find(|reference| reference["controller"] == true)?["uid"].as_str()
    };
    labelled_owner(metadata).or_else(controller)
}

fn has_applied_the_label(metadata: &Value, manager: &str) -> bool {
    let is_ours = |entry: &Value| entry["manager"] == manager && entry["operation"] == "Apply";
    let label = format!("f:{OWNER_UID}");
    let has_label = |entry: &Value| entry["fieldsV1"]["f:metadata"]["f:labels"].get(&label).is_some();
    metadata["managedFields"]
        .as_array()
        .is_some_and(|entries| entries.iter().any(|entry| is_ours(entry) && has_label(entry)))
}
