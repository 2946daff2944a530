//! Reading the Secrets that an object names.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client, Error, api::GetParams, core::Selector};

use super::PushError;
use crate::{ahead::ReadAhead, bindings::Bindings, desired::Sources, object::SecretRef, secrets};

/// What was read.
pub(super) struct Read {
    /// The data; nothing where there is no such Secret.
    pub(super) data: Sources,
    /// In which version.
    pub(super) versions: BTreeMap<String, Option<String>>,
}

impl Read {
    /// A Secret that was read in the one version has got the other from us, and the same content.
    pub(super) fn rename(&mut self, name: &str, from: &str, to: &str) {
        if let Some(version) = self.versions.get_mut(name).filter(|version| version.as_deref() == Some(from)) {
            *version = Some(to.to_owned());
        }
    }
}

/// The names of the Secrets that fit a selector.
pub(super) async fn fitting(
    client: &Client,
    namespace: &str,
    selector: &Selector,
) -> Result<BTreeSet<String>, PushError> {
    secrets::fitting(client, namespace, selector).await.map_err(|source| PushError::Read {
        what: format!("which secrets of {namespace} are {selector}"),
        source: Box::new(source),
    })
}

/// Reads each Secret once. That one is not there is an answer; that one cannot be read is an error.
///
/// One that a watch has shown is taken from what was read ahead, or else read in that version or a later one, which the API server answers
/// from its memory; without that it would ask etcd.
pub(super) async fn read(
    client: &Client,
    ahead: &ReadAhead,
    bindings: &Bindings,
    namespace: &str,
    names: &BTreeSet<&str>,
) -> Result<Read, PushError> {
    let api = Api::<Secret>::namespaced(client.clone(), namespace);
    let mut read = Read { data: Sources::new(), versions: BTreeMap::new() };
    for name in names {
        let secret = SecretRef { namespace: namespace.to_owned(), name: (*name).to_owned() };
        let seen = bindings.version(&secret);
        if let Some(version) = &seen
            && let Some(data) = ahead.fetch(&secret, version).await
        {
            read.versions.insert((*name).to_owned(), seen);
            read.data.insert((*name).to_owned(), Some(data));
            continue;
        }
        let not_older = GetParams { resource_version: seen };
        let found = match api.get_with(name, &not_older).await {
            Err(Error::Api(status)) if status.is_not_found() => None,
            answer => Some(answer.map_err(|source| PushError::Read {
                what: format!("secret {namespace}/{name}"),
                source: Box::new(source),
            })?),
        };
        let version = found.as_ref().and_then(|secret| secret.metadata.resource_version.clone());
        read.versions.insert((*name).to_owned(), version);
        read.data.insert((*name).to_owned(), found.map(secrets::values));
    }
    Ok(read)
}
