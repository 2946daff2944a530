//! Reads and writes in Vault, with metrics.

use std::collections::{BTreeMap, BTreeSet};

use konverge_apply::ledger::{ClusterIdentity, Unnamed};
use konverge_core::digest::DigestKey;
use konverge_runtime::lease::Leadership;
use konverge_vault::{
    Content, Deletion, Expected, Found, KvVersion, Location, Mount, Owner, Ownership, SecretPath, Vault, VaultError,
    VersionState,
};
use kube::Client;

use crate::{
    bindings::{Heritage, Push},
    content::digest,
    merge::{KeyRemoval, Marks, owners, remove_keys, unmark},
    metrics::Metrics,
    object::{Kind, ObjectRef},
    plan::{Claim, DeletionPlan, plan_deletion},
    record::Written,
};

/// The prefix of the marks in Vault's custom metadata.
const MARK: &str = "vault-sync.io";

/// The name of an installation that may not read the uid of its cluster.
const UNNAMED: Unnamed = Unnamed {
    name: Owner::SOME_INSTANCE,
    consequence: "cannot tell this cluster from others that may use the same Vault",
    flag: "--instance",
};

/// The most attempts of one run to read and write a path that others write, too. Each repetition means that another writer was faster.
pub(crate) const ATTEMPTS: u32 = 8;

/// A path that is to be cleared, and what is known of it.
pub struct Cleanup<'a> {
    /// Where.
    pub location: &'a Location,
    /// As whom.
    pub owner: &'a Owner,
    /// Its record.
    pub written: &'a Written,
    /// How much the record proves.
    pub claim: Claim,
    /// The knowledge about an unfinished write.
    pub unfinished: Unfinished<'a>,
    /// Whether the object is gone, so that another one may have come after it under its name, which keeps what it has.
    pub gone: bool,
    /// The owners that get the path.
    pub heirs: &'a HeirOwners,
}

/// The owners that take over a path, or keys of it, so that it is not cleared.
#[derive(Debug, Default)]
pub struct HeirOwners {
    /// The owner of the whole path.
    pub whole: Option<Owner>,
    /// The owners of keys.
    pub keys: BTreeMap<String, Owner>,
}

/// The result for a path that is no longer desired.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cleared {
    /// Something was deleted.
    Deleted,
    /// Nothing was there that is ours.
    Nothing,
    /// Something is there that may be ours and is not known to be. It stays.
    Unknown,
}

/// The content that an unfinished write would have made.
#[derive(Clone, Copy)]
pub enum Unfinished<'a> {
    /// Unknown content.
    Unknown,
    /// This content.
    Made(&'a Content),
    /// Something with this digest, which was made with the key and is in hexadecimal digits.
    Digest(&'a DigestKey, &'a str),
}

impl<'a> Unfinished<'a> {
    /// Returns whether this is the content.
    pub fn is(self, content: &Content) -> bool {
        match self {
            Self::Unknown => false,
            Self::Made(made) => made == content,
            Self::Digest(key, text) => digest(key, content.iter()).is_some_and(|digest| digest.to_string() == text),
        }
    }

    /// The content, if it is known or was found.
    fn content(self, found: &'a Found) -> Option<&'a Content> {
        match (self, found) {
            (Self::Made(made), _) => Some(made),
            (_, Found::Live(secret)) if self.is(&secret.content) => Some(&secret.content),
            _ => None,
        }
    }
}

/// Why a path was not cleared.
#[derive(Debug, thiserror::Error)]
pub enum ClearError {
    /// Another process may have cleared the path by now, and another object may have it since.
    #[error("nothing more is deleted: this process leads no more")]
    LeadershipLost,
    /// The name of this installation could not be determined.
    #[error("cannot determine the name of this installation: {0}")]
    Unidentified(#[from] kube::Error),
    /// Vault did not do its part.
    #[error(transparent)]
    Vault(#[from] VaultError),
}

/// Reads, writes, marks and deletes.
#[derive(Clone)]
pub struct Store {
    vault: Vault,
    metrics: Metrics,
    /// Which installation writes.
    identity: ClusterIdentity,
    /// Whether this process leads. `None` without an election.
    leadership: Option<Leadership>,
}

impl Store {
    /// Writes as this installation.
    pub fn new(vault: Vault, metrics: Metrics, identity: ClusterIdentity, leadership: Option<Leadership>) -> Self {
        Self { vault, metrics, identity, leadership }
    }

    /// Whether this process leads. A process that was suspended notices here first that it does not.
    pub(crate) fn is_leader(&self) -> bool {
        self.leadership.as_ref().is_none_or(Leadership::is_leader)
    }

    /// Before a deletion, and before a mark is taken away: unlike a write these name no version, so nothing in Vault keeps one from
    /// being done that was decided upon too long ago.
    fn check_leadership(&self) -> Result<(), ClearError> {
        if self.is_leader() { Ok(()) } else { Err(ClearError::LeadershipLost) }
    }

    /// Before each write, too: in an engine without versions, nothing in Vault keeps one from being done that was decided upon too long ago.
    fn may_write(&self, location: &Location) -> Result<(), VaultError> {
        if self.is_leader() { Ok(()) } else { Err(VaultError::NotLeading { what: format!("write {location}") }) }
    }

    /// The owner in the marks of the object's paths. An error as long as it is not known which installation this is.
    pub async fn owner(&self, key: &ObjectRef, uid: &str) -> Result<Owner, kube::Error> {
        Ok(owner(key, uid, self.identity.name().await?))
    }

    /// Asks which installation this is, unless that is known.
    pub async fn identify(&self) -> Result<(), kube::Error> {
        self.identity.name().await.map(drop)
    }

    /// Returns the name of this installation in marks. Returns `None` if the name is not unique, so that a mark does not prove ownership.
    pub(crate) async fn instance(&self) -> Result<Option<&str>, kube::Error> {
        Ok(Some(self.identity.name().await?).filter(|name| *name != Owner::SOME_INSTANCE))
    }

    /// Lists a folder of an engine. Names of folders end with a slash. The folder itself may end with one.
    pub(crate) async fn list(&self, mount: &Mount, folder: &str) -> Result<Vec<String>, VaultError> {
        self.vault.list(mount, folder.trim_end_matches('/')).await
    }

    /// Returns the engine and the folder of all paths with this prefix. Returns `None` if no path can have it.
    pub(crate) async fn locate_folder(&self, beginning: &str) -> Result<Option<Location>, VaultError> {
        // Only a secret has a location.
        let Ok(path) = SecretPath::parse(&format!("{beginning}/any")) else { return Ok(None) };
        match self.vault.locate(&path).await {
            Err(VaultError::Path(_) | VaultError::UnknownMount { .. }) => Ok(None),
            located => located.map(Some),
        }
    }

    /// Returns the owners whose marks a path has, as [`owners`] does.
    pub(crate) async fn owners(
        &self,
        location: &Location,
    ) -> Result<Vec<(Owner, Option<BTreeSet<String>>)>, VaultError> {
        let metadata = self.vault.metadata(location).await?;
        Ok(metadata.map(|metadata| owners(&metadata.custom_metadata, MARK)).unwrap_or_default())
    }

    /// Returns the location of a target of a push. The object's own statement about the engine counts where Vault says nothing.
    pub async fn locate(&self, push: &Push, prefix: &str, target: &str) -> Result<Location, VaultError> {
        locate(&self.vault, push, prefix, target).await
    }

    /// Resolves a location of a record. A user who may annotate an object may have written the record, with any engine. `None` if the location
    /// cannot hold a secret, so nothing was ever written there.
    pub async fn recorded(&self, location: &Location) -> Result<Option<Location>, VaultError> {
        recorded(&self.vault, location).await
    }

    /// Reads the content at the beginning of a write. An error counts as a failed write: the original made no read before a write, and its users
    /// watch the failed writes.
    pub async fn look(&self, location: &Location) -> Result<Found, VaultError> {
        self.read(location).await.inspect_err(|error| self.metrics.write_failed(error, &location.to_string()))
    }

    /// Reads the content of a location.
    pub async fn read(&self, location: &Location) -> Result<Found, VaultError> {
        self.metrics.ours.reads.inc();
        self.vault.read(location).await
    }

    /// Writes the content if the path still has the content that was read. Returns the version if the engine has versions.
    pub async fn write(
        &self,
        location: &Location,
        content: &Content,
        expected: Expected,
    ) -> Result<Option<VersionState>, VaultError> {
        self.may_write(location)?;
        let written = self.vault.write(location, content, expected).await;
        self.counted(location, written)
    }

    fn counted(
        &self,
        location: &Location,
        written: Result<Option<VersionState>, VaultError>,
    ) -> Result<Option<VersionState>, VaultError> {
        match &written {
            Ok(_) => {
                self.metrics.ours.writes.inc();
            }
            // Nothing is wrong with it: it is read again.
            Err(VaultError::Conflict { .. }) => {
                self.metrics.ours.conflicts.inc();
            }
            Err(error) => self.metrics.write_failed(error, &location.to_string()),
        }
        written
    }

    /// Writes a path that has never had content. Returns the version, or `None` if the path has or had content, or if the engine has no versions and
    /// cannot tell.
    pub async fn create(&self, location: &Location, content: &Content) -> Result<Option<VersionState>, VaultError> {
        if location.mount().version() == KvVersion::One {
            return Ok(None);
        }
        self.may_write(location)?;
        match self.vault.write(location, content, Expected::Absent).await {
            Err(VaultError::Conflict { .. }) => Ok(None),
            written => self.counted(location, written),
        }
    }

    /// Notes the owner of all of a path, whose marks on single keys go.
    pub async fn mark(&self, location: &Location, owner: &Owner, found: &Found) -> Result<(), VaultError> {
        let mut mark = owner
            .mark()
            .map_err(|error| VaultError::Mark { what: format!("mark {location}"), cause: error.to_string() })?;
        mark.extend(unmark(found, owner));
        self.annotate(location, &mark).await
    }

    /// Writes these marks. Sends nothing if there are none.
    pub async fn annotate(&self, location: &Location, marks: &Marks) -> Result<(), VaultError> {
        if marks.is_empty() {
            return Ok(());
        }
        self.may_write(location)?;
        self.vault.annotate(location, marks).await
    }

    /// Clears a path that is not wanted any more, or our keys of it, as far as that is ours; without a way to delete it loses our marks
    /// and stays.
    pub async fn clear(&self, cleanup: &Cleanup<'_>, deletion: Option<Deletion>) -> Result<Cleared, ClearError> {
        if let Some(heir) = &cleanup.heirs.whole {
            return self.hand_over(cleanup, heir).await.map(|()| Cleared::Nothing);
        }
        let Some(deletion) = deletion else { return self.disown(cleanup).await.map(|()| Cleared::Nothing) };
        let &Cleanup { location, owner, written, claim, unfinished, gone, heirs: _ } = cleanup;
        if written.keys.is_some() {
            return self.take_out(cleanup).await;
        }
        let found = self.read(location).await?;
        let has_heir = || found.custom_metadata().is_some_and(|noted| owner.ownership(noted) == Ownership::Predecessor);
        if gone && has_heir() {
            return Ok(Cleared::Nothing);
        }
        self.check_leadership()?;
        match plan_deletion(&found, owner, claim, unfinished.content(&found), deletion) {
            DeletionPlan::Forget => Ok(Cleared::Nothing),
            DeletionPlan::Report => Ok(Cleared::Unknown),
            DeletionPlan::Unmark => {
                self.unmark(location, owner).await?;
                Ok(Cleared::Nothing)
            }
            DeletionPlan::Delete => {
                self.delete(location, found.expected(), deletion).await?;
                self.metrics.ours.deletes.inc();
                if found.custom_metadata().is_some()
                    && deletion != Deletion::Metadata
                    && (!gone || self.is_marked(location, owner).await?)
                {
                    self.check_leadership()?;
                    self.unmark(location, owner).await?;
                }
                Ok(Cleared::Deleted)
            }
        }
    }

    /// Whether the path still has the mark of an object that is gone. An heir may have written and marked it since the look.
    async fn is_marked(&self, location: &Location, owner: &Owner) -> Result<bool, VaultError> {
        let found = self.read(location).await?;
        Ok(found.custom_metadata().is_some_and(|noted| owner.ownership(noted) == Ownership::Ours))
    }

    async fn delete(&self, location: &Location, expected: Expected, deletion: Deletion) -> Result<(), VaultError> {
        let deleted = self.vault.delete(location, expected, deletion).await;
        if deleted.is_err() {
            self.metrics.ours.delete_errors.inc();
        }
        deleted
    }

    /// Takes our keys out of a path that others have keys in. Its older versions are theirs, too, and stay; a path that is empty then is
    /// deleted so that it can be undeleted.
    async fn take_out(&self, cleanup: &Cleanup<'_>) -> Result<Cleared, ClearError> {
        let &Cleanup { location, owner, written, claim, unfinished, gone, heirs } = cleanup;
        let recorded = Written { written: matches!(claim, Claim::Written(_)), ..written.clone() };
        let mut attempt = 1;
        let (changed, marks) = loop {
            let found = self.read(location).await?;
            let made = match unfinished {
                Unfinished::Made(made) => Some(made),
                Unfinished::Unknown | Unfinished::Digest(..) => None,
            };
            let KeyRemoval { content: rest, expected, marks } =
                remove_keys(found, owner, &recorded, made, gone, &heirs.keys);
            self.check_leadership()?;
            let changed = match rest {
                None => Ok(false),
                Some(rest) if rest.is_empty() => self.delete(location, expected, Deletion::Soft).await.map(|()| true),
                Some(rest) => self.write(location, &rest, expected).await.map(|_| true),
            };
            match changed {
                Err(VaultError::Conflict { .. }) if attempt < ATTEMPTS => attempt += 1,
                changed => break (changed?, marks),
            }
        };
        if changed {
            self.metrics.ours.deletes.inc();
        }
        self.check_leadership()?;
        match self.annotate(location, &marks).await {
            Err(VaultError::Denied { .. }) | Ok(()) if changed => Ok(Cleared::Deleted),
            Err(VaultError::Denied { .. }) | Ok(()) => Ok(Cleared::Nothing),
            Err(error) => Err(error.into()),
        }
    }

    /// Hands a path over to another owner, whose mark replaces ours. The content stays readable until the heir writes its own. Without marks, the
    /// heir's claim is enough.
    async fn hand_over(&self, cleanup: &Cleanup<'_>, heir: &Owner) -> Result<(), ClearError> {
        let &Cleanup { location, owner, gone, .. } = cleanup;
        let found = self.read(location).await?;
        let is_ours = match found.custom_metadata().map(|noted| owner.ownership(noted)) {
            Some(Ownership::Ours) => true,
            Some(Ownership::Predecessor) => !gone,
            Some(Ownership::Unowned | Ownership::Foreign(_)) | None => false,
        };
        if !is_ours {
            return Ok(());
        }
        self.check_leadership()?;
        match self.mark(location, heir, &found).await {
            Err(VaultError::Denied { .. } | VaultError::Unversioned { .. }) | Ok(()) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns the owners that take over a path.
    pub(crate) async fn heirs(&self, heritage: &Heritage) -> Result<HeirOwners, kube::Error> {
        let mut heirs = HeirOwners::default();
        if let Some(heir) = &heritage.whole {
            heirs.whole = Some(self.owner(&heir.key, &heir.uid).await?);
        }
        for (name, heir) in &heritage.keys {
            heirs.keys.insert(name.clone(), self.owner(&heir.key, &heir.uid).await?);
        }
        Ok(heirs)
    }

    /// Removes the marks of this owner and leaves the content to others. The mark of another owner stays. An empty path stays empty.
    async fn disown(&self, cleanup: &Cleanup<'_>) -> Result<(), ClearError> {
        let &Cleanup { location, owner, gone, .. } = cleanup;
        let found = self.read(location).await?;
        self.check_leadership()?;
        let left = match found.custom_metadata().map(|metadata| owner.ownership(metadata)) {
            Some(Ownership::Ours) => self.unmark(location, owner).await,
            Some(Ownership::Predecessor) if !gone => self.unmark(location, owner).await,
            Some(Ownership::Predecessor | Ownership::Unowned | Ownership::Foreign(_)) | None => {
                self.annotate(location, &unmark(&found, owner)).await
            }
        };
        Ok(left?)
    }

    /// Takes the mark away, so that others can have the path. Where that is not allowed there is hardly a mark.
    async fn unmark(&self, location: &Location, owner: &Owner) -> Result<(), VaultError> {
        match self.vault.annotate(location, &owner.unmark()).await {
            Err(VaultError::Denied { .. } | VaultError::Unversioned { .. }) | Ok(()) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// The identity of this installation in the marks of owners: the name that was given, or else that of the cluster. `knows_us` tells whether the
/// API server has allowed this process anything yet.
pub fn identity(
    client: Client,
    given: Option<String>,
    knows_us: impl Fn() -> bool + Send + Sync + 'static,
) -> ClusterIdentity {
    ClusterIdentity::new(client, given, UNNAMED, knows_us)
}

/// Returns the location of a target of a push. The object's own statement about the engine counts where Vault says nothing.
///
/// With separate fields for mount and path, the secret may have any name, even one that begins like a route of KV version 2.
pub(crate) async fn locate(vault: &Vault, push: &Push, prefix: &str, target: &str) -> Result<Location, VaultError> {
    let path = push.path(prefix, target).map_err(VaultError::Path)?;
    let claimed = push.spec.engine.claimed(prefix);
    if let Some(stated) = &claimed {
        let data = push.spec.engine.in_data(stated, path.clone()).map_err(VaultError::Path)?;
        if data != path {
            let location = vault.locate_in(&data, Some(stated)).await?;
            if location.mount() == stated {
                return Ok(location);
            }
        }
    }
    vault.locate_in(&path, claimed.as_ref()).await
}

/// See [`Store::recorded`].
pub(crate) async fn recorded(vault: &Vault, location: &Location) -> Result<Option<Location>, VaultError> {
    let Ok(path) = SecretPath::parse(&location.to_string()) else { return Ok(None) };
    match vault.locate_in(&path, Some(location.mount())).await {
        Err(VaultError::Path(_)) => Ok(None),
        located => located.map(Some),
    }
}

/// The owner in the marks that an installation sets for the object.
pub(crate) fn owner(key: &ObjectRef, uid: &str, instance: &str) -> Owner {
    Owner {
        prefix: MARK.to_owned(),
        name: format!("{}/{}/{}", key.namespace, key.kind.name(), key.name),
        uid: uid.to_owned(),
        instance: instance.to_owned(),
    }
}

/// Returns the object that is the owner. Returns `None` for a mark that the operator never sets, or of a kind that this version does not know.
pub(crate) fn object_of(owner: &Owner) -> Option<ObjectRef> {
    let [namespace, kind, name] = owner.name.split('/').collect::<Vec<_>>()[..] else { return None };
    Some(ObjectRef { kind: Kind::named(kind)?, namespace: namespace.to_owned(), name: name.to_owned() })
}
