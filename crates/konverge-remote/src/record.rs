//! The record on the object: the intent, and whether the item was made or adopted.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The record of an object, by part. It is written before the first create, bound to the uid of the object and to the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    cluster: String,
    uid: String,
    #[serde(default)]
    parts: BTreeMap<String, Entry>,
}

/// The record of one part. It gets no further field, so that it can be written as a literal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Whether the item was made for the object or adopted.
    pub origin: Origin,
    /// The scope of the item.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub scope: String,
    /// The name under which the item was to be made, or was found.
    pub name: String,
    /// The id, where it was known. An item that is about to be made has none; its id is in the status afterwards.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The id of an item that is gone and that this one replaces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replaces: Option<String>,
}

/// Where an item comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum Origin {
    /// It was made for the object, or is about to be.
    Made,
    /// It was there before.
    Adopted,
}

impl Record {
    /// A record without parts.
    pub fn new(cluster: &str, uid: &str) -> Self {
        Self { cluster: cluster.to_owned(), uid: uid.to_owned(), parts: BTreeMap::new() }
    }

    /// Reads the text on an object. `Err` if there is a text that is no record of this object in this cluster.
    pub fn read(text: Option<&str>, cluster: &str, uid: &str) -> Result<Self, ForeignRecord> {
        let Some(text) = text else { return Ok(Self::new(cluster, uid)) };
        let record = serde_json::from_str::<Self>(text).ok();
        record.filter(|record| record.cluster == cluster && record.uid == uid).ok_or(ForeignRecord)
    }

    /// Whether the text is the record of the object with this uid, in whatever cluster.
    pub fn is_of(text: &str, uid: &str) -> bool {
        serde_json::from_str::<Self>(text).is_ok_and(|record| record.uid == uid)
    }

    /// The text to write on the object.
    pub fn text(&self) -> String {
        // Strings in maps cannot fail to be JSON.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// The entry of a part.
    pub fn part(&self, part: &str) -> Option<&Entry> {
        self.parts.get(part)
    }

    /// The names of all parts.
    pub fn parts(&self) -> impl Iterator<Item = &str> {
        self.parts.keys().map(String::as_str)
    }

    /// Sets or removes the entry of a part.
    pub fn set(&mut self, part: &str, entry: Option<Entry>) {
        match entry {
            Some(entry) => drop(self.parts.insert(part.to_owned(), entry)),
            None => drop(self.parts.remove(part)),
        }
    }
}

/// The text on an object is the record of another object or cluster, or no record at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ForeignRecord;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_counts_only_on_its_own_object_in_its_own_cluster() {
        let mut record = Record::new("c", "u");
        let entry =
            Entry { origin: Origin::Made, scope: String::new(), name: "a".to_owned(), id: None, replaces: None };
        record.set("", Some(entry.clone()));
        let text = record.text();
        assert_eq!(text, r#"{"cluster":"c","uid":"u","parts":{"":{"origin":"made","name":"a"}}}"#);
        assert_eq!(Record::read(Some(&text), "c", "u").unwrap().part(""), Some(&entry));
        for (text, cluster, uid) in [(&*text, "c", "copy"), (&*text, "other", "u"), ("{}", "c", "u"), ("", "c", "u")] {
            assert_eq!(Record::read(Some(text), cluster, uid), Err(ForeignRecord), "{text} {cluster} {uid}");
        }
        assert_eq!(Record::read(None, "c", "u"), Ok(Record::new("c", "u")));
        assert!(Record::is_of(&text, "u") && !Record::is_of(&text, "copy") && !Record::is_of("{}", "u"));
    }
}
