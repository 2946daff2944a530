//! Server-side apply of a Secret that already exists.

use std::{borrow::Borrow, collections::BTreeMap};

use bytes::Bytes;
use http::{Request, StatusCode};
use k8s_openapi::api::core::v1::Secret;
use konverge_core::SecretValue;
use kube::{
    Client, Resource, ResourceExt,
    api::{Patch, PatchParams},
    core::{PartialObjectMeta, request},
};

use crate::{
    body::apply_configuration,
    call::{is_gone, send_with_body},
    error::ApplyError,
    field_ownership,
    object::ObjectName,
};

/// Which Secret is meant, and in which state it was seen.
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

/// What a write did.
#[derive(Debug, Clone, PartialEq, Eq)]
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
/// [`ApplyError::OutOfDate`], however late it arrives. Values go into one buffer that is wiped after the request, and none comes back.
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
        let request = requests(target).patch_metadata(target.name, &parameters, &Patch::Apply(serde_json::json!({})));
        self.write(target, request, apply_configuration(&target, annotations, data)).await
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
        self.write(target, request, Bytes::from(patch.to_string())).await
    }

    async fn write(
        &self,
        target: SecretTarget<'_>,
        request: Result<Request<Vec<u8>>, request::Error>,
        body: Bytes,
    ) -> Result<Outcome, ApplyError> {
        let object = target.object();
        let answer = send_with_body(&self.client, &object, request, body).await?;
        match answer.code {
            StatusCode::NOT_FOUND => Ok(Outcome::Gone),
            StatusCode::CONFLICT | StatusCode::UNPROCESSABLE_ENTITY
                if is_gone(&self.client, &object, &requests(target), target.uid).await? =>
            {
                Ok(Outcome::Gone)
            }
            StatusCode::CONFLICT if target.resource_version.is_some() => {
                Err(ApplyError::OutOfDate { object: Box::new(object) })
            }
            _ => Ok(outcome(target, &answer.success(&object)?.decode(&object)?)),
        }
    }
}

impl SecretTarget<'_> {
    fn object(&self) -> ObjectName {
        ObjectName { kind: "Secret".to_owned(), namespace: Some(self.namespace.to_owned()), name: self.name.to_owned() }
    }
}

fn requests(target: SecretTarget<'_>) -> request::Request {
    request::Request::new(Secret::url_path(&(), Some(target.namespace)))
}

fn outcome(target: SecretTarget<'_>, answer: &PartialObjectMeta<Secret>) -> Outcome {
    let resource_version = answer.resource_version().unwrap_or_default();
    if target.resource_version == Some(&*resource_version) {
        Outcome::Unchanged { resource_version }
    } else {
        Outcome::Changed { resource_version }
    }
}
