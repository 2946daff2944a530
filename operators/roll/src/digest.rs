//! Digests of content, with a key that only the operator has.
//!
//! Each user who may see a workload sees the digests on it. Content is often short, so a plain hash of it could be guessed by trying, and
//! so could one with a public key, such as a uid. Hence the key is random. It is made once for an installation and
//! kept in a Secret beside the operator, for all replicas and their successors. Each digest is also bound to its workload and to the
//! name of its source. So two equal digests only say that the same content has come back to the same place.

use std::collections::{BTreeMap, BTreeSet};

use konverge_core::digest::{DIGEST_KEY_LENGTH, keyed_hash};
use konverge_workload::Keys;
use litemap::LiteMap;
use zeroize::Zeroizing;

use crate::{
    object::SourceName,
    record::{Content, Entry, is_for_comparison},
    vault::Version,
};

/// The number of bytes of a digest that are kept: two contents have the same one with a chance of 2⁻¹²⁸.
const KEPT: usize = 16;

/// The number of bytes that distinguish a choice of keys, or an object, from others. A collision only helps a client that may write the object anyway.
const TAG: usize = 6;

/// Behind a stamp that stood there already.
const AGAIN: &str = "2";

/// The digest of the value of each key of a Secret or a `ConfigMap`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KeyDigests(LiteMap<String, [u8; KEPT]>);

impl KeyDigests {
    /// Returns `true` if the source has the key.
    pub fn has(&self, key: &str) -> bool {
        self.0.contains_key(key)
    }

    /// Returns the keys.
    pub fn keys(&self) -> impl Iterator<Item = &String> {
        self.0.keys()
    }

    /// Returns the keys whose values differ, or that only one of the two has.
    pub fn changed<'a>(before: Option<&'a Self>, now: Option<&'a Self>) -> BTreeSet<&'a String> {
        let missing_in = |one: Option<&'a Self>, other: Option<&'a Self>| {
            let all = one.into_iter().flat_map(|one| one.0.iter());
            all.filter(move |(key, digest)| other.and_then(|other| other.0.get(*key)) != Some(*digest))
        };
        missing_in(before, now).chain(missing_in(now, before)).map(|(key, _)| key).collect()
    }
}

/// Makes digests.
pub struct Digester(Zeroizing<[u8; DIGEST_KEY_LENGTH]>);

impl Digester {
    /// With this key. Digests of another key are not comparable, and are told by their tag.
    pub fn new(key: [u8; DIGEST_KEY_LENGTH]) -> Self {
        Self(Zeroizing::new(key))
    }

    /// Returns the digests of content.
    pub fn of_content<'a>(&self, content: impl IntoIterator<Item = (&'a str, &'a [u8])>) -> KeyDigests {
        let digest = |(key, value): (&'a str, &'a [u8])| (key.to_owned(), self.hash([b"value", key.as_bytes(), value]));
        KeyDigests(content.into_iter().map(digest).collect())
    }

    /// Returns the digest of a version of a secret in Vault. When it was written tells it from another one of its number, which there is after
    /// the metadata were deleted.
    pub fn of_version(&self, version: &Version) -> KeyDigests {
        let number = version.number.to_be_bytes();
        self.of_content([("version", number.as_slice()), ("created", version.created.as_bytes())])
    }

    /// Returns the entry of a record for the keys that a workload uses of a source. Without content, the entry says that the source does not exist.
    pub fn entry(&self, uid: &str, source: &SourceName, keys: &Keys, content: Option<&KeyDigests>) -> Entry {
        let selection: [u8; TAG] = match keys {
            Keys::All => self.hash([b"all".as_slice()]),
            Keys::Some(keys) => self.hash([b"some".as_slice()].into_iter().chain(keys.iter().map(String::as_bytes))),
        };
        let digest = content.map(|content| {
            let used = content.0.iter().filter(|(key, _)| keys.contains(key));
            let parts = used.flat_map(|(key, digest)| [key.as_bytes(), digest.as_slice()]);
            let source = [b"entry", uid.as_bytes(), source.kind.name().as_bytes(), source.name.as_bytes()];
            self.hash::<KEPT>(source.into_iter().chain(parts))
        });
        let content = digest.map_or(Content::Absent, |digest| Content::Digest(hex::encode(digest)));
        Entry { selection: hex::encode(selection), content, version: None }
    }

    /// Returns the tag by which a record of this object and of this key is known.
    pub fn tag(&self, uid: &str) -> String {
        hex::encode(self.hash::<TAG>([b"tag", uid.as_bytes()]))
    }

    /// One text for all that an object uses.
    fn stamp(&self, uid: &str, content: &BTreeMap<String, Entry>) -> String {
        // The same content is the same in every version.
        let text = |entry: &Entry| Entry { version: None, ..entry.clone() }.to_string();
        // An entry for comparison may change while the pods stay.
        let content = content.iter().filter(|(source, _)| !is_for_comparison(source));
        let texts: Vec<_> = content.map(|(source, entry)| (source, text(entry))).collect();
        let parts = texts.iter().flat_map(|(source, entry)| [source.as_bytes(), entry.as_bytes()]);
        let digest = self.hash::<KEPT>([b"stamp", uid.as_bytes()].into_iter().chain(parts));
        format!("{}.{}", self.tag(uid), hex::encode(digest))
    }

    /// Returns the stamp for pods that are to be recreated with this content. It is never the current one: a client that set the template back may have
    /// put there the stamp of content that has come back since, and the pods have read other content.
    pub fn next_stamp(&self, uid: &str, content: &BTreeMap<String, Entry>, current: Option<&str>) -> String {
        let stamp = self.stamp(uid, content);
        if current == Some(&stamp) { format!("{stamp}.{AGAIN}") } else { stamp }
    }

    /// Whether a stamp is of this object, and made with this key.
    pub fn is_stamp_of(&self, uid: &str, stamp: &str) -> bool {
        stamp.split('.').next() == Some(&self.tag(uid))
    }

    fn hash<'a, const LENGTH: usize>(&self, parts: impl IntoIterator<Item = &'a [u8]>) -> [u8; LENGTH] {
        let whole = keyed_hash(&self.0, parts);
        std::array::from_fn(|index| whole[index])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(keys: &[&str]) -> Keys {
        Keys::Some(keys.iter().map(|key| (*key).to_owned()).collect())
    }

    fn entry(uid: &str, source: &str, chosen: &Keys, content: &[(&str, &str)]) -> Entry {
        let digester = Digester::new([7; DIGEST_KEY_LENGTH]);
        let content = digester.of_content(content.iter().map(|(key, value)| (*key, value.as_bytes())));
        digester.entry(uid, &SourceName::secret(source), chosen, Some(&content))
    }

    #[test]
    fn only_the_keys_that_are_used_count() {
        let one = entry("1", "db", &keys(&["a"]), &[("a", "x"), ("b", "y")]);
        assert_eq!(one, entry("1", "db", &keys(&["a"]), &[("a", "x"), ("b", "changed"), ("c", "new")]));
        assert_ne!(one, entry("1", "db", &keys(&["a"]), &[("a", "changed"), ("b", "y")]));
        assert_ne!(one, entry("1", "db", &keys(&["a"]), &[("b", "y")]), "a key that went");
        let all = entry("1", "db", &Keys::All, &[("a", "x")]);
        assert_ne!(all, entry("1", "db", &Keys::All, &[("a", "x"), ("b", "")]), "a key that came");
    }

    #[test]
    fn the_same_content_looks_different_in_each_place() {
        let content = [("a", "x")];
        let one = entry("1", "db", &Keys::All, &content);
        assert_eq!(one, entry("1", "db", &Keys::All, &content));
        assert_ne!(one.content, entry("2", "db", &Keys::All, &content).content);
        assert_ne!(one.content, entry("1", "other", &Keys::All, &content).content);
        let map = Digester::new([7; DIGEST_KEY_LENGTH]);
        let digests = map.of_content([("a", b"x".as_slice())]);
        assert_ne!(one.content, map.entry("1", &SourceName::config_map("db"), &Keys::All, Some(&digests)).content);
    }

    #[test]
    fn no_stamp_follows_itself() {
        let digester = Digester::new([7; DIGEST_KEY_LENGTH]);
        let content = |value| BTreeMap::from([("Secret/db".to_owned(), entry("1", "db", &Keys::All, &[("a", value)]))]);
        let next = |value, current| digester.next_stamp("1", &content(value), current);
        let (x, y) = (next("x", None), next("y", None));
        assert_eq!(next("y", Some(&x)), y);
        let again = next("x", Some(&x));
        assert_ne!(again, x);
        assert_eq!(next("x", Some(&again)), x);
        assert_eq!(next("y", Some(&again)), y);
        assert!(
            [&x, &y, &again].iter().all(|stamp| digester.is_stamp_of("1", stamp) && !digester.is_stamp_of("2", stamp))
        );
    }

    #[test]
    fn another_choice_of_keys_is_told_from_other_content() {
        let one = entry("1", "db", &keys(&["a", "b"]), &[("a", "x")]);
        let other = entry("1", "db", &keys(&["a"]), &[("a", "x")]);
        assert_ne!(one.selection, other.selection);
        assert_ne!(entry("1", "db", &keys(&["ab"]), &[]).selection, one.selection);
    }

    /// Later versions compare the annotations of objects, so the format must not change. By another program: HMAC-SHA256 over the parts,
    /// each behind its length in eight bytes.
    #[test]
    fn the_bytes_stay_the_same() {
        let digester = Digester::new([7; DIGEST_KEY_LENGTH]);
        assert_eq!(digester.tag("1"), "a305e2678e17");
        assert_eq!(
            entry("1", "db", &Keys::All, &[("a", "x")]).to_string(),
            "74533d1321a5.8d704b44aec609816d139d45376139cc"
        );
    }
}
