//! The objects that let a program do what it declares and nothing else.

use k8s_openapi::{
    api::{
        core::v1::ServiceAccount,
        rbac::v1::{ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding, RoleRef, Subject},
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use serde_json::Value;

const GROUP: &str = "rbac.authorization.k8s.io";

/// The permissions of a program, and its namespace. It gets no further field, so that it can be written as a literal.
#[derive(Debug, Clone)]
pub struct Grant<'a> {
    /// Name of the program; all objects are named after it.
    pub program: &'a str,
    /// Namespace of its service account.
    pub namespace: &'a str,
    /// Its permissions in all namespaces.
    pub everywhere: Vec<PolicyRule>,
    /// Its permissions in its own namespace only.
    pub at_home: Vec<PolicyRule>,
}

impl Grant<'_> {
    /// All that it may do, wherever: what a test compares with what it has done.
    pub fn rules(&self) -> Vec<PolicyRule> {
        [&self.everywhere[..], &self.at_home].concat()
    }

    /// A service account, a cluster role bound to it, and a role of its own namespace bound to it.
    pub fn objects(self) -> Result<Vec<Value>, serde_json::Error> {
        let (program, namespace) = (self.program, self.namespace);
        let named = |namespace: Option<&str>| ObjectMeta {
            name: Some(program.to_owned()),
            namespace: namespace.map(ToOwned::to_owned),
            labels: Some([("app.kubernetes.io/name".to_owned(), program.to_owned())].into()),
            ..ObjectMeta::default()
        };
        let subject = Subject {
            kind: "ServiceAccount".to_owned(),
            name: program.to_owned(),
            namespace: Some(namespace.to_owned()),
            ..Subject::default()
        };
        let refers = |kind: &str| RoleRef {
            api_group: GROUP.to_owned().into(),
            kind: kind.to_owned(),
            name: program.to_owned(),
        };
        let account = ServiceAccount { metadata: named(Some(namespace)), ..ServiceAccount::default() };
        let cluster_role =
            ClusterRole { metadata: named(None), rules: Some(self.everywhere), ..ClusterRole::default() };
        let cluster_binding = ClusterRoleBinding {
            metadata: named(None),
            role_ref: refers("ClusterRole"),
            subjects: Some(vec![subject.clone()]),
        };
        let role = Role { metadata: named(Some(namespace)), rules: Some(self.at_home) };
        let binding =
            RoleBinding { metadata: named(Some(namespace)), role_ref: refers("Role"), subjects: Some(vec![subject]) };
        Ok(vec![
            serde_json::to_value(account)?,
            serde_json::to_value(cluster_role)?,
            serde_json::to_value(cluster_binding)?,
            serde_json::to_value(role)?,
            serde_json::to_value(binding)?,
        ])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_object_is_named_after_the_program_and_bound_to_its_account() {
        let grant = Grant { program: "test", namespace: "home", everywhere: Vec::new(), at_home: Vec::new() };
        let objects = grant.objects().unwrap();
        assert!(objects.iter().all(|object| object["metadata"]["name"] == "test"));
        let kinds: Vec<_> = objects.iter().map(|object| object["kind"].as_str().unwrap()).collect();
        assert_eq!(kinds, ["ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"]);
        assert_eq!(objects[2]["subjects"][0]["namespace"], "home");
        assert_eq!(objects[4]["roleRef"]["kind"], "Role");
    }
}
