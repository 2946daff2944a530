//! Tells the echo of a process's own writes from the changes of others.
//!
//! A watch shows each write of this process again, some time after its answer. A controller that takes such an echo for a change does its
//! work twice. A controller that drops too much misses changes of others. [`OwnWrites`] decides, without IO, locks or a clock of its own.

use std::{collections::HashMap, hash::Hash, time::Duration};

use tokio::time::Instant;

use crate::version::is_older;

/// How long an echo is awaited. The watch has failed for that long if it comes later, and then an event counts as a change: at worst, work is
/// done once more.
const ECHO_WITHIN: Duration = Duration::from_secs(30);

/// The writes of this process that the watch has not shown yet, by object.
///
/// # Guarantees
///
/// - An event is [`New`](Freshness::New) unless one of the process's own writes to the same object, by its uid, explains it.
///
/// - After 30 seconds without its echo, a write explains nothing any more, so a lost echo hides no later change.
///
/// - A write to an object says nothing about another object of the same name, except that versions before the write are stale.
///
/// A write must be noted before the next event of its object is classified. Otherwise, its echo counts as a change.
#[derive(Debug, Clone)]
pub struct OwnWrites<Key>(HashMap<Key, Pending>);

/// The writes to one object.
#[derive(Debug, Clone)]
struct Pending {
    since: Instant,
    uid: Option<String>,
    /// The versions that the writes made.
    versions: Vec<String>,
    /// Whether the last write was a deletion that ended the object.
    is_deleted: bool,
}

/// The meaning of an event of a watch, in the light of the process's own writes. No variant will be added, so that a match on it can be
/// exhaustive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Freshness {
    /// A change of another client that is newer than everything this process has written.
    New,
    /// A write of this process.
    Echo,
    /// A change of another client from before the last write of this process. It happened, but what this process knows is newer.
    Stale,
}

// Derived, it would ask for `Key: Default`.
impl<Key> Default for OwnWrites<Key> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<Key: Clone + Eq + Hash> OwnWrites<Key> {
    /// Notes a write of this process, which made this version of the object.
    pub fn wrote(&mut self, key: &Key, uid: Option<&str>, version: &str, now: Instant) {
        let pending = self.pending(key, uid, now);
        pending.versions.push(version.to_owned());
        pending.is_deleted = false;
    }

    /// Notes a deletion by this process that ended the object.
    pub fn deleted(&mut self, key: &Key, uid: Option<&str>, now: Instant) {
        self.pending(key, uid, now).is_deleted = true;
    }

    /// Classifies an event by which the object exists in this version.
    pub fn classify(&mut self, key: &Key, uid: Option<&str>, version: &str, now: Instant) -> Freshness {
        let Some(pending) = self.current(key, uid, now) else {
            let is_predecessor = self.waiting(key, now).is_some_and(|pending| pending.is_newer_than(version));
            return if is_predecessor { Freshness::Stale } else { Freshness::New };
        };
        if let Some(position) = pending.versions.iter().position(|own| own == version) {
            // A watch shows versions in their order, so it will not show the earlier ones any more.
            pending.versions.drain(..=position);
            let is_all_shown = pending.versions.is_empty() && !pending.is_deleted;
            if is_all_shown {
                self.0.remove(key);
            }
            return Freshness::Echo;
        }
        if pending.is_deleted || pending.is_newer_than(version) {
            return Freshness::Stale;
        }
        self.0.remove(key);
        Freshness::New
    }

    /// Classifies an event by which the object is deleted.
    pub fn classify_deletion(&mut self, key: &Key, uid: Option<&str>, now: Instant) -> Freshness {
        let is_own = self.current(key, uid, now).is_some_and(|pending| pending.is_deleted);
        if is_own || self.0.get(key).is_some_and(|pending| pending.uid.as_deref() == uid) {
            self.0.remove(key);
        }
        if is_own { Freshness::Echo } else { Freshness::New }
    }

    /// Returns whether the watch has not shown a write to this very object yet.
    pub fn awaits(&mut self, key: &Key, uid: Option<&str>, now: Instant) -> bool {
        self.current(key, uid, now).is_some()
    }

    /// Returns whether the watch has not shown a write to some object of this name yet.
    pub fn awaits_any(&mut self, key: &Key, now: Instant) -> bool {
        self.waiting(key, now).is_some()
    }

    /// Forgets the writes to an object whose echo will not come.
    pub fn forget(&mut self, key: &Key) {
        self.0.remove(key);
    }

    /// Forgets the writes to all objects but those for which `keep` returns true.
    pub fn retain(&mut self, mut keep: impl FnMut(&Key) -> bool) {
        self.0.retain(|key, _| keep(key));
    }

    /// Forgets writes whose echo is not awaited any more. To be called from time to time, so that lost echoes take no memory.
    pub fn sweep(&mut self, now: Instant) {
        self.0.retain(|_, pending| pending.is_awaited(now));
    }

    /// Returns whether no echo is awaited.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn pending(&mut self, key: &Key, uid: Option<&str>, now: Instant) -> &mut Pending {
        let fresh = || Pending { since: now, uid: uid.map(ToOwned::to_owned), versions: Vec::new(), is_deleted: false };
        let pending = self.0.entry(key.clone()).or_insert_with(fresh);
        if pending.uid.as_deref() != uid {
            *pending = fresh();
        }
        pending.since = now;
        pending
    }

    /// The writes to this very object. An object that was created again under the same name is another one.
    fn current(&mut self, key: &Key, uid: Option<&str>, now: Instant) -> Option<&mut Pending> {
        self.waiting(key, now).filter(|pending| pending.uid.as_deref() == uid)
    }

    fn waiting(&mut self, key: &Key, now: Instant) -> Option<&mut Pending> {
        self.0.get_mut(key).filter(|pending| pending.is_awaited(now))
    }
}

impl Pending {
    /// Whether a write came after this version.
    fn is_newer_than(&self, version: &str) -> bool {
        self.versions.iter().any(|own| is_older(version, own))
    }

    fn is_awaited(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.since) < ECHO_WITHIN
    }
}

#[cfg(test)]
mod tests {
    use super::{Freshness::*, *};

    /// One step in the life of the object `o`: its uid, and the version where there is one.
    #[derive(Debug, Clone, Copy)]
    enum Step {
        Wrote(&'static str, &'static str),
        Deleted(&'static str),
        Shown(&'static str, &'static str, Freshness),
        Gone(&'static str, Freshness),
        Passed(Duration),
        /// No echo is awaited.
        Settled,
    }
    use Step::{Deleted, Gone, Passed, Settled, Shown, Wrote};

    fn check(what: &str, steps: &[Step]) {
        let (mut own, mut now, key) = (OwnWrites::<&str>::default(), Instant::now(), "o");
        for (number, step) in steps.iter().enumerate() {
            let place = format!("{what}: step {number}, {step:?}");
            match *step {
                Wrote(uid, version) => own.wrote(&key, Some(uid), version, now),
                Deleted(uid) => own.deleted(&key, Some(uid), now),
                Shown(uid, version, expected) => {
                    assert_eq!(own.classify(&key, Some(uid), version, now), expected, "{place}");
                }
                Gone(uid, expected) => assert_eq!(own.classify_deletion(&key, Some(uid), now), expected, "{place}"),
                Passed(time) => now += time,
                Settled => {
                    own.sweep(now);
                    assert!(own.is_empty() && !own.awaits_any(&key, now), "{place}");
                }
            }
        }
    }

    #[test]
    fn an_echo_is_told_from_the_changes_of_others() {
        check("never written", &[Shown("u", "1", New), Settled]);
        check("once", &[Wrote("u", "10"), Shown("u", "10", Echo), Settled, Shown("u", "11", New)]);
        check("a change from before", &[Wrote("u", "10"), Shown("u", "9", Stale), Shown("u", "10", Echo), Settled]);
        check("a change from after", &[Wrote("u", "10"), Shown("u", "12", New), Settled]);
        let both = [Wrote("u", "10"), Wrote("u", "11"), Shown("u", "10", Echo), Shown("u", "11", Echo), Settled];
        check("two writes", &both);
        let skipped = [Wrote("u", "10"), Wrote("u", "12"), Shown("u", "11", Stale), Shown("u", "12", Echo), Settled];
        check("the change of another between two writes", &skipped);
        check("the first of two is not shown", &[Wrote("u", "10"), Wrote("u", "11"), Shown("u", "11", Echo), Settled]);
        check("shown twice", &[Wrote("u", "10"), Shown("u", "10", Echo), Shown("u", "10", New)]);
    }

    #[test]
    fn versions_without_an_order_are_equal_or_new() {
        check("no numbers", &[Wrote("u", "x"), Shown("u", "x", Echo), Settled]);
        check("another one", &[Wrote("u", "x"), Shown("u", "a", New), Settled]);
    }

    #[test]
    fn a_late_echo_is_one_and_a_lost_one_hides_no_change() {
        let nearly = Duration::from_millis(29_999);
        check("late", &[Wrote("u", "10"), Passed(nearly), Shown("u", "10", Echo), Settled]);
        let again = [Wrote("u", "10"), Passed(nearly), Wrote("u", "11"), Passed(nearly), Shown("u", "10", Echo)];
        check("each write begins the time anew", &again);
        check("lost", &[Wrote("u", "10"), Passed(ECHO_WITHIN), Settled, Shown("u", "9", New), Shown("u", "10", New)]);
        check("a lost deletion", &[Deleted("u"), Passed(ECHO_WITHIN), Shown("u", "9", New)]);
    }

    #[test]
    fn a_deleted_object_does_not_come_back_but_its_successor_does() {
        check("deleted", &[Deleted("u"), Shown("u", "9", Stale), Gone("u", Echo), Settled]);
        check("created again", &[Deleted("u"), Shown("v", "20", New), Gone("u", Echo), Settled]);
        check(
            "written and deleted",
            &[Wrote("u", "10"), Deleted("u"), Shown("u", "10", Echo), Gone("u", Echo), Settled],
        );
        let recreated =
            [Deleted("u"), Wrote("v", "12"), Shown("u", "9", Stale), Gone("u", New), Shown("v", "12", Echo)];
        check("deleted and created again by this process", &recreated);
        let foreign = [Wrote("u", "10"), Shown("v", "20", New), Shown("v", "9", Stale)];
        check("created again by another, whose echo is another object's", &foreign);
    }

    #[test]
    fn the_deletion_of_another_is_new_and_ends_the_wait() {
        check("written", &[Wrote("u", "10"), Gone("u", New), Settled]);
        check("a predecessor", &[Wrote("v", "10"), Gone("u", New), Shown("v", "10", Echo)]);
        check("never written", &[Gone("u", New), Settled]);
    }

    #[test]
    fn objects_are_awaited_and_forgotten_one_by_one() {
        let (mut own, now) = (OwnWrites::default(), Instant::now());
        for key in ["a", "b", "c"] {
            own.wrote(&key, Some("u"), "10", now);
        }
        own.forget(&"a");
        own.retain(|key| *key != "b");
        assert!(!own.awaits_any(&"a", now) && !own.awaits_any(&"b", now));
        assert!(own.awaits(&"c", Some("u"), now) && !own.awaits(&"c", Some("v"), now));
    }
}
