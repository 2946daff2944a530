//! The record of an object, on the object: the paths that were written for it, and its state.
//!
//! It is one annotation in JSON, or the status of a `VaultPush`. A path is recorded before its first write, so a crash leaves no unknown path behind.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use jiff::Timestamp;
use konverge_apply::conditions::whole_second;
use konverge_vault::{KvVersion, Location, Mount, SecretPath};
use serde::{Deserialize, Serialize};

use crate::spec::DeletionPolicy;

/// The content of `vault-sync.io/status`, or of the status of a `VaultPush`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// The object's own uid. A record with another uid came with a copy or a restored backup, and is another object's.
    pub uid: String,
    /// `Synced`, or the reason why not.
    pub state: String,
    /// The time since when the object has this state.
    pub since: Timestamp,
    /// When all paths were last found in sync, as far as that was known at the last write. It causes no write of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verified: Option<Timestamp>,
    /// The problem and the next step, unless the state is `Synced`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The request (`vault-sync.io/sync-now`) that this answers. A run that began after the operator saw it wrote this record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answered: Option<String>,
    /// How the paths are cleared once nothing requests them. It counts if the annotations that say so are gone.
    pub deletion: DeletionPolicy,
    /// The generation of the object that this is about. Only a `VaultPush` has one, because only its generation changes with its request alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<i64>,
    /// The paths by their spelling in the API.
    #[serde(default)]
    pub paths: BTreeMap<String, Written>,
}

/// The record of a path.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Written {
    /// Where the engine is mounted.
    pub mount: String,
    /// The version of the engine.
    pub kv: u8,
    /// Whether it was written. Before that, it is an intention.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub written: bool,
    /// Since when its first version may have been written, as far as Vault has not told otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub begun: Option<Timestamp>,
    /// The version of the secret that holds what was wanted last; 0 as long as nothing was tried to be written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<u64>,
    /// The time since which the object no longer requests the path. It is cleared after a grace period, unless the object requests it again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unwanted: Option<Timestamp>,
    /// Whether it belongs to another owner and is left alone, as the object requests.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub left: bool,
    /// The keys that were written, where others may have more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keys: Option<BTreeSet<String>>,
    /// The keys that were about to be written there.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub pending: BTreeSet<String>,
}

/// The state of an object in sync.
pub use crate::reasons::SYNCED;

/// The state of an object before anything is known.
pub const PENDING: &str = "Pending";

impl Record {
    /// Nothing yet.
    pub fn new(uid: &str, now: Timestamp) -> Self {
        Self {
            uid: uid.to_owned(),
            state: PENDING.to_owned(),
            since: now,
            verified: None,
            message: None,
            answered: None,
            deletion: DeletionPolicy::Soft,
            generation: None,
            paths: BTreeMap::new(),
        }
    }

    /// Reads the annotation of the object with this uid. Returns `None` for invalid text and for the record of another object.
    pub fn read(text: &str, uid: &str) -> Option<Self> {
        serde_json::from_str::<Self>(text).ok().filter(|record| record.uid == uid)
    }

    /// The text of the annotation.
    pub fn text(&self) -> String {
        // Nothing in it can fail to be JSON: names, numbers and times.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Sets the state. The time changes only with the state. In a status, where it is the time of a condition, it changes only when the object
    /// becomes `Synced` or stops being so.
    pub fn say(&mut self, state: &str, message: Option<String>, now: Timestamp) {
        if self.generation.is_none() {
            if self.state != state {
                self.since = now;
            }
        } else if (self.state == SYNCED) != (state == SYNCED) {
            self.since = whole_second(now);
        }
        state.clone_into(&mut self.state);
        self.message = message;
    }

    /// Adds the paths of another record that this one lacks. They count as intentions, because nobody knows whether they are still in use.
    #[must_use]
    pub fn with_intended(mut self, other: Option<Self>) -> Self {
        for (path, written) in other.into_iter().flat_map(|other| other.paths) {
            self.paths.entry(path).or_insert_with(|| written.doubted());
        }
        self
    }

    /// Returns whether this record says more than the one that another actor has put in its place. Times do not count, because another replica may
    /// have verified since.
    pub fn tells_more_than(&self, shown: Option<&Self>) -> bool {
        shown.is_none_or(|shown| {
            let more = |(path, known): (&String, &Written)| {
                shown.paths.get(path).is_none_or(|found| known.tells_more_than(found))
            };
            self.state != shown.state
                || self.message != shown.message
                || self.deletion != shown.deletion
                || self.paths.iter().any(more)
        })
    }

    /// Returns whether it has paths that the other record lacks.
    pub fn names_more_than(&self, other: &Self) -> bool {
        self.paths.keys().any(|path| !other.paths.contains_key(path))
    }

    /// Records that the object no longer requests the paths, from `now` on unless an earlier time is recorded.
    pub fn leave(&mut self, now: Timestamp) {
        for written in self.paths.values_mut() {
            written.unwanted.get_or_insert(now);
        }
    }

    /// Returns the time until each path that the object no longer requests is due.
    pub fn until_due(&self, grace: Duration, now: Timestamp) -> impl Iterator<Item = Duration> {
        self.paths.values().filter_map(move |written| written.until_due(grace, now))
    }

    /// Returns whether the object must stay until its paths are cleared.
    pub fn needs_finalizer(&self) -> bool {
        !self.paths.is_empty()
    }

    /// Returns `true` if all that is about to be written was written before, so that an earlier record on the object names it.
    pub fn was_written(&self) -> bool {
        self.paths.values().all(|path| path.left || path.written && path.pending.is_empty())
    }

    /// Returns the locations and their records. An invalid path is skipped, because the operator never wrote one.
    pub fn locations(&self) -> impl Iterator<Item = (Location, &Written)> {
        self.paths.iter().filter_map(|(path, written)| Some((written.location(path)?, written)))
    }
}

impl Written {
    /// The record of a location that is to be written.
    pub fn intended(location: &Location) -> Self {
        let kv = match location.mount().version() {
            KvVersion::One => 1,
            KvVersion::Two => 2,
        };
        Self { mount: location.mount().path().to_owned(), kv, ..Self::default() }
    }

    /// The record of a location to which no write was ever tried.
    pub fn untried(location: &Location) -> Self {
        Self { version: Some(0), ..Self::intended(location) }
    }

    /// All of it is about to be written. The first time counts.
    pub fn begin(&mut self, now: Timestamp) {
        if self.version == Some(0) {
            self.version = None;
            self.begun = Some(now);
        }
    }

    /// Some of its keys are about to be written, among keys of others. A location that was written whole is recorded already.
    pub fn intend_keys<'a>(&mut self, keys: impl Iterator<Item = &'a str>) {
        if self.written && self.keys.is_none() {
            return;
        }
        let written = self.keys.get_or_insert_default();
        let new = keys.filter(|key| !written.contains(*key)).map(str::to_owned);
        self.pending.extend(new.collect::<Vec<_>>());
    }

    /// Returns the time until the path is due, if the object no longer requests it. A clock that was set back does not prolong it.
    pub fn until_due(&self, grace: Duration, now: Timestamp) -> Option<Duration> {
        let waited = Duration::try_from(now.duration_since(self.unwanted?)).unwrap_or_default();
        Some(grace.saturating_sub(waited))
    }

    fn tells_more_than(&self, shown: &Self) -> bool {
        let lost = |keys: &BTreeSet<String>| !shown.keys.as_ref().is_some_and(|shown| keys.is_subset(shown));
        self.mount != shown.mount
            || self.kv != shown.kv
            || self.written && !shown.written
            || self.version > shown.version
            || self.keys.as_ref().is_some_and(lost)
    }

    /// Returns the record as an intention.
    fn doubted(self) -> Self {
        let pending = self.pending.into_iter().chain(self.keys.iter().flatten().cloned()).collect();
        Self { written: false, keys: self.keys.map(|_| BTreeSet::new()), pending, ..self }
    }

    fn location(&self, path: &str) -> Option<Location> {
        let version = if self.kv == 1 { KvVersion::One } else { KvVersion::Two };
        Mount::new(&*self.mount, version).location(&SecretPath::parse(path).ok()?).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_survives_and_only_on_its_own_object() {
        let mut record = Record::new("1", Timestamp::UNIX_EPOCH);
        let mount = Mount::new("secret", KvVersion::Two);
        let location = mount.location(&SecretPath::parse("secret/data/a/b").unwrap()).unwrap();
        record
            .paths
            .insert(location.to_string(), Written { written: true, version: Some(3), ..Written::intended(&location) });
        record.say(SYNCED, None, Timestamp::from_second(7).unwrap());
        let text = record.text();
        let read = Record::read(&text, "1").unwrap();
        assert_eq!(read, record);
        assert_eq!(read.locations().map(|(location, _)| location).collect::<Vec<_>>(), [location]);
        assert_eq!(Record::read(&text, "2"), None, "a copy");
        for text in ["", "{}", "null", "[1]", "{\"uid\":\"1\"}"] {
            assert_eq!(Record::read(text, "1"), None, "{text}");
        }
    }

    #[test]
    fn a_write_is_begun_once() {
        let mount = Mount::new("secret", KvVersion::Two);
        let location = mount.location(&SecretPath::parse("secret/data/a").unwrap()).unwrap();
        let [first, second] = [1, 2].map(|second| Timestamp::from_second(second).unwrap());
        let mut written = Written::untried(&location);
        written.begin(first);
        assert_eq!((written.begun, written.version), (Some(first), None));
        written.begin(second);
        assert_eq!(written.begun, Some(first));
        for version in [None, Some(1)] {
            let mut written = Written { version, ..Written::intended(&location) };
            written.begin(first);
            assert_eq!((written.begun, written.version), (None, version), "Vault has said what became of it");
        }
    }

    #[test]
    fn a_path_that_is_no_longer_requested_is_due_after_the_grace_period_whatever_the_clock_does() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let grace = Duration::from_mins(5);
        for (unwanted, now, expected) in [
            (None, 1000, None),
            (Some(1000), 1000, Some(300)),
            (Some(1000), 1100, Some(200)),
            (Some(1000), 1300, Some(0)),
            (Some(1000), 9000, Some(0)),
            (Some(1000), 500, Some(300)),
        ] {
            let written = Written { unwanted: unwanted.map(at), ..Written::default() };
            let rest = written.until_due(grace, at(now));
            assert_eq!(rest, expected.map(Duration::from_secs), "{unwanted:?} {now}");
        }
        let mut record = Record::new("1", at(0));
        record.paths.insert("a".to_owned(), Written { unwanted: Some(at(1)), ..Written::default() });
        record.paths.insert("b".to_owned(), Written::default());
        record.leave(at(9));
        assert_eq!([&record.paths["a"], &record.paths["b"]].map(|path| path.unwanted), [Some(at(1)), Some(at(9))]);
    }

    #[test]
    fn since_is_when_the_state_changed_and_not_the_words() {
        let [one, two, three] = [1, 2, 3].map(|second| Timestamp::from_second(second).unwrap());
        let mut record = Record::new("1", one);
        record.say("VaultSealed", Some("a".to_owned()), two);
        record.say("VaultSealed", Some("b".to_owned()), three);
        assert_eq!((record.since, record.message.as_deref()), (two, Some("b")));
        record.say(SYNCED, None, three);
        assert_eq!((record.since, record.message), (three, None));
    }

    #[test]
    fn what_was_taken_away_or_set_back_is_told_from_what_another_has_added() {
        let mount = Mount::new("secret", KvVersion::Two);
        let [location, other] =
            ["secret/data/a", "secret/data/b"].map(|path| mount.location(&SecretPath::parse(path).unwrap()).unwrap());
        let keys = |keys: &[&str]| Some(keys.iter().map(|key| (*key).to_owned()).collect());
        let written = Written { written: true, version: Some(3), keys: keys(&["k"]), ..Written::intended(&location) };
        let record = |written: &Written| {
            let mut record = Record::new("1", Timestamp::UNIX_EPOCH);
            record.paths.insert(location.to_string(), written.clone());
            record.say(SYNCED, None, Timestamp::UNIX_EPOCH);
            record
        };
        let known = record(&written);
        let mut with_another = known.clone();
        with_another.paths.insert(other.to_string(), Written::untried(&other));
        let mut said_otherwise = known.clone();
        said_otherwise.say(SYNCED, Some("all is well".to_owned()), Timestamp::UNIX_EPOCH);
        let later = Some(Timestamp::MAX);
        for (what, shown, undone, more) in [
            ("taken away", None, true, false),
            ("begun anew", Some(Record::new("1", Timestamp::UNIX_EPOCH)), true, false),
            ("an older version", Some(record(&Written { version: Some(2), ..written.clone() })), true, false),
            ("an intention", Some(record(&Written { written: false, ..written.clone() })), true, false),
            ("other keys", Some(record(&Written { keys: keys(&["l"]), ..written.clone() })), true, false),
            ("all of it instead of keys", Some(record(&Written { keys: None, ..written.clone() })), true, false),
            ("another engine", Some(record(&Written { kv: 1, ..written.clone() })), true, false),
            ("other words", Some(said_otherwise), true, false),
            ("another deletion", Some(Record { deletion: DeletionPolicy::Keep, ..known.clone() }), true, false),
            ("the same", Some(known.clone()), false, false),
            ("looked at since", Some(Record { verified: later, ..known.clone() }), false, false),
            (
                "written by another replica",
                Some(record(&Written { version: Some(4), ..written.clone() })),
                false,
                false,
            ),
            ("one more key", Some(record(&Written { keys: keys(&["k", "l"]), ..written.clone() })), false, false),
            ("one more path", Some(with_another), false, true),
        ] {
            assert_eq!(known.tells_more_than(shown.as_ref()), undone, "{what}");
            assert_eq!(shown.is_some_and(|shown| shown.names_more_than(&known)), more, "{what}");
        }
    }

    #[test]
    fn a_path_that_somebody_wrote_into_it_leads_nowhere() {
        let mut record = Record::new("1", Timestamp::UNIX_EPOCH);
        for path in ["secret/data/../../sys/raw", "sys/policy", ""] {
            record.paths.insert(path.to_owned(), Written { mount: "secret".to_owned(), kv: 2, ..Written::default() });
        }
        assert_eq!(record.locations().count(), 0);
    }
}
