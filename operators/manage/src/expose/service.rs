//! The annotations of a Service as one `OZResource`. Pure.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{Service, ServicePort};
use konverge::{
    kube::{Resource, ResourceExt},
    runtime::object::ObjectKey,
};
use konverge_core::names::is_object_name;

use crate::{
    annotations::{
        EXPOSE, EXPOSED_GROUPS, POLICIES, POLICY_NAMES, POLICY_PORTS, POLICY_PROTOCOL, POLICY_SOURCE_GROUPS,
        RESOURCE_NAME,
    },
    api::v1::{OZResource, OZResourceSpec},
    settings::Settings,
};

/// The finalizer that openzro-operator puts on exposed Services and on the resources it makes for them.
pub const ORIGINAL_FINALIZER: &str = "openzro.io/cleanup";
/// The name of the routing peer whose network has the resources of Services.
pub const ROUTER: &str = "router";

/// The request of a Service.
#[derive(Debug, Clone, PartialEq)]
pub enum Exposure {
    /// The Service is left alone: openzro-operator's chart exposes the API server's own Service by other means.
    Ignored,
    /// The Service is not exposed.
    Hidden,
    /// The Service is exposed.
    Exposed(Box<Exposed>),
}

/// The resource of an exposed Service.
#[derive(Debug, Clone, PartialEq)]
pub struct Exposed {
    /// The desired resource, but for its network, whose id is not known yet.
    pub spec: OZResourceSpec,
    /// The routing peer whose network has the resource.
    pub router: ObjectKey,
    /// Annotations that have no effect, each with the reason.
    pub warnings: Vec<String>,
}

/// An annotation that cannot be followed. The resource stays as it is.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("annotation {annotation} {why}")]
pub struct InvalidAnnotation {
    /// The annotation.
    pub annotation: &'static str,
    /// The cause, and the next step.
    pub why: String,
}

/// The ports of a Service that policies allow.
#[derive(Debug, Default)]
struct Ports {
    tcp: BTreeSet<i32>,
    udp: BTreeSet<i32>,
}

/// Returns what the annotations of a Service ask for.
pub fn exposure(service: &Service, settings: &Settings) -> Result<Exposure, InvalidAnnotation> {
    let (namespace, name) = (service.namespace().unwrap_or_default(), service.name_any());
    if (namespace.as_str(), name.as_str()) == ("default", "kubernetes") {
        return Ok(Exposure::Ignored);
    }
    if service.meta().deletion_timestamp.is_some() || !is_exposed(service.annotations()) {
        return Ok(Exposure::Hidden);
    }
    let annotations = service.annotations();
    let mut warnings = Vec::new();
    let router_namespace = if settings.has_own_network(&namespace) { &namespace } else { &settings.namespace };
    let router = ObjectKey::namespaced(router_namespace, ROUTER);
    let mut spec = OZResourceSpec {
        name: resource_name(annotations, settings, &namespace, &name)?,
        address: address(service, settings),
        groups: groups(annotations, settings, &namespace, &name)?,
        ..OZResourceSpec::default()
    };
    let policies = policies(annotations)?;
    if policies.is_empty() {
        let idle = [POLICY_PORTS, POLICY_PROTOCOL, POLICY_SOURCE_GROUPS, POLICY_NAMES];
        let idle = idle.into_iter().filter(|annotation| annotations.contains_key(*annotation));
        warnings.extend(idle.map(|annotation| format!("annotation {annotation} has no effect without {POLICIES}")));
    } else {
        let Ports { tcp, udp } = ports(service, annotations, &mut warnings)?;
        spec.policy_name = policies.join(",");
        (spec.tcp_ports, spec.udp_ports) = (tcp.into_iter().collect(), udp.into_iter().collect());
        spec.policy_source_groups = items(annotations.get(POLICY_SOURCE_GROUPS));
        spec.policy_friendly_name = friendly_names(annotations, &policies, &mut warnings);
    }
    Ok(Exposure::Exposed(Box::new(Exposed { spec, router, warnings })))
}

/// The DNS name of a Service in the cluster.
pub fn address(service: &Service, settings: &Settings) -> String {
    format!("{}.{}.{}", service.name_any(), service.namespace().unwrap_or_default(), settings.cluster_dns)
}

/// Whether openzro-operator made this resource for the Service: it has that operator's finalizer and the address of the Service. A resource that a
/// person wrote has no such finalizer.
pub fn is_of_original(resource: &OZResource, service: &Service, settings: &Settings) -> bool {
    let has_finalizer = resource.finalizers().iter().any(|finalizer| finalizer == ORIGINAL_FINALIZER);
    has_finalizer && resource.spec.address == address(service, settings)
}

fn is_exposed(annotations: &BTreeMap<String, String>) -> bool {
    let is_no = |value: &str| ["false", "no", "off", "0"].iter().any(|no| value.trim().eq_ignore_ascii_case(no));
    annotations.get(EXPOSE).is_some_and(|value| !is_no(value))
}

/// Returns the original's name where a rule permits it, or else one that no other namespace can have. Names of resources and groups are unique in
/// the account, and the original's name can belong to another namespace, too.
fn default_name(of_original: String, settings: &Settings, namespace: &str, name: &str) -> String {
    if settings.allows(namespace, &of_original) { of_original } else { format!("{namespace}/{name}") }
}

fn resource_name(
    annotations: &BTreeMap<String, String>,
    settings: &Settings,
    namespace: &str,
    name: &str,
) -> Result<String, InvalidAnnotation> {
    match annotations.get(RESOURCE_NAME).map(|value| value.trim()) {
        None => Ok(default_name(format!("{namespace}-{name}"), settings, namespace, name)),
        Some("") => Err(invalid(RESOURCE_NAME, "is empty; give a name, or remove it")),
        Some(name) => Ok(name.to_owned()),
    }
}

fn groups(
    annotations: &BTreeMap<String, String>,
    settings: &Settings,
    namespace: &str,
    name: &str,
) -> Result<Vec<String>, InvalidAnnotation> {
    let Some(value) = annotations.get(EXPOSED_GROUPS) else {
        let of_original = format!("{}-{namespace}-{name}", settings.cluster_name);
        return Ok(vec![default_name(of_original, settings, namespace, name)]);
    };
    let groups = items(Some(value));
    if groups.is_empty() {
        return Err(invalid(EXPOSED_GROUPS, "names no group; give display names separated by commas, or remove it"));
    }
    Ok(groups)
}

fn policies(annotations: &BTreeMap<String, String>) -> Result<Vec<String>, InvalidAnnotation> {
    let policies = items(annotations.get(POLICIES));
    match policies.iter().find(|policy| !is_object_name(policy)) {
        None => Ok(policies),
        Some(policy) => Err(invalid(
            POLICIES,
            format!("has {policy:?}, which cannot be the name of an OZPolicy; give names of OZPolicy objects"),
        )),
    }
}

fn ports(
    service: &Service,
    annotations: &BTreeMap<String, String>,
    warnings: &mut Vec<String>,
) -> Result<Ports, InvalidAnnotation> {
    let only = annotations.get(POLICY_PORTS).map(|value| port_numbers(value)).transpose()?;
    let protocol = annotations.get(POLICY_PROTOCOL).map(|value| value.trim().to_ascii_lowercase());
    if let Some(other) = protocol.as_deref().filter(|protocol| !["tcp", "udp"].contains(protocol)) {
        return Err(invalid(POLICY_PROTOCOL, format!("is {other:?}; write tcp or udp, or remove it for both")));
    }
    let mut ports = Ports::default();
    let declared = service.spec.as_ref().and_then(|spec| spec.ports.as_deref()).unwrap_or_default();
    for ServicePort { port, protocol: of_port, .. } in declared {
        let of_port = of_port.as_deref().unwrap_or("TCP").to_ascii_lowercase();
        let is_wanted = only.as_ref().is_none_or(|only| only.contains(port))
            && protocol.as_ref().is_none_or(|protocol| *protocol == of_port);
        match of_port.as_str() {
            "tcp" => ports.tcp.extend(is_wanted.then_some(*port)),
            "udp" => ports.udp.extend(is_wanted.then_some(*port)),
            other => warnings.push(format!("port {port} is left out: openZro's policies have no protocol {other}")),
        }
    }
    for port in only.iter().flatten().filter(|port| !ports.tcp.contains(port) && !ports.udp.contains(port)) {
        warnings
            .push(format!("annotation {POLICY_PORTS} has {port}, which is no port of the Service with that protocol"));
    }
    if ports.tcp.is_empty() && ports.udp.is_empty() {
        warnings.push(format!("no port of the Service is left for the policies of annotation {POLICIES}"));
    }
    Ok(ports)
}

fn port_numbers(value: &str) -> Result<BTreeSet<i32>, InvalidAnnotation> {
    let number = |text: &str| text.parse().ok().filter(|port| (1..=65_535).contains(port));
    let items = items(Some(&value.to_owned()));
    if items.is_empty() {
        return Err(invalid(POLICY_PORTS, "has no port; give numbers separated by commas, or remove it for all ports"));
    }
    let read = |text: &String| {
        let why = || format!("has {text:?}, which is no port; give numbers from 1 to 65535 separated by commas");
        number(text).ok_or_else(|| invalid(POLICY_PORTS, why()))
    };
    items.iter().map(read).collect()
}

fn friendly_names(
    annotations: &BTreeMap<String, String>,
    policies: &[String],
    warnings: &mut Vec<String>,
) -> BTreeMap<String, String> {
    let mut names = BTreeMap::new();
    for item in items(annotations.get(POLICY_NAMES)) {
        let pair = item.split_once(':').map(|(policy, name)| (policy.trim(), name.trim()));
        let is_pair = |(policy, name): &(&str, &str)| !policy.is_empty() && !name.is_empty() && !name.contains(':');
        let Some((policy, name)) = pair.filter(is_pair) else {
            warnings
                .push(format!("annotation {POLICY_NAMES} has {item:?}, which is left out; write policy:Display name"));
            continue;
        };
        if policies.iter().any(|known| known == policy) {
            names.insert(policy.to_owned(), name.to_owned());
        } else {
            warnings.push(format!(
                "annotation {POLICY_NAMES} has a name for policy {policy}, which annotation {POLICIES} lacks"
            ));
        }
    }
    names
}

/// The parts of a list that is separated by commas.
fn items(value: Option<&String>) -> Vec<String> {
    let parts = value.into_iter().flat_map(|value| value.split(','));
    parts.map(str::trim).filter(|part| !part.is_empty()).map(str::to_owned).collect()
}

fn invalid(annotation: &'static str, why: impl Into<String>) -> InvalidAnnotation {
    InvalidAnnotation { annotation, why: why.into() }
}

#[cfg(test)]
mod tests;
