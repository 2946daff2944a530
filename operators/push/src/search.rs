//! The search for content in Vault that nobody requests: that of objects that lost their request, or went, while the operator did not see it.
//!
//! An object that was replaced without its annotations keeps neither record nor finalizer, so nothing in the cluster tells of its content. The mark in
//! Vault does. What is found goes to the list of [orphans](crate::orphans) and is cleared as they are, after the grace period.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use jiff::Timestamp;
use konverge_core::error::in_one_line;
use konverge_runtime::watch::WatchHealth;
use konverge_vault::{KvVersion, Location, Mount, SecretPath, VaultError};
use tokio::{
    sync::Notify,
    time::{sleep, timeout},
};

use crate::{
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

/// The pause between two searches. Most losses are noticed as they happen, and cause a search at once.
const EVERY: Duration = Duration::from_hours(6);

/// The pause before a search that a loss causes: losses come in groups.
const SOON: Duration = Duration::from_secs(10);

/// The pause after a search that failed.
const AGAIN: Duration = Duration::from_mins(1);

/// The pause between two looks whether all objects are known.
const LISTED: Duration = Duration::from_secs(1);

/// The pause between two requests, so that a search of many paths is no load for Vault.
const PACE: Duration = Duration::from_millis(5);

/// The engine that is searched if there is no rule, also when no object is left that names it.
const USUAL: &str = "secret/data";

/// Searches for content that nobody requests.
pub(crate) struct Search {
    store: Store,
    bindings: Arc<Bindings>,
    orphans: Orphans,
    policy: Arc<PushOptions>,
    metrics: Metrics,
    /// Whether the log says what is not allowed.
    is_refusal_told: bool,
}

/// A search did not come to its end.
#[derive(Debug, thiserror::Error)]
enum SearchError {
    #[error(transparent)]
    Vault(#[from] VaultError),
    #[error("cannot tell which installation this is: {0}")]
    Unidentified(#[from] kube::Error),
    #[error(transparent)]
    Orphans(#[from] OrphansError),
}

impl SearchError {
    /// Whether only a person can mend it: the token may not list, or the role may not write the list of orphans.
    fn is_refusal(&self) -> bool {
        match self {
            Self::Vault(error) => error.is_refusal(),
            Self::Unidentified(_) => false,
            Self::Orphans(error) => error.is_final(),
        }
    }
}

impl Search {
    pub(crate) fn new(
        store: Store,
        bindings: Arc<Bindings>,
        orphans: Orphans,
        policy: Arc<PushOptions>,
        metrics: Metrics,
    ) -> Self {
        Self { store, bindings, orphans, policy, metrics, is_refusal_told: false }
    }

    /// Searches for ever: first when all objects of the original's kinds are known, then after each loss, and a few times a day.
    pub(crate) async fn run(mut self, watches: Vec<(Kind, WatchHealth)>, lost: Arc<Notify>) {
        let originals: Vec<_> = watches.into_iter().map(|(kind, _)| kind).filter(|kind| kind.is_original()).collect();
        while !self.bindings.are_listed(&originals) {
            sleep(LISTED).await;
        }
        loop {
            let pause = match self.search().await {
                Ok(()) => EVERY,
                Err(error) if error.is_refusal() => {
                    if !std::mem::replace(&mut self.is_refusal_told, true) {
                        tracing::info!("{}", messages::cannot_search(&error));
                    }
                    EVERY
                }
                Err(error) => {
                    tracing::debug!("the search for content that no object requests: {}", in_one_line(&error));
                    AGAIN
                }
            };
            if timeout(pause, lost.notified()).await.is_ok() {
                sleep(SOON).await;
            }
        }
    }

    async fn search(&self) -> Result<(), SearchError> {
        let Some(us) = self.store.instance().await? else { return Ok(()) };
        let mut found = BTreeMap::new();
        for (mount, folder) in self.tops().await? {
            let mut folders = vec![folder];
            while let Some(folder) = folders.pop() {
                for name in self.store.list(&mount, &folder).await? {
                    if name.ends_with('/') {
                        folders.push(format!("{folder}{name}"));
                    } else if let Ok(path) = SecretPath::parse(&format!("{}/data/{folder}{name}", mount.path())) {
                        let location = mount.location(&path).map_err(VaultError::Path)?;
                        self.look(&location, us, &mut found).await?;
                    }
                }
                sleep(PACE).await;
            }
        }
        for orphan in found.into_values() {
            let added = self.orphans.find(&orphan).await?;
            for path in &added {
                tracing::warn!(object = %orphan.name(), path, "{}", messages::FOUND);
            }
            self.metrics.ours.orphans_found.inc_by(added.len() as u64);
        }
        Ok(())
    }

    /// The folders to search, which end in a slash unless they are empty: those of the rules, and all of the engines that objects use or used if
    /// a rule names no folder or there is none.
    async fn tops(&self) -> Result<BTreeSet<(Mount, String)>, VaultError> {
        let mut tops = BTreeSet::new();
        let mut is_everywhere = self.policy.allow_path.is_empty();
        let of_rules = self.policy.allow_path.iter().map(|rule| rule.beginning(self.policy.cluster()));
        let usual = is_everywhere.then(|| format!("{}{USUAL}", self.policy.prefix()));
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

    /// Looks who is marked as the owner of a path, unless it is known to be an object's.
    async fn look(
        &self,
        location: &Location,
        us: &str,
        found: &mut BTreeMap<String, Orphan>,
    ) -> Result<(), VaultError> {
        let path = location.to_string();
        if self.bindings.is_written(&path) {
            return Ok(());
        }
        sleep(PACE).await;
        let owners = self.store.owners(location).await?;
        for (owner, keys) in owners.into_iter().filter(|(owner, _)| owner.instance == us) {
            let Some(key) = object_of(&owner).filter(|key| self.is_watched(key)) else { continue };
            if !self.bindings.is_left(&key, &owner.uid, &path) {
                continue;
            }
            let now = Timestamp::now();
            let orphan = found.entry(owner.uid.clone()).or_insert_with(|| {
                let deletion = deletion(self.policy.default_deletion_policy);
                let record = Record { deletion, ..Record::new(&owner.uid, now) };
                Orphan::new(&key, record).with_due(now.checked_add(self.policy.deletion_grace).ok())
            });
            orphan.insert(path.clone(), Written { written: true, keys, ..Written::intended(location) });
        }
        Ok(())
    }

    /// Whether this process would know the object if it were there.
    fn is_watched(&self, key: &ObjectRef) -> bool {
        self.policy.namespace.as_ref().is_none_or(|namespace| *namespace == key.namespace)
            && self.policy.kinds.contains(&key.kind)
            && self.bindings.are_listed(&[key.kind])
    }
}

/// How content is deleted whose object said how in an annotation that is lost: never for good.
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
}
