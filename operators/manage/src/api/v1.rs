//! Version v1: groups, policies, resources, routing peers and setup keys.
//!
//! Fields that openzro-operator's definitions lack are marked as documented: its documentation shows them, and its program ignores them.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use konverge::Status;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{
    columns::with_status,
    kind::{kind, or_default},
    schema::{
        boolean, conditions, embedded, filled_text, filled_texts, immutable, int32, list, map, numbers, object, root,
        rules, status, text, texts, time, volume_mounts, volumes, with, word,
    },
    status::{custom_status, standard},
};

kind! {
    /// A group of peers and resources, known in openZro by its display name.
    OZGroup(OZGroupSpec, OZGroupStatus), "v1", "ozgroups", NamespaceResourceScope, group, with_status(&[("ID", ".status.groupID")])
}

kind! {
    /// An access policy between groups.
    OZPolicy(OZPolicySpec, OZPolicyStatus), "v1", "ozpolicies", ClusterResourceScope, policy, with_status(&[])
}

kind! {
    /// A resource of a network: an address that routing peers lead to.
    OZResource(OZResourceSpec, OZResourceStatus), "v1", "ozresources", NamespaceResourceScope, resource,
    with_status(&[("Address", ".spec.address"), ("ID", ".status.networkResourceID")])
}

kind! {
    /// A network with its routing peers, which run in this cluster.
    OZRoutingPeer(OZRoutingPeerSpec, OZRoutingPeerStatus), "v1", "ozroutingpeers", NamespaceResourceScope, routing_peer,
    with_status(&[("Network", ".status.networkID")])
}

kind! {
    /// A setup key that sidecars use: one that exists in a Secret, or one that the operator creates.
    OZSetupKey(OZSetupKeySpec, OZSetupKeyStatus), "v1", "ozsetupkeys", NamespaceResourceScope, setup_key, with_status(&[])
}

custom_status!(OZGroupStatus, OZPolicyStatus, OZResourceStatus, OZRoutingPeerStatus, OZSetupKeyStatus);

/// The spec of an [`OZGroup`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct OZGroupSpec {
    /// The display name in openZro.
    #[serde(deserialize_with = "or_default")]
    pub name: String,
}

/// The status of an [`OZGroup`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct OZGroupStatus {
    /// The id of the group in openZro.
    #[serde(rename = "groupID", skip_serializing_if = "Option::is_none")]
    pub group_id: Option<String>,
    /// Conditions and the generation that they are about.
    #[serde(flatten, deserialize_with = "standard")]
    pub standard: Status,
}

/// The spec of an [`OZPolicy`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OZPolicySpec {
    /// The display name in openZro.
    #[serde(deserialize_with = "or_default")]
    pub name: String,
    /// The description in openZro.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Display names of the groups whose peers may connect.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub source_groups: Vec<String>,
    /// Display names of the groups that they may connect to.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub destination_groups: Vec<String>,
    /// `tcp` and `udp`; empty means both.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub protocols: Vec<String>,
    /// Ports that the policy allows beside those of its resources.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<i32>,
    /// Whether the destinations may connect to the sources, too.
    #[serde(deserialize_with = "or_true")]
    pub bidirectional: bool,
    /// Documented: whether the policy is in force. Absent counts as true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// Documented: rules, instead of the fields above.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<OZPolicyRule>,
}

impl Default for OZPolicySpec {
    fn default() -> Self {
        Self {
            name: String::new(),
            description: None,
            source_groups: Vec::new(),
            destination_groups: Vec::new(),
            protocols: Vec::new(),
            ports: Vec::new(),
            bidirectional: true,
            enabled: None,
            rules: Vec::new(),
        }
    }
}

/// A rule of an [`OZPolicy`], as the documentation of openzro-operator shows it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OZPolicyRule {
    /// The display name in openZro.
    #[serde(deserialize_with = "or_default")]
    pub name: String,
    /// The description in openZro.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Whether the rule is in force. Absent counts as true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// Groups whose peers may connect: names of `OZGroup` objects, or display names.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<String>,
    /// Groups that they may connect to: names of `OZGroup` objects, or display names. A name of an `OZResource` object is one resource.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub destinations: Vec<String>,
    /// `tcp`, `udp`, `icmp` or `all`. Absent counts as `all`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
    /// Ports, as text or number, or ranges such as `8000-8010`.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<IntOrString>,
    /// `accept` or `drop`. Absent counts as `accept`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub action: Option<String>,
    /// Whether the destinations may connect to the sources, too.
    #[serde(deserialize_with = "or_true")]
    pub bidirectional: bool,
}

impl Default for OZPolicyRule {
    fn default() -> Self {
        Self {
            name: String::new(),
            description: None,
            enabled: None,
            sources: Vec::new(),
            destinations: Vec::new(),
            protocol: None,
            ports: Vec::new(),
            action: None,
            bidirectional: true,
        }
    }
}

/// The status of an [`OZPolicy`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OZPolicyStatus {
    /// The id of the TCP policy in openZro.
    #[serde(rename = "tcpPolicyID", skip_serializing_if = "Option::is_none")]
    pub tcp_policy_id: Option<String>,
    /// The id of the UDP policy in openZro.
    #[serde(rename = "udpPolicyID", skip_serializing_if = "Option::is_none")]
    pub udp_policy_id: Option<String>,
    /// The ids in openZro of the policies that stand for `rules`, by the name of the rule.
    #[serde(rename = "rulePolicyIDs", deserialize_with = "or_default", skip_serializing_if = "BTreeMap::is_empty")]
    pub rule_policy_ids: BTreeMap<String, String>,
    /// openzro-operator's time of the last change of a resource.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_updated_at: Option<String>,
    /// `namespace/name` of the resources to which the policy applies.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub managed_service_list: Vec<String>,
    /// Conditions and the generation that they are about.
    #[serde(flatten, deserialize_with = "standard")]
    pub standard: Status,
}

/// The spec of an [`OZResource`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OZResourceSpec {
    /// The display name in openZro, unique in the account.
    #[serde(deserialize_with = "or_default")]
    pub name: String,
    /// The id of the network in openZro. It cannot change.
    #[serde(rename = "networkID", deserialize_with = "or_default", skip_serializing_if = "String::is_empty")]
    pub network_id: String,
    /// The routing peer whose network has the resource, instead of `networkID`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network_ref: Option<NetworkReference>,
    /// An IP address, a CIDR or a domain.
    #[serde(deserialize_with = "or_default")]
    pub address: String,
    /// Display names of the groups of the resource.
    #[serde(deserialize_with = "or_default")]
    pub groups: Vec<String>,
    /// Documented: the description in openZro.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Documented: `host`, `subnet` or `domain`. It must agree with the address.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub type_: Option<String>,
    /// Names of the policies that the resource belongs to, separated by commas.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "String::is_empty")]
    pub policy_name: String,
    /// Display names of the source groups of policies that are generated.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub policy_source_groups: Vec<String>,
    /// Display names of policies that are generated, by the name in `policyName`.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "BTreeMap::is_empty")]
    pub policy_friendly_name: BTreeMap<String, String>,
    /// TCP ports that the policies allow.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub tcp_ports: Vec<i32>,
    /// UDP ports that the policies allow.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub udp_ports: Vec<i32>,
}

/// A reference to an [`OZRoutingPeer`], whose network is meant.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NetworkReference {
    /// The name of the routing peer.
    #[serde(deserialize_with = "or_default")]
    pub name: String,
    /// Its namespace; that of the object if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
}

/// The status of an [`OZResource`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OZResourceStatus {
    /// The id of the resource in openZro.
    #[serde(rename = "networkResourceID", skip_serializing_if = "Option::is_none")]
    pub network_resource_id: Option<String>,
    /// The policies that the resource belongs to, separated by commas.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy_name: Option<String>,
    /// TCP ports that count.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub tcp_ports: Vec<i32>,
    /// UDP ports that count.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub udp_ports: Vec<i32>,
    /// Ids of the groups in openZro.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<String>,
    /// Source groups of policies that were generated.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub policy_source_groups: Vec<String>,
    /// Display names of policies that were generated.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "BTreeMap::is_empty")]
    pub policy_friendly_name: BTreeMap<String, String>,
    /// The object name of the generated `OZPolicy`, by the name in `policyName`.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "BTreeMap::is_empty")]
    pub policy_name_mapping: BTreeMap<String, String>,
    /// Conditions and the generation that they are about.
    #[serde(flatten, deserialize_with = "standard")]
    pub standard: Status,
}

/// The spec of an [`OZRoutingPeer`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OZRoutingPeerSpec {
    /// The number of pods; 3 if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    /// Requests and limits of the container, as in a pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resources: Option<Value>,
    /// Further labels of the Deployment and its pods.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Further annotations of the Deployment and its pods.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// Labels of the nodes that may run the pods.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,
    /// Tolerations, as in a pod.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub tolerations: Vec<Value>,
    /// Further volumes, as in a pod.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub volumes: Vec<Value>,
    /// Further mounts of the container, as in a pod.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub volume_mounts: Vec<Value>,
    /// Whether the container is privileged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub privileged: Option<bool>,
    /// Whether openZro removes the peers of pods that are gone; false if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ephemeral: Option<bool>,
    /// Whether the account's admission checks leave the peers out; true if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exempt_from_admission: Option<bool>,
    /// Documented: subnets that the peers route to.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<String>,
    /// Documented: further groups of the peers: names of `OZGroup` objects, or display names.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<String>,
}

/// The status of an [`OZRoutingPeer`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OZRoutingPeerStatus {
    /// The id of the network in openZro.
    #[serde(rename = "networkID", skip_serializing_if = "Option::is_none")]
    pub network_id: Option<String>,
    /// The id of the setup key in openZro.
    #[serde(rename = "setupKeyID", skip_serializing_if = "Option::is_none")]
    pub setup_key_id: Option<String>,
    /// The id of the router in openZro.
    #[serde(rename = "routerID", skip_serializing_if = "Option::is_none")]
    pub router_id: Option<String>,
    /// The ids in openZro of the resources that stand for `routes`, by the subnet.
    #[serde(rename = "routeResourceIDs", deserialize_with = "or_default", skip_serializing_if = "BTreeMap::is_empty")]
    pub route_resource_ids: BTreeMap<String, String>,
    /// Conditions and the generation that they are about.
    #[serde(flatten, deserialize_with = "standard")]
    pub standard: Status,
}

/// The spec of an [`OZSetupKey`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OZSetupKeySpec {
    /// The Secret that has the setup key. Without it the operator creates a setup key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret_key_ref: Option<SecretKeyReference>,
    /// The address of the management server for sidecars, instead of the operator's own.
    #[serde(rename = "managementURL", skip_serializing_if = "Option::is_none")]
    pub management_url: Option<String>,
    /// Further volumes of pods with a sidecar, as in a pod.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub volumes: Vec<Value>,
    /// Further mounts of the sidecar, as in a pod.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub volume_mounts: Vec<Value>,
    /// Documented: the display name of the setup key that the operator creates.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Documented: `reusable` or `one-off`. Absent counts as `reusable`.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub type_: Option<String>,
    /// Documented: how long the key can be used, such as `30d`. Absent means without end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_in: Option<String>,
    /// Documented: how many peers may use the key; 0 means without limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage_limit: Option<i32>,
    /// Documented: groups of the peers that use the key: names of `OZGroup` objects, or display names.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub auto_groups: Vec<String>,
    /// Documented: whether openZro removes peers that went away.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ephemeral: Option<bool>,
    /// Whether peers may ask for further DNS labels.
    #[serde(rename = "allowExtraDNSLabels", skip_serializing_if = "Option::is_none")]
    pub allow_extra_dns_labels: Option<bool>,
}

impl OZSetupKeySpec {
    /// The key of the Secret in which the operator keeps a setup key that it created.
    pub const MANAGED_SECRET_KEY: &str = "setupKey";

    /// Returns where the setup key is: the Secret that the spec names, or `<name>-key`, which the operator writes for the object `name`.
    pub fn secret(&self, name: &str) -> SecretKeyReference {
        self.secret_key_ref.clone().unwrap_or_else(|| SecretKeyReference {
            name: format!("{name}-key"),
            key: Self::MANAGED_SECRET_KEY.to_owned(),
            optional: None,
        })
    }
}

/// A key of a Secret.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SecretKeyReference {
    /// The name of the Secret.
    #[serde(deserialize_with = "or_default")]
    pub name: String,
    /// The key in it.
    #[serde(deserialize_with = "or_default")]
    pub key: String,
    /// Whether pods may start without it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub optional: Option<bool>,
}

/// The status of an [`OZSetupKey`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct OZSetupKeyStatus {
    /// The id in openZro of the setup key that the operator created.
    #[serde(rename = "setupKeyID", skip_serializing_if = "Option::is_none")]
    pub setup_key_id: Option<String>,
    /// Conditions and the generation that they are about.
    #[serde(flatten, deserialize_with = "standard")]
    pub standard: Status,
}

/// Reads `null` as true.
fn or_true<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or(true))
}

fn group() -> Value {
    let name = immutable(filled_text("The display name in openZro. It cannot change."), "Value is immutable");
    let spec = object("The desired group.", &["name"], json!({ "name": name }));
    let status = status(conditions(), json!({ "groupID": text("The id of the group in openZro.") }));
    root("A group of peers and resources in openZro.", false, spec, status)
}

fn policy() -> Value {
    let port = with(int32("A port."), json!({ "minimum": 0.0, "maximum": 65535.0 }));
    let bidirectional =
        with(boolean("Whether the destinations may connect to the sources, too."), json!({ "default": true }));
    let spec = object(
        "The desired policy.",
        &["name"],
        json!({
            "name": filled_text("The display name in openZro."),
            "description": text("The description in openZro."),
            "sourceGroups": filled_texts("Display names of the groups whose peers may connect."),
            "destinationGroups": filled_texts("Display names of the groups that they may connect to."),
            "protocols": list("tcp and udp; both if absent.", word("A protocol.", &["tcp", "udp"])),
            "ports": list("Ports that the policy allows beside those of its resources.", port),
            "bidirectional": bidirectional,
            "enabled": boolean("Whether the policy is in force; true if absent."),
            "rules": list("Rules, instead of sourceGroups, destinationGroups, protocols and ports.", policy_rule()),
        }),
    );
    let status = status(
        conditions(),
        json!({
            "tcpPolicyID": text("The id of the TCP policy in openZro."),
            "udpPolicyID": text("The id of the UDP policy in openZro."),
            "rulePolicyIDs": map("The ids in openZro of the policies that stand for rules, by the name of the rule."),
            "lastUpdatedAt": time("When a resource of the policy changed last."),
            "managedServiceList": texts("Namespace and name of the resources to which the policy applies."),
        }),
    );
    root("An access policy between groups in openZro.", false, spec, status)
}

fn policy_rule() -> Value {
    let port = json!({
        "x-kubernetes-int-or-string": true,
        "anyOf": [{ "type": "integer" }, { "type": "string" }],
        "description": "A port, or a range such as 8000-8010.",
    });
    object(
        "A rule.",
        &["name"],
        json!({
            "name": filled_text("The display name in openZro, unique in the policy."),
            "description": text("The description in openZro."),
            "enabled": boolean("Whether the rule is in force; true if absent."),
            "sources": filled_texts("Groups whose peers may connect: names of OZGroup objects, or display names."),
            "destinations": filled_texts("Groups that they may connect to: names of OZGroup objects, or display names. A name of an OZResource object is one resource."),
            "protocol": word("The protocol; all if absent.", &["tcp", "udp", "icmp", "all"]),
            "ports": list("Ports, for tcp and udp; all ports if absent.", port),
            "action": word("The action for the traffic; accept if absent.", &["accept", "drop"]),
            "bidirectional": with(
                boolean("Whether the destinations may connect to the sources, too."),
                json!({ "default": true }),
            ),
        }),
    )
}

fn resource() -> Value {
    let network_ref = object(
        "The OZRoutingPeer whose network has the resource, instead of networkID.",
        &["name"],
        json!({
            "name": filled_text("The name of the OZRoutingPeer."),
            "namespace": text("Its namespace; that of the resource if absent."),
        }),
    );
    let spec = object(
        "The desired resource.",
        &["address", "groups", "name"],
        json!({
            "name": filled_text("The display name in openZro, unique in the account."),
            "networkID": immutable(text("The id of the network in openZro. It cannot change."), "Value is immutable"),
            "networkRef": network_ref,
            "address": filled_text("An IP address, a CIDR or a domain."),
            "groups": filled_texts("Display names of the groups of the resource."),
            "description": text("The description in openZro."),
            "type": word("The kind of the address. openZro derives it from the address.", &["host", "subnet", "domain"]),
            "policyName": text("Names of the OZPolicy objects that the resource belongs to, separated by commas."),
            "policySourceGroups": texts("Display names of the source groups of policies that are generated."),
            "policyFriendlyName": map("Display names of policies that are generated, by the name in policyName."),
            "tcpPorts": numbers("TCP ports that the policies allow."),
            "udpPorts": numbers("UDP ports that the policies allow."),
        }),
    );
    let status = status(
        conditions(),
        json!({
            "networkResourceID": text("The id of the resource in openZro."),
            "policyName": text("The policies that the resource belongs to, separated by commas."),
            "tcpPorts": numbers("TCP ports that count."),
            "udpPorts": numbers("UDP ports that count."),
            "groups": texts("Ids of the groups in openZro."),
            "policySourceGroups": texts("Source groups of policies that were generated."),
            "policyFriendlyName": map("Display names of policies that were generated."),
            "policyNameMapping": map("The name of the generated OZPolicy, by the name in policyName."),
        }),
    );
    root("A resource of a network in openZro.", false, spec, status)
}

fn routing_peer() -> Value {
    let spec = object(
        "The desired network and its routing peers.",
        &[],
        json!({
            "replicas": int32("The number of pods; 3 if absent."),
            "resources": embedded("Requests and limits of the container, as in a pod."),
            "labels": map("Further labels of the Deployment and its pods."),
            "annotations": map("Further annotations of the Deployment and its pods."),
            "nodeSelector": map("Labels of the nodes that may run the pods."),
            "tolerations": list("Tolerations of the pods.", embedded("A toleration, as in a pod.")),
            "volumes": volumes(),
            "volumeMounts": volume_mounts(),
            "privileged": boolean("Whether the container is privileged."),
            "ephemeral": boolean("Whether openZro removes the peers of pods that are gone; false if absent."),
            "exemptFromAdmission": boolean("Whether the account's admission checks leave the peers out; true if absent, but false in a namespace to which rules apply and that may not set it."),
            "routes": filled_texts("Subnets that the peers route to."),
            "groups": filled_texts("Further groups of the peers: names of OZGroup objects, or display names."),
        }),
    );
    let status = status(
        conditions(),
        json!({
            "networkID": text("The id of the network in openZro."),
            "setupKeyID": text("The id of the setup key in openZro."),
            "routerID": text("The id of the router in openZro."),
            "routeResourceIDs": map("The ids in openZro of the resources that stand for routes, by the subnet."),
        }),
    );
    root("A network in openZro, and its routing peers in this cluster.", false, spec, status)
}

fn setup_key() -> Value {
    let secret_key_ref = with(
        object(
            "The Secret that has the setup key. Without it the operator creates a setup key.",
            &["key"],
            json!({
                "name": with(text("The name of the Secret."), json!({ "default": "" })),
                "key": text("The key in the Secret."),
                "optional": boolean("Whether pods may start without it."),
            }),
        ),
        json!({
            "x-kubernetes-map-type": "atomic",
            "x-kubernetes-validations": [{
                "rule": "self.name.size() > 0",
                "message": "secret name needs to be set",
                "reason": "FieldValueRequired",
                "fieldPath": ".name",
            }],
        }),
    );
    let fixed = |schema| immutable(schema, "openZro cannot change this of a setup key; create another OZSetupKey");
    let expires_in = with(
        text("How long the key can be used, such as 30d; without end if absent."),
        json!({ "pattern": "^([0-9]+(\\.[0-9]+)?(s|m|h|d|w))+$", "maxLength": 32 }),
    );
    let spec = rules(
        object(
            "The desired setup key.",
            &[],
            json!({
                "secretKeyRef": secret_key_ref,
                "managementURL": text("The address of the management server for sidecars, instead of the operator's."),
                "volumes": volumes(),
                "volumeMounts": volume_mounts(),
                "name": fixed(filled_text("The display name of the setup key that the operator creates.")),
                "type": fixed(word("The type of the key; reusable if absent.", &["reusable", "one-off"])),
                "expiresIn": fixed(expires_in),
                "usageLimit": fixed(with(
                    int32("How many peers may use the key; 0 means without limit."),
                    json!({ "minimum": 0.0 }),
                )),
                "autoGroups": filled_texts("Groups of the peers that use the key: names of OZGroup objects, or display names."),
                "ephemeral": fixed(boolean("Whether openZro removes peers that went away.")),
                "allowExtraDNSLabels": fixed(boolean("Whether peers may ask for further DNS labels.")),
            }),
        ),
        &[(
            "has(self.secretKeyRef) != has(self.name)",
            "give either secretKeyRef, to use a Secret that has a setup key, or name, to create a setup key",
        )],
    );
    let status = status(
        conditions(),
        json!({ "setupKeyID": text("The id in openZro of the setup key that the operator created.") }),
    );
    root("A setup key for sidecars.", false, spec, status)
}

/// The schemas as they are written here, in the order of [`definitions`](super::definitions).
#[cfg(test)]
pub(super) fn schemas() -> Vec<Value> {
    vec![group(), policy(), resource(), routing_peer(), setup_key()]
}
