//! Looks at locations in Vault, where several objects keep keys: what one of them sees counts for all.

use std::collections::BTreeMap;

use konverge_core::digest::ContentDigest;
use tokio::time::Instant;

use super::{Bindings, Verified};
use crate::{object::ObjectRef, record::Written};

/// Another object that has keys at a location, and what of it was in step there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sharer {
    /// The object.
    pub key: ObjectRef,
    /// Its uid.
    pub uid: String,
    /// What is recorded of the location.
    pub written: Written,
    /// What of it was there.
    pub held: ContentDigest,
}

/// A look that is under way. While it is, no other at the location begins.
pub struct Looking<'a> {
    bindings: &'a Bindings,
    location: &'a str,
}

impl Drop for Looking<'_> {
    fn drop(&mut self) {
        self.bindings.lock().looking.remove(self.location);
    }
}

impl Verified {
    /// When the location was last found to hold what it should.
    pub fn seen(&self, location: &str) -> Instant {
        self.seen.get(location).copied().unwrap_or(self.looked)
    }

    /// Each location was found like that at its moment. What was not looked at for the longest time counts for all of it.
    pub fn see(&mut self, mut seen: BTreeMap<String, Instant>, now: Instant) {
        self.looked = seen.values().min().copied().unwrap_or(now);
        seen.retain(|_, at| *at > self.looked);
        self.seen = seen;
    }
}

impl Bindings {
    /// Begins a look at a location; nothing if one is under way.
    pub fn look<'a>(&'a self, location: &'a str) -> Option<Looking<'a>> {
        let is_first = self.lock().looking.insert(location.to_owned());
        is_first.then_some(Looking { bindings: self, location })
    }

    /// Who else has keys at the location that were all there.
    pub fn sharers(&self, key: &ObjectRef, location: &str) -> Vec<Sharer> {
        let inner = self.lock();
        let found = inner.claims.sharing(key, location).filter_map(|other| {
            let binding = inner.bindings.get(other).filter(|binding| binding.verified.is_some())?;
            let written = binding.record.as_ref()?.paths.get(location)?.clone();
            Some(Sharer { key: other.clone(), uid: binding.uid.clone(), written, held: *binding.held.get(location)? })
        });
        found.collect()
    }

    /// All of a location was taken away in which others may have had keys. Returns those, who are not known to be in step any more.
    pub fn doubt_sharers(&self, key: &ObjectRef, location: &str) -> Vec<ObjectRef> {
        let mut inner = self.lock();
        let sharers: Vec<_> = inner.claims.sharing(key, location).cloned().collect();
        for sharer in &sharers {
            if let Some(binding) = inner.bindings.get_mut(sharer) {
                binding.verified = None;
            }
        }
        sharers
    }

    /// When the location was last found to hold what it should for this object, whoever has looked; nothing if the object was not in step since.
    pub fn seen(&self, key: &ObjectRef, location: &str) -> Option<Instant> {
        let inner = self.lock();
        let verified = inner.bindings.get(key)?.verified.as_ref();
        verified.map(|verified| verified.seen(location))
    }

    /// A look that began then found what one who shares the location should have there. That counts only if it is still what was compared.
    pub fn saw(&self, sharer: &Sharer, location: &str, begun: Instant) {
        self.on_object(&sharer.key, &sharer.uid, |now| {
            if now.held.get(location) == Some(&sharer.held)
                && let Some(verified) = &mut now.verified
            {
                let seen = |other: &String| if other == location { begun } else { verified.seen(other) };
                verified.see(now.held.keys().map(|other| (other.clone(), seen(other))).collect(), begun);
            }
        });
    }
}
