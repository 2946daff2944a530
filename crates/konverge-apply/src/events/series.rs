//! Which events were written lately, so that repetitions are counted instead of written.

use std::{
    collections::HashMap,
    hash::{DefaultHasher, Hash, Hasher},
};

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::runtime::events::EventType;

use super::Notice;

/// How long after the last one an event counts as a repetition: as long as in client-go.
const REPEATS: SignedDuration = SignedDuration::from_secs(360);

/// Events remembered before those that are too old to be repeated are forgotten; when all are young, all are.
const REMEMBERED: usize = 4096;

/// The identity of an event: two events with the same one form a series. The note is part of it: a series keeps its first note, and one that names another cause would tell the
/// wrong story. How many different ones an object may have is limited elsewhere.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Key {
    kind: EventType,
    reason: &'static str,
    action: &'static str,
    object: [Option<String>; 5],
    /// A digest, since notes are long and many.
    note: u64,
}

impl Key {
    pub(super) fn of(notice: &Notice) -> Self {
        let regarding = notice.regarding.clone();
        Self {
            kind: notice.kind,
            reason: notice.reason,
            action: notice.action,
            object: [regarding.api_version, regarding.kind, regarding.namespace, regarding.name, regarding.uid],
            note: digest(&notice.note),
        }
    }
}

fn digest(note: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    note.hash(&mut hasher);
    hasher.finish()
}

struct Last {
    name: String,
    count: i32,
    at: Timestamp,
}

#[derive(Default)]
pub(super) struct Series(HashMap<Key, Last>);

impl Series {
    /// Name and next count of the event that this one repeats.
    pub(super) fn repeated(&self, key: &Key, now: Timestamp) -> Option<(String, i32)> {
        let last = self.0.get(key).filter(|last| now.duration_since(last.at) < REPEATS)?;
        Some((last.name.clone(), last.count.saturating_add(1)))
    }

    /// The event has been written, or its count raised.
    pub(super) fn counted(&mut self, key: Key, name: String, count: i32, now: Timestamp) {
        if self.0.len() >= REMEMBERED && !self.0.contains_key(&key) {
            self.0.retain(|_, last| now.duration_since(last.at) < REPEATS);
            if self.0.len() >= REMEMBERED {
                self.0.clear();
            }
        }
        self.0.insert(key, Last { name, count, at: now });
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::{api::core::v1::ObjectReference, jiff::SignedDuration};

    use super::*;

    fn key(name: &str, reason: &'static str, note: &str) -> Key {
        Key::of(&Notice {
            regarding: ObjectReference { name: Some(name.to_owned()), ..ObjectReference::default() },
            kind: EventType::Normal,
            reason,
            action: "Test",
            note: note.to_owned(),
        })
    }

    fn start() -> Timestamp {
        Timestamp::from_second(1_700_000_000).expect("a time")
    }

    #[test]
    fn a_repetition_is_the_same_with_the_same_note_and_comes_soon() {
        let mut series = Series::default();
        assert_eq!(series.repeated(&key("a", "R", ""), start()), None);
        series.counted(key("a", "R", "one"), "event".to_owned(), 1, start());
        let soon = start() + SignedDuration::from_secs(300);
        assert_eq!(series.repeated(&key("a", "R", "one"), soon), Some(("event".to_owned(), 2)));
        assert_eq!(series.repeated(&key("a", "R", "two"), soon), None);
        assert_eq!(series.repeated(&key("a", "Other", "one"), soon), None);
        assert_eq!(series.repeated(&key("b", "R", "one"), soon), None);
        series.counted(key("a", "R", "one"), "event".to_owned(), 2, soon);
        assert!(series.repeated(&key("a", "R", "one"), soon + SignedDuration::from_secs(300)).is_some());
        assert!(series.repeated(&key("a", "R", "one"), soon + REPEATS).is_none());
    }

    #[test]
    fn memory_stays_bounded() {
        let mut series = Series::default();
        for number in 0..REMEMBERED {
            series.counted(key(&number.to_string(), "R", ""), String::new(), 1, start());
        }
        series.counted(key("young", "R", ""), String::new(), 1, start());
        assert_eq!(series.0.len(), 1);
    }
}
