//! Version v1alpha1: groups, setup keys, network routers, network resources and sidecar profiles.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use konverge::Status;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{
    columns::ready_and_age,
    kind::{kind, or_default},
    schema::{
        boolean, embedded, filled_text, immutable, int32, label_selector, list, local_reference, map, named_reference,
        object, root, rules, standard_conditions, status, status_with_default, text, texts, with, word,
    },
    status::{custom_status, standard},
};

kind! {
    /// A group of peers and resources.
    Group(GroupSpec, GroupStatus), "v1alpha1", "groups", NamespaceResourceScope, group, ready_and_age()
}

kind! {
    /// A setup key, and the Secret that has it.
    SetupKey(SetupKeySpec, SetupKeyStatus), "v1alpha1", "setupkeys", NamespaceResourceScope, setup_key, ready_and_age()
}

kind! {
    /// A network with its routing peers, which run in this cluster.
    NetworkRouter(NetworkRouterSpec, NetworkRouterStatus), "v1alpha1", "networkrouters", NamespaceResourceScope, network_router,
    ready_and_age()
}

kind! {
    /// A Service as a resource of a network, with a DNS record.
    NetworkResource(NetworkResourceSpec, NetworkResourceStatus), "v1alpha1", "networkresources", NamespaceResourceScope,
    network_resource, ready_and_age()
}

kind! {
    /// Pods that get an openZro sidecar, and how it is configured.
    SidecarProfile(SidecarProfileSpec, SidecarProfileStatus), "v1alpha1", "sidecarprofiles", NamespaceResourceScope,
    sidecar_profile, Vec::new()
}

custom_status!(GroupStatus, SetupKeyStatus, NetworkRouterStatus, NetworkResourceStatus, SidecarProfileStatus);

/// A reference to a group: exactly one of the three.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GroupReference {
    /// The display name in openZro.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The id in openZro.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// A [`Group`] of the same namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub local_ref: Option<LocalReference>,
}

/// A reference to an object of the same namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LocalReference {
    /// The name of the object.
    #[serde(deserialize_with = "or_default")]
    pub name: String,
}

/// A reference to an object of any namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CrossNamespaceReference {
    /// The name of the object.
    #[serde(deserialize_with = "or_default")]
    pub name: String,
    /// Its namespace.
    #[serde(deserialize_with = "or_default")]
    pub namespace: String,
}

/// The spec of a [`Group`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct GroupSpec {
    /// The display name in openZro.
    #[serde(deserialize_with = "or_default")]
    pub name: String,
}

/// The status of a [`Group`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct GroupStatus {
    /// The id of the group in openZro.
    #[serde(rename = "groupID", skip_serializing_if = "Option::is_none")]
    pub group_id: Option<String>,
    /// Conditions and the generation that they are about.
    #[serde(flatten, deserialize_with = "standard")]
    pub standard: Status,
}

/// The spec of a [`SetupKey`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SetupKeySpec {
    /// The display name in openZro.
    #[serde(deserialize_with = "or_default")]
    pub name: String,
    /// Whether openZro removes peers that went away.
    #[serde(deserialize_with = "or_default")]
    pub ephemeral: bool,
    /// How long the key can be used, in hours and minutes; without end if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration: Option<String>,
    /// Groups of the peers that use the key.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub auto_groups: Vec<GroupReference>,
    /// Whether peers may ask for further DNS labels. openzro-operator's definition lacks the field.
    #[serde(rename = "allowExtraDNSLabels", skip_serializing_if = "Option::is_none")]
    pub allow_extra_dns_labels: Option<bool>,
}

impl SetupKey {
    /// The key of the Secret that has the setup key.
    pub const SECRET_KEY: &str = "setup-key";

    /// Returns the name of the Secret of the setup key `name`.
    pub fn secret_name(name: &str) -> String {
        format!("setup-key-{name}")
    }
}

/// The status of a [`SetupKey`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SetupKeyStatus {
    /// The id of the setup key in openZro.
    #[serde(rename = "setupKeyID", skip_serializing_if = "Option::is_none")]
    pub setup_key_id: Option<String>,
    /// Conditions and the generation that they are about.
    #[serde(flatten, deserialize_with = "standard")]
    pub standard: Status,
}

/// The spec of a [`NetworkRouter`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NetworkRouterSpec {
    /// The DNS zone in openZro that gets the records of the network's resources.
    #[serde(deserialize_with = "or_default")]
    pub dns_zone_ref: LocalReference,
    /// Changes to the workload that runs the routing peers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workload_override: Option<WorkloadOverride>,
}

/// Changes to the workload that runs the routing peers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WorkloadOverride {
    /// Further labels of the Deployment.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Further annotations of the Deployment.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// The number of pods; 3 if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    /// A pod template that is merged into the operator's by the rules of a strategic merge.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_template: Option<Value>,
}

/// The status of a [`NetworkRouter`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct NetworkRouterStatus {
    /// The id of the network in openZro.
    #[serde(rename = "networkID", skip_serializing_if = "Option::is_none")]
    pub network_id: Option<String>,
    /// The id of the router in openZro.
    #[serde(rename = "routingPeerID", skip_serializing_if = "Option::is_none")]
    pub routing_peer_id: Option<String>,
    /// Conditions and the generation that they are about.
    #[serde(flatten, deserialize_with = "standard")]
    pub standard: Status,
}

/// The spec of a [`NetworkResource`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NetworkResourceSpec {
    /// The router whose network has the resource. It cannot change.
    #[serde(deserialize_with = "or_default")]
    pub network_router_ref: CrossNamespaceReference,
    /// The Service.
    #[serde(deserialize_with = "or_default")]
    pub service_ref: LocalReference,
    /// Groups of the resource.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<GroupReference>,
}

/// The status of a [`NetworkResource`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct NetworkResourceStatus {
    /// The id of the network in openZro.
    #[serde(rename = "networkID", skip_serializing_if = "Option::is_none")]
    pub network_id: Option<String>,
    /// The id of the resource in openZro.
    #[serde(rename = "resourceID", skip_serializing_if = "Option::is_none")]
    pub resource_id: Option<String>,
    /// The id of the zone of the record in openZro.
    #[serde(rename = "dnsZoneID", skip_serializing_if = "Option::is_none")]
    pub dns_zone_id: Option<String>,
    /// The id of the record in openZro.
    #[serde(rename = "dnsRecordID", skip_serializing_if = "Option::is_none")]
    pub dns_record_id: Option<String>,
    /// Conditions and the generation that they are about.
    #[serde(flatten, deserialize_with = "standard")]
    pub standard: Status,
}

/// The spec of a [`SidecarProfile`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SidecarProfileSpec {
    /// The [`SetupKey`] of the sidecar.
    #[serde(deserialize_with = "or_default")]
    pub setup_key_ref: LocalReference,
    /// Which pods of the namespace; all if absent or empty.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_selector: Option<LabelSelector>,
    /// The place of the sidecar in the pod.
    #[serde(deserialize_with = "or_default")]
    pub injection_mode: InjectionMode,
    /// Further DNS labels of the pods' peers.
    #[serde(rename = "extraDNSLabels", deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub extra_dns_labels: Vec<String>,
    /// Changes to the container.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub container_override: Option<ContainerOverride>,
}

/// The place of a sidecar in the pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum InjectionMode {
    /// An init container that keeps running beside the others.
    #[default]
    Sidecar,
    /// A container like the others.
    Container,
}

/// Changes to the container of a sidecar.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerOverride {
    /// Its image.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "String::is_empty")]
    pub image: String,
    /// Variables of its environment, as in a pod. One with the name of an existing variable replaces it.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub env: Vec<Value>,
    /// Its security context, as in a pod, which is merged into the operator's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub security_context: Option<Value>,
}

/// The status of a [`SidecarProfile`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SidecarProfileStatus {
    /// Conditions and the generation that they are about.
    #[serde(flatten, deserialize_with = "standard")]
    pub standard: Status,
}

fn group_reference() -> Value {
    rules(
        object(
            "A reference to a group by one of three ways.",
            &[],
            json!({
                "name": text("The display name in openZro."),
                "id": text("The id in openZro."),
                "localRef": local_reference("A Group of the same namespace."),
            }),
        ),
        &[(
            "(has(self.id)?1:0)+(has(self.name)?1:0)+(has(self.localRef)?1:0)==1",
            "Exactly one of id, name, or localRef must be set",
        )],
    )
}

fn group() -> Value {
    let spec = object("The desired group.", &["name"], json!({ "name": filled_text("The display name in openZro.") }));
    let status = status_with_default(json!({ "groupID": text("The id of the group in openZro.") }));
    root("A group of peers and resources in openZro.", true, spec, status)
}

fn setup_key() -> Value {
    let duration = with(
        text("How long the key can be used, in hours and minutes, such as 720h; without end if absent."),
        json!({ "pattern": "^([0-9]+(\\.[0-9]+)?(m|h))+$" }),
    );
    let spec = object(
        "The desired setup key.",
        &["ephemeral", "name"],
        json!({
            "name": filled_text("The display name in openZro."),
            "ephemeral": immutable(boolean("Whether openZro removes peers that went away."), "ephemeral is immutable"),
            "duration": immutable(duration, "duration is immutable"),
            "autoGroups": list("Groups of the peers that use the key.", group_reference()),
            "allowExtraDNSLabels": boolean("Whether peers may ask for further DNS labels; a change takes a new key."),
        }),
    );
    let status = status_with_default(json!({ "setupKeyID": text("The id of the setup key in openZro.") }));
    root("A setup key in openZro, and the Secret that has it.", true, spec, status)
}

fn network_router() -> Value {
    let workload_override = object(
        "Changes to the workload that runs the routing peers.",
        &[],
        json!({
            "labels": map("Further labels of the Deployment."),
            "annotations": map("Further annotations of the Deployment."),
            "replicas": int32("The number of pods; 3 if absent."),
            "podTemplate": embedded("A pod template that is merged into the operator's."),
        }),
    );
    let spec = object(
        "The desired network and its routing peers.",
        &["dnsZoneRef"],
        json!({
            "dnsZoneRef": named_reference("The DNS zone in openZro, by domain or name, that gets the records of resources."),
            "workloadOverride": workload_override,
        }),
    );
    let status = status_with_default(json!({
        "networkID": text("The id of the network in openZro."),
        "routingPeerID": text("The id of the router in openZro."),
    }));
    root("A network in openZro, and its routing peers in this cluster.", true, spec, status)
}

fn network_resource() -> Value {
    let router = object(
        "The NetworkRouter whose network has the resource. It cannot change.",
        &["name", "namespace"],
        json!({ "name": text("The name of the object."), "namespace": text("Its namespace.") }),
    );
    let spec = object(
        "The desired resource.",
        &["networkRouterRef", "serviceRef"],
        json!({
            "networkRouterRef": immutable(router, "Value is immutable"),
            "serviceRef": local_reference("The Service."),
            "groups": list("Groups of the resource.", group_reference()),
        }),
    );
    let status = status_with_default(json!({
        "networkID": text("The id of the network in openZro."),
        "resourceID": text("The id of the resource in openZro."),
        "dnsZoneID": text("The id of the zone of the record in openZro."),
        "dnsRecordID": text("The id of the record in openZro."),
    }));
    root("A Service as a resource of a network in openZro, with a DNS record.", true, spec, status)
}

fn sidecar_profile() -> Value {
    let mode = with(
        word("Sidecar: an init container that keeps running. Container: a container.", &["Sidecar", "Container"]),
        json!({ "default": "Sidecar" }),
    );
    let container_override = object(
        "Changes to the container.",
        &[],
        json!({
            "image": text("The image of the container."),
            "env": list("Variables, as in a pod.", with(
                embedded("A variable, as in a pod."),
                json!({ "required": ["name"], "properties": { "name": { "type": "string" } } }),
            )),
            "securityContext": embedded("The security context, as in a pod. Fields of it replace the operator's."),
        }),
    );
    let spec = object(
        "The sidecar and its pods.",
        &["setupKeyRef"],
        json!({
            "setupKeyRef": named_reference("The SetupKey of the sidecar."),
            "podSelector": label_selector("Which pods of the namespace; all if absent or empty."),
            "injectionMode": mode,
            "extraDNSLabels": texts("Further DNS labels of the pods' peers. The SetupKey has to allow them."),
            "containerOverride": container_override,
        }),
    );
    let status = with(status(standard_conditions(), json!({})), json!({ "default": {} }));
    root("Pods of the namespace that get an openZro sidecar.", true, spec, status)
}

/// The schemas as they are written here, in the order of [`definitions`](super::definitions).
#[cfg(test)]
pub(super) fn schemas() -> Vec<Value> {
    vec![group(), network_resource(), network_router(), setup_key(), sidecar_profile()]
}
