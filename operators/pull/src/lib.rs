//! Pull: zopp environments into Kubernetes Secrets.

pub mod allow;
pub mod annotations;
pub mod bindings;
pub mod config;
pub mod hub;
pub mod messages;
pub mod metrics;
pub mod plan;
pub mod reasons;
pub mod reconcile;
