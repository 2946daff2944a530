//! Server-side apply of a Secret.

use std::{borrow::Borrow, collections::BTreeMap};

use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use http::{Request, StatusCode};
use k8s_openapi::{api::core::v1::Secret, apimachinery::pkg::apis::meta::v1::OwnerReference};
use konverge_core::SecretValue;
use kube::{
    Client, Resource, ResourceExt,
    api::{Patch, PatchParams},
    core::{PartialObjectMeta, request},
};
use serde::Deserialize;
use zeroize::{Zeroize, Zeroizing};

use crate::{
    altered::{AlteredField, managers_of},
    applier::NO_VERSION,
    body::apply_configuration,
    call::{Answer, send_with_body, still_there},
    difference::joined,
    error::ApplyError,
    field_ownership,
    object_name::ObjectName,
};

/// Which Secret is meant, and in which state it was seen. It gets no further field, so that it can be written as a literal.
#[derive(Debug, Clone, Copy)]
pub struct SecretTarget<'a> {
    /// Its namespace.
    pub namespace: &'a str,
    /// Its name.
    pub name: &'a str,
    /// Its uid: another object that has the name by now is never touched.
    pub uid: &'a str,
    /// The resource version that the caller saw last. Every write has it as a precondition; `None` writes whatever the state is.
    pub resource_version: Option<&'a str>,
}

/// The fields of a Secret besides its data that the manager owns. It gets no further field, so that it can be written as a literal.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SecretMetadata {
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its annotations.
    pub annotations: BTreeMap<String, String>,
    /// The object with which it is deleted.
    pub owner: Option<OwnerReference>,
    /// Its type. The API server refuses to change it. `None` is `Opaque` for a new Secret.
    pub secret_type: Option<String>,
}

/// A Secret that was created.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct CreatedSecret {
    /// Its uid.
    pub uid: String,
    /// Its resource version.
    pub resource_version: String,
}

/// The effect of a write.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// The write changed the object; if the caller named no version, somebody else may have changed it before.
    Changed {
        /// Its resource version now.
        resource_version: String,
    },
    /// The object had it all already; it is byte for byte what the caller saw.
    Unchanged {
        /// Its resource version now, the one the caller saw.
        resource_version: String,
    },
    /// The object is deleted, or deleted and made anew. Nothing was written.
    Gone,
}

/// Writes Secrets under one field manager.
///
/// Guarantees: after a successful [`apply`](Self::apply) the manager owns exactly the given keys of `data`; keys that it owned
/// before and that nobody else owns are removed; keys of others stay. Only [`create`](Self::create) creates an object. Repeating a write
/// changes nothing, not even the resource version. A write that was decided for another version than the object has is refused with
/// [`ApplyError::OutOfDate`], however late it arrives. Values go into one buffer that is wiped after the request. The stored ones come
/// back, are compared with what was sent and are wiped; a value that admission has changed is [`ApplyError::Altered`].
///
/// Cannot wipe: what the HTTP and TLS layers copy on the way.
#[derive(Clone)]
pub struct SecretApplier {
    client: Client,
    manager: String,
}

impl SecretApplier {
    /// Writes with `client` as field manager `manager`.
    pub fn new(client: Client, manager: impl Into<String>) -> Self {
        Self { client, manager: manager.into() }
    }

    /// The field manager.
    pub fn manager(&self) -> &str {
        &self.manager
    }

    /// Makes `data` the exact set of keys that this manager owns, and `metadata` its exact set of other fields.
    ///
    /// Takes keys over from other managers where they differ in value (`force`).
    ///
    /// # Errors
    ///
    /// Returns an error if the API server does not take the write, or stores other values.
    pub async fn apply<Key: AsRef<str>, Value: Borrow<SecretValue>>(
        &self,
        target: SecretTarget<'_>,
        metadata: &SecretMetadata,
        data: &BTreeMap<Key, Value>,
    ) -> Result<Outcome, ApplyError> {
        let object = target.object();
        let body = apply_configuration(&target.metadata(metadata), metadata.secret_type.as_deref(), data);
        let Some(answer) = self.write(target, self.patch(target.namespace, target.name), body).await? else {
            return Ok(Outcome::Gone);
        };
        Ok(outcome(target, &self.written(&object, answer, metadata, data)?))
    }

    /// Creates a Secret. If there is one of this name, it is left as it is, and the error is [`ApplyError::OutOfDate`].
    ///
    /// # Errors
    ///
    /// Returns an error if the API server does not take the write, or stores other values.
    pub async fn create<Key: AsRef<str>, Value: Borrow<SecretValue>>(
        &self,
        namespace: &str,
        name: &str,
        metadata: &SecretMetadata,
        data: &BTreeMap<Key, Value>,
    ) -> Result<CreatedSecret, ApplyError> {
        let object = object(namespace, name);
        let mut fields = metadata.fields(namespace, name);
        fields["resourceVersion"] = NO_VERSION.into();
        let body = apply_configuration(&fields, metadata.secret_type.as_deref(), data);
        let answer = send_with_body(&self.client, &object, self.patch(namespace, name), body).await?;
        if answer.code == StatusCode::CONFLICT {
            return Err(ApplyError::OutOfDate { object: Box::new(object) });
        }
        let written = self.written(&object, answer.success(&object)?, metadata, data)?;
        let (uid, resource_version) =
            (written.uid().unwrap_or_default(), written.resource_version().unwrap_or_default());
        Ok(CreatedSecret { uid, resource_version })
    }

    /// The request of an apply, without its body: kube would keep a copy of the values while serialising.
    fn patch(&self, namespace: &str, name: &str) -> Result<Request<Vec<u8>>, request::Error> {
        let parameters = PatchParams::apply(&self.manager).force().validation_strict();
        requests(namespace).patch(name, &parameters, &Patch::Apply(serde_json::json!({})))
    }

    /// Compares the stored Secret with what was sent, and wipes the answer.
    fn written<Key: AsRef<str>, Value: Borrow<SecretValue>>(
        &self,
        object: &ObjectName,
        answer: Answer,
        metadata: &SecretMetadata,
        data: &BTreeMap<Key, Value>,
    ) -> Result<PartialObjectMeta<Secret>, ApplyError> {
        let fields = altered_in_secret(&answer.body, metadata, data, &self.manager);
        let result = answer.decode::<PartialObjectMeta<Secret>>(object);
        wipe(answer.body);
        let (fields, written) = (fields.map_err(|source| unreadable(object, source))?, result?);
        if fields.is_empty() {
            return Ok(written);
        }
        let resource_version = written.resource_version().unwrap_or_default();
        Err(ApplyError::Altered { object: Box::new(object.clone()), fields, resource_version })
    }

    /// Makes the keys of `data` that `update_manager` wrote by plain updates or merge patches count as applied by this manager,
    /// so that the next [`apply`](Self::apply) removes those that are no longer wanted. Values do not change.
    ///
    /// `object` is what the caller saw last, with its managed fields; a conflict error means that it was out of date.
    /// [`Outcome::Unchanged`] without any request when there is nothing to take over.
    pub async fn take_over(
        &self,
        object: &PartialObjectMeta<Secret>,
        update_manager: &str,
    ) -> Result<Outcome, ApplyError> {
        let (namespace, name) = (object.namespace().unwrap_or_default(), object.name_any());
        let (uid, resource_version) = (object.uid().unwrap_or_default(), object.resource_version().unwrap_or_default());
        let Some(entries) = field_ownership::taken_over(object.managed_fields(), update_manager, &self.manager) else {
            return Ok(Outcome::Unchanged { resource_version });
        };
        let target =
            SecretTarget { namespace: &namespace, name: &name, uid: &uid, resource_version: Some(&resource_version) };
        // A merge patch replaces lists whole. The version makes it a conflict when somebody wrote in between.
        let patch = serde_json::json!({
            "metadata": { "managedFields": entries, "resourceVersion": resource_version, "uid": uid }
        });
        let parameters = PatchParams { field_manager: Some(self.manager.clone()), ..PatchParams::default() };
        let request = requests(&namespace).patch_metadata(&name, &parameters, &Patch::Merge(&patch));
        let answer = self.write(target, request, Bytes::from(patch.to_string())).await?;
        let Some(answer) = answer else { return Ok(Outcome::Gone) };
        Ok(outcome(target, &answer.decode(&target.object())?))
    }

    /// The answer of a success; `None` if the object is gone.
    async fn write(
        &self,
        target: SecretTarget<'_>,
        request: Result<Request<Vec<u8>>, request::Error>,
        body: Bytes,
    ) -> Result<Option<Answer>, ApplyError> {
        let object = target.object();
        let answer = send_with_body(&self.client, &object, request, body).await?;
        match answer.code {
            StatusCode::NOT_FOUND => Ok(None),
            StatusCode::CONFLICT | StatusCode::UNPROCESSABLE_ENTITY
                if matches!(
                    still_there(&self.client, &object, &requests(target.namespace), target.uid).await,
                    Ok(None)
                ) =>
            {
                Ok(None)
            }
            StatusCode::CONFLICT if target.resource_version.is_some() => {
                Err(ApplyError::OutOfDate { object: Box::new(object) })
            }
            _ => answer.success(&object).map(Some),
        }
    }
}

impl SecretTarget<'_> {
    fn object(&self) -> ObjectName {
        object(self.namespace, self.name)
    }

    /// The metadata of an apply configuration for this Secret.
    fn metadata(&self, metadata: &SecretMetadata) -> serde_json::Value {
        let mut fields = metadata.fields(self.namespace, self.name);
        fields["uid"] = self.uid.into();
        if let Some(version) = self.resource_version {
            fields["resourceVersion"] = version.into();
        }
        fields
    }
}

impl SecretMetadata {
    /// The metadata of an apply configuration for a Secret of this name.
    fn fields(&self, namespace: &str, name: &str) -> serde_json::Value {
        let Self { labels, annotations, owner, secret_type: _ } = self;
        let mut fields = serde_json::json!({ "name": name, "namespace": namespace });
        for (field, entries) in [("labels", labels), ("annotations", annotations)] {
            if !entries.is_empty() {
                fields[field] = serde_json::json!(entries);
            }
        }
        if let Some(owner) = owner {
            fields["ownerReferences"] = serde_json::json!([owner]);
        }
        fields
    }
}

fn object(namespace: &str, name: &str) -> ObjectName {
    ObjectName { kind: "Secret".to_owned(), namespace: Some(namespace.to_owned()), name: name.to_owned() }
}

fn requests(namespace: &str) -> request::Request {
    request::Request::new(Secret::url_path(&(), Some(namespace)))
}

/// The part of a stored Secret that is compared. The values are those in the buffer of the answer, which is wiped.
#[derive(Deserialize)]
struct Stored<'a> {
    metadata: serde_json::Value,
    #[serde(borrow, default)]
    data: BTreeMap<String, &'a str>,
}

/// The fields that are not as they were sent.
fn altered_in_secret<Key: AsRef<str>, Value: Borrow<SecretValue>>(
    answer: &[u8],
    sent: &SecretMetadata,
    data: &BTreeMap<Key, Value>,
    manager: &str,
) -> Result<Vec<AlteredField>, serde_json::Error> {
    let Stored { metadata, data: stored } = serde_json::from_slice(answer)?;
    let is_stored = |name: &str, value: &SecretValue| {
        let found = stored.get(name).and_then(|text| STANDARD.decode(text).ok()).map(Zeroizing::new);
        found.is_some_and(|found| found.as_slice() == value.expose())
    };
    let changed_data = data.iter().filter(|(name, value)| !is_stored(name.as_ref(), (*value).borrow()));
    let changed_data = changed_data.map(|(name, _)| ("data", name.as_ref()));
    let changed_metadata =
        [("annotations", &sent.annotations), ("labels", &sent.labels)].into_iter().flat_map(|(part, sent)| {
            let stored = &metadata[part];
            let changed = sent.iter().filter(move |(name, value)| stored[name.as_str()] != **value);
            changed.map(move |(name, _)| (part, name.as_str()))
        });
    let changed: Vec<_> = changed_data.chain(changed_metadata).collect();
    let object = serde_json::json!({"metadata": metadata});
    let field = |(part, name): (&str, &str)| {
        let (place, path) = match part {
            "data" => (".data", vec!["f:data".to_owned()]),
            "labels" => (".metadata.labels", vec!["f:metadata".to_owned(), "f:labels".to_owned()]),
            _ => (".metadata.annotations", vec!["f:metadata".to_owned(), "f:annotations".to_owned()]),
        };
        let path: Vec<String> = path.into_iter().chain([format!("f:{name}")]).collect();
        AlteredField { field: joined(place, name), managers: managers_of(&object, &path, manager) }
    };
    Ok(changed.into_iter().map(field).collect())
}

fn unreadable(object: &ObjectName, source: serde_json::Error) -> ApplyError {
    ApplyError::Answer { object: Box::new(object.clone()), source }
}

/// Wipes the buffer if nobody else holds it.
fn wipe(body: Bytes) {
    if let Ok(mut body) = body.try_into_mut() {
        body.as_mut().zeroize();
    }
}

fn outcome(target: SecretTarget<'_>, answer: &PartialObjectMeta<Secret>) -> Outcome {
    let resource_version = answer.resource_version().unwrap_or_default();
    if target.resource_version == Some(&*resource_version) {
        Outcome::Unchanged { resource_version }
    } else {
        Outcome::Changed { resource_version }
    }
}
