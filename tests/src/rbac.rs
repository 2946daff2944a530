//! The permissions that users give an operator: the shipped manifest, under names of the stage's own.
//!
//! A named cluster may have the operator installed, with exactly the manifest's names. So its objects are created in a namespace of
//! the stage's own, those outside namespaces get that namespace's name behind theirs, and nothing is ever applied over anything.

use anyhow::{Context, Result};
use k8s_openapi::api::rbac::v1::PolicyRule;
use konverge_testkit::create_for_run;
use kube::{
    Api, Client,
    core::{ApiResource, DynamicObject, GroupVersionKind},
};
use serde_json::{Value, json};

/// The manifest that users apply; an operator of the stage runs under it and nothing more.
pub(crate) struct Role {
    manifest: &'static str,
    /// Name of the service account in it.
    pub(crate) account: &'static str,
}

/// Of the zopp operator.
pub(crate) const PULL: Role =
    Role { manifest: include_str!("../../deploy/rbac/zopp-operator.yaml"), account: "zopp-operator" };

/// Of the vault-sync-operator.
pub(crate) const PUSH: Role = Role {
    manifest: include_str!("../../deploy/rbac/vault-sync-operator.yaml"),
    account: "vault-sync-operator-controller-manager",
};

/// Of the vault-rollout-operator.
pub(crate) const ROLL: Role =
    Role { manifest: include_str!("../../deploy/rbac/vault-rollout-operator.yaml"), account: "vault-rollout-operator" };

/// Creates the manifest's objects for a stage with this namespace.
pub(crate) async fn create(client: &Client, role: &Role, namespace: &str) -> Result<()> {
    for object in objects(role, namespace)? {
        let types = object.types.clone().context("a document without a kind")?;
        let resource = ApiResource::from_gvk(&GroupVersionKind::try_from(&types)?);
        let what = format!("{} {}", types.kind, object.metadata.name.as_deref().unwrap_or_default());
        let api = match &object.metadata.namespace {
            Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
            None => Api::all_with(client.clone(), &resource),
        };
        create_for_run(api, object).await.with_context(|| format!("cannot create {what}"))?;
    }
    Ok(())
}

/// The permissions of the manifest in any namespace, for comparison with the requests.
pub fn operator_rules() -> Result<Vec<PolicyRule>> {
    let mut rules = Vec::new();
    for mut object in objects(&PULL, "rules")? {
        if let Some(of) = object.data.get_mut("rules") {
            let more: Vec<PolicyRule> = serde_json::from_value(of.take()).context("the manifest holds odd rules")?;
            rules.extend(more);
        }
    }
    Ok(rules)
}

/// The manifest's objects under the stage's names.
fn objects(role: &Role, namespace: &str) -> Result<Vec<DynamicObject>> {
    let parse = |text| {
        let document: Value = serde_saphyr::from_str(text).context("cannot read the operator's manifest")?;
        serde_json::from_value(renamed(document, namespace)).context("the operator's manifest holds no object")
    };
    role.manifest.split("\n---\n").map(parse).collect()
}

fn renamed(mut document: Value, namespace: &str) -> Value {
    let own = |name: &Value| json!(format!("{}-{namespace}", name.as_str().unwrap_or_default()));
    match document.pointer_mut("/metadata/namespace") {
        Some(theirs) => *theirs = json!(namespace),
        None => document["metadata"]["name"] = own(&document["metadata"]["name"]),
    }
    if document.pointer("/roleRef/kind") == Some(&json!("ClusterRole")) {
        document["roleRef"]["name"] = own(&document["roleRef"]["name"]);
    }
    for subject in document.get_mut("subjects").and_then(Value::as_array_mut).into_iter().flatten() {
        subject["namespace"] = json!(namespace);
    }
    document
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rules_of_pull_are_those_of_its_manifest() {
        let rules = operator_rules().unwrap();
        let is_about = |resource: &str| {
            let named = |rule: &PolicyRule| rule.resources.iter().flatten().any(|found| found == resource);
            rules.iter().any(named)
        };
        assert!(["secrets", "secretpulls", "leases", "tokenreviews"].into_iter().all(is_about), "{rules:?}");
    }

    #[test]
    fn no_name_of_an_installed_operator_is_left() {
        for (role, count, home) in [
            (PULL, 8, "konverge-system"),
            (PUSH, 8, "vault-sync-operator-system"),
            (ROLL, 8, "vault-rollout-operator-system"),
        ] {
            let objects = objects(&role, "own-1").unwrap();
            assert_eq!(objects.len(), count);
            for object in &objects {
                let name = object.metadata.name.as_deref().unwrap();
                let inside = object.metadata.namespace.as_deref() == Some("own-1");
                assert!(inside || name.ends_with("-own-1"), "{name}");
                assert!(!serde_json::to_string(object).unwrap().contains(home), "{name}");
            }
            let of_kind = |kind| objects.iter().filter(move |object| object.types.as_ref().unwrap().kind == kind);
            for binding in of_kind("ClusterRoleBinding") {
                let bound = binding.data["roleRef"]["name"].as_str().unwrap();
                assert!(of_kind("ClusterRole").any(|role| role.metadata.name.as_deref() == Some(bound)), "{bound}");
                assert_eq!(binding.data["subjects"][0]["name"], role.account);
            }
        }
    }
}
