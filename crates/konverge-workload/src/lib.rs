//! Workloads as far as an operator around them needs to know: which Secrets and `ConfigMaps` their pods use, and how their rollout stands.
//!
//! Read in this order: [`WorkloadKind`], which kinds there are; [`Workload`], one of any of them; [`References`], what its pods use, and
//! [`SecretProviderClass`], what stands behind one such use; [`Rollout`], how far its pods are what its template says; [`SelectorSpec`], which of them a custom resource means.
//!
//! Pod templates can be large and hold values in clear text. Only names, keys, counts and annotations of a workload are decoded: other fields need no
//! memory and cannot leak.

mod kind;
mod pod;
mod references;
mod rollout;
mod secret_provider_class;
mod selector;
mod workload;

pub use kind::WorkloadKind;
pub use references::{Keys, Need, References, Usage};
pub use rollout::{Progress, Rollout};
pub use secret_provider_class::SecretProviderClass;
pub use selector::{RequirementSpec, SelectorSpec};
pub use workload::{TemplateOf, Workload};
