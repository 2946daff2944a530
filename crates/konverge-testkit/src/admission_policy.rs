//! A policy of the API server and its binding, in one namespace.

use kube::{
    Api, Client,
    api::{ApiResource, DeleteParams, DynamicObject, GroupVersionKind, PostParams},
};
use serde_json::{Value, json};

/// The effect of a policy.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Effect {
    Mutates,
    Validates,
}

/// A policy that is bound to the namespace whose name it has.
pub(crate) struct AdmissionPolicy {
    client: Client,
    name: String,
    effect: Effect,
}

impl AdmissionPolicy {
    /// Makes a policy for writes in the namespace that match one of the rules. `spec` is the rest of the policy, and `binding` that of its binding.
    pub(crate) async fn create(
        client: &Client,
        namespace: &str,
        effect: Effect,
        rules: &[Value],
        mut spec: Value,
        mut binding: Value,
    ) -> Result<Self, kube::Error> {
        let this = Self { client: client.clone(), name: namespace.to_owned(), effect };
        spec["failurePolicy"] = json!("Fail");
        spec["matchConstraints"] = json!({
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
            "resourceRules": rules,
        });
        binding["policyName"] = json!(namespace);
        this.put("Policy", &spec).await?;
        this.put("PolicyBinding", &binding).await?;
        Ok(this)
    }

    pub(crate) async fn delete(self) -> Result<(), kube::Error> {
        for kind in ["PolicyBinding", "Policy"] {
            self.api(kind).1.delete(&self.name, &DeleteParams::default()).await?;
        }
        Ok(())
    }

    fn api(&self, kind: &str) -> (ApiResource, Api<DynamicObject>) {
        let effect = match self.effect {
            Effect::Mutates => "Mutating",
            Effect::Validates => "Validating",
        };
        let kind = GroupVersionKind::gvk("admissionregistration.k8s.io", "v1", &format!("{effect}Admission{kind}"));
        // The plural that is guessed from the kind may be another.
        let plural = kind.kind.to_lowercase();
        let plural = plural.strip_suffix('y').map_or_else(|| format!("{plural}s"), |stem| format!("{stem}ies"));
        let resource = ApiResource::from_gvk_with_plural(&kind, &plural);
        (resource.clone(), Api::all_with(self.client.clone(), &resource))
    }

    async fn put(&self, kind: &str, spec: &Value) -> Result<(), kube::Error> {
        let (resource, api) = self.api(kind);
        let object = DynamicObject::new(&self.name, &resource).data(json!({ "spec": spec }));
        api.create(&PostParams::default(), &object).await.map(drop)
    }
}
