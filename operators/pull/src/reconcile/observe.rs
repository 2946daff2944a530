//! Reading a Secret that is bound, once, when what it holds is not known.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Secret;
use konverge_apply::{Outcome, SecretApplier, field_ownership};
use konverge_core::SecretValue;
use kube::{
    Api, Client,
    core::{ObjectMeta, PartialObjectMeta, PartialObjectMetaExt},
};

use super::PullError;
use crate::{
    annotations::declaration,
    bindings::{Binding, SecretRef},
    plan::Contents,
};

/// A Secret as it was read.
pub(super) struct Read {
    pub(super) contents: Contents,
    pub(super) resource_version: String,
}

/// Reads the Secret; nothing if it is gone, if another one has its name, or if it no longer asks for this environment. The
/// watch will show that too.
///
/// Keys that the original operator wrote by merge patches are taken over before, so that those that are no longer upstream can go.
pub(super) async fn read(
    client: &Client,
    applier: &SecretApplier,
    key: &SecretRef,
    binding: &Binding,
) -> Result<Option<Read>, PullError> {
    let api = Api::<Secret>::namespaced(client.clone(), &key.namespace);
    let found = api.get_opt(&key.name).await;
    let found = found.map_err(|source| PullError::Read { secret: key.clone(), source: Box::new(source) })?;
    let Some(Secret { data, immutable, metadata, .. }) = found else { return Ok(None) };
    // Each value moves from the decoder's buffer into one that is wiped.
    let data: BTreeMap<String, SecretValue> =
        data.unwrap_or_default().into_iter().map(|(name, value)| (name, SecretValue::new(value.0))).collect();
    let declared = declaration(metadata.annotations.as_ref().unwrap_or(&BTreeMap::new()));
    if metadata.uid.as_deref() != Some(&binding.uid) || !binding.source.is_declared_by(&declared) {
        return Ok(None);
    }
    let keys = field_ownership::data_keys(metadata.managed_fields.as_deref().unwrap_or_default(), applier.manager());
    let owned = keys.all();
    let mut resource_version = metadata.resource_version.clone().unwrap_or_default();
    if !keys.updated.is_empty() {
        match applier.take_over(&partial(metadata), applier.manager()).await? {
            Outcome::Changed { resource_version: now } | Outcome::Unchanged { resource_version: now } => {
                resource_version = now;
            }
            // It is gone, as far as anybody knows; what becomes of it begins another run.
            _ => return Ok(None),
        }
    }
    let contents = Contents { data, owned, immutable: immutable.unwrap_or_default() };
    Ok(Some(Read { contents, resource_version }))
}

fn partial(metadata: ObjectMeta) -> PartialObjectMeta<Secret> {
    metadata.into_response_partial()
}
