//! Manifests and the API server: applying one as `kubectl apply --server-side` does, whether it would be taken, and whether its pods may run where the
//! strictest of the Pod Security Standards is enforced.

use std::{collections::HashMap, time::Duration};

use k8s_openapi::{
    api::core::v1::{Namespace, Pod, ServiceAccount},
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Client,
    api::{DynamicObject, Patch, PatchParams, PostParams},
    core::{ApiResource, GroupVersionKind},
    discovery::pinned_kind,
    runtime::{conditions::is_crd_established, wait::await_condition},
};
use serde_json::{Value, json};

use super::{ControlPlane, NotOurs};
use crate::wait::eventually;

/// The time within which the API server must enforce a new role.
const NEVER: Duration = Duration::from_secs(60);

/// A manifest could not be applied.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ManifestError {
    /// It is not what a manifest is.
    #[error("document {number} of the manifest is not a Kubernetes object: {cause}")]
    Document {
        /// Which one, from 1.
        number: usize,
        /// The reason.
        cause: String,
    },
    /// The cluster was named by the user; applying would change what is there.
    #[error(transparent)]
    NotOurs(#[from] NotOurs),
    /// The cluster has no client.
    #[error(transparent)]
    Start(#[from] Box<super::StartError>),
    /// The API server refused it.
    #[error("cannot apply {object}")]
    Apply {
        /// Kind and name.
        object: String,
        /// The response.
        #[source]
        source: Box<kube::Error>,
    },
    /// It is for another namespace than the manifest is said to be for.
    #[error("{object} is for the namespace {namespace}")]
    Elsewhere {
        /// Kind and name.
        object: String,
        /// Its namespace.
        namespace: String,
    },
    /// There is no workload in it whose pods could be looked at.
    #[error("the manifest has no workload with a pod template")]
    NoPods,
    /// Pods would be refused where the standard `restricted` is enforced.
    #[error("the pods of {object} are refused where the Pod Security Standard restricted is enforced")]
    NotRestricted {
        /// Kind and name.
        object: String,
        /// Which fields are in the way.
        #[source]
        source: Box<kube::Error>,
    },
    /// The cluster enforces no standard, so nothing can be said of pods.
    #[error("the API server does not enforce the Pod Security Standard restricted in a namespace that asks for it")]
    NotEnforced(#[source] Option<Box<kube::Error>>),
    /// A custom resource definition did not become usable.
    #[error("the API server does not serve {0} after a minute")]
    NotEstablished(String),
}

impl ControlPlane {
    /// Applies every document of a manifest as the administrator, and waits until the custom resources among them are served.
    /// Not in a cluster that was named: there it would take over what the user has under the same names.
    pub async fn apply(&self, manifest: &str) -> Result<(), ManifestError> {
        if !self.is_ours() {
            return Err(NotOurs { what: "applying a manifest" }.into());
        }
        let client = self.admin_client().await.map_err(Box::new)?;
        let documents: Vec<DynamicObject> = documents(manifest)?;
        let parameters = PatchParams::apply("konverge-testkit").force();
        let mut kinds = Kinds::default();
        for document in &documents {
            kinds.apply(&client, document, &parameters).await?;
        }
        for definition in documents.iter().filter(|document| kind(document) == "CustomResourceDefinition") {
            let name = definition.metadata.name.clone().unwrap_or_default();
            let api = Api::<CustomResourceDefinition>::all(client.clone());
            let established = await_condition(api, &name, is_crd_established());
            match tokio::time::timeout(Duration::from_secs(60), established).await {
                Ok(Ok(_)) => {}
                _ => return Err(ManifestError::NotEstablished(name)),
            }
        }
        Ok(())
    }

    /// Whether the API server would take every document of a manifest as it is written, which all are for the whole cluster or for the
    /// namespace `home`. Unknown fields are an error; nothing is changed.
    pub async fn would_take(&self, manifest: &str, home: &str) -> Result<(), ManifestError> {
        let client = self.admin_client().await.map_err(Box::new)?;
        let namespace = self.namespace(home).await.map_err(Box::new)?;
        let parameters = PatchParams { dry_run: true, ..PatchParams::apply("konverge-testkit").validation_strict() };
        let mut kinds = Kinds::default();
        for mut document in documents(manifest)? {
            if let Some(written) = document.metadata.namespace.take_if(|written| written != home) {
                return Err(ManifestError::Elsewhere { object: called(&document), namespace: written });
            }
            document.metadata.namespace = document.metadata.namespace.map(|_| namespace.clone());
            kinds.apply(&client, &document, &parameters).await?;
        }
        Ok(())
    }

    /// Whether the pods of all workloads in a manifest may run where the Pod Security Standard `restricted` is enforced; a manifest without any is an
    /// error. Nothing of it is made.
    pub async fn would_run_restricted(&self, manifest: &str) -> Result<(), ManifestError> {
        let documents = documents(manifest)?;
        let pods: Vec<_> = documents
            .iter()
            .filter_map(|document| Some((called(document), document.data.pointer("/spec/template/spec")?.clone())))
            .collect();
        if pods.is_empty() {
            return Err(ManifestError::NoPods);
        }
        let client = self.admin_client().await.map_err(Box::new)?;
        let namespace = self.namespace("restricted").await.map_err(Box::new)?;
        let probe = Probe { api: Api::namespaced_with(client.clone(), &namespace, &ApiResource::erase::<Pod>(&())) };
        enforce(&client, &namespace).await.map_err(|source| ManifestError::NotEnforced(Some(Box::new(source))))?;
        // Not before one is refused does it mean anything that another is not.
        let loose = json!({ "hostNetwork": true, "containers": [{ "name": "loose", "image": "loose" }] });
        let is_enforced = async || probe.is_refused(&loose).await.then_some(());
        eventually(NEVER, is_enforced).await.map_err(|_| ManifestError::NotEnforced(None))?;
        for (object, pod) in pods {
            let refused = |source| ManifestError::NotRestricted { object, source: Box::new(source) };
            probe.runs(&pod).await.map_err(refused)?;
        }
        Ok(())
    }
}

/// How the API server calls the kinds of one manifest: no rule leads from every kind to its plural.
#[derive(Default)]
struct Kinds(HashMap<GroupVersionKind, ApiResource>);

impl Kinds {
    async fn apply(
        &mut self,
        client: &Client,
        document: &DynamicObject,
        parameters: &PatchParams,
    ) -> Result<(), ManifestError> {
        let failed = |source| ManifestError::Apply { object: called(document), source: Box::new(source) };
        let types = document.types.clone().unwrap_or_default();
        let kind = GroupVersionKind::try_from(&types)
            .map_err(|error| ManifestError::Document { number: 0, cause: error.to_string() })?;
        if !self.0.contains_key(&kind) {
            let (resource, _) = pinned_kind(client, &kind).await.map_err(failed)?;
            self.0.insert(kind.clone(), resource);
        }
        let resource = &self.0[&kind];
        let api: Api<DynamicObject> = match &document.metadata.namespace {
            Some(namespace) => Api::namespaced_with(client.clone(), namespace, resource),
            None => Api::all_with(client.clone(), resource),
        };
        let name = document.metadata.name.as_deref().unwrap_or_default();
        api.patch(name, parameters, &Patch::Apply(document)).await.map(drop).map_err(failed)
    }
}

async fn enforce(client: &Client, namespace: &str) -> kube::Result<()> {
    let label = json!({ "metadata": { "labels": { "pod-security.kubernetes.io/enforce": "restricted" } } });
    let namespaces = Api::<Namespace>::all(client.clone());
    namespaces.patch(namespace, &PatchParams::default(), &Patch::Merge(label)).await?;
    // No pod is taken without an account, and nobody makes one where no controller runs.
    let account = json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": "default" } });
    let accounts = Api::<ServiceAccount>::namespaced(client.clone(), namespace);
    accounts.patch("default", &PatchParams::apply("konverge-testkit"), &Patch::Apply(account)).await.map(drop)
}

/// Makes pods in the namespace where it is enforced, and none that stays.
struct Probe {
    api: Api<DynamicObject>,
}

impl Probe {
    async fn runs(&self, spec: &Value) -> kube::Result<()> {
        let mut spec = spec.clone();
        // The account does not matter to the standard, and is not there.
        spec["serviceAccountName"] = "default".into();
        let resource = ApiResource::erase::<Pod>(&());
        let pod = DynamicObject::new("pod", &resource).data(json!({ "spec": spec }));
        self.api.create(&PostParams { dry_run: true, ..PostParams::default() }, &pod).await.map(drop)
    }

    async fn is_refused(&self, spec: &Value) -> bool {
        matches!(self.runs(spec).await, Err(kube::Error::Api(status)) if status.message.contains("violates PodSecurity"))
    }
}

fn documents(manifest: &str) -> Result<Vec<DynamicObject>, ManifestError> {
    let texts = manifest.split("\n---\n").filter(|text| !text.trim().is_empty());
    texts
        .enumerate()
        .map(|(index, text)| {
            serde_saphyr::from_str(text)
                .map_err(|error| ManifestError::Document { number: index + 1, cause: error.to_string() })
        })
        .collect()
}

fn kind(document: &DynamicObject) -> &str {
    document.types.as_ref().map(|types| types.kind.as_str()).unwrap_or_default()
}

/// Kind and name.
fn called(document: &DynamicObject) -> String {
    format!("{} {}", kind(document), document.metadata.name.as_deref().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_that_is_no_object_is_told_by_its_number() {
        let error = documents("apiVersion: v1\nkind: Namespace\nmetadata: {name: a}\n---\n- no\n").unwrap_err();
        assert!(error.to_string().starts_with("document 2 of the manifest"), "{error}");
    }
}
