//! Orphans: the paths that had to be left behind in Vault, in a `ConfigMap` of the operator's namespace, until it can clear them.

mod shares;

use std::{
    collections::{BTreeMap, BTreeSet, HashSet, btree_map::Entry},
    sync::Arc,
    time::Duration,
};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use konverge_apply::{
    error::class_of,
    events::{EventSink, Notice},
};
use konverge_core::{
    backoff::Backoff,
    deletion_guard::Stopped,
    error::{ErrorClass, in_one_line},
};
use konverge_runtime::{Priority, Queue, watch::WatchHealth};
use konverge_vault::{Deletion, Location, Owner};
use kube::{
    Api, Client,
    api::{ObjectMeta, Patch, PatchParams, PostParams},
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::{
    sync::Notify,
    time::{Instant, timeout},
};

use self::shares::{ShareExceeded, Shares};
use crate::{
    annotations::{APPROVE_DELETIONS, DELETIONS_STOPPED, SEARCH_REFUSED},
    bindings::{Bindings, Heritage, Share, key_of},
    deletions::Deletions,
    ledger::FIELD_MANAGER,
    messages,
    metrics::Metrics,
    object::{Kind, ObjectRef},
    plan::Claim,
    reasons,
    record::{Record, Written},
    store::{Cleanup, ClearError, Cleared, Store, Unfinished},
    watch::WAITED,
};

/// The name of the `ConfigMap`.
pub const CONFIG_MAP: &str = "vault-sync-operator-orphans";

/// The pause between two attempts to clear.
const EVERY: Duration = Duration::from_mins(1);

/// The delays after a failed read or write of the list, or a path that could not be cleared, for example because the reply was lost.
const RETRY_DELAYS: Backoff = Backoff { base: Duration::from_secs(5), factor: 2.0, cap: EVERY };

/// The delay between two checks for an approval of waiting deletions.
const APPROVED: Duration = Duration::from_secs(10);

/// The delay between two checks whether another object requests content that is to be cleared later.
const HEIRS: Duration = Duration::from_secs(1);

/// Returns the name under which a deleted object claims paths. No object's name contains a space.
fn gone(key: &ObjectRef) -> ObjectRef {
    ObjectRef { name: format!("{} (gone)", key.name), ..key.clone() }
}

/// The paths of one deleted object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Orphan {
    kind: String,
    namespace: String,
    name: String,
    record: Record,
    /// The time until which the content stays for an object that requests the same path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    due: Option<Timestamp>,
}

/// Returns `true` if the grace period of the orphan in this text is not over.
pub(crate) fn is_early(text: &str, now: Timestamp) -> bool {
    serde_json::from_str::<Orphan>(text).is_ok_and(|orphan| !orphan.is_due(now))
}

/// Returns the paths of the orphan in this text and their due time, if its object was in this namespace.
pub(crate) fn left_sentence(text: &str, namespace: Option<&str>) -> Option<String> {
    let Orphan { kind, namespace: of, name, record, due } = serde_json::from_str(text).ok()?;
    let paths = record.paths.into_keys().collect::<Vec<_>>().join(", ");
    let until = due.map(|due| format!(", cleared at {due:.0} at the earliest")).unwrap_or_default();
    namespace.is_none_or(|namespace| namespace == of).then(|| format!("{paths} (of {of}/{kind}/{name}{until})"))
}

/// The list of orphans cannot be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot note down in the ConfigMap {CONFIG_MAP} what is left in Vault: {0}")]
pub enum OrphansError {
    /// A request to the API server failed.
    Api(#[from] kube::Error),
    /// The orphans of the namespace would take up more than their share of the list.
    ShareExceeded(#[from] ShareExceeded),
}

impl OrphansError {
    /// Whether the object must not wait for another attempt: the API server refuses the write, as in a namespace that is being deleted or
    /// when the list is full, there is no such namespace, or the namespace of the object has used up its share of the list.
    pub fn is_final(&self) -> bool {
        matches!(self, Self::Api(kube::Error::Api(status)) if status.code == 404) || self.class() == ErrorClass::Refused
    }

    /// Returns the class of the error.
    pub(crate) fn class(&self) -> ErrorClass {
        match self {
            Self::Api(error) => class_of(error),
            Self::ShareExceeded(_) => ErrorClass::Refused,
        }
    }

    /// Returns `true` if another client has changed the list since it was read.
    fn is_conflict(&self) -> bool {
        matches!(self, Self::Api(kube::Error::Api(status)) if status.code == 409)
    }
}

/// The list of what is left behind.
#[derive(Clone)]
pub struct Orphans {
    api: Api<ConfigMap>,
    shares: Arc<Shares>,
    /// Notifies [`Clearing`] of a new orphan, and of stopped deletions.
    pub(crate) added: Arc<Notify>,
}

impl Orphan {
    /// Creates an orphan from the record of an object.
    pub fn new(key: &ObjectRef, record: Record) -> Self {
        Self {
            kind: key.kind.name().to_owned(),
            namespace: key.namespace.clone(),
            name: key.name.clone(),
            record,
            due: None,
        }
    }

    /// Sets the time until which the content stays.
    #[must_use]
    pub fn with_due(self, due: Option<Timestamp>) -> Self {
        Self { due, ..self }
    }

    /// Adds a path that was written for the object.
    pub(crate) fn insert(&mut self, path: String, written: Written) {
        self.record.paths.insert(path, written);
    }

    /// Adds the missing paths of another orphan of the same object, and returns them. All paths then stay as long as those of the other.
    fn absorb(&mut self, other: &Self) -> Vec<String> {
        let mut added = Vec::new();
        for (path, written) in &other.record.paths {
            if let Entry::Vacant(vacant) = self.record.paths.entry(path.clone()) {
                vacant.insert(written.clone());
                added.push(path.clone());
            }
        }
        if !added.is_empty() {
            self.due = self.due.max(other.due);
        }
        added
    }

    /// Returns `true` if the content may be cleared.
    fn is_due(&self, now: Timestamp) -> bool {
        self.due.is_none_or(|due| due <= now)
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
        Self { api: Api::namespaced(client, namespace), shares: Arc::default(), added: Arc::default() }
    }

    /// Adds an orphan. It is stored for sure when this returns.
    pub async fn add(&self, orphan: &Orphan) -> Result<(), OrphansError> {
        // An orphan is names, numbers and times, which are JSON.
        let text = serde_json::to_string(orphan).unwrap_or_default();
        let reserved = self.shares.reserve(&orphan.namespace, &orphan.record.uid, text.len())?;
        self.patch(&json!({ "data": { &*orphan.record.uid: text } })).await?;
        reserved.keep();
        self.added.notify_one();
        Ok(())
    }

    /// Adds content that was found without an object, and returns its new paths. Keeps the known paths of the object.
    pub(crate) async fn find(&self, orphan: &Orphan) -> Result<Vec<String>, OrphansError> {
        let uid = &orphan.record.uid;
        loop {
            let ConfigMap { data, metadata, .. } = self.list().await?;
            let known = data.unwrap_or_default().remove(uid);
            let (added, whole) = match known.map(|text| serde_json::from_str::<Orphan>(&text)) {
                None => (orphan.record.paths.keys().cloned().collect(), orphan.clone()),
                Some(Ok(mut known)) => (known.absorb(orphan), known),
                // The program cannot read it, so it stays for people to see.
                Some(Err(_)) => return Ok(Vec::new()),
            };
            if added.is_empty() {
                return Ok(added);
            }
            let text = serde_json::to_string(&whole).unwrap_or_default();
            let reserved = self.shares.reserve(&whole.namespace, uid, text.len())?;
            let patch = json!({ "metadata": { "resourceVersion": metadata.resource_version }, "data": { uid: text } });
            match self.patch(&patch).await {
                Err(error) if error.is_conflict() => {}
                patched => {
                    patched?;
                    reserved.keep();
                    self.added.notify_one();
                    return Ok(added);
                }
            }
        }
    }

    /// Returns the list, or an empty one if there is none.
    async fn list(&self) -> Result<ConfigMap, OrphansError> {
        Ok(self.api.get_opt(CONFIG_MAP).await?.unwrap_or_default())
    }

    /// Annotates the list with the reason why deletions are stopped, or removes the annotation. Returns the list after that.
    async fn tell(&self, stopped: Option<&Stopped>) -> Result<ConfigMap, OrphansError> {
        let why = stopped.map(Stopped::to_string);
        self.patch(&json!({ "metadata": { "annotations": { DELETIONS_STOPPED: why } } })).await
    }

    /// Takes an approval from the list, if the list still has this version. Returns the version after that.
    async fn take_approval(&self, version: Option<String>) -> Result<Option<String>, OrphansError> {
        let annotations = json!({ APPROVE_DELETIONS: null });
        let list =
            self.patch(&json!({ "metadata": { "resourceVersion": version, "annotations": annotations } })).await?;
        Ok(list.metadata.resource_version)
    }

    /// Annotates the list with the reason why the search was refused, or removes the annotation. Writes only a change.
    pub(crate) async fn tell_search(&self, refused: Option<&str>) -> Result<(), OrphansError> {
        let annotations = self.list().await?.metadata.annotations.unwrap_or_default();
        if annotations.get(SEARCH_REFUSED).map(String::as_str) != refused {
            self.patch(&json!({ "metadata": { "annotations": { SEARCH_REFUSED: refused } } })).await?;
        }
        Ok(())
    }

    /// Patches the list, and creates it if there is none. Returns the list after that.
    async fn patch(&self, patch: &Value) -> Result<ConfigMap, OrphansError> {
        let parameters = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        loop {
            match self.api.patch(CONFIG_MAP, &parameters, &Patch::Merge(patch)).await {
                Err(kube::Error::Api(status)) if status.code == 404 => {}
                patched => return Ok(patched?),
            }
            let metadata = ObjectMeta { name: Some(CONFIG_MAP.to_owned()), ..ObjectMeta::default() };
            match self.api.create(&PostParams::default(), &ConfigMap { metadata, ..ConfigMap::default() }).await {
                // Another client made it at the same time.
                Err(kube::Error::Api(status)) if status.code == 409 => {}
                made => drop(made?),
            }
        }
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
    deletions: Deletions,
    heirs: Heirs,
    metrics: Metrics,
    /// Cleared paths that the list still has, by uid and path. They are not cleared again, because another object may have them by now.
    cleared: BTreeSet<(String, String)>,
    /// Whether the claims of all objects are known.
    is_complete: bool,
    /// The orphans that were not due at the last check.
    early: Vec<Orphan>,
    /// Whether a path could not be cleared at the last check, for example because the reply was lost.
    has_failed: bool,
    events: EventSink,
    /// The namespaces whose stopped deletions an event has reported.
    told: Vec<String>,
}

impl Clearing {
    /// Creates the task that clears orphans.
    pub fn new(
        orphans: Orphans,
        store: Store,
        bindings: Arc<Bindings>,
        queue: Queue<ObjectRef>,
        metrics: Metrics,
        deletions: Deletions,
        events: EventSink,
    ) -> Self {
        Self {
            orphans,
            deletions,
            heirs: Heirs::new(store, bindings, queue),
            metrics,
            cleared: BTreeSet::new(),
            is_complete: true,
            early: Vec::new(),
            has_failed: false,
            events,
            told: Vec::new(),
        }
    }

    /// Clears orphans until it is dropped, once the claims of all objects are known. Before that, only hands content over to known objects.
    pub(crate) async fn run(mut self, kinds: Vec<(Kind, WatchHealth)>) {
        let (begun, bindings) = (Instant::now(), Arc::clone(&self.heirs.bindings));
        // The program is not ready without the kinds of the original. The cluster may lack the others, or forbid them for a while; those count as
        // empty.
        let is_known = |(kind, health): &(Kind, WatchHealth)| {
            bindings.are_listed(&[*kind]) || !kind.is_original() && (health.is_missing() || begun.elapsed() >= EVERY)
        };
        let are_listed = || kinds.iter().all(is_known);
        let mut failures = 0;
        loop {
            self.is_complete = are_listed();
            let cleared = self.clear().await;
            if let Err(error) = &cleared {
                tracing::warn!("{}", in_one_line(error));
            }
            failures = if cleared.is_err() || self.has_failed { failures + 1 } else { 0 };
            // In memory, until there is something to do or a minute is over. Sooner if deletions wait for that.
            let is_urgent = self.deletions.stopped().is_some() || !self.deletions.has_begun();
            let pause = if is_urgent { APPROVED } else { EVERY };
            let retry = if failures > 0 { RETRY_DELAYS.delay(failures, 1.0) } else { pause };
            if timeout(pause.min(retry), self.changed(&are_listed)).await.is_ok() {
                // The pauses after older failures do not delay what is new.
                failures = 0;
            }
        }
    }

    /// Waits until an orphan is added, or an early one becomes due or gets an heir.
    async fn changed(&self, are_listed: &(impl Fn() -> bool + Sync)) {
        loop {
            if self.early.is_empty() && self.is_complete {
                return self.orphans.added.notified().await;
            }
            if timeout(HEIRS, self.orphans.added.notified()).await.is_ok() {
                return;
            }
            let (now, is_complete) = (Timestamp::now(), are_listed());
            let is_ready = |orphan: &Orphan| is_complete && orphan.is_due(now) || self.has_heir(orphan);
            if is_complete && !self.is_complete || self.early.iter().any(is_ready) {
                return;
            }
        }
    }

    /// Returns `true` if another object requests a path that is not handed over yet.
    fn has_heir(&self, orphan: &Orphan) -> bool {
        let is_new = |location: &Location| !self.cleared.contains(&(orphan.record.uid.clone(), location.to_string()));
        orphan
            .record
            .locations()
            .any(|(location, written)| is_new(&location) && self.is_inherited(orphan, &location.to_string(), written))
    }

    /// Clears the orphans that can be cleared. Returns the number of the others.
    pub async fn clear(&mut self) -> Result<usize, OrphansError> {
        let mut objects = self.heirs.bindings.uids();
        let listed = self.orphans.list().await;
        // An object that goes meanwhile is in the list by now.
        objects.extend(self.heirs.bindings.uids());
        let ConfigMap { data, metadata, .. } = match listed {
            // It may not be read, as with the role of the original. Then there is none.
            Err(error) if error.is_final() => {
                self.count(&BTreeMap::new(), &objects, false);
                return Err(error);
            }
            listed => listed?,
        };
        let (known, mut version) = (data.unwrap_or_default(), metadata.resource_version);
        let annotations = metadata.annotations.unwrap_or_default();
        let (is_approved, told) = (annotations.contains_key(APPROVE_DELETIONS), annotations.get(DELETIONS_STOPPED));
        self.count(&known, &objects, told.is_some());
        self.cleared.retain(|(uid, _)| known.contains_key(uid));
        if is_approved && self.deletions.has_begun() {
            // Once it is gone, nobody counts it again. If it cannot be taken, the list has changed and is read again.
            version = match self.orphans.take_approval(version).await {
                Err(error) if error.is_conflict() => {
                    self.orphans.added.notify_one();
                    return Ok(known.len());
                }
                taken => taken?,
            };
            let approved = self.deletions.approve();
            tracing::info!("{approved} deletions are approved");
        }
        if self.deletions.has_begun() {
            self.tell(told).await?;
        }
        let mut left = known.len();
        self.early.clear();
        self.has_failed = false;
        for (uid, text) in known {
            let cleared = match serde_json::from_str::<Orphan>(&text) {
                Ok(orphan) => {
                    let cleared = self.clear_one(&uid, &orphan).await.unwrap_or_else(|error| {
                        tracing::debug!(orphan = text, "still left behind: {}", in_one_line(&error));
                        self.has_failed = true;
                        false
                    });
                    let is_over = cleared || self.is_complete && orphan.is_due(Timestamp::now());
                    if !is_over {
                        self.early.push(orphan);
                    }
                    cleared
                }
                // The program cannot read it, so it stays for people to see.
                Err(_) => false,
            };
            if cleared {
                version = match self.orphans.forget(&uid, version).await {
                    // The list may have changed, so it is read again at once. The rest of the list may have heirs.
                    Err(error) if error.is_conflict() => {
                        self.orphans.added.notify_one();
                        break;
                    }
                    forgotten => forgotten?,
                };
                self.cleared.retain(|(known, _)| *known != uid);
                left -= 1;
            }
        }
        self.metrics.orphans(left.saturating_sub(self.early.len()));
        Ok(left)
    }

    /// Counts what is in the list, and forgets what was requested for objects that are neither there nor known.
    fn count(&mut self, known: &BTreeMap<String, String>, objects: &HashSet<String>, was_stopped: bool) {
        let mut paths = 0_usize;
        let mut entries = Vec::new();
        for (uid, text) in known {
            let Ok(orphan) = serde_json::from_str::<Orphan>(text) else { continue };
            entries.push((orphan.namespace.clone(), uid.clone(), text.len()));
            paths = paths.saturating_add(orphan.record.paths.len());
            let Some(key) = orphan.key() else { continue };
            for (path, written) in &orphan.record.paths {
                if !self.cleared.contains(&(uid.clone(), path.clone())) {
                    let is_inherited = self.heirs.is_inherited(&key, path, written);
                    self.deletions.leave(&key, &orphan.record, (path, written), is_inherited);
                }
            }
        }
        self.orphans.shares.list(entries);
        self.deletions.orphaned(paths);
        self.deletions.forget_unless(|uid| objects.contains(uid) || known.contains_key(uid));
        if self.is_complete {
            self.deletions.begin(was_stopped);
        }
    }

    /// Tells on the list whether deletions are stopped, if it says something else. Each namespace that is stopped is news, and becomes an event about
    /// the list: if only deleted objects wait, there is no other object that an event could be about.
    async fn tell(&mut self, told: Option<&String>) -> Result<(), OrphansError> {
        let stopped = self.deletions.stopped();
        self.deletions.is_told(stopped.is_some());
        let is_new = stopped.as_ref().is_some_and(|stopped| stopped.is_news(&self.told));
        if !is_new && told == stopped.as_ref().map(Stopped::to_string).as_ref() {
            return Ok(());
        }
        let list = self.orphans.tell(stopped.as_ref()).await?;
        if let Some(stopped) = stopped.as_ref().filter(|_| is_new) {
            let note = messages::stopped(stopped);
            tracing::warn!("{note}");
            self.events.send(Notice::warning(&list, reasons::DELETIONS_STOPPED, "Reconcile", note));
        }
        self.told = stopped.map(|stopped| stopped.namespaces).unwrap_or_default();
        Ok(())
    }

    /// Whether another object gets the path.
    fn is_inherited(&self, orphan: &Orphan, path: &str, written: &Written) -> bool {
        orphan.key().is_some_and(|key| self.heirs.is_inherited(&key, path, written))
    }

    /// Clears the paths of an orphan that may be cleared now. Returns `true` if none is left.
    async fn clear_one(&mut self, uid: &str, orphan: &Orphan) -> Result<bool, ClearError> {
        let Some(key) = orphan.key() else { return Ok(false) };
        let owner = self.heirs.store.owner(&key, &orphan.record.uid).await?;
        let deletion = orphan.record.deletion.in_vault();
        let is_due = self.is_complete && orphan.is_due(Timestamp::now());
        let mut is_over = true;
        for (location, written) in orphan.record.locations() {
            let done = (uid.to_owned(), location.to_string());
            if self.cleared.contains(&done) {
                continue;
            }
            let heritage = Some(self.heirs.heritage(&key, &done.1, written)).filter(|it| it.is_complete(written));
            if heritage.is_none() && (!is_due || self.deletions.check(&key, uid, &done.1, true).is_err()) {
                is_over = false;
                continue;
            }
            let unfinished = Unfinished::Unknown;
            let what = "what was left behind";
            let path = GonePath { key: &key, owner: &owner, location: &location, written, unfinished, heritage, what };
            let cleared = self.heirs.clear(path, deletion).await?;
            self.deletions.settle(&key, uid, &done.1, cleared == Cleared::Deleted);
            self.cleared.insert(done);
        }
        Ok(is_over)
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
    /// The objects that get all of the path. Without it, those that request it by then get theirs, and the rest is deleted.
    pub(crate) heritage: Option<Heritage>,
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

    /// Returns which other objects request what was written for the object at this path.
    fn heritage(&self, key: &ObjectRef, path: &str, written: &Written) -> Heritage {
        self.bindings.heirs(&gone(key), path, written)
    }

    /// Returns `true` if other objects request all that was written for the object at this path.
    pub(crate) fn is_inherited(&self, key: &ObjectRef, path: &str, written: &Written) -> bool {
        self.heritage(key, path, written).is_complete(written)
    }

    /// Clears the path. No object takes it over meanwhile, not even one with the same name. Then wakes the objects that waited for it.
    pub(crate) async fn clear(&self, path_of: GonePath<'_>, deletion: Option<Deletion>) -> Result<Cleared, ClearError> {
        let GonePath { key, owner, location, written, unfinished, heritage, what } = path_of;
        let Some(location) = &self.store.recorded(location).await? else { return Ok(Cleared::Nothing) };
        let claimant = gone(key);
        let path = location.to_string();
        let heritage = heritage.unwrap_or_else(|| self.heritage(key, &path, written));
        let heirs = self.store.heirs(&heritage).await?;
        let heir = self.bindings.claim(&claimant, &path, Share::of(written)).err();
        let mut claimed = vec![path.clone()];
        let mut own = written.clone();
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
            None => (Claim::recorded(&own), unfinished),
        };
        let cleanup = Cleanup { location, owner, written: &own, claim, unfinished, gone: true, heirs: &heirs };
        let cleared = self.store.clear(&cleanup, deletion).await;
        match cleared {
            Ok(Cleared::Deleted) => tracing::info!(object = %key, path = %location, "cleared {what}"),
            Ok(Cleared::Unknown) => {
                let unknown = messages::unknown(&[location.to_string()]);
                tracing::warn!(object = %key, path = %location, "{}", unknown.text);
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
