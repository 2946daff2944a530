//! `OZRoutingPeer` and `NetworkRouter`: a network, and the pods that route to it.

mod children;
mod exemption;
mod merge;
mod network_router;
mod oz_routing_peer;
mod workload;

pub use network_router::network_router;
pub(super) use oz_routing_peer::current_network;
pub use oz_routing_peer::oz_routing_peer;
