//! Which objects are known, and what a listing changes about it. Pure: no store, no clock.

use std::collections::BTreeMap;

use object_store::ObjectMeta;

use crate::{ChangeKind, Entries, FingerprintKey};

/// The known objects, by path.
#[derive(Default)]
pub(super) struct Known {
    objects: BTreeMap<String, Seen>,
    /// Counts listings, so that what a listing did not show is told from what it did without a second map.
    listing: u64,
}

struct Seen {
    fingerprint: String,
    /// The last listing that showed it.
    listing: u64,
    /// Complete listings in a row that did not.
    missing: u32,
}

/// A listed object that is new or looks different.
pub(super) struct Candidate {
    pub(super) meta: ObjectMeta,
    pub(super) kind: ChangeKind,
    pub(super) fingerprint: String,
}

impl Known {
    pub(super) fn recall(&mut self, entries: Entries) {
        let seen = |fingerprint| Seen { fingerprint, listing: 0, missing: 0 };
        self.objects = entries.into_iter().map(|(path, fingerprint)| (path, seen(fingerprint))).collect();
    }

    pub(super) fn remembered(&self) -> Entries {
        self.objects.iter().map(|(path, seen)| (path.clone(), seen.fingerprint.clone())).collect()
    }

    /// A listing begins. If it does not end, what it showed counts as nothing.
    pub(super) fn begin(&mut self) {
        self.listing += 1;
    }

    /// The listing shows an object. New objects become known only by [`Known::learn`].
    pub(super) fn show(&mut self, meta: ObjectMeta, key: &FingerprintKey) -> Option<Candidate> {
        let fingerprint = fingerprint(&meta, key);
        let kind = match self.objects.get_mut(meta.location.as_ref()) {
            None => ChangeKind::Added,
            Some(seen) => {
                seen.listing = self.listing;
                if seen.fingerprint == fingerprint {
                    return None;
                }
                ChangeKind::Modified
            }
        };
        Some(Candidate { meta, kind, fingerprint })
    }

    /// The listing is complete. Objects that several listings in a row lacked are removed and returned.
    pub(super) fn end(&mut self, removed_after: u32) -> Vec<String> {
        let listing = self.listing;
        for seen in self.objects.values_mut() {
            seen.missing = if seen.listing == listing { 0 } else { seen.missing.saturating_add(1) };
        }
        let mut gone = Vec::new();
        self.objects.retain(|path, seen| {
            let stays = seen.missing < removed_after.max(1);
            if !stays {
                gone.push(path.clone());
            }
            stays
        });
        gone
    }

    /// From now on the object is known to look like this.
    pub(super) fn learn(&mut self, path: String, fingerprint: String) {
        self.objects.insert(path, Seen { fingerprint, listing: self.listing, missing: 0 });
    }
}

/// By the first of these that the store tells: entity tag, version, size with time. Rewriting the same content changes
/// no tag of S3, and that is no change.
fn fingerprint(meta: &ObjectMeta, key: &FingerprintKey) -> String {
    match (&meta.e_tag, &meta.version) {
        (Some(tag), _) => key.fingerprint(&[b"etag", tag.as_bytes()]),
        (None, Some(version)) => key.fingerprint(&[b"version", version.as_bytes()]),
        (None, None) => {
            let time = (meta.last_modified.timestamp(), meta.last_modified.timestamp_subsec_nanos());
            key.fingerprint(&[b"size and time", &meta.size.to_be_bytes(), &time.0.to_be_bytes(), &time.1.to_be_bytes()])
        }
    }
}

#[cfg(test)]
mod tests;
