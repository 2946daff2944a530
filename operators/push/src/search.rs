//! The search for content in Vault that no object requests, because its object changed or went while the operator did not see it.
//!
//! An object that was replaced without its annotations keeps neither record nor finalizer, so nothing in the cluster tells of its content. The mark in
//! Vault does. What is found goes to the list of [orphans](crate::orphans) and is cleared as they are, after the grace period.

mod lost;
mod progress;

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use jiff::Timestamp;
use konverge_apply::error::class_of;
use konverge_core::error::{Classify, ErrorClass, in_one_line};
use konverge_runtime::watch::WatchHealth;
use konverge_vault::{KvVersion, Location, Mount, SecretPath, VaultError};
use kube::{Api, Client, core::DynamicObject};
use tokio::{
    sync::watch,
    time::{Instant, sleep, timeout},
};

pub(crate) use self::lost::Lost;
use self::progress::{Place, Progress};
use crate::{
    annotations::PATH,
    bindings::{Bindings, MarkedContent},
    config::PushOptions,
    messages,
    metrics::Metrics,
    object::{Kind, ObjectRef},
    orphans::{Orphan, Orphans, OrphansError},
    record::{Record, Written},
    spec::DeletionPolicy,
    store::{Store, object_of},
};

/// The time between a loss and the search that it causes, because losses come in groups.
const LOSS_DELAY: Duration = Duration::from_secs(10);

/// The time between two checks whether all objects are known.
const LISTED_INTERVAL: Duration = Duration::from_secs(1);

/// The delay before each request, so that a search of many paths leaves Vault to others.
const REQUEST_DELAY: Duration = Duration::from_millis(5);

/// The engine that is searched if there is no rule, also when no object is left that names it.
const USUAL_ENGINE: &str = "secret/data";

/// Searches for content that no object requests.
pub(crate) struct Search {
    pub(crate) store: Store,
    pub(crate) bindings: Arc<Bindings>,
    pub(crate) orphans: Orphans,
    pub(crate) policy: Arc<PushOptions>,
    pub(crate) metrics: Metrics,
    pub(crate) client: Client,
    pub(crate) lost: Lost,
    /// The first refusal of the last search, for the checks.
    pub(crate) refused: watch::Sender<Option<String>>,
}

/// A request of a search failed.
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
    /// Returns `true` if only a person can change the answer, for example because the token may not list a folder. The search goes on beside it.
    fn is_final(&self) -> bool {
        match self {
            Self::Vault(error) => error.is_refusal() || error.class() == ErrorClass::Permanent,
            Self::Kubernetes(error) => matches!(class_of(error), ErrorClass::Refused | ErrorClass::Permanent),
            Self::Orphans(error) => error.is_final(),
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
        let mut progress = Progress::default();
        loop {
            if let Err(error) = self.attempt(&mut progress).await {
                let error = in_one_line(&error);
                tracing::debug!("the search for content that no object requests continues later: {error}");
            }
            if progress.is_complete() || progress.refused.is_some() {
                self.report(progress.refused.as_ref()).await;
            }
            if timeout(progress.pause(Instant::now()), self.lost.added()).await.is_ok() {
                sleep(LOSS_DELAY).await;
                progress.restart();
            }
        }
    }

    /// Continues the search, or begins one. After an error, the next attempt continues where this one ended.
    async fn attempt(&self, progress: &mut Progress) -> Result<(), SearchError> {
        progress.attempt(Instant::now());
        self.list_lost(progress).await?;
        let Some(instance) = self.store.instance().await? else { return Ok(()) };
        if progress.is_due(Instant::now()) {
            let folders = self.top_folders(progress).await?;
            progress.begin(folders, Instant::now());
        }
        let looked = self.look_at_all(instance, progress).await;
        while let Some((uid, orphan)) = progress.found.pop_first() {
            match self.list(&orphan).await {
                Err(error) if error.is_final() => progress.refuse(&error),
                Err(error) => {
                    progress.found.insert(uid, orphan);
                    return Err(error);
                }
                Ok(()) => {}
            }
        }
        looked
    }

    /// Lists the content of lost objects according to their records, without a request to Vault.
    async fn list_lost(&self, progress: &mut Progress) -> Result<(), SearchError> {
        let mut lost = self.lost.take();
        while let Some(orphan) = lost.pop() {
            let Some(key) = orphan.key() else { continue };
            let listed = match self.is_requested(&key, &orphan.record().uid).await {
                Ok(true) => continue,
                Ok(false) => self.list(&orphan.clone().with_due(self.due())).await,
                Err(error) => Err(error.into()),
            };
            if let Err(error) = listed {
                // The next attempt lists these.
                self.lost.put_back(lost.into_iter().chain([orphan]));
                if !error.is_final() {
                    return Err(error);
                }
                progress.refuse(&error);
                break;
            }
        }
        Ok(())
    }

    /// Looks at all places that are left. A refusal costs one place. Any other error ends the attempt, because the next request would fail as well.
    async fn look_at_all(&self, instance: &str, progress: &mut Progress) -> Result<(), SearchError> {
        while let Some(place) = progress.next() {
            sleep(REQUEST_DELAY).await;
            match self.look_at(&place, instance, progress).await {
                Ok(true) => progress.done(),
                Ok(false) => progress.postpone(place),
                Err(error) if error.is_final() => progress.refuse(&error),
                Err(error) => {
                    progress.postpone(place);
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Looks at one place. Returns `false` if it has to be looked at again later.
    async fn look_at(&self, place: &Place, instance: &str, progress: &mut Progress) -> Result<bool, SearchError> {
        match place {
            Place::Secret(location) => self.examine(location, instance, progress).await,
            Place::Folder(mount, folder) => {
                let names = self.store.list(mount, folder).await?;
                progress.extend(names.iter().filter_map(|name| self.place(mount, folder, name)));
                Ok(true)
            }
        }
    }

    /// Returns the place with this name in a folder. Returns `None` if the name is invalid, or an object is known to have written the secret.
    fn place(&self, mount: &Mount, folder: &str, name: &str) -> Option<Place> {
        if name.ends_with('/') {
            return (name != "/").then(|| Place::Folder(mount.clone(), format!("{folder}{name}")));
        }
        let path = SecretPath::parse(&format!("{}/data/{folder}{name}", mount.path())).ok()?;
        let location = mount.location(&path).ok()?;
        (!self.bindings.is_written(&location.to_string())).then_some(Place::Secret(location))
    }

    /// The folders to search, which end in a slash unless they are empty: those of the rules, and all of the engines that objects use or used if
    /// a rule names no folder or there is none.
    async fn top_folders(&self, progress: &mut Progress) -> Result<Vec<Place>, SearchError> {
        let mut tops = BTreeSet::new();
        let mut is_everywhere = self.policy.allow_path.is_empty();
        let of_rules = self.policy.allow_path.iter().filter_map(|rule| rule.beginning(self.policy.cluster()));
        let usual = is_everywhere.then(|| format!("{}{USUAL_ENGINE}", self.policy.prefix()));
        for beginning in of_rules.chain(usual) {
            match self.store.locate_folder(&beginning).await.map_err(SearchError::from) {
                Ok(Some(location)) => {
                    let folder = location.folder();
                    let slash = if folder.is_empty() { "" } else { "/" };
                    tops.insert((location.mount().clone(), format!("{folder}{slash}")));
                }
                Ok(None) => is_everywhere = true,
                Err(error) if error.is_final() => progress.refuse(&error),
                Err(error) => return Err(error),
            }
        }
        if is_everywhere {
            tops.extend(self.bindings.mounts().into_iter().map(|mount| (mount, String::new())));
        }
        let are_marked = tops.into_iter().filter(|(mount, _): &(Mount, String)| mount.version() == KvVersion::Two);
        Ok(are_marked.map(|(mount, folder)| Place::Folder(mount, folder)).collect())
    }

    /// Reads the marks of a secret, and notes it if it is left. Returns `false` if this process does not know that yet of an object.
    async fn examine(&self, location: &Location, instance: &str, progress: &mut Progress) -> Result<bool, SearchError> {
        let path = location.to_string();
        let mut is_decided = true;
        let owners = self.store.owners(location).await?.into_iter();
        for (owner, keys) in owners.filter(|(owner, _)| owner.instance == instance && is_uid(&owner.uid)) {
            let Some(key) = object_of(&owner).filter(|key| self.is_watched(key)) else { continue };
            let is_left = match self.bindings.marked(&key, &path) {
                MarkedContent::Requested => continue,
                MarkedContent::Undecided => false,
                MarkedContent::Left => true,
                MarkedContent::OfUnknownObject => !self.is_requested(&key, &owner.uid).await?,
            };
            if !is_left {
                is_decided = false;
                continue;
            }
            let orphan = progress.found.entry(owner.uid.clone()).or_insert_with(|| {
                let deletion = deletion(self.policy.default_deletion_policy);
                let record = Record { deletion, ..Record::new(&owner.uid, Timestamp::now()) };
                Orphan::new(&key, record).with_due(self.due())
            });
            orphan.insert(path.clone(), written(location, keys));
        }
        Ok(is_decided)
    }

    /// Returns `true` if this operator watches objects such as this one.
    fn is_watched(&self, key: &ObjectRef) -> bool {
        let is_in_scope = |namespace: &String| *namespace == key.namespace;
        self.policy.namespace.as_ref().is_none_or(is_in_scope) && self.policy.kinds.contains(&key.kind)
    }

    /// Adds content that was found to the list of orphans.
    async fn list(&self, orphan: &Orphan) -> Result<(), SearchError> {
        let Some(key) = orphan.key().filter(|_| self.store.is_leader()) else { return Ok(()) };
        let added = match self.orphans.find(orphan).await {
            Err(error @ OrphansError::ShareExceeded(_)) => {
                // A later search finds the content again.
                tracing::warn!(object = %key, "{}", in_one_line(&error));
                return Ok(());
            }
            found => found?,
        };
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

    /// Reports whether a part of the search is refused: in the checks, in the list of orphans for `kubectl konverge doctor`, and in the log.
    async fn report(&self, refused: Option<&String>) {
        let is_new = self.refused.send_if_modified(|told| {
            let is_new = told.as_ref() != refused;
            *told = refused.cloned();
            is_new
        });
        if let Some(refused) = refused.filter(|_| is_new) {
            tracing::warn!("{}", messages::cannot_search(refused));
        }
        if let Err(error) = self.orphans.tell_search(refused.map(String::as_str)).await {
            tracing::debug!("{}", in_one_line(&error));
        }
    }

    /// Returns when content may be deleted that is found now.
    fn due(&self) -> Option<Timestamp> {
        Timestamp::now().checked_add(self.policy.deletion_grace).ok()
    }
}

/// The record of a path whose mark names the object as the owner of all of it, or of these keys. Only the mark proves that the object wrote a key, so a
/// key that has lost its mark stays.
fn written(location: &Location, keys: Option<BTreeSet<String>>) -> Written {
    let intended = Written::intended(location);
    match keys {
        None => Written { written: true, ..intended },
        Some(pending) => Written { keys: Some(BTreeSet::new()), pending, ..intended },
    }
}

/// Returns `true` if the text can be the uid of an object, and so the key of an orphan. A user who may write metadata in Vault can write any mark.
fn is_uid(text: &str) -> bool {
    let is_letter = |letter: char| letter.is_ascii_alphanumeric() || letter == '-';
    (1..=253).contains(&text.len()) && text.chars().all(is_letter)
}

/// Returns the treatment of content whose object is lost with its annotations: never a deletion for good.
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
