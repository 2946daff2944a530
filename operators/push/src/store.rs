//! Vault, as far as it is needed here, with everything counted.

use std::sync::Arc;

use konverge_vault::{Content, Deletion, Expected, Found, Location, Owner, SecretPath, Standing, Vault, VaultError};

use crate::{
    metrics::Metrics,
    object::ObjectRef,
    plan::{Claim, Farewell, farewell},
};

/// The prefix of the marks in Vault's custom metadata.
const MARK: &str = "vault-sync.io";

/// Reads, writes, marks and deletes.
#[derive(Clone)]
pub struct Store {
    vault: Vault,
    metrics: Metrics,
    /// Which installation writes.
    instance: Arc<str>,
}

impl Store {
    /// Writes as this installation.
    pub fn new(vault: Vault, metrics: Metrics, instance: &str) -> Self {
        Self { vault, metrics, instance: instance.into() }
    }

    /// Who keeps what is written for the object.
    pub fn owner(&self, key: &ObjectRef, uid: &str) -> Owner {
        owner(key, uid, &self.instance)
    }

    /// Where a path leads.
    pub async fn locate(&self, path: &SecretPath) -> Result<Location, VaultError> {
        self.vault.locate(path).await
    }

    /// What is there.
    pub async fn read(&self, location: &Location) -> Result<Found, VaultError> {
        self.metrics.read();
        self.vault.read(location).await
    }

    /// Writes, if what was read is there still. Gives the version, where there are versions.
    pub async fn write(
        &self,
        location: &Location,
        content: &Content,
        expected: Expected,
    ) -> Result<Option<u64>, VaultError> {
        let written = self.vault.write(location, content, expected).await;
        match &written {
            Ok(_) => self.metrics.wrote(),
            Err(error) => self.metrics.write_failed(error, &location.to_string()),
        }
        Ok(written?.map(|version| version.number))
    }

    /// Notes the owner.
    pub async fn mark(&self, location: &Location, owner: &Owner) -> Result<(), VaultError> {
        let mark = owner
            .mark()
            .map_err(|error| VaultError::Mark { what: format!("mark {location}"), cause: error.to_string() })?;
        self.vault.annotate(location, &mark).await
    }

    /// Clears a path that is not wanted any more, if it is ours. Whether something was deleted.
    pub async fn clear(
        &self,
        location: &Location,
        owner: &Owner,
        claim: Claim,
        content: Option<&Content>,
        deletion: Deletion,
    ) -> Result<bool, VaultError> {
        let found = self.read(location).await?;
        match farewell(&found, owner, claim, content, deletion) {
            Farewell::Forget => Ok(false),
            Farewell::Unmark => self.unmark(location, owner).await.map(|()| false),
            Farewell::Delete => {
                self.vault.delete(location, deletion).await?;
                self.metrics.deleted();
                if found.custom_metadata().is_some() && deletion != Deletion::Metadata {
                    self.unmark(location, owner).await?;
                }
                Ok(true)
            }
        }
    }

    /// Clears a path of an object that is gone, unless it has been taken over by one that came after it under the same name.
    pub async fn clear_orphan(
        &self,
        location: &Location,
        owner: &Owner,
        claim: Claim,
        deletion: Deletion,
    ) -> Result<bool, VaultError> {
        let found = self.read(location).await?;
        let is_taken_over =
            found.custom_metadata().is_some_and(|metadata| owner.standing(metadata) == Standing::Predecessor);
        if is_taken_over { Ok(false) } else { self.clear(location, owner, claim, None, deletion).await }
    }

    /// Leaves what is there to others. A mark that is not this owner's stays, and where there is nothing nothing is made.
    pub async fn leave(&self, location: &Location, owner: &Owner) -> Result<(), VaultError> {
        let found = self.read(location).await?;
        match found.custom_metadata().map(|metadata| owner.standing(metadata)) {
            Some(Standing::Ours | Standing::Predecessor) => self.unmark(location, owner).await,
            Some(Standing::Unowned | Standing::Foreign(_)) | None => Ok(()),
        }
    }

    /// Takes the mark away, so that others can have the path. Where that is not allowed there is hardly a mark.
    async fn unmark(&self, location: &Location, owner: &Owner) -> Result<(), VaultError> {
        match self.vault.annotate(location, &owner.unmark()).await {
            Err(VaultError::Denied { .. } | VaultError::Unversioned { .. }) | Ok(()) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// Who keeps what an installation writes for the object.
pub(crate) fn owner(key: &ObjectRef, uid: &str, instance: &str) -> Owner {
    Owner {
        prefix: MARK.to_owned(),
        name: format!("{}/{}/{}", key.namespace, key.kind.name(), key.name),
        uid: uid.to_owned(),
        instance: instance.to_owned(),
    }
}
