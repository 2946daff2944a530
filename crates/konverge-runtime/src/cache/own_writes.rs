//! Which events of a watch are the echo of what this process wrote.

use std::{collections::HashMap, time::Duration};

use tokio::time::Instant;

use super::unshown::is_in;
use crate::{object::ObjectKey, version::is_older};

/// An echo that has not come by then is not taken for one any more. What is older than our write stays older, see
/// [`Unshown`](super::unshown::Unshown).
const ECHO_WITHIN: Duration = Duration::from_secs(30);

/// Writes of this process that the watch has not shown yet.
#[derive(Debug, Default)]
pub(super) struct OwnWrites(HashMap<ObjectKey, Pending>);

#[derive(Debug)]
struct Pending {
    since: Instant,
    uid: Option<String>,
    /// The versions that our writes made.
    versions: Vec<String>,
    /// Whether the last of them was a deletion that ended the object.
    deleted: bool,
}

/// What an event of the watch is, in the light of our own writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reading {
    /// Somebody else's change, and newer than all we know.
    News,
    /// What we wrote ourselves, known already.
    Echo,
    /// Somebody else's change from before our last write: it happened, but what we know is newer.
    Overtaken,
}

impl OwnWrites {
    /// Remembers that a write of ours made this version.
    pub(super) fn wrote(&mut self, key: &ObjectKey, uid: Option<&str>, version: &str, now: Instant) {
        let pending = self.pending(key, uid, now);
        pending.versions.push(version.to_owned());
        pending.deleted = false;
    }

    /// Remembers that a deletion of ours ended this object.
    pub(super) fn deleted(&mut self, key: &ObjectKey, uid: Option<&str>, now: Instant) {
        self.pending(key, uid, now).deleted = true;
    }

    /// Reads an event that says that the object exists in this version.
    pub(super) fn read_apply(&mut self, key: &ObjectKey, uid: Option<&str>, version: &str, now: Instant) -> Reading {
        let Some(pending) = self.current(key, uid, now) else {
            let is_predecessor = self.waiting(key, now).is_some_and(|pending| pending.is_newer_than(version));
            return if is_predecessor { Reading::Overtaken } else { Reading::News };
        };
        if let Some(position) = pending.versions.iter().position(|own| own == version) {
            // Versions come in their order, so those before it were never shown and never will be.
            pending.versions.drain(..=position);
            let all_seen = pending.versions.is_empty() && !pending.deleted;
            if all_seen {
                self.0.remove(key);
            }
            return Reading::Echo;
        }
        if pending.deleted || pending.is_newer_than(version) {
            return Reading::Overtaken;
        }
        self.0.remove(key);
        Reading::News
    }

    /// Reads an event that says that the object is gone.
    pub(super) fn read_delete(&mut self, key: &ObjectKey, uid: Option<&str>, now: Instant) -> Reading {
        let was_ours = self.current(key, uid, now).is_some_and(|pending| pending.deleted);
        if was_ours || self.0.get(key).is_some_and(|pending| pending.uid.as_deref() == uid) {
            self.0.remove(key);
        }
        if was_ours { Reading::Echo } else { Reading::News }
    }

    /// Whether a write of ours to this very object has not been shown yet.
    pub(super) fn awaits(&mut self, key: &ObjectKey, uid: Option<&str>, now: Instant) -> bool {
        self.current(key, uid, now).is_some()
    }

    /// Whether a write of ours to any object of this name has not been shown yet.
    pub(super) fn awaits_any(&mut self, key: &ObjectKey, now: Instant) -> bool {
        self.waiting(key, now).is_some()
    }

    /// Forgets the writes to an object whose echo will not come.
    pub(super) fn forget(&mut self, key: &ObjectKey) {
        self.0.remove(key);
    }

    /// Forgets the writes to all objects in `namespace`, or everywhere.
    pub(super) fn forget_all(&mut self, namespace: Option<&str>) {
        self.0.retain(|key, _| !is_in(key, namespace));
    }

    /// Forgets what will not be shown any more.
    pub(super) fn sweep(&mut self, now: Instant) {
        self.0.retain(|_, pending| now.saturating_duration_since(pending.since) < ECHO_WITHIN);
    }

    fn pending(&mut self, key: &ObjectKey, uid: Option<&str>, now: Instant) -> &mut Pending {
        let fresh = || Pending { since: now, uid: uid.map(ToOwned::to_owned), versions: Vec::new(), deleted: false };
        let pending = self.0.entry(key.clone()).or_insert_with(fresh);
        if pending.uid.as_deref() != uid {
            *pending = fresh();
        }
        pending.since = now;
        pending
    }

    /// What is waited for of this very object; an object recreated under the same name is another.
    fn current(&mut self, key: &ObjectKey, uid: Option<&str>, now: Instant) -> Option<&mut Pending> {
        self.waiting(key, now).filter(|pending| pending.uid.as_deref() == uid)
    }

    fn waiting(&mut self, key: &ObjectKey, now: Instant) -> Option<&mut Pending> {
        self.0.get_mut(key).filter(|pending| now.saturating_duration_since(pending.since) < ECHO_WITHIN)
    }
}

impl Pending {
    /// Whether a write of ours came after this version.
    fn is_newer_than(&self, version: &str) -> bool {
        self.versions.iter().any(|own| is_older(version, own))
    }
}

#[cfg(test)]
mod tests {
    use super::{Reading::*, *};

    fn key() -> ObjectKey {
        ObjectKey::namespaced("a", "b")
    }

    #[test]
    fn the_echo_of_a_write_is_known_and_what_came_before_it_is_not_lost() {
        let now = Instant::now();
        let mut own = OwnWrites::default();
        own.wrote(&key(), Some("u"), "10", now);
        assert_eq!(own.read_apply(&key(), Some("u"), "9", now), Overtaken);
        assert_eq!(own.read_apply(&key(), Some("u"), "10", now), Echo);
        assert_eq!(own.read_apply(&key(), Some("u"), "11", now), News);
    }

    #[test]
    fn what_is_newer_than_our_write_is_news() {
        let now = Instant::now();
        let mut own = OwnWrites::default();
        own.wrote(&key(), Some("u"), "10", now);
        assert_eq!(own.read_apply(&key(), Some("u"), "12", now), News);
        assert!(own.0.is_empty());
    }

    #[test]
    fn after_our_deletion_the_object_does_not_come_back_but_its_successor_does() {
        let now = Instant::now();
        let mut own = OwnWrites::default();
        own.deleted(&key(), Some("u"), now);
        assert_eq!(own.read_apply(&key(), Some("u"), "9", now), Overtaken);
        assert_eq!(own.read_apply(&key(), Some("v"), "20", now), News);
        assert_eq!(own.read_delete(&key(), Some("u"), now), Echo);
        assert!(own.0.is_empty());
    }

    #[test]
    fn somebody_elses_deletion_is_news() {
        let now = Instant::now();
        let mut own = OwnWrites::default();
        own.wrote(&key(), Some("u"), "10", now);
        assert_eq!(own.read_delete(&key(), Some("u"), now), News);
        assert!(own.0.is_empty());
    }

    #[test]
    fn an_echo_is_not_waited_for_for_ever() {
        let now = Instant::now();
        let mut own = OwnWrites::default();
        own.wrote(&key(), Some("u"), "10", now);
        let later = now + ECHO_WITHIN;
        assert_eq!(own.read_apply(&key(), Some("u"), "9", later), News);
        own.sweep(later);
        assert!(own.0.is_empty());
    }
}
