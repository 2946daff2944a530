//! Reading the Secrets that an object names.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Error, api::GetParams, core::Selector};

use super::{PushError, Pusher};
use crate::{
    desired::Sources,
    object::SecretRef,
    secrets::{self, Data},
};

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

impl Pusher {
    /// The names of the Secrets that fit a selector.
    pub(super) async fn fitting(&self, namespace: &str, selector: &Selector) -> Result<BTreeSet<String>, PushError> {
        secrets::fitting(&self.client, namespace, selector).await.map_err(|source| PushError::Read {
            what: format!("which secrets of {namespace} are {selector}"),
            source: Box::new(source),
        })
    }

    /// Reads each Secret once. That one is not there is an answer; that one cannot be read is an error.
    pub(super) async fn read(&self, namespace: &str, names: &BTreeSet<&str>) -> Result<Read, PushError> {
        let mut read = Read { data: Sources::new(), versions: BTreeMap::new() };
        for name in names {
            let secret = SecretRef { namespace: namespace.to_owned(), name: (*name).to_owned() };
            let (version, data) = self.read_one(&secret).await?;
            read.versions.insert(secret.name.clone(), version);
            read.data.insert(secret.name, data);
        }
        Ok(read)
    }

    /// The version and what is in it, if it is there.
    ///
    /// One that a watch has shown is taken from what was read ahead, or else read in that version or a later one, which the API server answers
    /// from its memory; without that it would ask etcd.
    async fn read_one(&self, secret: &SecretRef) -> Result<(Option<String>, Option<Data>), PushError> {
        let seen = self.bindings.version(secret);
        if let Some(version) = &seen
            && let Some(data) = self.ahead.fetch(secret, version).await
        {
            return Ok((seen, Some(data)));
        }
        let SecretRef { namespace, name } = secret;
        let api = Api::<Secret>::namespaced(self.client.clone(), namespace);
        let not_older = GetParams { resource_version: seen };
        let found = match api.get_with(name, &not_older).await {
            Err(Error::Api(status)) if status.is_not_found() => return Ok((None, None)),
            answer => answer.map_err(|source| PushError::Read {
                what: format!("secret {namespace}/{name}"),
                source: Box::new(source),
            })?,
        };
        Ok((found.metadata.resource_version.clone(), Some(secrets::values(found))))
    }
}
