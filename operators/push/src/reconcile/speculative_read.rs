//! A read of Vault while the Secret is still on its way from the API server: neither request waits for the other.

use konverge_vault::{Found, KvVersion, Location, VaultError};

use super::SyncRun;
use crate::{spec::UpdatePolicy, store::Store};

/// The content of a location, read before the desired content was known.
pub(super) struct SpeculativeRead {
    location: Location,
    found: Result<Found, VaultError>,
}

impl SpeculativeRead {
    /// Reads the location of an object that has only one, if the run will need that in any case or probably, because a Secret of the object
    /// has just changed.
    pub(super) async fn begin(store: &Store, run: &SyncRun<'_>) -> Option<Self> {
        let SyncRun { push, prepared, binding, before, verify, .. } = run;
        let mut locations = prepared.locations.values();
        let location = locations.next().filter(|_| locations.next().is_none())?;
        // In KV version 1, others may write between a read and a write. So the read comes last there.
        let is_checked = location.mount().version() == KvVersion::Two && push.spec.update == UpdatePolicy::Replace;
        // The first write to a path needs no read.
        let written = before.as_ref().and_then(|before| before.paths.get(&location.to_string()));
        let was_written = written.is_some_and(|written| written.written);
        if !(is_checked && was_written && (*verify || binding.pending.changed.is_some())) {
            return None;
        }
        Some(Self { location: location.clone(), found: store.look(location).await })
    }

    /// Takes the content of this location, if it was read.
    pub(super) fn take(read: &mut Option<Self>, location: &Location) -> Option<Result<Found, VaultError>> {
        read.take_if(|read| read.location == *location).map(|read| read.found)
    }
}
