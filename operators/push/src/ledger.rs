//! Writing the finalizer and the record on the object, in one request; in two where the record is the status.

use konverge_apply::{Applier, ApplyError, MetadataChange, error::class_of};
use konverge_core::error::{Classify, ErrorClass};
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
    core::{DynamicObject, ObjectMeta, PartialObjectMeta},
};
use serde_json::{Value, json};

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
    /// The API server did not take it.
    #[error("cannot note down on {object} what is written for it: {source}")]
    Request {
        /// The object.
        object: ObjectRef,
        /// The error of the client.
        source: Box<kube::Error>,
    },
    /// The same for the small writes.
    #[error(transparent)]
    Apply(#[from] ApplyError),
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
            Self::Request { .. } => "ObjectNotWritable",
            Self::Apply(error) => error.reason(),
        }
    }
}

/// Writes on objects.
#[derive(Clone)]
pub struct Ledger {
    client: Client,
    applier: Applier,
}

impl Ledger {
    /// Writes through this client.
    pub fn new(client: Client) -> Self {
        Self { applier: Applier::new(client.clone(), FIELD_MANAGER), client }
    }

    /// Sets the record, and the finalizer if it needs one. Returns the object's resource version, or `None` if the object is gone.
    ///
    /// A Secret is written only in the version that was seen, so that its new version holds the same content.
    pub async fn write(
        &self,
        key: &ObjectRef,
        binding: &Binding,
        record: &Record,
    ) -> Result<Option<String>, LedgerError> {
        if key.kind == Kind::VaultPush {
            return self.write_status(key, binding, record).await;
        }
        let mut metadata = json!({
            "name": key.name,
            "namespace": key.namespace,
            "uid": binding.uid,
            "annotations": { STATUS: record.text() },
        });
        if record.needs_finalizer() {
            metadata["finalizers"] = json!([FINALIZER]);
        }
        if key.kind == Kind::Secret {
            metadata["resourceVersion"] = json!(binding.version());
        }
        let body = json!({ "apiVersion": key.kind.api_version(), "kind": key.kind.name(), "metadata": metadata });
        self.apply(key, &body).await
    }

    /// Sets the finalizer first, because the paths in the record must be cleared. A finalizer without need stays until the object is deleted.
    async fn write_status(
        &self,
        key: &ObjectRef,
        binding: &Binding,
        record: &Record,
    ) -> Result<Option<String>, LedgerError> {
        let mut body = json!({
            "apiVersion": key.kind.api_version(),
            "kind": key.kind.name(),
            "metadata": { "name": key.name, "namespace": key.namespace },
        });
        if record.needs_finalizer() && !binding.finalizer {
            let mut with_finalizer = body.clone();
            with_finalizer["metadata"]["uid"] = json!(binding.uid);
            with_finalizer["metadata"]["finalizers"] = json!([FINALIZER]);
            if self.apply(key, &with_finalizer).await?.is_none() {
                return Ok(None);
            }
        }
        // It names the object that it is about, because the API server does not hold the uid against the object's here.
        body["status"] = json!(VaultPushStatus::from(record));
        self.patch_status(key, &body).await
    }

    async fn apply(&self, key: &ObjectRef, body: &Value) -> Result<Option<String>, LedgerError> {
        let parameters = PatchParams::apply(FIELD_MANAGER).force();
        let written = self.api(key).patch_metadata(&key.name, &parameters, &Patch::Apply(body)).await;
        version(key, written.map(|now| now.metadata))
    }

    async fn patch_status(&self, key: &ObjectRef, body: &Value) -> Result<Option<String>, LedgerError> {
        let parameters = PatchParams::apply(FIELD_MANAGER).force();
        let written = self.api(key).patch_status(&key.name, &parameters, &Patch::Apply(body)).await;
        version(key, written.map(|now| now.metadata))
    }

    /// Takes the finalizer and the record away. Nothing is to be done if the object is gone or another one has its name.
    pub async fn erase(&self, key: &ObjectRef, uid: &str) -> Result<(), LedgerError> {
        let found = self.api(key).get_metadata_opt(&key.name).await;
        let found = found.map_err(|source| LedgerError::Request { object: key.clone(), source: Box::new(source) })?;
        let Some(mut object) = found.filter(|object| object.metadata.uid.as_deref() == Some(uid)) else {
            return Ok(());
        };
        let kind = key.kind.resource();
        let is_going = object.metadata.deletion_timestamp.is_some();
        if key.kind == Kind::VaultPush && !is_going {
            // The API server removes the fields that this field manager no longer applies.
            let body = json!({
                "apiVersion": key.kind.api_version(), "kind": key.kind.name(), "metadata": { "name": key.name }, "status": {},
            });
            if self.patch_status(key, &body).await?.is_none() {
                return Ok(());
            }
            let now = self.api(key).get_metadata_opt(&key.name).await;
            let now = now.map_err(|source| LedgerError::Request { object: key.clone(), source: Box::new(source) })?;
            object = now.unwrap_or(object);
        } else if !is_going {
            let change = MetadataChange::new().without_annotation(STATUS);
            match self.applier.change_metadata_with(&object, &change, &kind).await {
                Ok(now) => object = now.unwrap_or(object),
                Err(ApplyError::Gone { .. }) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
        self.applier.remove_finalizer_with::<PartialObjectMeta<DynamicObject>>(&object, FINALIZER, &kind).await?;
        Ok(())
    }

    fn api(&self, key: &ObjectRef) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), &key.namespace, &key.kind.resource())
    }
}

/// Returns the version after a write, or `None` if the object is gone.
fn version(key: &ObjectRef, written: kube::Result<ObjectMeta>) -> Result<Option<String>, LedgerError> {
    match written {
        Ok(now) => Ok(Some(now.resource_version.unwrap_or_default())),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        Err(source) => Err(LedgerError::Request { object: key.clone(), source: Box::new(source) }),
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
