//! Reads of locations in which several objects have keys: the response to one of them counts for all.

use std::collections::BTreeMap;

use konverge_core::digest::ContentDigest;
use tokio::time::Instant;

use super::{Bindings, Inner, Share, Verified};
use crate::{object::ObjectRef, record::Written};

/// Another object with keys at a location, and its content there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sharer {
    /// The object.
    pub key: ObjectRef,
    /// Its uid.
    pub uid: String,
    /// Its record of the location.
    pub written: Written,
    /// The content of its keys.
    pub held: ContentDigest,
}

/// A read that is under way. No other read of the location begins until it ends.
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
    /// Returns when the location was last found in sync.
    pub fn seen(&self, location: &str) -> Instant {
        self.seen.get(location).copied().unwrap_or(self.looked)
    }

    /// Notes when each location was verified. The oldest verification counts for the whole object.
    pub fn see(&mut self, mut seen: BTreeMap<String, Instant>, now: Instant) {
        self.looked = seen.values().min().copied().unwrap_or(now);
        seen.retain(|_, at| *at > self.looked);
        self.seen = seen;
    }
}

impl Bindings {
    /// Begins a read of a location. `None` if one is under way.
    pub fn look<'a>(&'a self, location: &'a str) -> Option<Looking<'a>> {
        let is_first = self.lock().looking.insert(location.to_owned());
        is_first.then_some(Looking { bindings: self, location })
    }

    /// The other objects whose keys were all at the location.
    pub fn sharers(&self, key: &ObjectRef, location: &str) -> Vec<Sharer> {
        let inner = self.lock();
        let found = inner.claims.sharing(key, &location.to_owned(), Share::Keys).filter_map(|other| {
            let binding = inner.bindings.get(other).filter(|binding| binding.verified.is_some())?;
            let written = binding.record.as_ref()?.paths.get(location)?.clone();
            Some(Sharer { key: other.clone(), uid: binding.uid.clone(), written, held: *binding.held.get(location)? })
        });
        found.collect()
    }

    /// All of a location was deleted while other objects may have had keys there. Returns these objects, which need a verification now.
    pub fn doubt_sharers(&self, key: &ObjectRef, location: &str) -> Vec<ObjectRef> {
        let mut inner = self.lock();
        let sharers: Vec<_> = inner.claims.sharing(key, &location.to_owned(), Share::Keys).cloned().collect();
        for sharer in &sharers {
            inner.doubt(sharer);
        }
        sharers
    }

    /// A path that the object has by now was cleared for an earlier owner. The object needs a verification now.
    pub fn doubt(&self, key: &ObjectRef) {
        self.lock().doubt(key);
    }

    /// When any object last verified the location for this one. `None` if this one has not been in sync since.
    pub fn seen(&self, key: &ObjectRef, location: &str) -> Option<Instant> {
        let inner = self.lock();
        let verified = inner.bindings.get(key)?.verified.as_ref();
        verified.map(|verified| verified.seen(location))
    }

    /// A read that began then found the keys of a sharer in sync. That counts only if its desired content is still the one that was compared.
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

impl Inner {
    fn doubt(&mut self, key: &ObjectRef) {
        if let Some(binding) = self.bindings.get_mut(key) {
            binding.verified = None;
        }
    }
}
