//! Secrets as they are read of the API server: which fit a selector, and what is in one.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Secret;
use konverge_apply::read::list_names;
use konverge_core::SecretValue;
use kube::{Api, Client, api::ListParams, core::Selector};

/// The data of a Secret.
pub type Data = BTreeMap<String, SecretValue>;

/// Returns the names of the Secrets in the namespace that match the selector.
pub(crate) async fn fitting(
    client: &Client,
    namespace: &str,
    selector: &Selector,
) -> Result<BTreeSet<String>, kube::Error> {
    let api = Api::<Secret>::namespaced(client.clone(), namespace);
    let names = list_names(&api, &ListParams::default().labels_from(selector)).await?;
    Ok(names.into_iter().map(|secret| secret.name).collect())
}

/// Takes the data out of a Secret. Each value moves from the decoder's buffer into one that is wiped.
pub(crate) fn values(secret: Secret) -> Data {
    let data = secret.data.unwrap_or_default().into_iter();
    data.map(|(key, value)| (key, SecretValue::new(value.0))).collect()
}
