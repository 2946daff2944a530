//! `OZRoutingPeer` and `NetworkRouter`: a network, and the pods that route to it.

pub(super) mod children;
mod exemption;
mod merge;
mod network_router;
mod oz_routing_peer;
mod removal;
mod workload;

pub(super) use network_router::child_key;
pub use network_router::network_router;
pub(crate) use network_router::plan as router_plan;
pub(super) use oz_routing_peer::current_network;
pub use oz_routing_peer::oz_routing_peer;
pub(crate) use oz_routing_peer::plan as peer_plan;
