//! The custom resources of the group `openzro.io`, as openzro-operator defined them.
//!
//! Read in this order: [`v1`] and [`v1alpha1`], the kinds of the two versions; [`status`], the part of each status that all kinds share;
//! [`definitions`], what a cluster needs.
//!
//! # Guarantees
//!
//! - The definitions accept each object that those of openzro-operator accept, and the manifests of its documentation.
//!
//! - An object that openzro-operator stored can be decoded: `null` and missing fields count as empty, and conditions may lack a time.
//!
//! - Parts of a pod (volumes, tolerations, an environment) are kept as JSON, so fields of newer versions of Kubernetes survive, and one bad field
//!   does not make the object undecodable. [`embedded()`] decodes them.

mod columns;
mod embedded;
mod kind;
mod schema;
pub mod status;
pub mod v1;
pub mod v1alpha1;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use konverge::kube::CustomResourceExt;

pub use embedded::{InvalidField, embedded};

/// The group of all kinds.
pub const GROUP: &str = "openzro.io";

/// Returns the definitions of all kinds.
pub fn definitions() -> Vec<CustomResourceDefinition> {
    vec![
        v1::OZGroup::crd(),
        v1::OZPolicy::crd(),
        v1::OZResource::crd(),
        v1::OZRoutingPeer::crd(),
        v1::OZSetupKey::crd(),
        v1alpha1::Group::crd(),
        v1alpha1::NetworkResource::crd(),
        v1alpha1::NetworkRouter::crd(),
        v1alpha1::SetupKey::crd(),
        v1alpha1::SidecarProfile::crd(),
    ]
}

#[cfg(test)]
mod tests;
