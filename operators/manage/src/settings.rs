//! The settings that decide what objects mean.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Display,
    sync::Arc,
    time::Duration,
};

use konverge::{kube::api::ObjectMeta, prelude::Error, remote::DeletionPolicy};
use konverge_core::{
    allow::{Pattern, Rule},
    names::few,
};

use crate::{annotations, api::v1alpha1::NetworkRouter, control::router_group, reasons};

/// The default time in seconds that an object in a namespace that is being deleted waits for its items in openZro.
pub(crate) const TERMINATING_NAMESPACE_DEADLINE: u64 = 15;
/// The default lifetime of a setup key in seconds, where rules are on.
const KEY_LIFETIME: u64 = 30 * 86_400;
/// The default number of peers that a setup key serves, where rules are on.
const KEY_USES: i32 = 100;

/// The settings that decide what objects mean. They come from the flags.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// The name of the cluster, which names its network.
    pub cluster_name: String,
    /// Whether each namespace has a network of its own.
    pub namespaced_networks: bool,
    /// The domain of Services in the cluster.
    pub cluster_dns: String,
    /// The address of the management server, as routing peers use it.
    pub management_url: String,
    /// The image of routing peers.
    pub client_image: String,
    /// Labels of all objects that the operator creates.
    pub default_labels: BTreeMap<String, String>,
    /// Whether resources create the policies that they name.
    pub creates_policies: bool,
    /// Whether an adopted item is deleted with its object, as the original does.
    pub deletes_adopted: bool,
    /// The namespace of the operator.
    pub namespace: String,
    /// The namespaces that have an account of their own, and the address of its management server.
    pub accounts: BTreeMap<String, String>,
    /// The rules for the names in openZro that a namespace may use; `None` permits all, as in the original.
    pub rules: Option<Vec<Rule>>,
    /// The namespaces whose objects may change the privileges of containers that the operator creates; `None` for all, as in the original.
    pub privileged: Option<BTreeSet<String>>,
    /// The time that an object in a namespace that is being deleted waits for its items in openZro.
    pub terminating_namespace_deadline: Duration,
}

impl Settings {
    /// The scope of a namespace: its own if it has an account, and else the empty one, which is that of the operator.
    pub fn scope(&self, namespace: Option<&str>) -> String {
        namespace.filter(|namespace| self.accounts.contains_key(*namespace)).unwrap_or_default().to_owned()
    }

    /// Whether a namespace has a network of its own.
    pub fn has_own_network(&self, namespace: &str) -> bool {
        self.namespaced_networks || self.accounts.contains_key(namespace)
    }

    /// The address of the management server that pods of a namespace use.
    pub fn url(&self, namespace: &str) -> &str {
        self.accounts.get(namespace).unwrap_or(&self.management_url)
    }

    /// Returns the fate of the item of an object. Its annotation has an adopted item deleted only where the platform writes the object.
    pub(crate) fn deletion(&self, object: &ObjectMeta) -> DeletionPolicy {
        let none = BTreeMap::new();
        let is_of_platform = object.namespace.as_deref().is_none_or(|namespace| self.is_of_platform(namespace));
        annotations::deletion(object.annotations.as_ref().unwrap_or(&none), self.deletes_adopted, is_of_platform)
    }

    /// Returns `true` if rules do not apply to a namespace: the operator's own, where its token is, and one with an account of its own.
    fn is_of_platform(&self, namespace: &str) -> bool {
        namespace == self.namespace || self.accounts.contains_key(namespace)
    }

    /// Returns the names in openZro that the objects of a namespace may use; `None` for all.
    pub(crate) fn names(&self, namespace: &str) -> Option<Vec<Pattern>> {
        let rules = self.rules.as_ref()?;
        if self.is_of_platform(namespace) {
            return None;
        }
        let own = self.namespaced_networks.then(|| Pattern::new(format!("{}-{namespace}", self.cluster_name)));
        Some(rules.iter().filter_map(|rule| rule.names(namespace)).chain(own).collect())
    }

    /// Returns `true` if the objects of a namespace may use a name in openZro.
    pub(crate) fn allows(&self, namespace: &str, name: &str) -> bool {
        self.names(namespace).is_none_or(|names| names.iter().any(|pattern| pattern.matches(name)))
    }

    /// Refuses a name that the objects of a namespace may not use. `field` is the field with the name, and `noun` the kind of item.
    pub(crate) fn check(&self, namespace: &str, field: &str, noun: &str, name: &str) -> Result<(), Error> {
        if self.allows(namespace, name) {
            return Ok(());
        }
        let rules = self.rules.iter().flatten().filter(|rule| rule.names(namespace).is_some());
        let rules: Vec<_> = rules.map(ToString::to_string).collect();
        let rules = if rules.is_empty() { "none".to_owned() } else { rules.join(", ") };
        let message = format!(
            "{field}: namespace {namespace} may not use the {noun} {name:?} (its rules: {rules}); choose another name, or ask the operator's \
             administrators for --allow='{namespace}={name}'"
        );
        Err(Error::permanent(reasons::NOT_ALLOWED, message))
    }

    /// Like [`check`](Self::check), but for a group of an object. That of the object's own router needs no rule.
    pub(crate) fn check_group(
        &self,
        object: &ObjectMeta,
        routers: &[Arc<NetworkRouter>],
        field: &str,
        name: &str,
    ) -> Result<(), Error> {
        if router_group(object, routers).is_some_and(|names| names.matches(name)) {
            return Ok(());
        }
        self.check(object.namespace.as_deref().unwrap_or_default(), field, "group", name)
    }

    /// Returns the names of groups that an object may use; `None` for all.
    pub(crate) fn group_names(&self, object: &ObjectMeta, routers: &[Arc<NetworkRouter>]) -> Option<Vec<Pattern>> {
        let names = self.names(object.namespace.as_deref().unwrap_or_default())?;
        Some(names.into_iter().chain(router_group(object, routers)).collect())
    }

    /// Refuses fields that change the privileges of a container, unless the objects of the namespace may set them. `advice` is an addition to the
    /// next step.
    pub(crate) fn check_privileges<T: Display>(
        &self,
        namespace: &str,
        fields: Vec<T>,
        advice: &str,
    ) -> Result<(), String> {
        if fields.is_empty() || self.may_be_privileged(namespace) {
            return Ok(());
        }
        Err(format!(
            "namespace {namespace} may not set {}; remove it{advice}, or ask the operator's administrators for --privileged-namespace={namespace}",
            few(fields)
        ))
    }

    /// Returns `true` if the objects of a namespace may set fields that change the privileges of a container, or a setting of the account.
    fn may_be_privileged(&self, namespace: &str) -> bool {
        self.privileged.as_ref().is_none_or(|namespaces| namespaces.contains(namespace))
    }

    /// Returns `true` if the peers of a routing peer of the namespace are exempt from the admission checks of the account, unless its object says
    /// otherwise. The exemption is a setting of the account.
    pub(crate) fn exempts_from_admission(&self, namespace: &str) -> bool {
        self.names(namespace).is_none() || self.may_be_privileged(namespace)
    }

    /// Returns the lifetime in seconds of a new setup key of a namespace, and the number of peers that it serves; 0 is no limit. The arguments are
    /// the values of the object.
    pub(crate) fn key_limits(&self, namespace: &str, expires_in: Option<u64>, uses: Option<i32>) -> (u64, i32) {
        let is_limited = self.names(namespace).is_some();
        let end = if is_limited { KEY_LIFETIME } else { 0 };
        (expires_in.unwrap_or(end), uses.unwrap_or(if is_limited { KEY_USES } else { 0 }))
    }
}

#[cfg(test)]
mod tests {
    use konverge_core::error::Classify;

    use super::*;

    fn confined(rules: &[&str]) -> Settings {
        Settings {
            cluster_name: "prod".to_owned(),
            namespace: "openzro".to_owned(),
            accounts: [("tenant".to_owned(), String::new())].into(),
            rules: Some(rules.iter().map(|rule| rule.parse().unwrap()).collect()),
            ..Settings::default()
        }
    }

    #[test]
    fn a_namespace_uses_the_names_that_a_rule_gives_it() {
        let settings = confined(&["*={namespace}", "*={namespace}/*", "shop=db-admins"]);
        for (namespace, name, expected) in [
            ("shop", "shop", true),
            ("shop", "shop/web", true),
            ("shop", "db-admins", true),
            ("team", "db-admins", false),
            ("team", "team-a/web", false),
            ("team", "All", false),
            ("openzro", "All", true),
            ("tenant", "All", true),
        ] {
            assert_eq!(settings.allows(namespace, name), expected, "{namespace} {name}");
        }
        let refused = settings.check("team", "spec.name", "group", "db-admins").unwrap_err();
        assert_eq!(refused.reason(), "NotAllowed");
        for part in ["spec.name", "team", "\"db-admins\"", "*={namespace}/*", "--allow='team=db-admins'"] {
            assert!(refused.to_string().contains(part), "{part}: {refused}");
        }
        assert!(Settings::default().allows("team", "All"));
        let namespaced = Settings { namespaced_networks: true, ..settings };
        assert!(namespaced.allows("team", "prod-team") && !namespaced.allows("team", "prod-team-a"));
    }

    #[test]
    fn setup_keys_get_an_end_and_a_limit_where_rules_are_on() {
        let settings = confined(&["*=*"]);
        assert_eq!(settings.key_limits("shop", None, None), (30 * 86_400, 100));
        assert_eq!(settings.key_limits("shop", Some(60), Some(0)), (60, 0));
        assert_eq!(settings.key_limits("openzro", None, None), (0, 0));
        assert_eq!(Settings::default().key_limits("shop", None, None), (0, 0));
    }
}
