//! Pull: zopp environments into Kubernetes Secrets.

pub mod allow;
pub mod annotations;
pub mod hub;
pub mod messages;
pub mod metrics;
pub mod plan;
pub mod reasons;
