//! A policy of the API server that replaces a value in what is written.

use kube::Client;
use serde_json::{Value, json};

use crate::admission_policy::{AdmissionPolicy, Effect};

/// A `MutatingAdmissionPolicy` that replaces the value of one key of `data` in one namespace, until it is [lifted](Self::lift).
///
/// The API server heeds a policy a moment after it was made, and for a moment after it was deleted.
pub struct ReplacingPolicy(AdmissionPolicy);

/// A field that a [`ReplacingPolicy`] replaces. Written as a constant, so it has no further fields.
#[derive(Debug, Clone, Copy)]
pub struct Replaced<'a> {
    /// The group of the resource; empty for the core group.
    pub group: &'a str,
    /// The version of the resource.
    pub version: &'a str,
    /// The resource, or a subresource such as `deployments/status`.
    pub resource: &'a str,
    /// The JSON pointer of the field.
    pub path: &'a str,
    /// A CEL expression that is true of an object with the field.
    pub condition: &'a str,
}

impl ReplacingPolicy {
    /// Makes the policy, which has the name of the namespace. `resource` is a resource of the core group with a field `data`, such as
    /// `configmaps`; objects without `key` stay as they are.
    ///
    /// # Errors
    ///
    /// Returns the client's error if the policy or its binding cannot be created.
    pub async fn create(
        client: &Client,
        namespace: &str,
        resource: &str,
        key: &str,
        value: &str,
    ) -> Result<Self, kube::Error> {
        let (path, condition) = (format!("/data/{key}"), format!("has(object.data) && '{key}' in object.data"));
        let replaced = Replaced { group: "", version: "v1", resource, path: &path, condition: &condition };
        Self::create_for(client, namespace, replaced, value).await
    }

    /// Makes a policy that replaces any field.
    ///
    /// # Errors
    ///
    /// Returns the client's error if the policy or its binding cannot be created.
    pub async fn create_for(
        client: &Client,
        namespace: &str,
        replaced: Replaced<'_>,
        value: impl Into<Value>,
    ) -> Result<Self, kube::Error> {
        let Replaced { group, version, resource, path, condition } = replaced;
        // Texts and numbers of JSON are literals of CEL.
        let value: Value = value.into();
        let rule = json!({
            "apiGroups": [group], "apiVersions": [version], "operations": ["CREATE", "UPDATE"], "resources": [resource],
        });
        let spec = json!({
            "reinvocationPolicy": "Never",
            "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression":
                format!("[JSONPatch{{op: 'replace', path: '{path}', value: {value}}}]")}}],
            "matchConditions": [{"name": "has-it", "expression": condition}],
        });
        AdmissionPolicy::create(client, namespace, Effect::Mutates, &[rule], spec, json!({})).await.map(Self)
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
