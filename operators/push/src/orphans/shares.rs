//! The parts of the list of orphans that namespaces take up. Users may write the records of their objects, so without a limit one namespace could
//! fill the list.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

/// The number of bytes that the orphans of one namespace may take up, an eighth of the 1 MiB that a `ConfigMap` holds.
const LIMIT: usize = 128 * 1024;

/// The orphans of the namespace would take up more than their share of the list.
#[derive(Debug, thiserror::Error)]
#[error("the entries of namespace {namespace} would take up {bytes} bytes, and {LIMIT} are allowed")]
pub struct ShareExceeded {
    namespace: String,
    bytes: usize,
}

/// The lengths of all entries of the list, with those that are being written.
#[derive(Default)]
pub(super) struct Shares(Mutex<HashMap<String, Entry>>);

struct Entry {
    namespace: String,
    bytes: usize,
    /// Whether a read or a write has shown the entry in the list.
    is_listed: bool,
}

/// The place of an entry that is being written. Without [`keep`](Self::keep), it ends with this value.
pub(super) struct Reserved<'a> {
    shares: &'a Shares,
    uid: String,
}

impl Shares {
    /// Reserves the place of an entry, which may replace one of the same object.
    pub(super) fn reserve(&self, namespace: &str, uid: &str, bytes: usize) -> Result<Reserved<'_>, ShareExceeded> {
        let mut entries = self.lock();
        let others = entries.iter().filter(|(of, entry)| *of != uid && entry.namespace == namespace);
        let all = others.map(|(_, entry)| entry.bytes).sum::<usize>() + bytes;
        if all > LIMIT {
            return Err(ShareExceeded { namespace: namespace.to_owned(), bytes: all });
        }
        let is_listed = entries.get(uid).is_some_and(|entry| entry.is_listed);
        entries.insert(uid.to_owned(), Entry { namespace: namespace.to_owned(), bytes, is_listed });
        Ok(Reserved { shares: self, uid: uid.to_owned() })
    }

    /// Replaces the listed entries with those of a read: the namespace, the uid and the length of each.
    pub(super) fn list(&self, read: Vec<(String, String, usize)>) {
        let mut entries = self.lock();
        entries.retain(|_, entry| !entry.is_listed);
        entries
            .extend(read.into_iter().map(|(namespace, uid, bytes)| (uid, Entry { namespace, bytes, is_listed: true })));
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Entry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Reserved<'_> {
    /// Keeps the place, because the entry is written.
    pub(super) fn keep(self) {
        if let Some(entry) = self.shares.lock().get_mut(&self.uid) {
            entry.is_listed = true;
        }
    }
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        let mut entries = self.shares.lock();
        if entries.get(&self.uid).is_some_and(|entry| !entry.is_listed) {
            entries.remove(&self.uid);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_that_are_being_written_count_until_they_fail() {
        let shares = Shares::default();
        let first = shares.reserve("shop", "1", LIMIT - 10).unwrap();
        assert!(shares.reserve("shop", "2", 11).is_err());
        shares.reserve("other", "3", LIMIT).unwrap().keep();
        shares.reserve("shop", "1", LIMIT).unwrap().keep();
        drop(first);
        assert!(shares.reserve("shop", "2", 1).is_err(), "the entry is written");
        shares.list(vec![("shop".to_owned(), "4".to_owned(), 10)]);
        let failed = shares.reserve("shop", "2", LIMIT - 10).unwrap();
        assert!(shares.reserve("shop", "5", 1).is_err());
        drop(failed);
        assert!(shares.reserve("shop", "5", LIMIT - 10).is_ok());
        assert!(shares.reserve("other", "6", LIMIT).is_ok(), "a read without the entry ends it");
    }
}
