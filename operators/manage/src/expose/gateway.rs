//! The Gateway API: classes, Gateways and routes as `NetworkResource` objects.
//!
//! The decisions are here and in `route`. They are pure. [`controllers`] carries them out.
//!
//! A Gateway stands for a `NetworkRouter`, and each Service behind a route of the Gateway becomes a resource of that router's network.
//!
//! The objects are read as JSON. Only a few of their fields matter, and the definitions belong to another project.

pub mod controllers;
mod route;

use konverge::{
    kube::{Resource, ResourceExt, core::DynamicObject},
    runtime::object::ObjectKey,
};
use serde_json::Value;

pub use route::{Lowered, ParentState, Release, Target, lower, release, take};

use crate::api::v1alpha1::NetworkRouter;

/// The group of the Gateway API.
pub const GROUP: &str = "gateway.networking.k8s.io";
/// The name of this controller in classes.
pub const CONTROLLER: &str = "gateway.openzro.io/controller";
/// The classes that openzro-operator knows. Both mean the same.
pub const CLASSES: [&str; 2] = ["openzro-private", "openzro-public"];
/// The protocol of the listener that names a `NetworkRouter`.
pub const ROUTER_PROTOCOL: &str = "gateway.openzro.io/NetworkRouter";

/// The state of a `GatewayClass`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Class {
    /// Another controller serves it.
    NotOurs,
    /// It is served.
    Accepted,
    /// It cannot be served, for this reason.
    Invalid(String),
}

/// The state of a `Gateway`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Gateway {
    /// It or its class does not exist, so nobody can tell whether it is ours.
    Missing,
    /// Its class is not ours.
    NotOurs,
    /// It cannot be served, for this reason.
    Invalid(String),
    /// It is accepted and waits, for this reason.
    Waiting(String),
    /// Routes can use it; their resources belong to this `NetworkRouter`.
    Programmed(ObjectKey),
}

/// Returns whether a class is ours and can be served.
pub fn class(class: &DynamicObject) -> Class {
    let (name, spec) = (class.name_any(), &class.data["spec"]);
    if spec["controllerName"] != CONTROLLER {
        return Class::NotOurs;
    }
    if !CLASSES.contains(&name.as_str()) {
        return Class::Invalid(format!("the name {name} is not one of {}; rename the class", CLASSES.join(" and ")));
    }
    if !spec["parametersRef"].is_null() {
        return Class::Invalid("spec.parametersRef is not supported; remove it".to_owned());
    }
    Class::Accepted
}

/// Returns the state of a Gateway. `class` is the state of its class, `None` if that is missing. `router` finds a `NetworkRouter`.
pub fn gateway<R: AsRef<NetworkRouter>>(
    gateway: &DynamicObject,
    class: Option<&Class>,
    router: impl Fn(&ObjectKey) -> Option<R>,
) -> Gateway {
    match class {
        None => return Gateway::Missing,
        Some(Class::NotOurs) => return Gateway::NotOurs,
        Some(Class::Invalid(why)) => {
            let name = gateway.data["spec"]["gatewayClassName"].as_str().unwrap_or_default();
            return Gateway::Waiting(format!("GatewayClass {name} is not accepted: {why}"));
        }
        Some(Class::Accepted) => {}
    }
    let key = match router_of(gateway) {
        Ok(key) => key,
        Err(why) => return Gateway::Invalid(why),
    };
    let Some(found) = router(&key) else {
        return Gateway::Waiting(format!("NetworkRouter {key}, which the listener names, does not exist; create it"));
    };
    match not_ready(found.as_ref()) {
        Some(why) => Gateway::Waiting(format!("NetworkRouter {key} is not ready: {why}")),
        None => Gateway::Programmed(key),
    }
}

/// The `NetworkRouter` that a Gateway's only listener names.
fn router_of(gateway: &DynamicObject) -> Result<ObjectKey, String> {
    let listeners: Vec<&Value> = gateway.data["spec"]["listeners"].as_array().into_iter().flatten().collect();
    let [listener] = listeners[..] else {
        return Err(format!("spec.listeners has {} listeners; a Gateway of openZro has exactly one", listeners.len()));
    };
    if listener["protocol"] != ROUTER_PROTOCOL {
        return Err(format!("the protocol of the listener is {}; write {ROUTER_PROTOCOL}", listener["protocol"]));
    }
    let name = listener["name"].as_str().unwrap_or_default();
    Ok(ObjectKey::namespaced(gateway.namespace().unwrap_or_default(), name))
}

/// Returns why a router is not ready, or `None` if it is.
fn not_ready(router: &NetworkRouter) -> Option<String> {
    if router.meta().deletion_timestamp.is_some() {
        return Some("it is being deleted".to_owned());
    }
    let conditions = router.status.as_ref().map(|status| &status.standard.conditions);
    match conditions.and_then(|conditions| conditions.get("Ready")) {
        Some(ready) if ready.status == "True" => None,
        Some(ready) => Some(if ready.message.is_empty() { ready.reason.clone() } else { ready.message.clone() }),
        None => Some("the operator has not looked at it yet".to_owned()),
    }
}

#[cfg(test)]
mod tests;
