//! Deleting, in the ways that Vault has.

use http::Method;
use serde_json::json;

use super::Expected;
use crate::{
    call::Call,
    client::Vault,
    error::VaultError,
    mount::{KvVersion, Location},
};

/// How a secret is deleted. An engine of version 1 knows one way, in which all of it is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deletion {
    /// The newest version is marked as deleted and can be had back; older ones can be read by their number.
    Soft,
    /// The content of all versions is gone for good; the metadata stays.
    Destroy,
    /// All of it is gone, and the next write makes version 1.
    Metadata,
}

impl Vault {
    /// Deletes a secret as it was [found](super::Found::expected). A secret that does not exist counts as deleted.
    ///
    /// Vault has no check-and-set for this. A version that was written since is not destroyed. A soft deletion includes it and can be undone; a
    /// deletion of the metadata includes it and cannot.
    pub async fn delete(&self, location: &Location, expected: Expected, how: Deletion) -> Result<(), VaultError> {
        let what = format!("delete {location}");
        let route = match (location.mount().version(), how) {
            (KvVersion::One, _) | (KvVersion::Two, Deletion::Soft) => location.data_route(),
            (KvVersion::Two, Deletion::Metadata) => location.route("metadata"),
            (KvVersion::Two, Deletion::Destroy) => {
                let Some(metadata) = self.metadata(location).await? else { return Ok(()) };
                let newest = match expected {
                    Expected::Any => u64::MAX,
                    Expected::Absent => 0,
                    Expected::Version(number) => number,
                };
                let versions: Vec<u64> = metadata
                    .versions
                    .iter()
                    .filter(|(number, record)| !record.destroyed && **number <= newest)
                    .map(|(number, _)| *number)
                    .collect();
                return if versions.is_empty() { Ok(()) } else { self.destroy(location, &versions).await };
            }
        };
        let call = Call::new(Method::DELETE, route, what, "delete");
        let answer = self.kv(location, &call).await?;
        if answer.is_absent() { Ok(()) } else { self.confirmed(&call, &answer) }
    }

    /// Destroys the content of these versions for good.
    pub async fn destroy(&self, location: &Location, versions: &[u64]) -> Result<(), VaultError> {
        self.versions(location, "destroy", versions).await
    }

    /// Takes the deletion of these versions back, unless they are destroyed.
    pub async fn undelete(&self, location: &Location, versions: &[u64]) -> Result<(), VaultError> {
        self.versions(location, "undelete", versions).await
    }

    async fn versions(&self, location: &Location, act: &str, versions: &[u64]) -> Result<(), VaultError> {
        let what = format!("{act} versions of {location}");
        // Vault takes a POST for each of them, and PUT means the same.
        let call = Call::new(Method::POST, location.route(act), what, "update").json(&json!({ "versions": versions }));
        let answer = self.kv_two(location, &call).await?;
        self.confirmed(&call, &answer)
    }
}
