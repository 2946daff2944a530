//! Telling whether content changed without keeping the content.

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

    /// The digest of named contents. The order in which they come does not matter; each name counts once, and the caller
    /// guarantees that it comes once.
    pub fn digest<'a>(&self, contents: impl IntoIterator<Item = (&'a str, &'a [u8])>) -> ContentDigest {
        let mut sorted: Vec<_> = contents.into_iter().collect();
        sorted.sort_unstable_by_key(|&(name, _)| name);
        let mut mac = self.mac();
        for (name, content) in sorted {
            // Each part is preceded by its length, so that no two different maps make the same bytes.
            for part in [name.as_bytes(), content] {
                mac.update(&(part.len() as u64).to_be_bytes());
                mac.update(part);
            }
        }
        ContentDigest(mac.finalize().into_bytes().into())
    }

    #[expect(clippy::expect_used, reason = "HMAC takes a key of any length; the constructor's error is never made")]
    fn mac(&self) -> Hmac<Sha256> {
        Hmac::<Sha256>::new_from_slice(&*self.0).expect("HMAC takes a key of any length")
    }
}

/// What [`DigestKey::digest`] makes of contents: equal exactly when they are, but for a chance of 2⁻¹²⁸.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ContentDigest([u8; 32]);

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
