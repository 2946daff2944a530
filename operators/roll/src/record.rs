//! The record on a workload: the content that its pods run with, and the writes of this process that the annotation does not show.
//!
//! [`Record`] and [`Entry`] are the annotation. [`RecordState`] adds the writes of this process: a [`RevertGuard`] for a record that another client
//! removed, and an [`UnacknowledgedRollout`] whose response was lost.

use std::{collections::BTreeMap, fmt, time::Duration};

use jiff::{SignedDuration, Timestamp};
use konverge_core::revert_backoff::RevertBackoff;
use serde::{Deserialize, Serialize, de};

use crate::{object::SourceName, time::Time, vault::Version};

/// The content of the annotation [`RECORD`](crate::annotations::RECORD).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// A keyed digest that ties the record to its object and its digest key. A record with another tag does not count: it came with a copy or a
    /// restored backup, or the key was lost.
    pub tag: String,
    /// The content that the pods run with, by the name of the source.
    pub content: BTreeMap<String, Entry>,
    /// The time of the last rollout.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rolled: Option<Timestamp>,
    /// The reason for the last rollout.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub because: Option<String>,
    /// The other sources of the last rollout. The reason names only a few.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub also: Vec<String>,
    /// The time at which the last rollout failed, because its pods did not become available in time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<Timestamp>,
}

/// The content of one source that the pods run with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// A digest of the selected keys. Entries for different selections are not comparable.
    pub selection: String,
    /// The content of the selected keys.
    pub content: Content,
    /// The version in Vault, if the source is there and has versions. Only used to find the older of two contents.
    pub version: Option<Version>,
}

/// The content of a source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// The source does not exist.
    Absent,
    /// A digest in hexadecimal digits.
    Digest(String),
}

/// The text for a source that does not exist.
const ABSENT: &str = "absent";

/// The separator before the number of a version and before its time. Neither contains it.
const BEFORE_VERSION: char = '@';

/// The prefix of an entry for a Secret that a rollout waits for.
const AWAITED: &str = "Awaited/";

/// The prefix of an entry for a Secret that had not followed when the workload was rolled without it.
const LATE: &str = "Late/";

/// The longest pause between two restorations. A longer time without a revert ends a series of reverts.
const LONGEST_PAUSE: Duration = Duration::from_mins(10);

impl Record {
    /// Returns the record of a rollout for these sources.
    pub fn of_rollout(
        tag: String,
        content: BTreeMap<String, Entry>,
        (rolled, because): (Timestamp, &str),
        changed: &[SourceName],
    ) -> Self {
        let because = Some(because.to_owned());
        let record = Self { tag, content, rolled: Some(rolled), because, also: Vec::new(), failed: None };
        let also = changed.iter().map(ToString::to_string).filter(|source| !record.is_for(source)).collect();
        Self { also, ..record }
    }

    /// Returns the record of this content without a rollout. Keeps the data of the last rollout.
    pub fn of_content(tag: String, content: BTreeMap<String, Entry>, before: Option<&Self>) -> Self {
        match before.cloned() {
            Some(before) => Self { tag, content, ..before },
            None => Self { tag, content, rolled: None, because: None, also: Vec::new(), failed: None },
        }
    }

    /// Reads the annotation. Returns `None` if the text is no record, or has another tag.
    pub fn read(text: &str, tag: &str) -> Option<Self> {
        Self::of_any(text).filter(|record| record.tag == tag)
    }

    /// Reads the annotation of any object, made with any key. Returns `None` if the text is no record.
    pub fn of_any(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }

    /// Returns `true` if this source was a reason for the last rollout.
    pub fn is_for(&self, source: &str) -> bool {
        // The blank prevents a match with a longer name.
        let is_named = |because: &String| because.contains(&format!("{source} "));
        self.because.as_ref().is_some_and(is_named) || self.also.iter().any(|also| also == source)
    }

    /// Returns the text of the annotation.
    pub fn text(&self) -> String {
        // Names, digits and times always serialise as JSON.
        serde_json::to_string(self).unwrap_or_default()
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let content = match &self.content {
            Content::Absent => ABSENT,
            Content::Digest(digest) => digest,
        };
        write!(out, "{}.{content}", self.selection)?;
        match &self.version {
            Some(Version { number, created }) => write!(out, "{BEFORE_VERSION}{number}{BEFORE_VERSION}{created}"),
            None => Ok(()),
        }
    }
}

impl Entry {
    /// Returns `true` if the entry is certainly older than the other one, as from a server or an operator that lags behind.
    pub fn is_before(&self, other: &Self) -> bool {
        self.version.as_ref().zip(other.version.as_ref()).is_some_and(|(one, another)| one.is_before(another))
    }
}

impl Serialize for Entry {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Entry {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let (selection, content) = text.split_once('.').ok_or_else(|| de::Error::custom("an entry has two parts"))?;
        let (content, version) = match content.split_once(BEFORE_VERSION) {
            None => (content, None),
            Some((content, version)) => {
                let parts = version.split_once(BEFORE_VERSION).and_then(|(number, created)| {
                    Some(Version { number: number.parse().ok()?, created: created.to_owned() })
                });
                (content, Some(parts.ok_or_else(|| de::Error::custom("a version has a number and a time"))?))
            }
        };
        let content = match content {
            ABSENT => Content::Absent,
            digest => Content::Digest(digest.to_owned()),
        };
        Ok(Self { selection: selection.to_owned(), content, version })
    }
}

/// Returns the name of the entry for a Secret that a rollout waits for.
pub fn awaited(secret: &SourceName) -> String {
    format!("{AWAITED}{}", secret.name)
}

/// Returns the name of the entry for a Secret that had not followed.
pub fn late(secret: &SourceName) -> String {
    format!("{LATE}{}", secret.name)
}

/// Returns the Secret of an entry, if a rollout waits or waited for it.
pub fn secret_of(text: &str) -> Option<SourceName> {
    text.strip_prefix(AWAITED).or_else(|| text.strip_prefix(LATE)).map(SourceName::secret)
}

/// Returns `true` if an entry only serves for comparison, and is no reason for a rollout.
pub fn is_for_comparison(text: &str) -> bool {
    text.starts_with(AWAITED)
}

/// Returns the Secret of an entry for a Secret that had not followed.
pub fn late_secret_of(text: &str) -> Option<SourceName> {
    text.strip_prefix(LATE).map(SourceName::secret)
}

/// The record of a workload: the annotation, and the writes of this process that it does not show.
#[derive(Debug, Clone, Default)]
pub struct RecordState {
    /// The observed annotation, even if another client wrote it.
    pub shown: Option<String>,
    /// The guard of a record that another client removed or reverted.
    pub revert_guard: Option<Box<RevertGuard>>,
    /// Whether another leader wrote the record, perhaps for newer content than this process has read.
    pub doubted: bool,
    /// The record that this process is writing, or wrote last.
    written: Option<String>,
    /// Whether this process has written the record since the last observation of the workload.
    written_since: bool,
    /// The rollout whose response was lost.
    unacknowledged: Option<Box<UnacknowledgedRollout>>,
}

impl RecordState {
    /// Creates the state of a workload with this annotation.
    pub(crate) fn of(shown: Option<String>) -> Self {
        Self { shown, ..Self::default() }
    }

    /// Returns `true` if the record says that the last rollout has failed.
    pub(crate) fn says_failed(&self) -> bool {
        let shown = self.shown.as_deref().filter(|shown| shown.contains("\"failed\""));
        shown.and_then(Record::of_any).is_some_and(|record| record.failed.is_some())
    }

    /// Takes over the state of the previous version of the same object.
    pub(crate) fn carry_over(&mut self, before: &mut Self, is_older: bool, now: Time) {
        self.doubted = before.doubted || ![&before.shown, &before.written].contains(&&self.shown);
        // After a restore of the API server's storage, the restored record counts.
        if !is_older {
            self.revert_guard = before.revert_guard.take();
            if self.shown != before.shown && (self.shown.is_none() || self.shown != before.written) {
                let again =
                    RevertGuard::of(before.shown.as_deref(), self.shown.as_deref(), self.revert_guard.as_deref(), now);
                self.revert_guard = again.map(Box::new).or(self.revert_guard.take());
            }
        }
        self.written = before.written.take();
        self.unacknowledged = before.unacknowledged.take();
    }

    /// Records that this process is about to write this record, so that its watch event does not count as a write of another leader.
    pub(crate) fn writing(&mut self, record: &str) {
        self.written = Some(record.to_owned());
    }

    /// Records that this process has written this record.
    pub(crate) fn wrote(&mut self, record: String) {
        self.shown = Some(record);
        self.written_since = true;
    }

    /// Returns `true` if the record differs from that of `now`, or if this process has written it since the last observation.
    pub(crate) fn differs(&self, now: &Self) -> bool {
        self.written_since || self.shown != now.shown
    }

    /// Returns `true` if the response to a rollout was lost.
    pub(crate) fn has_unacknowledged(&self) -> bool {
        self.unacknowledged.is_some()
    }

    /// Sets the rollout whose response was lost, or clears it.
    pub(crate) fn set_unacknowledged(&mut self, unacknowledged: Option<UnacknowledgedRollout>) {
        self.unacknowledged = unacknowledged.map(Box::new);
    }

    /// Takes the rollout whose response was lost, if the workload shows that it was applied. Forgets a rollout that was not applied.
    pub(crate) fn take_acknowledged(&mut self, version: &str, stamp: Option<&str>) -> Option<UnacknowledgedRollout> {
        let outcome = self.unacknowledged.as_ref()?.outcome(version, stamp);
        if outcome == Outcome::Unknown {
            return None;
        }
        self.unacknowledged.take().filter(|_| outcome == Outcome::Done).map(|unacknowledged| *unacknowledged)
    }

    /// Returns the record with this tag, and whether the annotation holds it. The guarded record takes precedence if it is newer.
    pub fn own(&self, tag: impl FnOnce() -> String) -> (Option<Record>, bool) {
        if self.shown.is_none() && self.revert_guard.is_none() {
            return (None, true);
        }
        let tag = tag();
        let read = |text: &str| Record::read(text, &tag);
        let shown = self.shown.as_deref().and_then(read);
        let revert_guard = self.revert_guard.as_ref().and_then(|revert_guard| read(revert_guard.record()));
        match (shown, revert_guard) {
            (Some(shown), Some(revert_guard)) if shown.rolled < revert_guard.rolled => (Some(revert_guard), false),
            (None, Some(revert_guard)) => (Some(revert_guard), false),
            (shown, _) => (shown, true),
        }
    }

    /// Returns the time before which the record is not restored, if another client keeps removing it.
    pub fn contested_until(&self, now: Time) -> Option<Time> {
        self.revert_guard
            .as_ref()
            .filter(|revert_guard| revert_guard.is_contested(now))
            .map(|revert_guard| revert_guard.until())
    }
}

/// A record that another client has removed from a workload or reverted, as a tool does that applies whole objects from a repository. If the reverted
/// record counted, each run of such a tool would roll the workload again for content that its pods have. So the earlier record stays in force. The
/// operator restores it at once while reverts are rare, and with exponential backoff if they continue.
#[derive(Debug, Clone)]
pub struct RevertGuard {
    /// The record before the revert.
    record: String,
    /// The series of reverts.
    backoff: RevertBackoff,
    /// The time of the last revert.
    last: Time,
}

impl RevertGuard {
    /// Returns the guard of the record that `stood` in the annotation, if the `shown` one is behind it. `before` is the guard of an earlier revert.
    pub(crate) fn of(stood: Option<&str>, shown: Option<&str>, before: Option<&Self>, now: Time) -> Option<Self> {
        let stood = stood.filter(|stood| is_behind(shown, stood))?;
        Some(Self::reverted(stood.to_owned(), before, now))
    }

    /// Returns the record before the revert.
    pub(crate) fn record(&self) -> &str {
        &self.record
    }

    /// Creates the guard of a record that was reverted now. `before` is the guard of an earlier revert.
    fn reverted(record: String, before: Option<&Self>, now: Time) -> Self {
        let row = before.map(|before| (before.backoff, before.quiet(now)));
        Self { record, backoff: RevertBackoff::again(row, LONGEST_PAUSE), last: now }
    }

    /// Returns the time before which the record is not restored.
    pub(crate) fn until(&self) -> Time {
        self.last.later(SignedDuration::try_from(self.backoff.pause()).unwrap_or(SignedDuration::MAX))
    }

    /// Returns `true` if another client keeps reverting the record.
    pub(crate) fn is_contested(&self, now: Time) -> bool {
        self.backoff.is_contested() && self.backoff.goes_on(self.quiet(now))
    }

    /// Returns the time since the last revert.
    fn quiet(&self, now: Time) -> Duration {
        Duration::try_from(now.since(self.last)).unwrap_or_default()
    }
}

/// Returns `true` if another client has removed or reverted the record: the `shown` annotation is behind the one that `stood` there.
fn is_behind(shown: Option<&str>, stood: &str) -> bool {
    let Some(stood) = Record::of_any(stood) else { return false };
    let shown = shown.and_then(|shown| Record::read(shown, &stood.tag));
    shown.is_none_or(|shown| shown.rolled < stood.rolled)
}

/// A rollout request whose response was lost. The API server may have applied it, and only this process knows its reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnacknowledgedRollout {
    /// The only version of the workload to which the request can apply.
    pub version: String,
    /// The stamp that the request sets on the pod template. It differs from all earlier stamps.
    pub stamp: String,
    /// The reason for the rollout.
    pub why: String,
    /// The sources of the rollout.
    pub changed: Vec<SourceName>,
    /// The time of the last observed change of these sources.
    pub seen: Option<Time>,
}

/// The outcome of a rollout request whose response was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The rollout was applied.
    Done,
    /// The rollout was not applied, or another client has reverted the pod template since.
    Undone,
    /// The observation is older than the request.
    Unknown,
}

impl UnacknowledgedRollout {
    /// Returns the outcome for a workload that is observed with this version and stamp.
    pub fn outcome(&self, version: &str, stamp: Option<&str>) -> Outcome {
        if stamp == Some(&self.stamp) {
            Outcome::Done
        } else if version == self.version {
            Outcome::Unknown
        } else {
            Outcome::Undone
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_survives_and_only_where_it_belongs() {
        let entry = |content| Entry { selection: "a1".to_owned(), content, version: None };
        let version = Some(Version { number: 3, created: "2026-01-01T00:00:00.5Z".to_owned() });
        let record = Record {
            tag: "t".to_owned(),
            content: BTreeMap::from([
                ("Secret/db".to_owned(), entry(Content::Digest("0f".to_owned()))),
                ("ConfigMap/app".to_owned(), entry(Content::Absent)),
                ("Vault/secret:a".to_owned(), Entry { version, ..entry(Content::Digest("1e".to_owned())) }),
            ]),
            rolled: Some(Timestamp::UNIX_EPOCH),
            because: None,
            also: Vec::new(),
            failed: None,
        };
        let text = record.text();
        let expected = r#"{"tag":"t","content":{"ConfigMap/app":"a1.absent","Secret/db":"a1.0f","Vault/secret:a":"a1.1e@3@2026-01-01T00:00:00.5Z"},"rolled":"1970-01-01T00:00:00Z"}"#;
        assert_eq!(text, expected);
        assert_eq!(Record::read(&text, "t"), Some(record));
        assert_eq!(Record::read(&text, "u"), None, "a copy");
        for text in ["", "{}", "null", r#"{"tag":"t","content":{"a":"b"}}"#, r#"{"tag":"t","content":{"a":"b.c@d"}}"#] {
            assert_eq!(Record::read(text, "t"), None, "{text}");
        }
    }

    #[test]
    fn a_tag_is_made_only_to_compare_it() {
        assert_eq!(RecordState::of(None).own(|| panic!("nothing has a tag")), (None, true));
        let record = Record::of_content("t".to_owned(), BTreeMap::new(), None);
        let state = RecordState::of(Some(record.text()));
        assert_eq!(state.own(|| "t".to_owned()), (Some(record), true));
        assert_eq!(state.own(|| "u".to_owned()), (None, true), "a copy");
    }

    #[test]
    fn it_is_for_each_that_changed_however_many_there_were() {
        let record = Record {
            tag: "t".to_owned(),
            content: BTreeMap::new(),
            rolled: Some(Timestamp::UNIX_EPOCH),
            because: Some("Secret/db-two changed (x), Secret/api changed (y) and 1 more".to_owned()),
            also: vec!["Vault/secret:a".to_owned()],
            failed: None,
        };
        for (source, expected) in [
            ("Secret/db-two", true),
            ("Secret/api", true),
            ("Vault/secret:a", true),
            ("Secret/db", false),
            ("Vault/secret", false),
        ] {
            assert_eq!(record.is_for(source), expected, "{source}");
        }
    }

    fn at(second: i64) -> Time {
        Time::at(second)
    }

    #[test]
    fn a_fight_ends_in_a_write_each_ten_minutes_and_is_forgotten_when_it_is_over() {
        let mut guard: Option<RevertGuard> = None;
        let mut now = 1000;
        let mut pauses = Vec::new();
        for _ in 0..16 {
            guard = Some(RevertGuard::reverted("r".to_owned(), guard.as_ref(), at(now)));
            let until = guard.as_ref().unwrap().until().wall().as_second();
            pauses.push(until - now);
            // It is written when the pause is over, and taken at once.
            now = until;
        }
        assert!(guard.as_ref().unwrap().is_contested(at(now)));
        assert_eq!(pauses, [0, 0, 0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 600, 600, 600]);
        for (what, after, expected) in [("it goes on", 600, true), ("it was over", 601, false)] {
            let again = RevertGuard::reverted("r".to_owned(), guard.as_ref(), at(now + after));
            assert_eq!(again.is_contested(at(now + after)), expected, "{what}");
        }
    }

    #[test]
    fn for_ever_is_no_overflow() {
        let guard = RevertGuard { last: Time::MAX, ..RevertGuard::reverted(String::new(), None, at(0)) };
        assert_eq!(guard.until(), Time::MAX);
        assert_eq!(RevertGuard::reverted(String::new(), Some(&guard), Time::MAX).until(), Time::MAX);
    }

    #[test]
    fn what_tells_less_is_behind() {
        let record = |tag: &str, rolled: Option<i64>| {
            Record {
                tag: tag.to_owned(),
                content: BTreeMap::new(),
                rolled: rolled.map(|second| at(second).wall()),
                because: None,
                also: Vec::new(),
                failed: None,
            }
            .text()
        };
        let stood = record("t", Some(100));
        for (what, shown, expected) in [
            ("taken away", None, true),
            ("no record", Some("x".to_owned()), true),
            ("another's", Some(record("u", Some(200))), true),
            ("from before its last rollout", Some(record("t", Some(99))), true),
            ("from before it was ever rolled", Some(record("t", None)), true),
            ("a note of the same", Some(record("t", Some(100))), false),
            ("another rollout", Some(record("t", Some(101))), false),
        ] {
            assert_eq!(is_behind(shown.as_deref(), &stood), expected, "{what}");
        }
        assert!(!is_behind(None, "x"), "there was none");
    }

    #[test]
    fn what_is_shown_tells_whether_it_was_done() {
        let asked = UnacknowledgedRollout {
            version: "5".to_owned(),
            stamp: "new".to_owned(),
            why: String::new(),
            changed: Vec::new(),
            seen: None,
        };
        for (what, version, stamp, expected) in [
            ("from before", "5", None, Outcome::Unknown),
            ("from before, with the stamp of an earlier one", "5", Some("old"), Outcome::Unknown),
            ("it was done", "6", Some("new"), Outcome::Done),
            ("and somebody has changed something else since", "7", Some("new"), Outcome::Done),
            ("somebody else was quicker", "6", Some("old"), Outcome::Undone),
            ("and there was no stamp", "6", None, Outcome::Undone),
        ] {
            assert_eq!(asked.outcome(version, stamp), expected, "{what}");
        }
    }
}
