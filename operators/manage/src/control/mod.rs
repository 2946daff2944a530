//! The controllers: one per kind, for both versions of the API the same code.

mod group;
mod network_resource;
mod policy;
mod references;
mod resource;
mod routing;
mod setup_key;

pub use group::{group, oz_group};
pub use network_resource::network_resource;
pub use policy::oz_policy;
pub use resource::oz_resource;
pub use routing::{network_router, oz_routing_peer};
pub use setup_key::{oz_setup_key, setup_key};
