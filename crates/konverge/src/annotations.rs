//! The annotations that every controller follows.

use kube::{Resource, ResourceExt};

/// Annotation: set to `true`, the object is left alone until it is taken away, except for its deletion.
pub const PAUSED: &str = "konverge.dev/paused";
/// Annotation: each new value makes the object be looked at at once.
pub const RECONCILE_AT: &str = "konverge.dev/reconcile-at";

/// Whether the object's annotation says that the operator must leave it alone.
pub(crate) fn is_paused<K: Resource>(object: &K) -> bool {
    object.annotations().get(PAUSED).is_some_and(|paused| paused == "true")
}
