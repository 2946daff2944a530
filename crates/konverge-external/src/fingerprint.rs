//! Telling whether something changed without keeping it.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use zeroize::Zeroizing;

/// Length of a key in bytes: the output length of the hash, as RFC 2104 recommends.
pub const KEY_LENGTH: usize = 32;

/// The key of all fingerprints of one source.
///
/// A plain hash of a short body, and also the `ETag` of many servers, can be guessed by trying all bodies. Fingerprints are kept
/// where others may read, so they are made with a key. Those made with different keys cannot be compared: everything that is
/// known then counts as modified once.
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

    /// From what [`FingerprintKey::expose`] gave; nothing if that is not what it is.
    pub fn from_slice(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self::new)
    }

    /// The bytes, for the one place that keeps them: a [`Memory`](crate::Memory).
    pub fn expose(&self) -> &[u8] {
        &*self.0
    }

    /// The fingerprint of some parts: 128 bits as hexadecimal digits. Which part a byte belongs to counts.
    pub fn fingerprint(&self, parts: &[&[u8]]) -> String {
        let mut mac = self.mac();
        for part in parts {
            mac.update(&(part.len() as u64).to_be_bytes());
            mac.update(part);
        }
        hex::encode(&mac.finalize().into_bytes()[..16])
    }

    #[expect(clippy::expect_used, reason = "HMAC takes a key of any length; the constructor's error is never made")]
    fn mac(&self) -> Hmac<Sha256> {
        Hmac::<Sha256>::new_from_slice(&*self.0).expect("HMAC takes a key of any length")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

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
