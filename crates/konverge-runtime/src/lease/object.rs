//! The `Lease` object on the API server.

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use kube::{
    Api, Client,
    api::{ObjectMeta, Patch, PatchParams, PostParams},
};
use serde_json::json;

/// A call about the lease did not succeed.
#[derive(Debug, thiserror::Error)]
pub(super) enum CallError {
    /// Somebody else wrote or made it in between.
    #[error("another candidate was faster")]
    Conflict,
    /// Whether the write happened is unknown.
    #[error("the API server did not answer in time")]
    TooLate,
    /// Anything else.
    #[error("the API server did not do it")]
    Kube(#[source] Box<kube::Error>),
}

impl From<kube::Error> for CallError {
    fn from(error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) if status.code == 409 => Self::Conflict,
            error => Self::Kube(Box::new(error)),
        }
    }
}

/// The part of a lease that the election uses: the content and its version.
type Found = Option<(LeaseSpec, String)>;

pub(super) struct LeaseObject {
    api: Api<Lease>,
    namespace: String,
    name: String,
}

impl LeaseObject {
    pub(super) fn new(client: Client, namespace: String, name: String) -> Self {
        Self { api: Api::namespaced(client, &namespace), namespace, name }
    }

    pub(super) fn namespace(&self) -> &str {
        &self.namespace
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) async fn read(&self) -> Result<Found, CallError> {
        Ok(self.api.get_opt(&self.name).await?.map(content))
    }

    pub(super) async fn create(&self, spec: LeaseSpec) -> Result<Found, CallError> {
        let metadata = ObjectMeta { name: Some(self.name.clone()), ..ObjectMeta::default() };
        let lease = Lease { metadata, spec: Some(spec) };
        Ok(Some(content(self.api.create(&PostParams::default(), &lease).await?)))
    }

    /// A merge patch, so that labels and fields of others stay. Nothing when the object is gone.
    pub(super) async fn replace(&self, spec: &LeaseSpec, version: &str) -> Result<Found, CallError> {
        let patch = json!({ "metadata": { "resourceVersion": version }, "spec": spec });
        match self.api.patch(&self.name, &PatchParams::default(), &Patch::Merge(patch)).await {
            Ok(lease) => Ok(Some(content(lease))),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

fn content(lease: Lease) -> (LeaseSpec, String) {
    (lease.spec.unwrap_or_default(), lease.metadata.resource_version.unwrap_or_default())
}
