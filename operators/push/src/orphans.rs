//! Orphans: the paths that had to be left behind in Vault, in a `ConfigMap` of the operator's namespace, until it can clear them.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use k8s_openapi::api::core::v1::ConfigMap;
use konverge_apply::error::class_of;
use konverge_core::error::{ErrorClass, in_one_line};
use konverge_runtime::{Priority, Queue};
use konverge_vault::{Deletion, Location, Owner};
use kube::{
    Api, Client,
    api::{ObjectMeta, Patch, PatchParams, PostParams},
};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::time::{sleep, timeout};

use crate::{
    bindings::{Bindings, Share, key_of},
    ledger::FIELD_MANAGER,
    messages,
    metrics::Metrics,
    object::{Kind, ObjectRef},
    plan::Claim,
    record::{Record, Written},
    store::{Cleanup, ClearError, Cleared, Store, Unfinished},
    watch::WAITED,
};

/// The name of the `ConfigMap`.
pub const CONFIG_MAP: &str = "vault-sync-operator-orphans";

/// The pause between two attempts to clear.
const EVERY: Duration = Duration::from_mins(1);

/// The pause between two looks whether the watches have listed all objects.
const LOOK: Duration = Duration::from_millis(100);

/// The paths of one object that is gone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Orphan {
    kind: String,
    namespace: String,
    name: String,
    record: Record,
}

/// The list of orphans cannot be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot note down in the ConfigMap {CONFIG_MAP} what is left in Vault: {0}")]
pub struct OrphansError(#[from] pub(crate) kube::Error);

impl OrphansError {
    /// Whether the object must not wait for another attempt: the API server refuses the write, as in a namespace that is being deleted or
    /// when the list is full, or there is no such namespace.
    pub fn is_final(&self) -> bool {
        class_of(&self.0) == ErrorClass::Refused || matches!(&self.0, kube::Error::Api(status) if status.code == 404)
    }

    /// Returns whether another client has changed the list meanwhile.
    fn is_conflict(&self) -> bool {
        matches!(&self.0, kube::Error::Api(status) if status.code == 409)
    }
}

/// The list of what is left behind.
#[derive(Clone)]
pub struct Orphans {
    api: Api<ConfigMap>,
}

impl Orphan {
    /// Makes an orphan of the record of an object.
    pub fn new(key: &ObjectRef, record: Record) -> Self {
        Self { kind: key.kind.name().to_owned(), namespace: key.namespace.clone(), name: key.name.clone(), record }
    }

    /// The record of the object.
    pub fn record(&self) -> &Record {
        &self.record
    }

    /// Returns the object. `None` if this version does not know its kind.
    pub fn key(&self) -> Option<ObjectRef> {
        let kind = Kind::named(&self.kind)?;
        Some(ObjectRef { kind, namespace: self.namespace.clone(), name: self.name.clone() })
    }
}

impl Orphans {
    /// A list in this namespace, which is the operator's own.
    pub fn new(client: Client, namespace: &str) -> Self {
        Self { api: Api::namespaced(client, namespace) }
    }

    /// Adds an orphan. It is stored for sure when this returns.
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
                // Another client made it at the same time.
                Err(kube::Error::Api(status)) if status.code == 409 => {}
                made => drop(made?),
            }
        }
    }

    /// The orphans by the uids of the objects, and the version of the list.
    async fn list(&self) -> Result<(BTreeMap<String, String>, Option<String>), OrphansError> {
        let list = self.api.get_opt(CONFIG_MAP).await?.unwrap_or_default();
        Ok((list.data.unwrap_or_default(), list.metadata.resource_version))
    }

    /// Removes an orphan, if the list still has this version. Returns the version after that.
    async fn forget(&self, uid: &str, version: Option<String>) -> Result<Option<String>, OrphansError> {
        let patch = json!({ "metadata": { "resourceVersion": version }, "data": { uid: null } });
        let parameters = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        Ok(self.api.patch(CONFIG_MAP, &parameters, &Patch::Merge(&patch)).await?.metadata.resource_version)
    }
}

/// Clears orphans.
pub struct Clearing {
    orphans: Orphans,
    heirs: Heirs,
    metrics: Metrics,
    /// Cleared paths that the list still has, by uid and path. They are not cleared again, because another object may have them by now.
    cleared: BTreeSet<(String, String)>,
}

impl Clearing {
    /// Nothing is cleared yet.
    pub fn new(
        orphans: Orphans,
        store: Store,
        bindings: Arc<Bindings>,
        queue: Queue<ObjectRef>,
        metrics: Metrics,
    ) -> Self {
        Self { orphans, heirs: Heirs::new(store, bindings, queue), metrics, cleared: BTreeSet::new() }
    }

    /// Clears orphans for ever, once the claims of all objects are known.
    pub(crate) async fn run(mut self, kinds: Vec<Kind>) {
        // The program is not ready without these kinds. The cluster may lack or forbid the others; those count as empty.
        let (sure, others): (Vec<Kind>, Vec<Kind>) = kinds.into_iter().partition(|kind| kind.is_original());
        self.are_listed(&sure).await;
        if timeout(EVERY, self.are_listed(&others)).await.is_err() {
            tracing::debug!("clearing what was left behind, though not every kind of object was seen");
        }
        loop {
            if let Err(error) = self.clear().await {
                tracing::warn!("{}", in_one_line(&error));
            }
            sleep(EVERY).await;
        }
    }

    async fn are_listed(&self, kinds: &[Kind]) {
        while !self.heirs.bindings.are_listed(kinds) {
            sleep(LOOK).await;
        }
    }

    /// Clears the orphans that can be cleared. Returns how many are left.
    pub async fn clear(&mut self) -> Result<usize, OrphansError> {
        let (known, mut version) = self.orphans.list().await?;
        let mut left = known.len();
        for (uid, text) in known {
            let cleared = match serde_json::from_str::<Orphan>(&text) {
                Ok(orphan) => self.clear_one(&uid, &orphan).await,
                // The program cannot read it, so it stays for people to see.
                Err(_) => false,
            };
            if cleared {
                version = match self.orphans.forget(&uid, version).await {
                    // It may say more by now; the next look shows it.
                    Err(error) if error.is_conflict() => break,
                    forgotten => forgotten?,
                };
                self.cleared.retain(|(known, _)| *known != uid);
                left -= 1;
            }
        }
        self.metrics.orphans(left);
        Ok(left)
    }

    async fn clear_one(&mut self, uid: &str, orphan: &Orphan) -> bool {
        let Some(key) = orphan.key() else { return false };
        let owner = match self.heirs.store.owner(&key, &orphan.record.uid).await {
            Ok(owner) => owner,
            Err(error) => {
                tracing::debug!(object = %key, "still left behind: {}", in_one_line(&error));
                return false;
            }
        };
        let deletion = orphan.record.deletion.in_vault();
        for (location, written) in orphan.record.locations() {
            let done = (uid.to_owned(), location.to_string());
            if self.cleared.contains(&done) {
                continue;
            }
            let unfinished = Unfinished::Unknown;
            let what = "what was left behind";
            let path = GonePath { key: &key, owner: &owner, location: &location, written, unfinished, what };
            if let Err(error) = self.heirs.clear(&path, deletion).await {
                tracing::debug!(object = %key, path = %location, "still left behind: {}", in_one_line(&error));
                return false;
            }
            self.cleared.insert(done);
        }
        true
    }
}

/// A path of an object that is gone.
pub(crate) struct GonePath<'a> {
    pub(crate) key: &'a ObjectRef,
    pub(crate) owner: &'a Owner,
    pub(crate) location: &'a Location,
    pub(crate) written: &'a Written,
    /// The content that an unfinished write would have made.
    pub(crate) unfinished: Unfinished<'a>,
    /// The content, for the log.
    pub(crate) what: &'static str,
}

/// Clears paths of objects that are gone, without harm to an heir: an object that has the path by now.
///
/// Content with the mark of such an object is its own. Content without a mark is its own only as long as no object has the path. Where there
/// are no marks, the content of another program looks the same.
pub(crate) struct Heirs {
    store: Store,
    bindings: Arc<Bindings>,
    queue: Queue<ObjectRef>,
}

impl Heirs {
    pub(crate) fn new(store: Store, bindings: Arc<Bindings>, queue: Queue<ObjectRef>) -> Self {
        Self { store, bindings, queue }
    }

    /// Clears the path. No object takes it over meanwhile, not even one with the same name. Then wakes the objects that waited for it.
    pub(crate) async fn clear(&self, gone: &GonePath<'_>, deletion: Option<Deletion>) -> Result<Cleared, ClearError> {
        let GonePath { key, owner, location, written, unfinished, what } = gone;
        let Some(location) = &self.store.recorded(location).await? else { return Ok(Cleared::Nothing) };
        // No object's name has a blank in it.
        let claimant = ObjectRef { name: format!("{} (gone)", key.name), ..(*key).clone() };
        let path = location.to_string();
        let heir = self.bindings.claim(&claimant, &path, Share::of(written)).err();
        let mut claimed = vec![path.clone()];
        let mut own = (*written).clone();
        for name in written.keys.iter().flatten().chain(&written.pending) {
            let share = key_of(&path, name);
            if self.bindings.claim(&claimant, &share, Share::Whole).is_err() {
                own.keys.as_mut().map(|keys| keys.remove(name));
                own.pending.remove(name);
            }
            claimed.push(share);
        }
        // If an heir has the path, only the mark tells which content is not the heir's.
        let (claim, unfinished) = match heir {
            Some(_) => (Claim::Intended, Unfinished::Unknown),
            None => (Claim::recorded(&own), *unfinished),
        };
        let cleanup = Cleanup { location, owner, written: &own, claim, unfinished, gone: true };
        let cleared = self.store.clear(&cleanup, deletion).await;
        match cleared {
            Ok(Cleared::Deleted) => tracing::info!(object = %key, path = %gone.location, "cleared {what}"),
            Ok(Cleared::Unknown) => {
                let unknown = messages::unknown(&[gone.location.to_string()]);
                tracing::warn!(object = %key, path = %gone.location, "{}", unknown.text);
            }
            Ok(Cleared::Nothing) | Err(_) => {}
        }
        if let Some(heir) = &heir {
            // It may have looked, or even written and marked, while this deletion was under way.
            self.bindings.doubt(heir);
        }
        let waiting = claimed.iter().flat_map(|claimed| self.bindings.release(&claimant, claimed));
        // Perhaps only the mark kept the heir from it.
        self.queue.add_all(waiting.chain(heir).collect::<BTreeSet<_>>(), Priority::Normal, WAITED);
        cleared
    }
}
