//! A policy of the API server that replaces a value in what is written.

use kube::{
    Api, Client,
    api::{ApiResource, DeleteParams, DynamicObject, GroupVersionKind, PostParams},
};
use serde_json::{Value, json};

/// A `MutatingAdmissionPolicy` that replaces the value of one key of `data` in one namespace, until it is [lifted](Self::lift).
///
/// The API server heeds a policy a moment after it was made, and for a moment after it was deleted.
pub struct ReplacingPolicy {
    client: Client,
    name: String,
}

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
        let this = Self { client: client.clone(), name: namespace.to_owned() };
        let Replaced { group, version, resource, path, condition } = replaced;
        // Texts and numbers of JSON are literals of CEL.
        let value: Value = value.into();
        let policy = json!({"metadata": {"name": namespace}, "spec": {
            "failurePolicy": "Fail",
            "reinvocationPolicy": "Never",
            "matchConstraints": {
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
                "resourceRules": [{
                    "apiGroups": [group], "apiVersions": [version], "operations": ["CREATE", "UPDATE"], "resources": [resource],
                }],
            },
            "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression":
                format!("[JSONPatch{{op: 'replace', path: '{path}', value: {value}}}]")}}],
            "matchConditions": [{"name": "has-it", "expression": condition}],
        }});
        this.put("MutatingAdmissionPolicy", policy).await?;
        let binding = json!({"metadata": {"name": namespace}, "spec": {"policyName": namespace}});
        this.put("MutatingAdmissionPolicyBinding", binding).await?;
        Ok(this)
    }

    /// Deletes the policy.
    ///
    /// # Errors
    ///
    /// Returns the client's error if the policy or its binding cannot be deleted.
    pub async fn lift(self) -> Result<(), kube::Error> {
        for kind in ["MutatingAdmissionPolicyBinding", "MutatingAdmissionPolicy"] {
            self.api(kind).delete(&self.name, &DeleteParams::default()).await?;
        }
        Ok(())
    }

    fn api(&self, kind: &str) -> Api<DynamicObject> {
        let mut resource = ApiResource::from_gvk(&GroupVersionKind::gvk("admissionregistration.k8s.io", "v1", kind));
        // The plural that is guessed from the kind may be another.
        resource.plural = match kind {
            "MutatingAdmissionPolicy" => "mutatingadmissionpolicies".to_owned(),
            _ => "mutatingadmissionpolicybindings".to_owned(),
        };
        Api::all_with(self.client.clone(), &resource)
    }

    async fn put(&self, kind: &str, mut object: Value) -> Result<(), kube::Error> {
        object["apiVersion"] = json!("admissionregistration.k8s.io/v1");
        object["kind"] = json!(kind);
        let object: DynamicObject = serde_json::from_value(object).map_err(kube::Error::SerdeError)?;
        self.api(kind).create(&PostParams::default(), &object).await.map(drop)
    }
}
