//! Workloads of Kubernetes: the Secrets and `ConfigMaps` that their pods use, and the progress of their rollouts.
//!
//! Begin with [`WorkloadKind`], the list of kinds, and [`Workload`], an object of any of them. Its [`References`] name the objects that its pods use; a [`SecretProviderClass`]
//! stands behind one such use. A [`Rollout`] says how far its pods follow its template, and a [`SelectorSpec`] which workloads a custom resource means.
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
pub use rollout::{Deadline, Progress, Rollout};
pub use secret_provider_class::SecretProviderClass;
pub use selector::{RequirementSpec, SelectorSpec};
pub use workload::{TemplateOf, Workload};
