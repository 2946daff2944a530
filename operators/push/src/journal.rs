//! The journal of intentions: the paths that the operator is about to write for many objects without a record.
//!
//! [`konverge_apply::ledger`] keeps it in a few Secrets of the operator's namespace. An entry is the record of one object, and digests of what is
//! about to be written. The digests tell a write that was begun for an object that is gone from what another actor wrote. A reader of their key
//! can guess at short values, so the batches are Secrets. An operator that may not create Secrets, as with the original's role, writes the record
//! of each object first.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::{ByteString, api::core::v1::Secret};
pub use konverge_apply::ledger::JournalError;
use konverge_apply::ledger::{self, BatchData, JournalOptions};
use konverge_core::digest::{DIGEST_KEY_LENGTH, DigestKey};
use konverge_vault::{Content, Location};
use kube::{Api, Client};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::{content::digest, object::ObjectRef, orphans::Orphan, record::Record, store::Unfinished};

/// How the names of the Secrets begin.
pub const PREFIX: &str = "vault-sync-operator-intended";

/// The label that all of them have.
pub const LABEL: &str = "vault-sync.io/intended";

/// The log line of an operator that may not create Secrets.
const REFUSED: &str = "Secrets cannot be made in the operator's namespace: each object is written on before its first write to Vault; allow the \
                       service account to create and delete Secrets there to have a first sync of many quicker";

/// The name of the digest key in a batch.
const KEY: &str = "digest-key";

/// The name of the entries in a batch.
const ENTRIES: &str = "entries";

/// A handle to the journal.
pub struct Journal {
    intentions: ledger::Journal<Intention>,
    /// The key of this process for digests.
    digest_key: Arc<DigestKey>,
}

impl Journal {
    /// A journal in this namespace, which is the operator's own, and the task that writes it.
    pub fn new(client: Client, namespace: &str) -> (Self, impl Future<Output = ()> + Send + use<>) {
        let prefix = format!("{PREFIX}-{:08x}", rand::random::<u32>());
        let options = JournalOptions::new(prefix, LABEL, REFUSED);
        let (intentions, write) = ledger::Journal::new(Api::namespaced(client, namespace), options);
        (Self { intentions, digest_key: Arc::new(DigestKey::new(rand::random())) }, write)
    }

    /// Reads what earlier processes have noted, once. Returns the objects of these intentions, the first time.
    pub async fn recall(&self) -> Result<Vec<ObjectRef>, JournalError> {
        self.intentions.recall().await
    }

    /// Returns the intentions for the object, and for earlier objects with its name. Empty before [`recall`](Self::recall).
    pub fn about(&self, key: &ObjectRef) -> Vec<Intention> {
        self.intentions.about(key)
    }

    /// Returns whether anything is noted of the object.
    pub fn speaks_of(&self, key: &ObjectRef) -> bool {
        self.intentions.speaks_of(key)
    }

    /// Notes the record of an object that bears none, and what is about to be written. It is stored for sure if this returns `true`. `false`
    /// means that there can be no journal, or that this is not noted yet and is not worth while.
    pub async fn intend<'a>(
        &self,
        key: &ObjectRef,
        record: &Record,
        contents: impl IntoIterator<Item = (&'a Location, &'a Content)>,
        worth_while: bool,
    ) -> Result<bool, JournalError> {
        if self.intentions.is_refused() || !worth_while && !self.speaks_of(key) {
            return Ok(false);
        }
        let entry = Entry::new(key, record, contents, &self.digest_key);
        let is_noted = self.about(key).iter().any(|intention| intention.covers(&entry));
        if is_noted || !worth_while {
            return Ok(is_noted);
        }
        self.intentions.note(key.clone(), Intention::new(entry, Arc::clone(&self.digest_key))).await
    }

    /// The object bears its record, or is gone and nothing is left of it.
    pub fn resolve(&self, key: &ObjectRef) {
        self.intentions.resolve(key);
    }

    /// The intentions for earlier objects with the name are over, unless the record still has one of their paths.
    pub fn resolve_others(&self, key: &ObjectRef, record: &Record) {
        self.intentions.resolve_where(key, |intention| intention.is_succeeded_by(record));
    }
}

/// Deletes the whole journal, for an uninstall.
pub(crate) async fn erase(client: &Client) -> Result<(), JournalError> {
    ledger::Journal::<Intention>::erase(&Api::<Secret>::default_namespaced(client.clone()), LABEL).await
}

/// An object, and what is about to be written for it.
#[derive(Serialize, Deserialize)]
struct Entry {
    /// The object, with the record that it does not bear yet.
    #[serde(flatten)]
    object: Orphan,
    /// The digest of what is about to be written to each path, where it is known.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    digests: BTreeMap<String, String>,
}

impl Entry {
    /// Of an object with this record, to whose paths this is about to be written.
    fn new<'a>(
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
    fn new(entry: Entry, digest_key: Arc<DigestKey>) -> Self {
        Self { entry: Arc::new(entry), digest_key }
    }

    /// The record that the object does not bear, with the uid of the object that was meant.
    pub fn record(&self) -> &Record {
        self.entry.object.record()
    }

    /// Whether it says all that the entry does: if the object were gone, the same would be cleared in the same way.
    fn covers(&self, entry: &Entry) -> bool {
        let (noted, meant) = (self.record(), entry.object.record());
        let is_noted =
            |path: &String| noted.paths.contains_key(path) && self.entry.digests.get(path) == entry.digests.get(path);
        noted.uid == meant.uid && noted.deletion == meant.deletion && meant.paths.keys().all(is_noted)
    }

    /// Whether it is for an earlier object than the record's, and none of its paths is in the record.
    fn is_succeeded_by(&self, record: &Record) -> bool {
        let begun = self.record();
        begun.uid != record.uid && !begun.paths.keys().any(|path| record.paths.contains_key(path))
    }

    /// The content that an unfinished write to the path would have made.
    pub fn unfinished(&self, path: &str) -> Unfinished<'_> {
        self.entry.digests.get(path).map_or(Unfinished::Unknown, |text| Unfinished::Digest(&self.digest_key, text))
    }
}

impl ledger::Intention for Intention {
    type Key = ObjectRef;

    fn key(&self) -> Option<ObjectRef> {
        self.entry.object.key()
    }

    fn encode(batch: &[Self]) -> BatchData {
        // All intentions of one process have its key.
        let digest_key = batch.first().map(|intention| intention.digest_key.bytes().to_vec()).unwrap_or_default();
        let entries: Vec<&Entry> = batch.iter().map(|intention| &*intention.entry).collect();
        // Names, numbers, times and digests, which are JSON.
        let entries = serde_json::to_vec(&entries).unwrap_or_default();
        BTreeMap::from([(KEY.to_owned(), ByteString(digest_key)), (ENTRIES.to_owned(), ByteString(entries))])
    }

    fn decode(mut data: BatchData) -> Option<Vec<Self>> {
        let bytes = Zeroizing::new(data.remove(KEY)?.0);
        let digest_key = Arc::new(DigestKey::new(<[u8; DIGEST_KEY_LENGTH]>::try_from(bytes.as_slice()).ok()?));
        let entries: Vec<Entry> = serde_json::from_slice(&data.remove(ENTRIES)?.0).ok()?;
        Some(entries.into_iter().map(|entry| Self::new(entry, Arc::clone(&digest_key))).collect())
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use konverge_apply::ledger::Intention as _;
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
        let batch = Intention::encode(&[intention]);
        assert_eq!(batch[KEY].0, [7; DIGEST_KEY_LENGTH]);
        assert!(!String::from_utf8_lossy(&batch[ENTRIES].0).contains("tops3cret"));

        let read_back = Intention::decode(batch.clone()).unwrap();
        let [intention] = &*read_back else { panic!("one was kept") };
        assert_eq!((intention.key(), intention.record()), (Some(key.clone()), &record));
        for (name, spoiled) in [(KEY, &[7; 3][..]), (ENTRIES, &b"no batch"[..])] {
            let mut batch = batch.clone();
            batch.insert(name.to_owned(), ByteString(spoiled.to_vec()));
            assert!(Intention::decode(batch).is_none(), "{name}");
        }
        assert!(Intention::decode(BatchData::new()).is_none());
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

    #[test]
    fn what_was_begun_for_one_before_goes_when_it_left_nothing() {
        let with = |uid: &str, path: &str| {
            let location = Mount::new("secret", KvVersion::Two).location(&SecretPath::parse(path).unwrap()).unwrap();
            let mut record = Record::new(uid, Timestamp::UNIX_EPOCH);
            record.paths.insert(path.to_owned(), Written::intended(&location));
            record
        };
        let key = ObjectRef { kind: Kind::Secret, namespace: "shop".to_owned(), name: "a".to_owned() };
        let mut now = with("3", "secret/data/q");
        now.paths.extend(with("3", "secret/data/r").paths);
        let digest_key = Arc::new(DigestKey::new([1; DIGEST_KEY_LENGTH]));
        for (what, uid, path, expected) in [
            ("nothing of it is left", "1", "secret/data/p", true),
            ("the record has its path", "2", "secret/data/q", false),
            ("it is for the same object", "3", "secret/data/r", false),
        ] {
            let intention =
                Intention::new(Entry::new(&key, &with(uid, path), [], &digest_key), Arc::clone(&digest_key));
            assert_eq!(intention.is_succeeded_by(&now), expected, "{what}");
        }
    }
}
