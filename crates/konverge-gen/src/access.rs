//! The permissions that a program needs, collected from the declarations of its parts.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::rbac::v1::PolicyRule;
use kube::Resource;

/// The resources a program touches and the verbs it uses on them. A role is derived from it, with nothing more.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Access {
    verbs: BTreeMap<(String, String), BTreeSet<&'static str>>,
    more: Vec<PolicyRule>,
}

impl Access {
    /// Needs these verbs on objects of kind `K`.
    pub fn to<K: Resource>(&mut self, kind: &K::DynamicType, verbs: &[&'static str]) -> &mut Self {
        self.to_resource(&K::group(kind), &K::plural(kind), verbs)
    }

    /// Needs these verbs on the status of objects of kind `K`.
    pub fn to_status<K: Resource>(&mut self, kind: &K::DynamicType, verbs: &[&'static str]) -> &mut Self {
        self.to_resource(&K::group(kind), &format!("{}/status", K::plural(kind)), verbs)
    }

    /// Needs these verbs on a resource, such as `configmaps` of the group `""`.
    pub fn to_resource(&mut self, group: &str, resource: &str, verbs: &[&'static str]) -> &mut Self {
        self.verbs.entry((group.to_owned(), resource.to_owned())).or_default().extend(verbs);
        self
    }

    /// Needs what `other` needs, too.
    pub fn merge(&mut self, other: &Self) -> &mut Self {
        for ((group, resource), verbs) in &other.verbs {
            self.verbs.entry((group.clone(), resource.clone())).or_default().extend(verbs);
        }
        self.more.extend(other.more.iter().cloned());
        self
    }

    /// Needs what these rules allow, such as verbs on objects of certain names.
    pub fn rules_of(&mut self, rules: impl IntoIterator<Item = PolicyRule>) -> &mut Self {
        self.more.extend(rules);
        self
    }

    /// The rules of a role that allows this and nothing else: one per group and set of verbs, then those that were given.
    pub fn rules(&self) -> Vec<PolicyRule> {
        let mut resources: BTreeMap<(&String, &BTreeSet<&str>), Vec<String>> = BTreeMap::new();
        for ((group, resource), verbs) in &self.verbs {
            resources.entry((group, verbs)).or_default().push(resource.clone());
        }
        let rule = |((group, verbs), resources): ((&String, &BTreeSet<&str>), _)| PolicyRule {
            api_groups: Some(vec![group.clone()]),
            resources: Some(resources),
            verbs: verbs.iter().map(|verb| (*verb).to_owned()).collect(),
            ..PolicyRule::default()
        };
        resources.into_iter().map(rule).chain(self.more.iter().cloned()).collect()
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{ConfigMap, Secret};

    use super::*;

    #[test]
    fn resources_with_the_same_verbs_share_a_rule() {
        let mut access = Access::default();
        access.to::<ConfigMap>(&(), &["watch", "list"]).to::<Secret>(&(), &["list", "watch"]);
        access.to::<ConfigMap>(&(), &["list"]);
        access.to_resource("example.io", "greetings/status", &["patch"]);
        let rules: Vec<_> = access
            .rules()
            .into_iter()
            .map(|rule| (rule.api_groups.unwrap_or_default(), rule.resources.unwrap_or_default(), rule.verbs))
            .collect();
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        assert_eq!(
            rules,
            [
                (words(&[""]), words(&["configmaps", "secrets"]), words(&["list", "watch"])),
                (words(&["example.io"]), words(&["greetings/status"]), words(&["patch"])),
            ]
        );
    }
}
