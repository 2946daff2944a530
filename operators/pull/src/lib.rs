//! Pull: zopp environments into Kubernetes Secrets.

pub mod allow;
pub mod annotations;
pub mod plan;
