//! `zopp sync k8s` and `zopp diff k8s`: an environment into one Kubernetes Secret, once and by hand.
//!
//! ```text
//! zopp ──exec──▶ zopp-k8s = the verbs of zopp + ClusterVerbs
//!                  fetch and decrypt ─▶ compare (pure) ─▶ one server-side apply
//! ```
//! Read in this order: [`changes`] (the decisions), [`target`] (the Secret), [`ClusterVerbs`].
//!
//! # Guarantees
//! - Keys, labels and annotations of others stay. Keys that an earlier sync applied, and that the environment no longer has, are removed.
//! - A Secret without the label `app.kubernetes.io/managed-by=zopp` is written only with `--force`. So is a key of somebody else.
//! - A Secret that is in sync is not written. A Secret that was replaced meanwhile is not written either.
//! - An environment of which one value cannot be decrypted writes nothing.

pub mod changes;
pub mod target;
mod verbs;

pub use verbs::ClusterVerbs;
