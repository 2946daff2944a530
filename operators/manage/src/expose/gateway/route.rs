//! A route as the `NetworkResource` objects of its Services. Pure.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use konverge::{
    kube::{Resource, ResourceExt, core::DynamicObject},
    runtime::object::ObjectKey,
};
use serde_json::Value;

use super::{GROUP, Gateway};
use crate::api::v1alpha1::{CrossNamespaceReference, LocalReference, NetworkResource, NetworkResourceSpec};

/// The request of a route.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Lowered {
    /// Each parent that is one of our Gateways, by its place in `spec.parentRefs`.
    pub parents: BTreeMap<usize, ParentState>,
    /// The Services that become resources, by name.
    pub targets: BTreeMap<String, Target>,
    /// Whether a parent does not exist, so nothing may be released.
    pub is_uncertain: bool,
    /// Parts of the route that have no effect, each with the reason.
    pub unsupported: Vec<String>,
}

/// The state of a route at one of its parents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ParentState {
    /// Its Services are resources of this `NetworkRouter`.
    Accepted(ObjectKey),
    /// The Gateway is not ready, or something that the route needs is missing.
    Waiting(String),
    /// The route cannot be served there.
    Refused(String),
}

/// A Service that becomes a resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// The `NetworkRouter` whose network has the resource.
    pub router: ObjectKey,
    /// The uid of the Service.
    pub service_uid: String,
}

/// The fate of a `NetworkResource` that a route no longer needs.
#[derive(Debug, Clone, PartialEq)]
pub enum Release {
    /// Other routes use it: it stays, without this owner.
    Keep(Box<NetworkResource>),
    /// No other route uses it.
    Delete,
}

/// Returns what a route asks for. `gateway` tells the state of a Gateway, and `service` the uid of a Service in the namespace of the route.
pub fn lower(
    route: &DynamicObject,
    gateway: impl Fn(&ObjectKey) -> Gateway,
    service: impl Fn(&str) -> Option<String>,
) -> Lowered {
    let mut lowered = Lowered { unsupported: unsupported(route), ..Lowered::default() };
    let backends = backends(route);
    let namespace = route.namespace().unwrap_or_default();
    for (place, parent) in route.data["spec"]["parentRefs"].as_array().into_iter().flatten().enumerate() {
        let Some(key) = gateway_key(parent, &namespace) else { continue };
        let state = match gateway(&key) {
            Gateway::NotOurs => continue,
            Gateway::Missing => {
                lowered.is_uncertain = true;
                continue;
            }
            Gateway::Invalid(why) | Gateway::Waiting(why) => {
                ParentState::Waiting(format!("Gateway {key} is not ready: {why}"))
            }
            Gateway::Programmed(router) => lowered.attach(&router, &backends, &service),
        };
        lowered.parents.insert(place, state);
    }
    lowered
}

impl Lowered {
    /// Whether resources of the route that are not among the targets are no longer needed. While a parent waits or is missing, they stay.
    pub fn is_complete(&self) -> bool {
        !self.is_uncertain && self.parents.values().all(|state| matches!(state, ParentState::Accepted(_)))
    }

    /// Adds the targets of one parent.
    fn attach(
        &mut self,
        router: &ObjectKey,
        backends: &Result<BTreeSet<String>, String>,
        service: impl Fn(&str) -> Option<String>,
    ) -> ParentState {
        let backends = match backends {
            Ok(backends) => backends,
            Err(why) => return ParentState::Refused(why.clone()),
        };
        let other = backends.iter().filter_map(|name| Some((name, self.targets.get(name)?)));
        if let Some((name, target)) = other.into_iter().find(|(_, target)| target.router != *router) {
            return ParentState::Refused(format!(
                "Service {name} is a resource of NetworkRouter {} already, by another parent; use a route for each router",
                target.router
            ));
        }
        let mut missing = Vec::new();
        for name in backends {
            match service(name) {
                Some(service_uid) => {
                    self.targets.insert(name.clone(), Target { router: router.clone(), service_uid });
                }
                None => missing.push(name.as_str()),
            }
        }
        if missing.is_empty() {
            return ParentState::Accepted(router.clone());
        }
        ParentState::Waiting(format!(
            "the namespace has no Service {}; create it, or correct backendRefs",
            missing.join(", ")
        ))
    }
}

/// The Gateway that a parent reference names; `None` if it names something else.
fn gateway_key(parent: &Value, namespace: &str) -> Option<ObjectKey> {
    let is = |field: &str, default: &str| parent[field].as_str().unwrap_or(default) == default;
    let name = parent["name"].as_str()?;
    let namespace = parent["namespace"].as_str().unwrap_or(namespace);
    (is("group", GROUP) && is("kind", "Gateway")).then(|| ObjectKey::namespaced(namespace, name))
}

/// The Services behind a route. The error names a backend that cannot be one.
fn backends(route: &DynamicObject) -> Result<BTreeSet<String>, String> {
    let namespace = route.namespace().unwrap_or_default();
    let rules = route.data["spec"]["rules"].as_array().into_iter().flatten();
    let backends = rules.flat_map(|rule| rule["backendRefs"].as_array().into_iter().flatten());
    backends
        .map(|backend| {
            let name = backend["name"].as_str().unwrap_or_default();
            let (group, kind) = (backend["group"].as_str().unwrap_or(""), backend["kind"].as_str().unwrap_or("Service"));
            if (group, kind) != ("", "Service") {
                return Err(format!("backend {name} is a {kind} of group {group:?}; only Services can be resources"));
            }
            match backend["namespace"].as_str() {
                Some(other) if other != namespace => {
                    Err(format!("backend {name} is in namespace {other}; only Services of the route's own namespace can be resources"))
                }
                _ => Ok(name.to_owned()),
            }
        })
        .collect()
}

/// The parts of a route that have no effect: resources are reached by address, and the server has no reverse proxy.
fn unsupported(route: &DynamicObject) -> Vec<String> {
    let spec = &route.data["spec"];
    let is_given = |value: &Value| value.as_array().is_some_and(|items| !items.is_empty());
    let mut unsupported = Vec::new();
    if is_given(&spec["hostnames"]) {
        unsupported.push(
            "spec.hostnames: the openZro server has no reverse proxy; peers reach the Service by its DNS record"
                .to_owned(),
        );
    }
    let rules: Vec<&Value> = spec["rules"].as_array().into_iter().flatten().collect();
    for field in ["filters", "timeouts", "retry", "sessionPersistence"] {
        if rules.iter().any(|rule| !rule[field].is_null()) {
            unsupported.push(format!("spec.rules.{field}: traffic reaches the Service unchanged"));
        }
    }
    // The API server fills in a match of all paths.
    let is_selective = |rule: &&Value| {
        rule["matches"].as_array().into_iter().flatten().any(|choice| {
            let is_all_paths =
                choice["path"].is_null() || (choice["path"]["value"] == "/" && choice["path"]["type"] != "Exact");
            !is_all_paths || ["headers", "queryParams", "method"].iter().any(|field| !choice[*field].is_null())
        })
    };
    if rules.iter().any(is_selective) {
        unsupported.push("spec.rules.matches: all traffic reaches the Service".to_owned());
    }
    unsupported
}

/// Returns the `NetworkResource` of a target as it should be, or `None` if it is so.
///
/// The error says why the name cannot be used. A resource that a person made is not changed.
pub fn take(
    route: &DynamicObject,
    service: &str,
    target: &Target,
    existing: Option<&NetworkResource>,
) -> Result<Option<NetworkResource>, String> {
    let namespace = route.namespace().unwrap_or_default();
    let Target { router, service_uid } = target;
    let router_ref =
        CrossNamespaceReference { name: router.name.clone(), namespace: router.namespace.clone().unwrap_or_default() };
    let mut desired = match existing {
        None => {
            let mut resource = NetworkResource::new(service, NetworkResourceSpec::default());
            resource.metadata.namespace = Some(namespace);
            resource.spec.network_router_ref = router_ref;
            resource
        }
        Some(existing) if !existing.owner_references().iter().any(is_route) => {
            return Err(format!(
                "somebody else made NetworkResource {namespace}/{service}; delete it, or use another Service"
            ));
        }
        Some(existing) if existing.spec.network_router_ref != router_ref => {
            let CrossNamespaceReference { name, namespace: of } = &existing.spec.network_router_ref;
            return Err(format!(
                "NetworkResource {namespace}/{service} belongs to NetworkRouter {of}/{name} by another route"
            ));
        }
        Some(existing) => existing.clone(),
    };
    desired.spec.service_ref = LocalReference { name: service.to_owned() };
    // A Service that was made anew has another uid.
    desired.owner_references_mut().retain(|owner| owner.kind != "Service" || owner.uid == *service_uid);
    let controller = owner("v1", "Service", service, service_uid, true);
    let types = route.types.clone().unwrap_or_default();
    let uid = route.uid().unwrap_or_default();
    for owner in [controller, owner(&types.api_version, &types.kind, &route.name_any(), &uid, false)] {
        if !desired.owner_references().iter().any(|known| known.uid == owner.uid) {
            desired.owner_references_mut().push(owner);
        }
    }
    Ok((existing != Some(&desired)).then_some(desired))
}

/// Returns the fate of a resource that the route with this uid no longer needs, or `None` if the route does not own it.
///
/// Nothing here needs openZro, so a deletion also completes if its server lacks reverse proxies.
pub fn release(route_uid: &str, resource: &NetworkResource) -> Option<Release> {
    let owners = resource.owner_references();
    if resource.meta().deletion_timestamp.is_some() || !owners.iter().any(|owner| owner.uid == route_uid) {
        return None;
    }
    if !owners.iter().any(|owner| is_route(owner) && owner.uid != route_uid) {
        return Some(Release::Delete);
    }
    let mut kept = resource.clone();
    kept.owner_references_mut().retain(|owner| owner.uid != route_uid);
    Some(Release::Keep(Box::new(kept)))
}

fn is_route(owner: &OwnerReference) -> bool {
    owner.api_version.split('/').next() == Some(GROUP) && ["HTTPRoute", "TCPRoute"].contains(&owner.kind.as_str())
}

fn owner(api_version: &str, kind: &str, name: &str, uid: &str, is_controller: bool) -> OwnerReference {
    OwnerReference {
        api_version: api_version.to_owned(),
        kind: kind.to_owned(),
        name: name.to_owned(),
        uid: uid.to_owned(),
        controller: is_controller.then_some(true),
        block_owner_deletion: None,
    }
}
