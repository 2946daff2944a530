//! The webhooks: sidecars for pods, and the protection of groups that are in use.
//!
//! Read in this order: [`sidecar`], the decision about a pod, pure; [`group`], the decision about the deletion of a group, pure; [`serve`], where the
//! API server asks for them.
//!
//! Names and paths are those of openzro-operator, so its webhook configurations keep working. Our own configuration differs: the webhook that must
//! answer reaches annotated pods only, so that an absent operator blocks no other pod.

pub mod group;
pub mod serve;
pub mod sidecar;

pub use serve::{Callers, webhooks};
pub use sidecar::{Injection, Neighbours, Unserved, inject};
