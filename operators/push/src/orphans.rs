//! What had to be left behind in Vault, in a `ConfigMap` of the operator's namespace, until it can be cleared.

use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use konverge_core::error::in_one_line;
use kube::{
    Api, Client,
    api::{ObjectMeta, Patch, PatchParams, PostParams},
};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::{
    ledger::FIELD_MANAGER,
    metrics::Metrics,
    object::{Kind, ObjectRef},
    plan::Claim,
    reconcile::vault_deletion,
    record::Record,
    store::{Leaving, Store, Unfinished},
};

/// The name of the `ConfigMap`.
pub const CONFIG_MAP: &str = "vault-sync-operator-orphans";

/// Between two attempts to clear.
const EVERY: Duration = Duration::from_mins(1);

/// The paths of one object that is gone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Orphan {
    kind: String,
    namespace: String,
    name: String,
    record: Record,
}

/// What is left behind cannot be remembered.
#[derive(Debug, thiserror::Error)]
#[error("cannot note down in the ConfigMap {CONFIG_MAP} what is left in Vault: {0}")]
pub struct OrphansError(#[from] kube::Error);

impl OrphansError {
    /// Whether trying again is in vain: it is not allowed, as in a namespace that is being deleted, or there is no such namespace.
    pub fn is_final(&self) -> bool {
        matches!(&self.0, kube::Error::Api(status) if matches!(status.code, 403 | 404))
    }
}

/// The list of what is left behind.
#[derive(Clone)]
pub struct Orphans {
    api: Api<ConfigMap>,
}

impl Orphan {
    /// What is recorded of the object.
    pub fn new(key: &ObjectRef, record: Record) -> Self {
        Self { kind: key.kind.name().to_owned(), namespace: key.namespace.clone(), name: key.name.clone(), record }
    }

    /// What is recorded of it.
    pub fn record(&self) -> &Record {
        &self.record
    }

    /// Which object it was; nothing if there is no such kind.
    pub fn key(&self) -> Option<ObjectRef> {
        let kind = Kind::ALL.into_iter().find(|kind| kind.name() == self.kind)?;
        Some(ObjectRef { kind, namespace: self.namespace.clone(), name: self.name.clone() })
    }
}

impl Orphans {
    /// A list in this namespace, which is the operator's own.
    pub fn new(client: Client, namespace: &str) -> Self {
        Self { api: Api::namespaced(client, namespace) }
    }

    /// The name of the `ConfigMap`.
    pub fn name(&self) -> &'static str {
        CONFIG_MAP
    }

    /// Remembers one. It is there for sure when this returns.
    pub async fn add(&self, orphan: &Orphan) -> Result<(), OrphansError> {
        // An orphan is names, numbers and times, which are JSON.
        let text = serde_json::to_string(orphan).unwrap_or_default();
        let patch = json!({ "data": { &*orphan.record.uid: text } });
        let parameters = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        loop {
            match self.api.patch(CONFIG_MAP, &parameters, &Patch::Merge(&patch)).await {
                Err(kube::Error::Api(status)) if status.code == 404 => {}
                patched => return Ok(patched.map(drop)?),
            }
            let metadata = ObjectMeta { name: Some(CONFIG_MAP.to_owned()), ..ObjectMeta::default() };
            match self.api.create(&PostParams::default(), &ConfigMap { metadata, ..ConfigMap::default() }).await {
                // Somebody else made it at the same time.
                Err(kube::Error::Api(status)) if status.code == 409 => {}
                made => drop(made?),
            }
        }
    }

    /// Clears what can be cleared, and tells how many are left. An object of the same name that has taken its paths over keeps them.
    pub async fn clear(&self, store: &Store, metrics: &Metrics) -> Result<usize, OrphansError> {
        let known = self.api.get_opt(CONFIG_MAP).await?.and_then(|list| list.data).unwrap_or_default();
        let mut left = known.len();
        for (uid, text) in known {
            let cleared = match serde_json::from_str::<Orphan>(&text) {
                Ok(orphan) => clear_one(store, &orphan).await,
                // Nobody can do anything with it; it stays for people to see.
                Err(_) => false,
            };
            if cleared {
                let patch = json!({ "data": { uid: null } });
                let parameters =
                    PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
                self.api.patch(CONFIG_MAP, &parameters, &Patch::Merge(&patch)).await?;
                left -= 1;
            }
        }
        metrics.orphans(left);
        Ok(left)
    }
}

/// Clears what was left behind, for ever.
pub(crate) async fn keep_clearing(orphans: Orphans, store: Store, metrics: Metrics) {
    loop {
        if let Err(error) = orphans.clear(&store, &metrics).await {
            tracing::warn!("{}", in_one_line(&error));
        }
        tokio::time::sleep(EVERY).await;
    }
}

async fn clear_one(store: &Store, orphan: &Orphan) -> bool {
    let Some(key) = orphan.key() else { return false };
    let owner = store.owner(&key, &orphan.record.uid);
    let Some(deletion) = vault_deletion(orphan.record.deletion) else { return true };
    for (location, written) in orphan.record.locations() {
        let claim = if written.written { Claim::Written } else { Claim::Intended };
        let leaving =
            Leaving { location: &location, owner: &owner, written, claim, unfinished: Unfinished::Unknown, gone: true };
        if let Err(error) = store.clear(&leaving, deletion).await {
            tracing::debug!(object = %key, path = %location, "still left behind: {}", in_one_line(&error));
            return false;
        }
        tracing::info!(object = %key, path = %location, "cleared what was left behind");
    }
    true
}
