//! The groups and the resources that the words of a policy's rules mean. Pure.

use std::sync::Arc;

use konverge::{
    kube::{Resource, api::ObjectMeta},
    prelude::ObjectKey,
};
use konverge_core::names::few;

use super::scope_of;
use crate::{
    annotations::ACCOUNT,
    api::v1::{OZGroup, OZPolicy, OZResource},
    control::references,
    settings::Settings,
};

/// The objects that the rules of a policy can name: those of its account.
pub(super) struct Named {
    own: Objects,
    /// Those of other accounts, which no rule may name.
    foreign: Objects,
}

struct Objects {
    groups: Vec<Arc<OZGroup>>,
    resources: Vec<Arc<OZResource>>,
}

/// The object that a word means.
pub(super) enum Meaning {
    /// The group of this display name.
    Group(String),
    Resource(Arc<OZResource>),
}

impl Named {
    pub(super) fn new(
        policy: &OZPolicy,
        groups: &[Arc<OZGroup>],
        resources: &[Arc<OZResource>],
        settings: &Settings,
    ) -> Self {
        let scope = scope_of(policy);
        // An object whose name no rule permits is not in openZro, so policies cannot name it.
        let allows = |of: &ObjectMeta, name: &str| settings.allows(of.namespace.as_deref().unwrap_or_default(), name);
        let groups = groups.iter().filter(|group| allows(&group.metadata, &group.spec.name));
        let resources = resources.iter().filter(|resource| allows(&resource.metadata, &resource.spec.name));
        let is_own = |namespace: &Option<String>| settings.scope(namespace.as_deref()) == scope;
        let (own_groups, foreign_groups) = groups.cloned().partition(|group| is_own(&group.metadata.namespace));
        let (own_resources, foreign_resources) =
            resources.cloned().partition(|resource| is_own(&resource.metadata.namespace));
        Self {
            own: Objects { groups: own_groups, resources: own_resources },
            foreign: Objects { groups: foreign_groups, resources: foreign_resources },
        }
    }

    /// Returns the object of this name, or `None` if there is none. Only destinations can be resources.
    ///
    /// The error says why the name cannot be used.
    pub(super) fn meaning(&self, name: &str, is_destination: bool) -> Result<Option<Meaning>, String> {
        check_account(name, &self.foreign.groups)?;
        if let Some(display) = references::display_name_anywhere(name, &self.own.groups)? {
            return Ok(Some(Meaning::Group(display)));
        }
        if !is_destination {
            return Ok(None);
        }
        check_account(name, &self.foreign.resources)?;
        let is_meant = |resource: &&Arc<OZResource>| {
            resource.metadata.deletion_timestamp.is_none() && references::is_named(&***resource, name)
        };
        let mut meant: Vec<_> = self.own.resources.iter().filter(is_meant).collect();
        if meant.len() > 1 {
            let keys = meant.iter().filter_map(|resource| ObjectKey::of(&***resource)).map(|key| key.to_string());
            return Err(format!("{name:?} is the name of OZResource {}; write namespace/name", few(keys)));
        }
        Ok(meant.pop().cloned().map(Meaning::Resource))
    }
}

/// Refuses `namespace/name` if that is an object of another account.
fn check_account<K: Resource<DynamicType = ()>>(name: &str, foreign: &[Arc<K>]) -> Result<(), String> {
    if name.contains('/') && foreign.iter().any(|object| references::is_named(&**object, name)) {
        return Err(format!(
            "{} {name} is in another account; name one of the policy's account, or set the annotation {ACCOUNT}",
            K::kind(&())
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::api::v1::{OZGroupSpec, OZPolicySpec};

    fn group(namespace: &str, name: &str, display: &str) -> Arc<OZGroup> {
        let mut group = OZGroup::new(name, OZGroupSpec { name: display.to_owned() });
        group.metadata.namespace = Some(namespace.to_owned());
        Arc::new(group)
    }

    fn resource(namespace: &str, name: &str) -> Arc<OZResource> {
        let mut resource = OZResource::new(name, serde_json::from_value(json!({})).unwrap());
        resource.metadata.namespace = Some(namespace.to_owned());
        Arc::new(resource)
    }

    /// The namespace `t` has an account of its own.
    fn settings() -> Settings {
        Settings {
            cluster_name: "prod".to_owned(),
            namespaced_networks: false,
            cluster_dns: String::new(),
            management_url: String::new(),
            client_image: String::new(),
            default_labels: std::collections::BTreeMap::new(),
            creates_policies: false,
            deletes_adopted: false,
            accounts: [("t".to_owned(), String::new())].into(),
            namespace: String::new(),
            ..Settings::default()
        }
    }

    #[test]
    fn a_word_means_a_group_or_as_a_destination_a_resource_of_the_same_account() {
        let mut policy = OZPolicy::new("p", serde_json::from_value::<OZPolicySpec>(json!({ "name": "p" })).unwrap());
        let groups = [group("a", "web", "Web"), group("t", "web", "Theirs")];
        let mut going = (*resource("b", "db")).clone();
        going.metadata.deletion_timestamp = Some(serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap());
        let resources = [
            resource("a", "web"),
            resource("a", "db"),
            resource("t", "db"),
            Arc::new(going),
            resource("a", "two"),
            resource("b", "two"),
        ];
        let said = |policy: &OZPolicy, name: &str, is_destination: bool| {
            let named = Named::new(policy, &groups, &resources, &settings());
            match named.meaning(name, is_destination) {
                Ok(Some(Meaning::Group(display))) => format!("group {display}"),
                Ok(Some(Meaning::Resource(resource))) => format!("resource {}", ObjectKey::of(&*resource).unwrap()),
                Ok(None) => "nothing".to_owned(),
                Err(why) => why,
            }
        };
        for (name, is_destination, expected) in [
            ("web", false, "group Web"),
            // The group comes first.
            ("web", true, "group Web"),
            ("db", false, "nothing"),
            ("db", true, "resource a/db"),
            ("a/db", true, "resource a/db"),
            ("b/db", true, "nothing"),
            ("a/two", true, "resource a/two"),
            ("other", true, "nothing"),
            ("t/other", true, "nothing"),
        ] {
            assert_eq!(said(&policy, name, is_destination), expected, "{name} {is_destination}");
        }
        for (name, expected) in [
            ("two", "OZResource a/two, b/two"),
            ("t/web", "OZGroup t/web is in another"),
            ("t/db", "OZResource t/db is in another"),
        ] {
            assert!(said(&policy, name, true).contains(expected), "{}", said(&policy, name, true));
        }
        policy.metadata.annotations = Some([(ACCOUNT.to_owned(), "t".to_owned())].into());
        for (name, expected) in
            [("web", "group Theirs"), ("t/db", "resource t/db"), ("db", "resource t/db"), ("two", "nothing")]
        {
            assert_eq!(said(&policy, name, true), expected, "{name}");
        }
        assert!(said(&policy, "a/two", true).contains("OZResource a/two is in another account"));
    }
}
