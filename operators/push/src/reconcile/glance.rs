//! A look at what is in Vault while the Secret is on its way from the API server: the two do not wait for each other.

use konverge_vault::{Found, KvVersion, Location, VaultError};

use super::{Pusher, paths::Prepared};
use crate::{
    asked::UpdatePolicy,
    bindings::{Binding, Push},
};

/// What was found at a location before it was known what should be there.
pub(super) struct Glance {
    location: Location,
    found: Result<Found, VaultError>,
}

impl Glance {
    /// What was found, if it was there.
    pub(super) fn at(glance: &mut Option<Self>, location: &Location) -> Option<Result<Found, VaultError>> {
        glance.take_if(|glance| glance.location == *location).map(|glance| glance.found)
    }
}

impl Pusher {
    /// What is at the location of an object that has one only, where that will be asked in any case, or probably, because what it is made of
    /// has just changed.
    pub(super) async fn glance(
        &self,
        binding: &Binding,
        push: &Push,
        prepared: &Prepared,
        look: bool,
    ) -> Option<Glance> {
        let mut locations = prepared.locations.values();
        let location = locations.next().filter(|_| locations.next().is_none())?;
        // Between a look and a write to version 1 nothing keeps others from writing: the look comes last.
        let is_checked = location.mount().version() == KvVersion::Two && push.asked.update == UpdatePolicy::Replace;
        // What was never there is written without a look.
        let was_written = || {
            let record = binding.record.as_ref()?;
            record.paths.get(&location.to_string()).filter(|written| written.written)
        };
        let is_wanted = is_checked && (look || binding.changed.is_some()) && was_written().is_some();
        if !is_wanted {
            return None;
        }
        Some(Glance { location: location.clone(), found: self.store.look(location).await })
    }
}
