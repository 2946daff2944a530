//! What is remembered of an object, on the object: which paths were written for it, and how it stands.
//!
//! It is one annotation in JSON. A path is recorded before it is written for the first time, so that no crash leaves one behind that
//! nobody knows of.

use std::collections::BTreeMap;

use jiff::Timestamp;
use konverge_vault::{KvVersion, Location, Mount, SecretPath};
use serde::{Deserialize, Serialize};

use crate::annotations::DeletionPolicy;

/// What stands in `vault-sync.io/status`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// The object's own uid. One that differs came along with a copy or a restored backup, and what is recorded there is another's.
    pub uid: String,
    /// `Synced`, or the reason why not.
    pub state: String,
    /// Since when it is so.
    pub since: Timestamp,
    /// What to do, where it is not `Synced`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The request to look (`vault-sync.io/sync-now`) that this answers: a run that began after it was seen has said what stands here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answered: Option<String>,
    /// How the paths are cleared when they are not wanted any more; for when the annotations have gone that say it.
    pub deletion: DeletionPolicy,
    /// The paths by their spelling in the API.
    #[serde(default)]
    pub paths: BTreeMap<String, Written>,
}

/// What is recorded of a path.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Written {
    /// Where the engine is mounted.
    pub mount: String,
    /// The version of the engine.
    pub kv: u8,
    /// Whether it was written; before that it is an intention.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub written: bool,
    /// The version of the secret that holds what was wanted last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<u64>,
}

/// The state of an object that is in step.
pub const SYNCED: &str = "Synced";

impl Record {
    /// Nothing yet.
    pub fn new(uid: &str, now: Timestamp) -> Self {
        Self {
            uid: uid.to_owned(),
            state: "Pending".to_owned(),
            since: now,
            message: None,
            answered: None,
            deletion: DeletionPolicy::Soft,
            paths: BTreeMap::new(),
        }
    }

    /// Reads the annotation of the object with this uid. What is no record, or another object's, is none.
    pub fn read(text: &str, uid: &str) -> Option<Self> {
        serde_json::from_str::<Self>(text).ok().filter(|record| record.uid == uid)
    }

    /// The text of the annotation.
    pub fn text(&self) -> String {
        // Nothing in it can fail to be JSON: names, numbers and times.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Says how it stands. The time changes only if what is said does.
    pub fn say(&mut self, state: &str, message: Option<String>, now: Timestamp) {
        if self.state != state {
            self.since = now;
        }
        state.clone_into(&mut self.state);
        self.message = message;
    }

    /// Together with the paths of another one that it lacks. Whether those are still in use is not known: they are intentions.
    #[must_use]
    pub fn with_intended(mut self, other: Option<Self>) -> Self {
        for (path, written) in other.into_iter().flat_map(|other| other.paths) {
            self.paths.entry(path).or_insert(Written { written: false, ..written });
        }
        self
    }

    /// Whether the object has to stay until something was cleared.
    pub fn needs_finalizer(&self) -> bool {
        !self.paths.is_empty()
    }

    /// The locations, and what is recorded of each. A text that is no path was not ours and is passed over.
    pub fn locations(&self) -> impl Iterator<Item = (Location, &Written)> {
        self.paths.iter().filter_map(|(path, written)| Some((written.location(path)?, written)))
    }
}

impl Written {
    /// Of a location that is to be written.
    pub fn intended(location: &Location) -> Self {
        let kv = match location.mount().version() {
            KvVersion::One => 1,
            KvVersion::Two => 2,
        };
        Self { mount: location.mount().path().to_owned(), kv, written: false, version: None }
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
    fn a_path_that_somebody_wrote_into_it_leads_nowhere() {
        let mut record = Record::new("1", Timestamp::UNIX_EPOCH);
        for path in ["secret/data/../../sys/raw", "sys/policy", ""] {
            record.paths.insert(path.to_owned(), Written { mount: "secret".to_owned(), kv: 2, ..Written::default() });
        }
        assert_eq!(record.locations().count(), 0);
    }
}
