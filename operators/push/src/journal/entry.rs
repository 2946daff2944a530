//! The entries of the journal, and their encoding in the data of a Secret. Pure.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::{ByteString, api::core::v1::Secret};
use konverge_core::digest::{DIGEST_KEY_LENGTH, DigestKey};
use konverge_vault::{Content, Location};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::{digest::digest, object::ObjectRef, orphans::Orphan, record::Record, store::Unfinished};

/// Where in a batch's data the key of its digests is.
pub(super) const KEY: &str = "digest-key";

/// And where its entries are.
pub(super) const ENTRIES: &str = "entries";

/// An object, and what is about to be written for it.
#[derive(Serialize, Deserialize)]
pub(super) struct Entry {
    /// The object, with the record that it does not bear yet.
    #[serde(flatten)]
    object: Orphan,
    /// The digest of what is about to be written to each path, where it is known.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    digests: BTreeMap<String, String>,
}

impl Entry {
    /// Of an object with this record, to whose paths this is about to be written.
    pub(super) fn new<'a>(
        key: &ObjectRef,
        record: &Record,
        contents: impl IntoIterator<Item = (&'a Location, &'a Content)>,
        digest_key: &DigestKey,
    ) -> Self {
        let digests = contents.into_iter().filter_map(|(location, content)| {
            Some((location.to_string(), digest(digest_key, content.iter())?.to_string()))
        });
        Self { object: Orphan::new(key, record.clone()), digests: digests.collect() }
    }
}

/// The entry of an object in the journal.
#[derive(Clone)]
pub struct Intention {
    entry: Arc<Entry>,
    digest_key: Arc<DigestKey>,
}

impl Intention {
    pub(super) fn new(entry: Entry, digest_key: Arc<DigestKey>) -> Self {
        Self { entry: Arc::new(entry), digest_key }
    }

    /// The record that the object does not bear, with the uid of the object that was meant.
    pub fn record(&self) -> &Record {
        self.entry.object.record()
    }

    /// Which object it is about; nothing if there is no such kind.
    pub(super) fn key(&self) -> Option<ObjectRef> {
        self.entry.object.key()
    }

    /// Whether it says all that the entry does: if the object were gone, the same would be cleared in the same way.
    pub(super) fn covers(&self, entry: &Entry) -> bool {
        let (noted, meant) = (self.record(), entry.object.record());
        let is_noted =
            |path: &String| noted.paths.contains_key(path) && self.entry.digests.get(path) == entry.digests.get(path);
        noted.uid == meant.uid && noted.deletion == meant.deletion && meant.paths.keys().all(is_noted)
    }

    /// The content that an unfinished write to the path would have made.
    pub fn unfinished(&self, path: &str) -> Unfinished<'_> {
        self.entry.digests.get(path).map_or(Unfinished::Unknown, |text| Unfinished::Digest(&self.digest_key, text))
    }
}

/// The entries of a batch as they are kept.
pub(super) fn spell<'a>(batch: impl IntoIterator<Item = &'a Intention>) -> ByteString {
    let entries: Vec<&Entry> = batch.into_iter().map(|intention| &*intention.entry).collect();
    // Names, numbers, times and digests, which are JSON.
    ByteString(serde_json::to_vec(&entries).unwrap_or_default())
}

/// The intentions of a batch; nothing if it cannot be read.
pub(super) fn read(batch: Secret) -> Option<Vec<Intention>> {
    let mut data = batch.data?;
    let bytes = Zeroizing::new(data.remove(KEY)?.0);
    let digest_key = Arc::new(DigestKey::new(<[u8; DIGEST_KEY_LENGTH]>::try_from(bytes.as_slice()).ok()?));
    let entries: Vec<Entry> = serde_json::from_slice(&data.remove(ENTRIES)?.0).ok()?;
    Some(entries.into_iter().map(|entry| Intention::new(entry, Arc::clone(&digest_key))).collect())
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use konverge_core::SecretValue;
    use konverge_vault::{KvVersion, Mount, SecretPath};

    use super::*;
    use crate::{object::Kind, record::Written, spec::DeletionPolicy};

    fn content(value: &str) -> Content {
        [("k".to_owned(), SecretValue::from(value.to_owned()))].into_iter().collect()
    }

    #[test]
    fn what_is_kept_comes_back_and_shows_no_value() {
        let mount = Mount::new("secret", KvVersion::Two);
        let location = mount.location(&SecretPath::parse("secret/data/a").unwrap()).unwrap();
        let key = ObjectRef { kind: Kind::Secret, namespace: "shop".to_owned(), name: "db".to_owned() };
        let mut record = Record::new("1", Timestamp::UNIX_EPOCH);
        record.paths.insert(location.to_string(), Written::intended(&location));
        let digest_key = || Arc::new(DigestKey::new([7; DIGEST_KEY_LENGTH]));
        let entry = Entry::new(&key, &record, [(&location, &content("tops3cret"))], &digest_key());
        let intention = Intention::new(entry, digest_key());
        let text = spell([&intention]);
        assert!(!String::from_utf8_lossy(&text.0).contains("tops3cret"));

        let data = |key: Vec<u8>, entries: &[u8]| {
            let parts = [(KEY, key), (ENTRIES, entries.to_vec())];
            let data = parts.into_iter().map(|(name, bytes)| (name.to_owned(), ByteString(bytes))).collect();
            Secret { data: Some(data), ..Secret::default() }
        };
        let read_back = read(data(vec![7; DIGEST_KEY_LENGTH], &text.0)).unwrap();
        let [intention] = &*read_back else { panic!("one was kept") };
        assert_eq!((intention.key(), intention.record()), (Some(key.clone()), &record));
        for spoiled in [data(vec![7; 3], &text.0), data(vec![7; DIGEST_KEY_LENGTH], b"no batch"), Secret::default()] {
            assert!(read(spoiled).is_none());
        }
        let entry_of = |record: &Record, value| Entry::new(&key, record, [(&location, &content(value))], &digest_key());
        assert!(intention.covers(&entry_of(&record, "tops3cret")));
        assert!(!intention.covers(&entry_of(&record, "other")), "by its digest that would be somebody else's");
        let kept = Record { deletion: DeletionPolicy::Keep, ..record.clone() };
        assert!(!intention.covers(&entry_of(&kept, "tops3cret")), "it would be deleted");
        record.paths.insert("secret/data/other".to_owned(), Written::intended(&location));
        assert!(!intention.covers(&entry_of(&record, "tops3cret")));
        let path = location.to_string();
        assert!(intention.unfinished(&path).is(&content("tops3cret")));
        assert!(!intention.unfinished(&path).is(&content("other")));
        assert!(!intention.unfinished("secret/data/other").is(&content("tops3cret")), "nothing is known of it");
    }
}
