//! Short texts by which people and programs compare keys.
//!
//! A fingerprint is the first 20 bytes of a SHA-256 over a purpose and the key. It gives nothing of a secret key away, and a second key
//! with the same fingerprint cannot be found.

use std::{fmt, str::FromStr};

use sha2::{Digest, Sha256};

use crate::keys::Kek;

const LENGTH: usize = 20;
const BYTES_PER_GROUP: usize = 2;

/// A short text for a key, such as `1c0f-…-77ab` (ten groups of four hexadecimal digits).
///
/// ```
/// use konverge_zopp_crypto::{Fingerprint, Kek};
///
/// let fingerprint = Fingerprint::of_workspace("01890a5d-ac96-774b-bcce-b302099a8057", &Kek::from_slice(&[0x33; 32])?);
/// assert_eq!(fingerprint.to_string().parse(), Ok(fingerprint));
/// # Ok::<(), konverge_zopp_crypto::KeyError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint([u8; LENGTH]);

/// A text is not a fingerprint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a fingerprint: 40 hexadecimal digits are expected, with or without dashes")]
pub struct FingerprintError;

impl Fingerprint {
    /// Bytes of a fingerprint.
    pub const LENGTH: usize = LENGTH;

    /// Returns the fingerprint of a workspace: of its ID and its key together.
    pub fn of_workspace(workspace_id: &str, kek: &Kek) -> Self {
        Self::of("konverge.zopp.v1 workspace key", &[workspace_id.as_bytes(), kek.expose()])
    }

    /// Returns the fingerprint of a principal: of both its public keys. The second one may be missing (empty).
    pub fn of_principal(signing: &[u8], exchange: &[u8]) -> Self {
        Self::of("konverge.zopp.v1 principal keys", &[signing, exchange])
    }

    /// Returns the fingerprint of these bytes, as [`Fingerprint::to_bytes`] gives them; `None` for another number of bytes.
    pub fn from_slice(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().map(Self).ok()
    }

    /// Returns its bytes.
    pub fn to_bytes(self) -> [u8; Self::LENGTH] {
        self.0
    }

    fn of(purpose: &str, parts: &[&[u8]]) -> Self {
        let mut hash = Sha256::new();
        hash.update(purpose);
        for part in parts {
            // With its length, so that no two lists of parts are the same bytes.
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        let mut bytes = [0; LENGTH];
        bytes.copy_from_slice(&hash.finalize()[..LENGTH]);
        Self(bytes)
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, group) in self.0.chunks(BYTES_PER_GROUP).enumerate() {
            if index > 0 {
                f.write_str("-")?;
            }
            f.write_str(&hex::encode(group))?;
        }
        Ok(())
    }
}

impl FromStr for Fingerprint {
    type Err = FingerprintError;

    fn from_str(text: &str) -> Result<Self, FingerprintError> {
        let digits: String = text.trim().chars().filter(|character| *character != '-').collect();
        let mut bytes = [0; LENGTH];
        hex::decode_to_slice(digits, &mut bytes).map_err(|_| FingerprintError)?;
        Ok(Self(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kek(byte: u8) -> Kek {
        Kek::from_slice(&[byte; 32]).unwrap()
    }

    #[test]
    fn every_part_counts() {
        let one = Fingerprint::of_workspace("a", &kek(1));
        assert_eq!(one, Fingerprint::of_workspace("a", &kek(1)));
        assert_ne!(one, Fingerprint::of_workspace("b", &kek(1)));
        assert_ne!(one, Fingerprint::of_workspace("a", &kek(2)));
        assert_ne!(Fingerprint::of_principal(b"ab", b""), Fingerprint::of_principal(b"a", b"b"));
        assert_ne!(Fingerprint::of_principal(&[1; 32], &[2; 32]), Fingerprint::of_principal(&[1; 32], &[3; 32]));
    }

    #[test]
    fn texts() {
        let text = Fingerprint::of_principal(b"a", b"b").to_string();
        assert_eq!((text.len(), text.split('-').count()), (49, 10), "{text}");
        let spelt = format!(" {} ", text.replace('-', "").to_uppercase());
        assert_eq!(spelt.parse::<Fingerprint>().unwrap().to_string(), text);
        for bad in ["", "ab", "g", &text[1..], &format!("{text}00")] {
            assert_eq!(bad.parse::<Fingerprint>(), Err(FingerprintError), "{bad}");
        }
    }
}
