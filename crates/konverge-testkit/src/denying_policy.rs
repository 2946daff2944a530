//! A policy of the API server that denies writes.

use kube::Client;
use serde_json::json;

use crate::admission_policy::{AdmissionPolicy, Effect};

/// A `ValidatingAdmissionPolicy` that denies each write of one object, with the message `not this one`, until it is [lifted](Self::lift).
///
/// The API server heeds a policy a moment after it was made, and for a moment after it was deleted.
pub struct DenyingPolicy(AdmissionPolicy);

impl DenyingPolicy {
    /// Makes the policy, which has the name of the namespace. `resource` is a resource of the core group, such as
    /// `configmaps`, or one with its group, such as `deployments.apps`.
    ///
    /// # Errors
    ///
    /// Returns the client's error if the policy or its binding cannot be created.
    pub async fn create(client: &Client, namespace: &str, resource: &str, name: &str) -> Result<Self, kube::Error> {
        let (resource, group) = resource.split_once('.').unwrap_or((resource, ""));
        let rule = json!({
            "apiGroups": [group], "apiVersions": ["*"], "operations": ["CREATE", "UPDATE"],
            "resources": [resource], "resourceNames": [name],
        });
        let spec = json!({"validations": [{"expression": "false", "message": "not this one"}]});
        let binding = json!({"validationActions": ["Deny"]});
        AdmissionPolicy::create(client, namespace, Effect::Validates, &rule, spec, binding).await.map(Self)
    }

    /// Deletes the policy.
    ///
    /// # Errors
    ///
    /// Returns the client's error if the policy or its binding cannot be deleted.
    pub async fn lift(self) -> Result<(), kube::Error> {
        self.0.delete().await
    }
}
