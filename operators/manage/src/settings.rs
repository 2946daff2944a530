//! The settings that decide what objects mean.

use std::collections::BTreeMap;

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
}
