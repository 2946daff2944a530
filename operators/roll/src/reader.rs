//! Reading a source, once for all that use it, and forgetting its values at once.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use konverge_apply::error::class_of;
use konverge_core::{
    SecretValue,
    error::{Classify, ErrorClass},
};
use konverge_runtime::{Action, Priority, Reconciler, Request};
use kube::{Api, Client};

use crate::{
    digest::{Digester, KeyDigests},
    follow::VaultSource,
    messages,
    object::{SourceKind, SourceRef},
    parts::Parts,
    reasons,
    time::Time,
    wakeups::SOURCE,
};

/// Reads sources.
pub struct Reader {
    /// Reads those in the cluster.
    pub client: Client,
    /// The shared parts.
    pub parts: Arc<Parts>,
    /// Follows what is in Vault, if there is one.
    pub vault: Option<VaultSource>,
}

/// A source could not be read.
#[derive(Debug, thiserror::Error)]
#[error("cannot read {source_ref}: {source}")]
pub struct ReadError {
    source_ref: SourceRef,
    source: Box<kube::Error>,
}

impl Classify for ReadError {
    fn class(&self) -> ErrorClass {
        class_of(&self.source)
    }

    fn reason(&self) -> &'static str {
        if self.is_refused() { reasons::FORBIDDEN } else { "SourceUnreadable" }
    }
}

impl ReadError {
    fn is_refused(&self) -> bool {
        self.class() == ErrorClass::Refused
    }
}

impl Reconciler for Reader {
    type Key = SourceRef;
    type Error = ReadError;

    async fn reconcile(&self, request: Request<SourceRef>) -> Result<Action, ReadError> {
        let source = &request.key;
        if source.name.kind.is_in_vault() {
            if let Some(vault) = &self.vault {
                vault.attend(source);
            }
            return Ok(Action::Done);
        }
        let Parts { index, key, queues, source_announcer, metrics, .. } = &*self.parts;
        // It has no user any more.
        if !index.is_used(source) {
            return Ok(Action::Done);
        }
        let digester = key.digester().await;
        index.reading(source);
        let (version, content) = match Self::read(&self.client, source, &digester).await {
            Ok(Some((version, content))) => (version, Some(content)),
            Ok(None) => (None, None),
            Err(error) => return Err(self.failed(source, error)),
        };
        let learned = index.learn(source, version, content, Time::now());
        metrics.checked(learned.changed);
        if let Some(uid) = learned.ran_away {
            source_announcer.announce(source, source.reference(&uid), &messages::ran_away(&source.name));
        }
        queues.workloads.add_all(learned.users, Priority::High, SOURCE);
        Ok(Action::Done)
    }
}

impl Reader {
    /// A run of each user reports that the source may not be read.
    fn failed(&self, source: &SourceRef, error: kube::Error) -> ReadError {
        let error = ReadError { source_ref: source.clone(), source: Box::new(error) };
        self.parts.metrics.unread(error.reason());
        if error.is_refused() {
            let users = self.parts.index.refuse(source, messages::refused(&source.name, &*error.source));
            self.parts.queues.workloads.add_all(users, Priority::Normal, SOURCE);
        }
        error
    }

    /// Its version and the digests of its values; nothing if it is not there.
    pub(crate) async fn read(
        client: &Client,
        source: &SourceRef,
        digester: &Digester,
    ) -> Result<Option<(Option<String>, KeyDigests)>, kube::Error> {
        let (namespace, name) = (&source.namespace, &source.name.name);
        match source.name.kind {
            // It is followed, and not read here.
            SourceKind::Vault | SourceKind::VaultContent | SourceKind::VaultV1 => Ok(None),
            SourceKind::Secret => {
                let found = Api::<Secret>::namespaced(client.clone(), namespace).get_opt(name).await?;
                Ok(found.map(|secret| {
                    let data = secret.data.unwrap_or_default();
                    // Wiped when they are dropped.
                    let values: Vec<_> =
                        data.into_iter().map(|(key, value)| (key, SecretValue::new(value.0))).collect();
                    let content = values.iter().map(|(key, value)| (key.as_str(), value.expose()));
                    (secret.metadata.resource_version, digester.of_content(content))
                }))
            }
            SourceKind::ConfigMap => {
                let found = Api::<ConfigMap>::namespaced(client.clone(), namespace).get_opt(name).await?;
                Ok(found.map(|map| {
                    let (text, binary) = (map.data.unwrap_or_default(), map.binary_data.unwrap_or_default());
                    // The API server lets no key be in both.
                    let text = text.iter().map(|(key, value)| (key.as_str(), value.as_bytes()));
                    let binary = binary.iter().map(|(key, value)| (key.as_str(), value.0.as_slice()));
                    (map.metadata.resource_version, digester.of_content(text.chain(binary)))
                }))
            }
        }
    }
}
