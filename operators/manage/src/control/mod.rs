//! The controllers: one per kind, for both versions of the API the same code.

use sha2::{Digest, Sha256};

mod group;
mod network_resource;
mod pause;
mod policy;
mod references;
mod resource;
mod routing;
mod setup_key;

pub(crate) use group::{GroupObject, binding as group_binding};
pub use group::{group, oz_group};
pub use network_resource::network_resource;
pub(crate) use network_resource::{Wanted, bindings as network_resource_bindings, wanted as network_resource_items};
pub use policy::oz_policy;
pub(crate) use policy::plan as policy_plan;
pub use resource::oz_resource;
pub(crate) use resource::{Referenced, names_policies, plan as resource_plan};
pub use routing::{network_router, oz_routing_peer};
pub(crate) use routing::{peer_plan, router_plan};
pub use setup_key::{oz_setup_key, setup_key};
pub(crate) use setup_key::{plan_of_oz_setup_key, plan_of_setup_key, seconds};

/// A short digest of a text, for names. Eight digits of SHA-256.
fn short_digest(text: &str) -> String {
    let digest = Sha256::digest(text.as_bytes());
    digest.iter().take(4).fold(String::new(), |text, byte| format!("{text}{byte:02x}"))
}
