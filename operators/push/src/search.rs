//! The search for content in Vault that no object requests, because its object changed or went while the operator did not see it.
//!
//! An object that was replaced without its annotations keeps neither record nor finalizer, so nothing in the cluster tells of its content. The mark in
//! Vault does. What is found goes to the list of [orphans](crate::orphans) and is cleared as they are, after the grace period.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use jiff::Timestamp;
use konverge_core::{backoff::Backoff, error::in_one_line};
use konverge_runtime::watch::WatchHealth;
use konverge_vault::{KvVersion, Location, Mount, SecretPath, VaultError};
use kube::{Api, Client, core::DynamicObject};
use tokio::{
    sync::Notify,
    time::{sleep, timeout},
};

use crate::{
    annotations::PATH,
    bindings::Bindings,
    config::PushOptions,
    messages,
    metrics::Metrics,
    object::{Kind, ObjectRef},
    orphans::{Orphan, Orphans, OrphansError},
    record::{Record, Written},
    spec::DeletionPolicy,
    store::{Store, object_of},
};

/// The time between two searches.
const SEARCH_INTERVAL: Duration = Duration::from_hours(6);

/// The time between a loss and the search that it causes, because losses come in groups.
const LOSS_DELAY: Duration = Duration::from_secs(10);

/// The delays between searches that fail one after the other.
const RETRY_DELAYS: Backoff = Backoff { base: Duration::from_mins(1), factor: 2.0, cap: SEARCH_INTERVAL };

/// The time between two checks whether all objects are known.
const LISTED_INTERVAL: Duration = Duration::from_secs(1);

/// The delay before each request, so that a search of many paths leaves Vault to others.
const REQUEST_DELAY: Duration = Duration::from_millis(5);

/// The engine that is searched if there is no rule, also when no object is left that names it.
const USUAL_ENGINE: &str = "secret/data";

/// Objects that are gone, or have a successor of their name, although nobody saw their deletion. Clones share the list.
#[derive(Clone, Default)]
pub struct Lost(Arc<(Mutex<Vec<Orphan>>, Notify)>);

impl Lost {
    /// Adds an object with the record that was known of it.
    pub(crate) fn add(&self, key: &ObjectRef, record: Record) {
        self.lock().push(Orphan::new(key, record));
        self.0.1.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Orphan>> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn added(&self) {
        self.0.1.notified().await;
    }
}

/// Searches for content that no object requests.
pub(crate) struct Search {
    pub(crate) store: Store,
    pub(crate) bindings: Arc<Bindings>,
    pub(crate) orphans: Orphans,
    pub(crate) policy: Arc<PushOptions>,
    pub(crate) metrics: Metrics,
    pub(crate) client: Client,
    pub(crate) lost: Lost,
}

/// A search was not complete.
#[derive(Debug, thiserror::Error)]
enum SearchError {
    #[error(transparent)]
    Vault(#[from] VaultError),
    #[error("cannot read from the API server: {0}")]
    Kubernetes(#[from] kube::Error),
    #[error(transparent)]
    Orphans(#[from] OrphansError),
}

impl SearchError {
    /// Returns whether only a person can mend it: the token may not list, or the role may not write the list of orphans.
    fn is_refusal(&self) -> bool {
        match self {
            Self::Vault(error) => error.is_refusal() || matches!(error, VaultError::Path(_)),
            Self::Kubernetes(_) => false,
            Self::Orphans(error) => error.is_final(),
        }
    }
}

/// The marks that a search has seen.
#[derive(Default)]
struct Found {
    /// What is left, by the uid of the object.
    orphans: BTreeMap<String, Orphan>,
    /// The first refusal. The search goes on beside it.
    refused: Option<SearchError>,
}

impl Found {
    /// Notes a refusal, so that the search can go on. Returns every other error.
    fn tolerate<T>(&mut self, result: Result<T, VaultError>) -> Result<Option<T>, SearchError> {
        match result.map_err(SearchError::from) {
            Ok(value) => Ok(Some(value)),
            Err(error) if error.is_refusal() => {
                self.refused.get_or_insert(error);
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}

impl Search {
    /// Searches for ever: first when all objects of the original's kinds are known, then after each loss, and a few times a day.
    pub(crate) async fn run(self, watches: Vec<(Kind, WatchHealth)>) {
        let originals: Vec<_> = watches.into_iter().map(|(kind, _)| kind).filter(|kind| kind.is_original()).collect();
        while !self.bindings.are_listed(&originals) {
            sleep(LISTED_INTERVAL).await;
        }
        let (mut failures, mut is_refusal_told) = (0, false);
        loop {
            let searched = match self.add_lost().await {
                Ok(()) => self.search().await,
                failed => failed,
            };
            let is_refused = searched.as_ref().is_err_and(SearchError::is_refusal);
            failures = if searched.is_ok() || is_refused { 0 } else { failures + 1 };
            if let Err(error) = &searched {
                if !is_refused {
                    tracing::debug!("the search for content that no object requests failed: {}", in_one_line(error));
                } else if !is_refusal_told {
                    tracing::warn!("{}", messages::cannot_search(error));
                }
            }
            is_refusal_told = is_refused;
            if timeout(delay(failures), self.lost.added()).await.is_ok() {
                sleep(LOSS_DELAY).await;
            }
        }
    }

    /// Lists what lost objects have left according to their records, without a look into Vault.
    async fn add_lost(&self) -> Result<(), SearchError> {
        let mut lost = std::mem::take(&mut *self.lost.lock());
        while let Some(orphan) = lost.pop() {
            if let Err(error) = self.add(orphan.clone().with_due(self.due())).await {
                // The next search takes these.
                self.lost.lock().extend(lost.into_iter().chain([orphan]));
                return Err(error);
            }
        }
        Ok(())
    }

    async fn search(&self) -> Result<(), SearchError> {
        let Some(instance) = self.store.instance().await? else { return Ok(()) };
        let mut found = Found::default();
        let failed = self.search_all(instance, &mut found).await.err();
        let mut refused = found.refused;
        for orphan in found.orphans.into_values() {
            match self.add(orphan).await {
                Err(error) if error.is_refusal() => drop(refused.get_or_insert(error)),
                added => added?,
            }
        }
        failed.or(refused).map_or(Ok(()), Err)
    }

    async fn search_all(&self, instance: &str, found: &mut Found) -> Result<(), SearchError> {
        for (mount, folder) in self.top_folders().await? {
            let mut folders = vec![folder];
            while let Some(folder) = folders.pop() {
                sleep(REQUEST_DELAY).await;
                let names = found.tolerate(self.store.list(&mount, &folder).await)?.unwrap_or_default();
                for name in names.iter().filter(|name| *name != "/") {
                    if name.ends_with('/') {
                        folders.push(format!("{folder}{name}"));
                    } else if let Ok(path) = SecretPath::parse(&format!("{}/data/{folder}{name}", mount.path()))
                        && let Ok(location) = mount.location(&path)
                    {
                        self.examine(&location, instance, found).await?;
                    }
                }
            }
        }
        Ok(())
    }

    /// The folders to search, which end in a slash unless they are empty: those of the rules, and all of the engines that objects use or used if
    /// a rule names no folder or there is none.
    async fn top_folders(&self) -> Result<BTreeSet<(Mount, String)>, VaultError> {
        let mut tops = BTreeSet::new();
        let mut is_everywhere = self.policy.allow_path.is_empty();
        let of_rules = self.policy.allow_path.iter().map(|rule| rule.beginning(self.policy.cluster()));
        let usual = is_everywhere.then(|| format!("{}{USUAL_ENGINE}", self.policy.prefix()));
        for beginning in of_rules.chain(usual) {
            match self.store.locate_folder(&beginning).await? {
                Some(location) => {
                    let folder = location.folder();
                    let slash = if folder.is_empty() { "" } else { "/" };
                    tops.insert((location.mount().clone(), format!("{folder}{slash}")));
                }
                None => is_everywhere = true,
            }
        }
        if is_everywhere {
            tops.extend(self.bindings.mounts().into_iter().map(|mount| (mount, String::new())));
        }
        tops.retain(|(mount, _)| mount.version() == KvVersion::Two);
        Ok(tops)
    }

    /// Reads who is marked as the owner of a path, unless an object is known to have written it.
    async fn examine(&self, location: &Location, instance: &str, found: &mut Found) -> Result<(), SearchError> {
        let path = location.to_string();
        if self.bindings.is_written(&path) {
            return Ok(());
        }
        sleep(REQUEST_DELAY).await;
        let owners = found.tolerate(self.store.owners(location).await)?.unwrap_or_default();
        for (owner, keys) in owners.into_iter().filter(|(owner, _)| owner.instance == instance && is_uid(&owner.uid)) {
            let Some(key) = object_of(&owner).filter(|key| self.is_watched(key)) else { continue };
            if !self.bindings.is_left(&key, &path) {
                continue;
            }
            let orphan = found.orphans.entry(owner.uid.clone()).or_insert_with(|| {
                let deletion = deletion(self.policy.default_deletion_policy);
                let record = Record { deletion, ..Record::new(&owner.uid, Timestamp::now()) };
                Orphan::new(&key, record).with_due(self.due())
            });
            orphan.insert(path.clone(), written(location, keys));
        }
        Ok(())
    }

    /// Returns whether this process would know the object if it were there.
    fn is_watched(&self, key: &ObjectRef) -> bool {
        self.policy.namespace.as_ref().is_none_or(|namespace| *namespace == key.namespace)
            && self.policy.kinds.contains(&key.kind)
            && self.bindings.are_listed(&[key.kind])
    }

    /// Adds what was found to the list of orphans, unless the API server shows that the object is there and requests a push.
    async fn add(&self, orphan: Orphan) -> Result<(), SearchError> {
        let Some(key) = orphan.key() else { return Ok(()) };
        if !self.store.is_leader() || self.is_requested(&key, &orphan.record().uid).await? {
            return Ok(());
        }
        let added = self.orphans.find(&orphan).await?;
        for path in &added {
            tracing::warn!(object = %key, path, "{}", messages::FOUND);
        }
        self.metrics.ours.orphans_found.inc_by(added.len() as u64);
        Ok(())
    }

    /// Asks the API server, because the watch may lag behind what a former leader wrote.
    async fn is_requested(&self, key: &ObjectRef, uid: &str) -> Result<bool, kube::Error> {
        let api: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), &key.namespace, &key.kind.resource());
        let object = api.get_metadata_opt(&key.name).await?;
        let metadata = object.map(|object| object.metadata).filter(|metadata| metadata.uid.as_deref() == Some(uid));
        let is_annotated = |path: &String| !path.is_empty();
        Ok(metadata.is_some_and(|metadata| {
            key.kind == Kind::VaultPush
                || metadata.annotations.as_ref().and_then(|all| all.get(PATH)).is_some_and(is_annotated)
        }))
    }

    /// Returns when content may be deleted that is found now.
    fn due(&self) -> Option<Timestamp> {
        Timestamp::now().checked_add(self.policy.deletion_grace).ok()
    }
}

/// Returns the delay after this number of failures in a row.
fn delay(failures: u32) -> Duration {
    // There is one operator that searches, so its delays need no jitter.
    if failures == 0 { SEARCH_INTERVAL } else { RETRY_DELAYS.delay(failures, 1.0) }
}

/// The record of a path whose mark names the object as the owner of all of it, or of these keys. The mark alone proves that a key is the object's, so a
/// key without it by then stays.
fn written(location: &Location, keys: Option<BTreeSet<String>>) -> Written {
    let intended = Written::intended(location);
    match keys {
        None => Written { written: true, ..intended },
        Some(pending) => Written { keys: Some(BTreeSet::new()), pending, ..intended },
    }
}

/// Returns whether the text can be the uid of an object, and so the key of an orphan. Whoever may write metadata in Vault can write any mark.
fn is_uid(text: &str) -> bool {
    let is_letter = |letter: char| letter.is_ascii_alphanumeric() || letter == '-';
    (1..=253).contains(&text.len()) && text.chars().all(is_letter)
}

/// Returns how content is deleted whose object said how in an annotation that is lost: never for good.
fn deletion(default: DeletionPolicy) -> DeletionPolicy {
    if default == DeletionPolicy::Keep { default } else { DeletionPolicy::Soft }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_whose_policy_is_lost_is_never_deleted_for_good() {
        for (default, expected) in [
            (DeletionPolicy::Soft, DeletionPolicy::Soft),
            (DeletionPolicy::Destroy, DeletionPolicy::Soft),
            (DeletionPolicy::Metadata, DeletionPolicy::Soft),
            (DeletionPolicy::Keep, DeletionPolicy::Keep),
        ] {
            assert_eq!(deletion(default), expected, "{default:?}");
        }
    }

    #[test]
    fn searches_that_fail_become_rarer() {
        let minutes = |failures| delay(failures).as_secs() / 60;
        assert_eq!([0, 1, 2, 3, 9, 10, 60].map(minutes), [360, 1, 2, 4, 256, 360, 360]);
    }

    #[test]
    fn a_mark_with_a_text_that_is_no_uid_is_nobodys() {
        for (text, expected) in [
            ("3f2504e0-4f89-11d3-9a0c-0305e82c3301", true),
            ("", false),
            ("a b", false),
            ("a/b", false),
            (&*"x".repeat(254), false),
        ] {
            assert_eq!(is_uid(text), expected, "{text:?}");
        }
    }
}
