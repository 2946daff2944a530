//! Telling whether something changed without keeping it.

use konverge_core::digest::{DIGEST_KEY_LENGTH, keyed_hash};
use zeroize::Zeroizing;

/// Length of a key in bytes.
pub const KEY_LENGTH: usize = DIGEST_KEY_LENGTH;

/// The key of all fingerprints of one source.
///
/// A plain hash of a short body, and also the `ETag` of many servers, can be guessed by trying all bodies. Fingerprints
/// are kept where others may read, so they are made with a key. Those made with different keys cannot be compared:
/// everything that is known then counts as modified once.
#[derive(Clone)]
pub struct FingerprintKey(Zeroizing<[u8; KEY_LENGTH]>);

impl FingerprintKey {
    /// A key from secret random bytes.
    pub fn new(bytes: [u8; KEY_LENGTH]) -> Self {
        Self(Zeroizing::new(bytes))
    }

    /// A key that nobody has seen before; fails when the system has no randomness.
    pub fn random() -> Result<Self, getrandom::Error> {
        let mut bytes = Zeroizing::new([0; KEY_LENGTH]);
        getrandom::fill(&mut *bytes)?;
        Ok(Self(bytes))
    }

    /// Returns the key with these bytes, which [`FingerprintKey::expose`] returned, or `None` if there are not 32.
    pub fn from_slice(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self::new)
    }

    /// The bytes, for the one place that keeps them: a [`Memory`](crate::Memory).
    pub fn expose(&self) -> &[u8] {
        &*self.0
    }

    /// The fingerprint of some parts: 128 bits as hexadecimal digits. Which part a byte belongs to counts.
    pub fn fingerprint(&self, parts: &[&[u8]]) -> String {
        hex::encode(&keyed_hash(&self.0, parts.iter().copied())[..16])
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// By another program. An earlier version made the remembered fingerprints. If this one differed, everything would count as modified.
    #[test]
    fn the_bytes_stay_the_same() {
        let found = FingerprintKey::new([7; KEY_LENGTH]).fingerprint(&[b"etag", b"\"x\""]);
        assert_eq!(found, "6c89f0b64b50d97e7bc3ab046e88fb67");
    }

    #[test]
    fn another_key_makes_another_fingerprint() {
        let fingerprint = |byte| FingerprintKey::new([byte; KEY_LENGTH]).fingerprint(&[b"body"]);
        assert_ne!(fingerprint(1), fingerprint(2));
        assert_eq!(fingerprint(1).len(), 32);
    }

    proptest! {
        #[test]
        fn equal_exactly_when_the_parts_are(
            left in proptest::collection::vec("[ab]{0,2}", 0..3),
            right in proptest::collection::vec("[ab]{0,2}", 0..3),
        ) {
            let key = FingerprintKey::new([7; KEY_LENGTH]);
            let of = |parts: &[String]| key.fingerprint(&parts.iter().map(String::as_bytes).collect::<Vec<_>>());
            prop_assert_eq!(of(&left) == of(&right), left == right);
        }
    }
}
