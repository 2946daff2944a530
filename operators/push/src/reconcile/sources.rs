//! Reading the Secrets that an object names.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Secret;
use konverge_core::SecretValue;
use kube::{
    Api, Client, Error,
    api::{GetParams, ListParams},
    core::Selector,
};

use super::PushError;
use crate::{bindings::Bindings, desired::Sources, object::SecretRef};

/// Secrets in one answer.
const PAGE: u32 = 500;

/// What was read.
pub(super) struct Read {
    /// The data; nothing where there is no such Secret.
    pub(super) data: Sources,
    /// In which version.
    pub(super) versions: BTreeMap<String, Option<String>>,
}

/// The names of the Secrets that fit a selector.
pub(super) async fn fitting(
    client: &Client,
    namespace: &str,
    selector: &Selector,
) -> Result<BTreeSet<String>, PushError> {
    let api = Api::<Secret>::namespaced(client.clone(), namespace);
    let mut page = ListParams::default().labels_from(selector).limit(PAGE);
    let mut names = BTreeSet::new();
    loop {
        let listed = api.list_metadata(&page).await.map_err(|source| PushError::Read {
            what: format!("which secrets of {namespace} are {selector}"),
            source: Box::new(source),
        })?;
        names.extend(listed.items.into_iter().filter_map(|secret| secret.metadata.name));
        match listed.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => page = page.continue_token(&token),
            None => return Ok(names),
        }
    }
}

/// Reads each Secret once. That one is not there is an answer; that one cannot be read is an error.
///
/// One that a watch has shown is read in that version or a later one, which the API server answers from its memory; without that it
/// would ask etcd.
pub(super) async fn read(
    client: &Client,
    bindings: &Bindings,
    namespace: &str,
    names: &BTreeSet<&str>,
) -> Result<Read, PushError> {
    let api = Api::<Secret>::namespaced(client.clone(), namespace);
    let mut read = Read { data: Sources::new(), versions: BTreeMap::new() };
    for name in names {
        let secret = SecretRef { namespace: namespace.to_owned(), name: (*name).to_owned() };
        let not_older = GetParams { resource_version: bindings.version(&secret) };
        let found = match api.get_with(name, &not_older).await {
            Err(Error::Api(status)) if status.is_not_found() => None,
            answer => Some(answer.map_err(|source| PushError::Read {
                what: format!("secret {namespace}/{name}"),
                source: Box::new(source),
            })?),
        };
        let version = found.as_ref().and_then(|secret| secret.metadata.resource_version.clone());
        read.versions.insert((*name).to_owned(), version);
        // Each value moves from the decoder's buffer into one that is wiped.
        let data = found.map(|secret| {
            let data = secret.data.unwrap_or_default().into_iter();
            data.map(|(key, value)| (key, SecretValue::new(value.0))).collect()
        });
        read.data.insert((*name).to_owned(), data);
    }
    Ok(read)
}
