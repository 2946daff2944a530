//! The references of pods for which a workload is *not* rolled. New pods need them all the same.
//!
//! The content of such a source is irrelevant, so the operator keeps nothing of it and follows none of its changes. It asks the API server once, just before a
//! rollout: for the metadata, or for the keys if the pods name some.

use std::fmt::Debug;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use konverge_core::error::{Classify, ErrorClass};
use konverge_workload::{Need, Usage};
use kube::{Api, Client, Resource, core::NamespaceResourceScope};
use serde::de::DeserializeOwned;

use crate::{
    digest::Digester,
    object::{SourceKind, SourceName, SourceRef},
    plan::Unsatisfied,
    reader::{ReadError, Reader},
    state::Snapshot,
};

/// Returns the sources that the pods of a workload need and that are not compared with its record.
pub fn unfollowed(snapshot: &Snapshot) -> impl Iterator<Item = (&SourceName, &Usage)> {
    let is_compared = |name: &SourceName| snapshot.workload.uses.current.get(name).is_some_and(|used| used.counts);
    let referenced = snapshot.observed().referenced.iter();
    referenced.filter(move |(name, usage)| {
        usage.need == Need::Required && !is_compared(name) && !snapshot.may_be_made_by_driver(name)
    })
}

/// The references that are not followed and do not let pods start, as far as they may be read.
#[derive(Debug, Default)]
pub struct Missing {
    /// The sources that do not exist or lack a key.
    pub unsatisfied: Vec<Unsatisfied>,
    /// The sources that may not be read. They count as satisfied, because a rollout would otherwise wait for ever.
    pub unreadable: Vec<SourceName>,
}

/// Returns those of [`unfollowed`] without which new pods could not start.
pub async fn missing(client: &Client, snapshot: &Snapshot, digester: &Digester) -> Result<Missing, ReadError> {
    let mut missing = Missing::default();
    for (name, usage) in unfollowed(snapshot) {
        let source = name.of(&snapshot.key.namespace);
        match lacks(client, &source, usage, digester).await {
            Ok(None) => {}
            Ok(Some(keys)) => missing.unsatisfied.push(Unsatisfied { source: name.clone(), keys, was_there: false }),
            Err(error) if error.class() == ErrorClass::Refused => missing.unreadable.push(name.clone()),
            Err(error) => return Err(error),
        }
    }
    Ok(missing)
}

/// Returns the keys that a source lacks: none of them if the source itself does not exist. Returns `None` if pods can start with it.
async fn lacks(
    client: &Client,
    source: &SourceRef,
    usage: &Usage,
    digester: &Digester,
) -> Result<Option<Vec<String>>, ReadError> {
    let failed = |error| ReadError::new(source, error);
    if usage.required.is_empty() {
        let exists = match source.name.kind {
            SourceKind::Secret => exists::<Secret>(client, source).await,
            SourceKind::ConfigMap => exists::<ConfigMap>(client, source).await,
            // Pods name none of these.
            SourceKind::Vault | SourceKind::VaultContent | SourceKind::VaultV1 => Ok(true),
        };
        return Ok((!exists.map_err(failed)?).then(Vec::new));
    }
    let Some((_, content)) = Reader::read(client, source, digester).await.map_err(failed)? else {
        return Ok(Some(Vec::new()));
    };
    let lacks: Vec<_> = usage.required.iter().filter(|key| !content.has(key)).cloned().collect();
    Ok((!lacks.is_empty()).then_some(lacks))
}

async fn exists<K>(client: &Client, source: &SourceRef) -> Result<bool, kube::Error>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    let api: Api<K> = Api::namespaced(client.clone(), &source.namespace);
    Ok(api.get_metadata_opt(&source.name.name).await?.is_some())
}
