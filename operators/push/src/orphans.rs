//! Orphans: the paths that had to be left behind in Vault, in a `ConfigMap` of the operator's namespace, until it can clear them.

mod clearing;
mod heirs;

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ConfigMap;
use konverge_apply::error::class_of;
use konverge_core::error::ErrorClass;
use kube::{
    Api, Client,
    api::{ObjectMeta, Patch, PatchParams, PostParams},
};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::{
    ledger::FIELD_MANAGER,
    object::{Kind, ObjectRef},
    record::Record,
};
pub use clearing::Clearing;
pub(crate) use heirs::{GonePath, Heirs};

/// The name of the `ConfigMap`.
pub const CONFIG_MAP: &str = "vault-sync-operator-orphans";

/// The paths of one object that is gone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Orphan {
    kind: String,
    namespace: String,
    name: String,
    record: Record,
}

/// The list of orphans cannot be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot note down in the ConfigMap {CONFIG_MAP} what is left in Vault: {0}")]
pub struct OrphansError(#[from] pub(crate) kube::Error);

impl OrphansError {
    /// Whether the object must not wait for another attempt: the API server refuses the write, as in a namespace that is being deleted or
    /// when the list is full, or there is no such namespace.
    pub fn is_final(&self) -> bool {
        class_of(&self.0) == ErrorClass::Refused || matches!(&self.0, kube::Error::Api(status) if status.code == 404)
    }

    /// Returns whether another client has changed the list meanwhile.
    fn is_conflict(&self) -> bool {
        matches!(&self.0, kube::Error::Api(status) if status.code == 409)
    }
}

/// The list of what is left behind.
#[derive(Clone)]
pub struct Orphans {
    api: Api<ConfigMap>,
}

impl Orphan {
    /// Makes an orphan of the record of an object.
    pub fn new(key: &ObjectRef, record: Record) -> Self {
        Self { kind: key.kind.name().to_owned(), namespace: key.namespace.clone(), name: key.name.clone(), record }
    }

    /// The record of the object.
    pub fn record(&self) -> &Record {
        &self.record
    }

    /// Returns the object. `None` if this version does not know its kind.
    pub fn key(&self) -> Option<ObjectRef> {
        let kind = Kind::named(&self.kind)?;
        Some(ObjectRef { kind, namespace: self.namespace.clone(), name: self.name.clone() })
    }
}

impl Orphans {
    /// A list in this namespace, which is the operator's own.
    pub fn new(client: Client, namespace: &str) -> Self {
        Self { api: Api::namespaced(client, namespace) }
    }

    /// The name of the `ConfigMap`.
    pub fn name(&self) -> &'static str {
        CONFIG_MAP
    }

    /// Adds an orphan. It is stored for sure when this returns.
    pub async fn add(&self, orphan: &Orphan) -> Result<(), OrphansError> {
        // An orphan is names, numbers and times, which are JSON.
        let text = serde_json::to_string(orphan).unwrap_or_default();
        let patch = json!({ "data": { &*orphan.record.uid: text } });
        let parameters = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        loop {
            match self.api.patch(CONFIG_MAP, &parameters, &Patch::Merge(&patch)).await {
                Err(kube::Error::Api(status)) if status.code == 404 => {}
                patched => return Ok(patched.map(drop)?),
            }
            let metadata = ObjectMeta { name: Some(CONFIG_MAP.to_owned()), ..ObjectMeta::default() };
            match self.api.create(&PostParams::default(), &ConfigMap { metadata, ..ConfigMap::default() }).await {
                // Another client made it at the same time.
                Err(kube::Error::Api(status)) if status.code == 409 => {}
                made => drop(made?),
            }
        }
    }

    /// The orphans by the uids of the objects, and the version of the list.
    async fn list(&self) -> Result<(BTreeMap<String, String>, Option<String>), OrphansError> {
        let list = self.api.get_opt(CONFIG_MAP).await?.unwrap_or_default();
        Ok((list.data.unwrap_or_default(), list.metadata.resource_version))
    }

    /// Removes an orphan, if the list still has this version. Returns the version after that.
    async fn forget(&self, uid: &str, version: Option<String>) -> Result<Option<String>, OrphansError> {
        let patch = json!({ "metadata": { "resourceVersion": version }, "data": { uid: null } });
        let parameters = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        Ok(self.api.patch(CONFIG_MAP, &parameters, &Patch::Merge(&patch)).await?.metadata.resource_version)
    }
}
