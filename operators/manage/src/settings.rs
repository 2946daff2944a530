//! The settings that decide what objects mean.

use std::collections::BTreeMap;

/// The settings that decide what objects mean. They come from the flags.
#[derive(Clone, Debug, PartialEq, Eq)]
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
}
