//! Telling whether content changed without keeping the content.

use std::fmt;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use zeroize::Zeroizing;

/// Length of a digest key in bytes: the output length of the hash, as RFC 2104 recommends.
pub const DIGEST_KEY_LENGTH: usize = 32;

/// The key of a digest.
///
/// A plain hash of a short value can be guessed by trying all values; with a key it says nothing to those who lack the key.
/// Digests made with different keys cannot be compared.
pub struct DigestKey(Zeroizing<[u8; DIGEST_KEY_LENGTH]>);

impl DigestKey {
    /// A key from 32 secret random bytes; the caller brings the randomness, since this crate does no IO.
    pub fn new(bytes: [u8; DIGEST_KEY_LENGTH]) -> Self {
        Self(Zeroizing::new(bytes))
    }

    /// The key itself, for who keeps it where only the operator reads.
    pub fn bytes(&self) -> &[u8; DIGEST_KEY_LENGTH] {
        &self.0
    }

    /// The digest of named contents. The order in which they come does not matter; each name counts once, and the caller
    /// guarantees that it comes once.
    pub fn digest<'a>(&self, contents: impl IntoIterator<Item = (&'a str, &'a [u8])>) -> ContentDigest {
        let mut sorted: Vec<_> = contents.into_iter().collect();
        sorted.sort_unstable_by_key(|&(name, _)| name);
        ContentDigest(keyed_hash(&self.0, sorted.into_iter().flat_map(|(name, content)| [name.as_bytes(), content])))
    }
}

/// HMAC-SHA256 of parts in their order, each preceded by its length in eight bytes, so that no two different lists of parts make the same
/// bytes. The digest of a key and parts is the same in all versions, because digests are kept across restarts.
#[expect(
    clippy::expect_used,
    clippy::missing_panics_doc,
    reason = "HMAC takes any key; the constructor's error is never made"
)]
pub fn keyed_hash<'a>(key: &[u8; DIGEST_KEY_LENGTH], parts: impl IntoIterator<Item = &'a [u8]>) -> [u8; 32] {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes a key of any length");
    for part in parts {
        mac.update(&(part.len() as u64).to_be_bytes());
        mac.update(part);
    }
    mac.finalize().into_bytes().into()
}

/// A digest by [`DigestKey::digest`]. Digests are equal exactly if the contents are, except for a chance of 2⁻¹²⁸.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ContentDigest([u8; 32]);

/// In hexadecimal digits, for who keeps it as text.
impl fmt::Display for ContentDigest {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(out, "{byte:02x}"))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn key() -> DigestKey {
        DigestKey::new([7; DIGEST_KEY_LENGTH])
    }

    #[test]
    fn a_boundary_between_name_and_content_counts() {
        assert_ne!(key().digest([("ab", b"c".as_slice())]), key().digest([("a", b"bc".as_slice())]));
        assert_ne!(key().digest([]), key().digest([("", b"".as_slice())]));
    }

    /// By another program: HMAC-SHA256 over `a`, `1`, `b` and nothing, each behind its length.
    #[test]
    fn the_bytes_stay_the_same() {
        let found = key().digest([("b", b"".as_slice()), ("a", b"1")]);
        let expected = "4baba80e07dc3a9e82a9d57bec13e320c9533ba23291f9fb9d17837b823f5a0e";
        assert_eq!(found.to_string(), expected);
    }

    #[test]
    fn another_key_makes_another_digest() {
        let other = DigestKey::new([8; DIGEST_KEY_LENGTH]);
        assert_ne!(key().digest([("a", b"b".as_slice())]), other.digest([("a", b"b".as_slice())]));
    }

    /// Names and contents from two letters, short, so that different maps often have the same letters in the same order.
    fn contents() -> impl Strategy<Value = BTreeMap<String, Vec<u8>>> {
        proptest::collection::btree_map("[ab]{0,2}", proptest::collection::vec(b'a'..=b'b', 0..3), 0..4)
    }

    proptest! {
        #[test]
        fn digests_are_equal_exactly_when_contents_are(left in contents(), right in contents()) {
            let digest = |map: &BTreeMap<String, Vec<u8>>| {
                key().digest(map.iter().map(|(name, content)| (name.as_str(), content.as_slice())))
            };
            let backwards = key().digest(left.iter().rev().map(|(name, content)| (name.as_str(), content.as_slice())));
            prop_assert_eq!(digest(&left), backwards);
            prop_assert_eq!(digest(&left) == digest(&right), left == right);
        }
    }
}
