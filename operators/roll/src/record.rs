//! The record on a workload: the content that its pods run with.

use std::{collections::BTreeMap, fmt};

use jiff::Timestamp;
use serde::{Deserialize, Serialize, de};

use crate::vault::Version;

/// The content of the annotation [`RECORD`](crate::declarations::RECORD).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// Of which object, made with which key. Another tag came with a copy, a restored backup or a lost key, and the record does not count.
    pub tag: String,
    /// The content that the pods run with, by the name of the source.
    pub content: BTreeMap<String, Entry>,
    /// When it was last rolled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rolled: Option<Timestamp>,
    /// Why then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub because: Option<String>,
    /// The other sources that it was rolled for. The reason names only a few.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub also: Vec<String>,
}

/// The content of one source that the pods run with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Which of its keys are meant. Content of other keys is not comparable.
    pub selection: String,
    /// The content of those keys.
    pub content: Content,
    /// The version in Vault, if the source is there and has versions. It shows only which content is older.
    pub version: Option<Version>,
}

/// The content of a source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// There is no such source.
    Absent,
    /// A digest in hexadecimal digits.
    Digest(String),
}

/// The content of a source that does not exist.
const ABSENT: &str = "absent";

/// Stands before the number of a version and before its time, and in neither.
const BEFORE_VERSION: char = '@';

impl Record {
    /// Reads the annotation. Returns `None` if the text is no record, or has another tag.
    pub fn read(text: &str, tag: &str) -> Option<Self> {
        Self::of_any(text).filter(|record| record.tag == tag)
    }

    /// Reads the annotation of whatever object, made with whatever key.
    pub fn of_any(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }

    /// Whether it was last rolled for the sake of this source, perhaps among others.
    pub fn is_for(&self, source: &str) -> bool {
        // With a blank, as one name may be the beginning of another.
        let is_named = |because: &String| because.contains(&format!("{source} "));
        self.because.as_ref().is_some_and(is_named) || self.also.iter().any(|also| also == source)
    }

    /// The text of the annotation.
    pub fn text(&self) -> String {
        // Nothing in it can fail to be JSON: names, digits and times.
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
    /// Whether it certainly is from before the other one: an answer of a server, or of an operator, that lags behind.
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
    fn it_is_for_each_that_changed_however_many_there_were() {
        let record = Record {
            tag: "t".to_owned(),
            content: BTreeMap::new(),
            rolled: Some(Timestamp::UNIX_EPOCH),
            because: Some("Secret/db-two changed (x), Secret/api changed (y) and 1 more".to_owned()),
            also: vec!["Vault/secret:a".to_owned()],
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
}
