//! A policy of the API server that denies writes.

use kube::Client;
use serde_json::json;

use crate::admission_policy::{AdmissionPolicy, Effect};

/// A `ValidatingAdmissionPolicy` that denies each write of some objects, with the message `not this one`, until it is [lifted](Self::lift).
///
/// The API server heeds a policy a moment after it was made, and for a moment after it was deleted.
pub struct DenyingPolicy(AdmissionPolicy);

impl DenyingPolicy {
    /// Makes the policy, which has the name of the namespace. `objects` are pairs of a resource, such as `configmaps`, and the name of an object.
    ///
    /// # Errors
    ///
    /// Returns the client's error if the policy or its binding cannot be created.
    pub async fn create(client: &Client, namespace: &str, objects: &[(&str, &str)]) -> Result<Self, kube::Error> {
        let rule = |(resource, name): &(&str, &str)| {
            json!({
                "apiGroups": ["*"], "apiVersions": ["*"], "operations": ["CREATE", "UPDATE"],
                "resources": [resource], "resourceNames": [name],
            })
        };
        let rules: Vec<_> = objects.iter().map(rule).collect();
        let spec = json!({"validations": [{"expression": "false", "message": "not this one"}]});
        let binding = json!({"validationActions": ["Deny"]});
        AdmissionPolicy::create(client, namespace, Effect::Validates, &rules, spec, binding).await.map(Self)
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
