//! Writing the finalizer and the record on the object, in one request; in two where the record is the status.

use std::marker::PhantomData;

use konverge_apply::{Applier, ApplyError, MetadataChange, StatusWriter, error::class_of};
use konverge_core::error::{Classify, ErrorClass};
use kube::{
    Api, Client, Resource,
    core::{DynamicObject, ObjectMeta, PartialObjectMeta},
};
use serde_json::json;

use crate::{
    annotations::{FINALIZER, STATUS},
    bindings::Binding,
    object::{Kind, ObjectRef},
    record::Record,
    vault_push::VaultPushStatus,
};

/// The field manager of every write.
pub const FIELD_MANAGER: &str = "vault-sync-operator";

/// A write on an object.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    /// The object could not be read.
    #[error("cannot read {object}, whose record is to be removed: {source}")]
    Request {
        /// The object.
        object: ObjectRef,
        /// The error of the client.
        source: Box<kube::Error>,
    },
    /// The API server did not take a write.
    #[error("cannot note down what is written to Vault: {0}")]
    Apply(#[from] ApplyError),
}

impl LedgerError {
    /// Whether the object is of another version than the one that was decided upon, so that nothing was written.
    pub fn is_outdated(&self) -> bool {
        matches!(self, Self::Apply(ApplyError::OutOfDate { .. }))
    }

    /// Returns the version of the object after a write that admission changed. Returns `None` for other errors.
    pub fn altered_version(&self) -> Option<&str> {
        if let Self::Apply(ApplyError::Altered { resource_version, .. }) = self { Some(resource_version) } else { None }
    }
}

impl Classify for LedgerError {
    fn class(&self) -> ErrorClass {
        match self {
            Self::Request { source, .. } => class_of(source),
            Self::Apply(error) => error.class(),
        }
    }

    fn reason(&self) -> &'static str {
        match self {
            Self::Request { .. } => "ObjectUnreadable",
            Self::Apply(ApplyError::Refused { .. } | ApplyError::Transport { .. }) => "ObjectNotWritable",
            Self::Apply(error) => error.reason(),
        }
    }
}

/// Writes on objects.
#[derive(Clone)]
pub struct Ledger {
    client: Client,
    applier: Applier,
    status: StatusWriter,
}

impl Ledger {
    /// Writes through this client.
    pub fn new(client: Client) -> Self {
        let applier = Applier::new(client.clone(), FIELD_MANAGER).for_the_version_seen();
        Self { client, status: StatusWriter::new(applier.clone()), applier }
    }

    /// Sets the record, and the finalizer if it needs one. Returns the object's resource version, or `None` if the object is gone.
    ///
    /// An object is written only in the version that was seen. So a write that arrives late brings no older record back, and the new version of a
    /// Secret holds the same content.
    ///
    /// # Errors
    ///
    /// Returns an error that [is outdated](LedgerError::is_outdated) if the object has changed since, and else the refusal or the failure of the
    /// request, or the fields that admission changed.
    pub async fn write(
        &self,
        key: &ObjectRef,
        binding: &Binding,
        record: &Record,
    ) -> Result<Option<String>, LedgerError> {
        let seen = ObjectMeta {
            uid: Some(binding.uid.clone()),
            resource_version: Some(binding.version().to_owned()),
            ..named(key)
        };
        let finalizers = record.needs_finalizer().then(|| vec![FINALIZER.to_owned()]);
        if key.kind == Kind::VaultPush {
            // The finalizer first, because the paths in the record must be cleared. A finalizer without need stays until the object is deleted.
            let finalizers = finalizers.filter(|_| !binding.finalizer);
            return unless_gone(self.write_status(key, seen, finalizers, record).await);
        }
        let annotations = [(STATUS.to_owned(), record.text())].into();
        let wanted = ObjectMeta { annotations: Some(annotations), finalizers, ..named(key) };
        unless_gone(self.apply(key, seen, wanted).await.map(version))
    }

    async fn write_status(
        &self,
        key: &ObjectRef,
        mut seen: ObjectMeta,
        finalizers: Option<Vec<String>>,
        record: &Record,
    ) -> Result<String, ApplyError> {
        if finalizers.is_some() {
            let wanted = ObjectMeta { finalizers, ..named(key) };
            seen.resource_version = self.apply(key, seen.clone(), wanted).await?.resource_version;
        }
        let seen = DynamicObject { types: None, metadata: seen, data: json!({}) };
        // It names the object that it is about, because the API server does not hold the uid against the object's here.
        let written = self.status.write_with(&seen, &VaultPushStatus::from(record), &key.kind.resource()).await?;
        Ok(version(written.map_or(seen.metadata, |written| written.metadata)))
    }

    /// Applies metadata to an object in the version that was seen. Returns its metadata afterwards.
    async fn apply(&self, key: &ObjectRef, seen: ObjectMeta, wanted: ObjectMeta) -> Result<ObjectMeta, ApplyError> {
        let partial = |metadata| PartialObjectMeta::<DynamicObject> { types: None, metadata, _phantom: PhantomData };
        let (wanted, seen) = (partial(wanted), partial(seen));
        Ok(self.applier.apply_with(&wanted, Some(&seen), &key.kind.resource()).await?.object.metadata)
    }

    /// Takes the finalizer and the record away. Nothing is to be done if the object is gone or another one has its name.
    pub async fn erase(&self, key: &ObjectRef, uid: &str) -> Result<(), LedgerError> {
        let found = self.api(key).get_metadata_opt(&key.name).await;
        let Some(mut object) = with_uid(key, uid, found)? else { return Ok(()) };
        let kind = key.kind.resource();
        let is_going = object.metadata.deletion_timestamp.is_some();
        if key.kind == Kind::VaultPush && !is_going {
            let found = self.api(key).get_opt(&key.name).await;
            let Some(whole) = with_uid(key, uid, found)? else { return Ok(()) };
            // The API server removes the fields that this field manager no longer applies.
            let written = self.status.write_with(&whole, &json!({}), &kind).await;
            let Some(after) = unless_gone(written)? else { return Ok(()) };
            object.metadata = after.unwrap_or(whole).metadata;
        } else if !is_going {
            let change = MetadataChange::new().without_annotation(STATUS);
            let written = self.applier.change_metadata_with(&object, &change, &kind).await;
            let Some(after) = unless_gone(written)? else { return Ok(()) };
            object = after.unwrap_or(object);
        }
        self.applier.remove_finalizer_with::<PartialObjectMeta<DynamicObject>>(&object, FINALIZER, &kind).await?;
        Ok(())
    }

    fn api(&self, key: &ObjectRef) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), &key.namespace, &key.kind.resource())
    }
}

/// The name of an object, as metadata.
fn named(key: &ObjectRef) -> ObjectMeta {
    ObjectMeta { name: Some(key.name.clone()), namespace: Some(key.namespace.clone()), ..ObjectMeta::default() }
}

fn version(metadata: ObjectMeta) -> String {
    metadata.resource_version.unwrap_or_default()
}

/// Returns the object that was read, if it is the one with this uid.
fn with_uid<K: Resource>(
    key: &ObjectRef,
    uid: &str,
    read: Result<Option<K>, kube::Error>,
) -> Result<Option<K>, LedgerError> {
    let read = read.map_err(|source| LedgerError::Request { object: key.clone(), source: Box::new(source) })?;
    Ok(read.filter(|object| object.meta().uid.as_deref() == Some(uid)))
}

/// Returns `None` if the object is gone.
fn unless_gone<T>(written: Result<T, ApplyError>) -> Result<Option<T>, LedgerError> {
    match written {
        Ok(written) => Ok(Some(written)),
        Err(ApplyError::Gone { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use konverge_core::api_server;
    use kube::core::Status;

    use super::*;

    #[test]
    fn a_write_has_the_class_of_every_answer_of_the_api_server() {
        let object = || ObjectRef { kind: Kind::Secret, namespace: "shop".to_owned(), name: "db".to_owned() };
        for (code, class) in [
            (400, ErrorClass::Refused),
            (403, ErrorClass::Refused),
            (409, ErrorClass::Transient),
            (413, ErrorClass::Refused),
            (422, ErrorClass::Refused),
            (429, ErrorClass::Unavailable(api_server::ENDPOINT)),
            (500, ErrorClass::Unavailable(api_server::ENDPOINT)),
        ] {
            let status = Status::failure("no", "Reason").with_code(code);
            let error = LedgerError::Request { object: object(), source: Box::new(kube::Error::Api(Box::new(status))) };
            assert_eq!(error.class(), class, "{code}");
        }
    }
}
