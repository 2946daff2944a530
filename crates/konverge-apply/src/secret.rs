//! Server-side apply of a Secret that already exists.

use std::{borrow::Borrow, collections::BTreeMap};

use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use http::{Request, StatusCode};
use k8s_openapi::api::core::v1::Secret;
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
/// before and that nobody else owns are removed; keys of others stay. It never creates an object. Repeating a write changes
/// nothing, not even the resource version. A write that was decided for another version than the object has is refused with
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

    /// Makes `data` the exact set of keys that this manager owns, and `annotations` its exact set of annotations.
    ///
    /// Takes keys over from other managers where they differ in value (`force`).
    pub async fn apply<Key: AsRef<str>, Value: Borrow<SecretValue>>(
        &self,
        target: SecretTarget<'_>,
        annotations: &BTreeMap<String, String>,
        data: &BTreeMap<Key, Value>,
    ) -> Result<Outcome, ApplyError> {
        let parameters = PatchParams::apply(&self.manager).force().validation_strict();
        // The body of this request is a placeholder: kube would keep a copy of the values while serialising.
        let request = requests(target).patch(target.name, &parameters, &Patch::Apply(serde_json::json!({})));
        let object = target.object();
        let body = apply_configuration(&target.metadata(annotations), data);
        let Some(answer) = self.write(target, request, body).await? else { return Ok(Outcome::Gone) };
        let fields = altered_in_secret(&answer.body, annotations, data, &self.manager);
        let result = answer.decode::<PartialObjectMeta<Secret>>(&object);
        wipe(answer.body);
        let (fields, written) = (fields.map_err(|source| unreadable(&object, source))?, result?);
        if !fields.is_empty() {
            let resource_version = written.resource_version().unwrap_or_default();
            return Err(ApplyError::Altered { object: Box::new(object), fields, resource_version });
        }
        Ok(outcome(target, &written))
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
        let request = requests(target).patch_metadata(&name, &parameters, &Patch::Merge(&patch));
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
                if matches!(still_there(&self.client, &object, &requests(target), target.uid).await, Ok(None)) =>
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
    /// The metadata of an apply configuration for this Secret.
    fn metadata(&self, annotations: &BTreeMap<String, String>) -> serde_json::Value {
        let Self { namespace, name, uid, resource_version } = self;
        let mut metadata = serde_json::json!({ "name": name, "namespace": namespace, "uid": uid });
        if let Some(version) = resource_version {
            metadata["resourceVersion"] = (*version).into();
        }
        if !annotations.is_empty() {
            metadata["annotations"] = serde_json::json!(annotations);
        }
        metadata
    }

    fn object(&self) -> ObjectName {
        ObjectName { kind: "Secret".to_owned(), namespace: Some(self.namespace.to_owned()), name: self.name.to_owned() }
    }
}

fn requests(target: SecretTarget<'_>) -> request::Request {
    request::Request::new(Secret::url_path(&(), Some(target.namespace)))
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
    annotations: &BTreeMap<String, String>,
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
    let changed_annotations =
        annotations.iter().filter(|(name, value)| metadata["annotations"][name.as_str()] != **value);
    let changed_annotations = changed_annotations.map(|(name, _)| ("annotations", name.as_str()));
    let changed: Vec<_> = changed_data.chain(changed_annotations).collect();
    let object = serde_json::json!({"metadata": metadata});
    let field = |(part, name): (&str, &str)| {
        let (place, path) = match part {
            "data" => (".data", vec!["f:data".to_owned()]),
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
