//! Pull: zopp environments into Kubernetes Secrets.

pub mod allow;
pub mod annotations;
pub mod config;
pub mod hub;
pub mod messages;
pub mod metrics;
pub mod plan;
pub mod reasons;
