//! The one write.

use std::collections::BTreeMap;

use konverge_apply::{ApplyError, Outcome, SecretApplier, SecretTarget};
use konverge_core::SecretValue;

use crate::bindings::{Binding, SecretRef};

/// Makes the keys ours and exact. Returns the resource version; nothing if the object is gone.
pub(super) async fn apply(
    applier: &SecretApplier,
    key: &SecretRef,
    binding: &Binding,
    resource_version: Option<&str>,
    desired: &BTreeMap<&str, &SecretValue>,
) -> Result<Option<String>, ApplyError> {
    let target = SecretTarget { namespace: &key.namespace, name: &key.name, uid: &binding.uid, resource_version };
    Ok(match applier.apply(target, &BTreeMap::new(), desired).await? {
        Outcome::Changed { resource_version } | Outcome::Unchanged { resource_version } => Some(resource_version),
        // It is gone, as far as anybody knows; what becomes of it begins another run.
        _ => None,
    })
}
