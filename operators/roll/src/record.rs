//! What is remembered of a workload, on the workload: with which content its pods run.

use std::{collections::BTreeMap, fmt};

use jiff::Timestamp;
use serde::{Deserialize, Serialize, de};

/// What stands in the annotation [`RECORD`](crate::declarations::RECORD).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// Of which object, made with which key. One that differs came with a copy or a restored backup, or was made with a key that is lost;
    /// nothing follows from it.
    pub tag: String,
    /// What the pods run with, by the name of the source.
    pub content: BTreeMap<String, Entry>,
    /// When it was last rolled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rolled: Option<Timestamp>,
    /// Why then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub because: Option<String>,
}

/// What the pods run with of one source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Which of its keys are meant. Content of other keys is not comparable.
    pub selection: String,
    /// What they hold.
    pub content: Content,
}

/// The content of a source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// There is no such source.
    Absent,
    /// A digest in hexadecimal digits.
    Digest(String),
}

/// What stands for the content of a source that is not there.
const ABSENT: &str = "absent";

impl Record {
    /// Reads the annotation. What is no record, or has another tag, is none.
    pub fn read(text: &str, tag: &str) -> Option<Self> {
        serde_json::from_str::<Self>(text).ok().filter(|record| record.tag == tag)
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
        write!(out, "{}.{content}", self.selection)
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
        let content = match content {
            ABSENT => Content::Absent,
            digest => Content::Digest(digest.to_owned()),
        };
        Ok(Self { selection: selection.to_owned(), content })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_survives_and_only_where_it_belongs() {
        let entry = |content| Entry { selection: "a1".to_owned(), content };
        let record = Record {
            tag: "t".to_owned(),
            content: BTreeMap::from([
                ("Secret/db".to_owned(), entry(Content::Digest("0f".to_owned()))),
                ("ConfigMap/app".to_owned(), entry(Content::Absent)),
            ]),
            rolled: Some(Timestamp::UNIX_EPOCH),
            because: None,
        };
        let text = record.text();
        let expected = r#"{"tag":"t","content":{"ConfigMap/app":"a1.absent","Secret/db":"a1.0f"},"rolled":"1970-01-01T00:00:00Z"}"#;
        assert_eq!(text, expected);
        assert_eq!(Record::read(&text, "t"), Some(record));
        assert_eq!(Record::read(&text, "u"), None, "a copy");
        for text in ["", "{}", "null", r#"{"tag":"t","content":{"a":"b"}}"#] {
            assert_eq!(Record::read(text, "t"), None, "{text}");
        }
    }
}
