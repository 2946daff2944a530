//! The Secret that replicas share, written only on top of what was read.

use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api, Client,
    api::{ObjectMeta, Patch, PatchParams, PostParams},
};
use serde_json::json;

use super::{
    api_failure::ApiFailure,
    material::{Material, MaterialError},
};

/// Tells our Secret from one that merely has its name.
const LABEL: (&str, &str) = ("konverge.dev/webhook-certificates", "self-made");

/// The field manager, shown in the managed fields and the audit log.
pub(super) const FIELD_MANAGER: &str = "konverge-admission";

/// Why the Secret was not read or written.
#[derive(Debug, thiserror::Error)]
pub(super) enum StoreError {
    #[error("cannot {act} secret {namespace}/{name}")]
    Api {
        act: &'static str,
        namespace: String,
        name: String,
        #[source]
        source: ApiFailure,
    },
    #[error(
        "secret {namespace}/{name} exists and is not for webhook certificates; give them another name or delete it"
    )]
    Foreign { namespace: String, name: String },
}

pub(super) struct Store {
    api: Api<Secret>,
    namespace: String,
    name: String,
}

/// The content of the Secret.
pub(super) enum Stored {
    /// There is none.
    Nothing,
    /// There is one at this version of the Secret.
    Material(Material, String),
    /// It is ours and cannot be used.
    Broken(MaterialError, String),
}

impl Store {
    pub(super) fn new(client: Client, namespace: &str, name: &str) -> Self {
        let api = Api::namespaced(client, namespace);
        Self { api, namespace: namespace.to_owned(), name: name.to_owned() }
    }

    pub(super) async fn read(&self) -> Result<Stored, StoreError> {
        let Some(secret) = self.api.get_opt(&self.name).await.map_err(|source| self.failed("read", source))? else {
            return Ok(Stored::Nothing);
        };
        let data = secret.data.unwrap_or_default();
        let labels = secret.metadata.labels.unwrap_or_default();
        if labels.get(LABEL.0).map(String::as_str) != Some(LABEL.1) && !data.is_empty() {
            return Err(StoreError::Foreign { namespace: self.namespace.clone(), name: self.name.clone() });
        }
        let version = secret.metadata.resource_version.unwrap_or_default();
        Ok(match Material::from_data(&data) {
            Ok(material) => Stored::Material(material, version),
            Err(error) => Stored::Broken(error, version),
        })
    }

    /// Makes the Secret, or changes it if it is as it was at `version`. False if somebody else was faster.
    pub(super) async fn write(&self, material: &Material, version: Option<&str>) -> Result<bool, StoreError> {
        let outcome = match version {
            None => {
                let labels = [(LABEL.0.to_owned(), LABEL.1.to_owned())].into();
                let metadata =
                    ObjectMeta { name: Some(self.name.clone()), labels: Some(labels), ..ObjectMeta::default() };
                let secret = Secret { metadata, data: Some(material.data()), ..Secret::default() };
                let parameters = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
                self.api.create(&parameters, &secret).await
            }
            Some(version) => {
                let change = json!({
                    "metadata": { "resourceVersion": version, "labels": { LABEL.0: LABEL.1 } },
                    "data": material.data(),
                });
                let parameters =
                    PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
                self.api.patch(&self.name, &parameters, &Patch::Merge(&change)).await
            }
        };
        match outcome {
            Ok(_) => Ok(true),
            // Another replica was faster, or the Secret has gone meanwhile.
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) && version.is_some() => Ok(false),
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(false),
            Err(source) => Err(self.failed("write", source)),
        }
    }

    fn failed(&self, act: &'static str, source: kube::Error) -> StoreError {
        let (namespace, name) = (self.namespace.clone(), self.name.clone());
        StoreError::Api { act, namespace, name, source: source.into() }
    }
}
